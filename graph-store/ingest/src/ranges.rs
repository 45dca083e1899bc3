//! Merge of sorted blocks: cut into ranges of keys, which are sorted in parallel.

use morphgl_graph_store::{Result, parallel};
use rayon::prelude::*;

use crate::radix::{self, Scratch, WIDEST};
use crate::records::{Keyed, Narrow, Record, Records, Sorted};

/// Sampling interval, in records of a block, for the bounds of ranges.
const SAMPLE: usize = 256;
/// Number of ranges from which on the records of one key are cut, and not sorted as one range.
const HEAVY: usize = 4;
/// Records per counter from which on a block keeps the counters of its sort, to find its ranges.
const KEEP_ENDS: usize = 16;

/// Bytes of a block, and of a range in the merge: with their scratch they fit a core's second-level cache.
const BLOCK_BYTES: u64 = 2 << 20;
pub(crate) const RANGE_BYTES: u64 = 256 << 10;
/// Bytes of a block below which fewer threads merge, rather than in smaller ranges.
const FEW_BYTES: u64 = 64 << 10;
/// Minimum bytes of a buffer.
const PAGE: u64 = 4 << 10;

/// Records sorted by the bits of their keys from `low` on.
#[derive(Debug)]
pub(crate) struct Block<R> {
    pub(crate) records: Records<R>,
    pub(crate) low: u32,
    /// All bits that any of the keys has.
    any: u64,
    /// End of the records whose bits from `low` on are `first`, and of those of each value after it; empty where they were
    /// not counted.
    ends: Vec<u32>,
    first: u64,
}

impl<R: Record> Block<R> {
    pub(crate) fn new(records: Records<R>, low: u32) -> Self {
        let any = records.iter().fold(0, |any, r| any | r.key());
        Self { records, low, any, ends: Vec::new(), first: 0 }
    }

    /// Sorts records by the upper `bits` of the bits in which their targets differ, and leaves the rest to the ranges; wholly
    /// where there is one target only.
    pub(crate) fn sort(mut records: Records<R>, bits: u32, scratch: &Scratch<R>) -> Self {
        let Some(first) = records.first().map(|r| r.key()) else { return Self::new(records, 0) };
        let differ = records.iter().fold(0, |all, r| all | (r.key() ^ first));
        let top = u64::BITS - differ.leading_zeros();
        let low = if top <= 32 { 0 } else { top.saturating_sub(bits).max(32) };
        scratch.sort(&mut records, low);
        let low = if low == 0 || records.is_sorted_by_key(|r| r.key()) { 0 } else { low };
        Self::new(records, low)
    }

    /// Sorts edges without weights as [`Block::sort`] does, from their arrays to the records of a `buffer`; `None` where that is
    /// not one pass over the targets.
    pub(crate) fn place(
        sources: &[u32],
        targets: &[u32],
        bits: u32,
        buffer: impl FnOnce() -> Records<R>,
    ) -> Option<Self> {
        let first = targets.first().copied().unwrap_or(0);
        let top = u32::BITS - targets.iter().fold(0, |all, target| all | (target ^ first)).leading_zeros();
        let low = top.saturating_sub(bits);
        if top - low > WIDEST || targets.len() > u32::MAX as usize || targets.is_sorted() {
            return None;
        }
        let mut records = buffer();
        let ends = radix::place(sources, targets, low, &mut records);
        if records.is_sorted_by_key(|r| r.key()) {
            return Some(Self::new(records, 0));
        }
        let mut block = Self::new(records, 32 + low);
        if block.records.len() >= KEEP_ENDS * ends.len() {
            block.first = u64::from(first >> low) / ends.len() as u64 * ends.len() as u64;
            block.ends = ends;
        }
        Some(block)
    }

    /// First index from `from` on whose key is at least `key`: by the counters, or by doubling steps, as it is near as a rule.
    fn seek(&self, from: usize, key: u64) -> usize {
        if !self.ends.is_empty() && key.trailing_zeros() >= self.low {
            let before = (key >> self.low).saturating_sub(self.first).min(self.ends.len() as u64) as usize;
            return before.checked_sub(1).map_or(0, |last| self.ends[last] as usize).min(self.records.len());
        }
        let rest = &self.records[from..];
        let mut step = 1;
        while step < rest.len() && rest[step].key() < key {
            step *= 2;
        }
        let (low, high) = (step / 2, (step + 1).min(rest.len()));
        from + low + rest[low..high].partition_point(|r| r.key() < key)
    }
}

