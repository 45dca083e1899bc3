//! Evaluation: with all neighbours, layer by layer; or on sampled mini-batches.

use std::sync::Arc;

use anyhow::Result;
use morphgl_execute::{Pool, Stop, Transfer, prepare};
use morphgl_graph_store::Dataset;
use morphgl_plan::Schedule;
use morphgl_registry::{BatchingContext, Registry, SamplerSettings, Score, SeedSet, Training};
use serde::{Deserialize, Serialize};
use serde_json::Value;

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

/// Scores of several sets of nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct Scores(pub Vec<Score>);

/// Scores `sets` with all neighbours, in one pass over the graph.
///
/// # Errors
///
/// The training operator's own.
pub fn full(training: &mut dyn Training, dataset: &Dataset, sets: &[&[u32]]) -> Result<Scores> {
    let Some(labels) = &dataset.labels else {
        anyhow::bail!("{}: the dataset has no labels to evaluate with", dataset.name);
    };
    let nodes = sets.concat();
    if nodes.is_empty() {
        return Ok(Scores(vec![Score::default(); sets.len()]));
    }
    let logits = training.infer(&nodes)?;
    let mut rows = logits.as_slice();
    let score = |set: &&[u32]| {
        let (own, rest) = rows.split_at(set.len() * dataset.num_classes);
        rows = rest;
        let labels: Vec<i32> = set.iter().map(|&v| labels[v as usize]).collect();
        Score::of(own, &labels, dataset.num_classes)
    };
    Ok(Scores(sets.iter().map(score).collect()))
}

/// Scores `sets` on mini-batches that are sampled by `settings`, without permutation.
///
/// # Errors
///
/// A failing operator, with its key and mini-batch.
pub fn sampled(
    operators: &mut morphgl_execute::Operators,
    registry: &Registry,
    dataset: &Arc<Dataset>,
    settings: &SamplerSettings,
    schedule: &Schedule,
    sets: &[&[u32]],
) -> Result<Scores> {
    let mut scores = Vec::with_capacity(sets.len());
    for set in sets {
        if set.is_empty() {
            scores.push(Score::default());
            continue;
        }
        let context = BatchingContext {
            dataset: Arc::clone(dataset),
            seeds: SeedSet::new("nodes to evaluate", set, dataset.num_nodes())?,
            settings: SamplerSettings { shuffle: false, ..settings.clone() },
            gather: true,
            place: operators.route.batched_at.clone(),
            options: Value::Null,
        };
        let batching = registry.batching(&operators.route.batching, &context)?;
        let mut pool = Pool::new(&operators.route.batching, batching.as_ref(), schedule)?;
        let batches = 0..pool.num_batches();
        let transfer = Transfer { key: &operators.route.transferring, operator: operators.transferring.as_mut() };
        let training = operators.training.as_mut();
        let mut consume = |batch: &_| training.score(batch)?.wait().map(|(score, _)| score);
        let stop = Stop::new();
        let report = prepare(&mut pool, Some(transfer), 0, batches, &stop, &mut consume, &mut |_| ())?;
        scores.push(report.score);
    }
    Ok(Scores(scores))
}
