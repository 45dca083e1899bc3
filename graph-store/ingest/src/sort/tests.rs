use std::fs;

use proptest::prelude::*;

use super::*;
use crate::records::Weighted;

#[track_caller]
fn check<R: Record + PartialEq>(records: &[R], memory: u64, unique: bool) -> usize {
    let dir = tempfile::tempdir().unwrap();
    let mut sorter = Sorter::new(dir.path().join("spill"), memory, unique);
    records.chunks(37).for_each(|r| sorter.push(r).unwrap());
    let runs = sorter.spill.as_ref().map_or(0, |spill| spill.runs.len());
    let mut actual = Vec::new();
    let mut emit = |slice: Vec<R>| {
        actual.extend(slice);
        Ok(())
    };
    sorter.merge(&|records: Sorted<'_, R>| records.to_vec(), &mut emit).unwrap();
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
        let weighted: Vec<_> = keys.iter().enumerate().map(|(i, &k)| Weighted::new(k, i as f32)).collect();
        check(&weighted, memory, unique);
    }
}

#[test]
fn many_runs_take_several_levels() {
    let keys: Vec<u64> = (0..5_000u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40).collect();
    // The last sixteen that fit and the rest after them are still in memory.
    assert_eq!(check(&keys, 0, false), 5_000 / 16 - 1);
    assert_eq!(check(&keys, 1 << 20, false), 0);
}

/// No record precedes the rest: no block is copied.
#[test]
fn blocks_of_one_target_stay_where_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let mut sorter = Sorter::<u64>::new(dir.path().join("spill"), 1 << 20, false);
    let many = 4 * rayon::current_num_threads();
    for i in 0..2 * many as u64 {
        let mut records = sorter.maker().scratch.take();
        records.extend_from_slice(&[7 << 32 | i, 7 << 32 | (i + 1)]);
        sorter.push_block(sorter.maker().sorted(records)).unwrap();
    }
    let addresses = |sorter: &Sorter<u64>| sorter.blocks.iter().map(|b| b.records.as_ptr()).collect::<Vec<_>>();
    let before = addresses(&sorter);
    sorter.merge_early(&|_: Sorted<'_, u64>| (), &mut |()| panic!("a row that may grow is written")).unwrap();
    assert_eq!(addresses(&sorter), before);
}

/// Rows that begin in one block and end in the next leave a rest at every merge, in a recycled buffer.
#[test]
fn merging_early_needs_no_more_buffers_with_every_merge() {
    let dir = tempfile::tempdir().unwrap();
    let mut sorter = Sorter::<u64>::new(dir.path().join("spill"), 1 << 20, false);
    let (many, mut merges) = (4 * rayon::current_num_threads(), 0);
    for i in 0..40 * many as u64 {
        let mut records = sorter.maker().scratch.take();
        (0..10).for_each(|j| records.extend_from_slice(&[(((10 * i + j) / 7) << 32) | ((7 * j) % 10)]));
        sorter.push_block(sorter.maker().sorted(records)).unwrap();
        let before = sorter.resident;
        sorter.merge_early(&|_: Sorted<'_, u64>| (), &mut |()| Ok(())).unwrap();
        merges += usize::from(sorter.resident < before);
    }
    let buffers = sorter.blocks.len() + sorter.scratch.waiting();
    assert!(merges > 30 && buffers < many + 4, "{buffers} buffers after {merges} merges of {many} blocks");
}

/// Targets in order, sources in none; one target with more edges than fit memory.
#[test]
fn complete_rows_are_merged_early() {
    for memory in [2_000, 20_000, 1 << 20] {
        let dir = tempfile::tempdir().unwrap();
        let mut sorter = Sorter::<u64>::new(dir.path().join("spill"), memory, false);
        let source = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let target = |i: u64| if (20_000..25_000).contains(&i) { 20_000 } else { i } / 7;
        let all: Vec<u64> = (0..60_000).map(|i| target(i) << 32 | source(i)).collect();
        let (mut actual, mut early) = (Vec::new(), 0);
        let make = |records: Sorted<'_, u64>| records.to_vec();
        for some in all.chunks(100) {
            let mut records = sorter.maker().scratch.take();
            records.extend_from_slice(some);
            let block = sorter.maker().sorted(records);
            sorter.push_block(block).unwrap();
            let mut emit = |records: Vec<u64>| {
                actual.extend(records);
                Ok(())
            };
            sorter.merge_early(&make, &mut emit).unwrap();
            early = actual.len();
        }
        assert!(early > 0 || memory < 1 << 20, "{early} edges early in {memory} bytes");
        let mut emit = |records: Vec<u64>| {
            actual.extend(records);
            Ok(())
        };
        sorter.merge(&make, &mut emit).unwrap();
        let mut expected = all;
        expected.sort_unstable();
        assert!(actual == expected, "{memory} bytes");
    }
}
