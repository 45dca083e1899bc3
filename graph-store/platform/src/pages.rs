//! Memory for large arrays: mapped in huge pages, and recycled.

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use memmap2::MmapMut;

/// Bytes of a huge page; larger ones are not requested.
const HUGE: usize = 2 << 20;
/// Bytes of a small page, or a multiple.
const SMALL: usize = 4 << 10;

/// A byte buffer mapped from the system: in huge pages from 2 MiB on, which avoids most TLB misses of scattered reads and
/// writes.
///
/// Its bytes start at a multiple of 64. Only the system clears its memory, and pages that were never written take no
/// memory. The buffer keeps its memory when it shrinks, and returns it when dropped: to its [`PagePool`], or else to the
/// system.
#[derive(Default)]
pub struct Pages {
    // Invariant: `len` is at most the mapping's bytes, 0 without a mapping.
    mapping: Option<Mapping>,
    len: usize,
    pool: Weak<Mutex<Vec<Mapping>>>,
}

struct Mapping {
    map: MmapMut,
    /// Bytes before the first multiple of a huge page; never touched.
    start: usize,
}

impl Mapping {
    fn new(bytes: usize) -> io::Result<Self> {
        if bytes < HUGE {
            return Ok(Self { map: MmapMut::map_anon(bytes.next_multiple_of(SMALL))?, start: 0 });
        }
        let bytes = bytes.checked_next_multiple_of(HUGE).ok_or(io::ErrorKind::OutOfMemory)?;
        let mut map = MmapMut::map_anon(bytes)?;
        // Newer kernels align large mappings; elsewhere one huge page more allows to do it here.
        let mut start = map.as_ptr().align_offset(HUGE);
        if start != 0 {
            drop(map);
            map = MmapMut::map_anon(bytes.checked_add(HUGE).ok_or(io::ErrorKind::OutOfMemory)?)?;
            start = map.as_ptr().align_offset(HUGE);
        }
        // A system without huge pages refuses the advice and uses small ones.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Ok(Self { map, start })
    }

    fn bytes(&self) -> usize {
        // After `start` come whole huge pages, and less than one that stays unused.
        (self.map.len() - self.start) / SMALL * SMALL
    }
}

impl Pages {
    /// An empty buffer, which takes no memory.
    pub const fn new() -> Self {
        Self { mapping: None, len: 0, pool: Weak::new() }
    }

    /// A buffer of `len` zeros; a page takes memory when it is first touched.
    ///
    /// # Errors
    ///
    /// The system is out of memory.
    pub fn zeroed(len: usize) -> io::Result<Self> {
        let mapping = if len == 0 { None } else { Some(Mapping::new(len)?) };
        Ok(Self { mapping, len, pool: Weak::new() })
    }

    /// Makes the buffer `len` bytes long and returns them: old content within the capacity, else zeros.
    /// A mapping that is too small is replaced by one of twice the length, of which nothing is touched yet.
    ///
    /// # Panics
    ///
    /// When the system is out of memory.
    pub fn resize(&mut self, len: usize) -> &mut [u8] {
        if len > self.capacity() {
            // The old mapping is dropped first: the two never take memory at the same time.
            (self.mapping, self.len) = (None, 0);
            // Twice the length: untouched pages cost nothing, and growing again would clear every page.
            let mapping = Mapping::new(len.saturating_mul(2)).or_else(|_| Mapping::new(len));
            self.mapping = Some(mapping.unwrap_or_else(|e| panic!("no memory for a buffer of {len} bytes: {e}")));
        }
        self.len = len;
        self
    }

    /// Bytes that the buffer can have without another mapping.
    pub fn capacity(&self) -> usize {
        self.mapping.as_ref().map_or(0, Mapping::bytes)
    }
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.mapping {
            Some(mapping) => &mapping.map[mapping.start..mapping.start + self.len],
            // Empty, but aligned for any element.
            None => bytemuck::cast_slice::<u128, u8>(&[]),
        }
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.mapping {
            Some(mapping) => &mut mapping.map[mapping.start..mapping.start + self.len],
            None => bytemuck::cast_slice_mut::<u128, u8>(&mut []),
        }
    }
}

impl Clone for Pages {
    /// Copies the bytes; the copy belongs to no pool.
    fn clone(&self) -> Self {
        let mut copy = Self::zeroed(self.len).unwrap_or_else(|e| panic!("no memory for {} bytes: {e}", self.len));
        copy.copy_from_slice(self);
        copy
    }
}

impl PartialEq for Pages {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Pages {}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pages({} of {} bytes)", self.len, self.capacity())
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if let (Some(mapping), Some(pool)) = (self.mapping.take(), self.pool.upgrade()) {
            pool.lock().unwrap_or_else(PoisonError::into_inner).push(mapping);
        }
    }
}

/// A pool of buffers: the memory of a dropped [`Pages`] is reused for the next one, still warm.
///
/// The producer of buffers keeps the pool, and any thread may drop a buffer; so there are as many as were ever in use at
/// the same time. Clones are the same pool; memory is freed with the last of them.
#[derive(Clone, Default)]
pub struct PagePool(Arc<Mutex<Vec<Mapping>>>);

impl PagePool {
    /// A pool without buffers.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty buffer with the memory returned last; if there is none, the buffer maps its own on first use.
    pub fn take(&self) -> Pages {
        let mapping = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Pages { mapping, len: 0, pool: Arc::downgrade(&self.0) }
    }

    /// Returned buffers.
    pub fn waiting(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl fmt::Debug for PagePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PagePool({} waiting)", self.waiting())
    }
}

/// While it exists, this process's memory is in small pages: what is touched takes memory, and nothing around it. Huge pages that
/// were touched before stay.
///
/// A buffer in huge pages takes up to 2 MiB more than it holds, and how much more depends on the free memory of the system: with
/// little contiguous memory it gets small pages, which may become huge ones later.
#[derive(Debug)]
pub struct SmallPages(());

impl SmallPages {
    /// `None` where the process has small pages alone already, or its system has no such setting.
    pub fn new() -> Option<Self> {
        (!small_pages() && set_small_pages(true)).then_some(Self(()))
    }
}

impl Drop for SmallPages {
    fn drop(&mut self) {
        set_small_pages(false);
    }
}

#[cfg(target_os = "linux")]
fn small_pages() -> bool {
    // SAFETY: the call reads a flag of the process.
    unsafe { libc::prctl(libc::PR_GET_THP_DISABLE, 0, 0, 0, 0) != 0 }
}

#[cfg(target_os = "linux")]
fn set_small_pages(small: bool) -> bool {
    // SAFETY: the call sets a flag of the process, by which no address changes.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, libc::c_ulong::from(small), 0, 0, 0) == 0 }
}

#[cfg(not(target_os = "linux"))]
fn small_pages() -> bool {
    true
}

#[cfg(not(target_os = "linux"))]
fn set_small_pages(_small: bool) -> bool {
    false
}

#[cfg(test)]
mod tests;
