//! A graph small enough for differences in every parameter, and its mini-batches.

use std::path::PathBuf;

use morphgl_graph_store::{Dataset, FeatureMatrix, FeatureView, Splits, Topology};
use morphgl_registry::{BatchFeatures, BatchId, Block, HostBatch};

/// Width of the tiny graph's features.
pub(super) const DIM: usize = 3;
/// Number of its classes.
pub(super) const CLASSES: usize = 2;

/// Twelve nodes in two classes: two rings with chords, a node alone (10), one with out-edges only (11), an edge twice.
/// Features tell the classes apart.
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
    let mut indptr = vec![0u64];
    rows.iter().for_each(|row| indptr.push(indptr[indptr.len() - 1] + row.len() as u64));
    let indices: Vec<u32> = rows.concat();
    let labels: Vec<i32> = (0..12).map(|v| i32::from((5..=9).contains(&v) || v == 11)).collect();
    let features: Vec<f32> = (0..12 * DIM)
        .map(|i| {
            let side = if labels[i / DIM] == 0 { 1.0 } else { -1.0 };
            // Fixed numbers without a pattern, around one side or the other.
            let noise = ((i as f32 + 1.0) * 12.9898).sin() * 0.8;
            noise + if i % DIM == 0 { side } else { 0.0 }
        })
        .collect();
    Dataset {
        path: PathBuf::new(),
        name: "tiny".to_string(),
        topology: Topology::new(indptr, indices, None).expect("the tiny graph is valid"),
        features: Some(FeatureMatrix::F32 { data: features.into(), dim: DIM }),
        labels: Some(labels.into()),
        num_classes: CLASSES,
        splits: Splits {
            train: (0..12).collect::<Vec<u32>>().into(),
            valid: Vec::new().into(),
            test: Vec::new().into(),
        },
        node_ids: None,
    }
}

/// The mini-batch of `seeds` with all neighbours of `hops` hops, every node found so far expanded at each hop.
///
/// # Panics
///
/// When a seed is no node, or the dataset has no features or labels.
pub fn batch(dataset: &Dataset, seeds: &[u32], hops: usize, epoch: u32) -> HostBatch {
    let topology = &dataset.topology;
    let mut nodes = seeds.to_vec();
    let mut blocks = Vec::new();
    for _ in 0..hops {
        let mut block = Block { num_dst: nodes.len(), indptr: vec![0], ..Block::default() };
        let mut weights = topology.weights().map(|_| Vec::new());
        for row in 0..block.num_dst {
            let range = topology.edge_range(nodes[row]);
            for &u in topology.neighbors(nodes[row]) {
                let local = nodes.iter().position(|&v| v == u).unwrap_or(nodes.len());
                if local == nodes.len() {
                    nodes.push(u);
                }
                block.indices.push(local as u32);
            }
            if let (Some(kept), Some(all)) = (&mut weights, topology.weights()) {
                kept.extend_from_slice(&all[range]);
            }
            block.indptr.push(block.indices.len() as u32);
        }
        (block.num_src, block.weights) = (nodes.len(), weights);
        blocks.insert(0, block);
    }
    let matrix = dataset.features.as_ref().expect("features");
    let mut features = BatchFeatures::like(matrix);
    let row = matrix.row_bytes();
    let out = features.resize(nodes.len(), matrix.dim(), matrix.dtype());
    for (out, &v) in out.chunks_exact_mut(row).zip(&nodes) {
        out.copy_from_slice(matrix.rows(v as usize..v as usize + 1).as_bytes());
    }
    let labels = dataset.labels.as_ref().expect("labels");
    let degree = |v: &u32| match topology.weights() {
        Some(weights) => weights[topology.edge_range(*v)].iter().sum(),
        None => topology.degree(*v) as f32,
    };
    HostBatch {
        id: BatchId { epoch, index: 3 },
        num_seeds: seeds.len(),
        degrees: nodes.iter().map(degree).collect(),
        labels: seeds.iter().map(|&v| labels[v as usize]).collect(),
        input_nodes: nodes,
        blocks,
        features: Some(features),
    }
}

/// Features of all nodes in f64.
pub(super) fn features(dataset: &Dataset) -> Vec<Vec<f64>> {
    let matrix = dataset.features.as_ref().expect("features");
    let mut all = vec![0.0f32; matrix.view().len()];
    FeatureView::to_f32(&matrix.view(), &mut all);
    all.chunks_exact(matrix.dim()).map(|row| row.iter().map(|&x| f64::from(x)).collect()).collect()
}
