//! Random graphs, mini-batches and operators for the tests.
#![allow(dead_code, unused_imports, reason = "each test uses some of it")]

pub(crate) mod agreement;

use std::sync::Arc;

use half::f16;
pub(crate) use morphgl_conformance::training::random::{Random, batch, block, model};
use morphgl_cuda::{CudaBatch, Device, Stream};
use morphgl_graph_store::{Dataset, FeatureMatrix, Topology};
use morphgl_registry::{BatchPairs, GivenRows, HostBatch, MiniBatch, Place, TrainingContext};
use morphgl_training_cuda_native::KEY;
use serde_json::{Value, json};

pub(crate) fn place() -> Place {
    "cuda:0".parse().expect("a place")
}

/// Copies a mini-batch to the device, on a stream of its own.
pub(crate) fn transfer(batch: HostBatch) -> MiniBatch {
    let device = Device::open(&place(), &KEY).expect("it is emulated");
    let stream = Stream::new(&device, false).expect("a stream");
    CudaBatch::upload(&stream, &batch).expect("memory").into_batch()
}

/// Gives a mini-batch `count` rows of `width` columns, as the last source nodes of its second block, which gets new edges; and as many of
/// `inputs` columns, one matrix each.
pub(crate) fn give(batch: &mut HostBatch, count: usize, width: usize, inputs: &[usize]) {
    let mut random = Random(u64::from(batch.id.index) + 77);
    let (first, second) = (batch.blocks[0].num_dst, &batch.blocks[1]);
    batch.blocks[1] = block(first + count, second.num_dst, 4, second.weights.is_some(), &mut random);
    batch.given = Some(Box::new(GivenRows {
        // Nodes of other masks than those of any row's number.
        nodes: (0..count as u32).map(|i| 10_000 + 3 * i).collect(),
        degrees: (0..count).map(|_| 1.0 + random.below(9) as f32).collect(),
        // With a gradient: rows that an activation can give.
        rows: (0..count * width).map(|_| random.unit().max(if inputs.is_empty() { -1.0 } else { 0.0 })).collect(),
        inputs: inputs.iter().map(|width| (0..count * width).map(|_| random.unit()).collect()).collect(),
        version: 3,
    }));
}

/// Makes a mini-batch one of pairs: so many positives, each with so many negatives of the same source. Seed 7 is an end of many, and
/// the last ones of none.
pub(crate) fn pair(batch: &mut HostBatch, positives: usize, negatives: usize) {
    let mut random = Random(u64::from(batch.id.index) + 5);
    let seeds = batch.num_seeds as u32 - 2;
    let mut end = || if random.below(6) == 0 { 7 } else { random.below(seeds as usize) as u32 };
    let mut ends: Vec<[u32; 2]> = (0..positives).map(|_| [end(), end()]).collect();
    for i in 0..positives {
        let source = ends[i][0];
        ends.extend((0..negatives).map(|_| [source, end()]));
    }
    batch.labels.clear();
    batch.pairs = Some(Box::new(BatchPairs { num_positives: positives, ends, ..BatchPairs::default() }));
}

/// A graph of random rows, some of them empty, with features of a type.
pub(crate) fn dataset(num_nodes: usize, degree: usize, dim: usize, classes: usize, weighted: bool) -> Arc<Dataset> {
    let mut random = Random(5);
    let graph = block(num_nodes.max(1), num_nodes, degree, weighted, &mut random);
    let indptr: Vec<u64> = graph.indptr.iter().map(|&i| u64::from(i)).collect();
    let features: Vec<f16> = (0..num_nodes * dim).map(|_| f16::from_f32(random.unit())).collect();
    Arc::new(Dataset {
        features: Some(FeatureMatrix::F16 { data: features.into(), dim }),
        num_classes: classes,
        ..Dataset::new("random", Topology::new(indptr, graph.indices, graph.weights.map(Into::into)).expect("a graph"))
    })
}

pub(crate) fn context(model: &Value, place: Place, dataset: Arc<Dataset>) -> TrainingContext {
    TrainingContext { dataset, spec: json!({"model": model}), seed: 3, threads: 2, place, options: Value::Null }
}
