//! The beginning of a run: from options to a plan.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use morphgl_graph_store::{Dataset, Schema};
use morphgl_model_core::{LrScheduleKind, ModelFile, ModelSpec};
use morphgl_plan::RouteKeys;
use morphgl_registry::{Expansion, NamedTensor, Registry};

use super::state::{MachineState, RunState};
use super::summary::configuration;
use super::{Setup, nothing_validated};
use crate::build::label;
use crate::links::{any_filtered, known_bytes};
use crate::ranks::{Ranks, gathering_bytes};
use crate::session::choices::Choices;
use crate::session::measure::{Measured, Wanted};
use crate::session::modes::factored::WithRoles;
use crate::session::modes::group::Group;
use crate::session::modes::{self, Mode};
use crate::session::options::optimizer::fit_schedule;
use crate::session::options::plan::choose_training;
use crate::session::run_dir::{Configured, RunDir};
use crate::session::trained::{self, Inference};
use crate::session::{Session, data};
use crate::task::{Examples, Learned, Split, dataset_for, num_examples};
use crate::{Evaluation, Job, JobConfig, NumaNode, Profile, Progress, RunContext, Simulated, budget, numa};

/// Opens the dataset, profiles and plans.
pub(super) fn setup(session: &Session, context: &RunContext) -> anyhow::Result<Setup> {
    let training = &session.config.training;
    let plan_of_file = training.plan.read()?;
    let init = training.init.as_deref().map(ModelFile::open).transpose()?;
    let (mut dataset, mut config) = session.planned().open(context)?;
    if let Some(configured) = &session.like {
        if configured.job.pairs.is_some() {
            let examples = Examples::of(&configured.job.spec.model);
            // Options may have asked for other examples.
            if examples != session.config.planning.model.task.examples() {
                dataset = dataset_for(Learned::of(&configured.job.spec.model), dataset, context)?;
            }
        }
        config = configured.job_on(&dataset, config);
    }
    if let Some(plan) = &plan_of_file {
        choose_training(plan, context.registry(), &mut config);
    }
    let requested = session.evaluation(&dataset);
    let mut evaluation = match config.disk_bytes {
        _ if training.shard.is_some() => requested.unwrap_or(Evaluation::Sampled),
        Some(_) => Inference::OnDisk.choose(requested, context)?,
        None => requested.unwrap_or_default(),
    };
    let validated = Split::Valid.is_known(&dataset, &config.spec.model);
    let unread = training.patience.map(|_| "--patience").or(training.evaluate_every.map(|_| "--evaluate-every"));
    let unread = unread.or(training.score.map(|_| "--score"));
    if let Some(option) = unread.filter(|_| !validated) {
        return Err(nothing_validated(option));
    }
    if config.pairs.is_some()
        && config
            .sampler
            .sampling
            .hops()
            .is_some_and(|hops| hops.expansion == Expansion::New && hops.fanouts.0.len() > 1)
    {
        context.remark(format_args!(
            "--expansion new: farther layers see no neighbours of nodes found before, and links are learned worse (on wiki-Vote an area \
             of 0.79 instead of 0.85); leave it out unless mini-batches are to be PyG's"
        ));
    }
    let steps = num_examples(&dataset, &config).div_ceil(config.sampler.batch_size.max(1));
    let length = session.options(steps, evaluation, (validated, &config.spec.model, &dataset));
    fit_schedule(&mut config, steps, length.epochs)?;
    let falls_by_score = config.spec.optimizer.schedule.kind == LrScheduleKind::Plateau;
    if falls_by_score && (!validated || evaluation == Evaluation::None) {
        return Err(nothing_validated("--lr-schedule plateau"));
    }
    let mut divided = None;
    if let Some(ranks) = context.ranks() {
        ranks.check_same(&facts(session, &dataset, &config, requested)?)?;
        divided = training.shard.map(|hot| ranks.share_features(&dataset, &config, hot)).transpose()?;
    }
    if context.ranks().is_none() && context.machine().is_none() {
        numa::advice(&NumaNode::all()).into_iter().for_each(|advice| context.remark(format_args!("{advice}")));
    }
    let context = &divided.map_or_else(|| context.clone(), |shards| context.with_shards(shards));
    let epochs = length.least_epochs();
    let group = Group::wanted(session, context, &config);
    let roles = WithRoles::wanted(session, context, &config);
    config.every_device = group.is_some() || roles;
    config.roles = roles;
    let split = session.config.planning.split.allowed(Some(&training.plan), context)?;
    let staleness = session.config.planning.split.of_gradients(&training.plan);
    let (evaluates, epochs_known) = (evaluation != Evaluation::None, Some(epochs));
    let splits_group = session.splits_group(context)?;
    let wanted = Wanted { evaluates, epochs: epochs_known, group, roles, staleness, split, splits_group, links: false };
    let mut measured = session.planned().measure(context, &dataset, config.clone(), wanted)?;
    if let (Some(path), Some(file)) = (&training.init, init) {
        initialize(&mut measured.job, path, file, context)?;
    }
    let mode = modes::choose(session, context, &mut measured, plan_of_file, epochs)?;
    (config.every_device, config.roles) = (mode.every_device(), mode.has_roles());
    let Measured { mut job, profile, problem, plans, held_bytes, choices, .. } = measured;
    if context.machine().is_some() && mode.every_device() {
        job = Job::new(context, Arc::clone(&dataset), config.clone())?;
    }
    let plan = mode.plan();
    let available = problem.limits.host_bytes.unwrap_or(u64::MAX).saturating_sub(plan.memory.all_host());
    if evaluation == Evaluation::Full {
        let needed = plan.schedule.shares.first().and_then(|share| job.infer_bytes(&share.keys.training));
        let known = if validated && any_filtered(&[length.score]) { known_bytes(&dataset) } else { 0 };
        let needed = needed.map(|needed| needed + gathering_bytes(context) + known);
        evaluation = Inference::InMemory { needed, available }.choose(requested, context)?;
    }
    if let Some(ranks) = context.ranks() {
        evaluation = ranks.agree_on_evaluation(evaluation)?;
    }
    let mut options = session.options(plan.num_batches(), evaluation, (validated, &config.spec.model, &dataset));
    options.evaluation_workers = trained::fewer_workers(&problem, plan, available);
    if validated {
        evaluation.check(options.score, &job.config.spec.model, &dataset)?;
    }
    let path = session.config.planning.data.dataset.as_deref();
    let configured = Configured {
        dataset: path.map(std::path::absolute).transpose()?,
        mmap: session.config.planning.data.mmap,
        no_verify: session.config.planning.data.no_verify,
        init: training.init.clone(),
        training: options,
        job: config,
    };
    // The run directory is created late, so that a command that fails earlier can be repeated.
    let run_dir =
        training.run.as_deref().map(|dir| RunDir::create(dir, &mut |remark| context.remark(remark))).transpose()?;
    if let Some(dir) = &run_dir {
        dir.write_plan(plan)?;
    }
    tell(mode.as_ref(), &profile, choices, context);
    if job.config.caches() && !plan.schedule.shares.iter().any(|share| caches(job.registry(), &share.keys)) {
        context.remark(format_args!("--cache {}: the plan uses no operator with a cache", configured.job.cache));
    }
    let machine = MachineState::current(job.threads());
    let mut state = RunState {
        profile,
        problem,
        plan: plan.clone(),
        held_bytes,
        open: training.epochs.is_none() && session.like.as_ref().is_none_or(|c| c.training.patience.is_some()),
        dataset: dataset.path.checksums(),
        machine,
        unified: None,
        factored: None,
        ranks: context.ranks().map_or(1, |ranks| ranks.group.size()),
        split: None,
    };
    mode.keep(&mut state);
    Ok(Setup {
        simulated: Simulated::of(job.registry()),
        schema: data::schema(&dataset, &configured.job.spec.model, context),
        dataset,
        job: Some(job),
        configured,
        state,
        plans,
        mode,
        run_dir,
        progress: Progress::default(),
        resumed: None,
    })
}

