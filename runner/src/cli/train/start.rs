//! The beginning of a run: from options to a plan.

use std::sync::Arc;

use anyhow::Context;
use morphgl_graph_store::{Dataset, Schema};
use morphgl_model_core::{ModelFile, ModelSpec, Normalization};
use morphgl_plan::{RouteKeys, Time};
use morphgl_registry::{NamedTensor, Registry};

use super::state::{MachineState, RunState};
use super::summary::configuration;
use super::{Args, Setup, nothing_validated};
use crate::budget;
use crate::build::label;
use crate::cli::data;
use crate::cli::inference::{self, Inference};
use crate::cli::layer_split;
use crate::cli::plan_arg::{PlanArg, choose_training};
use crate::cli::planned::{Measured, Wanted};
use crate::cli::ranks;
use crate::cli::run_dir::{Configured, RunDir};
use crate::cli::show::{self, Show};
use crate::cli::usage::Usage;
use crate::ranks::Ranks;
use crate::{Evaluation, Job, JobConfig, Plan, Plans, Progress, RunContext, Simulated, Unified};

/// Opens the dataset, profiles and plans.
pub(super) fn setup(args: &Args, context: &RunContext, show: Show) -> anyhow::Result<Setup> {
    let plan_of_file = args.plan.read()?;
    let init = args.init.as_deref().map(ModelFile::open).transpose()?;
    let (dataset, mut config) = args.planned.open(context, show)?;
    if let Some(configured) = &args.configured {
        config = configured.job_on(&dataset, config);
    }
    if let Some(plan) = &plan_of_file {
        choose_training(plan, context.registry(), &mut config);
    }
    let requested = args.evaluation();
    let mut evaluation = match config.disk_bytes {
        _ if args.shard.is_some() => requested.unwrap_or(Evaluation::Sampled),
        Some(_) => Inference::OnDisk.choose(requested, show)?,
        None => requested.unwrap_or_default(),
    };
    let validated = dataset.any_labelled(&dataset.splits.valid);
    let unread = args.patience.map(|_| "--patience").or(args.evaluate_every.map(|_| "--evaluate-every"));
    if let Some(option) = unread.filter(|_| !validated) {
        return Err(nothing_validated(option));
    }
    let mut divided = None;
    if let Some(ranks) = context.ranks() {
        ranks.check_same(&facts(args, &dataset, &config, requested)?)?;
        divided = args.shard.map(|hot| ranks.share_features(&dataset, &config, hot)).transpose()?;
    }
    let context = &divided.map_or_else(|| context.clone(), |shards| context.with_shards(shards));
    let steps = dataset.splits.train.len().div_ceil(config.sampler.batch_size.max(1));
    let epochs = args.options(steps, evaluation, validated).least_epochs();
    // Batch normalization takes its statistics of each share: another model, which is not chosen without being asked for.
    let same_model = config.spec.model.normalization != Normalization::Batch;
    let group = match args.plan {
        PlanArg::Unified => true,
        PlanArg::Auto => same_model && context.ranks().is_none(),
        _ => false,
    };
    config.every_device = group;
    let group = group.then(|| args.shares.unwrap_or_default());
    let split = args.planned.split.allowed(Some(&args.plan), context)?;
    let wanted = Wanted { evaluates: evaluation != Evaluation::None, epochs: Some(epochs), group, split };
    let measured = args.planned.measure(context, &dataset, config.clone(), wanted, show)?;
    let Measured { mut job, profile, problem, plans, unified, split: measured_split, held_bytes, mut choices } =
        measured;
    if let (Some(path), Some(mut file)) = (&args.init, init) {
        let spec = job.config.spec.model.clone();
        let set = file.parameters(&spec).map_err(anyhow::Error::from).and_then(|p| job.set_parameters(&p).map(|()| p));
        let parameters = set
            .with_context(|| format!("{}: not the parameters of this model; give its options again", path.display()))?;
        if let Some(parameters) = reordered(&file.schema(&spec)?, &spec, parameters, &dataset, show)? {
            job.set_parameters(&parameters)?;
        }
    }
    let unified = choose_group(args, unified, &plans, show)?;
    let unified = unified.map(|unified| unified.exchanging(args.exchange.unwrap_or_default()));
    let split = layer_split::choose(split, measured_split, plans.chosen(), unified.as_ref(), epochs, show)?;
    let unified = unified.filter(|_| split.is_none());
    config.every_device = unified.is_some();
    let mut plan = match (&unified, &split) {
        (_, Some(split)) => split.plan().clone(),
        (Some(unified), None) => unified.leading_plan(),
        (None, None) => args.plan.choose(plan_of_file, &plans, &problem)?,
    };
    if let Some(ranks) = context.ranks() {
        join(ranks, &mut job, &mut plan)?;
    }
    let available = problem.limits.host_bytes.unwrap_or(u64::MAX).saturating_sub(plan.memory.all_host());
    if evaluation == Evaluation::Full {
        let needed = plan.schedule.shares.first().and_then(|share| job.infer_bytes(&share.keys.training));
        let needed = needed.map(|needed| needed + ranks::gathering_bytes(context));
        evaluation = Inference::InMemory { needed, available }.choose(requested, show)?;
    }
    if let Some(ranks) = context.ranks() {
        evaluation = ranks.agree_on_evaluation(evaluation)?;
    }
    let mut options = args.options(plan.num_batches(), evaluation, validated);
    options.evaluation_workers = inference::fewer_workers(&problem, &plan, available);
    let path = args.planned.data.dataset.as_deref();
    let configured = Configured {
        dataset: path.map(std::path::absolute).transpose()?,
        mmap: args.planned.data.mmap,
        no_verify: args.planned.data.no_verify,
        init: args.init.clone(),
        training: options,
        job: config,
    };
    // The run directory is created late, so that a command that fails earlier can be repeated.
    let run_dir = args.run.as_deref().map(|dir| RunDir::create(dir, &mut |remark| show.say(remark))).transpose()?;
    if let Some(dir) = &run_dir {
        dir.write_plan(&plan)?;
    }
    let trained = unified.iter().flat_map(|unified| &unified.trainers).map(|trainer| &trainer.plan.schedule);
    for share in plan.schedule.shares.iter().filter(|_| unified.is_none()).chain(trained.flat_map(|s| &s.shares)) {
        show.line(&share.keys);
    }
    profile.selections.iter().for_each(|selection| show.line(selection));
    choices.remarks(&profile.selections).iter().for_each(|remark| show.say(remark));
    if context.ranks().is_none_or(Ranks::is_first) {
        choices.keep(&profile.selections);
    }
    show.line(format_args!("plan: {plan}"));
    unified.iter().for_each(|unified| show.line(unified));
    split.iter().for_each(|split| show.line(split));
    plan.caches.iter().for_each(|cache| show.line(format_args!("cache: {cache}")));
    if job.config.caches() && !plan.schedule.shares.iter().any(|share| caches(job.registry(), &share.keys)) {
        show.say(format_args!("--cache {}: the plan uses no operator with a cache", configured.job.cache));
    }
    let machine = MachineState::current(job.threads());
    // Only an automatic plan may be replaced during the run, and not one that several trainers follow together.
    let alone = unified.is_none() && split.is_none() && context.ranks().is_none();
    let replanned = (matches!(args.plan, PlanArg::Auto) && alone).then(|| problem.clone());
    let checksums = dataset.path.checksums();
    Ok(Setup {
        simulated: Simulated::of(job.registry()),
        schema: data::schema(&dataset, show),
        dataset,
        job,
        configured,
        state: RunState {
            profile,
            problem,
            plan: plan.clone(),
            held_bytes,
            open: args.epochs.is_none() && args.configured.as_ref().is_none_or(|c| c.training.patience.is_some()),
            dataset: checksums,
            machine,
            unified: unified.clone(),
            ranks: context.ranks().map_or(1, |ranks| ranks.group.size()),
            split: split.clone(),
        },
        plans,
        replanned,
        plan,
        unified,
        split,
        run_dir,
        progress: Progress::default(),
        resumed: None,
    })
}

