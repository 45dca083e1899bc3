//! The suite of phase Transferring, and properties of the cache, on a CUDA device or the emulated one.

mod common;

use std::sync::Arc;

use common::{check, operator, place, stream, upload, with_rows};
use morphgl_conformance::available;
use morphgl_conformance::batching::{Case, reference};
use morphgl_conformance::transferring;
use morphgl_hotness::PolicyKind;
use morphgl_registry::{
    BatchId, CACHE_HITS, CACHE_REQUESTS, CachePoint, Counters, HostBatch, LINK_BYTES, Place, Transferring,
    TransferringContext,
};
use morphgl_transferring_cuda::{ZERO_COPY, ZeroCopy};
use proptest::prelude::*;
use serde_json::json;

#[test]
fn conforms() {
    if !available(&ZERO_COPY) {
        return;
    }
    let stream = stream();
    transferring::run_from(&ZERO_COPY, &place(), &mut |batch, _| upload(&stream, &batch));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn every_row_length_gathers_from_cache_and_host(
        row_bytes in 1usize..1100,
        rows in 0u64..100,
        access in prop::sample::select(vec!["aligned", "naive"]),
    ) {
        if !available(&ZERO_COPY) {
            return Ok(());
        }
        let case = Case::new(with_rows(100, row_bytes));
        let stream = stream();
        let mut operator =
            operator(&case, json!({"presample": 0, "access": access})).expect("the device is available");
        check(&mut operator, &stream, &case, 0);
        let hotness: Vec<f32> = (0..100).map(|v| (v * 37 % 100) as f32).collect();
        // Two words of the bitmap, and an address.
        let budget = 2 * 16 + 8 + rows * row_bytes as u64;
        let cached = operator.gather().fill_cache(&hotness, budget).expect("enough memory") as u64;
        // A node that was never accessed is not cached.
        prop_assert_eq!(cached, rows.min(99));
        check(&mut operator, &stream, &case, 0);
        check(&mut operator, &stream, &case, 1);
    }
}

#[test]
fn the_cache_is_filled_after_presampling() {
    if !available(&ZERO_COPY) {
        return;
    }
    let case = Case::new(with_rows(120, 36));
    let stream = stream();
    let mut operator =
        operator(&case, json!({"presample": 2, "cache_bytes": 40 + 10 * 36})).expect("the device is available");
    check(&mut operator, &stream, &case, 0);
    assert_eq!(operator.gather().num_cached_rows(), 0);
    check(&mut operator, &stream, &case, 1);
    assert_eq!(operator.gather().num_cached_rows(), 10);
    check(&mut operator, &stream, &case, 2);
}

#[test]
fn hits_are_counted_on_the_device() {
    if !available(&ZERO_COPY) {
        return;
    }
    // More nodes than a block has threads, and a word of the bitmap that is not full.
    let case = Case::new(with_rows(3000, 20)).with(|s| s.batch_size = 600);
    let stream = stream();
    let mut operator = operator(&case, json!({"presample": 0})).expect("the device is available");
    let measure = |operator: &mut ZeroCopy, index| {
        let whole = reference::sample(&case, BatchId { epoch: 0, index });
        let lacking = HostBatch { features: None, ..whole.clone() };
        let handle = operator.transfer(upload(&stream, &lacking)).expect("a gather");
        (whole.input_nodes, handle.measured().expect("no failure").1.counters)
    };
    let (nodes, counters) = measure(&mut operator, 0);
    assert_eq!(counters, Counters::NONE.with(&LINK_BYTES, 20 * nodes.len() as u64));
    // Multiples of a number, below a limit: the first nodes are found without a bitmap.
    for (every, below) in [(1, 3000), (3, 3000), (1000, 3000), (1, 700)] {
        let is_hot = |node: u32| node.is_multiple_of(every) && node < below;
        let hotness: Vec<f32> = (0..3000).map(|node| if is_hot(node) { 1.0 } else { 0.0 }).collect();
        operator.gather().fill_cache(&hotness, u64::MAX).expect("enough memory");
        for index in 0..2 {
            let (nodes, counters) = measure(&mut operator, index);
            let (requests, hits) = (nodes.len(), nodes.iter().filter(|&&node| is_hot(node)).count());
            assert!(requests > 1024, "{requests}");
            let expected = Counters::NONE.with(&LINK_BYTES, 20 * (requests - hits) as u64);
            let expected = expected.with(&CACHE_REQUESTS, requests as u64).with(&CACHE_HITS, hits as u64);
            assert_eq!(counters, expected, "every {every} below {below}, mini-batch {index}");
        }
    }
}

