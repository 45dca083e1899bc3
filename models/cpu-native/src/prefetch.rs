//! Asking for memory before it is read.

/// Bytes of a cache line.
pub(crate) const LINE: usize = 64;

/// Asks for `len` elements from `from` on, one of every 64 bytes; there need not be any.
#[inline(always)]
pub(crate) fn prefetch<T>(from: *const T, len: usize) {
    each_line(from, len, line);
}

/// As [`prefetch`], but into the second-level cache: the first level is full of what is being multiplied.
#[inline(always)]
pub(crate) fn prefetch_early<T>(from: *const T, len: usize) {
    each_line(from, len, line_early);
}

#[inline(always)]
fn each_line<T>(from: *const T, len: usize, ask: impl Fn(*const T)) {
    let mut at = 0;
    while at < len {
        ask(from.wrapping_add(at));
        at += LINE / size_of::<T>();
    }
}

/// Asks for the cache line of `at`, which need not be an address of anything.
#[inline(always)]
pub(crate) fn line<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing and never faults; SSE is part of x86-64.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// As [`line`], but into the second-level cache.
#[inline(always)]
fn line_early<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as in `line`.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
