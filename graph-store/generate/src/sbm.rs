//! The degree-corrected stochastic block model: configuration and entry points.

use std::path::{Path, PathBuf};

use morphgl_graph_store::{Dataset, DatasetWriter, Dtype};
use serde_json::json;

use crate::degrees::PowerLaw;
use crate::node_data::{NodeConfig, NodeData, share};
use crate::output;
use crate::{Error, Result};
use block_model::BlockModel;

mod block_model;

/// A graph of `classes` blocks whose nodes have power-law degrees and features with some information on their class.
///
/// The default is the embedded dataset of `morphgl train`: features alone classify about 6 nodes of 10, and features
/// averaged over a node and its neighbours more than 9.
#[derive(Debug, Clone, PartialEq)]
pub struct SbmConfig {
    /// Number of nodes; default 50,000.
    pub nodes: u64,
    /// Mean number of neighbours, without duplicates and self-loops; default 15.
    pub degree: f64,
    /// Number of classes, which are also the blocks, of equal size; default 16.
    pub classes: usize,
    /// Values a node's features have; default 64.
    pub dim: usize,
    /// Stored type of the features: f32 (default), f16, bf16, or u8, which stores `128 + 24 x` rounded.
    pub dtype: Dtype,
    /// Fraction of the edges whose ends are of one class; default 0.65.
    pub homophily: f64,
    /// Standard deviation of each coordinate of the class means; the noise around them has 1. Default 0.27.
    pub signal: f64,
    /// Fraction of the nodes whose label is redrawn among all classes; default 0.
    pub label_noise: f64,
    /// Exponent of the degrees' power law, above 1; default 2.5.
    pub exponent: f64,
    /// Fraction of the nodes to train on; default 0.6. The shares may add up to less than 1.
    pub train: f64,
    /// Fraction of the nodes to validate on; default 0.2.
    pub valid: f64,
    /// Fraction of the nodes to test on; default 0.2.
    pub test: f64,
    /// Seed of everything; default 0.
    pub seed: u64,
}

impl Default for SbmConfig {
    fn default() -> Self {
        Self {
            nodes: 50_000,
            degree: 15.0,
            classes: 16,
            dim: 64,
            dtype: Dtype::F32,
            homophily: 0.65,
            signal: 0.27,
            label_noise: 0.0,
            exponent: 2.5,
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
/// O(nodes · dim + edges) expected; every edge is drawn twice, once for each of its rows.
pub fn sbm(config: &SbmConfig) -> Result<Dataset> {
    let model = BlockModel::new(Parameters::new(config)?, rayon::current_num_threads());
    Ok(output::in_memory(&model, config.name()))
}

/// Generates the same graph as [`sbm`] into a dataset at `target`, within `memory` bytes besides those of the process before.
///
/// `progress` is called with (stage, nodes done, nodes in all) by one thread at a time; the stages are "edges", "features" and
/// "labels".
///
/// # Errors
///
/// As [`sbm`]; `memory` is less than [`SbmConfig::least_memory`]; `target` exists and `replace` is false; an IO error.
pub fn sbm_to_disk(
    config: &SbmConfig,
    target: &Path,
    memory: u64,
    replace: bool,
    progress: &(dyn Fn(&str, u64, u64) + Sync),
) -> Result<PathBuf> {
    let parameters = Parameters::new(config)?;
    let plan = BlockModel::footprint(&parameters).plan(memory, rayon::current_num_threads())?;
    let writer = DatasetWriter::create(target, replace)?;
    progress("edges", 0, config.nodes);
    let model = BlockModel::new(parameters, plan.builders);
    let provenance = [
        ("generator", json!("sbm")),
        ("degree", json!(config.degree)),
        ("homophily", json!(config.homophily)),
        ("label_noise", json!(config.label_noise)),
        ("exponent", json!(config.exponent)),
    ];
    output::to_disk(&model, writer, &config.name(), &provenance, plan, progress)
}

/// A checked configuration and the values derived from it.
#[derive(Debug)]
pub(crate) struct Parameters {
    pub(crate) data: NodeData,
    pub(crate) law: PowerLaw,
    pub(crate) degree: f64,
    /// Expected edges to the own class and to others per unit of expected degree, boosted against duplicates.
    pub(crate) rate_inside: f64,
    pub(crate) rate_outside: f64,
}

impl Parameters {
    fn new(config: &SbmConfig) -> Result<Self> {
        let SbmConfig { nodes, degree, classes, homophily, exponent, .. } = *config;
        let data = NodeData::new(NodeConfig {
            nodes,
            classes,
            dim: config.dim,
            dtype: config.dtype,
            signal: config.signal,
            label_noise: config.label_noise,
            splits: [config.train, config.valid, config.test],
            seed: config.seed,
        })?;
        if !(degree > 0.0 && degree < nodes as f64) {
            let what = format!("a mean degree of {degree} among {nodes} nodes");
            return Err(Error::argument("degree", what, "pass a number above 0 and below the number of nodes"));
        }
        if !(exponent > 1.0 && exponent <= 20.0) {
            return Err(Error::argument("exponent", format!("a power law of {exponent}"), "pass above 1, at most 20"));
        }
        share("homophily", homophily)?;
        if classes == 1 && homophily != 1.0 {
            let what = format!("a share of {homophily} of the edges inside the only class");
            return Err(Error::argument("homophily", what, "pass 1, or more classes"));
        }
        // The structural cut-off: two nodes of this degree in one class expect one edge between them.
        let partners = nodes as f64 / classes as f64;
        let law = PowerLaw::with_mean(degree, (degree * partners).sqrt().min(nodes as f64), exponent);
        let (inside, outside) = (homophily * degree, (1.0 - homophily) * degree);
        let cure = "pass a smaller degree, more nodes, or another homophily or number of classes";
        let rate_inside = homophily * law.boost(inside, partners, cure)?;
        let rate_outside = (1.0 - homophily) * law.boost(outside, nodes as f64 - partners, cure)?;
        Ok(Self { data, law, degree, rate_inside, rate_outside })
    }
}

impl SbmConfig {
    /// The minimum memory for [`sbm_to_disk`] on the threads of the current rayon pool: 12 bytes per node and two
    /// blocks of rows or features, besides the buffers of the writers and the memory of threads.
    ///
    /// # Errors
    ///
    /// As [`sbm`].
    pub fn least_memory(&self) -> Result<u64> {
        Ok(BlockModel::footprint(&Parameters::new(self)?).min_memory(rayon::current_num_threads()))
    }

    fn name(&self) -> String {
        format!("sbm-{}", self.nodes)
    }
}
