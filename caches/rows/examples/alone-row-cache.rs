//! Caches every tenth row of a matrix. Run: `cargo run -p morphgl-row-cache --example alone-row-cache`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use morphgl_row_cache::{FeatureCache, NodeMap};

fn main() {
    let row = |node: u32| node.to_le_bytes();
    let cache = FeatureCache::new(NodeMap::new(1_000_000, |node| node % 10 == 0), 4, |map, rows| {
        rows.chunks_mut(4).zip(map.nodes()).for_each(|(to, node)| to.copy_from_slice(&row(node)));
        Ok::<_, std::convert::Infallible>(())
    });
    let Ok(cache) = cache;
    let nodes: Vec<u32> = (0..100_000u32).map(|i| i.wrapping_mul(2_654_435_761) % 1_000_000).collect();
    let (mut out, mut missing) = (vec![0; 4 * nodes.len()], 0);
    let hits = cache.gather(&nodes, &mut out, |_, _| missing += 1);
    println!("{cache:?}, {} bytes; {hits} hits, {missing} missing", cache.num_bytes());
}
