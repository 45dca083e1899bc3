//! `--resume`: from a run directory to the point where its training goes on.

mod together;

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use morphgl_graph_store::{Dataset, DatasetPath, Load, OpenOptions};
use serde_json::{Value, json};

use super::state::{MachineState, RunState};
use super::summary::{stop_reason, summary};
use super::{Resumption, RunResult, Setup};
use crate::paths::lossy;
use crate::session::run_dir::status::{State, Status};
use crate::session::run_dir::{Configured, RunDir};
use crate::session::{Session, data, modes};
use crate::task::Learned;
use crate::usage::Usage;
use crate::{Checkpoint, Job, JobConfig, RunContext, Scheduler, Simulated, StopReason, task, threads, words};

/// A run to be continued, or the result of one that is done.
pub(super) enum Resumed {
    Run(Box<Setup>),
    Done(Box<RunResult>),
}

/// What a run directory holds of a run that is to be continued.
struct Stored {
    configured: Configured,
    checkpoint: Checkpoint,
    /// `None` where another rank writes it.
    run_dir: Option<RunDir>,
}

/// Opens the run at `dir`: rank 0 of several reads it, for all.
pub(super) fn setup(session: &Session, dir: &Path, context: &RunContext) -> anyhow::Result<Resumed> {
    let stored = match context.ranks() {
        Some(ranks) if !ranks.is_first() => match together::receive(ranks)? {
            Some(stored) => Ok(stored),
            // Rank 0 says that it is done.
            None => {
                Err(RunResult { report: Default::default(), text: String::new(), json: Value::Null, unwritten: None })
            }
        },
        of_all => {
            let stored = read(session, dir, context)?;
            of_all.map_or(Ok(()), |ranks| together::send(ranks, stored.as_ref().ok()))?;
            stored
        }
    };
    match stored {
        Ok(stored) => Ok(Resumed::Run(Box::new(open(session, dir, stored, context)?))),
        Err(outcome) => Ok(Resumed::Done(Box::new(outcome))),
    }
}

/// Reads the run at `dir`, or the result of one that is done.
fn read(session: &Session, dir: &Path, context: &RunContext) -> anyhow::Result<Result<Stored, RunResult>> {
    let (run_dir, mut configured, mut checkpoint) = RunDir::resume(dir, &mut |remark| context.remark(remark))?;
    let status = Status::read(dir);
    checkpoint.run.as_object_mut().map(|run| run.remove("metrics_bytes"));
    let state = state(&checkpoint, dir)?;
    let progress = &mut checkpoint.progress;
    let stopped_early = is_early(progress.report.stop_reason);
    if let Some(epochs) = session.config.training.epochs {
        if epochs < progress.epoch || epochs < configured.training.epochs && is_done(status.as_ref()) && !stopped_early
        {
            let trained = words::plural(progress.epoch.into(), "epoch");
            return Err(Usage::error(format!("--epochs {epochs}: the run has {trained} already; give more")));
        }
        if stopped_early && epochs > progress.epoch {
            // A number of epochs takes the place of early stopping, as for a new run.
            if progress.report.stop_reason == StopReason::Patience {
                configured.training.patience = None;
            }
            progress.report.stop_reason = StopReason::Epochs;
        }
        configured.training.epochs = epochs;
    }
    let stopped_early = is_early(progress.report.stop_reason);
    if is_done(status.as_ref()) && (stopped_early || progress.epoch >= configured.training.epochs) {
        let why = stop_reason(state.open, &progress.report, &configured.training, state.plan.num_batches());
        context.remark(format_args!("{}: the run is done ({why}); --epochs trains longer", dir.display()));
        let mut outcome = summary(
            &progress.report,
            (configured.training.score, configured.job.spec.model.task),
            &state.plan,
            &why,
            context.memory().peak(),
        );
        outcome.json["run"] = json!(lossy(dir));
        outcome.json["resumed"] = Value::Null;
        return Ok(Err(outcome));
    }
    Ok(Ok(Stored { configured, checkpoint, run_dir: Some(run_dir) }))
}

/// Whether a run that ended so had epochs left.
fn is_early(reason: StopReason) -> bool {
    matches!(reason, StopReason::Patience | StopReason::Requested)
}

/// What the checkpoint says of the run at `dir`.
fn state(checkpoint: &Checkpoint, dir: &Path) -> anyhow::Result<RunState> {
    serde_json::from_value(checkpoint.run.clone()).with_context(|| {
        format!("{}: its checkpoint is not of a run; train again with another --run directory", dir.display())
    })
}

/// Opens the dataset and builds the job of a run.
fn open(session: &Session, dir: &Path, stored: Stored, context: &RunContext) -> anyhow::Result<Setup> {
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
        threads::start(context.process(), threads)?;
    }
    let mut dataset = Arc::new(dataset(&configured, &config, &state, session.config.training.shard.is_some())?);
    dataset = task::dataset_for(Learned::of(&config.spec.model), dataset, context)?;
    let job = match context.ranks() {
        None => Job::new(context, Arc::clone(&dataset), config)?,
        Some(ranks) => {
            let options = &configured.training;
            together::job((ranks, context), (session, options), (&dataset, config), (&mut state, &mut position))?
        }
    };
    state.machine.differences(&MachineState::current(job.threads())).iter().for_each(|line| context.remark(line));
    if let Some(run_dir) = &run_dir {
        if session.config.training.epochs.is_some() {
            configured.write(run_dir.path()?)?;
        }
        run_dir.set_status(State::Running)?;
    }
    let within = position.within.as_ref();
    let batches = within.map_or(0, |w| w.earlier.as_ref().map_or(0, |r| r.batches) + w.part.batches);
    let at = format!("resumed in epoch {} after {} of it", progress.epoch, words::plural(batches as u64, "mini-batch"));
    Ok(Setup {
        simulated: Simulated::of(job.registry()),
        schema: data::schema(&dataset, &configured.job.spec.model, context),
        dataset,
        job: Some(job),
        configured,
        plans: Scheduler::schedule(&state.problem)?,
        mode: modes::resume(context, &state, &position.plan, position.problem.as_ref()),
        state,
        run_dir,
        progress,
        resumed: Some(Resumption { position, training, batches, at }),
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
