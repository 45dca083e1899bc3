//! Mini-batches of random blocks, for tests of what training operators compute.

use half::{bf16, f16};
use morphgl_graph_store::{Dtype, FeatureMatrix};
use morphgl_registry::{BatchFeatures, BatchId, Block, HostBatch};
use serde_json::{Value, json};

/// A generator of numbers that look random, the same for the same seed.
#[derive(Debug)]
pub struct Random(pub u64);

impl Random {
    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }

    /// A number from -1 up to 1.
    pub fn unit(&mut self) -> f32 {
        self.below(1 << 20) as f32 / (1 << 19) as f32 - 1.0
    }
}

/// A block of random degrees, some of them 0, and with some edges from a node to itself.
pub fn block(num_src: usize, num_dst: usize, degree: usize, weighted: bool, random: &mut Random) -> Block {
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

/// A mini-batch with `nodes[l]` source nodes of block `l`; the last number is that of the seeds.
pub fn batch(nodes: &[usize], (dim, classes): (usize, usize), dtype: Dtype, weighted: bool, seed: u64) -> HostBatch {
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
        targets: Default::default(),
        pairs: None,
        features_by_type: Vec::new(),
        trees: None,
    }
}

/// The configuration of a model; `more` adds to it.
///
/// # Panics
///
/// Where `more` is no object.
pub fn model(kind: &str, dim: usize, classes: usize, more: Value) -> Value {
    let mut model = json!({"kind": kind, "in_dim": dim, "num_classes": classes});
    model.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    model
}
