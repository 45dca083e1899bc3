//! Memory of this process: its peak, its size now, the size of its pages, and hooks of its allocator.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use morphgl_platform::{SmallPages, peak_memory};

/// Limits of memory from which on there are huge pages. Some 50 buffers of a job take up to 2 MiB each besides what they hold: of less
/// memory that is more than what plans leave free.
const HUGE_PAGES: u64 = 2 << 30;

static SMALL_PAGES: Mutex<Option<SmallPages>> = Mutex::new(None);

/// The highest peak before [`take_peak`] was last called.
static EARLIER_PEAK: AtomicU64 = AtomicU64::new(0);

static HOOKS: OnceLock<AllocatorHooks> = OnceLock::new();

/// How the process's allocator handles freed memory.
#[derive(Debug, Clone, Copy)]
pub struct AllocatorHooks {
    /// Returns freed memory to the system, so that profiling and evaluation leave none behind that training does not need.
    pub release: fn(),
    /// Starts or stops keeping freed memory. It is kept while training operators are timed alternately: one that allocates
    /// its tensors at each step would otherwise lose its memory between its steps, which never happens when it trains alone.
    pub keep_freed: fn(bool),
}

/// Sets the hooks of this process's allocator; only the first call counts. Without hooks the allocator decides.
pub fn set_allocator_hooks(hooks: AllocatorHooks) {
    HOOKS.get_or_init(|| hooks);
}

/// Does `work` while freed memory is kept, also when it panics.
pub(crate) fn keeping_freed<T>(work: impl FnOnce() -> T) -> T {
    struct Keep;
    impl Drop for Keep {
        fn drop(&mut self) {
            keep_freed(false);
        }
    }
    keep_freed(true);
    let _keep = Keep;
    work()
}

fn keep_freed(keep: bool) {
    HOOKS.get().into_iter().for_each(|hooks| (hooks.keep_freed)(keep));
}

/// Returns freed memory to the system.
pub(crate) fn release() {
    HOOKS.get().into_iter().for_each(|hooks| (hooks.release)());
}

/// Prepares the process for a command that may use so many bytes, until [`unlimited`] is called.
pub(crate) fn limited(bytes: u64) {
    if bytes < HUGE_PAGES {
        let mut pages = SMALL_PAGES.lock().unwrap_or_else(PoisonError::into_inner);
        *pages = pages.take().or_else(SmallPages::new);
    }
}

/// Ends what [`limited`] began.
pub(crate) fn unlimited() {
    *SMALL_PAGES.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

/// Peak memory of this process in bytes; 0 where the system does not report it.
pub fn peak_rss_bytes() -> u64 {
    recent_peak().max(EARLIER_PEAK.load(Ordering::Relaxed))
}

/// Peak memory of this process in bytes since the last call; freed memory is released. Where the system cannot reset a
/// peak, it is that of all time: an upper bound.
pub(crate) fn take_peak() -> u64 {
    let peak = recent_peak();
    EARLIER_PEAK.fetch_max(peak, Ordering::Relaxed);
    release();
    std::fs::write("/proc/self/clear_refs", "5").ok();
    peak
}

fn recent_peak() -> u64 {
    status("VmHWM:").or_else(peak_memory).unwrap_or(0)
}

/// Bytes of this process's memory without files: the system cannot reclaim them. Without `/proc` all that it ever had, an upper
/// bound.
pub(crate) fn anonymous() -> u64 {
    status("RssAnon:").or_else(peak_memory).unwrap_or(0)
}

/// Bytes of mapped files in memory: the system reclaims them when it needs the memory.
pub(crate) fn mapped_files() -> u64 {
    status("RssFile:").unwrap_or(0)
}

fn status(field: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with(field));
    line.and_then(|l| l.split_whitespace().nth(1)?.parse::<u64>().ok()).map(|kilobytes| kilobytes * 1024)
}

#[cfg(test)]
mod tests;
