//! What this process took.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The peak before it was last taken.
static BEFORE: AtomicU64 = AtomicU64::new(0);

/// What gives freed memory back.
static GIVE_BACK: OnceLock<fn()> = OnceLock::new();

/// What keeps freed memory.
static KEEP_FREED: OnceLock<fn(bool)> = OnceLock::new();

/// Says how this process's allocator is told to keep what is freed, and to stop doing so. While training operators are timed
/// by turns it keeps it: one that makes its tensors anew at each step would else find its memory gone after another's turn, as
/// it never does where it trains alone. The first call counts.
pub fn keep_freed_by(keep: fn(bool)) {
    KEEP_FREED.get_or_init(|| keep);
}

/// Does `work` while freed memory is kept, where it is known how.
pub(crate) fn keeping_freed<T>(work: impl FnOnce() -> T) -> T {
    struct Stop;
    impl Drop for Stop {
        fn drop(&mut self) {
            KEEP_FREED.get().into_iter().for_each(|keep| keep(false));
        }
    }
    KEEP_FREED.get().into_iter().for_each(|keep| keep(true));
    let _stop = Stop;
    work()
}

/// Says how this process's allocator gives the system what was freed and is kept for later. Profiling and evaluation
/// then leave nothing behind that training does not need; without it, that depends on the allocator. The first call counts.
pub fn give_back_by(give_back: fn()) {
    GIVE_BACK.get_or_init(|| give_back);
}

/// Gives what was freed back to the system, where it is known how.
pub(crate) fn give_back() {
    if let Some(give_back) = GIVE_BACK.get() {
        give_back();
    }
}

/// The most memory this process ever held, in bytes; 0 where the system does not tell.
pub fn peak_rss_bytes() -> u64 {
    recent_peak().max(BEFORE.load(Ordering::Relaxed))
}

/// The most memory this process held since this was last asked, in bytes; what was freed is given back to the system now.
/// Where the system does not forget a peak, it is that of all time: an upper bound still.
pub(crate) fn take_peak() -> u64 {
    let peak = recent_peak();
    BEFORE.fetch_max(peak, Ordering::Relaxed);
    give_back();
    std::fs::write("/proc/self/clear_refs", "5").ok();
    peak
}

fn recent_peak() -> u64 {
    status("VmHWM:")
}

/// Bytes that this process holds now without files, which nobody but it can give back.
pub(crate) fn anonymous() -> u64 {
    status("RssAnon:")
}

/// Bytes of mapped files that are in memory now: the system takes them back when it needs the memory.
pub(crate) fn mapped_files() -> u64 {
    status("RssFile:")
}

fn status(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with(field));
    line.and_then(|l| l.split_whitespace().nth(1)?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests;
