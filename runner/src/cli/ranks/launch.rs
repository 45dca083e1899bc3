//! Whether a launcher of MPI has started this process, and the connection to its other ranks.

use std::sync::Arc;
use std::time::Duration;

use morphgl_group::ReadRows;

use crate::SharedExchange;

/// Variables with the number of ranks that Open MPI, and MPICH and Intel MPI set in each.
const SIZES: [&str; 2] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"];

/// The number of ranks that a launcher of MPI has started this process with.
fn launched() -> Option<usize> {
    SIZES.iter().find_map(|name| std::env::var(name).ok()?.parse().ok())
}

#[cfg(feature = "mpi")]
mod mpi {
    use std::io::Write;
    use std::sync::{Arc, Mutex, OnceLock, PoisonError};
    use std::time::{Duration, Instant};

    use anyhow::Context;
    use morphgl_group::ReadRows;
    use morphgl_group_mpi::MpiExchange;

    use crate::SharedExchange;
    use crate::cli::interrupt;
    use crate::group::Identity;

    static EXCHANGE: OnceLock<Arc<Mutex<MpiExchange>>> = OnceLock::new();

    /// `mpirun` kills a process 1 s after it has asked it to stop, so a rank that waits says before then for which others.
    const SILENCE: Duration = Duration::from_millis(300);

    pub(crate) fn connect(limit: Duration) -> anyhow::Result<Option<(SharedExchange, String)>> {
        if super::launched().is_none() {
            return Ok(None);
        }
        let mut exchange = MpiExchange::start(limit)?;
        let host = exchange.host().to_string();
        let (mut asked, mut said) = (None, false);
        exchange.on_wait(move |ranks| {
            if said || interrupt::status().is_none() {
                return;
            }
            if asked.get_or_insert_with(Instant::now).elapsed() >= SILENCE {
                said = true;
                let ranks: Vec<String> = ranks.iter().map(|rank| format!("rank {rank}")).collect();
                let own = Identity::get().map(ToString::to_string).unwrap_or_default();
                let line = format!("{own}: asked to stop, and waits for {}\n", ranks.join(", "));
                let _ = std::io::stderr().write_all(line.as_bytes());
            }
        });
        let exchange = Arc::new(Mutex::new(exchange));
        let _ = EXCHANGE.set(Arc::clone(&exchange));
        Ok(Some((SharedExchange(exchange), host)))
    }

    pub(crate) fn expose(rows: Arc<[u8]>, row_bytes: usize) -> anyhow::Result<Box<dyn ReadRows>> {
        let exchange = EXCHANGE.get().context("rows are divided among ranks, and there are none")?;
        Ok(exchange.lock().unwrap_or_else(PoisonError::into_inner).expose(rows, row_bytes)?)
    }

    pub(crate) fn end(status: u8) {
        if let Some(exchange) = EXCHANGE.get() {
            exchange.lock().unwrap_or_else(PoisonError::into_inner).end(status);
        }
    }
}

/// Initializes MPI where this process is a rank; the exchange, and this machine's name.
#[cfg(feature = "mpi")]
pub(super) fn connect(limit: Duration) -> anyhow::Result<Option<(SharedExchange, String)>> {
    mpi::connect(limit)
}

/// Lets other ranks read this one's rows; what reads theirs. All ranks make the call.
#[cfg(feature = "mpi")]
pub(super) fn expose(rows: Arc<[u8]>, row_bytes: usize) -> anyhow::Result<Box<dyn ReadRows>> {
    mpi::expose(rows, row_bytes)
}

/// Ends MPI where it is initialized; all processes of the run where a rank does not come.
#[cfg(feature = "mpi")]
pub(super) fn end(status: u8) {
    mpi::end(status);
}

/// Without MPI, the processes of a run would each train alone.
#[cfg(not(feature = "mpi"))]
pub(super) fn connect(_limit: Duration) -> anyhow::Result<Option<(SharedExchange, String)>> {
    if launched().is_some_and(|size| size > 1) {
        let what = "mpirun: this program is built without MPI; build it with --features mpi, or start it alone";
        return Err(crate::cli::usage::Usage::error(what));
    }
    Ok(None)
}

#[cfg(not(feature = "mpi"))]
pub(super) fn expose(_rows: Arc<[u8]>, _row_bytes: usize) -> anyhow::Result<Box<dyn ReadRows>> {
    anyhow::bail!("rows are divided among ranks of MPI, which this program is built without")
}

#[cfg(not(feature = "mpi"))]
pub(super) fn end(_status: u8) {}