#[test]
fn counts_tell_what_sizes_save_until_one_is_chosen() {
    if !available(&ZERO_COPY) {
        return;
    }
    let case = Case::new(with_rows(120, 36));
    let stream = stream();
    // Two words of the bitmap, and an address.
    let bytes = |rows: u64| 2 * 16 + 8 + 36 * rows;
    let options = json!({"presample": 4, "cache_bytes": bytes(10)});
    for (chosen, cached) in
        [(None, 10), (Some(bytes(25)), 25), (Some(bytes(26) - 1), 25), (Some(0), 0), (Some(bytes(0)), 0)]
    {
        let mut operator = operator(&case, options.clone()).expect("the device is available");
        check(&mut operator, &stream, &case, 0);
        assert_eq!(operator.cache(), None, "one mini-batch ranks rows, and none judges them");
        check(&mut operator, &stream, &case, 1);
        let curve = operator.cache().expect("two mini-batches were counted");
        assert_eq!(curve.bytes, 0, "nothing is cached yet");
        assert!(curve.batch_seconds > 0.0 && curve.free_bytes > Some(0), "{curve:?}");
        let ends = [&curve.points[0], curve.points.last().expect("points")];
        assert_eq!(ends.map(|p| p.bytes), [0, bytes(120)]);
        assert_eq!(ends[0].saved_seconds, 0.0);
        let saved = ends[1].saved_seconds;
        assert!(0.0 < saved && saved <= curve.batch_seconds, "all rows save the gather: {curve:?}");
        let rises =
            |pair: &[CachePoint]| pair[0].bytes < pair[1].bytes && pair[0].saved_seconds <= pair[1].saved_seconds;
        assert!(curve.points.windows(2).all(rises), "{curve:?}");
        if let Some(bytes) = chosen {
            operator.resize_cache(bytes).expect("it is not filled yet");
        }
        (0..2).for_each(|index| check(&mut operator, &stream, &case, index));
        // Until a size is chosen, the counts still tell what others save.
        assert_eq!(operator.cache().map(|curve| curve.bytes), chosen.is_none().then(|| bytes(10)), "{chosen:?}");
        assert_eq!(operator.gather().num_cached_rows(), cached, "{chosen:?}");
        check(&mut operator, &stream, &case, 2);
    }
}

/// On a fast device a profile passes the mini-batches that are counted: the cache is filled, and then has the size that is planned.
#[test]
fn a_size_is_chosen_after_the_cache_was_filled() {
    if !available(&ZERO_COPY) {
        return;
    }
    let case = Case::new(with_rows(120, 36));
    let stream = stream();
    let bytes = |rows: u64| 2 * 16 + 8 + 36 * rows;
    for (chosen, cached) in
        [(bytes(25), 25), (bytes(4), 4), (bytes(10), 10), (bytes(10) + 1, 10), (bytes(0), 0), (0, 0)]
    {
        let mut operator = operator(&case, json!({"cache_bytes": bytes(10)})).expect("the device is available");
        (0..63).for_each(|index| check(&mut operator, &stream, &case, index % 3));
        assert_eq!((operator.cache().map(|curve| curve.bytes), operator.gather().num_cached_rows()), (Some(0), 0));
        // The 64th mini-batch is the last that is counted; no later one has been waited for at first.
        for index in 63..90 {
            check(&mut operator, &stream, &case, index % 3);
            let curve = operator.cache().expect("the counts are kept");
            assert_eq!((curve.bytes, operator.gather().num_cached_rows()), (bytes(10), 10));
            assert!((curve.batch_seconds > 0.0 || index == 63) && curve.build_seconds > 0.0, "{curve:?}");
            assert_eq!([&curve.points[0], curve.points.last().expect("points")].map(|p| p.bytes), [0, bytes(120)]);
        }
        operator.resize_cache(chosen).expect("it is filled again");
        check(&mut operator, &stream, &case, 0);
        assert_eq!(operator.gather().num_cached_rows(), cached, "{chosen} bytes");
        assert_eq!(operator.cache(), None, "the size is chosen");
        (0..3).for_each(|index| check(&mut operator, &stream, &case, index));
        // A caller's own hotness replaces it, and no later size does.
        let hotness: Vec<f32> = (0..120).map(|v| (v * 37 % 120) as f32).collect();
        assert_eq!(operator.gather().fill_cache(&hotness, bytes(7)).expect("enough memory"), 7);
        operator.resize_cache(bytes(20)).expect("nothing to do");
        check(&mut operator, &stream, &case, 1);
        assert_eq!(operator.gather().num_cached_rows(), 7);
    }
}

