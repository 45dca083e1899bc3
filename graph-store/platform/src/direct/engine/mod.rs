//! Engines that carry out reads: io_uring, or blocking threads.

use std::fmt;
use std::io;

use super::file::DirectFile;
use pool::Pool;

mod pool;
#[cfg(target_os = "linux")]
mod ring;

/// The I/O method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// io_uring: one thread, many reads in flight.
    Ring,
    /// Blocking threads, one read each.
    Threads,
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Method::Ring => "io_uring",
            Method::Threads => "threads that block",
        })
    }
}

/// Reads in flight, each into the slot it was started with.
pub(crate) trait IoEngine: fmt::Debug + Send {
    fn method(&self) -> Method;
    /// Starts the read of `len` bytes at `offset` into `slot`, which is free.
    fn start(&mut self, slot: usize, file: &DirectFile, offset: u64, len: usize);
    /// Waits for a read; returns its slot, free again, and the bytes read. Only with a read in flight.
    fn wait(&mut self) -> (usize, io::Result<usize>);
    /// Bytes of a free slot.
    fn bytes(&self, slot: usize) -> &[u8];
    /// Bytes of a free slot, mutable.
    fn bytes_mut(&mut self, slot: usize) -> &mut [u8];
}

/// Why io_uring cannot be used here; `None` if at least one reader can use it (a user's rings share a memory limit).
pub fn ring_refused() -> Option<String> {
    #[cfg(target_os = "linux")]
    return ring::Ring::new(1, 4096).err().map(|e| refused(&e));
    #[cfg(not(target_os = "linux"))]
    return Some(refused(&io::ErrorKind::Unsupported.into()));
}

fn refused(error: &io::Error) -> String {
    match cfg!(target_os = "linux") {
        true => format!("the kernel refuses io_uring ({error})"),
        false => "this system has no io_uring".to_string(),
    }
}

/// The engine of `method`; without one, io_uring or else threads, and then why io_uring was refused.
pub(crate) fn engine(
    method: Option<Method>,
    depth: usize,
    slot_bytes: usize,
) -> io::Result<(Box<dyn IoEngine>, Option<String>)> {
    let error = match method {
        Some(Method::Threads) => None,
        #[cfg(target_os = "linux")]
        _ => match ring::Ring::new(depth, slot_bytes) {
            Ok(ring) => return Ok((Box::new(ring), None)),
            Err(e) => Some(e),
        },
        #[cfg(not(target_os = "linux"))]
        _ => Some(io::ErrorKind::Unsupported.into()),
    };
    match error {
        Some(e) if method == Some(Method::Ring) => Err(e),
        error => Ok((Box::new(Pool::new(depth, slot_bytes)?), error.as_ref().map(refused))),
    }
}
