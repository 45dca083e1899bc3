//! Tables on huge pages.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use morphgl_platform::Pages;

/// A fixed number of words, initially zero, on huge pages where the system has any: with small pages, random reads of a
/// table of some megabytes wait for address translation as long as for the data.
#[derive(Debug)]
pub(crate) struct HugeWords<T> {
    pages: Pages,
    words: PhantomData<T>,
}

impl<T: bytemuck::Pod> HugeWords<T> {
    /// `len` words of zero.
    ///
    /// # Panics
    ///
    /// When the system is out of memory.
    pub(crate) fn zeroed(len: usize) -> Self {
        let bytes = len.checked_mul(size_of::<T>()).expect("a table fits into the address space");
        let pages = Pages::zeroed(bytes).unwrap_or_else(|e| panic!("{bytes} bytes for a table: {e}"));
        Self { pages, words: PhantomData }
    }
}

impl<T: bytemuck::Pod> Deref for HugeWords<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        bytemuck::cast_slice(&self.pages)
    }
}

impl<T: bytemuck::Pod> DerefMut for HugeWords<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(&mut self.pages)
    }
}
