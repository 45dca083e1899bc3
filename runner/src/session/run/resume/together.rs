//! A run that is continued by the ranks of an MPI run.

use std::sync::Arc;

use anyhow::Context;
use morphgl_graph_store::Dataset;
use serde::{Deserialize, Serialize};

use super::Stored;
use crate::ranks::Ranks;
use crate::session::Session;
use crate::session::measure::{Measured, Wanted};
use crate::session::modes::Mode;
use crate::session::modes::ranks::OfRanks;
use crate::session::run::start;
use crate::session::run::state::{MachineState, RunState};
use crate::session::run_dir::Configured;
use crate::usage::Usage;
use crate::{Checkpoint, Evaluation, Job, JobConfig, Position, RunContext, TrainOptions, words};

/// What rank 0 tells the others of a run that is to be continued.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    /// `config.toml`; `None` where the run is done.
    configured: Option<String>,
}

/// Sends all other ranks what rank 0 has read; `None` where the run is done.
pub(super) fn send(ranks: &Ranks, stored: Option<&Stored>) -> anyhow::Result<()> {
    let configured = stored.map(|stored| toml::to_string(&stored.configured)).transpose()?;
    ranks.group.of_first(serde_json::to_vec(&Header { configured })?)?;
    if let Some(Stored { checkpoint: Checkpoint { progress, position, training, run }, .. }) = stored {
        ranks.group.of_first(Checkpoint::encode(progress, position, training, run)?)?;
    }
    Ok(())
}

/// Receives what rank 0 has read; `None` where the run is done.
pub(super) fn receive(ranks: &Ranks) -> anyhow::Result<Option<Stored>> {
    let header: Header = serde_json::from_slice(&ranks.group.of_first(Vec::new())?)?;
    let Some(configured) = header.configured else { return Ok(None) };
    let configured: Configured = toml::from_str(&configured).context("config.toml of rank 0")?;
    let checkpoint = Checkpoint::parse(&ranks.group.of_first(Vec::new())?).context("the checkpoint of rank 0")?;
    Ok(Some(Stored { configured, checkpoint, run_dir: None }))
}

/// This rank's threads: as many as the run had, or its part of the host's cores where these are fewer.
pub(super) fn threads(ranks: &Ranks, of_run: Option<usize>) -> usize {
    let own = ranks.threads(None);
    // A run without a number is one of a process that had all cores of its machine.
    of_run.map_or(own, |threads| own.min(threads))
}

/// The job of one rank, by the plan of the run where as many ranks with as many threads trained it, else by a new one.
pub(super) fn job(
    (ranks, context): (&Ranks, &RunContext),
    (session, options): (&Session, &TrainOptions),
    (dataset, config): (&Arc<Dataset>, JobConfig),
    (state, position): (&mut RunState, &mut Position),
) -> anyhow::Result<Job> {
    let alone = |what: &str| Usage::error(format!("--resume: {what}; resume it by one process, without mpirun"));
    if state.unified.is_some() {
        return Err(alone("several trainers of one process train the run together, and ranks have one each"));
    }
    if state.factored.is_some() {
        return Err(alone("devices with roles of one process train the run"));
    }
    if position.plan.schedule.shares.len() > 1 {
        return Err(alone("the run's plan has several routes, and ranks train by one"));
    }
    if position.within.as_ref().is_some_and(|within| within.batches.is_some()) {
        return Err(alone("its last checkpoint lies in an epoch that was planned again, of which ranks know nothing"));
    }
    if session.config.training.shard.is_some() && options.evaluation == Evaluation::Full {
        let what =
            "--shard: the run is evaluated with all neighbours, and no rank of --shard has all features; leave it out";
        return Err(Usage::error(what));
    }
    let mut facts = Ranks::facts(&dataset.name, &state.dataset)?;
    facts.push((
        "--epochs".to_string(),
        session.config.training.epochs.map_or("none".to_string(), |epochs| epochs.to_string()),
    ));
    facts.extend(start::facts_of_ranks(session));
    ranks.check_same(&facts)?;
    let divided = session.config.training.shard.map(|hot| ranks.share_features(dataset, &config, hot)).transpose()?;
    let context = &divided.map_or_else(|| context.clone(), |shards| context.with_shards(shards));
    // Ranks keep their plan, whatever is measured while they train.
    let is_kept = position.problem.take().is_none() && !std::mem::take(&mut position.drifted);
    let is_same = state.ranks == ranks.group.size() && config.threads == Some(state.machine.cores());
    if ranks.group.gather(&(is_kept && is_same))?.into_iter().all(|same| same) {
        let mut job = Job::new(context, Arc::clone(dataset), config)?;
        job.join(Arc::clone(&ranks.group));
        return Ok(job);
    }
    if state.split.is_some() {
        let by = words::plural(state.ranks as u64, "rank");
        let what = format!(
            "--resume: the run splits layers, and {by} trained it with other threads or plans; resume it as it was"
        );
        return Err(Usage::error(what));
    }
    context.remark(format_args!(
        "planned again: the run was trained by {} with {} each",
        words::plural(state.ranks as u64, "rank"),
        words::plural(state.machine.cores() as u64, "thread"),
    ));
    let evaluates = options.evaluation != Evaluation::None;
    let wanted = Wanted { evaluates, epochs: Some(options.epochs), ..Wanted::default() };
    let Measured { mut job, profile, problem, plans, held_bytes, .. } =
        session.planned().measure(context, dataset, config, wanted)?;
    let strategy = position.plan.strategy;
    let plan = plans.best_of(strategy).unwrap_or(plans.best()).clone();
    position.plan = OfRanks::join(context, &mut job, plan)?.plan().clone();
    let machine = MachineState::current(job.threads());
    state.machine.differences(&machine).iter().for_each(|line| context.remark(line));
    *state = RunState {
        profile,
        problem,
        plan: position.plan.clone(),
        held_bytes,
        machine,
        ranks: ranks.group.size(),
        ..state.clone()
    };
    Ok(job)
}
