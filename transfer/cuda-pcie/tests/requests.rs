//! The lines and sectors of host memory that the emulated gather's loads touch are those of the model of requests over PCIe,
//! `WarpPattern` of morphgl-tiering.
#![cfg(feature = "emulate")]

mod common;

use std::sync::Arc;

use common::{operator, stream, upload, with_rows};
use morphgl_conformance::batching::Case;
use morphgl_cuda::emulation;
use morphgl_graph_store::{Array, Dataset, FeatureMatrix};
use morphgl_platform::Pages;
use morphgl_registry::{HostBatch, Transferring};
use morphgl_tiering::{LINE, SECTOR, WarpPattern};
use morphgl_transferring_cuda::ZeroCopy;
use proptest::prelude::*;
use serde_json::json;

const ROWS: u32 = 90;

/// Distinct granules of the dataset's features that each load of a warp touches while the rows of `nodes` are gathered.
fn counted(operator: &mut ZeroCopy, case: &Case, nodes: &[u32], granule: u64) -> u64 {
    let batch = HostBatch { input_nodes: nodes.to_vec(), ..HostBatch::default() };
    let batch = upload(&stream(), &batch);
    let matrix = case.dataset.features.as_ref().expect("features");
    let gather = || operator.transfer(batch).and_then(|handle| handle.wait()).expect("no failure");
    emulation::count_loads(matrix.view().as_bytes(), granule as usize, gather).1.touched
}

fn pattern(access: &str, row_bytes: u64) -> WarpPattern {
    if access == "naive" { WarpPattern::of_naive(row_bytes) } else { WarpPattern::of_zero_copy(row_bytes) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn loads_touch_what_the_model_says(
        row_bytes in prop_oneof![1u64..1100, (1u64..70).prop_map(|n| 8 * n), (1u64..70).prop_map(|n| 16 * n)],
        nodes in Just((0..ROWS).collect::<Vec<u32>>()).prop_shuffle(),
        count in 1..ROWS as usize,
        cached in prop_oneof![Just(0u32), 0..ROWS],
        access in prop::sample::select(vec!["aligned", "naive"]),
    ) {
        let nodes = &nodes[..count];
        let case = Case::new(with_rows(ROWS as usize, row_bytes as usize));
        let begin = case.dataset.features.as_ref().expect("features").view().as_bytes().as_ptr() as u64;
        prop_assert!(begin.is_multiple_of(16), "the allocator aligns memory for every unit");
        let mut operator = operator(&case, json!({"presample": 0, "access": access})).expect("it is emulated");
        let hotness: Vec<f32> = (0..ROWS).map(|node| f32::from(u8::from(node < cached))).collect();
        prop_assert_eq!(operator.gather().fill_cache(&hotness, u64::MAX).expect("enough memory"), cached as usize);
        let pattern = pattern(access, row_bytes);
        for granule in [LINE, SECTOR] {
            let found = counted(&mut operator, &case, nodes, granule);
            let from_host = |node: &&u32| **node >= cached;
            let of_row = |node: &u32| {
                let reads = pattern.reads(begin + u64::from(*node) * row_bytes, row_bytes);
                if granule == LINE { reads.requests } else { reads.sectors }
            };
            let expected: u64 = nodes.iter().filter(from_host).map(of_row).sum();
            // The model is of one row. Where half a warp copies a row, a load is of two rows, which may share a granule.
            let touched = |node: u32| {
                let first = begin + u64::from(node) * row_bytes;
                first / granule..=(first + row_bytes - 1) / granule
            };
            let share = |pair: &&[u32]| {
                let [a, b] = **pair else { return false };
                let (low, high) = (touched(a.min(b)), touched(a.max(b)));
                a.min(b) >= cached && low.end() == high.start()
            };
            let shared = if pattern.lanes == 32 { 0 } else { nodes.chunks(2).filter(share).count() as u64 };
            prop_assert!(found <= expected && found + shared >= expected, "{found}, {expected}, {shared} pairs share");
        }
    }
}

/// The example of PyTorch-Direct (VLDB 2021, Fig. 6): of rows of 480 bytes in a table that begins with a line, the second one.
#[test]
fn the_second_row_of_480_bytes_takes_8_requests_or_5() {
    let mut pages = Pages::zeroed(480 * 3).expect("memory");
    pages.fill(1);
    let data = Array::from_pages(pages).expect("bytes need no alignment");
    let dataset = Dataset { features: Some(FeatureMatrix::U8 { data, dim: 480 }), ..with_rows(3, 480) };
    let case = Case { dataset: Arc::new(dataset), ..Case::new(with_rows(3, 480)) };
    for (access, requests) in [("naive", 8), ("aligned", 5)] {
        let mut operator = operator(&case, json!({"presample": 0, "access": access})).expect("it is emulated");
        assert_eq!(counted(&mut operator, &case, &[1], LINE), requests, "{access}");
    }
}
