//! Sorted blocks of records into one sorted sequence: cut into ranges of keys, which are sorted side by side.

use rayon::prelude::*;

use morphgl_graph_store::Result;

use crate::radix::Scratch;
use crate::records::{Record, Records};

/// Every so many records of a block, a key is looked at to find where ranges shall begin.
const SAMPLE: usize = 256;
/// Keys of which so many ranges could be made are cut, and not sorted as one range.
const HEAVY: usize = 4;

/// Records sorted by the bits of their keys from `low` on.
#[derive(Debug)]
pub(crate) struct Block<R> {
    pub(crate) records: Records<R>,
    pub(crate) low: u32,
}

impl<R: Record> Block<R> {
    /// Sorts records by the upper `bits` of what differs in their targets, and leaves the rest to the ranges; wholly where
    /// there is one target only.
    pub(crate) fn sort(mut records: Records<R>, bits: u32, scratch: &Scratch<R>) -> Self {
        let Some(first) = records.first().map(|r| r.key()) else { return Self { records, low: 0 } };
        let differ = records.iter().fold(0, |all, r| all | (r.key() ^ first));
        let top = u64::BITS - differ.leading_zeros();
        let low = if top <= 32 { 0 } else { top.saturating_sub(bits).max(32) };
        scratch.sort(&mut records, low);
        let low = if low == 0 || records.is_sorted_by_key(|r| r.key()) { 0 } else { low };
        Self { records, low }
    }

    /// First position from `from` on whose key is at least `key`, in steps that double: it is near as a rule.
    fn seek(&self, from: usize, key: u64) -> usize {
        let rest = &self.records[from..];
        let mut step = 1;
        while step < rest.len() && rest[step].key() < key {
            step *= 2;
        }
        let (least, most) = (step / 2, (step + 1).min(rest.len()));
        from + least + rest[least..most].partition_point(|r| r.key() < key)
    }
}

/// Hands the records of all blocks to `emit`, sorted, in slices of about `len`; of equal keys, those of earlier blocks
/// first, and with `unique` the first alone. While `emit` writes a slice, the next ones are sorted.
///
/// # Complexity
///
/// O(n) for keys of bounded length, on all threads of rayon's pool; eight slices a thread, and their scratch.
pub(crate) fn merge<R: Record>(
    blocks: &mut [Block<R>],
    unique: bool,
    len: usize,
    scratch: &Scratch<R>,
    emit: &mut (impl FnMut(&[R]) -> Result<()> + Send),
) -> Result<()> {
    if in_order(blocks) {
        return pass_on(blocks, unique, len, emit);
    }
    let starts = starts(blocks, len.max(1), scratch);
    let blocks = &*blocks;
    let mut at = vec![0usize; blocks.len()];
    let mut ready: Vec<Records<R>> = Vec::new();
    let wave = 4 * rayon::current_num_threads();
    let mut next = 0;
    while next < starts.len() {
        // A key that alone makes a range is not gathered: it may be most of the graph.
        let alone = |i: usize| i > 0 && starts[i].checked_sub(starts[i - 1]) == Some(1);
        let ends = if alone(next) {
            &starts[next..=next]
        } else {
            let count = (next..starts.len()).take(wave).take_while(|&i| !alone(i)).count();
            &starts[next..next + count]
        };
        let is_alone = alone(next);
        next += ends.len();
        let mut cuts: Vec<Vec<usize>> = Vec::new();
        let seek = |(block, &at): (&Block<R>, &usize)| -> Vec<usize> {
            let mut from = at;
            let mut cut = |end: &u64| {
                // The last range ends with the block: its end is a key that records may have.
                from = if *end == u64::MAX { block.records.len() } else { block.seek(from, *end) };
                from
            };
            ends.iter().map(&mut cut).collect()
        };
        blocks.par_iter().zip(&at).with_min_len(32).map(seek).collect_into_vec(&mut cuts);
        if is_alone {
            hand_on(&mut ready, scratch, emit)?;
            for ((block, at), cut) in blocks.iter().zip(&at).zip(&cuts) {
                let records = &block.records[*at..cut[0]];
                let records = if unique { &records[..records.len().min(1)] } else { records };
                records.chunks(len.max(1)).try_for_each(&mut *emit)?;
                if unique && !records.is_empty() {
                    break;
                }
            }
        } else {
            let gather = |range: usize| {
                let mut records = scratch.take();
                records.clear();
                let start = |at: usize, cut: &[usize]| if range == 0 { at } else { cut[range - 1] };
                records.reserve(at.iter().zip(&cuts).map(|(&at, cut)| cut[range] - start(at, cut)).sum());
                for ((block, at), cut) in blocks.iter().zip(&at).zip(&cuts) {
                    records.extend_from_slice(&block.records[start(*at, cut)..cut[range]]);
                }
                scratch.sort(&mut records, 0);
                if unique {
                    records.dedup();
                }
                records
            };
            let (written, sorted) = rayon::join(
                || hand_on(&mut ready, scratch, emit),
                || (0..ends.len()).into_par_iter().map(gather).collect::<Vec<_>>(),
            );
            written?;
            ready = sorted;
        }
        at.iter_mut().zip(&cuts).for_each(|(at, cut)| *at = *cut.last().expect("a wave has a range"));
    }
    hand_on(&mut ready, scratch, emit)
}

