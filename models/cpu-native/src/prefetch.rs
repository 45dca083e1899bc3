//! Asking for memory before it is read.

use morphgl_platform::prefetch_line_early;
pub(crate) use morphgl_platform::{CACHE_LINE as LINE, prefetch_line as line};

/// Asks for `len` elements from `from` on, one of every 64 bytes; there need not be any.
#[inline(always)]
pub(crate) fn prefetch<T>(from: *const T, len: usize) {
    each_line(from, len, line);
}

/// As [`prefetch`], but into the second-level cache: the first level is full of what is being multiplied.
#[inline(always)]
pub(crate) fn prefetch_early<T>(from: *const T, len: usize) {
    each_line(from, len, prefetch_line_early);
}

#[inline(always)]
fn each_line<T>(from: *const T, len: usize, ask: impl Fn(*const T)) {
    let mut at = 0;
    while at < len {
        ask(from.wrapping_add(at));
        at += LINE / size_of::<T>();
    }
}
