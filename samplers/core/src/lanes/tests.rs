use morphgl_platform::SimdLevel;
use morphgl_registry::BatchId;
use proptest::prelude::*;

use super::*;
use crate::dispatch::floyd;
use crate::uniform::{PickScratch, pick_uniform, pick_uniform_lanes};

#[track_caller]
fn check(row: &Row, lanes: &Lanes, len: usize) {
    let mut picks = vec![[0; LANES]; len];
    pick_uniform_lanes(row, lanes, &mut picks);
    for lane in 0..LANES {
        let mut expected = vec![0; len];
        let row = Row { node: lanes.nodes[lane], ..*row };
        pick_uniform(&row, lanes.degrees[lane], &mut expected, &mut PickScratch::default());
        assert_eq!(picks.iter().map(|p| p[lane]).collect::<Vec<_>>(), expected, "lane {lane}");
    }
    // Every level draws the same.
    let mut portable = vec![[0; LANES]; len];
    let rejected = floyd_lanes(row, lanes, &mut portable);
    for level in SimdLevel::available() {
        let mut actual = vec![[0; LANES]; len];
        assert_eq!((floyd(level, row, lanes, &mut actual), &actual), (rejected, &portable), "{level}");
    }
}

proptest! {
    #[test]
    fn equals_one_row_at_a_time(
        seed: u64, epoch: u32, index: u32, hop in 0u32..64, len in 0usize..=MAX_LANES_FANOUT,
        nodes: [u32; LANES], extra in prop::array::uniform16(1u32..200),
    ) {
        let row = Row { seed, batch: BatchId { epoch, index }, hop, node: 7, edge_type: 0 };
        check(&row, &Lanes { nodes, degrees: extra.map(|e| len as u32 + e) }, len);
    }
}

#[test]
fn lanes_with_rejected_words_are_drawn_again() {
    // At a degree just above 2^31 every second word is rejected; the other lanes meet none.
    for round in 0..50 {
        let row = Row { seed: round, batch: BatchId::default(), hop: 0, node: 0, edge_type: 0 };
        let degrees = std::array::from_fn(|l| if l % 3 == 0 { (1 << 31) + 10 } else { 40 + l as u32 });
        check(&row, &Lanes { nodes: std::array::from_fn(|l| l as u32 * 5), degrees }, 9);
    }
}
