//! Records of edges, and the memory they lie in.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use morphgl_graph_store::Pages;

/// An edge on its way: target in the high half of the key, source in the low half, so that keys sort into CSC order.
pub(crate) trait Record: bytemuck::Pod + Send + Sync + fmt::Debug {
    /// Bytes on disk.
    const BYTES: usize;
    fn new(key: u64, weight: f32) -> Self;
    fn key(self) -> u64;
    fn weight(self) -> f32;
    fn encode(self, out: &mut [u8]);
    fn decode(bytes: &[u8]) -> Self;
}

/// The key, and the bits of the weight.
pub(crate) type Weighted = [u64; 2];

impl Record for u64 {
    const BYTES: usize = 8;

    fn new(key: u64, _weight: f32) -> Self {
        key
    }

    fn key(self) -> u64 {
        self
    }

    fn weight(self) -> f32 {
        1.0
    }

    fn encode(self, out: &mut [u8]) {
        out.copy_from_slice(&self.to_le_bytes());
    }

    fn decode(bytes: &[u8]) -> Self {
        u64::from_le_bytes(bytes.try_into().expect("a key is eight bytes"))
    }
}

impl Record for Weighted {
    const BYTES: usize = 12;

    fn new(key: u64, weight: f32) -> Self {
        [key, weight.to_bits().into()]
    }

    fn key(self) -> u64 {
        self[0]
    }

    fn weight(self) -> f32 {
        f32::from_bits(self[1] as u32)
    }

    fn encode(self, out: &mut [u8]) {
        out[..8].copy_from_slice(&self[0].to_le_bytes());
        out[8..].copy_from_slice(&self.weight().to_le_bytes());
    }

    fn decode(bytes: &[u8]) -> Self {
        let weight = f32::from_le_bytes(bytes[8..].try_into().expect("a weight is four bytes"));
        Self::new(u64::decode(&bytes[..8]), weight)
    }
}

/// A vector of records in pages of their own.
///
/// Memory of this size comes from the system and goes back to it: what an allocator keeps for each thread apart would
/// pass any budget. Pages are huge where they can be, which the scattered stores of a sort are glad of.
pub(crate) struct Records<R> {
    // Invariant: `pages` are `capacity` whole records, of which `len` are in use.
    pages: Pages,
    len: usize,
    record: PhantomData<R>,
}

impl<R> Default for Records<R> {
    fn default() -> Self {
        Self { pages: Pages::new(), len: 0, record: PhantomData }
    }
}

impl<R> fmt::Debug for Records<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Records({} in {:?})", self.len, self.pages)
    }
}

impl<R: Record> Records<R> {
    /// Records there is room for.
    pub(crate) fn capacity(&self) -> usize {
        self.pages.len() / size_of::<R>()
    }

    /// Makes room for `more` records.
    pub(crate) fn reserve(&mut self, more: usize) {
        if self.len + more > self.capacity() {
            self.move_to(self.len + more);
        }
    }

    /// Moves to a room for `capacity` records.
    fn move_to(&mut self, capacity: usize) {
        let bytes = capacity * size_of::<R>();
        if self.len == 0 {
            // The old room goes first: the two never take memory at the same time.
            self.pages = Pages::new();
        }
        let mut pages =
            Pages::zeroed(bytes).unwrap_or_else(|e| panic!("no room for {capacity} edges being sorted: {e}"));
        let used = self.len * size_of::<R>();
        pages[..used].copy_from_slice(&self.pages[..used]);
        self.pages = pages;
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// As long as `len`, with whatever lay there.
    pub(crate) fn set_len(&mut self, len: usize) {
        if len > self.capacity() {
            self.clear();
            self.move_to(len);
        }
        self.len = len;
    }

    /// Appends at most `most` records, which `fill` writes; it returns how many.
    pub(crate) fn append(&mut self, most: usize, fill: impl FnOnce(&mut [R]) -> usize) {
        self.reserve(most);
        let start = self.len;
        self.len += most;
        let written = fill(&mut self[start..]);
        assert!(written <= most, "{written} records written into room for {most}");
        self.len = start + written;
    }

    pub(crate) fn extend_from_slice(&mut self, records: &[R]) {
        self.append(records.len(), |out| {
            out.copy_from_slice(records);
            records.len()
        });
    }

    /// Removes all but the first of neighbours with the same key.
    pub(crate) fn dedup(&mut self) {
        let mut kept = 0;
        let records = &mut **self;
        for i in 0..records.len() {
            if kept == 0 || records[i].key() != records[kept - 1].key() {
                records[kept] = records[i];
                kept += 1;
            }
        }
        self.len = kept;
    }

    /// Gives back room that is not used.
    pub(crate) fn shrink(&mut self) {
        if self.capacity() > self.len {
            self.move_to(self.len);
        }
    }
}

impl<R: Record> Deref for Records<R> {
    type Target = [R];

    fn deref(&self) -> &[R] {
        &bytemuck::cast_slice(&self.pages)[..self.len]
    }
}

impl<R: Record> DerefMut for Records<R> {
    fn deref_mut(&mut self) -> &mut [R] {
        &mut bytemuck::cast_slice_mut(&mut self.pages)[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_a_vector() {
        let mut records = Records::<Weighted>::default();
        let all: Vec<_> = (0..5000u64).map(|i| Weighted::new(i / 3, i as f32)).collect();
        all.chunks(7).for_each(|r| records.extend_from_slice(r));
        records.extend_from_slice(&all[..7]);
        assert_eq!((&records[..5000], &records[5000..]), (&all[..], &all[..7]));
        records.truncate(5000);
        records.dedup();
        assert_eq!(records[..], all.iter().copied().step_by(3).collect::<Vec<_>>()[..]);
        records.shrink();
        assert_eq!(records.capacity(), 1667);
        records.append(9, |out| {
            out[0] = all[1];
            1
        });
        assert_eq!((records.len(), records[1667]), (1668, all[1]));
        records.clear();
        assert!(records.is_empty());
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let record = Weighted::new(1 << 63 | 5, 0.1);
        let mut bytes = [0; 12];
        record.encode(&mut bytes);
        assert_eq!((Weighted::decode(&bytes), record.weight()), (record, 0.1));
    }
}
