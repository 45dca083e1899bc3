//! Zeroed memory on huge pages, for tables that are read at random.

use std::fmt;
use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;

/// Bytes of a huge page, and the alignment that lets the kernel use one.
const HUGE_PAGE: usize = 1 << 21;

/// A fixed number of words, zero at first, on huge pages where the system has any: random reads of a table of some
/// megabytes otherwise wait for address translation as long as for the data.
#[derive(Default)]
pub(crate) struct HugeWords<T> {
    map: Option<MmapMut>,
    // Invariant: `map[start..start + len * size_of::<T>()]` exists and is aligned for `T`; without a map both are 0.
    start: usize,
    len: usize,
    words: std::marker::PhantomData<T>,
}

impl<T: bytemuck::Pod> HugeWords<T> {
    /// `len` words of zero.
    ///
    /// # Panics
    ///
    /// When the system has no memory left, as other allocations do.
    pub(crate) fn zeroed(len: usize) -> Self {
        let bytes = len.checked_mul(size_of::<T>()).expect("a table fits the address space");
        if bytes == 0 {
            return Self { map: None, start: 0, len: 0, words: std::marker::PhantomData };
        }
        let huge = bytes >= HUGE_PAGE;
        let room = if huge { bytes + HUGE_PAGE } else { bytes };
        let map = MmapMut::map_anon(room).unwrap_or_else(|e| panic!("{bytes} bytes for a table: {e}"));
        let start = if huge { map.as_ptr().align_offset(HUGE_PAGE).min(HUGE_PAGE) } else { 0 };
        // Only advice: where the system has no huge pages the table works as well, more slowly.
        #[cfg(target_os = "linux")]
        if huge {
            let _ = map.advise_range(memmap2::Advice::HugePage, start, bytes);
        }
        Self { map: Some(map), start, len, words: std::marker::PhantomData }
    }
}

impl<T: bytemuck::Pod> Deref for HugeWords<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match &self.map {
            Some(map) => bytemuck::cast_slice(&map[self.start..self.start + self.len * size_of::<T>()]),
            None => &[],
        }
    }
}

impl<T: bytemuck::Pod> DerefMut for HugeWords<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.map {
            Some(map) => bytemuck::cast_slice_mut(&mut map[self.start..self.start + self.len * size_of::<T>()]),
            None => &mut [],
        }
    }
}

impl<T> fmt::Debug for HugeWords<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{} words]", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_zero_aligned_and_kept() {
        for len in [0, 1, 1000, 1 << 18, (1 << 18) + 1] {
            let mut words = HugeWords::<u64>::zeroed(len);
            assert_eq!(words.len(), len);
            assert!(words.iter().all(|&w| w == 0));
            words.iter_mut().zip(0..).for_each(|(w, i)| *w = i);
            assert!(words.iter().zip(0..).all(|(&w, i)| w == i));
            assert!(len < 1 << 18 || words.as_ptr().align_offset(HUGE_PAGE) == 0);
        }
    }
}
