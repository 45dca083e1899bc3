//! Prefetches of several cache lines.

use morphgl_platform::prefetch_line_early;
pub(crate) use morphgl_platform::{CACHE_LINE, prefetch_line};

/// Prefetches `len` elements from `from` on, one address every 64 bytes; the addresses need not be valid.
#[inline(always)]
pub(crate) fn prefetch<T>(from: *const T, len: usize) {
    each_line(from, len, prefetch_line);
}

/// As [`prefetch`], but into the second-level cache, where the first level is full of the operands of a GEMM.
#[inline(always)]
pub(crate) fn prefetch_early<T>(from: *const T, len: usize) {
    each_line(from, len, prefetch_line_early);
}

#[inline(always)]
fn each_line<T>(from: *const T, len: usize, prefetch: impl Fn(*const T)) {
    let mut at = 0;
    while at < len {
        prefetch(from.wrapping_add(at));
        at += CACHE_LINE / size_of::<T>();
    }
}
