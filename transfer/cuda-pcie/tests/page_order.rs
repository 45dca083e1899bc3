//! Rows gathered in the order of their pages are those gathered in the order of the mini-batch, and warps come to a page once.
#![cfg(feature = "emulate")]

mod common;

use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::sync::Arc;

use common::{operator, stream, with_rows};
use morphgl_conformance::batching::Case;
use morphgl_cuda::{CudaBatch, Device, emulation, statistics};
use morphgl_graph_store::{Array, Dataset, FeatureMatrix};
use morphgl_platform::{Pages, splitmix64};
use morphgl_registry::{Counters, HostBatch, MiniBatch, Transferring, TransferringContext};
use morphgl_transferring_cuda::{PAGE_ORDERED_ROWS, ZERO_COPY_KEY, ZeroCopy};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Threads of a block of the gather, and rows that a warp looks up at a time.
const THREADS: usize = 128;
const WARP: usize = 32;

/// The rows of `nodes`, gathered, and the counters.
fn gathered(operator: &mut ZeroCopy, nodes: &[u32]) -> (Vec<u8>, Counters) {
    let batch = HostBatch { input_nodes: nodes.to_vec(), ..HostBatch::default() };
    let batch = CudaBatch::upload(&stream(), &batch).expect("enough memory").into_batch();
    let handle = operator.transfer(batch).expect("a gather");
    let (batch, measured) = handle.measured().expect("no failure");
    let MiniBatch::Device(batch) = batch else { panic!("the mini-batch is on the device") };
    let features = batch.to_host().expect("a copy").features.expect("they were gathered");
    (features.view().as_bytes().to_vec(), measured.counters)
}

fn rows(matrix: &FeatureMatrix, nodes: &[u32]) -> Vec<u8> {
    let mut out = vec![0; nodes.len() * matrix.row_bytes()];
    matrix.gather_rows(nodes, &mut out);
    out
}

/// Features in memory that begins with a page.
fn with_pages(num_nodes: usize, row_bytes: usize) -> Dataset {
    let mut pages = Pages::zeroed(num_nodes * row_bytes).expect("memory");
    (0u64..).zip(pages.chunks_mut(8)).for_each(|(i, bytes)| {
        let value = splitmix64(i).to_ne_bytes();
        bytes.copy_from_slice(&value[..bytes.len()]);
    });
    let data = Array::from_pages(pages).expect("bytes need no alignment");
    Dataset { features: Some(FeatureMatrix::U8 { data, dim: row_bytes }), ..with_rows(num_nodes, 0) }
}

/// The same features, their first byte so many bytes into an allocation.
fn moved(dataset: Dataset, begin: usize) -> Dataset {
    let matrix = dataset.features.as_ref().expect("features");
    let memory = Arc::new([&vec![0; begin][..], matrix.view().as_bytes()].concat());
    let (values, dim) = (NonNull::from(&memory[begin..]), matrix.row_bytes());
    // SAFETY: the owner keeps the bytes, which nobody writes.
    let data = unsafe { Array::from_foreign(values.cast(), values.len(), memory) }.expect("bytes are aligned");
    Dataset { features: Some(FeatureMatrix::U8 { data, dim }), ..dataset }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    /// For any mini-batch, repeated nodes included, any length of rows, alignment, cache and grid.
    #[test]
    fn rows_by_page_are_rows_by_node(
        (num_nodes, nodes) in (1usize..700).prop_flat_map(|num_nodes| {
            (Just(num_nodes), prop::collection::vec(0..num_nodes as u32, 0..900))
        }),
        row_bytes in prop_oneof![Just(0usize), 1usize..1100, (1usize..70).prop_map(|n| 8 * n), (1usize..70).prop_map(|n| 16 * n)],
        begin in prop_oneof![Just(0usize), 0usize..32],
        cached in prop_oneof![Just(0.0), 0.0..1.0, Just(1.0)],
        access in prop::sample::select(vec!["aligned", "naive"]),
        lines in prop::sample::select(vec![1, 100, 768]),
    ) {
        let case = Case::new(moved(with_rows(num_nodes, row_bytes), begin));
        let matrix = case.dataset.features.as_ref().expect("features");
        let expected = rows(matrix, &nodes);
        for order in ["nodes", "pages"] {
            let options = json!({"presample": 0, "access": access, "lines": lines, "order": order});
            let mut operator = operator(&case, options).expect("it is emulated");
            let hot = |v: usize| f32::from(u8::from((v * 37 % num_nodes) as f64 <= cached * num_nodes as f64 - 1.0));
            // A matrix of width 0 has no rows.
            let hotness: Vec<f32> = (0..matrix.num_rows()).map(hot).collect();
            operator.gather().fill_cache(&hotness, u64::MAX).expect("enough memory");
            let (found, counters) = gathered(&mut operator, &nodes);
            prop_assert!(found == expected, "by {}, of {} rows of {} bytes", order, num_nodes, row_bytes);
            // Where all rows are on the device, training reads them there.
            let is_read = row_bytes > 0 && operator.gather().num_cached_rows() < matrix.num_rows();
            let by_page = (order == "pages" && is_read).then_some(nodes.len() as u64);
            prop_assert_eq!(counters.get(&PAGE_ORDERED_ROWS), by_page);
        }
    }
}