/// Merge of blocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Merge {
    /// Whether only the first record of a key remains.
    pub(crate) unique: bool,
    /// Approximate number of records in a slice.
    pub(crate) len: usize,
    /// Capacity of each buffer in records: more than a slice where the buffers are huge pages then.
    pub(crate) capacity: usize,
    /// Threads that sort, each in buffers of its own.
    pub(crate) threads: usize,
    /// Slices of a wave: `make` runs on one wave while `emit` runs on the one before.
    pub(crate) wave: usize,
}

impl Merge {
    /// A merge on `threads` threads within a quarter of `memory`: an eighth for the four buffers of each thread, an eighth
    /// for the slices that are ready and those being made, of one and a half times a range's bytes at most.
    pub(crate) fn within<R: Record>(memory: u64, unique: bool, threads: u64) -> Self {
        let buffer = (memory / 32 / threads).max(FEW_BYTES).min(memory / 64).min(BLOCK_BYTES);
        let range = (buffer / 8).min(RANGE_BYTES);
        let merging = (memory / 32 / buffer.max(PAGE)).clamp(1, threads);
        // Enough that the threads end at nearly the same time.
        let wave = (memory / 16 / (range + range / 2).max(2 * PAGE)).clamp(merging, (8 * threads).max(128));
        let records = |bytes: u64| (bytes as usize / size_of::<R>()).max(16);
        Self { unique, len: records(range), capacity: records(buffer), threads: merging as usize, wave: wave as usize }
    }

