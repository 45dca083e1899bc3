//! Whether a launcher of MPI has started this process, and the connection to its other ranks.

use crate::SharedExchange;

/// Variables with the number of ranks that Open MPI, and MPICH and Intel MPI set in each.
const SIZES: [&str; 2] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"];

/// The number of ranks that a launcher of MPI has started this process with.
fn launched() -> Option<usize> {
    SIZES.iter().find_map(|name| std::env::var(name).ok()?.parse().ok())
}

/// One end of the exchange of all ranks, this machine's name, and the connection itself.
type Connected = (SharedExchange, String, Connection);

#[cfg(feature = "mpi")]
mod mpi {
    use std::io::Write;
    use std::sync::{Arc, Mutex, PoisonError};
    use std::time::{Duration, Instant};

    use morphgl_group::{Exchange, ReadRows};
    use morphgl_group_mpi::MpiExchange;

    use super::Connected;
    use crate::SharedExchange;

    /// `mpirun` kills a process 1 s after it has asked it to stop, so a rank that waits says before then for which others.
    const SILENCE: Duration = Duration::from_millis(300);

    /// The connection to the other ranks.
    pub(crate) struct Connection(Arc<Mutex<MpiExchange>>);

    impl std::fmt::Debug for Connection {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Connection")
        }
    }

    /// Initializes MPI where this process is a rank; `is_asked` says whether it is asked to end.
    pub(crate) fn connect(limit: Duration, is_asked: fn() -> bool) -> anyhow::Result<Option<Connected>> {
        if super::launched().is_none() {
            return Ok(None);
        }
        let mut exchange = MpiExchange::start(limit)?;
        let host = exchange.host().to_string();
        let own = format!("rank {} ({host})", exchange.rank());
        let (mut asked, mut said) = (None, false);
        exchange.on_wait(move |ranks| {
            if said || !is_asked() {
                return;
            }
            if asked.get_or_insert_with(Instant::now).elapsed() >= SILENCE {
                said = true;
                let ranks: Vec<String> = ranks.iter().map(|rank| format!("rank {rank}")).collect();
                let line = format!("{own}: asked to stop, and waits for {}\n", ranks.join(", "));
                let _ = std::io::stderr().write_all(line.as_bytes());
            }
        });
        let exchange = Arc::new(Mutex::new(exchange));
        let connection = Connection(Arc::clone(&exchange));
        Ok(Some((SharedExchange(exchange), host, connection)))
    }

    impl Connection {
        pub(crate) fn expose(&self, rows: Arc<Vec<u8>>, row_bytes: usize) -> anyhow::Result<Box<dyn ReadRows>> {
            Ok(self.0.lock().unwrap_or_else(PoisonError::into_inner).expose(rows, row_bytes)?)
        }

        pub(crate) fn end(&self, status: u8) {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).end(status);
        }
    }
}

#[cfg(feature = "mpi")]
pub(super) use mpi::{Connection, connect};

#[cfg(not(feature = "mpi"))]
mod absent {
    use std::sync::Arc;
    use std::time::Duration;

    use morphgl_group::ReadRows;

    use super::Connected;
    use crate::usage::Usage;

    /// There is none without MPI.
    #[derive(Debug)]
    pub(crate) enum Connection {}

    /// Without MPI, the processes of a run would each train alone.
    pub(crate) fn connect(_limit: Duration, _is_asked: fn() -> bool) -> anyhow::Result<Option<Connected>> {
        if super::launched().is_some_and(|size| size > 1) {
            let what = "mpirun: this program is built without MPI; build it with --features mpi, or start it alone";
            return Err(Usage::error(what));
        }
        Ok(None)
    }

    impl Connection {
        pub(crate) fn expose(&self, _rows: Arc<Vec<u8>>, _row_bytes: usize) -> anyhow::Result<Box<dyn ReadRows>> {
            match *self {}
        }

        pub(crate) fn end(&self, _status: u8) {
            match *self {}
        }
    }
}

#[cfg(not(feature = "mpi"))]
pub(super) use absent::{Connection, connect};
