//! Sorted blocks of records into one sorted sequence: cut into ranges of keys, which are sorted side by side.

use rayon::prelude::*;

use morphgl_graph_store::Result;

use crate::radix::Scratch;
use crate::sort::Record;

/// Every so many records of a block, a key is looked at to find where ranges shall begin.
const SAMPLE: usize = 256;

/// Records sorted by target; by source too where `full`.
#[derive(Debug)]
pub(crate) struct Block<R> {
    pub(crate) records: Vec<R>,
    pub(crate) full: bool,
}

impl<R: Record> Block<R> {
    /// Sorts records by target, which leaves the sources to the ranges; wholly where there is one target only.
    pub(crate) fn sort(mut records: Vec<R>, scratch: &Scratch<R>) -> Self {
        let target = |r: &R| r.key() >> 32;
        let same = records.first().is_some_and(|first| records.iter().all(|r| target(r) == target(first)));
        scratch.sort(&mut records, if same { 0 } else { 32 });
        let full = same || records.is_sorted_by_key(|r| r.key());
        Self { records, full }
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
    let mut ready: Vec<Vec<R>> = Vec::new();
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
                for ((block, at), cut) in blocks.iter().zip(&at).zip(&cuts) {
                    let start = if range == 0 { *at } else { cut[range - 1] };
                    records.extend_from_slice(&block.records[start..cut[range]]);
                }
                scratch.sort(&mut records, 0);
                if unique {
                    records.dedup_by_key(|r| r.key());
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
    ready: &mut Vec<Vec<R>>,
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
    blocks.iter().all(|b| b.full) && filled().zip(filled().skip(1)).all(|(a, b)| ends(a).1 <= ends(b).0)
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
            block.records.dedup_by_key(|r| r.key());
            let again = block.records.first().is_some_and(|r| last == Some(r.key()));
            last = block.records.last().map(|r| r.key()).or(last);
            if again {
                block.records.remove(0);
            }
        }
        block.records.chunks(len.max(1)).try_for_each(&mut *emit)?;
    }
    Ok(())
}

/// Where ranges of about `len` records end, ascending; the last is `u64::MAX` and means the end of all. Within a target
/// of more edges than that, the blocks are sorted by source first.
fn starts<R: Record>(blocks: &mut [Block<R>], len: usize, scratch: &Scratch<R>) -> Vec<u64> {
    let full = blocks.iter().all(|b| b.full);
    let mask = if full { u64::MAX } else { !0xffff_ffff };
    let step = (len / SAMPLE).max(1);
    let sample = |records: &[R], out: &mut Vec<u64>| out.extend(records.iter().step_by(SAMPLE).map(|r| r.key()));
    let mut samples = Vec::new();
    blocks.iter().for_each(|b| sample(&b.records, &mut samples));
    samples.iter_mut().for_each(|key| *key &= mask);
    samples.par_sort_unstable();
    let mut starts: Vec<u64> = samples.into_iter().step_by(step).collect();
    let again = |keys: &[u64]| -> Vec<u64> { keys.windows(2).filter(|w| w[0] == w[1]).map(|w| w[0]).collect() };
    if full {
        // A key seen twice is a range of its own, with the key behind it as its end.
        starts.extend(again(&starts).into_iter().filter_map(|key| key.checked_add(1)));
    } else {
        let mut heavy = again(&starts);
        heavy.dedup();
        for first in heavy {
            let samples = blocks.par_iter_mut().map(|block| {
                let from = block.records.partition_point(|r| r.key() < first);
                let to = block.records.partition_point(|r| r.key() <= first | 0xffff_ffff);
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
            // What follows the target begins a range: nothing is cut that is not sorted.
            starts.extend(first.checked_add(1 << 32));
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

    proptest! {
        /// Targets with far more edges than a range holds, beside targets with few; edges listed many times.
        #[test]
        fn any_blocks_merge_into_the_stable_sort(
            draws in prop::collection::vec((0u64..12, 0u64..1 << 16), 0..3000),
            block in 1usize..900,
            len in prop::sample::select(vec![1usize, 300, 1024]),
            sources in prop::sample::select(vec![1u64, 3, 1 << 16]),
            unique: bool,
        ) {
            // Half of the edges go to one target, a quarter to the next.
            let target = |draw: u64| u64::from((1u64 << draw).trailing_zeros().saturating_sub(5));
            let key = |&(t, s): &(u64, u64)| target(t) << 32 | (s % sources);
            let records: Vec<(u64, f32)> = draws.iter().map(key).zip((0u16..).map(f32::from)).collect();
            let scratch = Scratch::default();
            let mut blocks: Vec<_> = records.chunks(block).map(|b| Block::sort(b.to_vec(), &scratch)).collect();
            let mut actual = Vec::new();
            merge(&mut blocks, unique, len, &scratch, &mut |records| {
                actual.extend_from_slice(records);
                Ok(())
            }).unwrap();
            let mut expected = records;
            expected.sort_by_key(|r| r.0);
            if unique {
                expected.dedup_by_key(|r| r.0);
            }
            prop_assert_eq!(actual, expected);
        }
    }
}
