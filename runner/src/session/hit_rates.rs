//! Accesses of a training's mini-batches, and the scores of the policies by which static caches are filled.

pub(crate) mod lists;
mod replay;
pub(crate) mod rows;

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use morphgl_graph_store::Dataset;
use morphgl_hotness::{Hindsight, Hotness, Policy, PolicyKind};
use morphgl_model_core::{ModelKind, ModelSpec};
use morphgl_registry::{Batching, SamplerSettings};

use super::data::Source;
use super::options::batch::MiniBatches;
use super::options::{BatchOptions, DataOptions};
use super::run_dir::Configured;
use crate::{JobConfig, OperatorBuilder, RunContext, TrainingSpec, examples, routes};

/// A dataset, and the batching operator whose accesses are counted.
#[derive(Debug)]
pub struct Sampled {
    /// The dataset.
    pub dataset: Arc<Dataset>,
    /// How mini-batches are sampled.
    pub settings: SamplerSettings,
    batching: Box<dyn Batching>,
    threads: usize,
}

/// The accesses of an epoch, on average, and the time that sampling one takes.
#[derive(Debug, Clone)]
pub struct Counted {
    /// Accesses of each node's features and adjacency list.
    pub hotness: Hotness,
    /// Epochs that were counted.
    pub epochs: u32,
    /// Seconds of sampling an epoch.
    pub seconds: f64,
}

impl Sampled {
    /// The accesses of a training by these options, on the dataset that they name or `given`.
    ///
    /// # Errors
    ///
    /// A dataset that cannot be opened, options that do not fit it, or no operator that samples so.
    pub fn new(
        context: &RunContext,
        (data, batch): (&DataOptions, &BatchOptions),
        given: Option<&Arc<Dataset>>,
    ) -> Result<Self> {
        let batch = MiniBatches::by(batch, ModelKind::Sage);
        let resolved = batch.resolve(context)?;
        let dataset = Source::of(data, given).open(context)?;
        let model = ModelSpec::new(ModelKind::Sage, dataset.feature_dim(), dataset.num_classes);
        let model = ModelSpec { layers: batch.num_layers(), ..model };
        batch.of(&dataset).check_sampling(&model)?;
        let config = resolved.of(&dataset).job(TrainingSpec { model, optimizer: Default::default() });
        Self::of(context, dataset, config)
    }

    /// The accesses of the run in this directory. Its operators are not needed: any makes the same mini-batches.
    ///
    /// # Errors
    ///
    /// As [`Sampled::new`], and a directory without a run.
    pub fn of_run(context: &RunContext, dir: &Path, batch: &BatchOptions) -> Result<Self> {
        MiniBatches::by(batch, ModelKind::Sage).resolve(context)?;
        let Configured { dataset, job, .. } = Configured::read(dir)?;
        // What was left on disk is larger than memory.
        let mmap = job.disk_bytes.is_some();
        let dataset = Source::of(&DataOptions { dataset, mmap, no_verify: mmap }, None).open(context)?;
        let config = JobConfig { sampler: job.sampler, threads: batch.threads, ..JobConfig::new(job.spec) };
        Self::of(context, dataset, config)
    }

    /// The accesses of a sampler's epochs on this dataset, with the first route's operator.
    ///
    /// # Errors
    ///
    /// Settings that do not fit the dataset, or no operator that samples so.
    pub(crate) fn by(context: &RunContext, dataset: Arc<Dataset>, sampler: SamplerSettings) -> Result<Self> {
        let model = ModelSpec::new(ModelKind::Sage, dataset.feature_dim(), dataset.num_classes);
        let model = ModelSpec { layers: sampler.sampling.num_layers(), ..model };
        let config = JobConfig { sampler, ..JobConfig::new(TrainingSpec { model, optimizer: Default::default() }) };
        Self::of(context, dataset, config)
    }

    /// The operator, which gathers no features.
    pub(crate) fn batching(&self) -> &dyn Batching {
        self.batching.as_ref()
    }

    fn of(context: &RunContext, dataset: Arc<Dataset>, config: JobConfig) -> Result<Self> {
        let registry = context.registry();
        let routes = routes(registry, &config.operators, config.sampler.sampling.kind())?;
        let route = routes.into_iter().min_by_key(|r| r.batching.hardware.resources().len()).context("no route")?;
        let builder = OperatorBuilder { dataset: &dataset, config: &config, context };
        let batching = builder.batching(&route, false)?;
        let threads = config.num_threads(registry);
        Ok(Self { dataset, settings: config.sampler, batching, threads })
    }

    /// Counts the accesses of so many epochs.
    ///
    /// # Errors
    ///
    /// A mini-batch that cannot be sampled.
    pub fn count(&self, epochs: NonZeroU32) -> Result<Counted> {
        let (begun, epochs) = (Instant::now(), epochs.get());
        let policy = Hindsight { batching: self.batching.as_ref(), epochs: 0..epochs, threads: self.threads };
        let seeds = examples::nodes(&self.dataset.splits.train, &self.dataset);
        let hotness = policy.score(&self.dataset.topology, &seeds, &self.settings)?;
        Ok(Counted { hotness, epochs, seconds: begun.elapsed().as_secs_f64() / f64::from(epochs) })
    }

    /// The scores of a policy.
    ///
    /// # Errors
    ///
    /// A policy that counts the epochs of a training, or that the kind of sampling does not fit.
    pub fn score(&self, kind: PolicyKind) -> Result<Hotness> {
        let policy = kind.policy_of(self.settings.seed, self.batching.as_ref(), self.threads);
        let policy = policy.context("it counts the epochs of a training; name another policy")?;
        let seeds = examples::nodes(&self.dataset.splits.train, &self.dataset);
        Ok(policy.score(&self.dataset.topology, &seeds, &self.settings)?)
    }

    /// Number of rows that a share in percent is.
    pub fn rows(&self, percent: f64) -> usize {
        (self.dataset.num_nodes() as f64 * percent / 100.0).round() as usize
    }

    /// Bytes of a row of the matrix of all nodes; 0 without one.
    pub fn row_bytes(&self) -> u64 {
        self.dataset.features.as_ref().map_or(0, |features| features.row_bytes() as u64)
    }
}
