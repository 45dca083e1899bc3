//! Rows of fixed length that are copied while others are written: a sequence lock for each slot.

use crate::sync::{AtomicU64, Ordering, fence};

/// Slots of one row each. The protocol stands in `README.md` beside this file.
#[derive(Debug)]
pub(crate) struct Slots {
    // Invariant: for each slot a header, and then the words of its row. The header has the version above the node, 32 bits
    // each; an odd version means that the row is being written, or was never written.
    words: Box<[AtomicU64]>,
    row_bytes: usize,
}

fn header(version: u32, node: u32) -> u64 {
    u64::from(version) << 32 | u64::from(node)
}

impl Slots {
    /// Bytes of a slot of `row_bytes` bytes: whole words, and the header.
    pub(crate) fn num_bytes_of(row_bytes: usize) -> u64 {
        8 * (row_bytes.div_ceil(8) as u64 + 1)
    }

    pub(crate) fn new(capacity: usize, row_bytes: usize) -> Self {
        let stride = row_bytes.div_ceil(8) + 1;
        let word = |i: usize| AtomicU64::new(if i.is_multiple_of(stride) { header(1, 0) } else { 0 });
        Self { words: (0..capacity * stride).map(word).collect(), row_bytes }
    }

    /// Header and row of a slot.
    fn slot(&self, slot: u32) -> (&AtomicU64, &[AtomicU64]) {
        let stride = self.row_bytes.div_ceil(8) + 1;
        let (header, row) = self.words[slot as usize * stride..][..stride].split_first().expect("a header");
        (header, row)
    }

    /// The node of a slot that is not being written.
    pub(crate) fn node(&self, slot: u32) -> u32 {
        self.slot(slot).0.load(Ordering::Relaxed) as u32
    }

    /// Copies the row of `slot` to `out`, if it is the row of `node` from beginning to end; else `out` has any bytes.
    #[inline]
    pub(crate) fn read(&self, slot: u32, node: u32, out: &mut [u8]) -> bool {
        let (header, row) = self.slot(slot);
        let before = header.load(Ordering::Acquire);
        if before as u32 != node || before >> 32 & 1 == 1 {
            return false;
        }
        let (whole, rest) = out.as_chunks_mut::<8>();
        for (to, word) in whole.iter_mut().zip(row) {
            *to = word.load(Ordering::Relaxed).to_ne_bytes();
        }
        if !rest.is_empty() {
            let last = row[whole.len()].load(Ordering::Relaxed).to_ne_bytes();
            rest.copy_from_slice(&last[..rest.len()]);
        }
        // Whoever loaded a word of a later version sees its odd header below.
        fence(Ordering::Acquire);
        header.load(Ordering::Relaxed) == before
    }

    /// Writes the row of `node` to `slot`, which the caller alone has claimed.
    pub(crate) fn write(&self, slot: u32, node: u32, row: &[u8]) {
        let (state, words) = self.slot(slot);
        let writing = (state.load(Ordering::Relaxed) >> 32) as u32 | 1;
        state.store(header(writing, node), Ordering::Relaxed);
        fence(Ordering::Release);
        let (whole, rest) = row.as_chunks::<8>();
        for (word, &from) in words.iter().zip(whole) {
            word.store(u64::from_ne_bytes(from), Ordering::Relaxed);
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            words[whole.len()].store(u64::from_ne_bytes(last), Ordering::Relaxed);
        }
        state.store(header(writing.wrapping_add(1), node), Ordering::Release);
    }
}
