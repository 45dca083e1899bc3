//! What the operator says of other sizes of its cache.

mod support;

use std::sync::Arc;

use morphgl_batching_disk_neighbor::{DiskNeighbor, HotnessPolicy, Options};
use morphgl_conformance::batching::graphs;
use morphgl_registry::{BatchId, Batching, BatchingContext, CacheCurve, Place, SamplerSettings, SeedSet};

fn build(context: &BatchingContext, memory_bytes: u64, hotness: HotnessPolicy) -> (DiskNeighbor, CacheCurve) {
    let options = serde_json::to_value(Options { memory_bytes, hotness, ..Options::default() }).expect("plain data");
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
    BatchingContext {
        seeds: SeedSet::new("seeds", &seeds, 20_000).expect("each node once"),
        dataset,
        settings: SamplerSettings { batch_size: 50, ..SamplerSettings::default() },
        gather: true,
        place: Place::Host,
        options: serde_json::Value::Null,
    }
}

#[test]
fn the_curve_is_of_sizes_that_can_be_built() {
    let context = context();
    let (operator, curve) = build(&context, 900_000, HotnessPolicy::Inclusion);
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
        let (operator, other) = build(&context, point.bytes, HotnessPolicy::Inclusion);
        assert!(other.bytes > point.bytes / 10 * 9, "{} of {} bytes: {operator:?}", other.bytes, point.bytes);
        let summary = format!("{operator:?}");
        assert!(summary.contains("offsets in memory") && summary.contains("inclusion"), "{summary}");
        assert!(!other.points.is_empty() && other.points[0].bytes == first.bytes, "{other:?}");
    }
    let (operator, _) = build(&context, last.bytes, HotnessPolicy::Inclusion);
    assert_eq!(operator.counts().reads().reads, 0, "{operator:?}");
}

#[test]
fn without_known_accesses_or_anything_to_weigh_the_size_is_fixed() {
    let context = context();
    for (memory_bytes, hotness) in [
        (900_000, HotnessPolicy::Degree),
        (900_000, HotnessPolicy::None),
        // Not even offsets fit; everything fits.
        (120_000, HotnessPolicy::Inclusion),
        (50_000_000, HotnessPolicy::Inclusion),
    ] {
        let (operator, curve) = build(&context, memory_bytes, hotness);
        assert!(curve.points.is_empty(), "{operator:?}: {curve:?}");
    }
}
