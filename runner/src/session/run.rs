//! A run: planned or resumed, trained, and written.

mod length;
mod output;
mod resume;
mod start;
pub(crate) mod state;
mod summary;

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use morphgl_graph_store::{Dataset, Schema};
use morphgl_model_core::{LrScheduleKind, steps_of};
use morphgl_registry::{BatchId, SamplingSpec};
use serde_json::{Value, json};

use self::state::RunState;
use self::summary::{configuration, length, stop_reason, summary};
use super::modes::{Ended, Mode};
use super::options::PlanChoice;
use super::run_dir::checkpoints::{Checkpoints, Costs};
use super::run_dir::status::State;
use super::run_dir::{self, Configured, RunDir};
use super::{Session, machine, report, trainers};
use crate::paths::lossy;
use crate::usage::Usage;
use crate::{
    Beginning, Evaluation, Event, ExecutorSettings, Job, Plans, Position, Progress, Recorder, RunContext, Simulated,
    StopReason, TrainReport, Trainer, TrainingState, ranks, words,
};

/// The result of a run.
#[derive(Debug)]
pub struct RunResult {
    /// Epochs, the best model, and why training ended.
    pub report: TrainReport,
    /// The result in words.
    pub text: String,
    /// The document that `morphgl train --json` prints.
    pub json: Value,
    /// Files that could not be written, and why.
    pub unwritten: Option<anyhow::Error>,
}

impl RunResult {
    /// Whether the run was stopped before its end.
    pub fn is_interrupted(&self) -> bool {
        self.report.stop_reason == StopReason::Interrupted
    }
}

/// A run that is about to train.
struct Setup {
    dataset: Arc<Dataset>,
    /// Names of the dataset's features and classes, which the model file has.
    schema: Schema,
    /// Taken by the executor.
    job: Option<Job>,
    configured: Configured,
    state: RunState,
    /// The plans that the first one was chosen from.
    plans: Plans,
    mode: Box<dyn Mode>,
    simulated: Simulated,
    run_dir: Option<RunDir>,
    progress: Progress,
    resumed: Option<Resumption>,
}

/// Where a run is resumed.
struct Resumption {
    position: Position,
    training: TrainingState,
    /// Mini-batches of the epoch under way.
    batches: usize,
    /// The same in words.
    at: String,
}

/// A run that has trained.
struct Done {
    trainer: Trainer,
    report: TrainReport,
    recorder: Option<Recorder>,
    run_dir: Option<RunDir>,
    costs: Option<Costs>,
    exchange: Option<String>,
}

fn nothing_validated(option: &str) -> anyhow::Error {
    let cure = "use a dataset with validation nodes and --evaluation full";
    Usage::error(format!("{option}: nothing is validated; {cure}"))
}

