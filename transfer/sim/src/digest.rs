//! Content digests, by which mixed-up buffers are detected.

use morphgl_graph_store::FeatureMatrix;
use morphgl_registry::HostBatch;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// Digest of a mini-batch's whole content, id and features included.
///
/// Equal content has equal digests; different content collides with probability 2^-64.
///
/// # Complexity
///
/// O(bytes), at the speed of memory.
pub fn digest(batch: &HostBatch) -> u64 {
    let features = batch.features.as_ref();
    combined(structure(batch), features.map(|f| (f.dim, f.dtype as usize, xxh3_64(f.as_bytes()))))
}

/// Digest that `batch` will have with the features of its input nodes, computed from `matrix`.
pub(crate) fn with_features(batch: &HostBatch, matrix: &FeatureMatrix) -> u64 {
    let mut hasher = Xxh3::new();
    for &node in &batch.input_nodes {
        hasher.update(matrix.rows(node as usize..node as usize + 1).as_bytes());
    }
    combined(structure(batch), Some((matrix.dim(), matrix.dtype() as usize, hasher.digest())))
}

fn combined(structure: u64, features: Option<(usize, usize, u64)>) -> u64 {
    let (dim, dtype, content) = features.unwrap_or_default();
    let words = [structure, u64::from(features.is_some()), dim as u64, dtype as u64, content];
    xxh3_64(bytemuck::cast_slice(&words))
}

/// Digest of all but the features. Lengths are hashed too, so that adjacent lists cannot be confused.
fn structure(batch: &HostBatch) -> u64 {
    let mut hasher = Xxh3::new();
    let mut list = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    let numbers = [u64::from(batch.id.epoch), u64::from(batch.id.index), batch.num_seeds as u64];
    list(bytemuck::cast_slice(&numbers));
    list(bytemuck::cast_slice(&batch.input_nodes));
    list(bytemuck::cast_slice(&batch.degrees));
    list(bytemuck::cast_slice(&batch.labels));
    list(&(batch.targets.width as u64).to_le_bytes());
    list(bytemuck::cast_slice(&batch.targets.values));
    if let Some(given) = &batch.given {
        list(bytemuck::cast_slice(&given.nodes));
        list(bytemuck::cast_slice(&given.degrees));
        list(bytemuck::cast_slice(&given.rows));
        list(&given.version.to_le_bytes());
    }
    if let Some(pairs) = &batch.pairs {
        list(&(pairs.num_positives as u64).to_le_bytes());
        list(bytemuck::cast_slice(&pairs.ends));
    }
    if let Some(trees) = &batch.trees {
        list(bytemuck::cast_slice(trees));
    }
    for block in &batch.blocks {
        list(bytemuck::cast_slice(&[block.num_dst as u64, block.num_src as u64, u64::from(block.weights.is_some())]));
        list(bytemuck::cast_slice(&block.indptr));
        list(bytemuck::cast_slice(&block.indices));
        list(bytemuck::cast_slice(block.weights.as_deref().unwrap_or_default()));
        if let Some(types) = &block.edge_types {
            list(bytemuck::cast_slice(types));
        }
    }
    hasher.digest()
}

/// Copies a mini-batch into an existing one, reusing its memory.
pub(crate) fn copy(from: &HostBatch, to: &mut HostBatch) {
    (to.id, to.num_seeds) = (from.id, from.num_seeds);
    to.input_nodes.clone_from(&from.input_nodes);
    to.degrees.clone_from(&from.degrees);
    to.labels.clone_from(&from.labels);
    to.targets.width = from.targets.width;
    to.targets.values.clone_from(&from.targets.values);
    to.given.clone_from(&from.given);
    to.pairs.clone_from(&from.pairs);
    to.trees.clone_from(&from.trees);
    to.blocks.resize_with(from.blocks.len(), Default::default);
    for (from, to) in from.blocks.iter().zip(&mut to.blocks) {
        (to.num_dst, to.num_src, to.importance) = (from.num_dst, from.num_src, from.importance);
        to.indptr.clone_from(&from.indptr);
        to.indices.clone_from(&from.indices);
        to.weights.clone_from(&from.weights);
        to.edge_types.clone_from(&from.edge_types);
    }
    match (&from.features, &mut to.features) {
        (Some(from), Some(to)) => to.resize(from.num_rows(), from.dim, from.dtype).copy_from_slice(from.as_bytes()),
        (from, to) => *to = from.clone(),
    }
}
