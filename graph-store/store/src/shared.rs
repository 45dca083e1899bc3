//! A read-only array in memory or in a mapped file.

use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;

use memmap2::Mmap;

use morphgl_platform::Pages;

use crate::Element;

/// A shared read-only array in RAM or in a mapped file; dereferences to a slice, clones in O(1).
#[derive(Clone)]
pub struct Array<T: Element> {
    // Invariant: `start` is aligned for `T`, and the `len` elements from it lie within the memory of `owner`, which is
    // neither moved nor written while an owner exists.
    start: NonNull<T>,
    len: usize,
    owner: Owner<T>,
}

#[derive(Clone)]
#[allow(dead_code, reason = "owners keep memory alive")]
enum Owner<T> {
    Vec(Arc<Vec<T>>),
    Pages(Arc<Pages>),
    Map(Arc<MappedFile>),
    Foreign(Arc<dyn Any + Send + Sync>),
}

/// A mapped file, and its path for messages.
#[derive(Debug)]
pub(crate) struct MappedFile {
    pub(crate) map: Mmap,
    pub(crate) path: PathBuf,
}

// SAFETY: an array is a shared view of elements that are Send and Sync, and so is its owner.
unsafe impl<T: Element> Send for Array<T> {}
// SAFETY: as above; it gives no mutable access.
unsafe impl<T: Element> Sync for Array<T> {}

/// How the elements of a mapped array will be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// From the first to the last: the system reads ahead.
    Sequential,
    /// Scattered: the system reads only the touched pages.
    Random,
}

impl<T: Element> Array<T> {
    /// Views `len` elements of a mapped file from byte `offset`; `None` when they do not fit or are misaligned.
    pub(crate) fn from_map(file: MappedFile, offset: usize, len: usize) -> Option<Self> {
        let end = len.checked_mul(size_of::<T>())?.checked_add(offset)?;
        let values = NonNull::from(bytemuck::try_cast_slice::<u8, T>(file.map.get(offset..end)?).ok()?);
        Some(Self { start: values.cast(), len: values.len(), owner: Owner::Map(Arc::new(file)) })
    }

    /// The array in `pages`; `None` when their length is no multiple of an element's.
    pub fn from_pages(pages: Pages) -> Option<Self> {
        let pages = Arc::new(pages);
        let values = NonNull::from(bytemuck::try_cast_slice::<u8, T>(&pages).ok()?);
        Some(Self { start: values.cast(), len: values.len(), owner: Owner::Pages(pages) })
    }

    /// The `len` elements from `start` on, in memory that `owner` keeps: that of another library's array, which is not copied.
    /// `None` when `start` is misaligned.
    ///
    /// # Safety
    ///
    /// Until `owner` is dropped, the elements are initialized, and neither moved nor written.
    pub unsafe fn from_foreign(start: NonNull<T>, len: usize, owner: Arc<dyn Any + Send + Sync>) -> Option<Self> {
        start.is_aligned().then_some(Self { start, len, owner: Owner::Foreign(owner) })
    }

    /// Whether the elements lie in a mapped file.
    pub fn is_mapped(&self) -> bool {
        matches!(self.owner, Owner::Map(_))
    }

    /// The mapped file in which the elements lie; `None` in memory.
    pub fn file(&self) -> Option<&Path> {
        match &self.owner {
            Owner::Map(file) => Some(&file.path),
            _ => None,
        }
    }

    /// Advises the system how the elements of a mapped file will be read.
    pub fn advise(&self, access: Access) {
        #[cfg(unix)]
        if let Owner::Map(file) = &self.owner {
            // Without support for advice the bytes are the same.
            let _ = file.map.advise(match access {
                Access::Sequential => memmap2::Advice::Sequential,
                Access::Random => memmap2::Advice::Random,
            });
        }
        #[cfg(not(unix))]
        let _ = access;
    }

    /// Gives the pages of a mapped file back, which count as the program's memory once they are read; they are mapped again when
    /// they are read again.
    pub fn release(&self) {
        #[cfg(unix)]
        if let Owner::Map(file) = &self.owner {
            // SAFETY: the map is of a file and read-only, so pages have nothing that the file does not have.
            // Without support for advice the pages stay.
            let _ = unsafe { file.map.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) };
        }
    }
}

impl<T: Element> From<Vec<T>> for Array<T> {
    fn from(values: Vec<T>) -> Self {
        let values = Arc::new(values);
        Self { start: NonNull::from(&values[..]).cast(), len: values.len(), owner: Owner::Vec(values) }
    }
}

impl<T: Element> Deref for Array<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the invariant of `start` and `len`; the owner outlives the borrow of `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T: Element> PartialEq for Array<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Element> fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.is_mapped() { "mmap" } else { "RAM" };
        write!(f, "[{}; {}] in {place}", T::DTYPE, self.len())
    }
}
