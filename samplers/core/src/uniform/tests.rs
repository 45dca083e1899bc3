use std::collections::BTreeSet;

use morphgl_registry::BatchId;
use proptest::prelude::*;

use super::*;

/// Floyd's method, word by word.
fn reference(row: &Row, degree: u32, len: u32) -> Vec<u32> {
    let mut chosen = BTreeSet::new();
    for i in 0..len {
        let j = degree - len + i;
        let word = row.block(Stream::Sampling, i / 4)[i as usize % 4];
        let retry = |r: u32| row.block(Stream::SamplingRetry, i * 64 + r / 4)[r as usize % 4];
        let drawn = bounded(j + 1, word, retry);
        if !chosen.insert(drawn) {
            chosen.insert(j);
        }
    }
    chosen.into_iter().collect()
}

proptest! {
    #[test]
    fn equals_the_reference(
        seed: u64, epoch: u32, index: u32, hop in 0u32..64, node: u32, degree in 1u32..3000, len in 0u32..3000,
    ) {
        let row = Row { seed, batch: BatchId { epoch, index }, hop, node, edge_type: 0 };
        let len = len.min(degree - 1);
        let mut out = vec![0; len as usize];
        let mut scratch = PickScratch::default();
        pick_uniform(&row, degree, &mut out, &mut scratch);
        prop_assert_eq!(&out, &reference(&row, degree, len));
        // A pick leaves the scratch as it was.
        let mut again = vec![0; len as usize];
        pick_uniform(&row, degree, &mut again, &mut scratch);
        prop_assert_eq!(out, again);
    }
}

#[test]
fn huge_degrees_meet_retries_and_still_agree() {
    // At a degree just above 2^31 every second word is rejected.
    for node in 0..200 {
        let row = Row { seed: 3, batch: BatchId::default(), hop: 0, node, edge_type: 0 };
        let mut out = [0; 9];
        pick_uniform(&row, (1 << 31) + 10, &mut out, &mut PickScratch::default());
        assert_eq!(out.to_vec(), reference(&row, (1 << 31) + 10, 9));
    }
}

#[test]
fn all_neighbours_need_no_draw() {
    let row = Row { seed: 0, batch: BatchId::default(), hop: 0, node: 0, edge_type: 0 };
    let mut out = [9; 5];
    pick_uniform(&row, 5, &mut out, &mut PickScratch::default());
    assert_eq!(out, [0, 1, 2, 3, 4]);
}
