//! What R-MAT's graphs look like.

use morphgl_generate::{RmatConfig, rmat};

fn config() -> RmatConfig {
    RmatConfig { nodes: 1 << 14, edge_factor: 8.0, dim: 2, ..RmatConfig::default() }
}

/// Share of the distinct edges with the given leading bits of source and destination.
fn shares(config: &RmatConfig) -> ([f64; 4], u64) {
    let topology = rmat(config).unwrap().topology;
    let (nodes, mut counts) = (config.nodes.next_power_of_two() as u32, [0f64; 4]);
    for v in 0..topology.num_nodes() as u32 {
        for &u in topology.neighbors(v) {
            counts[usize::from(u >= nodes / 2) * 2 + usize::from(v >= nodes / 2)] += 1.0;
        }
    }
    (counts.map(|c| c / topology.num_edges() as f64), topology.num_edges())
}

#[test]
fn quadrants_get_their_shares_in_a_sparse_graph() {
    // Few duplicates at this density, and an asymmetric matrix, so that source and destination cannot be swapped.
    let config = RmatConfig { nodes: 1 << 17, edge_factor: 2.0, quadrants: [0.35, 0.3, 0.2, 0.15], ..config() };
    let (shares, edges) = shares(&config);
    for (share, p) in shares.iter().zip(config.quadrants) {
        assert!((share - p).abs() < 0.005, "shares {shares:?}");
    }
    let asked = (config.nodes * 2) as f64;
    assert!((0.98..=1.005).contains(&(edges as f64 / asked)), "{edges} of {asked} edges");
}

#[test]
fn nodes_need_not_be_a_power_of_two() {
    let config = RmatConfig { nodes: 100_003, edge_factor: 2.0, quadrants: [0.3, 0.25, 0.25, 0.2], ..config() };
    let (_, edges) = shares(&config);
    let asked = (config.nodes * 2) as f64;
    assert!((0.98..=1.005).contains(&(edges as f64 / asked)), "{edges} of {asked} edges");
}

#[test]
fn rows_are_sorted_and_hubs_are_large() {
    let topology = rmat(&config()).unwrap().topology;
    let mut largest = 0;
    for v in 0..topology.num_nodes() as u32 {
        let row = topology.neighbors(v);
        assert!(row.windows(2).all(|w| w[0] < w[1]), "row {v} is not strictly increasing");
        assert!(row.binary_search(&v).is_err(), "node {v} has a self-loop");
        largest = largest.max(row.len());
    }
    assert!(largest > 50 * 8, "the largest degree is {largest}");
}

#[test]
fn symmetrising_adds_the_reverse_of_each_edge() {
    let topology = rmat(&RmatConfig { symmetrise: true, ..config() }).unwrap().topology;
    for v in 0..topology.num_nodes() as u32 {
        for &u in topology.neighbors(v) {
            assert!(topology.neighbors(u).binary_search(&v).is_ok(), "edge {u}-{v} has no reverse");
        }
    }
    // An asymmetric matrix evens out.
    let (shares, _) = shares(&RmatConfig { symmetrise: true, quadrants: [0.4, 0.4, 0.1, 0.1], ..config() });
    assert_eq!(shares[1], shares[2]);
}
