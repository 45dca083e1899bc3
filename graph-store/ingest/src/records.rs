//! Records of edges, and vectors of them in mapped memory.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use morphgl_platform::Pages;

/// A value with the key that it is sorted by.
pub trait Keyed: bytemuck::Pod + Send + Sync + fmt::Debug {
    /// The key.
    fn key(self) -> u64;
}

/// An edge to be sorted: target in the high half of the key, source in the low half, so that keys sort into CSC order.
pub trait Record: Keyed {
    /// Bytes on disk.
    const BYTES: usize;
    /// Whether the record is its key alone.
    const BARE: bool;
    /// A record of a key and a weight.
    fn new(key: u64, weight: f32) -> Self;
    /// The weight; 1 where there is none.
    fn weight(self) -> f32;
    /// The record with the number of its edge, where it has one.
    fn numbered(self, _number: u32) -> Self {
        self
    }
    /// The number of the edge; 0 where there is none.
    fn number(self) -> u32 {
        0
    }
    /// Writes the `BYTES` bytes of the record.
    fn encode(self, out: &mut [u8]);
    /// Reads the bytes that `encode` writes.
    fn decode(bytes: &[u8]) -> Self;
}

/// A record with a weight: the key, and the bits of the weight.
pub type Weighted = [u64; 2];

/// A record with a time and a weight: the key, and the bits of both.
pub(crate) type Timed = [u64; 3];

/// A record with the number of the edge, a time and a weight: the key, the number, and the bits of both.
pub(crate) type Numbered = [u64; 4];

impl Keyed for u32 {
    #[inline]
    fn key(self) -> u64 {
        self.into()
    }
}

impl Keyed for u64 {
    #[inline]
    fn key(self) -> u64 {
        self
    }
}

impl Keyed for Weighted {
    #[inline]
    fn key(self) -> u64 {
        self[0]
    }
}

impl Record for u64 {
    const BYTES: usize = 8;
    const BARE: bool = true;

    #[inline]
    fn new(key: u64, _weight: f32) -> Self {
        key
    }

    #[inline]
    fn weight(self) -> f32 {
        1.0
    }

    #[inline]
    fn encode(self, out: &mut [u8]) {
        out.copy_from_slice(&self.to_le_bytes());
    }

    #[inline]
    fn decode(bytes: &[u8]) -> Self {
        u64::from_le_bytes(bytes.try_into().expect("a key is eight bytes"))
    }
}

impl Record for Weighted {
    const BYTES: usize = 12;
    const BARE: bool = false;

    #[inline]
    fn new(key: u64, weight: f32) -> Self {
        [key, weight.to_bits().into()]
    }

    #[inline]
    fn weight(self) -> f32 {
        f32::from_bits(self[1] as u32)
    }

    #[inline]
    fn encode(self, out: &mut [u8]) {
        out[..8].copy_from_slice(&self[0].to_le_bytes());
        out[8..].copy_from_slice(&self.weight().to_le_bytes());
    }

    #[inline]
    fn decode(bytes: &[u8]) -> Self {
        let weight = f32::from_le_bytes(bytes[8..].try_into().expect("a weight is four bytes"));
        Self::new(u64::decode(&bytes[..8]), weight)
    }
}

impl Keyed for Timed {
    #[inline]
    fn key(self) -> u64 {
        self[0]
    }
}

impl Record for Timed {
    const BYTES: usize = 20;
    const BARE: bool = false;

    #[inline]
    fn new(key: u64, weight: f32) -> Self {
        [key, i64::MIN as u64, weight.to_bits().into()]
    }

    #[inline]
    fn weight(self) -> f32 {
        f32::from_bits(self[2] as u32)
    }

    #[inline]
    fn encode(self, out: &mut [u8]) {
        out[..8].copy_from_slice(&self[0].to_le_bytes());
        out[8..16].copy_from_slice(&self[1].to_le_bytes());
        out[16..].copy_from_slice(&self.weight().to_le_bytes());
    }

    #[inline]
    fn decode(bytes: &[u8]) -> Self {
        let weight = f32::from_le_bytes(bytes[16..].try_into().expect("a weight is four bytes"));
        [u64::decode(&bytes[..8]), u64::decode(&bytes[8..16]), weight.to_bits().into()]
    }
}

impl Keyed for Numbered {
    #[inline]
    fn key(self) -> u64 {
        self[0]
    }
}

impl Record for Numbered {
    const BYTES: usize = 24;
    const BARE: bool = false;

    #[inline]
    fn new(key: u64, weight: f32) -> Self {
        [key, 0, i64::MIN as u64, weight.to_bits().into()]
    }

    #[inline]
    fn weight(self) -> f32 {
        f32::from_bits(self[3] as u32)
    }

    #[inline]
    fn numbered(self, number: u32) -> Self {
        [self[0], number.into(), self[2], self[3]]
    }

    #[inline]
    fn number(self) -> u32 {
        self[1] as u32
    }

    #[inline]
    fn encode(self, out: &mut [u8]) {
        out[..8].copy_from_slice(&self[0].to_le_bytes());
        out[8..12].copy_from_slice(&(self[1] as u32).to_le_bytes());
        out[12..20].copy_from_slice(&self[2].to_le_bytes());
        out[20..].copy_from_slice(&self.weight().to_le_bytes());
    }

