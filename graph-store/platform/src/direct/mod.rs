//! Direct file reads: past the page cache (`O_DIRECT`), in whole blocks.
//!
//! [`open_direct`], [`reopen_direct`] and [`read_blocks`] are the primitives. Behind the feature `direct`, a [`Reader`] brings scattered
//! elements of an array's file into memory, many reads in flight.

use std::fs::File;
use std::io;
use std::path::Path;

#[cfg(all(unix, feature = "direct"))]
mod engine;
#[cfg(all(unix, feature = "direct"))]
mod error;
#[cfg(all(unix, feature = "direct"))]
mod file;
#[cfg(all(unix, feature = "direct"))]
mod plan;
#[cfg(all(unix, feature = "direct"))]
mod reader;

#[cfg(all(unix, feature = "direct"))]
pub use self::{
    engine::{Method, ring_refused},
    error::{Error, ErrorKind, Result},
    file::DirectFile,
    plan::Fetch,
    reader::{Reader, Settings, Stats},
};

/// Opens `path` for reads past the page cache; `None` where the system or the file system has none.
///
/// # Errors
///
/// The file cannot be opened.
pub fn open_direct(path: &Path) -> io::Result<Option<File>> {
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::fs::OpenOptionsExt;
        match File::options().read(true).custom_flags(libc::O_DIRECT).open(path) {
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok(None),
            opened => opened.map(Some),
        }
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = path;
        Ok(None)
    }
}

/// Opens an open file once more for reads past the page cache, whatever is at its path by now; `None` where the system or the
/// file system has none, or the system no `/proc`.
///
/// # Errors
///
/// The file cannot be opened again.
pub fn reopen_direct(file: &File) -> io::Result<Option<File>> {
    #[cfg(target_os = "linux")]
    {
        use std::os::fd::AsRawFd;
        match open_direct(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd()))) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            opened => opened,
        }
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = file;
        Ok(None)
    }
}

/// Reads from byte `offset` on until `buffer` is full or the file ends; returns the bytes read. Offset, address and
/// length of `buffer` are multiples of `block`.
///
/// # Errors
///
/// The system refuses a read, or has no reads by position.
pub fn read_blocks(file: &File, block: usize, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    #[cfg(unix)]
    let read_at = <File as std::os::unix::fs::FileExt>::read_at;
    #[cfg(not(unix))]
    let read_at = |_: &File, _: &mut [u8], _: u64| io::Result::<usize>::Err(io::ErrorKind::Unsupported.into());
    let mut done = 0;
    while done < buffer.len() {
        match read_at(file, &mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
        // A partial block is the end of the file; a direct read cannot continue there.
        if !done.is_multiple_of(block) {
            break;
        }
    }
    Ok(done)
}