/// Begins with the parameters of a file.
fn initialize(
    job: &mut Job,
    path: &Path,
    mut file: ModelFile<BufReader<File>>,
    context: &RunContext,
) -> anyhow::Result<()> {
    let spec = job.config.spec.model.clone();
    let set = file.parameters(&spec).map_err(anyhow::Error::from).and_then(|p| job.set_parameters(&p).map(|()| p));
    let parameters =
        set.with_context(|| format!("{}: not the parameters of this model; give its options again", path.display()))?;
    if let Some(parameters) = reordered(&file.schema(&spec)?, &spec, parameters, &job.dataset, context)? {
        job.set_parameters(&parameters)?;
    }
    Ok(())
}

/// Says how the run trains, and keeps the choices of operators for the next one.
fn tell(mode: &dyn Mode, profile: &Profile, mut choices: Choices, context: &RunContext) {
    mode.routes().iter().for_each(|keys| context.line(keys));
    profile.selections.iter().for_each(|selection| context.line(selection));
    choices.remarks(&profile.selections).iter().for_each(|remark| context.remark(remark));
    if context.is_first_rank() {
        choices.keep(&profile.selections);
    }
    let plan = mode.plan();
    context.line(format_args!("plan: {plan}"));
    mode.account().iter().for_each(|account| context.line(account));
    plan.caches.iter().for_each(|cache| context.line(format_args!("cache: {cache}")));
}