    /// Sorts the records of all blocks, slice by slice; of equal keys, those of earlier blocks come first. `make` is called
    /// on every slice, on the thread that sorted it, and `emit` on its results, in order, while the next slices are sorted.
    ///
    /// # Complexity
    ///
    /// O(n) for keys of bounded length; memory for the results of two waves of slices, and four buffers per thread.
    pub(crate) fn blocks<R: Record, T: Send>(
        &self,
        blocks: &mut [Block<R>],
        make: &(impl Fn(Sorted<'_, R>) -> T + Sync),
        emit: &mut (impl FnMut(T) -> Result<()> + Send),
    ) -> Result<()> {
        let mut waves = Waves { ready: Vec::new(), emit, threads: self.threads };
        if in_order(blocks) {
            let slices = self.slices_in_order(blocks);
            // A few waves at least: one is written while the next is made.
            let wave = self.wave.min(slices.len().div_ceil(4)).max(1);
            slices.chunks(wave).try_for_each(|wave| waves.next(wave.len(), |i| make(Sorted::Whole(wave[i]))))?;
            return waves.end();
        }
        // The same bytes for both: huge pages, where they are.
        let scratch = (Scratch::new(self.capacity), Scratch::new(self.capacity * size_of::<R>() / size_of::<u32>()));
        let any = blocks.iter().fold(0, |any, block| any | block.any);
        let starts = starts(blocks, self.len.max(1), &scratch.0, self.threads);
        let blocks = &*blocks;
        let mut at = vec![0usize; blocks.len()];
        let mut next = 0;
        while next < starts.len() {
            // The range of a single key is not gathered, since it may be most of the graph. The last range has that end, too.
            let alone = |i: usize| i > 0 && starts[i] < u64::MAX && starts[i] - starts[i - 1] == 1;
            let ends = if alone(next) {
                &starts[next..=next]
            } else {
                let count = (next..starts.len()).take(self.wave).take_while(|&i| !alone(i)).count();
                &starts[next..next + count]
            };
            let (is_alone, start) = (alone(next), if next == 0 { 0 } else { starts[next - 1] });
            next += ends.len();
            let seek = |block: usize| -> Vec<usize> {
                let (mut from, block) = (at[block], &blocks[block]);
                let mut cut = |end: &u64| {
                    // The last range ends with the block: its end is a key that records may have.
                    from = if *end == u64::MAX { block.records.len() } else { block.seek(from, *end) };
                    from
                };
                ends.iter().map(&mut cut).collect()
            };
            let cuts = parallel::map(blocks.len(), 32..=usize::MAX, seek);
            // The piece of each block in range `range`.
            let pieces = |range: usize| {
                let cuts = at.iter().zip(&cuts);
                let ends = cuts.map(move |(&at, cut)| (if range == 0 { at } else { cut[range - 1] })..cut[range]);
                blocks.iter().zip(ends)
            };
            if is_alone {
                let same = pieces(0).flat_map(|(block, piece)| block.records[piece].chunks(self.len.max(1)));
                let first = pieces(0).filter(|_| self.unique).find(|(_, piece)| !piece.is_empty());
                let slices: Vec<&[R]> = match first {
                    Some((block, piece)) => vec![&block.records[piece.start..=piece.start]],
                    None => same.collect(),
                };
                let whole = |wave: &[&[R]]| waves.next(wave.len(), |i| make(Sorted::Whole(wave[i])));
                slices.chunks(self.wave).try_for_each(whole)?;
            } else {
                let gather = |range: usize| {
                    let pieces = pieces(range).map(|(block, piece)| &block.records[piece]);
                    let from = if range == 0 { start } else { ends[range - 1] };
                    // The last range ends after all keys, and the first may be empty.
                    let last = if ends[range] == u64::MAX { any } else { ends[range].saturating_sub(1) };
                    self.range(pieces, Narrow::of::<R>(from, last, any as u32), &scratch, make)
                };
                waves.next(ends.len(), gather)?;
            }
            at.iter_mut().zip(&cuts).for_each(|(at, cut)| *at = *cut.last().expect("a wave has a range"));
        }
        waves.end()
    }

    /// The result of `make` for the sorted records of all pieces, which are sorted as narrow keys where that is possible.
    fn range<'p, R: Record, T>(
        &self,
        pieces: impl Iterator<Item = &'p [R]> + Clone,
        narrow: Option<Narrow>,
        (scratch, narrow_scratch): &(Scratch<R>, Scratch<u32>),
        make: &impl Fn(Sorted<'_, R>) -> T,
    ) -> T {
        if let Some(narrow) = narrow {
            let keys = self.sorted(pieces, |record| narrow.narrow(record.key()), narrow_scratch);
            let made = make(Sorted::Narrow(&keys, narrow));
            narrow_scratch.give(keys);
            return made;
        }
        let records = self.sorted(pieces, |&record| record, scratch);
        let made = make(Sorted::Whole(&records));
        scratch.give(records);
        made
    }

    /// The records of all pieces, each mapped by `map`, sorted in a buffer of `scratch`.
    fn sorted<'p, R: Record, K: Keyed>(
        &self,
        pieces: impl Iterator<Item = &'p [R]> + Clone,
        map: impl Fn(&R) -> K,
        scratch: &Scratch<K>,
    ) -> Records<K> {
        let mut keys = scratch.take();
        let len = pieces.clone().map(<[R]>::len).sum();
        keys.append(len, |mut rest| {
            for piece in pieces {
                let (now, later) = std::mem::take(&mut rest).split_at_mut(piece.len());
                now.iter_mut().zip(piece).for_each(|(out, record)| *out = map(record));
                rest = later;
            }
            len
        });
        scratch.sort(&mut keys, 0);
        if self.unique {
            keys.dedup();
        }
        keys
    }

    /// Slices of the records of blocks that are in order.
    fn slices_in_order<'b, R: Record>(&self, blocks: &'b mut [Block<R>]) -> Vec<&'b [R]> {
        if self.unique {
            parallel::map_mut(blocks, parallel::ANY, |block| block.records.dedup());
        }
        let (mut slices, mut last) = (Vec::new(), None);
        for Block { records, .. } in &*blocks {
            let again = self.unique && records.first().is_some_and(|r| last == Some(r.key()));
            last = records.last().map(|r| r.key()).or(last);
            slices.extend(records[usize::from(again)..].chunks(self.len.max(1)));
        }
        slices
    }
}

/// The results of one wave of slices, which are emitted while the next wave is made.
struct Waves<'e, T, E> {
    ready: Vec<T>,
    emit: &'e mut E,
    threads: usize,
}

