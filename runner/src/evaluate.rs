//! Evaluation: with all neighbours, layer by layer; or on sampled mini-batches.

use std::ops::Range;

use anyhow::Result;
use morphgl_execute::{Pool, PoolSettings, Stop, prepare};
use morphgl_graph_store::Dataset;
use morphgl_model_core::{Confusion, ModelSpec, ScoreKind, Task};
use morphgl_profile::MemoryLimit;
use morphgl_registry::{Batching, Error, MiniBatch, Phase, Route, SamplerSettings, Score, Training, Transferring};
use serde::{Deserialize, Serialize};

use crate::admission::{Excess, admit};
use crate::budget::Purpose;
use crate::build::OperatorBuilder;
use crate::evaluated::Scored;
use crate::links::Embed;
use crate::task::{NodeTargets, Split};
use crate::usage::Usage;
use crate::{Evaluated, Group, edges, examples, links};

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
    /// Whether it keeps the outputs of a split, which scores other than of sums read: with all neighbours; on mini-batches of pairs, and of rows
    /// of a task.
    pub(crate) fn keeps_outputs(self, model: &ModelSpec, dataset: &Dataset) -> bool {
        match self {
            Self::Full => true,
            Self::Sampled => model.learns_pairs() || examples::are_rows(dataset),
            Self::None => false,
        }
    }

    /// Refuses a score that the task does not have, full evaluation of a task's rows (which are nodes at times), and on sampled mini-batches
    /// a score that needs the outputs of all nodes at once.
    pub(crate) fn check(self, score: ScoreKind, model: &ModelSpec, dataset: &Dataset) -> Result<()> {
        let task = model.task;
        score.check(task).map_err(|e| Usage::error(format!("--{e}")))?;
        if self == Evaluation::Full && examples::are_rows(dataset) {
            let why = "rows of a task are scored within their times, which all neighbours are not";
            return Err(Usage::error(format!("--evaluation full: {why}; use --evaluation sampled or none")));
        }
        if self == Evaluation::Sampled && links::any_filtered(&[score]) {
            return Err(Usage::error(format!(
                "--score {score}: it ranks among all nodes, of which --evaluation sampled embeds the ends of pairs alone; \
                 use --evaluation full, with more --memory if need be, or score by mrr or hits@K"
            )));
        }
        // Where nothing is evaluated, nobody has asked for the task's usual score.
        let unread = self == Evaluation::None && score == ScoreKind::usual(task);
        if self == Evaluation::Full || score.is_of_sums() || unread || self.keeps_outputs(model, dataset) {
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
    if model.learns_pairs() {
        let mut embed = |training: &mut dyn Training, nodes: &[u32]| links::infer(training, nodes, group);
        return scored_pairs(training, dataset, model, splits, &mut embed, kinds);
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

/// Scores splits of links or labelled edges by the embeddings of the ends of their pairs.
fn scored_pairs(
    training: &mut dyn Training,
    dataset: &Dataset,
    model: &ModelSpec,
    splits: &[Split],
    embed: Embed<'_>,
    kinds: &[ScoreKind],
) -> Result<Vec<Scored>> {
    match model.task {
        Task::Link => links::scored(training, dataset, model, splits, embed, kinds),
        _ => edges::scored(training, dataset, model, splits, embed, kinds),
    }
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
    let scores = of_first(&all, group, score)?;
    let last = all.iter().rposition(|scored| scored.sums.count > 0);
    Ok((scores, last.and_then(|last| all.swap_remove(last).confusion)))
}

/// The sums of splits, and the value of `score`; with a `group`, those of its rank 0.
fn of_first(all: &[Scored], group: Option<&Group>, score: ScoreKind) -> Result<Vec<Evaluated>> {
    let evaluated = |scored: &Scored| {
        let value = (!score.is_of_sums()).then(|| scored.values[0]);
        Evaluated { sums: scored.sums, value }
    };
    let scores: Vec<Evaluated> = all.iter().map(evaluated).collect();
    group.map_or(Ok(scores.clone()), |group| group.scores_of_first(&scores))
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

    /// Scores splits of links or labelled edges: each end of their pairs is embedded by a sampled mini-batch that has it as a seed.
    pub(crate) fn scored_pairs(&mut self, splits: &[Split], kinds: &[ScoreKind]) -> Result<Vec<Scored>> {
        let (dataset, model) = (self.builder.dataset, &self.builder.config.spec.model);
        let Self { builder, purpose, route, workers, threads, memory, group, .. } = *self;
        let transferring = &mut *self.transferring;
        let mut embed = |training: &mut dyn Training, nodes: &[u32]| {
            let transferring = &mut *transferring;
            Sampled { builder, purpose, route, workers, threads, memory, transferring, training, group }.outputs(nodes)
        };
        scored_pairs(self.training, dataset, model, splits, &mut embed, kinds)
    }

    /// Scores splits of rows of a task by the outputs of mini-batches within their times.
    pub(crate) fn scored_rows(&mut self, splits: &[Split], kinds: &[ScoreKind]) -> Result<Vec<Scored>> {
        let (dataset, model) = (self.builder.dataset, &self.builder.config.spec.model);
        let width = model.num_classes;
        let mut scored = Vec::new();
        for split in splits {
            let rows = split.nodes(dataset);
            let (targets, outputs) = (NodeTargets::of(dataset, model.task, rows)?, self.outputs(rows)?);
            let predicted = targets.predicted(&outputs, (0, rows.len()), width);
            let sums = self.training.score_logits(predicted.logits(), predicted.targets(), width)?;
            scored.push(Scored::of(sums, &predicted, model.task, kinds));
        }
        Ok(scored)
    }

    /// What training keeps of validation and test: of pairs as [`Sampled::scored_pairs`], of rows as [`Sampled::scored_rows`].
    pub(crate) fn kept(&mut self, score: ScoreKind) -> Result<(Vec<Evaluated>, Option<Confusion>)> {
        let splits = [Split::Valid, Split::Test];
        let mut all = match self.builder.config.spec.model.learns_pairs() {
            true => self.scored_pairs(&splits, &[score])?,
            false => self.scored_rows(&splits, &[score])?,
        };
        let scores = of_first(&all, self.group, score)?;
        let last = all.iter().rposition(|scored| scored.sums.count > 0);
        Ok((scores, last.and_then(|last| all.swap_remove(last).confusion)))
    }

    /// Outputs of examples, `[examples, width]`; with a group, each trainer computes those of its part of the mini-batches.
    pub(crate) fn outputs(&mut self, nodes: &[u32]) -> Result<Vec<f32>> {
        if nodes.is_empty() {
            return Ok(Vec::new());
        }
        let (width, batch_size) = (self.builder.config.spec.model.num_classes, self.builder.config.sampler.batch_size);
        let mut own = Vec::new();
        let parts = self.each(nodes, &mut |training, batch| {
            let (outputs, _) = training.outputs(batch)?.wait()?;
            assert_eq!(outputs.len(), batch.num_seeds() * width, "outputs of {}", batch.id());
            own.extend_from_slice(&outputs);
            Ok(Score::default())
        })?;
        let Some(group) = self.group else { return Ok(own) };
        let position = |batch: u32| (batch as usize * batch_size).min(nodes.len()) * width;
        let parts: Vec<Range<usize>> = parts.0.iter().map(|part| position(part.start)..position(part.end)).collect();
        let mut rows = vec![0.0; nodes.len() * width];
        rows[parts[group.rank()].clone()].copy_from_slice(&own);
        group.gather_rows(&mut rows, &parts)?;
        Ok(rows)
    }

    /// The share of a mini-batch of `set` that would exceed the memory, if there is one.
    pub(crate) fn admit(&mut self, set: &[u32], memory: MemoryLimit<'_>) -> Result<Option<Excess>> {
        let batching = self.batching(set)?;
        let batch_size = self.builder.config.sampler.batch_size.min(set.len());
        let learns_pairs = self.builder.config.spec.model.learns_pairs();
        let training = &mut *self.training;
        admit(batching.as_ref(), self.transferring, batch_size, memory, |batch| {
            match learns_pairs {
                true => drop(training.outputs(batch)?.wait()?),
                false => drop(training.score(batch)?.wait()?),
            }
            Ok(())
        })
    }

    fn batching(&self, set: &[u32]) -> Result<Box<dyn Batching>> {
        let (builder, route) = (self.builder, self.route);
        let what = format!("{}s to evaluate", examples::noun(builder.dataset));
        let seeds = examples::seeds(&what, set, builder.dataset)?;
        let settings = SamplerSettings { shuffle: false, ..builder.config.sampler.clone() };
        let gather = builder.carries_features(route) && route.gathering == Phase::Batching;
        builder.batching_of(route, seeds, settings, gather, self.purpose)
    }

    /// The score of this trainer's part of a set's mini-batches.
    fn score(&mut self, set: &[u32]) -> Result<Score> {
        if set.is_empty() {
            return Ok(Score::default());
        }
        Ok(self.each(set, &mut |training, batch| Ok(training.score(batch)?.wait()?.0))?.1)
    }

    /// Hands this trainer's part of a set's mini-batches to `consume`, in order. Returns the parts of all trainers, by rank, and the sum
    /// of what it returns.
    fn each(
        &mut self,
        set: &[u32],
        consume: &mut dyn FnMut(&mut dyn Training, &MiniBatch) -> morphgl_registry::Result<Score>,
    ) -> Result<(Vec<Range<u32>>, Score)> {
        let batching = self.batching(set)?;
        let settings = PoolSettings { threads_per_worker: self.threads, ..PoolSettings::ahead(self.workers) };
        let mut pool = Pool::new(&self.route.batching, batching.as_ref(), settings)?;
        let (part, parts) = self.group.map_or((0, 1), |group| (group.rank(), group.size()));
        let cut = |at: usize| (pool.num_batches() as usize * at / parts) as u32;
        let all: Vec<Range<u32>> = (0..parts).map(|part| cut(part)..cut(part + 1)).collect();
        let batches = all[part].clone();
        let transfer = (&self.route.transferring, &mut *self.transferring as &mut dyn Transferring);
        let (training, memory, process) = (&mut *self.training, self.memory, self.builder.context.memory());
        let mut consume = |batch: &_| {
            let score = consume(&mut *training, batch)?;
            let peak = process.peak();
            let Some(limit) = memory.filter(|&limit| peak > limit) else { return Ok(score) };
            let (limit, peak, cure) = (limit >> 20, peak >> 20, "make them smaller (batch size, fanouts)");
            let what = format!("{limit} MiB are allowed, and mini-batches take the process to {peak}; {cure}");
            Err(Error::setting("memory", what))
        };
        let report = prepare(&mut pool, Some(transfer), 0, batches, &Stop::new(), &mut consume)?;
        Ok((all, report.score))
    }
}
