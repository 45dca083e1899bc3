//! Random graphs, mini-batches and operators for the tests.
#![allow(dead_code, reason = "each test uses some of it")]

use std::sync::Arc;

use half::{bf16, f16};
use morphgl_cuda::{CudaBatch, Device, Stream};
use morphgl_graph_store::{Dataset, Dtype, FeatureMatrix, Topology};
use morphgl_registry::{BatchFeatures, BatchId, Block, GivenRows, HostBatch, MiniBatch, Place, TrainingContext};
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

pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }

    pub(crate) fn unit(&mut self) -> f32 {
        self.below(1 << 20) as f32 / (1 << 19) as f32 - 1.0
    }
}

/// A block of random degrees, some of them 0, with edges from a node to itself among them.
pub(crate) fn block(num_src: usize, num_dst: usize, degree: usize, weighted: bool, random: &mut Random) -> Block {
    let mut block = Block { num_dst, num_src, indptr: vec![0], ..Block::default() };
    for row in 0..num_dst {
        for _ in 0..random.below(2 * degree + 1) {
            block.indices.push(if random.below(9) == 0 { row as u32 } else { random.below(num_src) as u32 });
        }
        block.indptr.push(block.indices.len() as u32);
    }
    block.weights = weighted.then(|| block.indices.iter().map(|_| 1.1 + random.unit()).collect());
    block
}

/// A mini-batch over `nodes[l]` nodes, layer by layer; the last are the seeds.
pub(crate) fn batch(
    nodes: &[usize],
    (dim, classes): (usize, usize),
    dtype: Dtype,
    weighted: bool,
    seed: u64,
) -> HostBatch {
    let mut random = Random(seed);
    let blocks: Vec<Block> = nodes.windows(2).map(|n| block(n[0], n[1], 4, weighted, &mut random)).collect();
    let mut features = BatchFeatures::like(&FeatureMatrix::F32 { data: Vec::new().into(), dim });
    let bytes = features.resize(nodes[0], dim, dtype);
    for word in bytes.chunks_exact_mut(dtype.size()) {
        let x = random.unit();
        match dtype {
            Dtype::F32 => word.copy_from_slice(&x.to_le_bytes()),
            Dtype::F16 => word.copy_from_slice(&f16::from_f32(x).to_le_bytes()),
            Dtype::Bf16 => word.copy_from_slice(&bf16::from_f32(x).to_le_bytes()),
            _ => word[0] = random.below(5) as u8,
        }
    }
    let num_seeds = nodes[nodes.len() - 1];
    HostBatch {
        id: BatchId { epoch: 1, index: seed as u32 },
        num_seeds,
        input_nodes: (0..nodes[0] as u32).collect(),
        degrees: (0..nodes[0]).map(|_| 1.0 + random.below(9) as f32).collect(),
        blocks,
        features: Some(features),
        given: None,
        labels: (0..num_seeds).map(|_| random.below(classes + 1) as i32 - 1).collect(),
    }
}

/// Gives a mini-batch `count` rows of `width` columns, as the last source nodes of its second block, which gets new edges.
pub(crate) fn give(batch: &mut HostBatch, count: usize, width: usize) {
    let mut random = Random(u64::from(batch.id.index) + 77);
    let (first, second) = (batch.blocks[0].num_dst, &batch.blocks[1]);
    batch.blocks[1] = block(first + count, second.num_dst, 4, second.weights.is_some(), &mut random);
    batch.given = Some(Box::new(GivenRows {
        // Nodes of other masks than those of any row's number.
        nodes: (0..count as u32).map(|i| 10_000 + 3 * i).collect(),
        degrees: (0..count).map(|_| 1.0 + random.below(9) as f32).collect(),
        rows: (0..count * width).map(|_| random.unit()).collect(),
        version: 3,
    }));
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

pub(crate) fn model(kind: &str, dim: usize, classes: usize, more: Value) -> Value {
    let mut model = json!({"kind": kind, "in_dim": dim, "num_classes": classes});
    model.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    model
}