impl<T: Send, E: FnMut(T) -> Result<()> + Send> Waves<'_, T, E> {
    fn next(&mut self, slices: usize, make: impl Fn(usize) -> T + Sync) -> Result<()> {
        let (ready, emit) = (std::mem::take(&mut self.ready), &mut *self.emit);
        let of_task = match task_len(slices, self.threads) {
            1 => 1..=1,
            task_len => task_len..=usize::MAX,
        };
        let make = || parallel::map(slices, of_task, &make);
        let (written, made) = parallel::join(|| ready.into_iter().try_for_each(emit), make);
        self.ready = made;
        written
    }

    fn end(self) -> Result<()> {
        self.ready.into_iter().try_for_each(self.emit)
    }
}

/// Number of consecutive items for one thread, so that at most `threads` work; one where the pool has no more.
fn task_len(items: usize, threads: usize) -> usize {
    if threads < rayon::current_num_threads() { items.div_ceil(threads.max(1)).max(1) } else { 1 }
}

/// Whether the concatenated blocks are sorted, as those of a sorted input.
fn in_order<R: Record>(blocks: &[Block<R>]) -> bool {
    let filled = || blocks.iter().filter(|b| !b.records.is_empty());
    let ends = |b: &Block<R>| (b.records[0].key(), b.records[b.records.len() - 1].key());
    blocks.iter().all(|b| b.low == 0) && filled().zip(filled().skip(1)).all(|(a, b)| ends(a).1 <= ends(b).0)
}

/// Upper bounds of key ranges of about `len` records each, ascending; the last is `u64::MAX`, the end of all. Blocks are
/// sorted by the upper bits of their keys alone: records of many ranges that agree in these are first sorted by the rest.
fn starts<R: Record>(blocks: &mut [Block<R>], len: usize, scratch: &Scratch<R>, threads: usize) -> Vec<u64> {
    let low = blocks.iter().map(|b| b.low).max().unwrap_or(0);
    let mask = u64::MAX << low;
    let step = (len / SAMPLE).max(1);
    let sample = |records: &[R]| -> Vec<u64> { records.iter().step_by(SAMPLE).map(|r| r.key()).collect() };
    let mut samples = parallel::map(blocks.len(), parallel::ANY, |block| sample(&blocks[block].records)).concat();
    samples.iter_mut().for_each(|key| *key &= mask);
    samples.par_sort_unstable();
    let mut starts: Vec<u64> = samples.into_iter().step_by(step).collect();
    let again = |keys: &[u64]| -> Vec<u64> { keys.windows(2).filter(|w| w[0] == w[1]).map(|w| w[0]).collect() };
    if low == 0 {
        // A key seen twice is a range of its own, with the next key as its end.
        starts.extend(again(&starts).into_iter().filter_map(|key| key.checked_add(1)));
    } else {
        let mut heavy: Vec<u64> = starts.windows(HEAVY).filter(|w| w[0] == w[HEAVY - 1]).map(|w| w[0]).collect();
        heavy.dedup();
        for first in heavy {
            let task_len = task_len(blocks.len(), threads);
            let samples = parallel::map_mut(blocks, task_len..=usize::MAX, |block| {
                let from = block.records.partition_point(|r| r.key() < first);
                let to = block.records.partition_point(|r| r.key() <= first | !mask);
                let mut records = scratch.take();
                records.extend_from_slice(&block.records[from..to]);
                scratch.sort(&mut records, 0);
                block.records[from..to].copy_from_slice(&records);
                let samples = sample(&records);
                scratch.give(records);
                samples
            });
            let mut samples = samples.concat();
            samples.par_sort_unstable();
            let cuts: Vec<u64> = samples.into_iter().step_by(step).collect();
            starts.extend(again(&cuts).into_iter().filter_map(|key| key.checked_add(1)));
            starts.extend(cuts);
            // The next key begins a range: only sorted records are cut.
            starts.extend(first.checked_add(1 << low));
        }
    }
    starts.sort_unstable();
    starts.dedup();
    starts.retain(|&key| key != u64::MAX);
    starts.push(u64::MAX);
    starts
}

#[cfg(test)]
mod tests;
