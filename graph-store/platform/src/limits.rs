//! Limits of the process and of the system, and what the system tells without `/proc`.

use std::io;

/// The cure of an error that says that a limit of the process or the system is reached; `None` of other errors.
pub fn limit_cure(error: &io::Error) -> Option<&'static str> {
    #[cfg(target_os = "linux")]
    match error.raw_os_error() {
        Some(libc::EMFILE) => return Some("raise the limit of open files (ulimit -n)"),
        Some(libc::ENFILE) => return Some("the system has too many open files: end other programs"),
        Some(libc::EAGAIN) => {
            return Some(
                "give fewer --threads, or raise the limit of processes (ulimit -u, or the container's) or of memory (ulimit -v, -d)",
            );
        }
        _ => {}
    }
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Some("free some disk space and run again"),
        io::ErrorKind::FileTooLarge => Some("raise the file-size limit (ulimit -f) or write to another disk"),
        io::ErrorKind::OutOfMemory => Some("free some memory, or raise its limit (ulimit -v, -d, or the container's)"),
        _ => None,
    }
}

/// Bytes of the system's memory, and of its free part without the page cache, by `sysinfo`; `None` where the system does not
/// tell.
pub fn system_memory() -> Option<[u64; 2]> {
    #[cfg(target_os = "linux")]
    {
        let mut info = std::mem::MaybeUninit::<libc::sysinfo>::zeroed();
        // SAFETY: the call fills the structure, of which all zeros are a value.
        let info = unsafe { (libc::sysinfo(info.as_mut_ptr()) == 0).then(|| info.assume_init()) }?;
        let unit = u64::from(info.mem_unit);
        Some([info.totalram, info.freeram].map(|units| units * unit))
    }
    #[cfg(not(target_os = "linux"))]
    None
}

/// Peak resident set size of this process in bytes, by `getrusage`; `None` where the system does not report it.
pub fn peak_memory() -> Option<u64> {
    #[cfg(target_os = "linux")]
    {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the call fills the structure, of which all zeros are a value.
        let usage =
            unsafe { (libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) == 0).then(|| usage.assume_init()) }?;
        u64::try_from(usage.ru_maxrss).ok().map(|kilobytes| kilobytes << 10)
    }
    #[cfg(not(target_os = "linux"))]
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests;
