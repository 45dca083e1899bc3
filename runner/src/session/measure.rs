//! From options to a job, its profile and its plans.

mod described;

use std::sync::Arc;

use indicatif::HumanCount;
use morphgl_graph_store::Dataset;
use morphgl_model_core::ModelSpec;
use morphgl_profile::{MemoryLimit, Progress, RouteProfile, Watch};
use morphgl_registry::{Machine, Sampling};

use super::choices::Choices;
use super::data::Source;
use super::options::batch::{MiniBatches, Resolved};
use super::options::limits::{self, Known};
use super::options::{ModelOptions, PlanningOptions};
use crate::budget::Purpose;
use crate::build::label;
use crate::split::ExactGroup;
use crate::sufficient::{PROGRAM, START};
use crate::task::{Examples, Learned};
use crate::usage::Usage;
use crate::{
    Allowed, Factored, FactoredProfile, GroupProfile, Job, JobConfig, Limits, Partitioner, Plans, Problem, Profile,
    Profiler, RunContext, Scheduler, Shares, SplitPlan, TrainingSpec, Unified, examples, memory, task, words,
};

/// What a profile and its plans are for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wanted {
    /// Memory is left for evaluation.
    pub(crate) evaluates: bool,
    /// Number of epochs, where it is known: a cache of another size has to pay within them.
    pub(crate) epochs: Option<u32>,
    /// Several trainers are measured and planned together, too, with mini-batches divided so.
    pub(crate) group: Option<Shares>,
    /// Devices with roles are measured and planned, too.
    pub(crate) roles: bool,
    /// Steps by which the gradients of devices with roles may be stale.
    pub(crate) staleness: usize,
    /// Layer-split training is measured and planned, too.
    pub(crate) split: Option<Allowed>,
    /// Whether layers are split for a group of trainers; otherwise for one trainer.
    pub(crate) splits_group: bool,
    /// Links that devices share are found without a group, too.
    pub(crate) links: bool,
}

/// A job, its profile, and its plans.
#[derive(Debug)]
pub struct Measured {
    /// The job, with the operators that were built and kept.
    pub job: Job,
    /// Durations and sizes of every phase on every route.
    pub profile: Profile,
    /// What was planned.
    pub problem: Problem,
    /// The best plans of one trainer, by strategy and route.
    pub plans: Plans,
    /// The best plan of several trainers together, where it was asked for and there are several.
    pub unified: Option<anyhow::Result<Unified>>,
    /// The best plan of devices with roles, where it was asked for and there are two of them.
    pub factored: Option<anyhow::Result<Factored>>,
    /// The best plan of layer-split training, where it was asked for.
    pub split: Option<anyhow::Result<SplitPlan>>,
    /// Peak memory besides the plan's caches, buffers and workers: dataset (unless it is mapped or on disk), model, a step's own
    /// memory and its mini-batches; and evaluation's own cache and a worker.
    pub held_bytes: u64,
    /// Training operators that earlier runs on the dataset chose.
    pub(crate) choices: Choices,
}

/// What is planned: options, the dataset they are for, and mini-batches, which may be those of an earlier run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Planned<'a> {
    pub(crate) options: &'a PlanningOptions,
    pub(crate) source: Source<'a>,
    pub(crate) batch: MiniBatches<'a>,
    pub(crate) learned: Learned,
    /// Whether layers may be split.
    pub(crate) splits_layers: bool,
}

impl<'a> Planned<'a> {
    /// What these options alone ask for.
    pub(crate) fn of(options: &'a PlanningOptions, given: Option<&'a Arc<Dataset>>) -> Self {
        Self {
            options,
            source: Source::of(&options.data, given),
            batch: MiniBatches::by(&options.batch, options.model.model),
            learned: options.model.learned(),
            splits_layers: options.split.allow_staleness > 0,
        }
    }

