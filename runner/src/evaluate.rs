//! Evaluation: with all neighbours, layer by layer; or on sampled mini-batches.

use std::sync::Arc;

use anyhow::Result;
use morphgl_execute::{Pool, PoolSettings, Stop, prepare};
use morphgl_graph_store::Dataset;
use morphgl_registry::{
    BatchingContext, Error, Registry, Route, SamplerSettings, Score, SeedSet, Training, Transferring,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::build::gathers;
use crate::peak_rss_bytes;

/// How a model is evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Evaluation {
    /// With all neighbours: layer-wise inference over all nodes.
    #[default]
    Full,
    /// On mini-batches sampled as in training.
    Sampled,
    /// Not at all.
    None,
}

/// Scores `sets` with all neighbours, in one pass over the graph, by a model of `num_classes` classes.
///
/// # Errors
///
/// The training operator's own.
pub fn full(training: &mut dyn Training, dataset: &Dataset, num_classes: usize, sets: &[&[u32]]) -> Result<Vec<Score>> {
    let Some(labels) = &dataset.labels else {
        anyhow::bail!("{}: the dataset has no labels to evaluate with", dataset.name);
    };
    let nodes = sets.concat();
    if nodes.is_empty() {
        return Ok(vec![Score::default(); sets.len()]);
    }
    let logits = training.infer(&nodes)?;
    let mut rest = logits.as_slice();
    let score = |set: &&[u32]| {
        let rows = rest.split_off(..set.len() * num_classes).expect("a row of logits a node");
        let labels: Vec<i32> = set.iter().map(|&v| labels[v as usize]).collect();
        Score::of(rows, &labels, num_classes)
    };
    Ok(sets.iter().map(score).collect())
}

/// Inputs of sampled evaluation.
#[derive(Debug)]
pub struct Sampled<'a> {
    /// Builds a batching operator for each set of nodes.
    pub registry: &'a Registry,
    /// The operators to use.
    pub route: &'a Route,
    /// The graph.
    pub dataset: &'a Arc<Dataset>,
    /// Sampler settings; nodes are not permuted.
    pub settings: &'a SamplerSettings,
    /// Whether mini-batches carry features: see [`crate::brings_features`].
    pub gather: bool,
    /// Options of the batching operator, `null` without any.
    pub options: Value,
    /// Batching workers; with 0 the scoring thread batches.
    pub workers: usize,
    /// Threads of each worker.
    pub threads: usize,
    /// Limit of the process's memory in bytes; exceeding it is an error.
    pub memory: Option<u64>,
    /// The transferring operator.
    pub transferring: &'a mut dyn Transferring,
    /// The operator that scores.
    pub training: &'a mut dyn Training,
}

impl Sampled<'_> {
    /// Scores `sets` on sampled mini-batches.
    ///
    /// # Errors
    ///
    /// A failing operator, with its key and mini-batch; or mini-batches too large for the memory.
    pub fn scores(&mut self, sets: &[&[u32]]) -> Result<Vec<Score>> {
        sets.iter().map(|set| self.score(set)).collect()
    }

    fn score(&mut self, set: &[u32]) -> Result<Score> {
        if set.is_empty() {
            return Ok(Score::default());
        }
        let context = BatchingContext {
            dataset: Arc::clone(self.dataset),
            seeds: SeedSet::new("nodes to evaluate", set, self.dataset.num_nodes())?,
            settings: SamplerSettings { shuffle: false, ..self.settings.clone() },
            gather: gathers(self.registry, self.route, self.gather)?,
            place: self.route.batched_at.clone(),
            options: self.options.clone(),
        };
        let batching = self.registry.batching(&self.route.batching, &context)?;
        let settings = PoolSettings { threads_per_worker: self.threads, ..PoolSettings::ahead(self.workers) };
        let mut pool = Pool::new(&self.route.batching, batching.as_ref(), settings)?;
        let batches = 0..pool.num_batches();
        let transfer = (&self.route.transferring, &mut *self.transferring as &mut dyn Transferring);
        let (training, memory) = (&mut *self.training, self.memory);
        let mut consume = |batch: &_| {
            let (score, _) = training.score(batch)?.wait()?;
            let peak = peak_rss_bytes();
            let Some(limit) = memory.filter(|&limit| peak > limit) else { return Ok(score) };
            let (limit, peak, cure) = (limit >> 20, peak >> 20, "make them smaller (batch size, fanouts)");
            let what = format!("{limit} MiB are allowed, and mini-batches take the process to {peak}; {cure}");
            Err(Error::setting("memory", what))
        };
        let report = prepare(&mut pool, Some(transfer), 0, batches, &Stop::new(), &mut consume)?;
        Ok(report.score)
    }
}
