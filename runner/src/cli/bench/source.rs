//! A batching operator, its mini-batches by number, and what was counted of them.

use std::ops::AddAssign;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use morphgl_graph_store::Dataset;
use morphgl_model_spec::{ModelKind, ModelSpec, OptimizerSpec};
use morphgl_registry::{
    BatchId, Batching, BatchingContext, Expansion, FeatureFill, HostBatch, MiniBatch, Route, SamplerSettings, SeedSet,
};
use serde_json::Value;

use super::Amount;
use crate::cli::batch::BatchArgs;
use crate::cli::data::DataArgs;
use crate::cli::planned;
use crate::cli::show::Show;
use crate::{JobConfig, TrainingSpec, registry, routes};

/// The mini-batches of a measurement without a model.
#[derive(Debug, clap::Args)]
pub(super) struct MadeArgs {
    #[command(flatten)]
    data: DataArgs,
    #[command(flatten)]
    batch: BatchArgs,
    #[command(flatten)]
    pub(super) amount: Amount,
}

impl MadeArgs {
    /// Opens the dataset, and says how mini-batches are made of it: by three layers' fanouts unless others are asked for.
    pub(super) fn open(&self, show: Show) -> Result<(Arc<Dataset>, JobConfig)> {
        self.batch.limit_threads()?;
        let dataset = self.data.open(show)?;
        let model = ModelSpec::new(ModelKind::Sage, dataset.feature_dim(), dataset.num_classes);
        let config = planned::with_spec(TrainingSpec { model, optimizer: OptimizerSpec::default() }, &self.batch)?;
        Ok((dataset, config))
    }
}

/// What a dataset is called in errors: its directory, where it has one.
pub(super) fn name(dataset: &Dataset) -> String {
    let path = &dataset.path;
    if path.as_os_str().is_empty() { dataset.name.clone() } else { path.display().to_string() }
}

/// The batching operator of the plainest route that has the operators asked for.
pub(super) struct Source {
    pub(super) route: Route,
    pub(super) batching: Box<dyn Batching>,
    pub(super) threads: usize,
}

impl Source {
    /// Builds it for the dataset's training nodes; `gather` says whether it gathers features, where it runs on the host.
    ///
    /// # Errors
    ///
    /// No such route, or what the operator refuses.
    pub(super) fn new(dataset: &Arc<Dataset>, config: &JobConfig, gather: bool) -> Result<Self> {
        let registry = registry()?;
        // The first of those that hold the fewest resources: the plainest way to batch a dataset in memory.
        let found = routes(&registry, &config.operators)?.into_iter();
        let plainest = found.min_by_key(|r| r.batching.hardware.resources().len());
        let route = plainest.context("no route: `morphgl ops` lists operators and routes")?;
        let name = name(dataset);
        let seeds =
            SeedSet::new("train split", &dataset.splits.train, dataset.num_nodes()).with_context(|| name.clone())?;
        if gather && dataset.features.is_none() {
            bail!("{name}: the dataset has no features to gather; import it with --random-features DIM");
        }
        let context = BatchingContext {
            dataset: Arc::clone(dataset),
            seeds,
            settings: config.sampler.clone(),
            gather: gather && registry.get(&route.batching)?.features != FeatureFill::Never,
            place: route.batched_at.clone(),
            options: Value::Null,
        };
        let batching = registry.batching(&route.batching, &context)?;
        let threads = config.threads.unwrap_or(registry.machine().cores).max(1);
        Ok(Self { route, batching, threads })
    }

    /// Mini-batches of one epoch.
    pub(super) fn num_batches(&self) -> u32 {
        u32::try_from(self.batching.num_batches()).unwrap_or(u32::MAX)
    }
}

/// Mini-batches by number, over the ends of epochs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbered {
    /// Epoch of number 0.
    pub(super) epoch: u32,
    /// Mini-batches of an epoch.
    pub(super) num_batches: u32,
}

impl Numbered {
    pub(super) fn id(self, number: u32) -> BatchId {
        BatchId { epoch: self.epoch + number / self.num_batches, index: number % self.num_batches }
    }

    /// The first of as many epochs for every repeat that `count` mini-batches need, so that none is made twice.
    pub(super) fn of_repeat(num_batches: u32, repeat: u32, count: u32) -> Self {
        Self { epoch: repeat * count.div_ceil(num_batches), num_batches }
    }
}

/// What was made.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Counts {
    pub(super) batches: u64,
    pub(super) edges: u64,
    pub(super) nodes: u64,
}

impl Counts {
    /// Counts a mini-batch; one on a device is copied to be counted.
    pub(super) fn add(&mut self, batch: &MiniBatch) -> Result<()> {
        match batch {
            MiniBatch::Host(batch) => self.add_host(batch),
            MiniBatch::Device(batch) => self.add_host(&batch.to_host()?),
        }
        Ok(())
    }

    fn add_host(&mut self, batch: &HostBatch) {
        *self += Self { batches: 1, edges: batch.num_edges() as u64, nodes: batch.input_nodes.len() as u64 };
    }

    /// A count over that of mini-batches.
    pub(super) fn mean(self, count: u64) -> f64 {
        count as f64 / self.batches.max(1) as f64
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.batches += other.batches;
        self.edges += other.edges;
        self.nodes += other.nodes;
    }
}

/// The sampler's settings as fields of the document.
pub(super) fn settings(sampler: &SamplerSettings) -> Value {
    let expansion = match sampler.expansion {
        Expansion::All => "all",
        Expansion::New => "new",
    };
    serde_json::json!({ "fanouts": sampler.fanouts.to_string(), "batch_size": sampler.batch_size, "expansion": expansion })
}

/// The same in words.
pub(super) fn in_words(sampler: &SamplerSettings) -> String {
    let expansion = match sampler.expansion {
        Expansion::All => "all nodes found",
        Expansion::New => "the newly found nodes",
    };
    format!("fanouts {}, {} seeds a mini-batch, expanding {expansion}", sampler.fanouts, sampler.batch_size)
}

#[cfg(test)]
mod tests;