/// Trains a new run, or goes on with the one in `resumed`.
pub(super) fn train(session: &Session, resumed: Option<&Path>) -> Result<RunResult> {
    check(session, resumed)?;
    let context = &session.context;
    let notice = context.machine().map(|described| machine::notice(described, true));
    notice.iter().for_each(|notice| context.line(notice));
    let mut setup = match resumed {
        None => start::setup(session, context)?,
        Some(dir) => match resume::setup(session, dir, context)? {
            resume::Resumed::Run(setup) => *setup,
            resume::Resumed::Done(mut result) => {
                result.text.extend(notice.iter().map(|notice| format!("{notice}\n")));
                return Ok(*result);
            }
        },
    };
    account(&setup, context);
    // Epochs that were not trained by this process alone.
    let resumption = setup.resumed.as_ref();
    let earlier = setup.progress.report.epochs.len() + resumption.map_or(0, |r| usize::from(r.batches > 0));
    let resumed_at = resumption.map(|r| json!({ "epoch": setup.progress.epoch, "batches": r.batches }));
    let mut done = run(session, &mut setup)?;
    let Done { trainer, report, recorder, .. } = &mut done;
    let parameters = trainer.executor.training_mut()?.parameters()?;
    let state = trainer.executor.training_mut()?.optimizer_state()?;
    let spec = &setup.configured.job.spec.optimizer;
    let last_lr = steps_of(&state).filter(|steps| steps.done > 0).map(|steps| spec.lr(steps));
    let summaries = setup.mode.summarise(Ended { trainer, report, recorder: recorder.as_mut(), earlier })?;
    let Setup { dataset, schema, configured, state, simulated, mode, plans, .. } = &setup;
    let options = &done.trainer.options;
    let parts = trainers::of_run(&done.report);
    let free = state.problem.limits.host_bytes.map(|free| free + state.held_bytes);
    let page = report::Run {
        trainers: &parts,
        title: format!("{} on {}", configured.job.spec.model.kind, dataset.name),
        loss: configured.job.spec.model.loss_title(),
        score: options.score,
        task: configured.job.spec.model.task,
        class_names: schema.classes.as_deref(),
        dataset,
        profile: &state.profile,
        problem: &state.problem,
        plans,
        plan: &state.plan,
        report: &done.report,
        configuration: configuration(&configured.job, options),
        held_bytes: state.held_bytes,
        memory: session.config.planning.limits.memory.or(free),
        simulated,
        peak: context.memory().peak(),
        mode: mode.as_ref(),
        executor: &done.trainer.executor,
    };
    // Without a step, the model is the initial one, which is written on request.
    let has_model = options.epochs == 0 || done.report.epochs.iter().any(|e| e.report.batches > 0);
    let learns = !simulated.trains(&mode.plan().schedule);
    let model = (learns && has_model).then_some((&configured.job.spec.model, schema, &parameters[..]));
    let save = session.config.training.save.as_deref();
    let unwritten = output::write(done.run_dir, save, model, page, done.recorder);
    let why = stop_reason(state.open, &done.report, options, state.plan.num_batches());
    let mut result = summary(
        &done.report,
        (options.score, configured.job.spec.model.task),
        &state.plan,
        &why,
        context.memory().peak(),
    );
    let json = &mut result.json;
    (json["unified"], json["factored"], json["layer_split"]) = (Value::Null, Value::Null, Value::Null);
    json["stale_gradients"] = Value::Null;
    for summary in summaries {
        json[summary.field] = summary.json;
        result.text += &summary.text;
    }
    result.text += &trainers::in_words(&parts);
    let optimizer = configured.job.spec.optimizer;
    json["optimizer"] = json!({
        "kind": optimizer.kind, "lr": optimizer.lr, "weight_decay": optimizer.weight_decay,
        "momentum": optimizer.momentum, "nesterov": optimizer.nesterov, "clip_norm": optimizer.clip_norm,
        "schedule": optimizer.schedule, "last_lr": last_lr,
    });
    if let Some(last) = last_lr.filter(|_| optimizer.schedule.varies()) {
        let (lr, schedule) = (optimizer.lr, optimizer.schedule.kind.name());
        result.text += &format!("learning rate {lr}, schedule {schedule}: {last:.3e} in the last step\n");
    }
    let sampling = &configured.job.sampler.sampling;
    if sampling.kind() != SamplingSpec::NEIGHBOR.name {
        result.text += &format!("mini-batches sampled by {sampling}\n");
    }
    json["trainers"] = json!((!parts.is_empty()).then_some(&parts));
    json["training"] = serde_json::to_value(options)?;
    json["training"]["sampled_by"] = json!(sampled_by(&setup));
    let path = session.config.planning.data.dataset.as_deref().or(configured.dataset.as_deref());
    json["dataset"] = json!({
        "name": dataset.name, "path": path.map(lossy),
        "num_nodes": dataset.num_nodes(), "num_edges": dataset.topology.num_edges(),
    });
    json["config"] = serde_json::to_value(&configured.job)?;
    json["profile"] = serde_json::to_value(&state.profile)?;
    json["held_bytes"] = json!(state.held_bytes);
    json["run"] = json!(session.config.training.run.as_deref().or(resumed).map(lossy));
    json["init"] = json!(configured.init.as_deref().map(lossy));
    json["resumed"] = json!(resumed_at);
    json["exchange"] = json!(done.exchange);
    json["checkpoints"] = json!(done.costs);
    json["machine"] = json!(context.machine());
    result.text.extend(notice.iter().map(|notice| format!("{notice}\n")));
    result.unwritten = (!unwritten.is_empty()).then(|| anyhow::anyhow!(unwritten.join("; ")));
    Ok(result)
}

/// Checks options before the dataset is read.
fn check(session: &Session, resumed: Option<&Path>) -> Result<()> {
    let training = &session.config.training;
    if training.evaluation == Some(Evaluation::None) {
        if training.patience.is_some() {
            return Err(nothing_validated("--patience"));
        }
        if training.evaluate_every.is_some() {
            return Err(Usage::error("--evaluate-every: --evaluation none never evaluates; leave one of the two out"));
        }
        if training.score.is_some() {
            return Err(Usage::error("--score: --evaluation none never evaluates; leave one of the two out"));
        }
    }
    let schedule = session.config.planning.model.optimizer.lr_schedule;
    if schedule == LrScheduleKind::Cosine && training.epochs.is_none() && session.like.is_none() && resumed.is_none() {
        return Err(Usage::error("--lr-schedule cosine: it falls until the last epoch; give --epochs too"));
    }
    if training.exchange.is_some()
        && !matches!(training.plan, PlanChoice::Unified | PlanChoice::Factored | PlanChoice::Auto)
    {
        return Err(Usage::error("--exchange: one trainer alone adds up no gradients; give --plan unified too"));
    }
    if training.shares.is_some() && !matches!(training.plan, PlanChoice::Unified) {
        return Err(Usage::error("--shares: one trainer alone has whole mini-batches; give --plan unified too"));
    }
    if training.checkpoint_every.is_some() && training.run.is_none() && resumed.is_none() {
        return Err(Usage::error("--checkpoint-every: checkpoints are kept in a run directory; give --run DIR"));
    }
    training.shard.map_or(Ok(()), |_| ranks::check_shard(&session.context, training.evaluation))?;
    training.run.as_deref().map_or(Ok(()), RunDir::refuse_taken)?;
    training.save.as_deref().map_or(Ok(()), run_dir::refuse_unwritable)
}

