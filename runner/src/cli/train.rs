//! `morphgl train`: plan, train, evaluate.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{Parser, ValueEnum};
use indicatif::ProgressBar;
use morphgl_plan::{Replanned, Time};
use serde_json::json;

use super::Outcome;
use super::inference::{self, Inference};
use super::plan_arg::{PlanArg, name_training};
use super::profile::{Measured, PlannedArgs};
use super::run_dir::{self, RunDir};
use super::show::{self, Show};
use super::usage::Usage;
use super::{interrupt, report, values};
use crate::recorder::is_simulated;
use crate::{
    BatchDone, EpochRow, Evaluation, Event, Executor, ExecutorSettings, JobConfig, Plan, Recorder, TrainOptions,
    TrainReport, Trainer, Why,
};

#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  morphgl train                                             a generated graph, three-layer GraphSAGE
  morphgl train --model mlp                                 the features alone, to compare with
  morphgl train cora --model gcn --fanouts=-1,-1 --hidden 16 --lr 0.01 --weight-decay 5e-4 --epochs 200
  morphgl train products --fanouts 15,10,5 --run runs/products --patience 5
  morphgl train --json | jq .test_accuracy")]
pub(crate) struct Args {
    #[command(flatten)]
    planned: PlannedArgs,
    /// Epochs at most
    #[arg(help_heading = "Training", long, default_value_t = 5)]
    epochs: u32,
    /// Stop after so many epochs without a better validation accuracy
    #[arg(help_heading = "Training", long)]
    patience: Option<u32>,
    /// How to evaluate: with all neighbours, on sampled mini-batches, or not at all
    /// [default: full; sampled where that does not fit in memory]
    #[arg(help_heading = "Training", long, value_enum)]
    evaluation: Option<EvaluationArg>,
    /// Epochs between evaluations [default: 1]
    #[arg(help_heading = "Training", long, value_parser = clap::value_parser!(u32).range(1..))]
    evaluate_every: Option<u32>,
    /// The plan: auto takes the least predicted epoch time and plans again when durations change;
    /// sequential, pipeline, device, paper, interleaved, or a file written by `morphgl plan --output`
    #[arg(help_heading = "Training", long, default_value = "auto", value_name = "PLAN")]
    plan: PlanArg,
    /// Seconds after which a phase of one mini-batch counts as hanging, and the run ends
    #[arg(help_heading = "Training", long, default_value = "300", value_name = "SECONDS", value_parser = values::seconds)]
    time_limit: Duration,
    /// Writes config.toml, plan.json, metrics.jsonl, trace.json, report.html and model.safetensors into this directory
    #[arg(help_heading = "Training", long, value_name = "DIR")]
    run: Option<PathBuf>,
    /// Starts from the parameters of this safetensors file, ours or a PyG `state_dict` saved as one
    #[arg(help_heading = "Training", long, value_name = "FILE")]
    init: Option<PathBuf>,
    /// Writes the trained model to this safetensors file
    #[arg(help_heading = "Training", long, value_name = "FILE")]
    save: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum EvaluationArg {
    Full,
    Sampled,
    None,
}

impl From<EvaluationArg> for Evaluation {
    fn from(arg: EvaluationArg) -> Self {
        match arg {
            EvaluationArg::Full => Evaluation::Full,
            EvaluationArg::Sampled => Evaluation::Sampled,
            EvaluationArg::None => Evaluation::None,
        }
    }
}

pub(crate) fn run(args: &Args, show: Show) -> anyhow::Result<Outcome> {
    // What can be said without the dataset is said before it is read, and before hours of training are lost for it.
    let nothing_validated =
        || Usage::error("--patience: nothing is validated; use a dataset with validation nodes and --evaluation full");
    if matches!(args.evaluation, Some(EvaluationArg::None)) {
        if args.patience.is_some() {
            return Err(nothing_validated());
        }
        if args.evaluate_every.is_some() {
            return Err(Usage::error("--evaluate-every: --evaluation none evaluates never; leave one of the two out"));
        }
    }
    let given = args.plan.read()?;
    if let Some(dir) = &args.run {
        RunDir::refuse_existing(dir)?;
    }
    if let Some(path) = &args.save {
        run_dir::refuse_unwritable(path)?;
    }
    let init = args.init.as_deref().map(morphgl_model_spec::load_parameters).transpose()?;
    let (dataset, mut config) = args.planned.open(show)?;
    if let Some(plan) = &given {
        // What a file plans with is not chosen again.
        name_training(plan, &mut config)?;
    }
    let asked = args.evaluation.map(Evaluation::from);
    let evaluation = match config.disk_bytes {
        Some(_) => Inference::OnDisk.choose(asked, show)?,
        None => asked.unwrap_or_default(),
    };
    let mut options = TrainOptions {
        epochs: args.epochs,
        patience: args.patience,
        evaluation,
        evaluate_every: args.evaluate_every.unwrap_or(1),
        evaluation_workers: None,
    };
    if options.patience.is_some() && dataset.splits.valid.is_empty() {
        return Err(nothing_validated());
    }
    let measured = args.planned.measure(&dataset, config.clone(), options.evaluation != Evaluation::None, show)?;
    let Measured { mut job, profile, problem, plans, held_bytes } = measured;
    if let (Some(path), Some(parameters)) = (&args.init, init) {
        let set = job.set_parameters(&parameters);
        set.with_context(|| format!("{}: not the parameters of this model; give its options again", path.display()))?;
    }
    let plan = args.plan.choose(given, &plans)?;
    let room = problem.limits.host_bytes.unwrap_or(u64::MAX).saturating_sub(plan.memory.host);
    if options.evaluation == Evaluation::Full {
        let need = plan.schedule.shares.first().and_then(|share| job.infer_bytes(&share.keys.training));
        options.evaluation = Inference::InMemory { need, room }.choose(asked, show)?;
    }
    options.evaluation_workers = inference::fewer_workers(&problem, &plan, room);
    // Made only now: a command that fails before has not used the directory up.
    let mut run_dir = match &args.run {
        Some(dir) => Some(RunDir::create(dir, &args.planned.data.dataset, &args.init, &config, &options)?),
        None => None,
    };
    if let Some(dir) = &run_dir {
        dir.write_plan(&plan)?;
    }
    for share in &plan.schedule.shares {
        show.line(format_args!("{}", share.keys));
    }
    profile.selections.iter().for_each(|selection| show.line(format_args!("{selection}")));
    show.line(format_args!("plan: {plan}"));
    let simulated = plan.schedule.shares.iter().any(|s| is_simulated(&s.keys.training));
    if simulated {
        show.say("this plan trains on the simulated accelerator: nothing is learned, and no model is saved");
    }
    let (host, held) = (show::bytes(plan.memory.host), show::bytes(held_bytes));
    show.line(format_args!("memory: buffers and workers at most {host}, all else about {held}\n"));

    let stop = interrupt::stop()?;
    let settings = ExecutorSettings { limit: Some(args.time_limit), ..Default::default() };
    // A plan that was asked for is kept.
    let again = matches!(args.plan, PlanArg::Auto).then(|| problem.clone());
    let mut recorder = run_dir.is_some().then(|| Recorder::new(&plan));
    let mut trainer = Trainer { executor: Executor::new(job, &plan, again, settings)?, options };
    let mut screen = Screen::new(show, plan.num_batches(), args.epochs);
    let mut told = false;
    let report = trainer.train(&stop, &mut |event| {
        screen.see(event);
        if let Some(recorder) = &mut recorder {
            record(recorder, event);
        }
        // Hours of training are not ended for a line: it waits for room, and is missed in the end at the earliest.
        if let (Event::Epoch(row), Some(dir)) = (event, run_dir.as_mut())
            && let Err(e) = dir.append(row)
            && !std::mem::replace(&mut told, true)
        {
            screen.bar.suspend(|| show.say(format_args!("{}; training goes on", show::one_line(&e))));
        }
    })?;
    screen.bar.finish_and_clear();
    // Whatever cannot be written, all else is, and what was learned is told.
    let mut unwritten: Vec<String> = Vec::new();
    let mut note = |written: anyhow::Result<()>| unwritten.extend(written.err().map(|e| show::one_line(&e)));
    if let Some(dir) = &mut run_dir {
        note(dir.write_metrics());
    }
    let parameters = trainer.executor.training_mut()?.parameters()?;
    let model = &config.spec.model;
    let trained = report.epochs.iter().any(|e| e.report.batches > 0);
    for path in run_dir.iter().map(|dir| dir.model()).chain(args.save.clone()).filter(|_| trained && !simulated) {
        note(morphgl_model_spec::save_model(&path, model, &parameters).map_err(Into::into));
    }
    if let (Some(dir), Some(recorder)) = (&run_dir, recorder) {
        let run = report::Run {
            title: format!("{} on {}", config.spec.model.kind, dataset.name),
            profile: &profile,
            problem: &problem,
            plans: &plans,
            plan: &plan,
            report: &report,
            configuration: configuration(&config, &trainer.options),
            held_bytes,
        };
        note(dir.write_report(&report::of_run(run, recorder)));
    }
    let mut outcome = summary(&report, &plan);
    outcome.json["dataset"] = json!({
        "name": dataset.name, "path": args.planned.data.dataset,
        "num_nodes": dataset.num_nodes(), "num_edges": dataset.topology.num_edges(),
    });
    outcome.json["config"] = serde_json::to_value(&config)?;
    outcome.json["profile"] = serde_json::to_value(&profile)?;
    outcome.json["held_bytes"] = json!(held_bytes);
    outcome.json["run"] = json!(args.run);
    outcome.json["init"] = json!(args.init);
    outcome.unwritten = (!unwritten.is_empty()).then(|| anyhow::anyhow!(unwritten.join("; ")));
    Ok(outcome)
}

fn record(recorder: &mut Recorder, event: &Event<'_>) {
    match event {
        Event::Begins(plan) => recorder.planned(plan),
        Event::Activity(activity) => recorder.activity(activity),
        Event::Replanned(new) => recorder.replanned(new),
        Event::Epoch(row) => recorder.epoch(row.seconds, row.evaluation_seconds),
        Event::Batch(_) | Event::Evaluating => {}
    }
}

/// The configuration as a flat list of names and values.
fn configuration(config: &JobConfig, options: &TrainOptions) -> Vec<(String, String)> {
    fn flatten(prefix: &str, value: &serde_json::Value, rows: &mut Vec<(String, String)>) {
        match value {
            serde_json::Value::Object(fields) => {
                for (name, value) in fields {
                    let name = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
                    flatten(&name, value, rows);
                }
            }
            serde_json::Value::String(text) => rows.push((prefix.to_string(), text.clone())),
            other => rows.push((prefix.to_string(), other.to_string())),
        }
    }
    let mut rows = Vec::new();
    for value in [serde_json::to_value(config), serde_json::to_value(options)].into_iter().flatten() {
        flatten("", &value, &mut rows);
    }
    rows
}

fn summary(report: &TrainReport, plan: &Plan) -> Outcome {
    let percent = |x: f64| format!("{:.2}%", 100.0 * x);
    let mut text = String::new();
    let say = |text: &mut String, line: String| writeln!(text, "{line}").expect("a string takes every line");
    let best = report.best.as_ref();
    let test = report.test;
    let valid = best.map(|b| format!("best validation accuracy {} in epoch {}", percent(b.valid.accuracy()), b.epoch));
    let tested = test.map(|t| format!("test accuracy {}", percent(t.accuracy())));
    let scores: Vec<String> = valid.into_iter().chain(tested).collect();
    if !scores.is_empty() {
        say(&mut text, scores.join("; "));
    }
    let predicted = plan.prediction.epoch_seconds;
    let measured = report.median_epoch_seconds();
    if let Some(measured) = measured {
        let off = 100.0 * (measured / predicted - 1.0);
        let (predicted, measured) = (Time(predicted), Time(measured));
        say(&mut text, format!("epoch: predicted {predicted}, measured {measured} (median, {off:+.0}%)"));
    }
    let peak = crate::peak_rss_bytes();
    let why = match report.why {
        Why::Epochs => "all epochs done",
        Why::Patience => "stopped early: validation did not get better",
        Why::Interrupted => "interrupted",
    };
    say(&mut text, format!("{why}; peak memory {}", show::bytes(peak)));
    let epochs: Vec<_> =
        report.epochs.iter().map(|e| serde_json::to_value(e).expect("a row of numbers is JSON")).collect();
    let json = json!({
        "test_accuracy": test.map(|t| t.accuracy()),
        "test_loss": test.map(|t| t.loss()),
        "best_valid_accuracy": best.map(|b| b.valid.accuracy()),
        "best_epoch": best.map(|b| b.epoch),
        "epochs": epochs,
        "predicted_epoch_seconds": predicted,
        "measured_epoch_seconds": measured,
        "plan": plan,
        "ended": report.why,
        "peak_rss_bytes": peak,
    });
    Outcome { failed: report.why == Why::Interrupted, ..Outcome::new(text, json) }
}

/// The progress bar and the table of epochs.
struct Screen {
    show: Show,
    bar: ProgressBar,
    epochs: u32,
    loss: f64,
}

const BAR: &str = "{msg:24} {bar:30} {pos}/{len} batches  {per_sec}  ETA {eta}";

impl Screen {
    fn new(show: Show, num_batches: usize, epochs: u32) -> Self {
        show.line("epoch     loss  train     valid     seconds  batches/s   M edges/s  waiting");
        let bar = show.bar(BAR, num_batches as u64 * u64::from(epochs));
        Self { show, bar, epochs, loss: f64::NAN }
    }