/// The initial parameters, permuted to the dataset's order of features and classes; `None` where that is the model's order.
fn reordered(
    schema: &Schema,
    spec: &ModelSpec,
    parameters: Vec<NamedTensor>,
    dataset: &Dataset,
    context: &RunContext,
) -> anyhow::Result<Option<Vec<NamedTensor>>> {
    let fitting = trained::fit(spec, schema, dataset, context)?;
    if !fitting.is_permutation() {
        anyhow::bail!("{}: other features or classes than the model's; train anew, without --init", label(dataset));
    }
    Ok(fitting.changes_model().then(|| fitting.apply(spec, parameters)).transpose()?.map(|(_, parameters)| parameters))
}

/// What has to be the same at all ranks of a run.
fn facts(
    session: &Session,
    dataset: &Dataset,
    config: &JobConfig,
    evaluation: Option<Evaluation>,
) -> anyhow::Result<Vec<(String, String)>> {
    let mut facts = Ranks::facts_of(dataset)?;
    // What a rank may have of its own: threads, and what its memory allows.
    let config = JobConfig { threads: None, disk_bytes: None, cache_bytes: None, ..config.clone() };
    let validated = Split::Valid.is_known(dataset, &config.spec.model);
    let steps = num_examples(dataset, &config).div_ceil(config.sampler.batch_size.max(1));
    let options = session.options(steps, evaluation.unwrap_or_default(), (validated, &config.spec.model, dataset));
    facts.extend(facts_of_ranks(session));
    facts.extend(configuration(&config, &options));
    Ok(facts)
}

/// Options of ranks that have to be the same at all.
pub(super) fn facts_of_ranks(session: &Session) -> [(String, String); 4] {
    let (training, split) = (&session.config.training, &session.config.planning.split);
    let bucket = training.gradient_bucket.map_or("default".to_string(), |bytes| bytes.to_string());
    let shard = training.shard.map_or("none".to_string(), |hot| format!("{hot:?}"));
    let ratio = split.hot_ratio.map_or("none".to_string(), |ratio| ratio.to_string());
    [
        ("--shard".to_string(), shard),
        ("--gradient-bucket".to_string(), bucket),
        ("--allow-staleness".to_string(), split.allow_staleness.to_string()),
        ("--hot-ratio".to_string(), ratio),
    ]
}

/// Whether an operator of the plan's route has a cache.
fn caches(registry: &Registry, keys: &RouteKeys) -> bool {
    budget::caches(registry, &keys.batching) || budget::caches(registry, &keys.transferring)
}
