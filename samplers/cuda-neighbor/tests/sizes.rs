//! The cache of adjacency lists at other sizes: what they save, and that they change no mini-batch.

mod common;

use common::{available, check, reordered, sampler};
use morphgl_conformance::batching::{Case, graphs};
use morphgl_registry::{Batching, CachePoint, Pick};
use serde_json::json;

#[track_caller]
fn check_sizes(case: &Case) {
    let topology = &case.dataset.topology;
    let cached = sampler(case, json!({"topology": "cached"}));
    let curve = cached.cache().expect("no size is given");
    assert_eq!(curve.bytes, cached.topology_bytes());
    assert!(curve.free_bytes.expect("the device tells") > 0 && curve.batch_seconds > 0.0 && curve.build_seconds > 0.0);
    let points = &curve.points;
    let rises = |p: &[CachePoint]| p[0].bytes < p[1].bytes && p[0].saved_seconds <= p[1].saved_seconds;
    assert!(points.len() > 2 && points.windows(2).all(rises), "{points:?}");
    // Everything fits into the device's memory, and so do all sizes that are worth trying.
    let edge = if topology.weights().is_some() { 8 } else { 4 };
    let least = points[0].bytes;
    assert!(least < curve.bytes && points[points.len() - 1].bytes >= edge * topology.num_edges(), "{points:?}");

    for point in [points[0], points[points.len() / 2], points[points.len() - 1]] {
        let options = json!({"topology": "cached", "topology_bytes": point.bytes});
        let resized = sampler(case, options.clone());
        assert!(resized.topology_bytes() <= point.bytes, "{} of {}", resized.topology_bytes(), point.bytes);
        assert!(resized.cache().is_none(), "a size that is given is kept");
        check(case, options);
    }
}

#[test]
fn other_sizes_of_the_cache_are_stated_and_change_no_mini_batch() {
    if !available() {
        return;
    }
    let case = Case::new(graphs::random(600, 9, true)).with(|s| s.batch_size = 20);
    check_sizes(&case);
    check_sizes(&case.with_hops(|h| h.pick = Pick::Weighted));
    check_sizes(&reordered(&case));
    for options in [json!({"topology": "device"}), json!({"topology": "host"})] {
        assert!(sampler(&case, options).cache().is_none(), "nothing is cached");
    }
    let named = sampler(&case, json!({"topology": "cached", "cache": "in-degree"}));
    assert!(named.cache().is_some_and(|curve| curve.points[0].bytes > 0), "a policy that is named caches something");
    // `auto` places the whole topology where it fits.
    assert!(sampler(&case, json!(null)).cache().is_none());
}
