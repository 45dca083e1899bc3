//! Early write-back: the system starts to write to disk before the sync.

use std::fs::File;

/// Starts the write-back of `len` bytes at offset `from`, without waiting. Errors are left to the final sync.
#[cfg(target_os = "linux")]
pub(crate) fn start(file: &File, from: u64, len: u64) {
    use std::os::fd::AsRawFd;
    let (Ok(from), Ok(len)) = (i64::try_from(from), i64::try_from(len)) else { return };
    // SAFETY: the call takes only numbers, and `file` keeps the descriptor open.
    unsafe { libc::sync_file_range(file.as_raw_fd(), from, len, libc::SYNC_FILE_RANGE_WRITE) };
}

/// Other systems write back at the final sync.
#[cfg(not(target_os = "linux"))]
pub(crate) fn start(_file: &File, _from: u64, _len: u64) {}
