//! R-MAT: configuration and entry points.

use std::path::{Path, PathBuf};

use morphgl_graph_store::{Dataset, DatasetWriter, Dtype};
use serde_json::json;

use crate::node_data::{NodeConfig, NodeData};
use crate::output;
use crate::quadrants::Quadrants;
use crate::{Error, Result};

/// A Kronecker graph: each edge falls into one quadrant of the adjacency matrix, then of that quadrant, and so on.
///
/// Low node ids are the hubs. Labels and features follow a class that is random to the graph.
#[derive(Debug, Clone, PartialEq)]
pub struct RmatConfig {
    /// Number of nodes, a power of two or not; default 2^16.
    pub nodes: u64,
    /// Edges drawn per node. Duplicates and self-loops are then dropped, so a graph has fewer; default 16.
    pub edge_factor: f64,
    /// Probabilities of the quadrants (source low, destination low), (low, high), (high, low), (high, high);
    /// default 0.57, 0.19, 0.19, 0.05.
    pub quadrants: [f64; 4],
    /// Whether each edge is stored in both directions; default false.
    pub symmetrise: bool,
    /// Number of classes, of equal size; default 16.
    pub classes: usize,
    /// Values a node's features have; default 64.
    pub dim: usize,
    /// Stored type of the features: f32 (default), f16, bf16, or u8, which stores `128 + 24 x` rounded.
    pub dtype: Dtype,
    /// Length scale of the class means, where the noise about them has deviation 1; default 0.27.
    pub signal: f64,
    /// Fraction of the nodes to train on; default 0.6. The shares may add up to less than 1.
    pub train: f64,
    /// Fraction of the nodes to validate on; default 0.2.
    pub valid: f64,
    /// Fraction of the nodes to test on; default 0.2.
    pub test: f64,
    /// Seed of everything; default 0.
    pub seed: u64,
}

impl Default for RmatConfig {
    fn default() -> Self {
        Self {
            nodes: 1 << 16,
            edge_factor: 16.0,
            quadrants: [0.57, 0.19, 0.19, 0.05],
            symmetrise: false,
            classes: 16,
            dim: 64,
            dtype: Dtype::F32,
            signal: 0.27,
            train: 0.6,
            valid: 0.2,
            test: 0.2,
            seed: 0,
        }
    }
}

/// Generates the graph in memory, on the threads of the current rayon pool.
///
/// # Errors
///
/// An argument that is impossible by itself or with another.
///
/// # Complexity
///
/// O(nodes · dim + edges · log nodes) expected; twice the edges with `symmetrise`.
pub fn rmat(config: &RmatConfig) -> Result<Dataset> {
    Ok(output::in_memory(&config.model()?.with_means(), config.name()))
}

/// Generates the same graph as [`rmat`] into a dataset at `target`, within `memory` bytes besides those of the process before.
///
/// `progress` is called with (stage, nodes done, nodes in all) by one thread at a time; the stages are "edges", "features" and
/// "labels".
///
/// # Errors
///
/// As [`rmat`]; `memory` is less than [`RmatConfig::least_memory`]; `target` exists and `replace` is false; an IO error.
pub fn rmat_to_disk(
    config: &RmatConfig,
    target: &Path,
    memory: u64,
    replace: bool,
    progress: &(dyn Fn(&str, u64, u64) + Sync),
) -> Result<PathBuf> {
    let model = config.model()?;
    let plan = model.footprint().plan(memory, rayon::current_num_threads())?;
    let writer = DatasetWriter::create(target, replace)?;
    let provenance = [
        ("generator", json!("rmat")),
        ("edge_factor", json!(config.edge_factor)),
        ("quadrants", json!(config.quadrants)),
        ("symmetrise", json!(config.symmetrise)),
    ];
    output::to_disk(&model.with_means(), writer, &config.name(), &provenance, plan, progress)
}

impl RmatConfig {
    /// The minimum memory for [`rmat_to_disk`] on the threads of the current rayon pool: two blocks of rows or features,
    /// besides the buffers of the writers and the memory of threads.
    ///
    /// # Errors
    ///
    /// As [`rmat`].
    pub fn least_memory(&self) -> Result<u64> {
        Ok(self.model()?.footprint().min_memory(rayon::current_num_threads()))
    }

    fn model(&self) -> Result<Quadrants> {
        let data = NodeData::new(NodeConfig {
            nodes: self.nodes,
            classes: self.classes,
            dim: self.dim,
            dtype: self.dtype,
            signal: self.signal,
            label_noise: 0.0,
            splits: [self.train, self.valid, self.test],
            seed: self.seed,
        })?;
        if !(self.edge_factor > 0.0 && self.edge_factor < self.nodes as f64) {
            let what = format!("{} edges for each of {} nodes", self.edge_factor, self.nodes);
            return Err(Error::argument("edge_factor", what, "pass a number above 0 and below the number of nodes"));
        }
        let sum: f64 = self.quadrants.iter().sum();
        if self.quadrants.iter().any(|q| !(0.0..=1.0).contains(q)) || (sum - 1.0).abs() > 1e-6 {
            let what = format!("probabilities {:?} with sum {sum}", self.quadrants);
            return Err(Error::argument("quadrants", what, "pass four numbers of at least 0 whose sum is 1"));
        }
        Quadrants::new(data, self.quadrants, self.edge_factor, self.symmetrise)
    }

    fn name(&self) -> String {
        format!("rmat-{}", self.nodes)
    }
}
