//! The cache of several matrices, against rows in memory.

use std::convert::Infallible;

use morphgl_row_cache::{FeatureCache, MatricesCache, NodeMap, NodeMatrix};
use proptest::prelude::*;

/// Rows of one byte repeated: a function of the node.
fn write(nodes: &mut dyn Iterator<Item = u32>, row_bytes: usize, rows: &mut [u8]) {
    for (row, node) in rows.chunks_exact_mut(row_bytes.max(1)).zip(nodes) {
        row.fill(node as u8);
    }
}

proptest! {
    #[test]
    fn every_cached_row_is_its_own(
        parts in prop::collection::vec((0u32..90, 0u32..30, 0usize..9), 1..6), cached in prop::collection::vec(any::<bool>(), 600),
    ) {
        let mut end = 0;
        let matrices: Vec<NodeMatrix> = parts.iter().map(|&(gap, len, row_bytes)| {
            let nodes = end + gap..end + gap + len;
            end = nodes.end;
            NodeMatrix { nodes, row_bytes }
        }).collect();
        let is_cached = |v: u32| cached[v as usize] && matrices.iter().any(|matrix| matrix.nodes.contains(&v));
        let map = NodeMap::new(end as usize, is_cached);
        prop_assert!((0..=end + 70).all(|v| map.rank(v) == map.nodes().filter(|&node| node < v).count()));
        let widths = matrices.clone();
        let cache = MatricesCache::new(map.clone(), matrices.clone(), |matrix, nodes, rows| {
            write(nodes, widths[matrix].row_bytes, rows);
            Ok::<_, Infallible>(())
        }).expect("nothing fails");
        let mut bytes = map.num_bytes();
        for (index, NodeMatrix { nodes, row_bytes }) in matrices.iter().enumerate() {
            let all: Vec<u32> = nodes.clone().rev().collect();
            let (mut out, mut missing) = (vec![255u8; all.len() * row_bytes], Vec::new());
            let hits = cache.gather(index, &all, &mut out, |i, node| missing.push((i, node)));
            prop_assert_eq!(cache.cached(index), (hits, (hits * row_bytes) as u64));
            prop_assert_eq!(hits + missing.len(), all.len());
            bytes += (hits * row_bytes) as u64;
            for (i, &node) in all.iter().enumerate() {
                let expected = if is_cached(node) { node as u8 } else { 255 };
                prop_assert!(out[i * row_bytes..(i + 1) * row_bytes].iter().all(|&byte| byte == expected), "node {}", node);
                prop_assert_eq!(missing.contains(&(i, node)), !is_cached(node));
            }
        }
        prop_assert_eq!(cache.num_bytes(), bytes);
    }

    /// A single matrix of all nodes: the rows and the bytes of a cache of one matrix.
    #[test]
    fn of_one_matrix_it_is_a_feature_cache(cached in prop::collection::vec(any::<bool>(), 1..300), row_bytes in 1usize..9) {
        let num_nodes = cached.len() as u32;
        let map = NodeMap::new(cached.len(), |v| cached[v as usize]);
        let one = FeatureCache::new(map.clone(), row_bytes, |map, rows| {
            write(&mut map.nodes(), row_bytes, rows);
            Ok::<_, Infallible>(())
        }).expect("nothing fails");
        let several = MatricesCache::new(map, vec![NodeMatrix { nodes: 0..num_nodes, row_bytes }], |_, nodes, rows| {
            write(nodes, row_bytes, rows);
            Ok::<_, Infallible>(())
        }).expect("nothing fails");
        prop_assert_eq!(several.num_bytes(), one.num_bytes());
        prop_assert!((0..num_nodes).all(|v| several.get(0, v) == one.get(v)));
    }
}