    /// Opens the dataset, and returns it with the configuration of the job.
    pub(crate) fn open(self, context: &RunContext) -> anyhow::Result<(Arc<Dataset>, JobConfig)> {
        self.options.model.check(self.batch)?;
        let examples = self.options.model.task.examples();
        if examples != Examples::Nodes && self.splits_layers {
            let (why, option) = ("layers are split of mini-batches of nodes, not of pairs", examples.option());
            return Err(Usage::error(format!("--allow-staleness: {why}; leave it out of {option}")));
        }
        let batch = self.batch.resolve(context)?;
        if let Some(memory) = self.options.limits.memory.filter(|&memory| memory < START) {
            let why = format!("the program alone takes {}", words::bytes(START));
            return Err(self.too_little_to_open(memory, &why, &batch));
        }
        let (dataset, disk_bytes) =
            self.source.open_within(self.options.limits.memory, self.options.batch.batching.as_ref(), context)?;
        if let (Some(memory), Some(0)) = (self.options.limits.memory, disk_bytes) {
            let program = words::bytes(PROGRAM);
            let why =
                format!("the dataset is left on disk, and beside the program's {program} nothing is left to read it");
            return Err(self.too_little_to_open(memory, &why, &batch));
        }
        let dataset = task::dataset_for(self.learned, dataset, context)?;
        if examples::are_rows(&dataset) && self.splits_layers {
            let why = "layers are split of mini-batches of nodes, not of rows of a task";
            return Err(Usage::error(format!("--allow-staleness: {why}; leave it out")));
        }
        let config = config(&dataset, &self.options.model, &batch)?;
        if let Some(types) = dataset.topology.types().filter(|_| !config.spec.model.has_edge_types()) {
            let (nodes, edges) = (types.node_types().len(), types.edge_types().len());
            context.remark(format_args!(
                "{} takes {nodes} node types and {edges} edge types as one of each; rgcn, rsage, rgat and hgt tell them apart",
                config.spec.model.kind
            ));
        }
        if config.spec.model.reads_edges() && matches!(config.sampler.sampling, Sampling::Walk(_)) {
            let why = "its edges are not those of the graph, and have no features";
            return Err(Usage::error(format!("--sampler walk: {why}; sample otherwise, or give --no-edge-features")));
        }
        let (cache, cache_bytes) =
            self.options.cache.map_or_else(Default::default, |cache| (cache.policy, cache.bytes));
        let machine = context.machine().cloned();
        Ok((dataset, JobConfig { disk_bytes, cache, cache_bytes, machine, ..config }))
    }

    /// The error for too little `memory` to open the dataset, with the memory and the batch size that suffice.
    fn too_little_to_open(self, memory: u64, why: &str, batch: &Resolved<'_>) -> anyhow::Error {
        match self.source.sizes() {
            Ok((sizes, dim, classes)) => {
                let model = self.options.model.spec(dim, classes, self.batch);
                let config = batch.job(TrainingSpec { model, optimizer: self.options.model.optimizer() });
                limits::too_little(memory, why, Known::Nothing, sizes, &config)
            }
            Err(unknown) => unknown,
        }
    }

    /// The error for too little `memory` for a job, with the memory and the batch size that suffice.
    fn too_little(self, memory: u64, why: &str, known: Known, config: &JobConfig) -> anyhow::Error {
        match self.source.sizes() {
            Ok((sizes, ..)) => limits::too_little(memory, why, known, sizes, config),
            Err(unknown) => unknown,
        }
    }

    /// The limits where the program needs `held` bytes besides caches, buffers and workers.
    ///
    /// # Errors
    ///
    /// More than is allowed.
    fn limits_beside(self, config: &JobConfig, held: u64) -> anyhow::Result<Limits> {
        match self.options.limits.memory.filter(|&memory| memory < held) {
            Some(memory) => {
                let held = words::bytes(held);
                let why = format!("{held} are held before anything is buffered (dataset, model, a step)");
                Err(self.too_little(memory, &why, Known::Nothing, config))
            }
            None => Ok(self.options.limits.this_machine(held)),
        }
    }

    /// The profiler with the time that the options allow; training operators that earlier runs chose are measured first.
    fn profiler(self, threads: usize, choices: &Choices) -> Profiler {
        let mut profiler = Profiler::new(threads);
        if !self.options.fresh {
            profiler.settings.preferred = choices.preferred();
        }
        if let Some(seconds) = self.options.profile_seconds {
            profiler.settings.budget = seconds;
            profiler.settings.epochs = None;
        }
        profiler
    }

    /// Tries a step, where memory is limited.
    ///
    /// # Errors
    ///
    /// The step takes more than is allowed.
    fn admit(self, job: &mut Job, memory: MemoryLimit<'_>) -> anyhow::Result<()> {
        let Some(limit) = self.options.limits.memory else { return Ok(()) };
        let Some(excess) = job.admit(memory)? else { return Ok(()) };
        let why = format!("a step on {} seeds takes the process to {}", excess.seeds, words::bytes(excess.bytes));
        let known = Known::Tried(excess, self.source.held(job.config.disk_bytes)?);
        Err(self.too_little(limit, &why, known, &job.config))
    }

