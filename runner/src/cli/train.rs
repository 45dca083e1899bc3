//! `morphgl train`: plan, train, evaluate.

mod length;
mod output;
mod resume;
mod start;
mod state;
mod summary;

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{ArgMatches, Parser};
use morphgl_graph_store::{Dataset, Schema};
use morphgl_registry::BatchId;
use serde_json::json;

use super::Outcome;
use super::checkpoints::{Checkpoints, Every};
use super::paths::lossy;
use super::plan_arg::PlanArg;
use super::planned::PlannedArgs;
use super::run_dir::{self, Configured, RunDir};
use super::screen::Screen;
use super::show::{self, Show};
use super::status::State;
use super::usage::Usage;
use super::{interrupt, layer_split, ranks, report, trainers, values};
use crate::ranks::Ranks;
use crate::{
    Evaluation, Event, ExchangeKind, Executor, ExecutorSettings, Job, Plan, Plans, Position, Problem, Process,
    Progress, Recorder, RunContext, Shares, Simulated, SplitPlan, Stop, Trainer, TrainingState, Unified,
};
use state::RunState;
use summary::{configuration, length, stop_reason, summary};

#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  morphgl train                                             a generated graph, three-layer GraphSAGE
  morphgl train cora                                        until validation stops improving
  morphgl train --model mlp                                 the features alone, for comparison
  morphgl train cora --model gcn --fanouts=-1,-1 --hidden 16 --lr 0.01 --weight-decay 5e-4 --epochs 200
  morphgl train products --fanouts 15,10,5 --run runs/products --patience 5
  morphgl train papers --memory 64GiB --cache inclusion:24GiB   from disk, hot rows cached
  morphgl train --config runs/1/config.toml --run runs/2    trains as an earlier run did
  morphgl train --resume runs/products                      goes on after an interruption, a crash or a power failure
  morphgl train --resume runs/products --epochs 100         trains a run that is done for more epochs
  morphgl train --json | jq .test_accuracy")]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) planned: PlannedArgs,
    /// Number of epochs [default: until validation has not improved for 100 steps (at least 4 epochs), at most 2000 steps
    /// (at least 10 epochs); without validation 300 steps (at least 5 epochs)]
    #[arg(help_heading = "Training", long)]
    epochs: Option<u32>,
    /// Stops after this many epochs without a better validation accuracy
    #[arg(help_heading = "Training", long)]
    patience: Option<u32>,
    /// How to evaluate: with all neighbours, on sampled mini-batches, or not at all
    /// [default: full; sampled where that does not fit in memory, and with --sampler shadow and walk]
    #[arg(help_heading = "Training", long, value_parser = values::one_of::<Evaluation, _>(["full", "sampled", "none"]))]
    evaluation: Option<Evaluation>,
    /// Epochs between evaluations [default: 1; without --epochs, as many as make 5 steps]
    #[arg(help_heading = "Training", long, value_parser = clap::value_parser!(u32).range(1..))]
    evaluate_every: Option<u32>,
    /// The plan: auto has the minimum predicted epoch time, of one trainer or of all together (several ways to prepare mini-batches
    /// at once only where that is 5% shorter), and one trainer plans again when durations change or epochs take a tenth longer than
    /// another plan promises; unified trains on the CPU and all devices together, or on all devices by the training operator that
    /// --training names, each on a share of every mini-batch; sequential, pipeline, device, paper, interleaved, or a file written by `morphgl plan --output`
    #[arg(help_heading = "Training", long, default_value = "auto", value_name = "PLAN")]
    plan: PlanArg,
    /// How --plan unified divides mini-batches: by the measured speeds of the trainers, or with as many seeds for each, so that two
    /// runs have the same bits [default: balanced]
    #[arg(help_heading = "Training", long, value_parser = values::one_of::<Shares, _>(["balanced", "equal"]))]
    shares: Option<Shares>,
    /// What adds up the gradients of several trainers: NCCL between CUDA devices, where it is found and measured to be faster, else
    /// host memory; or one of the two [default: auto]
    #[arg(help_heading = "Training", long, value_parser = values::one_of::<ExchangeKind, _>(["auto", "host", "nccl"]))]
    exchange: Option<ExchangeKind>,
    /// Seconds after which a phase of one mini-batch counts as hanging, and the run ends
    #[arg(help_heading = "Training", long, default_value = "300", value_name = "SECONDS", value_parser = values::seconds)]
    time_limit: Duration,
    /// Ranks of MPI add up the gradients of the last layers while backward goes on, in buckets of so many bytes or more; 0: all
    /// gradients after backward [default: 128KiB]
    #[arg(help_heading = "Training", long, value_name = "BYTES", value_parser = values::bytes_or_none)]
    gradient_bucket: Option<u64>,
    /// Writes config.toml, plan.json, status.json, metrics.jsonl, checkpoints, trace.json, report.html and model.safetensors
    /// into this directory
    #[arg(help_heading = "Training", long, value_name = "DIR")]
    run: Option<PathBuf>,
    /// Trains as a run did, whose RUN/config.toml is this file: its model, mini-batches, seed, operators and length; on its dataset
    /// where none is given. What says how and where it trains may be given: --plan, --run, --save, --epochs, --threads, --memory, …;
    /// and options of the sampler, such as --fanouts and --batch-size, which replace the run's
    #[arg(help_heading = "Training", long, value_name = "FILE", conflicts_with = "resume")]
    config: Option<PathBuf>,
    /// The content of that file.
    #[arg(skip)]
    configured: Option<Box<Configured>>,
    /// Whether activities are recorded for another rank's run directory.
    #[arg(skip)]
    records: bool,
    /// Continues the run in this directory from its last checkpoint, with its settings: the result is bit for bit that of
    /// training without interruption. --epochs may be raised; --save, --time-limit and --checkpoint-every may be given
    #[arg(help_heading = "Training", long, value_name = "DIR")]
    resume: Option<PathBuf>,
    /// Under mpirun, divides the rows of the features among the ranks: each holds its part, and copies of the rows that a policy of
    /// `morphgl cache` ranks first, in at most so much memory, for example inclusion:1GiB; it reads all others from the ranks
    /// that hold them. Evaluation then samples
    #[arg(help_heading = "Training", long, value_name = "POLICY:SIZE", num_args = 0..=1, value_parser = values::cache)]
    shard: Option<Option<values::Cache>>,
    /// Time or number of mini-batches between checkpoints within an epoch, for example 600s, 10m, 2h or 500b; there are others
    /// between epochs as often as they take at most 1% of the time [default: 10m, and at most 1% of the time]
    #[arg(help_heading = "Training", long, value_name = "INTERVAL")]
    checkpoint_every: Option<Every>,
    /// Starts from the parameters of this safetensors file, ours or a PyG `state_dict` saved as one
    #[arg(help_heading = "Training", long, value_name = "FILE")]
    init: Option<PathBuf>,
    /// Writes the trained model to this safetensors file
    #[arg(help_heading = "Training", long, value_name = "FILE")]
    save: Option<PathBuf>,
}