    fn see(&mut self, event: &Event<'_>) {
        match event {
            Event::Begins(_) | Event::Activity(_) => {}
            Event::Batch(batch) => self.batch(batch),
            Event::Replanned(new) => self.replanned(new),
            Event::Evaluating => self.bar.set_message("evaluating"),
            Event::Epoch(row) => self.epoch(row),
        }
    }

    fn batch(&mut self, batch: &BatchDone) {
        let loss = batch.score.loss();
        // A moving average: single mini-batches jump too much to be read.
        self.loss = if self.loss.is_nan() { loss } else { 0.9 * self.loss + 0.1 * loss };
        if self.bar.is_hidden() {
            return;
        }
        self.bar.set_message(format!("epoch {}/{} loss {:.4}", batch.id.epoch + 1, self.epochs, self.loss));
        self.bar.inc(1);
    }

    fn replanned(&mut self, new: &Replanned) {
        self.bar.suspend(|| self.show.say(crate::recorder::in_words(new)));
    }

    fn epoch(&mut self, row: &EpochRow) {
        let report = &row.report;
        let line = format!(
            "{:>5}  {:>7.4}  {:>6.2}%  {:>8}  {:>7.2}  {:>9.2}  {:>10.2}  {:>6.0}%",
            row.epoch,
            row.loss,
            100.0 * row.train_accuracy,
            row.valid_accuracy.map_or("–".into(), |a| format!("{:.2}%", 100.0 * a)),
            row.seconds,
            report.batches as f64 / row.seconds,
            report.edges as f64 / row.seconds / 1e6,
            100.0 * report.trainer_waited / row.seconds,
        );
        self.bar.suspend(|| self.show.line(line));
    }
}
