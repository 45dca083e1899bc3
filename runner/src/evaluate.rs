//! Evaluation: with all neighbours, layer by layer; or on sampled mini-batches.

use anyhow::Result;
use morphgl_execute::{Pool, PoolSettings, Stop, prepare};
use morphgl_graph_store::Dataset;
use morphgl_model_core::{Confusion, ModelSpec, ScoreKind, Task};
use morphgl_profile::MemoryLimit;
use morphgl_registry::{Batching, Error, Phase, Route, SamplerSettings, Score, SeedSet, Training, Transferring};
use serde::{Deserialize, Serialize};

use crate::admission::{Excess, admit};
use crate::budget::Purpose;
use crate::build::OperatorBuilder;
use crate::evaluated::Scored;
use crate::task::{NodeTargets, Split};
use crate::usage::Usage;
use crate::{Evaluated, Group, edges, links};

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
    /// Refuses a score that is none of the task's, one that needs the outputs of all nodes at once where mini-batches are scored, and
    /// links and edges there.
    pub(crate) fn check(self, score: ScoreKind, model: &ModelSpec) -> Result<()> {
        let task = model.task;
        score.check(task).map_err(|e| Usage::error(format!("--{e}")))?;
        if self == Evaluation::Sampled && model.learns_pairs() {
            let cure = "use --evaluation full, with more --memory if need be, or none";
            let what = if model.learns_edges() { "edges" } else { "links" };
            return Err(Usage::error(format!(
                "--evaluation sampled: {what} are scored by the embeddings of whole neighbourhoods; {cure}"
            )));
        }
        // Where nothing is evaluated, nobody has asked for the task's usual score.
        let unread = self == Evaluation::None && score == ScoreKind::usual(task);
        if self == Evaluation::Full || score.is_of_sums() || unread {
            return Ok(());
        }
        let why = "it is computed of the logits of all nodes, which evaluation on sampled mini-batches does not keep";
        Err(Usage::error(format!(
            "--score {score}: {why}; use --evaluation full, with more --memory if need be, or --score accuracy or loss"
        )))
    }
}

/// Scores splits with all neighbours, in one pass over the graph; with a `group`, each of its trainers computes a part.
pub(crate) fn scored(
    training: &mut dyn Training,
    dataset: &Dataset,
    model: &ModelSpec,
    splits: &[Split],
    group: Option<&Group>,
    kinds: &[ScoreKind],
) -> Result<Vec<Scored>> {
    if model.task == Task::Link {
        return links::scored(training, dataset, model, splits, group, kinds);
    }
    if model.learns_edges() {
        return edges::scored(training, dataset, model, splits, group, kinds);
    }
    let sets: Vec<&[u32]> = splits.iter().map(|split| split.nodes(dataset)).collect();
    let nodes = sets.concat();
    let targets = NodeTargets::of(dataset, model.task, &nodes)?;
    let outputs = match group {
        _ if nodes.is_empty() => Vec::new(),
        None => training.infer(&nodes)?,
        Some(group) => group.infer(training, &nodes)?,
    };
    let (mut first, mut scored) = (0, Vec::new());
    for set in sets {
        let predicted = targets.predicted(&outputs, (first, first + set.len()), model.num_classes);
        first += set.len();
        let sums = training.score_logits(predicted.logits(), predicted.targets(), model.num_classes)?;
        scored.push(Scored::of(sums, &predicted, model.task, kinds));
    }
    Ok(scored)
}

/// Scores validation and test with all neighbours, in one pass over the graph; with a `group`, each of its trainers computes a part of
/// it, and all have the scores of its rank 0. Of classes also how those of the test nodes are predicted, or of the validation nodes
/// where no test node has a label.
///
/// # Errors
///
/// The training operator's own, and those of the group.
pub fn full(
    training: &mut dyn Training,
    dataset: &Dataset,
    model: &ModelSpec,
    group: Option<&Group>,
    score: ScoreKind,
) -> Result<(Vec<Evaluated>, Option<Confusion>)> {
    let mut all = scored(training, dataset, model, &[Split::Valid, Split::Test], group, &[score])?;
    let evaluated = |scored: &Scored| {
        let value = (!score.is_of_sums()).then(|| scored.values[0]);
        Evaluated { sums: scored.sums, value }
    };
    let scores: Vec<Evaluated> = all.iter().map(evaluated).collect();
    let scores = group.map_or(Ok(scores.clone()), |group| group.scores_of_first(&scores))?;
    let last = all.iter().rposition(|scored| scored.sums.count > 0);
    Ok((scores, last.and_then(|last| all.swap_remove(last).confusion)))
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
