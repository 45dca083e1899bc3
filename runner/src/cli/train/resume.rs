//! `--resume`: from a run directory to the point where its training goes on.

mod together;

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory};
use morphgl_graph_store::{Dataset, DatasetPath, Load, OpenOptions};
use serde_json::{Value, json};

use super::state::{MachineState, RunState};
use super::summary::{stop_reason, summary};
use super::{Args, Setup};
use crate::cli::Outcome;
use crate::cli::data;
use crate::cli::paths::lossy;
use crate::cli::run_dir::{Configured, RunDir};
use crate::cli::show::{self, Show};
use crate::cli::status::{State, Status};
use crate::cli::usage::Usage;
use crate::{Checkpoint, Job, JobConfig, RunContext, Scheduler, Simulated, StopReason};

/// Options that may be given beside `--resume`: they do not change what is computed.
const FREE: [&str; 7] = ["resume", "epochs", "save", "time_limit", "checkpoint_every", "shard", "gradient_bucket"];

/// Options that may be given beside `--config`: where it trains, what it writes, and the sampler's, which replace the run's.
const FREE_OF_CONFIG: [&str; 33] = [
    "config",
    "dataset",
    "mmap",
    "no_verify",
    "epochs",
    "init",
    "plan",
    "shares",
    "exchange",
    "run",
    "save",
    "checkpoint_every",
    "time_limit",
    "gradient_bucket",
    "shard",
    "threads",
    "memory",
    "device_memory",
    "buffer",
    "profile_seconds",
    "fresh",
    "allow_staleness",
    "hot_ratio",
    "max_hot_ratio",
    "sampler",
    "fanouts",
    "batch_size",
    "expansion",
    "weighted",
    "walks",
    "walk_length",
    "restart",
    "neighbors",
];

/// Refuses options that a resumed run takes from its directory, or a run from its --config; `matches` are those of `train`.
pub(super) fn refuse_options(matches: &ArgMatches) -> anyhow::Result<()> {
    let given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
    for (source, free, why) in [
        (
            "resume",
            &FREE[..],
            "a resumed run takes it from its directory; leave it out, or train anew with another --run directory",
        ),
        ("config", &FREE_OF_CONFIG, "--config says it; leave it out, or change it in a copy of the file"),
    ] {
        let command = Args::command();
        let is_other = |id: &str| given(id) && !free.contains(&id);
        let other = command.get_arguments().find(|arg| given(source) && is_other(arg.get_id().as_str()));
        if let Some(other) = other {
            let name = other.get_long().map_or_else(|| "DATASET".to_string(), |long| format!("--{long}"));
            return Err(Usage::error(format!("{name}: {why}")));
        }
    }
    Ok(())
}

/// A run to be continued, or the outcome of one that is done.
pub(super) enum Resumed {
    Run(Box<Setup>),
    Done(Outcome),
}

/// What a run directory holds of a run that is to be continued.
struct Stored {
    configured: Configured,
    checkpoint: Checkpoint,
    /// `None` where another rank writes it.
    run_dir: Option<RunDir>,
}

/// Opens the run at `dir`: rank 0 of several reads it, for all.
pub(super) fn setup(args: &Args, dir: &Path, context: &RunContext, show: Show) -> anyhow::Result<Resumed> {
    let stored = match context.ranks() {
        Some(ranks) if !ranks.is_first() => match together::receive(ranks)? {
            Some(stored) => Ok(stored),
            // Rank 0 says that it is done.
            None => Err(Outcome::new(String::new(), Value::Null)),
        },
        of_all => {
            let stored = read(args, dir, context, show)?;
            of_all.map_or(Ok(()), |ranks| together::send(ranks, stored.as_ref().ok()))?;
            stored
        }
    };
    match stored {
        Ok(stored) => Ok(Resumed::Run(Box::new(open(args, dir, stored, context, show)?))),
        Err(outcome) => Ok(Resumed::Done(outcome)),
    }
}

