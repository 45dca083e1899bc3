//! Cached lists are those of the graph, by either map, and take the bytes that they are said to take.

use std::convert::Infallible;

use morphgl_row_cache::{AdjacencyCache, NodeMap};
use proptest::prelude::*;

/// A graph of some hundred nodes: `indptr` and `indices`.
fn graph() -> impl Strategy<Value = (Vec<u64>, Vec<u32>)> {
    prop::collection::vec(prop::collection::vec(any::<u32>(), 0..9), 1..200).prop_map(|lists| {
        let mut indptr = vec![0];
        indptr.extend(lists.iter().scan(0, |end, list| {
            *end += list.len() as u64;
            Some(*end)
        }));
        (indptr, lists.concat())
    })
}

fn list((indptr, indices): &(Vec<u64>, Vec<u32>), node: u32) -> &[u32] {
    &indices[indptr[node as usize] as usize..indptr[node as usize + 1] as usize]
}

fn bytes(graph: &(Vec<u64>, Vec<u32>), nodes: impl Iterator<Item = u32>) -> u64 {
    nodes.map(|v| AdjacencyCache::BYTES_A_LIST + 4 * list(graph, v).len() as u64).sum()
}

proptest! {
    #[test]
    fn lists_of_any_nodes(graph in graph(), chosen in any::<u64>()) {
        let num_nodes = graph.0.len() as u32 - 1;
        let cached = |v: u32| chosen.rotate_left(v * 7) & 1 == 1;
        let cache = AdjacencyCache::new(
            NodeMap::new(num_nodes as usize, cached),
            |v| list(&graph, v).len() as u64,
            |map, to| {
                let lists: Vec<u32> = map.nodes().flat_map(|v| list(&graph, v).iter().copied()).collect();
                to.copy_from_slice(&lists);
                Ok::<_, Infallible>(())
            },
        );
        let Ok(cache) = cache;
        for v in 0..num_nodes {
            prop_assert_eq!(cache.get(v), cached(v).then(|| list(&graph, v)));
        }
        prop_assert_eq!(cache.get(num_nodes), None);
        let tables = NodeMap::num_bytes_of(num_nodes as usize) + AdjacencyCache::BYTES;
        prop_assert_eq!(cache.num_bytes(), tables + bytes(&graph, (0..num_nodes).filter(|&v| cached(v))));
    }

    #[test]
    fn lists_of_the_first_nodes(graph in graph(), share in 0f64..1.0) {
        let num_nodes = graph.0.len() as u32 - 1;
        let len = (share * f64::from(num_nodes)).round() as u32;
        let cache = AdjacencyCache::prefix(len, &graph.0, &graph.1);
        for v in 0..num_nodes {
            prop_assert_eq!(cache.get(v), (v < len).then(|| list(&graph, v)));
        }
        prop_assert_eq!(cache.num_bytes(), AdjacencyCache::BYTES + bytes(&graph, 0..len));
        prop_assert_eq!((cache.map().len(), cache.num_neighbors()), (len as usize, graph.0[len as usize] as usize));
    }
}

#[test]
fn what_fills_it_may_fail() {
    let failed = AdjacencyCache::new(NodeMap::prefix(2), |_| 1, |_, _| Err("the disk fails"));
    assert_eq!(failed.err(), Some("the disk fails"));
}
