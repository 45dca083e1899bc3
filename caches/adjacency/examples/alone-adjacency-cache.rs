//! Caches the longest lists of a graph. Run: `cargo run -p morphgl-adjacency-cache --example alone-adjacency-cache`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::convert::Infallible;

use morphgl_adjacency_cache::AdjacencyCache;
use morphgl_feature_cache::NodeMap;

fn main() {
    // Node v has 1,000 / (v + 1) neighbours, the nodes after it.
    let num_nodes = 100_000u32;
    let degree = |v: u32| u64::from(1000 / (v + 1));
    let neighbors = |v: u32| (1..=degree(v) as u32).map(move |i| (v + i) % num_nodes);
    let cache = AdjacencyCache::new(NodeMap::new(num_nodes as usize, |v| degree(v) >= 10), degree, |map, to| {
        to.iter_mut().zip(map.nodes().flat_map(neighbors)).for_each(|(to, neighbor)| *to = neighbor);
        Ok::<_, Infallible>(())
    });
    let Ok(cache) = cache;
    println!(
        "{cache:?}, {} bytes; the last neighbour of node 9: {:?}",
        cache.num_bytes(),
        cache.get(9).map(|l| l.last())
    );
    println!("node 500, which has {} neighbours: {:?}", degree(500), cache.get(500));
}