    /// The problem of a profile, and its plans.
    ///
    /// # Errors
    ///
    /// No plan fits what the limits leave beside `held_bytes`.
    fn schedule(
        self,
        profile: &Profile,
        threads: usize,
        limits: Limits,
        (config, held_bytes): (&JobConfig, u64),
    ) -> anyhow::Result<(Problem, Plans)> {
        let problem = Partitioner::partition(profile, threads, limits);
        let unfit = match Scheduler::schedule(&problem) {
            Ok(plans) => return Ok((problem, plans)),
            Err(unfit) => unfit,
        };
        let (needed, free) = (unfit.minimum.all_host(), unfit.limits.host_bytes);
        let held = words::bytes(held_bytes);
        match self.options.limits.memory.filter(|_| free.is_some_and(|free| needed > free)) {
            Some(memory) => {
                let why = format!("buffers and workers take {} at least, all else {held}", words::bytes(needed));
                Err(self.too_little(memory, &why, Known::Needed(limits::needed(held_bytes, needed)), config))
            }
            None => Err(anyhow::Error::from(unfit).context(format!("all else takes {held}"))),
        }
    }

    /// Builds the job, profiles its routes, and plans.
    pub(crate) fn measure(
        self,
        context: &RunContext,
        dataset: &Arc<Dataset>,
        config: JobConfig,
        wanted: Wanted,
    ) -> anyhow::Result<Measured> {
        if let Some(machine) = context.machine() {
            return described::measure(self, context, machine, dataset, config, wanted);
        }
        let Wanted { evaluates, epochs, group, roles, staleness, split, splits_group, links } = wanted;
        let several = links && group.is_none() && context.registry().machine().accelerators.len() > 1;
        let on_every_device = several.then(|| JobConfig { every_device: true, ..config.clone() });
        let mut job = Job::new(context, Arc::clone(dataset), config)?;
        job.unbuilt.iter().for_each(|why| context.remark(format_args!("left out: {why}")));
        job.on_disk().iter().for_each(|how| context.remark(how));
        let (threads, choices) = (job.threads(), Choices::of(&job));
        let profiler = self.profiler(threads, &choices);
        let stop = context.heed_stop();
        // The system reclaims the pages of a mapped dataset when it needs the memory.
        let mapped = dataset.topology.indices().is_mapped() && job.config.disk_bytes.is_none();
        let peak = || context.memory().take_peak().saturating_sub(if mapped { memory::mapped_files() } else { 0 });
        peak();
        let held = peak();
        self.limits_beside(&job.config, held)?;
        let memory = MemoryLimit { limit: self.options.limits.process(held), peak: &peak };
        match context.ranks() {
            Some(ranks) => ranks.select(&mut job, &profiler, Some(memory))?,
            None => self.admit(&mut job, memory)?,
        }
        let observer = context.observer();
        let mut progress = |p: &Progress| observer.measures(Some(p));
        let mut measure = |job: &mut Job| profiler.measure(job, &stop, Some(memory), &mut progress);
        let mut profile = match context.ranks() {
            Some(ranks) => job.with_shares(ranks.group.division(), ranks.group.rank(), measure),
            None => measure(&mut job),
        }?;
        let group = match group {
            Some(shares) => GroupProfile::measure(&mut job, &profiler.settings, &stop, Some(memory), &mut progress)?
                .map(|measured| (measured, shares)),
            None => None,
        };
        let roles = match roles {
            true => {
                FactoredProfile::measure(&mut job, &profile, &profiler.settings, &stop, Some(memory), &mut progress)?
            }
            false => None,
        };
        observer.measures(None);
        let evaluation = if evaluates { evaluation_bytes(&profile, &job.config) } else { 0 };
        let held_bytes = profile.held_bytes.saturating_sub(profile.cache_bytes()) + evaluation;
        let limits = Limits { epochs, ..self.limits_beside(&job.config, held_bytes)? };
        let config = job.config.clone();
        let planned = |profile: &Profile, limits| self.schedule(profile, threads, limits, (&config, held_bytes));
        if let Some(ranks) = context.ranks() {
            let predict = |profile: &Profile| Ok(planned(profile, limits)?.1.chosen().prediction.epoch_seconds);
            ranks.keep_one_route(&mut job, &mut profile, predict)?;
        }
        let (mut problem, mut plans) = planned(&profile, limits)?;
        if group.is_none() && roles.is_none() && split.is_none() && context.ranks().is_none() {
            let overhead = job.rehearse(plans.chosen(), &stop)?;
            if overhead > 0.0 {
                (problem, plans) = planned(&profile, Limits { overhead, ..limits })?;
            }
        }
        let mut of_group = None;
        let split = split.and_then(|allowed| {
            let mut progress = |p: &Progress| {
                observer.measures(Some(&Progress { what: format!("layer split: {}", p.what), ..p.clone() }));
            };
            let watch = Watch { stop: &|| stop.is_requested(), memory: Some(memory) };
            if splits_group {
                // Without a second trainer there is no group.
                let (parts, shares) = group.as_ref()?;
                let exact = ExactGroup { profile: &profile, parts, shares: *shares };
                let watch = (&stop, &watch);
                let settings = &profiler.settings;
                let planned =
                    SplitPlan::measure_group(&mut job, &exact, allowed, settings, limits, watch, &mut progress);
                observer.measures(None);
                let planned = planned.map_err(|e| e.context("--hot-ratio: layers cannot be split"));
                let (unified, split) =
                    planned.map_or_else(|e| (Err(e), None), |(unified, split)| (Ok(unified), Some(Ok(split))));
                of_group = Some(unified);
                return split;
            }
            let mut measure = |job: &mut Job| {
                SplitPlan::measure(job, &profile, allowed, &profiler.settings, limits, &watch, &mut progress)
            };
            let plan = match context.ranks() {
                Some(ranks) => job.with_shares(ranks.group.division(), ranks.group.rank(), measure),
                None => measure(&mut job),
            };
            observer.measures(None);
            Some(plan)
        });
        if let Some((measured, _)) = &group {
            profile.links = measured.links().to_vec();
        }
        if let Some(config) = on_every_device {
            let mut all = Job::new(context, Arc::clone(dataset), config)?;
            profile.links = morphgl_profile::links(&mut all.operators.routes, &|| stop.is_requested())?;
        }
        let planned = |(measured, shares)| Unified::plan(&profile, &measured, shares, threads, limits);
        let unified = of_group.or_else(|| group.map(planned));
        let factored = roles.map(|measured| Factored::plan(&profile, &measured, threads, limits, staleness));
        Ok(Measured { job, profile, problem, plans, unified, factored, split, held_bytes, choices })
    }
}