impl Args {
    /// Checks options before the dataset is read.
    fn check(&self, context: &RunContext) -> anyhow::Result<()> {
        if self.evaluation == Some(Evaluation::None) {
            if self.patience.is_some() {
                return Err(nothing_validated("--patience"));
            }
            if self.evaluate_every.is_some() {
                return Err(Usage::error(
                    "--evaluate-every: --evaluation none never evaluates; leave one of the two out",
                ));
            }
        }
        if self.exchange.is_some() && !matches!(self.plan, PlanArg::Unified | PlanArg::Auto) {
            return Err(Usage::error("--exchange: one trainer alone adds up no gradients; give --plan unified too"));
        }
        if self.shares.is_some() && !matches!(self.plan, PlanArg::Unified) {
            return Err(Usage::error("--shares: one trainer alone has whole mini-batches; give --plan unified too"));
        }
        if self.checkpoint_every.is_some() && self.run.is_none() && self.resume.is_none() {
            return Err(Usage::error("--checkpoint-every: checkpoints are kept in a run directory; give --run DIR"));
        }
        self.shard.map_or(Ok(()), |_| ranks::check_shard(context, self.evaluation))?;
        self.run.as_deref().map_or(Ok(()), RunDir::refuse_taken)?;
        self.save.as_deref().map_or(Ok(()), run_dir::refuse_unwritable)
    }