fn hand_on<R: Record>(
    ready: &mut Vec<Records<R>>,
    scratch: &Scratch<R>,
    emit: &mut (impl FnMut(&[R]) -> Result<()> + Send),
) -> Result<()> {
    for records in ready.drain(..) {
        emit(&records)?;
        scratch.give(records);
    }
    Ok(())
}

/// Whether the blocks, one after another, are sorted: the input was.
fn in_order<R: Record>(blocks: &[Block<R>]) -> bool {
    let filled = || blocks.iter().filter(|b| !b.records.is_empty());
    let ends = |b: &Block<R>| (b.records[0].key(), b.records[b.records.len() - 1].key());
    blocks.iter().all(|b| b.low == 0) && filled().zip(filled().skip(1)).all(|(a, b)| ends(a).1 <= ends(b).0)
}

fn pass_on<R: Record>(
    blocks: &mut [Block<R>],
    unique: bool,
    len: usize,
    emit: &mut (impl FnMut(&[R]) -> Result<()> + Send),
) -> Result<()> {
    let mut last = None;
    for block in blocks {
        if unique {
            block.records.dedup();
        }
        let again = unique && block.records.first().is_some_and(|r| last == Some(r.key()));
        last = block.records.last().map(|r| r.key()).or(last);
        block.records[usize::from(again)..].chunks(len.max(1)).try_for_each(&mut *emit)?;
    }
    Ok(())
}

/// Where ranges of about `len` records end, ascending; the last is `u64::MAX` and means the end of all. Within keys that
/// no block tells apart and that are many times as many records, the blocks are sorted wholly first.
fn starts<R: Record>(blocks: &mut [Block<R>], len: usize, scratch: &Scratch<R>) -> Vec<u64> {
    let low = blocks.iter().map(|b| b.low).max().unwrap_or(0);
    let mask = u64::MAX << low;
    let step = (len / SAMPLE).max(1);
    let sample = |records: &[R], out: &mut Vec<u64>| out.extend(records.iter().step_by(SAMPLE).map(|r| r.key()));
    let mut samples = Vec::new();
    blocks.iter().for_each(|b| sample(&b.records, &mut samples));
    samples.iter_mut().for_each(|key| *key &= mask);
    samples.par_sort_unstable();
    let mut starts: Vec<u64> = samples.into_iter().step_by(step).collect();
    let again = |keys: &[u64]| -> Vec<u64> { keys.windows(2).filter(|w| w[0] == w[1]).map(|w| w[0]).collect() };
    if low == 0 {
        // A key seen twice is a range of its own, with the key behind it as its end.
        starts.extend(again(&starts).into_iter().filter_map(|key| key.checked_add(1)));
    } else {
        let mut heavy: Vec<u64> = starts.windows(HEAVY).filter(|w| w[0] == w[HEAVY - 1]).map(|w| w[0]).collect();
        heavy.dedup();
        for first in heavy {
            let samples = blocks.par_iter_mut().map(|block| {
                let from = block.records.partition_point(|r| r.key() < first);
                let to = block.records.partition_point(|r| r.key() <= first | !mask);
                let mut records = scratch.take();
                records.clear();
                records.extend_from_slice(&block.records[from..to]);
                scratch.sort(&mut records, 0);
                block.records[from..to].copy_from_slice(&records);
                let mut samples = Vec::new();
                sample(&records, &mut samples);
                scratch.give(records);
                samples
            });
            let mut samples = samples.collect::<Vec<_>>().concat();
            samples.par_sort_unstable();
            let cuts: Vec<u64> = samples.into_iter().step_by(step).collect();
            starts.extend(again(&cuts).into_iter().filter_map(|key| key.checked_add(1)));
            starts.extend(cuts);
            // What follows begins a range: nothing is cut that is not sorted.
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
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::records::Weighted;

    proptest! {
        /// Targets with far more edges than a range holds, beside targets with few; edges listed many times.
        #[test]
        fn any_blocks_merge_into_the_stable_sort(
            draws in prop::collection::vec((0u64..12, 0u64..1 << 16), 0..3000),
            block in 1usize..900,
            len in prop::sample::select(vec![1usize, 300, 1024]),
            sources in prop::sample::select(vec![1u64, 3, 1 << 16]),
            bits in prop::sample::select(vec![1u32, 2, 12]),
            unique: bool,
        ) {
            // Half of the edges go to one target, a quarter to the next.
            let target = |draw: u64| u64::from((1u64 << draw).trailing_zeros().saturating_sub(5));
            let key = |&(t, s): &(u64, u64)| target(t) << 32 | (s % sources);
            let records: Vec<_> =
                draws.iter().map(key).zip((0u16..).map(f32::from)).map(|(k, w)| Weighted::new(k, w)).collect();
            let scratch = Scratch::default();
            let sort = |b: &[Weighted]| {
                let mut records = Records::default();
                records.extend_from_slice(b);
                Block::sort(records, bits, &scratch)
            };
            let mut blocks: Vec<_> = records.chunks(block).map(sort).collect();
            let mut actual = Vec::new();
            merge(&mut blocks, unique, len, &scratch, &mut |records| {
                actual.extend_from_slice(records);
                Ok(())
            }).unwrap();
            let mut expected = records;
            expected.sort_by_key(|r| r.key());
            if unique {
                expected.dedup_by_key(|r| r.key());
            }
            prop_assert_eq!(actual, expected);
        }
    }
}
