//! What the operator says of other sizes of its cache.

mod support;

use std::sync::Arc;

use morphgl_batching_disk_neighbor::{DiskNeighbor, Options};
use morphgl_conformance::batching::graphs;
use morphgl_hotness::{CachePolicy, PolicyKind};
use morphgl_registry::{BatchId, Batching, BatchingContext, CacheCurve, SamplerSettings, SeedSet};

fn build(context: &BatchingContext, memory_bytes: u64, cache: CachePolicy) -> (DiskNeighbor, CacheCurve) {
    build_with(context, Options { memory_bytes, cache, ..Options::default() })
}

fn build_with(context: &BatchingContext, options: Options) -> (DiskNeighbor, CacheCurve) {
    let memory_bytes = options.memory_bytes;
    let options = serde_json::to_value(options).expect("plain data");
    let operator = support::build(&BatchingContext { options, ..context.clone() }).expect("a sampler on disk");
    assert!(operator.cache().expect("it has a cache").points.is_empty(), "no mini-batch was made");
    let mut worker = operator.worker(1).expect("a worker");
    for index in 0..3 {
        worker.prepare(BatchId { epoch: 0, index }, None).and_then(|h| h.wait()).expect("a mini-batch");
    }
    let curve = operator.cache().expect("it has a cache");
    assert_eq!(curve.bytes, operator.num_bytes());
    assert!(curve.bytes <= memory_bytes && curve.build_seconds > 0.0, "{curve:?}");
    (operator, curve)
}

fn context() -> BatchingContext {
    let dataset = Arc::new(graphs::random(20_000, 15, false));
    let seeds: Vec<u32> = (0..20_000).step_by(3).collect();
    BatchingContext::new(
        dataset,
        SeedSet::new("seeds", &seeds, 20_000).expect("each node once"),
        SamplerSettings { batch_size: 50, ..SamplerSettings::default() },
    )
}

#[test]
fn the_curve_is_of_sizes_that_can_be_built() {
    let context = context();
    let (operator, curve) = build(&context, 900_000, CachePolicy::Auto);
    let points = &curve.points;
    assert!(points.len() > 10, "{curve:?}");
    for pair in points.windows(2) {
        assert!(pair[0].bytes < pair[1].bytes && pair[0].saved_seconds <= pair[1].saved_seconds, "{pair:?}");
    }
    let [first, .., last] = &points[..] else { panic!("{curve:?}") };
    assert!(first.bytes <= curve.bytes && curve.bytes < last.bytes, "{curve:?}");
    assert!(last.saved_seconds.is_finite() && first.saved_seconds < last.saved_seconds, "{curve:?}");
    // What is left to save is the time of the reads.
    let counts = operator.counts();
    let reading = counts.reading.as_secs_f64() / counts.batches as f64;
    let built = points.iter().find(|p| p.bytes >= curve.bytes).expect("the largest is larger");
    let left = last.saved_seconds - built.saved_seconds;
    assert!(reading > 0.0 && reading <= curve.batch_seconds, "{reading} s of reads, {curve:?}");
    assert!((left - reading).abs() <= 1e-6 * reading, "{left} s left to save, {reading} s of reads");
    // Every size is used, with offsets in memory and entries by the same policy; the largest holds everything.
    for point in [first, &points[points.len() / 2]] {
        let (operator, other) = build(&context, point.bytes, CachePolicy::Auto);
        assert!(other.bytes > point.bytes / 10 * 9, "{} of {} bytes: {operator:?}", other.bytes, point.bytes);
        let summary = format!("{operator:?}");
        assert!(summary.contains("offsets in memory") && summary.contains("inclusion"), "{summary}");
        assert!(!other.points.is_empty() && other.points[0].bytes == first.bytes, "{other:?}");
    }
    let (operator, _) = build(&context, last.bytes, CachePolicy::Auto);
    assert_eq!(operator.counts().reads().reads, 0, "{operator:?}");
}

#[test]
fn without_known_accesses_or_anything_to_weigh_the_size_is_fixed() {
    let context = context();
    for (memory_bytes, cache) in [
        (900_000, CachePolicy::By(PolicyKind::InDegree)),
        (900_000, CachePolicy::None),
        // Not even offsets fit; everything fits.
        (170_000, CachePolicy::Auto),
        (50_000_000, CachePolicy::Auto),
    ] {
        let (operator, curve) = build(&context, memory_bytes, cache);
        assert!(curve.points.is_empty(), "{operator:?}: {curve:?}");
    }
}

#[test]
fn a_policy_by_name_has_a_curve_if_its_scores_are_accesses_and_no_size_is_given() {
    let context = context();
    for (cache, cache_bytes, has) in [
        ("inclusion", None, true),
        ("presample:1", None, true),
        ("random", None, false),
        ("inclusion", Some(300_000), false),
    ] {
        let cache = cache.parse().expect("a policy");
        let options = Options { memory_bytes: 900_000, cache, cache_bytes, ..Options::default() };
        let (operator, curve) = build_with(&context, options);
        assert_eq!(!curve.points.is_empty(), has, "{cache}: {operator:?}: {curve:?}");
    }
}