    #[inline]
    fn decode(bytes: &[u8]) -> Self {
        let number = u32::from_le_bytes(bytes[8..12].try_into().expect("a number is four bytes"));
        let weight = f32::from_le_bytes(bytes[20..].try_into().expect("a weight is four bytes"));
        [u64::decode(&bytes[..8]), number.into(), u64::decode(&bytes[12..20]), weight.to_bits().into()]
    }
}

/// Sorted records: whole, or as 32-bit keys.
#[derive(Debug, Clone, Copy)]
pub enum Sorted<'r, R> {
    /// The records.
    Whole(&'r [R]),
    /// The keys of bare records, narrowed.
    Narrow(&'r [u32], Narrow),
}

/// Narrowing of bare records' keys to 32 bits: the target, counted from `first`, above the `bits` of the source.
#[derive(Debug, Clone, Copy)]
pub struct Narrow {
    first: u32,
    bits: u32,
}

impl Narrow {
    /// For keys from `from` to `last` whose sources have no other bits than `sources`; `None` where these do not fit, or
    /// records are more than their keys.
    pub(crate) fn of<R: Record>(from: u64, last: u64, sources: u32) -> Option<Self> {
        let (first, bits) = ((from >> 32) as u32, u32::BITS - sources.leading_zeros());
        let targets = u32::BITS - ((last >> 32) as u32).checked_sub(first)?.leading_zeros();
        (R::BARE && bits < u32::BITS && bits + targets <= u32::BITS).then_some(Self { first, bits })
    }

    #[inline]
    pub(crate) fn narrow(self, key: u64) -> u32 {
        ((key >> 32) as u32 - self.first) << self.bits | key as u32
    }

    /// Target of the edge with this narrow key.
    #[inline]
    pub fn target(self, key: u32) -> u32 {
        self.first + (key >> self.bits)
    }

    /// Source of the edge with this narrow key.
    #[inline]
    pub fn source(self, key: u32) -> u32 {
        key & ((1 << self.bits) - 1)
    }
}

impl<R: Record> Sorted<'_, R> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Whole(records) => records.len(),
            Self::Narrow(keys, _) => keys.len(),
        }
    }

    /// Calls `f` with each record, in order.
    pub fn for_each(&self, mut f: impl FnMut(R)) {
        match self {
            Self::Whole(records) => records.iter().for_each(|record| f(*record)),
            Self::Narrow(keys, narrow) => keys.iter().for_each(|&key| {
                f(R::new(u64::from(narrow.target(key)) << 32 | u64::from(narrow.source(key)), 1.0));
            }),
        }
    }

    /// All records, in one vector.
    pub fn to_vec(self) -> Vec<R> {
        let mut records = Vec::with_capacity(self.len());
        self.for_each(|record| records.push(record));
        records
    }
}

/// A vector of records in [`Pages`].
///
/// Its memory is mapped from the system and returned to it, since the memory that allocators keep for each thread would
/// exceed any budget. Huge pages spare the scattered stores of a sort most TLB misses.
pub struct Records<R> {
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

impl<R: Keyed> Records<R> {
    /// Capacity in records.
    pub(crate) fn capacity(&self) -> usize {
        self.pages.len() / size_of::<R>()
    }

    /// Reserves capacity for `more` records.
    pub fn reserve(&mut self, more: usize) {
        if self.len + more > self.capacity() {
            self.move_to(self.len + more);
        }
    }

    /// Moves the records to pages for `capacity` of them.
    fn move_to(&mut self, capacity: usize) {
        let bytes = capacity * size_of::<R>();
        if self.len == 0 {
            // The old pages are freed first: the two never take memory at the same time.
            self.pages = Pages::new();
        }
        let mut pages =
            Pages::zeroed(bytes).unwrap_or_else(|e| panic!("no memory for {capacity} edges to be sorted: {e}"));
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

    /// Sets the length to `len`, with any content.
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
        assert!(written <= most, "{written} records written into a capacity of {most}");
        self.len = start + written;
    }

    /// Appends `records`.
    pub fn extend_from_slice(&mut self, records: &[R]) {
        self.append(records.len(), |out| {
            out.copy_from_slice(records);
            records.len()
        });
    }

    /// Removes all but the first of neighbours with the same key.
    pub fn dedup(&mut self) {
        let mut len = 0;
        let records = &mut **self;
        for i in 0..records.len() {
            if len == 0 || records[i].key() != records[len - 1].key() {
                records[len] = records[i];
                len += 1;
            }
        }
        self.len = len;
    }

    /// Frees unused capacity.
    pub(crate) fn shrink(&mut self) {
        if self.capacity() > self.len {
            self.move_to(self.len);
        }
    }
}

impl<R: Keyed> Deref for Records<R> {
    type Target = [R];

    #[inline]
    fn deref(&self) -> &[R] {
        &bytemuck::cast_slice(&self.pages)[..self.len]
    }
}

impl<R: Keyed> DerefMut for Records<R> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [R] {
        &mut bytemuck::cast_slice_mut(&mut self.pages)[..self.len]
    }
}

#[cfg(test)]
mod tests;
