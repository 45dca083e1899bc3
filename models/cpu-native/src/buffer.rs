//! Memory that is taken once and used again by every mini-batch.

use std::fmt;

use memmap2::MmapMut;

/// Floats from a page's beginning on, in huge pages where the system gives them. Their content is whatever the last use left.
///
/// Not from the allocator: some keep a huge page of their own for each thread and size.
#[derive(Default)]
pub(crate) struct Buffer {
    map: Option<MmapMut>,
    capacity: usize,
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} floats)", self.capacity)
    }
}

/// Room beyond what is asked for, so that mini-batches of about one size fit: an eighth.
const SPARE: usize = 8;

impl Buffer {
    pub(crate) const fn new() -> Self {
        Self { map: None, capacity: 0 }
    }

    /// Room for `len` floats; taken anew only when there is less, and then the content is lost.
    ///
    /// # Panics
    ///
    /// When the system has no memory left.
    pub(crate) fn get(&mut self, len: usize) -> &mut [f32] {
        if len > self.capacity {
            // Both at once: where there is no memory, the next mini-batch finds an empty buffer.
            (self.map, self.capacity) = (None, 0);
            let capacity = len.saturating_add(len / SPARE);
            let map = MmapMut::map_anon(capacity.saturating_mul(4));
            let map = map.expect("memory for a mini-batch's intermediate results");
            #[cfg(target_os = "linux")]
            // Advice: without huge pages all works, slower.
            let _ = map.advise(memmap2::Advice::HugePage);
            (self.map, self.capacity) = (Some(map), capacity);
        }
        match &mut self.map {
            Some(map) => &mut bytemuck::cast_slice_mut(map)[..len],
            None => &mut [],
        }
    }

    /// Number of floats there is room for.
    pub(crate) fn len(&self) -> usize {
        self.capacity
    }

    /// The first `len` floats as they were written.
    ///
    /// # Panics
    ///
    /// When there are not as many.
    pub(crate) fn read(&self, len: usize) -> &[f32] {
        match &self.map {
            Some(map) => &bytemuck::cast_slice(&map[..4 * self.capacity])[..len],
            None => &[][..len],
        }
    }
}

/// Sets a vector's length without giving back memory; the content is to be written over.
pub(crate) fn resize<T: Copy + Default>(values: &mut Vec<T>, len: usize) {
    if len > values.capacity() {
        values.clear();
        values.reserve_exact(len + len / SPARE);
    }
    values.resize(len, T::default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_keeps_what_is_written() {
        let mut buffer = Buffer::default();
        assert!(buffer.get(0).is_empty() && buffer.read(0).is_empty());
        buffer.get(10).fill(3.0);
        assert_eq!(buffer.read(10), [3.0; 10]);
        buffer.get(4)[3] = 4.0;
        assert_eq!(buffer.read(5), [3.0, 3.0, 3.0, 4.0, 3.0]);
    }

    #[test]
    fn a_buffer_that_got_no_memory_is_used_again() {
        let mut buffer = Buffer::default();
        buffer.get(100).fill(1.0);
        // The last one would wrap around to a few bytes.
        for len in [usize::MAX / 16, usize::MAX / 4, usize::MAX / 9 * 2 + 1] {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| buffer.get(len).len()));
            assert!(outcome.is_err(), "{len} floats are more than any memory has");
            assert_eq!((buffer.len(), buffer.get(50).len()), (0, 50));
            buffer.get(50).fill(2.0);
            assert_eq!(buffer.read(50), [2.0; 50]);
        }
    }
}
