//! Memory for large arrays: mapped from the system in huge pages, used again and again.

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use memmap2::MmapMut;

/// Bytes of a huge page; larger ones are not asked for.
const HUGE: usize = 2 << 20;
/// Bytes of a small page, or a multiple of them.
const SMALL: usize = 4 << 10;

/// A byte buffer that is mapped from the system: in huge pages from 2 MiB on, which spares most of the misses in the
/// address translation cache that scattered reads and writes pay for.
///
/// Its bytes start at a multiple of 64. Nothing but the system ever clears its memory, and memory that was never
/// written takes no room. It keeps its memory when it shrinks, and gives it back when it is dropped: to the
/// [`PagePool`] it came from, or else to the system.
#[derive(Default)]
pub struct Pages {
    // Invariant: `len` is at most the room's bytes, 0 without a room.
    room: Option<Room>,
    len: usize,
    home: Weak<Mutex<Vec<Room>>>,
}

/// One mapping.
struct Room {
    map: MmapMut,
    /// Bytes before the first multiple of a huge page; never touched.
    start: usize,
}

impl Room {
    fn map(bytes: usize) -> io::Result<Self> {
        if bytes < HUGE {
            return Ok(Self { map: MmapMut::map_anon(bytes.next_multiple_of(SMALL))?, start: 0 });
        }
        let bytes = bytes.checked_next_multiple_of(HUGE).ok_or(io::ErrorKind::OutOfMemory)?;
        let mut map = MmapMut::map_anon(bytes)?;
        // Newer kernels align large mappings themselves; elsewhere one huge page more is room to do it here.
        let mut start = map.as_ptr().align_offset(HUGE);
        if start != 0 {
            drop(map);
            map = MmapMut::map_anon(bytes.checked_add(HUGE).ok_or(io::ErrorKind::OutOfMemory)?)?;
            start = map.as_ptr().align_offset(HUGE);
        }
        // A system without huge pages refuses the advice, and serves the same memory in small ones.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Ok(Self { map, start })
    }

    fn bytes(&self) -> usize {
        // The mapping is longer than `start` by whole huge pages, or by less than one that stays unused.
        (self.map.len() - self.start) / SMALL * SMALL
    }
}

impl Pages {
    /// An empty buffer, which takes no memory.
    pub const fn new() -> Self {
        Self { room: None, len: 0, home: Weak::new() }
    }

    /// A buffer of `len` zeros; a page takes memory when it is first touched.
    ///
    /// # Errors
    ///
    /// The system has no room for it.
    pub fn zeroed(len: usize) -> io::Result<Self> {
        let room = if len == 0 { None } else { Some(Room::map(len)?) };
        Ok(Self { room, len, home: Weak::new() })
    }

    /// Makes the buffer `len` bytes long and gives them: old content where the room suffices, else zeros.
    /// A room that is too small gives way to one of twice the length, of which nothing is touched yet.
    ///
    /// # Panics
    ///
    /// When the system has no room for it.
    pub fn resize(&mut self, len: usize) -> &mut [u8] {
        if len > self.capacity() {
            // The old room goes first: the two never take memory at the same time.
            (self.room, self.len) = (None, 0);
            // What is not touched costs nothing, and growing costs a clearing of every page: room for twice as much.
            let room = Room::map(len.saturating_mul(2)).or_else(|_| Room::map(len));
            self.room = Some(room.unwrap_or_else(|e| panic!("no room for a buffer of {len} bytes: {e}")));
        }
        self.len = len;
        self
    }

    /// Bytes the buffer can have without another mapping.
    pub fn capacity(&self) -> usize {
        self.room.as_ref().map_or(0, Room::bytes)
    }
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.room {
            Some(room) => &room.map[room.start..room.start + self.len],
            // No byte, but where any element could begin.
            None => bytemuck::cast_slice::<u128, u8>(&[]),
        }
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.room {
            Some(room) => &mut room.map[room.start..room.start + self.len],
            None => bytemuck::cast_slice_mut::<u128, u8>(&mut []),
        }
    }
}

impl Clone for Pages {
    /// Copies the bytes; the copy belongs to no pool.
    fn clone(&self) -> Self {
        let mut copy = Self::zeroed(self.len)
            .unwrap_or_else(|e| panic!("no room for a copy of a buffer of {} bytes: {e}", self.len));
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
        write!(f, "Pages({} bytes, room for {})", self.len, self.capacity())
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if let (Some(room), Some(home)) = (self.room.take(), self.home.upgrade()) {
            home.lock().unwrap_or_else(PoisonError::into_inner).push(room);
        }
    }
}

/// Buffers that come back: memory a [`Pages`] of this pool had is there for the next one, still warm.
///
/// Whoever fills buffers keeps the pool, and whoever is done with a buffer drops it, wherever that is; so there are as
/// many as were ever in use at the same time. Clones are the same pool; memory is freed with the last of them.
#[derive(Clone, Default)]
pub struct PagePool(Arc<Mutex<Vec<Room>>>);

impl PagePool {
    /// A pool without buffers.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty buffer, with the memory that came back last; without any, the buffer maps its own on first use.
    pub fn take(&self) -> Pages {
        let room = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Pages { room, len: 0, home: Arc::downgrade(&self.0) }
    }

    /// Buffers that came back and wait.
    pub fn waiting(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl fmt::Debug for PagePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PagePool({} waiting)", self.waiting())
    }
}

#[cfg(test)]
mod tests;
