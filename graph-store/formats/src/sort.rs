//! External sort of edges: sorted runs in memory, spilled to one file, merged from it. Stable, whatever the budget.

use std::path::PathBuf;

use morphgl_graph_store::Result;
use rayon::slice::ParallelSliceMut;

use crate::spill::Spill;

/// Records that a merge hands on at a time.
pub(crate) const BLOCK: usize = 1 << 14;
/// Most runs merged at a time, and the least buffer of each where the budget allows it.
const FAN_IN: usize = 512;
const READ_BYTES: u64 = 256 << 10;

/// An edge on its way: target in the high half of the key, source in the low half, so that keys sort into CSC order.
pub(crate) trait Record: Copy + Send + Sync {
    const BYTES: usize;
    fn new(key: u64, weight: f32) -> Self;
    fn key(self) -> u64;
    fn weight(self) -> f32;
    fn encode(self, out: &mut [u8]);
    fn decode(bytes: &[u8]) -> Self;
    /// Sorts by key; records that differ keep their order where their keys are equal.
    fn sort(records: &mut [Self]);
    /// Records that fit `bytes`, with what sorting them takes.
    fn capacity(bytes: u64) -> u64;
}

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

    fn sort(records: &mut [Self]) {
        records.par_sort_unstable();
    }

    fn capacity(bytes: u64) -> u64 {
        bytes / 8
    }
}

impl Record for (u64, f32) {
    const BYTES: usize = 12;

    fn new(key: u64, weight: f32) -> Self {
        (key, weight)
    }

    fn key(self) -> u64 {
        self.0
    }

    fn weight(self) -> f32 {
        self.1
    }

    fn encode(self, out: &mut [u8]) {
        out[..8].copy_from_slice(&self.0.to_le_bytes());
        out[8..].copy_from_slice(&self.1.to_le_bytes());
    }

    fn decode(bytes: &[u8]) -> Self {
        (u64::decode(&bytes[..8]), f32::from_le_bytes(bytes[8..].try_into().expect("a weight is four bytes")))
    }

    fn sort(records: &mut [Self]) {
        records.par_sort_by_key(|r| r.0);
    }

    fn capacity(bytes: u64) -> u64 {
        // A stable sort needs as much room again.
        bytes / 32
    }
}

/// Collects records, and hands them back sorted by key; equal keys in the order they came.
#[derive(Debug)]
pub(crate) struct Sorter<R> {
    buffer: Vec<R>,
    capacity: usize,
    unique: bool,
    memory: u64,
    path: PathBuf,
    spill: Option<Spill>,
}

impl<R: Record> Sorter<R> {
    /// A sorter whose records and buffers stay within about `memory` bytes; with `unique`, only the first record of a
    /// key remains. What does not fit lies in `path`.
    pub(crate) fn new(path: PathBuf, memory: u64, unique: bool) -> Self {
        let capacity = R::capacity(memory / 2).clamp(16, isize::MAX as u64 / 32) as usize;
        Self { buffer: Vec::new(), capacity, unique, memory, path, spill: None }
    }

    pub(crate) fn push(&mut self, record: R) -> Result<()> {
        if self.buffer.len() == self.buffer.capacity() {
            if self.buffer.len() >= self.capacity {
                self.spill_run()?;
            } else {
                // Doubling by hand: the vector's own growth would pass the budget.
                let grown = (2 * self.buffer.len()).clamp(1024, self.capacity.max(1024));
                self.buffer.reserve_exact(grown.min(self.capacity) - self.buffer.len());
            }
        }
        self.buffer.push(record);
        Ok(())
    }

    /// Number of runs on disk.
    #[cfg(test)]
    fn runs(&self) -> usize {
        self.spill.as_ref().map_or(0, |s| s.runs.len())
    }

    fn sort_buffer(&mut self) {
        R::sort(&mut self.buffer);
        if self.unique {
            self.buffer.dedup_by_key(|r| r.key());
        }
    }

    fn spill_run(&mut self) -> Result<()> {
        self.sort_buffer();
        let spill = match &mut self.spill {
            Some(spill) => spill,
            empty => empty.insert(Spill::create(&self.path)?),
        };
        spill.begin();
        self.buffer.chunks(BLOCK).try_for_each(|block| spill.append(block))?;
        spill.end();
        self.buffer.clear();
        Ok(())
    }

    /// Hands all records to `emit`, sorted, a block at a time.
    pub(crate) fn merge(mut self, mut emit: impl FnMut(&[R]) -> Result<()>) -> Result<()> {
        let Some(_) = self.spill else {
            self.sort_buffer();
            return self.buffer.chunks(BLOCK).try_for_each(emit);
        };
        if !self.buffer.is_empty() {
            self.spill_run()?;
        }
        self.buffer = Vec::new();
        let mut spill = self.spill.take().expect("the sorter has spilled");
        let fan_in = (self.memory / 2 / READ_BYTES).clamp(2, FAN_IN as u64) as usize;
        // Neighbouring runs are merged into longer ones until one merge reaches them all; order of runs is kept.
        let mut level = 0;
        while spill.runs.len() > fan_in {
            level += 1;
            let mut next = Spill::create(&self.path.with_extension(format!("spill{level}")))?;
            for group in spill.runs.chunks(fan_in) {
                next.begin();
                spill.merge::<R>(group, self.unique, self.memory / 2, |block| next.append(block))?;
                next.end();
            }
            spill = next;
        }
        spill.merge(&spill.runs, self.unique, self.memory / 2, &mut emit)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check<R: Record + PartialEq + std::fmt::Debug>(records: &[R], memory: u64, unique: bool) -> usize {
        let dir = tempfile::tempdir().unwrap();
        let mut sorter = Sorter::new(dir.path().join("spill"), memory, unique);
        records.iter().for_each(|&r| sorter.push(r).unwrap());
        let runs = sorter.runs();
        let mut actual = Vec::new();
        sorter
            .merge(|block| {
                actual.extend_from_slice(block);
                Ok(())
            })
            .unwrap();
        let mut expected = records.to_vec();
        expected.sort_by_key(|r| r.key());
        if unique {
            expected.dedup_by_key(|r| r.key());
        }
        assert_eq!(actual, expected);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "spill files are gone");
        runs
    }

    proptest! {
        #[test]
        fn every_budget_sorts_alike(
            keys in prop::collection::vec(0u64..40, 0..400),
            memory in prop::sample::select(vec![0u64, 600, 3_000, 1 << 20]),
            unique: bool,
        ) {
            check(&keys, memory, unique);
            let weighted: Vec<(u64, f32)> = keys.iter().enumerate().map(|(i, &k)| (k, i as f32)).collect();
            check(&weighted, memory, unique);
        }
    }

    #[test]
    fn many_runs_take_several_levels() {
        let keys: Vec<u64> = (0..5_000u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40).collect();
        assert_eq!(check(&keys, 0, false), 5_000 / 16);
        assert_eq!(check(&keys, 1 << 20, false), 0);
    }
}
