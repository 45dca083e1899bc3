//! `Transferring_CUDA+PCIe_DmaGather` on a CUDA device or the emulated one: the suite of its phase, its cache, its counters.

mod common;

use std::sync::Arc;

use common::{operator, place, with_rows};
use morphgl_conformance::available;
use morphgl_conformance::batching::{Case, reference};
use morphgl_conformance::transferring;
use morphgl_registry::{
    BatchId, CACHE_HITS, CACHE_REQUESTS, HostBatch, LINK_BYTES, MiniBatch, Place, Transferring, TransferringContext,
};
use morphgl_transferring_cuda::PcieDma;
use morphgl_transferring_cuda::{DMA_GATHER, DmaGather};
use serde_json::{Value, json};

fn context(case: &Case, options: Value) -> TransferringContext {
    let (dataset, to) = (Arc::clone(&case.dataset), place());
    let sampled = Some((case.seeds.clone(), case.settings.clone()));
    TransferringContext { dataset, from: Place::Host, to, gather: true, sampled, options }
}

fn dma_gather(case: &Case, options: Value) -> DmaGather {
    DmaGather::new(&context(case, options)).expect("the device is available")
}

/// Transfers the mini-batch `index` of the case, compares it with the reference, and its counters with `cached`, where there is
/// a cache.
#[track_caller]
fn check(operator: &mut DmaGather, case: &Case, index: u32, cached: Option<&dyn Fn(u32) -> bool>) {
    let whole = reference::sample(case, BatchId { epoch: 0, index });
    let lacking = HostBatch { features: None, ..whole.clone() };
    let handle = operator.transfer(MiniBatch::Host(lacking.clone())).expect("a transfer");
    let (batch, measured) = handle.measured().expect("no failure");
    let MiniBatch::Device(batch) = batch else { panic!("the mini-batch is on the device") };
    assert_eq!(batch.to_host().expect("a copy"), whole);
    let hits = cached.map(|cached| whole.input_nodes.iter().filter(|&&node| cached(node)).count() as u64);
    let requests = whole.input_nodes.len() as u64;
    let row_bytes = case.dataset.features.as_ref().expect("features").row_bytes() as u64;
    let link_bytes = lacking.num_bytes() as u64 + (requests - hits.unwrap_or(0)) * row_bytes;
    let counters = measured.counters;
    assert_eq!(counters.get(&LINK_BYTES), Some(link_bytes), "arrays, and rows that are not cached");
    assert_eq!((counters.get(&CACHE_REQUESTS), counters.get(&CACHE_HITS)), (hits.map(|_| requests), hits));
}

#[test]
fn conforms() {
    if !available(&DMA_GATHER) {
        return;
    }
    transferring::run(&DMA_GATHER);
}

#[test]
fn mini_batches_are_those_of_the_copy() {
    if !available(&DMA_GATHER) {
        return;
    }
    let case = Case::new(with_rows(300, 52));
    let mut copies = PcieDma::new(&context(&case, Value::Null)).expect("the device is available");
    // All rows cached, some of them, none; the host waits for every mini-batch, or has two more in flight.
    for options in [json!({}), json!({"presample": 1, "cache_bytes": 3000}), json!({"presample": 0, "depth": 1})] {
        let mut gathers = dma_gather(&case, options);
        let mut send = |index| {
            let whole = reference::sample(&case, BatchId { epoch: 3, index });
            let lacking = HostBatch { features: None, ..whole.clone() };
            let copied = copies.transfer(MiniBatch::Host(whole)).expect("a transfer");
            [copied, gathers.transfer(MiniBatch::Host(lacking)).expect("a transfer")]
        };
        let sent: Vec<_> = (0..3).map(&mut send).collect();
        for both in sent {
            let [copied, gathered] = both.map(|handle| {
                let (batch, _) = handle.wait().expect("no failure");
                batch.to_host().expect("a copy").into_owned()
            });
            assert_eq!(gathered, copied);
        }
    }
}

#[test]
fn a_mini_batch_with_features_is_copied_alone() {
    if !available(&DMA_GATHER) {
        return;
    }
    let case = Case::new(with_rows(120, 36));
    let batch = reference::sample(&case, BatchId { epoch: 0, index: 0 });
    let handle = dma_gather(&case, Value::Null).transfer(MiniBatch::Host(batch.clone())).expect("a transfer");
    let counters = handle.measured().expect("no failure").1.counters;
    assert_eq!(counters.iter().collect::<Vec<_>>(), [(LINK_BYTES.name, batch.num_bytes() as u64)]);
}

#[test]
fn the_cache_is_filled_after_presampling() {
    if !available(&DMA_GATHER) {
        return;
    }
    for access in ["aligned", "naive"] {
        let case = Case::new(with_rows(120, 36));
        // Two words of the bitmap, and an address; then ten rows.
        let cache_bytes = 2 * 16 + 8 + 10 * 36;
        let options = json!({"presample": 2, "cache_bytes": cache_bytes, "access": access, "depth": 1});
        let mut operator = dma_gather(&case, options);
        check(&mut operator, &case, 0, None);
        assert_eq!(operator.gather().num_cached_rows(), 0);
        let sampled = |index| reference::sample(&case, BatchId { epoch: 0, index }).input_nodes;
        let mut accesses = vec![0; 120];
        (0..2).flat_map(sampled).for_each(|node| accesses[node as usize] += 1);
        // The hottest rows; of those accessed as often, the lowest numbers.
        let mut nodes: Vec<u32> = (0..120).collect();
        nodes.sort_by_key(|&node| (std::cmp::Reverse(accesses[node as usize]), node));
        let cached = |node: u32| nodes[..10].contains(&node);
        for index in 1..3 {
            check(&mut operator, &case, index, Some(&cached));
            assert_eq!(operator.gather().num_cached_rows(), 10);
        }
    }
}

