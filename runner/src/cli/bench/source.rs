//! Mini-batches to measure: the options of their source, a batching operator, and counts.

use std::ops::AddAssign;
use std::sync::Arc;

use anyhow::{Context, Result};
use morphgl_graph_store::Dataset;
use morphgl_model_core::{ModelKind, ModelSpec, Task};
use morphgl_registry::{BatchId, Batching, MiniBatch, Phase, Route};
use serde_json::{Value, json};

use super::measurement::Measurement;
use super::{Amount, Timed, timed};
use crate::build::job_routes;
use crate::cli::show::Show;
use crate::session::options::batch::MiniBatches;
use crate::session::{BatchOptions, DataOptions, PairOptions, data};
use crate::task::{Examples, Learned, dataset_for};
use crate::{JobConfig, OperatorBuilder, RunContext, Stop, TrainingSpec, median};

/// The options of a measurement of batching, without a model.
#[derive(Debug, clap::Args)]
pub(super) struct SourceArgs {
    #[command(flatten)]
    data: DataOptions,
    #[command(flatten)]
    batch: BatchOptions,
    /// What mini-batches are for: a task of nodes, or link: pairs, from the graph's edges where the dataset names none
    #[arg(help_heading = "Task", long, default_value = "classify")]
    task: Task,
    #[command(flatten)]
    pairs: PairOptions,
    #[command(flatten)]
    pub(super) amount: Amount,
    /// All threads work on one mini-batch at a time, instead of each thread on its own
    #[arg(help_heading = "Measurement", long)]
    pub(super) within: bool,
}

/// A batching operator of the route with the fewest resources.
pub(super) struct Source {
    pub(super) context: RunContext,
    pub(super) dataset: Arc<Dataset>,
    pub(super) config: JobConfig,
    pub(super) route: Route,
    pub(super) batching: Box<dyn Batching>,
    pub(super) threads: usize,
}

impl Source {
    /// Opens the dataset and builds the operator for its training nodes or pairs; the default fanouts are those of three layers.
    pub(super) fn open(args: &SourceArgs, gather: bool, context: &RunContext) -> Result<Self> {
        let examples = if args.task == Task::Link { Examples::Links } else { Examples::Nodes };
        args.pairs.check(examples)?;
        let batch = MiniBatches::by(&args.batch, ModelKind::Sage).resolve(context)?;
        let learned = Learned { examples, kind: ModelKind::Sage, edge_features: false, relations: false };
        let dataset = dataset_for(learned, data::Source::of(&args.data, None).open(context)?, context)?;
        let model = ModelSpec::new(ModelKind::Sage, dataset.feature_dim(), dataset.num_classes);
        let model = ModelSpec { task: args.task, ..model };
        let config = batch.of(&dataset).job(TrainingSpec { model, optimizer: Default::default() });
        let config = JobConfig { pairs: args.pairs.of(examples, &dataset), ..config };
        let registry = context.registry();
        let routes = job_routes(registry, &config, &dataset)?;
        let route = routes.into_iter().min_by_key(|r| r.batching.hardware.resources().len()).context("no route")?;
        let builder = OperatorBuilder { dataset: &dataset, config: &config, context };
        let batching = builder.batching(&route, gather && route.gathering == Phase::Batching)?;
        let threads = config.num_threads(registry);
        Ok(Self { context: context.clone(), dataset, config, route, batching, threads })
    }

    /// Mini-batches of one epoch.
    pub(super) fn num_batches(&self) -> u32 {
        u32::try_from(self.batching.num_batches()).unwrap_or(u32::MAX)
    }

