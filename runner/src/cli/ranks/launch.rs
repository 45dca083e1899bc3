//! Whether a launcher of MPI has started this process, and the connection to its other ranks.

use std::time::Duration;

use crate::SharedExchange;

/// Variables that Open MPI, MPICH and Intel MPI, and launchers by PMIx set in each rank.
const VARIABLES: [&str; 3] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"];

fn is_launched() -> bool {
    VARIABLES.iter().any(|name| std::env::var_os(name).is_some())
}

#[cfg(feature = "mpi")]
mod mpi {
    use std::io::Write;
    use std::sync::{Arc, Mutex, OnceLock, PoisonError};
    use std::time::{Duration, Instant};

    use morphgl_group_mpi::MpiExchange;

    use crate::SharedExchange;
    use crate::cli::interrupt;
    use crate::group::Identity;

    static EXCHANGE: OnceLock<Arc<Mutex<MpiExchange>>> = OnceLock::new();

    /// `mpirun` kills a process 1 s after it has asked it to stop, so a rank that waits says before then for which others.
    const SILENCE: Duration = Duration::from_millis(300);

    pub(crate) fn connect(limit: Duration) -> anyhow::Result<Option<(SharedExchange, String)>> {
        if !super::is_launched() {
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
                let ranks: Vec<String> = ranks.iter().map(ToString::to_string).collect();
                let own = Identity::get().map(ToString::to_string).unwrap_or_default();
                let line = format!("{own}: asked to stop, and waits for rank {}\n", ranks.join(", "));
                let _ = std::io::stderr().write_all(line.as_bytes());
            }
        });
        let exchange = Arc::new(Mutex::new(exchange));
        let _ = EXCHANGE.set(Arc::clone(&exchange));
        Ok(Some((SharedExchange(exchange), host)))
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

/// Ends MPI where it is initialized; all processes of the run where a rank does not come.
#[cfg(feature = "mpi")]
pub(super) fn end(status: u8) {
    mpi::end(status);
}

/// Without MPI, the processes of a run would each train alone.
#[cfg(not(feature = "mpi"))]
pub(super) fn connect(_limit: Duration) -> anyhow::Result<Option<(SharedExchange, String)>> {
    if is_launched() {
        let what = "mpirun: this program is built without MPI; build it with --features mpi, or start it alone";
        return Err(crate::cli::usage::Usage::error(what));
    }
    Ok(None)
}

#[cfg(not(feature = "mpi"))]
pub(super) fn end(_status: u8) {}
