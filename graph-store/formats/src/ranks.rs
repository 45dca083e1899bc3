//! Ranks of 64-bit ids among sorted ones.

use std::ops::Deref;

/// Sorted ids, each once, by which ranks are found.
pub(crate) struct Ranks<I> {
    ids: I,
    /// Number of low bits of an id that are not part of its bucket.
    shift: u32,
    /// Offset of each bucket of ids, and the end of the last one.
    starts: Vec<u32>,
}

impl<I: Deref<Target = [u64]>> Ranks<I> {
    /// Buckets of about one id each where the ids are evenly spread, within a sixteenth of `memory`.
    pub(crate) fn new(ids: I, memory: u64) -> Self {
        let max_buckets = (memory / 16 / 4).min(2 * ids.len() as u64).max(1);
        let highest = ids.last().copied().unwrap_or(0);
        let shift = (0..u64::BITS - 1).find(|&shift| highest >> shift < max_buckets).unwrap_or(u64::BITS - 1);
        let mut starts = vec![0u32; (highest >> shift) as usize + 2];
        ids.iter().for_each(|id| starts[(id >> shift) as usize + 1] += 1);
        (1..starts.len()).for_each(|i| starts[i] += starts[i - 1]);
        Self { ids, shift, starts }
    }

    /// The rank of an id; `None` for one that is not among the ids.
    pub(crate) fn of(&self, id: u64) -> Option<u32> {
        let bucket = usize::try_from(id >> self.shift).ok().filter(|bucket| *bucket + 1 < self.starts.len())?;
        let (from, to) = (self.starts[bucket], self.starts[bucket + 1]);
        let at = self.ids[from as usize..to as usize].binary_search(&id).ok()?;
        Some(from + at as u32)
    }
}
