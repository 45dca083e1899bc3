//! Memory of this process: its peak, its size now, the size of its pages, and hooks of its allocator.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use morphgl_platform::{SmallPages, peak_memory};

/// Limits of memory from which on there are huge pages. Some 50 buffers of a job take up to 2 MiB each besides what they hold: of less
/// memory that is more than what plans leave free.
const HUGE_PAGES: u64 = 2 << 30;

/// How the process's allocator handles freed memory.
#[derive(Debug, Clone, Copy)]
pub struct AllocatorHooks {
    /// Returns freed memory to the system, so that profiling and evaluation leave none behind that training does not need.
    pub release: fn(),
    /// Starts or stops keeping freed memory. It is kept while training operators are timed alternately: one that allocates
    /// its tensors at each step would otherwise lose its memory between its steps, which never happens when it trains alone.
    pub keep_freed: fn(bool),
}

/// The memory of a process, of all runs in it: its peak, and the hooks of its allocator.
#[derive(Debug, Default)]
pub(crate) struct ProcessMemory {
    /// `None` leaves freed memory to the allocator.
    hooks: Option<AllocatorHooks>,
    /// The highest peak before one was taken last.
    earlier_peak: AtomicU64,
    /// Small pages, while a run has them.
    small_pages: Mutex<Weak<SmallPages>>,
}

impl ProcessMemory {
    pub(crate) fn new(hooks: AllocatorHooks) -> Self {
        Self { hooks: Some(hooks), ..Self::default() }
    }

    /// Small pages alone for a run that may use so many bytes, while the value lives; runs share them.
    pub(crate) fn limited(&self, bytes: u64) -> Option<Arc<SmallPages>> {
        let mut shared = self.small_pages.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes >= HUGE_PAGES {
            return None;
        }
        shared.upgrade().or_else(|| {
            let pages = Arc::new(SmallPages::new()?);
            *shared = Arc::downgrade(&pages);
            Some(pages)
        })
    }

    /// Runs `work` while the allocator keeps freed memory; the setting is reset even if `work` panics.
    pub(crate) fn keeping_freed<T>(&self, work: impl FnOnce() -> T) -> T {
        struct Keep<'a>(&'a ProcessMemory);
        impl Drop for Keep<'_> {
            fn drop(&mut self) {
                self.0.keep_freed(false);
            }
        }
        self.keep_freed(true);
        let _keep = Keep(self);
        work()
    }

    fn keep_freed(&self, keep: bool) {
        self.hooks.iter().for_each(|hooks| (hooks.keep_freed)(keep));
    }

    /// Returns freed memory to the system.
    pub(crate) fn release(&self) {
        self.hooks.iter().for_each(|hooks| (hooks.release)());
    }

    /// Peak memory of the process in bytes; 0 where the system does not report it.
    pub(crate) fn peak(&self) -> u64 {
        recent_peak().max(self.earlier_peak.load(Ordering::Relaxed))
    }

    /// Peak memory of the process in bytes since the last call; freed memory is released. Where the system cannot reset a
    /// peak, it is that of all time: an upper bound.
    pub(crate) fn take_peak(&self) -> u64 {
        let peak = recent_peak();
        self.earlier_peak.fetch_max(peak, Ordering::Relaxed);
        self.release();
        std::fs::write("/proc/self/clear_refs", "5").ok();
        peak
    }
}

/// Small pages for work that may use so many bytes, while the value lives; `None` where it may use enough for huge ones, or has small
/// ones already.
pub(crate) fn small_pages(bytes: u64) -> Option<SmallPages> {
    (bytes < HUGE_PAGES).then(SmallPages::new).flatten()
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