/// What samples the mini-batches of sampled evaluations.
fn sampled_by(setup: &Setup) -> Option<String> {
    let is_sampled = setup.configured.training.evaluation == Evaluation::Sampled;
    is_sampled.then(|| setup.mode.plan().schedule.shares[0].keys.batching.to_string())
}

/// Says what the run needs, and how long it trains.
fn account(setup: &Setup, context: &RunContext) {
    let Setup { configured, state, mode, simulated, .. } = setup;
    let plan = mode.plan();
    if simulated.trains(&plan.schedule) {
        context.remark("this plan trains on the simulated accelerator: nothing is learned, and no model is saved");
    }
    let (host, held) = (words::bytes(plan.memory.host), words::bytes(state.held_bytes));
    let caches = Some(("caches", plan.memory.caches)).filter(|(_, bytes)| *bytes > 0);
    let parts = caches.into_iter().chain(mode.held());
    let parts: String = parts.map(|(what, bytes)| format!("{what} {}, ", words::bytes(bytes))).collect();
    context.line(format_args!("memory: {parts}buffers and workers at most {host}, all else about {held}"));
    if let Some(by) = sampled_by(setup) {
        context.line(format_args!("evaluates on mini-batches sampled by {by}"));
    }
    let length = || format!("{}\n", length(&configured.training, state.plan.num_batches()));
    context.line(if state.open { length() } else { String::new() });
}

/// Trains.
fn run(session: &Session, setup: &mut Setup) -> Result<Done> {
    let (context, training) = (&session.context, &session.config.training);
    let Setup { job, configured, state, mode, simulated, .. } = setup;
    let options = configured.training.clone();
    let (stop, limit) = mode.limits(context, training.time_limit);
    let settings = ExecutorSettings { limit: Some(limit), ..Default::default() };
    let recorded = setup.run_dir.is_some() || session.records;
    let mut recorder = recorded.then(|| mode.recorder(simulated));
    let run_dir = setup.run_dir.take().map(RefCell::new);
    let state_of_run = serde_json::to_value(&*state)?;
    let mut checkpoints =
        Checkpoints::new(run_dir.as_ref(), state_of_run, training.checkpoint_every, context.observer());
    let (progress, resumed) = (std::mem::take(&mut setup.progress), setup.resumed.take());
    let first = BatchId { epoch: progress.epoch, index: resumed.as_ref().map_or(0, |r| r.batches as u32) };
    let executor = mode.executor(job.take().expect("a run trains once"), (first, resumed.is_some()), settings)?;
    executor.exchange().iter().for_each(|how| context.line(format_args!("gradients: {how}")));
    let exchange = executor.exchange().map(str::to_string);
    let mut beginning = Beginning {
        steps_per_epoch: state.plan.num_batches(),
        epochs: options.epochs,
        open: state.open && options.patience.is_some(),
        score: options.score,
        task: configured.job.spec.model.task,
        done: 0,
    };
    let mut trainer = Trainer { executor, options };
    match resumed {
        None => {
            context.observer().begins(beginning);
            trainer.keep(&progress, &mut checkpoints)?;
            run_dir.as_ref().map_or(Ok(()), |dir| dir.borrow().begin(configured))?;
        }
        Some(Resumption { position, training, batches, at }) => {
            beginning.done = u64::from(progress.epoch) * beginning.steps_per_epoch as u64 + batches as u64;
            context.observer().begins(beginning);
            trainer.executor.restore(position, &training)?;
            mode.check_restored(&mut trainer)?;
            context.remark(&at);
            recorder.iter_mut().for_each(|recorder| recorder.resumed(&progress, &at));
        }
    }
    let mut warned = false;
    let trained = trainer.train_from(progress, &mut checkpoints, &stop, &mut |event| {
        context.observer().observe(event);
        recorder.iter_mut().for_each(|recorder| recorder.observe(event));
        // A failed metrics write never stops training; it is retried with the next epoch and at the end.
        if let (Event::Epoch(row), Some(dir)) = (event, &run_dir)
            && let Err(e) = dir.borrow_mut().append(row)
            && !std::mem::replace(&mut warned, true)
        {
            context.remark(format_args!("{}; training goes on", words::one_line(&e)));
        }
    });
    context.observer().ends();
    let costs = run_dir.as_ref().map(|_| checkpoints.costs());
    let run_dir = run_dir.map(RefCell::into_inner);
    let report = trained.inspect_err(|_| {
        // The error is what matters; a status that cannot be written stays that of a run that was killed.
        let _ = run_dir.as_ref().map(|dir| dir.set_status(State::Failed));
    })?;
    Ok(Done { trainer, report, recorder, run_dir, costs, exchange })
}