/// Initial parameters in the order of the dataset's features and classes, where the model has them in another one.
fn reordered(
    schema: &Schema,
    spec: &ModelSpec,
    parameters: Vec<NamedTensor>,
    dataset: &Dataset,
    show: Show,
) -> anyhow::Result<Option<Vec<NamedTensor>>> {
    let fitting = inference::fit(spec, schema, dataset, show)?;
    if !fitting.is_permutation() {
        anyhow::bail!("{}: other features or classes than the model's; train anew, without --init", label(dataset));
    }
    Ok(fitting.changes_model().then(|| fitting.apply(spec, parameters)).transpose()?.map(|(_, parameters)| parameters))
}

/// The group to train with: where it was asked for, or is predicted to be faster than the best plan of one trainer.
fn choose_group(
    args: &Args,
    planned: Option<anyhow::Result<Unified>>,
    plans: &Plans,
    show: Show,
) -> anyhow::Result<Option<Unified>> {
    match (&args.plan, planned) {
        (PlanArg::Unified, None) => {
            Err(Usage::error("--plan unified: one place alone can train here; use --plan auto"))
        }
        (PlanArg::Unified, Some(planned)) => planned.map(Some),
        (_, Some(Ok(unified))) if unified.is_chosen_over(plans.chosen()) => Ok(Some(unified)),
        (_, Some(Ok(unified))) => {
            let seconds = Time(unified.epoch_seconds);
            show.line(format_args!("all trainers together: {seconds} per epoch predicted, which one alone beats"));
            Ok(None)
        }
        (_, Some(Err(e))) => {
            show.say(format_args!("all trainers together: {}", show::one_line(&e)));
            Ok(None)
        }
        (_, None) => Ok(None),
    }
}