    /// Makes the options those of one rank: its part of the threads and of the memory; rank 0 alone writes files.
    fn prepare_for(&mut self, ranks: &Ranks) -> anyhow::Result<()> {
        let (batch, limits) = (&mut self.planned.batch, &mut self.planned.limits);
        // What others hold is never read to this rank's memory.
        self.planned.data.divided = self.shard.is_some();
        batch.threads = Some(ranks.threads(batch.threads));
        limits.memory = ranks.memory(limits.memory);
        if !ranks.is_first() {
            self.records = self.run.is_some() || self.resume.is_some();
            (self.run, self.save, self.checkpoint_every) = (None, None, None);
        }
        Ok(())
    }
}

fn nothing_validated(option: &str) -> anyhow::Error {
    let cure = "use a dataset with validation nodes and --evaluation full";
    Usage::error(format!("{option}: nothing is validated; {cure}"))
}

/// A run that is about to train.
struct Setup {
    dataset: Arc<Dataset>,
    /// Names of the dataset's features and classes, which the model file has.
    schema: Schema,
    job: Job,
    configured: Configured,
    state: RunState,
    /// The plans that the first one was chosen from.
    plans: Plans,
    /// The problem that plans are made of during the run; `None` keeps the plan.
    replanned: Option<Problem>,
    /// The plan to begin with.
    plan: Plan,
    /// The plan of a group, whose first trainer's is `plan`.
    unified: Option<Unified>,
    /// The plan of layer-split training, of which `plan` is a part.
    split: Option<SplitPlan>,
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

/// Refuses options beside `--resume` that a run takes from its directory; `matches` are those of the whole command line.
pub(crate) fn refuse_options(matches: &ArgMatches) -> anyhow::Result<()> {
    matches.subcommand_matches("train").map_or(Ok(()), resume::refuse_options)
}

pub(crate) fn run(args: &mut Args, (process, stop): (&Arc<Process>, &Stop), show: Show) -> anyhow::Result<Outcome> {
    args.configure(show)?;
    let listen = || interrupt::listen_for(process, stop);
    let ranks = ranks::enter(process, args.time_limit, args.gradient_bucket, listen)?;
    // MPI is initialized before operators are probed: drivers may start threads.
    let context = &RunContext::of(process, stop.clone())?;
    let Some(ranks) = ranks else { return run_here(args, context, show) };
    args.prepare_for(ranks)?;
    run_here(args, context, ranks.show(show))
}

fn run_here(args: &Args, context: &RunContext, show: Show) -> anyhow::Result<Outcome> {
    args.check(context)?;
    let setup = match &args.resume {
        None => start::setup(args, context, show)?,
        Some(dir) => match resume::setup(args, dir, context, show)? {
            resume::Resumed::Run(setup) => *setup,
            resume::Resumed::Done(outcome) => return Ok(outcome),
        },
    };
    train(args, setup, context, show)
}

fn train(args: &Args, setup: Setup, context: &RunContext, show: Show) -> anyhow::Result<Outcome> {
    let Setup {
        dataset,
        schema,
        job,
        configured,
        state,
        plans,
        replanned,
        plan,
        unified,
        split,
        simulated,
        run_dir,
        progress,
        resumed,
    } = setup;
    let options = configured.training.clone();
    let learns = !simulated.trains(&plan.schedule);
    if !learns {
        show.say("this plan trains on the simulated accelerator: nothing is learned, and no model is saved");
    }
    let (host, held) = (show::bytes(plan.memory.host), show::bytes(state.held_bytes));
    let caches = match plan.memory.caches {
        0 => String::new(),
        bytes => format!("caches {}, ", show::bytes(bytes)),
    };
    let rows = split.as_ref().map_or(String::new(), |split| format!("given rows {}, ", show::bytes(split.bytes)));
    show.line(format_args!("memory: {caches}{rows}buffers and workers at most {host}, all else about {held}"));
    let steps_per_epoch = state.plan.num_batches();
    let sampled_by = (options.evaluation == Evaluation::Sampled).then(|| plan.schedule.shares[0].keys.batching.clone());
    sampled_by.iter().for_each(|by| show.line(format_args!("evaluates on mini-batches sampled by {by}")));
    show.line(if state.open { format!("{}\n", length(&options, steps_per_epoch)) } else { String::new() });

    let (stop, limit) = match context.ranks() {
        None => (interrupt::stop(context), args.time_limit),
        // A training step contains its wait for other ranks, which has this limit of its own.
        Some(ranks) => (ranks.group.stop(), 2 * args.time_limit),
    };
    let settings = ExecutorSettings { limit: Some(limit), ..Default::default() };
    let mut recorder = (run_dir.is_some() || args.records).then(|| match &unified {
        Some(unified) => Recorder::of_group(unified, &simulated),
        None => Recorder::new(&plan, &simulated),
    });
    let open = state.open && options.patience.is_some();
    let mut screen = Screen::new(show, steps_per_epoch, options.epochs, open);
    let run_dir = run_dir.map(RefCell::new);
    let mut keeper =
        Checkpoints::new(run_dir.as_ref(), serde_json::to_value(&state)?, args.checkpoint_every, show, &screen.bar);
    let first = BatchId { epoch: progress.epoch, index: resumed.as_ref().map_or(0, |r| r.batches as u32) };
    let executor = match (&unified, &split) {
        (_, Some(split)) => Executor::split(job, split, (first, resumed.is_some()), settings)?,
        (Some(unified), None) => Executor::unified(job, unified, first, settings)?,
        (None, None) => Executor::new(job, &plan, replanned, settings)?,
    };
    executor.exchange().iter().for_each(|how| show.line(format_args!("gradients: {how}")));
    let exchange = executor.exchange().map(str::to_string);
    let mut trainer = Trainer { executor, options };
    // Epochs that were not trained by this process alone.
    let earlier = progress.report.epochs.len() + resumed.as_ref().map_or(0, |r| usize::from(r.batches > 0));
    let resumed_at = resumed.as_ref().map(|r| json!({ "epoch": progress.epoch, "batches": r.batches }));
    match resumed {
        None => {
            trainer.keep(&progress, &mut keeper)?;
            run_dir.as_ref().map_or(Ok(()), |dir| dir.borrow().begin(&configured))?;
        }
        Some(Resumption { position, training, batches, at }) => {
            trainer.executor.restore(position, &training)?;
            if let Some(ranks) = context.ranks() {
                ranks.check_parameters("resumed parameters", &trainer.executor.training_mut()?.parameters()?)?;
            }
            show.say(&at);
            screen.bar.set_position(u64::from(progress.epoch) * steps_per_epoch as u64 + batches as u64);
            recorder.iter_mut().for_each(|recorder| recorder.resumed(&progress, &at));
        }
    }
    let mut warned = false;
    let trained = trainer.train_from(progress, &mut keeper, &stop, &mut |event| {
        screen.show(event);
        recorder.iter_mut().for_each(|recorder| recorder.observe(event));
        // A failed metrics write never stops training; it is retried with the next epoch and at the end.
        if let (Event::Epoch(row), Some(dir)) = (event, &run_dir)
            && let Err(e) = dir.borrow_mut().append(row)
            && !std::mem::replace(&mut warned, true)
        {
            screen.bar.suspend(|| show.say(format_args!("{}; training goes on", show::one_line(&e))));
        }
    });
    screen.bar.finish_and_clear();
    let costs = run_dir.as_ref().map(|_| keeper.costs());
    let run_dir = run_dir.map(RefCell::into_inner);
    let report = trained.inspect_err(|_| {
        // The error is what matters; a status that cannot be written stays that of a run that was killed.
        let _ = run_dir.as_ref().map(|dir| dir.set_status(State::Failed));
    })?;
    let threads = trainer.executor.threads();
    let parameters = trainer.executor.training_mut()?.parameters()?;
    let of_ranks = match context.ranks() {
        None => None,
        Some(ranks) => {
            ranks.check_parameters("trained parameters", &parameters)?;
            recorder.as_mut().map_or(Ok(()), |recorder| ranks.join_timelines(recorder))?;
            Some(ranks.summary(&report, earlier, (threads, trainer.executor.context.shards()))?)
        }
    };
    let parts = trainers::of_run(&report);
    let run = report::Run {
        trainers: &parts,
        title: format!("{} on {}", configured.job.spec.model.kind, dataset.name),
        loss: configured.job.spec.model.loss_title(),
        dataset: &dataset,
        profile: &state.profile,
        problem: &state.problem,
        plans: &plans,
        plan: &state.plan,
        report: &report,
        configuration: configuration(&configured.job, &trainer.options),
        held_bytes: state.held_bytes,
        memory: (args.planned.limits.memory).or(state.problem.limits.host_bytes.map(|free| free + state.held_bytes)),
        simulated: &simulated,
        peak: context.memory().peak(),
        split: split.as_ref().zip(trainer.executor.split_statistics()),
    };
    // Without a step, the model is the initial one, which is written on request.
    let has_model = trainer.options.epochs == 0 || report.epochs.iter().any(|e| e.report.batches > 0);
    let model = (learns && has_model).then_some((&configured.job.spec.model, &schema, &parameters[..]));
    let path = args.run.as_ref().or(args.resume.as_ref());
    let unwritten = output::write(run_dir, args.save.as_deref(), model, run, recorder);
    let why = stop_reason(state.open, &report, &trainer.options, steps_per_epoch);
    let mut outcome = summary(&report, &state.plan, &why, context.memory().peak());
    if let Some((ranks, text)) = of_ranks {
        outcome.json["ranks"] = ranks;
        outcome.text += &text;
    }
    outcome.text += &trainers::in_words(&parts);
    outcome.json["trainers"] = json!((!parts.is_empty()).then_some(&parts));
    outcome.json["layer_split"] = json!(null);
    if let (Some(split), Some(statistics)) = (&split, trainer.executor.split_statistics()) {
        let (text, json) = layer_split::summary(split, statistics);
        outcome.text += &text;
        outcome.json["layer_split"] = json;
    }
    outcome.json["training"] = serde_json::to_value(&trainer.options)?;
    outcome.json["training"]["sampled_by"] = json!(sampled_by);
    outcome.json["dataset"] = json!({
        "name": dataset.name, "path": args.planned.data.dataset.as_deref().or(configured.dataset.as_deref()).map(lossy),
        "num_nodes": dataset.num_nodes(), "num_edges": dataset.topology.num_edges(),
    });
    outcome.json["config"] = serde_json::to_value(&configured.job)?;
    outcome.json["profile"] = serde_json::to_value(&state.profile)?;
    outcome.json["held_bytes"] = json!(state.held_bytes);
    outcome.json["run"] = json!(path.map(|path| lossy(path)));
    outcome.json["init"] = json!(configured.init.as_deref().map(lossy));
    outcome.json["resumed"] = json!(resumed_at);
    outcome.json["unified"] = serde_json::to_value(&unified)?;
    outcome.json["exchange"] = json!(exchange);
    outcome.json["checkpoints"] = json!(costs);
    outcome.unwritten = (!unwritten.is_empty()).then(|| anyhow::anyhow!(unwritten.join("; ")));
    Ok(outcome)
}
