//! External sort: sorted blocks in memory, spilled as sorted runs to one file, and merged. Stable for every budget.

use std::path::PathBuf;
use std::sync::Arc;

use morphgl_graph_store::Result;
use morphgl_platform::PagePool;

use crate::radix::Scratch;
use crate::ranges::{Block, Merge, RANGE_BYTES};
use crate::records::{Record, Records, Sorted};
use crate::spill::{self, Spill};

/// Maximum number of runs merged at a time, and the share of the budget that each needs.
const FAN_IN: usize = 512;
const RUN_BYTES: u64 = 512 << 10;
/// Bits that one pass sorts by.
const ONE_PASS: u32 = 12;

/// Makes blocks for a sorter, on any thread.
#[derive(Debug, Clone)]
pub(crate) struct BlockMaker<R> {
    pub(crate) scratch: Arc<Scratch<R>>,
    /// Bits of the targets that a block is sorted by.
    bits: u32,
}

impl<R: Record> BlockMaker<R> {
    /// Sorts the records of a block.
    pub(crate) fn sorted(&self, records: Records<R>) -> Block<R> {
        Block::sort(records, self.bits, &self.scratch)
    }

    /// Sorts edges without weights into a block; `None` where that is not one pass over the targets.
    pub(crate) fn placed(&self, sources: &[u32], targets: &[u32]) -> Option<Block<R>> {
        Block::place(sources, targets, self.bits, || self.scratch.take())
    }
}

/// External sorter of records by key; stable.
#[derive(Debug)]
pub struct Sorter<R> {
    blocks: Vec<Block<R>>,
    /// Capacity of the blocks, in records.
    resident: usize,
    /// Maximum of `resident`.
    max_resident: usize,
    /// The block that single records are appended to.
    filling: Records<R>,
    merging: Merge,
    memory: u64,
    path: PathBuf,
    spill: Option<Spill>,
    scratch: Arc<Scratch<R>>,
}

impl<R: Record> Sorter<R> {
    /// A sorter whose records stay within half of `memory` bytes, and its merges within a quarter; with `unique`, only
    /// the first record of a key remains. Records beyond the budget spill to the file `path`.
    pub fn new(path: PathBuf, memory: u64, unique: bool) -> Self {
        Self {
            blocks: Vec::new(),
            resident: 0,
            max_resident: (memory / 2 / size_of::<R>() as u64).clamp(16, isize::MAX as u64 / 32) as usize,
            filling: Records::default(),
            merging: Merge::within::<R>(memory, unique, rayon::current_num_threads() as u64),
            memory,
            path,
            spill: None,
            scratch: Arc::new(Scratch::new(0)),
        }
    }

    /// Records a block should have.
    pub(crate) fn block_len(&self) -> usize {
        // The capacity of the merge's buffers, which are huge pages then.
        self.merging.capacity
    }

    /// Appends records.
    ///
    /// # Errors
    ///
    /// A disk that refuses.
    pub fn push(&mut self, mut records: &[R]) -> Result<()> {
        let len = self.block_len();
        while !records.is_empty() {
            if self.filling.len() >= len {
                self.close()?;
            }
            if self.filling.len() == self.filling.capacity() {
                let grown = (2 * self.filling.len()).max(records.len()).clamp(16, len);
                self.filling.reserve(grown - self.filling.len());
            }
            let (now, later) =
                records.split_at(records.len().min(self.filling.capacity().min(len) - self.filling.len()));
            self.filling.extend_from_slice(now);
            records = later;
        }
        Ok(())
    }

    /// A maker of blocks for this sorter.
    pub(crate) fn maker(&self) -> BlockMaker<R> {
        // One pass sorts a block; more bits only where that would leave far too many records to a range.
        let ranges = self.max_resident as u64 * size_of::<R>() as u64 / (2 * RANGE_BYTES);
        let bits = (u64::BITS - ranges.leading_zeros()).clamp(ONE_PASS, 32);
        BlockMaker { scratch: Arc::clone(&self.scratch), bits }
    }

    /// Appends a block.
    pub(crate) fn push_block(&mut self, block: Block<R>) -> Result<()> {
        self.close()?;
        self.add(block)
    }

    /// Makes a block of the single records.
    fn close(&mut self) -> Result<()> {
        if self.filling.is_empty() {
            return Ok(());
        }
        let maker = self.maker();
        let records = std::mem::replace(&mut self.filling, maker.scratch.take());
        self.add(maker.sorted(records))
    }

    fn add(&mut self, mut block: Block<R>) -> Result<()> {
        if self.merging.unique && block.low == 0 {
            block.records.dedup();
        }
        // The capacity of a block counts. Buffers far too large, as after duplicates, are cut.
        if block.records.capacity() > 2 * block.records.len() {
            block.records.shrink();
        }
        if self.resident + block.records.capacity() > self.max_resident {
            self.spill_run()?;
        }
        self.resident += block.records.capacity();
        self.blocks.push(block);
        Ok(())
    }

