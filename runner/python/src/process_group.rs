//! Collectives of ranks that torch.distributed connects: what torch does is in `python/morphgl/process_group.py`.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use morphgl::{Process, SharedExchange};
use morphgl_group::{Exchange, GroupError, Result};
use pyo3::call::PyCallArgs;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes};

/// A process that is one of the ranks of `group`, a `ProcessGroup` of the package.
pub(crate) fn process_of(py: Python<'_>, group: Py<PyAny>) -> PyResult<Process> {
    let host = group.getattr(py, "host")?.extract(py)?;
    let (rank, size) = (group.getattr(py, "rank")?.extract(py)?, group.getattr(py, "size")?.extract(py)?);
    let connect = move |limit: Duration| {
        let exchange = TorchExchange { group, rank, size, sent: 0, failed: None };
        exchange.call("open", (limit.as_secs_f64(),), |_| Ok(()))?;
        Ok(SharedExchange(Arc::new(Mutex::new(exchange))))
    };
    Ok(Process::default().with_exchange(host, connect))
}

/// One rank's [`Exchange`], by a process group of torch.distributed.
struct TorchExchange {
    group: Py<PyAny>,
    rank: usize,
    size: usize,
    sent: u64,
    /// The first failure: this rank takes part in no exchange any more.
    failed: Option<GroupError>,
}

impl TorchExchange {
    /// Calls a method of the group, and takes its value.
    fn call<T>(
        &self,
        method: &str,
        arguments: impl for<'py> PyCallArgs<'py>,
        take: impl FnOnce(Bound<'_, PyAny>) -> PyResult<T>,
    ) -> Result<T> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        Python::attach(|py| self.group.bind(py).call_method1(method, arguments).and_then(take))
            .map_err(|error| GroupError::Engine(format!("torch.distributed at rank {}: {error}", self.rank)))
    }

    /// Passes a result on; the first error is kept, and returned by all further exchanges.
    fn kept<T>(&mut self, done: Result<T>) -> Result<T> {
        if let Err(error) = &done {
            self.failed.get_or_insert_with(|| error.clone());
        }
        done
    }
}

impl Exchange for TorchExchange {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn all_gather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        let bytes = Python::attach(|py| PyBytes::new(py, mine).unbind());
        let all = self.call("all_gather", (bytes,), |all| all.extract());
        self.sent += (mine.len() * (self.size - 1)) as u64;
        self.kept(all)
    }

    fn all_reduce(&mut self, values: &mut [f32]) -> Result<()> {
        let bytes = Python::attach(|py| PyByteArray::new(py, bytemuck::cast_slice(values)).unbind());
        let summed = self.call("all_reduce", (&bytes,), |_| Ok(()));
        self.kept(summed)?;
        // What each rank sends for the sums of others, and of its own sums.
        self.sent += (2 * size_of_val(values) * (self.size - 1) / self.size) as u64;
        Python::attach(|py| {
            // SAFETY: the bytes are copied while the interpreter's lock is held, and `all_reduce` has left no view of them.
            bytemuck::cast_slice_mut(values).copy_from_slice(unsafe { bytes.bind(py).as_bytes() });
        });
        Ok(())
    }

    fn bytes_sent(&self) -> u64 {
        self.sent
    }

    fn leave(&mut self, why: &str) {
        if self.failed.is_none() {
            let _ = self.call("close", (), |_| Ok(()));
            self.failed = Some(GroupError::Left { rank: self.rank, why: why.to_string() });
        }
    }
}

impl fmt::Debug for TorchExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TorchExchange(rank {} of {})", self.rank, self.size)
    }
}
