//! Subgraphs by enumeration: which nodes a mini-batch has is compared with their exact probability.

mod draws;

use std::collections::HashMap;

use morphgl_batching_cpu::CpuShadow;
use morphgl_registry::{Expansion, Fanouts, HostBatch, NeighborSettings, SamplerSettings, Sampling, ShadowSettings};

/// In-neighbours of each node: 0 has four, of which 3 and 4 have two each.
const ROWS: [&[u32]; 8] = [&[1, 2, 3, 4], &[0, 5], &[5], &[6, 7], &[5, 6], &[0], &[3], &[7]];

/// All subsets of `k` elements of `of`, or `of` itself where it has no more.
fn subsets(of: &[u32], k: usize) -> Vec<Vec<u32>> {
    if of.len() <= k {
        return vec![of.to_vec()];
    }
    let chosen = |mask: &u32| mask.count_ones() as usize == k;
    let masks = (0..1u32 << of.len()).filter(chosen);
    masks.map(|mask| of.iter().enumerate().filter(|(i, _)| mask >> i & 1 == 1).map(|(_, &v)| v).collect()).collect()
}

/// The probability of each set of nodes (as bits) that two hops from node 0 find, with two neighbours and then one, of which the
/// second hop expands the newly found nodes alone.
fn expected() -> HashMap<u32, f64> {
    let mut probabilities = HashMap::new();
    let first = subsets(ROWS[0], 2);
    for hop in &first {
        let [a, b] = [subsets(ROWS[hop[0] as usize], 1), subsets(ROWS[hop[1] as usize], 1)];
        let probability = 1.0 / (first.len() * a.len() * b.len()) as f64;
        for (a, b) in a.iter().flat_map(|a| b.iter().map(move |b| (a, b))) {
            let nodes = [0, hop[0], hop[1], a[0], b[0]].iter().fold(0u32, |bits, v| bits | 1 << v);
            *probabilities.entry(nodes).or_default() += probability;
        }
    }
    probabilities
}

#[test]
fn nodes_have_their_probability() {
    let fanouts: Fanouts = "2,1".parse().expect("fanouts");
    let hops = NeighborSettings { expansion: Expansion::New, ..fanouts.into() };
    let settings = SamplerSettings { seed: 17, ..Sampling::Shadow(ShadowSettings { hops, layers: 1 }).into() };
    let outcome = |batch: &HostBatch| batch.input_nodes.iter().fold(0, |bits, v| bits | 1u32 << v);
    draws::check(&ROWS, settings, CpuShadow::new, outcome, &expected());
}