#[test]
fn all_rows_are_cached_at_construction_if_they_fit() {
    if !available(&ZERO_COPY) {
        return;
    }
    let case = Case::new(with_rows(120, 36));
    let stream = stream();
    // An address; all nodes need no bitmap.
    let all = 8 + 120 * 36;
    for (options, cached) in [
        (json!(null), 120),
        (json!({"cache_bytes": all}), 120),
        (json!({"cache_bytes": all - 1}), 0),
        (json!({"cache_bytes": 0}), 0),
        (json!({"presample": 0}), 0),
        (json!({"cache": "none"}), 0),
        (json!({"cache": "in-degree", "presample": 0}), 120),
    ] {
        let mut operator = operator(&case, options.clone()).expect("the device is available");
        assert_eq!(operator.gather().num_cached_rows(), cached, "{options}");
        check(&mut operator, &stream, &case, 0);
    }
}

/// Each policy caches as many rows as fit, those that it ranks first; mini-batches do not depend on it.
#[test]
fn a_policy_by_name_fills_the_cache_at_construction() {
    if !available(&ZERO_COPY) {
        return;
    }
    let case = Case::new(with_rows(120, 36));
    let stream = stream();
    let cached = 2 * 16 + 8 + 10 * 36;
    // The operator counts on the device alone, and refuses what mixes counts with scores.
    let fills = |kind: &PolicyKind| !matches!(kind, PolicyKind::Hindsight | PolicyKind::Smoothed { .. });
    for kind in PolicyKind::ALL.into_iter().filter(fills) {
        let options = json!({"cache": kind.to_string(), "cache_bytes": cached});
        let mut operator = operator(&case, options).expect("the device is available");
        // Pre-sampling counts an epoch: 40 seeds in three mini-batches of 16.
        let counted = kind.name() == "presample";
        for index in 0..3 {
            assert_eq!(operator.gather().num_cached_rows(), if counted { 0 } else { 10 }, "{kind}, mini-batch {index}");
            check(&mut operator, &stream, &case, index);
        }
        assert_eq!(operator.gather().num_cached_rows(), 10, "{kind}");
        check(&mut operator, &stream, &case, 0);
    }
    let dataset = Arc::clone(&case.dataset);
    let options = json!({"cache": "inclusion", "cache_bytes": cached});
    let context = TransferringContext { options, ..TransferringContext::new(dataset, place(), place()) };
    let error = ZeroCopy::new(&context).expect_err("refused").to_string();
    assert!(error.contains("cache inclusion: the seeds and sampler settings"), "{error}");
}

#[test]
fn invalid_settings_are_refused_with_cures() {
    if !available(&ZERO_COPY) {
        return;
    }
    let case = Case::new(with_rows(30, 8));
    for (options, expected) in [
        (json!({"lines": 0}), "lines: with none in flight no row is read; give at least 1"),
        (json!({"order": "sorted"}), "unknown variant `sorted`, expected one of `auto`, `nodes`, `pages`"),
        (json!({"share": 0.2}), "unknown field `share`"),
        (json!({"cached": 1}), "unknown field"),
        (json!({"cache": "hot"}), "\"hot\": no cache policy; give auto, none, lru, sieve, in-degree"),
        (json!({"cache": "lru"}), "cache lru: rows on a device stay as they were filled; name a hotness policy"),
        (json!({"cache": "hindsight"}), "give another policy"),
        (json!({"cache": "smoothed", "cache_bytes": 16 + 8 + 8}), "give presample:K"),
        // A word of the bitmap, and an address.
        (json!({"cache": "random", "cache_bytes": 16 + 8 + 7}), "cache_bytes of at least 32 "),
        (json!({"replicated": "all"}), "replicated: \"all\"; give auto, or a number of rows below 2^32"),
        (json!({"peers": "some"}), "options: peers: \"some\"; give \"none\", \"all\" or a list"),
        (json!({"peers": ["cuda"]}), "\"cuda\" is no place; give such as \"cuda:1\""),
        (json!({"peers": ["cuda:0"]}), "cuda:0 is the device of the operator itself"),
        (json!({"peers": ["cuda:1", "cuda:1"]}), "cuda:1 is named twice"),
        (json!({"peers": ["sim:0"]}), "it runs on CUDA devices, not at sim:0"),
    ] {
        let error = operator(&case, options).expect_err("refused");
        assert!(error.contains(expected) && error.contains("Transferring_CUDA+PCIe_ZeroCopy"), "{error}");
    }
    let dataset = Arc::clone(&case.dataset);
    let context = TransferringContext::new(dataset, Place::Host, place());
    let error = ZeroCopy::new(&context).expect_err("refused").to_string();
    assert!(error.contains("from host to cuda:0"), "{error}");
}
