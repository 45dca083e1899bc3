//! Evaluation: with all neighbours, layer by layer; or on sampled mini-batches.

use anyhow::Result;
use morphgl_execute::{Pool, PoolSettings, Stop, prepare};
use morphgl_graph_store::Dataset;
use morphgl_model_core::{Predicted, ScoreKind};
use morphgl_profile::MemoryLimit;
use morphgl_registry::{Batching, Error, Phase, Route, SamplerSettings, Score, SeedSet, Training, Transferring};
use serde::{Deserialize, Serialize};

use crate::admission::{Excess, admit};
use crate::budget::Purpose;
use crate::build::OperatorBuilder;
use crate::usage::Usage;
use crate::{Evaluated, Group};

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

impl Evaluation {
    /// Refuses a score that needs the logits of all nodes at once, where mini-batches are scored.
    pub(crate) fn check(self, score: ScoreKind) -> Result<()> {
        if self == Evaluation::Full || score.is_of_sums() {
            return Ok(());
        }
        let why = "it is computed of the logits of all nodes, which evaluation on sampled mini-batches does not keep";
        Err(Usage::error(format!(
            "--score {score}: {why}; use --evaluation full, with more --memory if need be, or --score accuracy or loss"
        )))
    }
}

/// Logits of sets of nodes, and their labels.
#[derive(Debug)]
pub(crate) struct Inferred {
    logits: Vec<f32>,
    labels: Vec<i32>,
    lengths: Vec<usize>,
    num_classes: usize,
}

impl Inferred {
    /// Computes them with all neighbours, in one pass over the graph, by a model of `num_classes` classes; with a `group`, each of its
    /// trainers computes a part.
    pub(crate) fn of(
        training: &mut dyn Training,
        dataset: &Dataset,
        num_classes: usize,
        sets: &[&[u32]],
        group: Option<&Group>,
    ) -> Result<Self> {
        let Some(labels) = &dataset.labels else {
            anyhow::bail!("{}: the dataset has no labels to evaluate with", dataset.name);
        };
        let nodes = sets.concat();
        let logits = match group {
            _ if nodes.is_empty() => Vec::new(),
            None => training.infer(&nodes)?,
            Some(group) => group.infer(training, &nodes)?,
        };
        let labels = nodes.iter().map(|&v| labels[v as usize]).collect();
        Ok(Self { logits, labels, lengths: sets.iter().map(|set| set.len()).collect(), num_classes })
    }

    /// Of each set.
    pub(crate) fn sets(&self) -> impl Iterator<Item = Predicted<'_>> {
        let (mut logits, mut labels) = (&self.logits[..], &self.labels[..]);
        self.lengths.iter().map(move |&length| {
            let rows = logits.split_off(..length * self.num_classes).expect("a row of logits per node");
            let labels = labels.split_off(..length).expect("a label per node");
            Predicted::new(rows, labels, self.num_classes)
        })
    }
}

/// Scores `sets` with all neighbours, in one pass over the graph, by a model of `num_classes` classes; with a `group`, each of its
/// trainers computes a part of it, and all have the scores of its rank 0.
///
/// # Errors
///
/// The training operator's own, and those of the group.
pub fn full(
    training: &mut dyn Training,
    dataset: &Dataset,
    num_classes: usize,
    sets: &[&[u32]],
    group: Option<&Group>,
    score: ScoreKind,
) -> Result<Vec<Evaluated>> {
    let inferred = Inferred::of(training, dataset, num_classes, sets, group)?;
    let evaluated = |predicted: Predicted<'_>| {
        let sums = training.score_logits(predicted.logits(), predicted.labels(), num_classes)?;
        let value = (!score.is_of_sums()).then(|| score.value(&sums, &predicted));
        Ok(Evaluated { sums, value })
    };
    let all: Vec<Evaluated> = inferred.sets().map(evaluated).collect::<Result<_>>()?;
    group.map_or(Ok(all.clone()), |group| group.scores_of_first(&all))
}

/// Inputs of sampled evaluation.
#[derive(Debug)]
pub(crate) struct Sampled<'a> {
    /// Builds a batching operator for each set of nodes.
    pub(crate) builder: OperatorBuilder<'a>,
    pub(crate) purpose: Purpose,
    pub(crate) route: &'a Route,
    /// Batching workers; with 0 the scoring thread batches.
    pub(crate) workers: usize,
    /// Threads of each worker.
    pub(crate) threads: usize,
    /// Limit of the process's memory in bytes; exceeding it is an error.
    pub(crate) memory: Option<u64>,
    pub(crate) transferring: &'a mut dyn Transferring,
    pub(crate) training: &'a mut dyn Training,
    /// The trainers that score a part of the mini-batches of each set each, and all have the sums; `None` scores all alone.
    pub(crate) group: Option<&'a Group>,
}

impl Sampled<'_> {
    /// Scores `sets` on sampled mini-batches.
    pub(crate) fn scores(&mut self, sets: &[&[u32]]) -> Result<Vec<Score>> {
        let scores: Vec<Score> = sets.iter().map(|set| self.score(set)).collect::<Result<_>>()?;
        self.group.map_or(Ok(scores.clone()), |group| group.sum_scores(&scores))
    }

    /// The share of a mini-batch of `set` that would exceed the memory, if there is one.
    pub(crate) fn admit(&mut self, set: &[u32], memory: MemoryLimit<'_>) -> Result<Option<Excess>> {
        let batching = self.batching(set)?;
        let batch_size = self.builder.config.sampler.batch_size.min(set.len());
        let training = &mut *self.training;
        admit(batching.as_ref(), self.transferring, batch_size, memory, |batch| {
            training.score(batch)?.wait()?;
            Ok(())
        })
    }

    fn batching(&self, set: &[u32]) -> Result<Box<dyn Batching>> {
        let (builder, route) = (self.builder, self.route);
        let seeds = SeedSet::new("nodes to evaluate", set, builder.dataset.num_nodes())?;
        let settings = SamplerSettings { shuffle: false, ..builder.config.sampler.clone() };
        let gather = builder.carries_features(route) && route.gathering == Phase::Batching;
        builder.batching_of(route, seeds, settings, gather, self.purpose)
    }

    /// The score of this trainer's part of a set's mini-batches.
    fn score(&mut self, set: &[u32]) -> Result<Score> {
        if set.is_empty() {
            return Ok(Score::default());
        }
        let batching = self.batching(set)?;
        let settings = PoolSettings { threads_per_worker: self.threads, ..PoolSettings::ahead(self.workers) };
        let mut pool = Pool::new(&self.route.batching, batching.as_ref(), settings)?;
        let (part, parts) = self.group.map_or((0, 1), |group| (group.rank(), group.size()));
        let cut = |at: usize| (pool.num_batches() as usize * at / parts) as u32;
        let batches = cut(part)..cut(part + 1);
        let transfer = (&self.route.transferring, &mut *self.transferring as &mut dyn Transferring);
        let (training, memory, process) = (&mut *self.training, self.memory, self.builder.context.memory());
        let mut consume = |batch: &_| {
            let (score, _) = training.score(batch)?.wait()?;
            let peak = process.peak();
            let Some(limit) = memory.filter(|&limit| peak > limit) else { return Ok(score) };
            let (limit, peak, cure) = (limit >> 20, peak >> 20, "make them smaller (batch size, fanouts)");
            let what = format!("{limit} MiB are allowed, and mini-batches take the process to {peak}; {cure}");
            Err(Error::setting("memory", what))
        };
        let report = prepare(&mut pool, Some(transfer), 0, batches, &Stop::new(), &mut consume)?;
        Ok(report.score)
    }
}
