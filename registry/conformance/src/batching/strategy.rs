//! Strategies of proptest for batching operators: any settings of neighbour sampling, and any small graph.

use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;

use morphgl_registry::{
    Expansion, Fanout, Fanouts, NegativeDistribution, NeighborSettings, PairSettings, Pick, SamplerSettings, SeedSet,
};
use proptest::prelude::*;

use super::{Case, graphs, hops};

/// Neighbour sampling of one to four hops, in mini-batches of one of `batch_sizes`.
pub fn settings(batch_sizes: Range<usize>) -> impl Strategy<Value = SamplerSettings> {
    let fanout = prop_oneof![4 => 1u32..9, 1 => 30u32..50, 2 => Just(0)];
    let fanout = fanout.prop_map(|k| NonZeroU32::new(k).map_or(Fanout::All, Fanout::AtMost));
    let choices = (any::<bool>(), any::<bool>(), any::<bool>());
    (prop::collection::vec(fanout, 1..5), batch_sizes, any::<u64>(), choices).prop_map(
        |(fanouts, batch_size, seed, (new, weighted, shuffle))| {
            let hops = NeighborSettings {
                fanouts: Fanouts(fanouts),
                expansion: if new { Expansion::New } else { Expansion::All },
                pick: if weighted { Pick::Weighted } else { Pick::Uniform },
            };
            SamplerSettings { batch_size, seed, shuffle, ..hops.into() }
        },
    )
}

/// Up to 59 nodes with up to 69 in-neighbours each, with or without weights, some of the nodes as seeds, and [`settings`] that the
/// graph allows.
pub fn case() -> impl Strategy<Value = Case> {
    let rows = (1u32..60).prop_flat_map(|n| {
        let row = prop_oneof![3 => prop::collection::vec(0..n, 0..15), 1 => prop::collection::vec(0..n, 0..70)];
        let seeds = prop::sample::subsequence((0..n).collect::<Vec<_>>(), 1..=n as usize);
        (prop::collection::vec(row, n as usize), seeds)
    });
    (rows, any::<bool>(), settings(1..12)).prop_map(|((rows, seeds), weights, mut settings)| {
        let num_edges = rows.iter().map(Vec::len).sum::<usize>();
        let weights = weights.then(|| (0..num_edges).map(|e| (e * 7 % 5) as f32 * 0.5).collect::<Vec<f32>>());
        if weights.is_none() {
            hops(&mut settings).pick = Pick::Uniform;
        }
        let dataset = Arc::new(graphs::dataset(&rows, weights));
        let seeds = SeedSet::new("seeds", &seeds, rows.len()).expect("a subsequence of the nodes");
        Case { dataset, seeds, settings, gather: true }
    })
}

/// A [`case`] whose seeds are up to 39 pairs of nodes, edges of the graph among them, with any settings.
pub fn case_of_pairs() -> impl Strategy<Value = Case> {
    let distributions =
        [NegativeDistribution::Uniform, NegativeDistribution::Degree, NegativeDistribution::InBatch].to_vec();
    let drawn = (0u32..6, prop::sample::select(distributions), any::<bool>(), any::<bool>());
    // Negatives that are given with each pair, of which as many are left out.
    let given = prop::option::weighted(0.25, 0usize..8);
    let pairs = prop::collection::vec((any::<prop::sample::Index>(), any::<[prop::sample::Index; 2]>()), 2..40);
    (case(), pairs, drawn, given).prop_map(|(case, pairs, (negatives, distribution, avoid_edges, exclude), given)| {
        let topology = &case.dataset.topology;
        let num_nodes = topology.num_nodes();
        let edges: Vec<[u32; 2]> =
            (0..num_nodes as u32).flat_map(|v| topology.neighbors(v).iter().map(move |&u| [u, v])).collect();
        let pair = |(i, (edge, ends)): (usize, (prop::sample::Index, [prop::sample::Index; 2]))| {
            let any = ends.map(|end| end.index(num_nodes) as u32);
            if i % 4 == 0 || edges.is_empty() { any } else { edges[edge.index(edges.len())] }
        };
        let pairs: Vec<[u32; 2]> = pairs.into_iter().enumerate().map(pair).collect();
        let distribution = if edges.is_empty() { NegativeDistribution::Uniform } else { distribution };
        let drawn = case.of_pairs(&pairs, PairSettings { negatives, distribution, avoid_edges, exclude });
        given.map_or(drawn.clone(), |left_out| drawn.with_given(negatives as usize + left_out, negatives))
    })
}