#[test]
fn all_rows_are_cached_at_construction_if_they_fit() {
    if !available(&DMA_GATHER) {
        return;
    }
    let case = Case::new(with_rows(120, 36));
    let mut operator = dma_gather(&case, Value::Null);
    assert_eq!(operator.gather().num_cached_rows(), 120);
    check(&mut operator, &case, 0, Some(&|_| true));
}

#[test]
fn operators_of_a_device_and_dataset_share_a_cache() {
    if !available(&DMA_GATHER) {
        return;
    }
    let case = Case::new(with_rows(120, 36));
    let options = json!({"presample": 0});
    let device_s = operator(&case, options.clone()).expect("the device is available");
    let mut host_s = dma_gather(&case, json!({"presample": 0, "depth": 2}));
    let others = [
        dma_gather(&case, json!({"presample": 0, "lines": 9})),
        dma_gather(&Case::new(with_rows(120, 36)), options.clone()),
        DmaGather::new(&TransferringContext { gather: false, ..context(&case, options.clone()) }).expect("a device"),
    ];
    let hotness: Vec<f32> = (0..120).map(|node| if node < 50 { 1.0 } else { 0.0 }).collect();
    device_s.gather().fill_cache(&hotness, u64::MAX).expect("enough memory");
    assert_eq!(host_s.gather().num_cached_rows(), 50, "the same gather");
    check(&mut host_s, &case, 0, Some(&|node| node < 50));
    drop(device_s);
    check(&mut host_s, &case, 1, Some(&|node| node < 50));
    others.iter().for_each(|other| assert_eq!(other.gather().num_cached_rows(), 0, "another gather"));
    drop(host_s);
    assert_eq!(dma_gather(&case, options).gather().num_cached_rows(), 0, "the former one is gone");
}

#[test]
fn invalid_settings_are_refused_with_cures() {
    if !available(&DMA_GATHER) {
        return;
    }
    let case = Case::new(with_rows(30, 8));
    let elsewhere = TransferringContext { from: place(), ..context(&case, Value::Null) };
    for (context, expected) in [
        (elsewhere, "not at cuda:0; give host"),
        (TransferringContext { to: Place::Host, ..context(&case, Value::Null) }, "not at host"),
        (context(&case, json!({"depth": 0})), "a depth of 0"),
        (context(&case, json!({"depth": "deep"})), "options: depth: invalid type"),
        (context(&case, json!({"deep": 1})), "unknown field"),
        (context(&case, json!({"lines": 0})), "give at least 1"),
        (context(&case, json!({"access": "shifted"})), "unknown variant"),
        (context(&case, json!({"peers": ["cuda:0"]})), "cuda:0 is the device of the operator itself"),
    ] {
        let error = DmaGather::new(&context).expect_err("refused").to_string();
        assert!(error.contains(expected) && error.starts_with("Transferring_CUDA+PCIe_DmaGather: "), "{error}");
    }
}

/// Fills a cache after the first of two mini-batches; calls of the device fail from number `fail` on. Returns their number.
#[cfg(feature = "emulate")]
fn run(case: &Case, place: &Place, fail: u64) -> morphgl_registry::Result<u64> {
    use morphgl_cuda::{Device, emulation};

    let device = Device::open(place, &morphgl_transferring_cuda::DMA_GATHER_KEY)?;
    emulation::fail_from(&device, fail);
    let options = json!({"presample": 1, "cache_bytes": 2 * 16 + 8 + 10 * 12, "depth": 1, "order": "pages"});
    let mut operator = DmaGather::new(&TransferringContext { to: place.clone(), ..context(case, options) })?;
    for index in 0..2 {
        let whole = reference::sample(case, BatchId { epoch: 0, index });
        let lacking = HostBatch { features: None, ..whole.clone() };
        let (batch, _) = operator.transfer(MiniBatch::Host(lacking))?.wait()?;
        assert_eq!(*batch.to_host()?, whole);
    }
    drop(operator);
    device.free_bytes()?;
    Ok(emulation::calls(&device))
}

#[cfg(feature = "emulate")]
#[test]
fn a_lost_device_is_an_error_of_the_next_call() {
    let case = Case::new(with_rows(80, 12));
    let place = |i: u64| format!("cuda:{i}").parse::<Place>().expect("a place");
    let calls = run(&case, &place(1000), u64::MAX).expect("nothing fails");
    for call in 1..=calls {
        let error = run(&case, &place(1000 + call), call).expect_err("a call fails").to_string();
        let named = error.starts_with("Transferring_CUDA+PCIe_DmaGather") && error.contains(": cu");
        assert!(named && error.ends_with("is made to fail"), "call {call}: {error}");
    }
}
