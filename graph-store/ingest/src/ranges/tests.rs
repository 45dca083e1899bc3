use proptest::prelude::*;

use super::*;
use crate::records::Weighted;

/// The merged records of blocks.
fn merged<R: Record>(merge: Merge, blocks: &mut [Block<R>]) -> Vec<R> {
    let mut merged = Vec::new();
    let mut emit = |records: Vec<R>| {
        merged.extend(records);
        Ok(())
    };
    merge.blocks(blocks, &|records: Sorted<'_, R>| records.to_vec(), &mut emit).unwrap();
    merged
}

/// Compares the merge of blocks of `block` records with the sort of the standard library.
fn check<R: Record + PartialEq>(records: &[R], block: usize, bits: u32, merge: Merge) {
    let scratch = Scratch::new(0);
    let sort = |b: &[R]| {
        let mut records = Records::default();
        records.extend_from_slice(b);
        Block::sort(records, bits, &scratch)
    };
    let mut blocks: Vec<_> = records.chunks(block).map(sort).collect();
    let mut expected = records.to_vec();
    expected.sort_by_key(|r| r.key());
    if merge.unique {
        expected.dedup_by_key(|r| r.key());
    }
    assert_eq!(merged(merge, &mut blocks), expected);
}

proptest! {
    /// Targets with far more edges than a range, and targets with few; edges listed many times.
    #[test]
    fn any_blocks_merge_into_the_stable_sort(
        draws in prop::collection::vec((0u64..12, 0u64..1 << 16), 0..3000),
        block in 1usize..900,
        len in prop::sample::select(vec![1usize, 300, 1024]),
        sources in prop::sample::select(vec![1u64, 3, 1 << 16]),
        far in prop::sample::select(vec![0u64, 1 << 9, 1 << 31]),
        bits in prop::sample::select(vec![1u32, 2, 12]),
        unique: bool,
    ) {
        // Half of the edges go to one target, a quarter to the next; some come from a source far away.
        let target = |draw: u64| u64::from((1u64 << draw).trailing_zeros().saturating_sub(5));
        let key = |&(t, s): &(u64, u64)| (target(t) + far) << 32 | (s % sources + far * (s % 7 / 6));
        let keys: Vec<u64> = draws.iter().map(key).collect();
        let merge = Merge { unique, len, capacity: 0, threads: 2, wave: 9 };
        check(&keys, block, bits, merge);
        let weighted: Vec<_> = keys.iter().zip((0u16..).map(f32::from)).map(|(&k, w)| Weighted::new(k, w)).collect();
        check(&weighted, block, bits, merge);
    }
}

/// Blocks large enough to keep their counters; the second begins and ends within the first.
#[test]
fn counted_blocks_merge_into_the_sort() {
    let draw = |i: u32, n: u32| ((u64::from(i.wrapping_mul(2_654_435_761)) * u64::from(n)) >> 32) as u32;
    for (first, nodes) in [(0, 1000), (5, 1 << 22), (u32::MAX - 9000, 9000)] {
        let (mut blocks, mut expected) = (Vec::new(), Vec::new());
        for (seed, from, nodes) in [(1, first, nodes), (7, first + nodes / 3, nodes / 3), (9, first, nodes)] {
            let targets: Vec<u32> = (0..70_000).map(|i| from + draw(i * seed, nodes)).collect();
            let sources: Vec<u32> = (0..70_000).map(|i| draw(i + seed, 1 << 20)).collect();
            expected.extend(targets.iter().zip(&sources).map(|(&v, &u)| u64::from(v) << 32 | u64::from(u)));
            let block = Block::<u64>::place(&sources, &targets, 12, Records::default).expect("one pass is enough");
            assert!(!block.ends.is_empty());
            blocks.push(block);
        }
        expected.sort_unstable();
        assert!(
            merged(Merge { unique: false, len: 2000, capacity: 0, threads: 2, wave: 9 }, &mut blocks) == expected,
            "{nodes} nodes"
        );
    }
}

/// Node ids of 64 bits end with the key that means the end of all.
#[test]
fn the_highest_key_is_not_lost() {
    for (unique, last) in [(false, u64::MAX), (true, u64::MAX), (true, u64::MAX - 1)] {
        let keys: Vec<u64> = (0..400).map(|i| last - i % 2).collect();
        check(&keys, 100, 12, Merge { unique, len: 1, capacity: 0, threads: 2, wave: 9 });
    }
}

proptest! {
    #[test]
    fn placed_edges_are_those_sorted_in_one_pass(
        targets in prop::collection::vec(0u32..6000, 1..2000),
        bits in prop::sample::select(vec![1u32, 5, 12]),
        shift in prop::sample::select(vec![0u32, 3, 19]),
    ) {
        let targets: Vec<u32> = targets.iter().map(|t| t << shift).collect();
        let sources: Vec<u32> = (0..targets.len() as u32).rev().collect();
        match Block::<u64>::place(&sources, &targets, bits, Records::default) {
            Some(block) => {
                let keys = sources.iter().zip(&targets).map(|(&u, &v)| u64::from(v) << 32 | u64::from(u));
                let mut expected: Vec<u64> = keys.collect();
                expected.sort_by_key(|key| key >> block.low);
                prop_assert_eq!(&block.records[..], &expected[..]);
            }
            None => prop_assert!(targets.is_sorted()),
        }
    }
}