/// Bytes of evaluation beside a plan, whose workers keep their memory while another one batches for evaluation.
fn evaluation_bytes(profile: &Profile, config: &JobConfig) -> u64 {
    let worker = |r: &RouteProfile| r.largest.worker_bytes + r.largest.batched_bytes;
    let beside = Purpose::EvaluationBesideTraining.host_bytes(config, false).unwrap_or(0);
    profile.routes.iter().map(worker).max().map_or(0, |worker| worker + beside)
}

/// The job the options describe on `dataset`.
pub(crate) fn config(dataset: &Dataset, model: &ModelOptions, batch: &Resolved<'_>) -> anyhow::Result<JobConfig> {
    let width = task::width(dataset, &label(dataset), model.task.task, model.task.examples())?;
    let batch = batch.of(dataset);
    let mut spec = model.spec(dataset.feature_dim(), width, batch.batch());
    task::set_types(&mut spec, dataset);
    task::balance(&mut spec, dataset);
    refuse_larger_than_memory(&spec, Machine::probe().available_bytes)?;
    let job = batch.job(TrainingSpec { model: spec, optimizer: model.optimizer() });
    Ok(JobConfig { pairs: model.task.pairs(dataset), ..job })
}

/// Refuses a model larger than memory: a single label that is too large suffices to make one.
fn refuse_larger_than_memory(spec: &ModelSpec, free: u64) -> anyhow::Result<()> {
    // An invalid model is refused when it is built.
    if spec.validate().is_err() || free == 0 {
        return Ok(());
    }
    let values: f64 = spec.parameters().iter().map(|p| p.shape.iter().map(|&n| n as f64).product::<f64>()).sum();
    // f32 parameters, and those of the best epoch; gradients and moments may be on a device.
    let bytes = (values * 8.0) as u64;
    if bytes > free {
        let (bytes, free, classes) = (words::bytes(bytes), words::bytes(free), HumanCount(spec.num_classes as u64));
        anyhow::bail!(
            "model: parameters for a width of {} and {classes} classes take at least {bytes}, {free} are free; \
             use a smaller --hidden, or look for a label that is too large",
            spec.hidden
        );
    }
    Ok(())
}