    /// Measures `make`, which makes the first mini-batches of a sequence. None is made twice: every repeat has epochs of its
    /// own, and so has the warm-up of at least `min_warm_up` mini-batches.
    pub(super) fn measure(
        &self,
        what: &'static str,
        args: &SourceArgs,
        min_warm_up: usize,
        show: Show,
        mut make: impl FnMut(BatchSequence, u32, &Stop) -> Result<BatchCounts>,
    ) -> Result<(Measurement, Timed<BatchCounts>)> {
        let (batches_per_epoch, stop) = (self.num_batches(), self.context.heed_stop());
        let count = args.amount.batches.unwrap_or(batches_per_epoch);
        let repeats = args.amount.repeats;
        let sequence = |repeat| BatchSequence::of_repeat(batches_per_epoch, repeat, count);
        make(sequence(repeats), args.amount.warm_up(min_warm_up), &stop)?;
        let timed = timed(0..repeats, show, &stop, |repeat| make(sequence(repeat), count, &stop))?;
        let edges_per_s = timed.map(|seconds, counts| counts.edges as f64 / seconds);
        let counts = timed.runs[0].1;
        let mode = if args.within { "one worker, threads inside" } else { "a worker per thread" };
        let measurement = Measurement {
            what,
            data: self.dataset.name.clone(),
            threads: self.threads,
            unit: "batches/s",
            values: timed.map(|seconds, counts| counts.batches as f64 / seconds),
            load: timed.load,
            details: String::new(),
            fields: vec![
                json!({
                    "mode": mode, "batching": self.route.batching.to_string(), "batches": counts.batches,
                    "edges_per_s": median(&edges_per_s), "edges_per_batch": counts.mean(counts.edges),
                    "input_nodes_per_batch": counts.mean(counts.nodes),
                }),
                settings(&self.config),
            ],
            settings: format!("{mode}, {}", settings_in_words(&self.config)),
            other_units: vec![("edges/s", edges_per_s)],
        };
        Ok((measurement, timed))
    }
}

/// Mini-batches by number, across the ends of epochs.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchSequence {
    pub(super) first_epoch: u32,
    pub(super) batches_per_epoch: u32,
}

impl BatchSequence {
    pub(super) fn id(self, number: u32) -> BatchId {
        let (epochs, index) = (number / self.batches_per_epoch, number % self.batches_per_epoch);
        BatchId { epoch: self.first_epoch + epochs, index }
    }

    /// The sequence of a repeat of `count` mini-batches.
    fn of_repeat(batches_per_epoch: u32, repeat: u32, count: u32) -> Self {
        Self { first_epoch: repeat * count.div_ceil(batches_per_epoch), batches_per_epoch }
    }
}

/// Mini-batches, and their edges and input nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct BatchCounts {
    pub(super) batches: u64,
    pub(super) edges: u64,
    pub(super) nodes: u64,
}

impl BatchCounts {
    /// Counts a mini-batch; one on a device is copied to be counted.
    pub(super) fn add(&mut self, batch: &MiniBatch) -> Result<()> {
        let batch = batch.to_host()?;
        *self += Self { batches: 1, edges: batch.num_edges() as u64, nodes: batch.input_nodes.len() as u64 };
        Ok(())
    }

    /// A count divided by the number of mini-batches.
    pub(super) fn mean(self, count: u64) -> f64 {
        count as f64 / self.batches.max(1) as f64
    }
}

impl AddAssign for BatchCounts {
    fn add_assign(&mut self, other: Self) {
        self.batches += other.batches;
        self.edges += other.edges;
        self.nodes += other.nodes;
    }
}

/// The sampler's settings, and those of pairs, as fields of the document.
pub(super) fn settings(config: &JobConfig) -> Value {
    let mut settings = json!(&config.sampler.sampling);
    settings["batch_size"] = config.sampler.batch_size.into();
    if let Some(pairs) = config.pairs {
        settings["pairs"] = json!(pairs);
    }
    settings
}

/// The sampler's settings in words.
pub(super) fn settings_in_words(config: &JobConfig) -> String {
    let (sampling, size) = (&config.sampler.sampling, config.sampler.batch_size);
    match config.pairs {
        Some(pairs) => format!("{sampling}, {size} pairs per mini-batch, {} negatives of each", pairs.negatives),
        None => format!("{sampling}, {size} seeds per mini-batch"),
    }
}

#[cfg(test)]
mod tests;