/// What has to be the same at all ranks of a run.
fn facts(
    args: &Args,
    dataset: &Dataset,
    config: &JobConfig,
    evaluation: Option<Evaluation>,
) -> anyhow::Result<Vec<(String, String)>> {
    let mut facts = Ranks::facts(&dataset.name, &dataset.path.checksums())?;
    // What a rank may have of its own: threads, and what its memory allows.
    let config = JobConfig { threads: None, disk_bytes: None, cache_bytes: None, ..config.clone() };
    let validated = dataset.any_labelled(&dataset.splits.valid);
    let steps = dataset.splits.train.len().div_ceil(config.sampler.batch_size.max(1));
    let options = args.options(steps, evaluation.unwrap_or_default(), validated);
    facts.extend(facts_of_ranks(args));
    facts.extend(configuration(&config, &options));
    Ok(facts)
}

/// Options of ranks that have to be the same at all.
pub(super) fn facts_of_ranks(args: &Args) -> [(String, String); 2] {
    let bucket = args.gradient_bucket.map_or("default".to_string(), |bytes| bytes.to_string());
    let shard = args.shard.map_or("none".to_string(), |hot| format!("{hot:?}"));
    [("--shard".to_string(), shard), ("--gradient-bucket".to_string(), bucket)]
}

/// Makes the job that of one rank, which trains by this plan, and the prediction that of all ranks.
pub(super) fn join(ranks: &Ranks, job: &mut Job, plan: &mut Plan) -> anyhow::Result<()> {
    if plan.schedule.shares.len() > 1 {
        return Err(Usage::error("--plan: ranks of MPI train by one route, and this plan has several; plan again"));
    }
    let parameters = match job.operators.trainers.first() {
        Some(trainer) => trainer.operator.parameters()?,
        None => Vec::new(),
    };
    ranks.check_parameters("initial parameters", &parameters)?;
    ranks.predict(job, plan)?;
    job.join(Arc::clone(&ranks.group));
    Ok(())
}

/// Whether an operator of the plan's route has a cache.
fn caches(registry: &Registry, keys: &RouteKeys) -> bool {
    budget::caches(registry, &keys.batching) || budget::caches(registry, &keys.transferring)
}
