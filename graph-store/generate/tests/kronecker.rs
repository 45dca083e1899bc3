//! Structure of R-MAT graphs.

use morphgl_generate::{RmatConfig, rmat};

fn config() -> RmatConfig {
    RmatConfig { nodes: 1 << 14, edge_factor: 8.0, dim: 2, ..RmatConfig::default() }
}

/// Share of the distinct edges with the given bits of source and destination, for each bit from the leading one.
fn shares(config: &RmatConfig) -> (Vec<[f64; 4]>, u64) {
    let topology = rmat(config).unwrap().topology;
    let scale = config.nodes.next_power_of_two().trailing_zeros();
    let mut counts = vec![[0f64; 4]; scale as usize];
    for v in 0..topology.num_nodes() as u32 {
        for &u in topology.neighbors(v) {
            for (level, counts) in (0..scale).rev().zip(&mut counts) {
                counts[((u >> level & 1) * 2 + (v >> level & 1)) as usize] += 1.0;
            }
        }
    }
    let num_edges = topology.num_edges();
    (counts.into_iter().map(|c| c.map(|c| c / num_edges as f64)).collect(), num_edges)
}

#[test]
fn quadrants_get_their_shares_at_every_level() {
    // Few duplicates at this density, and an asymmetric matrix, so that source and destination cannot be swapped.
    let [a, b, c, d] = [0.35, 0.3, 0.2, 0.15];
    let base = RmatConfig { nodes: 1 << 18, quadrants: [a, b, c, d], ..config() };
    for symmetrise in [false, true] {
        let config = RmatConfig { symmetrise, edge_factor: if symmetrise { 4.0 } else { 8.0 }, ..base.clone() };
        let expected = if symmetrise { [a, (b + c) / 2.0, (b + c) / 2.0, d] } else { [a, b, c, d] };
        let (shares, num_edges) = shares(&config);
        for (level, shares) in shares.iter().enumerate() {
            for (share, p) in shares.iter().zip(expected) {
                assert!((share - p).abs() < 0.003, "shares {shares:?} at level {level}, symmetrise {symmetrise}");
            }
        }
        let expected_edges = (base.nodes * 8) as f64;
        assert!((0.98..=1.005).contains(&(num_edges as f64 / expected_edges)), "{num_edges} of {expected_edges} edges");
    }
}

#[test]
fn nodes_need_not_be_a_power_of_two() {
    let config = RmatConfig { nodes: 100_003, edge_factor: 2.0, quadrants: [0.3, 0.25, 0.25, 0.2], ..config() };
    let (_, edges) = shares(&config);
    let expected_edges = (config.nodes * 2) as f64;
    assert!((0.98..=1.005).contains(&(edges as f64 / expected_edges)), "{edges} of {expected_edges} edges");
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
    // Symmetrising evens an asymmetric matrix out.
    let (shares, _) = shares(&RmatConfig { symmetrise: true, quadrants: [0.4, 0.4, 0.1, 0.1], ..config() });
    assert!(shares.iter().all(|s| s[1] == s[2]), "shares {shares:?}");
}