/// Reads the run at `dir`, or the outcome of one that is done.
fn read(args: &Args, dir: &Path, context: &RunContext, show: Show) -> anyhow::Result<Result<Stored, Outcome>> {
    let (run_dir, mut configured, mut checkpoint) = RunDir::resume(dir, &mut |remark| show.say(remark))?;
    let status = Status::read(dir);
    checkpoint.run.as_object_mut().map(|run| run.remove("metrics_bytes"));
    let state = state(&checkpoint, dir)?;
    let progress = &mut checkpoint.progress;
    let stopped_early = progress.report.stop_reason == StopReason::Patience;
    if let Some(epochs) = args.epochs {
        if epochs < progress.epoch || epochs < configured.training.epochs && is_done(status.as_ref()) && !stopped_early
        {
            let trained = show::plural(progress.epoch.into(), "epoch");
            return Err(Usage::error(format!("--epochs {epochs}: the run has {trained} already; give more")));
        }
        if stopped_early && epochs > progress.epoch {
            // A number of epochs takes the place of early stopping, as for a new run.
            configured.training.patience = None;
            progress.report.stop_reason = StopReason::Epochs;
        }
        configured.training.epochs = epochs;
    }
    let stopped_early = progress.report.stop_reason == StopReason::Patience;
    if is_done(status.as_ref()) && (stopped_early || progress.epoch >= configured.training.epochs) {
        let why = stop_reason(state.open, &progress.report, &configured.training, state.plan.num_batches());
        show.say(format_args!("{}: the run is done ({why}); --epochs trains longer", dir.display()));
        let mut outcome = summary(&progress.report, &state.plan, &why, context.memory().peak());
        outcome.json["run"] = json!(lossy(dir));
        outcome.json["resumed"] = Value::Null;
        return Ok(Err(outcome));
    }
    Ok(Ok(Stored { configured, checkpoint, run_dir: Some(run_dir) }))
}

/// What the checkpoint says of the run at `dir`.
fn state(checkpoint: &Checkpoint, dir: &Path) -> anyhow::Result<RunState> {
    serde_json::from_value(checkpoint.run.clone()).with_context(|| {
        format!("{}: its checkpoint is not of a run; train again with another --run directory", dir.display())
    })
}

/// Opens the dataset and builds the job of a run.
fn open(args: &Args, dir: &Path, stored: Stored, context: &RunContext, show: Show) -> anyhow::Result<Setup> {
    let Stored { configured, checkpoint, run_dir } = stored;
    let mut state = state(&checkpoint, dir)?;
    let Checkpoint { progress, mut position, training, .. } = checkpoint;
    // Which operator trains was measured, and must not change.
    let mut config = configured.job.clone();
    if let Some(share) = position.plan.schedule.shares.first().filter(|_| state.unified.is_none()) {
        config.operators.training = Some(share.keys.training.clone());
    }
    if let Some(ranks) = context.ranks() {
        config.threads = Some(together::threads(ranks, config.threads));
    }
    state
        .problem
        .limits
        .host_bytes
        .into_iter()
        .for_each(|free| context.limit_memory(free.saturating_add(state.held_bytes)));
    // Opening the dataset uses the thread pool, whose size is therefore set first.
    if let Some(threads) = config.threads {
        crate::cli::threads::start(context.process(), threads)?;
    }
    let dataset = Arc::new(dataset(&configured, &config, &state, args.shard.is_some())?);
    let job = match context.ranks() {
        None => Job::new(context, Arc::clone(&dataset), config)?,
        Some(ranks) => {
            let options = &configured.training;
            together::job((ranks, context), (args, options), (&dataset, config), (&mut state, &mut position), show)?
        }
    };
    state.machine.differences(&MachineState::current(job.threads())).iter().for_each(|line| show.say(line));
    if let Some(run_dir) = &run_dir {
        if args.epochs.is_some() {
            configured.write(run_dir.path()?)?;
        }
        run_dir.set_status(State::Running)?;
    }
    let within = position.within.as_ref();
    let batches = within.map_or(0, |w| w.earlier.as_ref().map_or(0, |r| r.batches) + w.part.batches);
    let at = format!("resumed in epoch {} after {} of it", progress.epoch, show::plural(batches as u64, "mini-batch"));
    Ok(Setup {
        simulated: Simulated::of(job.registry()),
        schema: data::schema(&dataset, show),
        dataset,
        job,
        configured,
        plans: Scheduler::schedule(&state.problem)?,
        unified: state.unified.clone(),
        split: state.split.clone(),
        state,
        replanned: position.problem.clone(),
        plan: position.plan.clone(),
        run_dir,
        progress,
        resumed: Some(super::Resumption { position, training, batches, at }),
    })
}

/// The dataset of a run; without features in memory where they are divided among ranks.
fn dataset(configured: &Configured, config: &JobConfig, state: &RunState, divided: bool) -> anyhow::Result<Dataset> {
    let Some(path) = configured.dataset.as_deref() else { return Ok(crate::default_dataset()) };
    let load = match config.disk_bytes {
        _ if divided => Load::AllButFeatures,
        Some(_) => Load::Disk,
        None if configured.mmap => Load::Mmap,
        None => Load::Ram,
    };
    let directory = DatasetPath::open(path)?;
    if directory.checksums() != state.dataset {
        bail!("{}: not the dataset that the run was trained on; restore it, or train anew", path.display());
    }
    let verify = !configured.no_verify && config.disk_bytes.is_none();
    Ok(Dataset::load(directory, OpenOptions { load, verify })?)
}

fn is_done(status: Option<&Status>) -> bool {
    status.is_some_and(|status| status.status == State::Done)
}
