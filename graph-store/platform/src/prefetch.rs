//! Prefetch hints. They have no visible effect and never fault; on other processors than x86-64 they do nothing.

/// Bytes of a cache line.
pub const CACHE_LINE: usize = 64;

/// Prefetches `values[index]` into the first-level cache; does nothing out of bounds.
#[inline(always)]
pub fn prefetch<T>(values: &[T], index: usize) {
    if let Some(value) = values.get(index) {
        prefetch_line(value);
    }
}

/// Prefetches `values[index]` into the second-level cache, for elements read only hundreds of prefetches later: more of
/// these requests are in flight at a time, and they do not evict the working set from the first level.
#[inline(always)]
pub fn prefetch_early<T>(values: &[T], index: usize) {
    if let Some(value) = values.get(index) {
        prefetch_line_early(value);
    }
}

/// Prefetches the cache line at `address`, which need not be valid, into the first-level cache.
#[inline(always)]
pub fn prefetch_line<T>(address: *const T) {
    hint::<false>(address.cast());
}

/// As [`prefetch_line`], but into the second-level cache.
#[inline(always)]
pub fn prefetch_line_early<T>(address: *const T) {
    hint::<true>(address.cast());
}

/// Prefetches into the first-level cache, or, if `EARLY`, into the second-level cache.
#[inline(always)]
fn hint<const EARLY: bool>(address: *const i8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
        // SAFETY: a prefetch reads nothing and never faults; SSE is part of x86-64.
        unsafe { if EARLY { _mm_prefetch::<_MM_HINT_T1>(address) } else { _mm_prefetch::<_MM_HINT_T0>(address) } };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

#[cfg(test)]
mod tests;