/// How often the gather's warps come to buckets of the table's memory; `granule` bytes are one.
fn visits(case: &Case, nodes: &[u32], granule: usize, options: Value) -> u64 {
    let mut operator = operator(case, options).expect("it is emulated");
    let matrix = case.dataset.features.as_ref().expect("features");
    let gather = || gathered(&mut operator, nodes);
    emulation::count_loads(matrix.view().as_bytes(), granule, gather).1.visits
}

/// A warp reads 32 rows after 32 rows of the order, as far apart as there are warps. In the order of pages it comes to a bucket once,
/// whose rows it has one after the other; so one change of bucket per bucket of the mini-batch that it has rows of.
#[test]
fn a_warp_comes_to_a_bucket_once() {
    for (num_nodes, row_bytes, count, lines) in [
        (2000, 128, 3000, 1),
        (2000, 512, 1500, 1),
        (700, 1024, 2000, 100),
        (3000, 256, 5000, 768),
        (40, 4096, 3000, 1),
    ] {
        let case = Case::new(with_pages(num_nodes, row_bytes));
        let first = case.dataset.features.as_ref().expect("features").view().as_bytes().as_ptr() as usize;
        // The table is smaller than 4,096 pages, which are the buckets, and no row lies on two of them.
        let bucket = |&node: &u32| (first + node as usize * row_bytes) / 4096;
        let nodes: Vec<u32> = (0..count).map(|i| (splitmix64(i) % num_nodes as u64) as u32).collect();
        let mut buckets: Vec<usize> = nodes.iter().map(bucket).collect();
        buckets.sort_unstable();
        // As many blocks as have the lines in flight, of half warps up to 256 bytes a row; fewer where they have no rows.
        let halves = if row_bytes <= 256 { 2 } else { 1 };
        let each = 4 * halves * 4 * row_bytes.min(512 / halves).div_ceil(128);
        let blocks = (lines as usize).div_ceil(each).min(nodes.len().div_ceil(THREADS));
        let warps = blocks * THREADS / WARP;
        let of_warp = |warp: usize| buckets.chunks(WARP).skip(warp).step_by(warps).flatten().collect::<BTreeSet<_>>();
        let expected: usize = (0..warps).map(|warp| of_warp(warp).len()).sum();
        let options = |order: &str| json!({"presample": 0, "order": order, "lines": lines});
        let what = format!("{count} of {num_nodes} rows of {row_bytes} bytes by {warps} warps");
        assert_eq!(visits(&case, &nodes, 4096, options("pages")), expected as u64, "{what}");
        assert!(visits(&case, &nodes, 4096, options("nodes")) > 3 * expected as u64 / 2, "{what}");
    }
}

/// With auto, a table of 64 MiB is measured, and a large mini-batch gathered in the order that was chosen; a smaller table is not.
#[test]
fn auto_measures_large_tables_alone() {
    let place = "cuda:64".parse().expect("a place");
    let device = Device::open(&place, &ZERO_COPY_KEY).expect("it is emulated");
    let stream = morphgl_cuda::Stream::new(&device, false).expect("a stream");
    let row_bytes = 1024;
    for (num_nodes, measured) in [((64 << 20) / row_bytes, true), ((64 << 20) / row_bytes - 1, false)] {
        let dataset = Arc::new(with_pages(num_nodes, row_bytes));
        let before = statistics(&device).launches;
        let (from, to) = (place.clone(), place.clone());
        let options = json!({"cache": "none"});
        let context = TransferringContext { options, ..TransferringContext::new(Arc::clone(&dataset), from, to) };
        let mut operator = ZeroCopy::new(&context).expect("it is emulated");
        assert_eq!(statistics(&device).launches > before, measured, "{num_nodes} rows");
        let mut by_page = Vec::new();
        for count in [(1 << 14) - 1, 1 << 14, 1 << 14] {
            let nodes: Vec<u32> = (0..count).map(|i| (splitmix64(i) % num_nodes as u64) as u32).collect();
            let batch = HostBatch { input_nodes: nodes.clone(), ..HostBatch::default() };
            let batch = CudaBatch::upload(&stream, &batch).expect("enough memory").into_batch();
            let (batch, counted) = operator.transfer(batch).and_then(|h| h.measured()).expect("no failure");
            let features = batch.to_host().expect("a copy").features.clone().expect("they were gathered");
            assert!(features.view().as_bytes() == rows(dataset.features.as_ref().expect("features"), &nodes));
            by_page.push(counted.counters.get(&PAGE_ORDERED_ROWS));
        }
        assert_eq!(by_page[0], None, "too few rows");
        assert!(by_page[1] == by_page[2] && [None, measured.then_some(1 << 14)].contains(&by_page[1]), "{by_page:?}");
    }
}
