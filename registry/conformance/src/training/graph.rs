//! A graph small enough for finite differences in every parameter, and its mini-batches.

use std::sync::Arc;

use morphgl_graph_store::{Dataset, FeatureMatrix, Splits};
use morphgl_registry::{BatchId, Fanout, Fanouts, HostBatch, SamplerSettings, Sampling, SeedSet, WalkSettings};

use morphgl_sampler_core::TYPED;

use crate::batching::{Case, graphs, reference};

/// Width of the tiny graph's features.
pub(super) const DIM: usize = 3;
/// Number of its classes.
pub(super) const CLASSES: usize = 2;

/// Twelve nodes in two classes: two rings with chords, an isolated node (10), one with out-edges only (11), a duplicate edge.
/// Features distinguish the classes.
pub fn tiny() -> Dataset {
    let rows: [&[u32]; 12] = [
        &[1, 4, 2],
        &[0, 2],
        &[1, 3, 3],
        &[2, 4, 11],
        &[3, 0],
        &[6, 9],
        &[5, 7],
        &[6, 8, 5],
        &[7, 9],
        &[8, 5, 0],
        &[],
        &[],
    ];
    let rows = rows.map(<[u32]>::to_vec);
    let labels: Vec<i32> = (0..12).map(|v| i32::from((5..=9).contains(&v) || v == 11)).collect();
    let features: Vec<f32> = (0..12 * DIM)
        .map(|i| {
            let side = if labels[i / DIM] == 0 { 1.0 } else { -1.0 };
            // Constant numbers without a pattern, around a mean that depends on the class.
            let noise = ((i as f32 + 1.0) * 12.9898).sin() * 0.8;
            noise + if i % DIM == 0 { side } else { 0.0 }
        })
        .collect();
    let none = || Vec::new().into();
    Dataset {
        name: "tiny".to_string(),
        features: Some(FeatureMatrix::F32 { data: features.into(), dim: DIM }),
        labels: Some(labels.into()),
        num_classes: CLASSES,
        splits: Splits { train: (0..12).collect::<Vec<u32>>().into(), valid: none(), test: none() },
        ..graphs::dataset(&rows, None)
    }
}

/// The mini-batch of `seeds` with all neighbours of `hops` hops, every node found so far expanded at each hop.
///
/// # Panics
///
/// When a seed is no node.
pub fn batch(dataset: &Dataset, seeds: &[u32], hops: usize, epoch: u32) -> HostBatch {
    let case = case(dataset, seeds, hops);
    HostBatch { id: BatchId { epoch, index: 3 }, ..reference::sample(&case, BatchId { epoch, index: 0 }) }
}

/// The same mini-batch with `given` nodes left unexpanded, without their rows.
pub(super) fn batch_with_given(
    dataset: &Dataset,
    seeds: &[u32],
    hops: usize,
    epoch: u32,
    given: &dyn Fn(u32) -> bool,
) -> HostBatch {
    let sampled = reference::sample_with_given(&case(dataset, seeds, hops), BatchId { epoch, index: 0 }, given);
    HostBatch { id: BatchId { epoch, index: 3 }, ..sampled }
}

/// The mini-batch of `seeds` with the nodes that walks visit, some of them several times, at each of `hops` hops.
pub(super) fn walked(dataset: &Dataset, seeds: &[u32], hops: usize, epoch: u32) -> HostBatch {
    let walk = WalkSettings { walks: 7, length: 3, restart: 0.2, neighbors: 4, ..WalkSettings::of_layers(hops) };
    let case = case(dataset, seeds, hops).with(|s| s.sampling = Sampling::Walk(walk));
    let walked = reference::sample(&case, BatchId { epoch, index: 0 });
    assert!(walked.blocks.iter().all(|b| b.weights.iter().flatten().any(|&visits| visits > 1.0)), "{walked:?}");
    HostBatch { id: BatchId { epoch, index: 3 }, ..walked }
}

fn case(dataset: &Dataset, seeds: &[u32], hops: usize) -> Case {
    let fanouts = Fanouts(vec![Fanout::All; hops]);
    let settings = SamplerSettings { batch_size: seeds.len(), shuffle: false, ..fanouts.into() };
    let seeds = SeedSet::new("seeds", seeds, dataset.num_nodes()).expect("nodes of the graph");
    let case = Case { dataset: Arc::new(dataset.clone()), seeds, settings, gather: true };
    if dataset.topology.types().is_some() { case.by(&TYPED) } else { case }
}

/// Features of all nodes in f64.
pub(super) fn features(dataset: &Dataset) -> Vec<Vec<f64>> {
    let matrix = dataset.features.as_ref().expect("features");
    let mut all = vec![0.0f32; matrix.view().len()];
    matrix.view().to_f32(&mut all);
    all.chunks_exact(matrix.dim()).map(|row| row.iter().map(|&x| f64::from(x)).collect()).collect()
}