    fn spill_run(&mut self) -> Result<()> {
        if self.resident == 0 {
            return Ok(());
        }
        let spill = match &mut self.spill {
            Some(spill) => spill,
            empty => empty.insert(Spill::create(&self.path)?),
        };
        spill.begin();
        let (pool, merge) = (PagePool::new(), self.merging);
        let encode = |records: Sorted<'_, R>| spill::encoded(records, &pool);
        merge.blocks(&mut self.blocks, &encode, &mut |bytes| spill.append::<R>(&bytes))?;
        // The next blocks reuse the buffers of these.
        self.blocks.drain(..).for_each(|block| self.scratch.give(block.records));
        self.resident = 0;
        Ok(())
    }

    /// Sorts the records that precede all later ones, if targets come in order from now on, and removes them from the
    /// blocks; `make` and `emit` as in [`Merge::blocks`]. Does nothing while few are resident.
    pub(crate) fn merge_early<T: Send>(
        &mut self,
        make: &(impl Fn(Sorted<'_, R>) -> T + Sync),
        emit: &mut (impl FnMut(T) -> Result<()> + Send),
    ) -> Result<()> {
        let many = self.blocks.len() >= 4 * rayon::current_num_threads() || self.resident >= self.max_resident / 2;
        if self.spill.is_some() || !many || !self.filling.is_empty() {
            return Ok(());
        }
        let low = self.blocks.iter().map(|block| block.low).fold(32, u32::max);
        let last = self.blocks.iter().rev().find_map(|block| block.records.last());
        let Some(end) = last.map(|record| record.key() & u64::MAX << low) else { return Ok(()) };
        let cuts: Vec<usize> =
            self.blocks.iter().map(|block| block.records.partition_point(|r| r.key() < end)).collect();
        if cuts.iter().all(|&at| at == 0) {
            return Ok(());
        }
        let rest = |(block, at): (&mut Block<R>, usize)| {
            if at == 0 {
                // Moved, not copied: a row may fill nearly all blocks.
                return std::mem::replace(block, Block::new(Records::default(), 0));
            }
            // A recycled buffer: otherwise each merge would add one.
            let mut records = self.scratch.take();
            records.extend_from_slice(&block.records[at..]);
            block.records.truncate(at);
            Block::new(records, block.low)
        };
        let rests = self.blocks.iter_mut().zip(cuts).map(rest);
        let rests: Vec<_> = rests.filter(|block| !block.records.is_empty()).collect();
        self.blocks.retain(|block| !block.records.is_empty());
        self.merging.blocks(&mut self.blocks, make, emit)?;
        self.blocks.drain(..).for_each(|block| self.scratch.give(block.records));
        self.resident = rests.iter().map(|block| block.records.capacity()).sum();
        self.blocks = rests;
        Ok(())
    }

    /// Sorts all records. Each slice of them passes through `make`, on the thread that sorted it; the results are passed to
    /// `emit`, in order, while the next slices are sorted.
    ///
    /// # Errors
    ///
    /// Those of `emit`; a disk that refuses.
    ///
    /// # Complexity
    ///
    /// O(n) for keys of bounded length, and one more pass over the records for each level of spilled runs.
    pub fn merge<T: Send>(
        mut self,
        make: &(impl Fn(Sorted<'_, R>) -> T + Sync),
        emit: &mut (impl FnMut(T) -> Result<()> + Send),
    ) -> Result<()> {
        self.close()?;
        if self.spill.is_some() {
            self.spill_run()?;
            self.scratch = Arc::new(Scratch::new(0));
        }
        let merge = self.merging;
        let Some(mut spill) = self.spill.take() else { return merge.blocks(&mut self.blocks, make, emit) };
        let fan_in = (self.memory / RUN_BYTES).clamp(2, FAN_IN as u64) as usize;
        // Neighbouring runs are merged into longer ones until one merge reaches them all; order of runs is kept.
        let mut level = 0;
        while spill.runs.len() > fan_in {
            level += 1;
            let mut next = Spill::create(&self.path.with_extension(format!("spill{level}")))?;
            let pool = PagePool::new();
            let encode = |records: Sorted<'_, R>| spill::encoded(records, &pool);
            for group in spill.runs.chunks(fan_in) {
                next.begin();
                spill.merge(group, self.memory, merge, &encode, &mut |bytes| next.append::<R>(&bytes))?;
            }
            spill = next;
        }
        spill.merge(&spill.runs, self.memory, merge, make, emit)
    }
}

#[cfg(test)]
mod tests;
