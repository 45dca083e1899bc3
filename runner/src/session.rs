//! Training as a library: a [`Session`] opens a dataset, measures, plans, trains and resumes; [`Trained`] evaluates and predicts.
//!
//! The command line and the Python package are made of these; whatever they can do, a program can.

pub(crate) mod choices;
pub(crate) mod data;
pub(crate) mod durations;
pub(crate) mod hit_rates;
pub(crate) mod machine;
pub(crate) mod measure;
pub(crate) mod modes;
pub(crate) mod options;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod run_dir;
pub(crate) mod systems;
pub(crate) mod trained;
pub(crate) mod trainers;
pub(crate) mod what_if;

use std::path::Path;
use std::sync::Arc;

use morphgl_graph_store::Dataset;

pub use self::hit_rates::{Counted, Sampled};
pub use self::measure::Measured;
pub use self::options::{
    BatchOptions, DataOptions, LimitOptions, ModelOptions, On, OptimizerOptions, PairOptions, PlanChoice,
    PlanningOptions, SessionConfig, StalenessOptions, TaskOptions, TrainingOptions,
};
pub use self::run::RunResult;
pub use self::run_dir::checkpoints::Every;
pub use self::trained::{
    Embeddings, InferenceConfig, PairScores, Partners, Predicted, Predictions, Scores, SplitScore, Trained,
};
pub use crate::values::Cache;

use self::data::Source;
use self::measure::{Planned, Wanted};
use self::options::batch::MiniBatches;
use self::run_dir::Configured;
use self::systems::Applied;
use crate::RunContext;
use crate::task::Learned;
use crate::usage::Usage;

/// A dataset and what is asked for, in a context. Sessions work beside each other in one process.
#[derive(Debug, Clone)]
pub struct Session {
    context: RunContext,
    config: SessionConfig,
    /// A dataset in memory, used instead of the directory that the configuration names.
    given: Option<Arc<Dataset>>,
    /// The configuration of the run that this one takes after.
    like: Option<Box<Configured>>,
    /// Whether activities are recorded for another rank's run directory.
    records: bool,
}

impl Session {
    /// A session on the dataset that `config` names.
    pub fn new(context: RunContext, config: SessionConfig) -> Self {
        Self { context, config, given: None, like: None, records: false }
    }

    /// The same session on a dataset in memory. A run directory names the directory in the options, where there is one.
    pub fn on(self, dataset: Arc<Dataset>) -> Self {
        Self { given: Some(dataset), ..self }
    }

    /// The same session, which trains as a run did whose `config.toml` is this file: its model, mini-batches, seed, operators and
    /// length; on its dataset where none is given. Options of the sampler, the length and what is written replace the run's.
    ///
    /// # Errors
    ///
    /// A file that is no `config.toml` of a run.
    pub fn like(mut self, config_toml: &Path) -> anyhow::Result<Self> {
        let configured = Configured::read_file(config_toml)?;
        let SessionConfig { planning, training } = &mut self.config;
        let data = &mut planning.data;
        if data.dataset.is_none() && self.given.is_none() {
            data.dataset.clone_from(&configured.dataset);
            (data.mmap, data.no_verify) = (configured.mmap, configured.no_verify);
        }
        training.init = training.init.take().or_else(|| configured.init.clone());
        planning.batch.threads = planning.batch.threads.or(configured.job.threads);
        self.like = Some(Box::new(configured));
        self.batch().differences().iter().for_each(|how| self.context.remark(how));
        Ok(self)
    }

    /// Opens the dataset, builds the operators, measures every phase on this machine, and plans; one trainer at each place, all
    /// together, and devices with roles, of which the choice of plan may leave one.
    ///
    /// # Errors
    ///
    /// Options or a dataset that do not fit, too little memory, a failing operator; each names the option or file and the cure.
    pub fn plan(&self) -> anyhow::Result<Measured> {
        let (own, _) = self.here()?;
        let (dataset, config) = own.planned().open(&own.context)?;
        let is_of_several = |plan: &&PlanChoice| matches!(plan, PlanChoice::Factored | PlanChoice::Unified);
        let of_several = Some(&own.config.training.plan).filter(is_of_several);
        let split = own.config.planning.split.allowed(of_several, &own.context)?;
        let splits_group = own.splits_group(&own.context)?;
        let staleness = own.config.planning.split.of_gradients(&own.config.training.plan);
        let shares = Some(own.config.training.shares.unwrap_or_default());
        let (group, roles) = match own.config.training.plan {
            PlanChoice::Auto | PlanChoice::File(_) => (shares, config.operators.transferring.is_none()),
            PlanChoice::Unified => (shares, false),
            PlanChoice::Factored => (None, true),
            PlanChoice::Strategy(_) => (None, false),
        };
        let wanted = Wanted { evaluates: true, group, roles, staleness, split, splits_group, ..Wanted::default() };
        let config = crate::JobConfig { every_device: group.is_some() || roles, roles, ..config };
        own.planned().measure(&own.context, &dataset, config, wanted)
    }

