//! Caches rows whose hot set drifts, by each policy. Run: `cargo run -p morphgl-feature-cache --example alone-dynamic-cache`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use morphgl_feature_cache::{DynamicCache, Eviction};

fn main() {
    for eviction in [Eviction::Sieve, Eviction::Lru] {
        let cache = DynamicCache::new(eviction, 256, 4 << 20, 8);
        let (mut row, mut hits) = ([0; 256], 0);
        let accesses = 1_000_000u32;
        for i in 0..accesses {
            // A window of 30,000 nodes that moves by one node every 20 accesses; low nodes in it are hotter.
            let draw = (u64::from(i.wrapping_mul(2_654_435_761)) * 30_000) >> 32;
            let node = i / 20 + (draw * draw / 30_000) as u32;
            match cache.get_into(node, &mut row) {
                true => hits += 1,
                false => _ = cache.insert(node, &[node as u8; 256]),
            }
        }
        println!("{cache:?}, {} bytes: {:.1}% hits", cache.num_bytes(), 100.0 * f64::from(hits) / f64::from(accesses));
    }
}