    /// As [`Session::plan`], for one trainer alone, on the first device of each backend; and the links that devices share.
    ///
    /// # Errors
    ///
    /// As [`Session::plan`].
    pub fn measure(&self) -> anyhow::Result<Measured> {
        let (own, _) = self.here()?;
        let (dataset, config) = own.planned().open(&own.context)?;
        let wanted = Wanted { evaluates: true, links: true, ..Wanted::default() };
        own.planned().measure(&own.context, &dataset, config, wanted)
    }

    /// Measures, plans, trains and evaluates; again planned where durations change.
    ///
    /// # Errors
    ///
    /// As [`Session::plan`], and a run directory that cannot be written or holds a run.
    pub fn train(&self) -> anyhow::Result<RunResult> {
        let (own, applied) = self.here()?;
        if let Some(applied) = applied {
            self.context.line(format_args!("as {}: {}", applied.system.name, applied.options()));
            applied.left_out.iter().for_each(|what| self.context.remark(what));
        }
        run::train(&own.of_rank(false), None)
    }

    /// Goes on with the run in this directory from its last checkpoint, by its own options: the result is bit for bit that of
    /// training without interruption. Of the session's options the number of epochs, limits of time, checkpoints, and where the
    /// model is written count.
    ///
    /// # Errors
    ///
    /// A directory without a run, or another dataset than the run's; as [`Session::train`].
    pub fn resume(&self, dir: &Path) -> anyhow::Result<RunResult> {
        run::train(&self.on_machine_of(dir)?.of_rank(true), Some(dir))
    }

    /// The session on its machine, with the options of the system that it is to be like.
    ///
    /// # Errors
    ///
    /// A described machine, or a system, that does not exist or does not fit the other options.
    pub(crate) fn here(&self) -> anyhow::Result<(Self, Option<Applied>)> {
        let Some(name) = self.config.planning.as_system.as_deref() else { return Ok((self.on_its_machine()?, None)) };
        let system = systems::named(name)?;
        // What a described machine refuses depends on the plan.
        let mut own = self.clone();
        if own.config.training.plan == PlanChoice::Auto {
            own.config.training.plan = system.choice();
        }
        let own = own.on_its_machine()?;
        if self.like.is_some() || self.context.ranks().is_some() {
            return Err(Usage::error(format!(
                "--as {name}: neither with --config nor under MPI; leave one of the two out"
            )));
        }
        let mut config = own.config.clone();
        let applied = system.apply(&mut config, own.batch(), &own.context)?;
        Ok((Self { config, ..own }, Some(applied)))
    }

    /// The same session, like no system, and exact: a system that takes the bound on staleness is compared with itself by it.
    pub(crate) fn like_no_system(&self) -> Self {
        let mut own = self.clone();
        (own.config.planning.as_system, own.config.planning.split.allow_staleness) = (None, 0);
        own
    }

    /// The choice among plans.
    pub(crate) fn choice(&self) -> &PlanChoice {
        &self.config.training.plan
    }

    /// The part of this session that one rank of several does: a part of the threads and of the memory; rank 0 alone writes files.
    fn of_rank(&self, is_resumed: bool) -> Self {
        let mut own = self.clone();
        let Some(ranks) = self.context.ranks() else { return own };
        let SessionConfig { planning, training } = &mut own.config;
        planning.batch.threads = Some(ranks.threads(planning.batch.threads));
        planning.limits.memory = ranks.memory(planning.limits.memory);
        if !ranks.is_first() {
            own.records = is_resumed || training.run.is_some();
            (training.run, training.save, training.checkpoint_every) = (None, None, None);
        }
        own
    }

    /// Whether layers are split for the trainers of a group.
    ///
    /// # Errors
    ///
    /// Options of staleness that a group does not have.
    pub(crate) fn splits_group(&self, context: &RunContext) -> anyhow::Result<bool> {
        let of_group = Some(&self.config.training.plan).filter(|plan| **plan == PlanChoice::Unified);
        Ok(of_group.is_some() && self.config.planning.split.allowed(of_group, context)?.is_some())
    }

    fn source(&self) -> Source<'_> {
        // What other ranks hold is never read to this rank's memory.
        let divided = self.context.ranks().is_some() && self.config.training.shard.is_some();
        Source { divided, ..Source::of(&self.config.planning.data, self.given.as_ref()) }
    }

    fn batch(&self) -> MiniBatches<'_> {
        let run = self.like.as_ref().map(|configured| &configured.job.sampler);
        MiniBatches { run, ..MiniBatches::by(&self.config.planning.batch, self.config.planning.model.model) }
    }

    fn planned(&self) -> Planned<'_> {
        let options = &self.config.planning;
        let learned = options.model.learned();
        let learned = self.like.as_ref().map_or(learned, |configured| Learned {
            examples: learned.examples,
            ..Learned::of(&configured.job.spec.model)
        });
        // With roles gradients are stale, and no layers are split.
        let splits_layers = options.split.allow_staleness > 0 && self.config.training.plan != PlanChoice::Factored;
        Planned { options, source: self.source(), batch: self.batch(), learned, splits_layers }
    }
}
