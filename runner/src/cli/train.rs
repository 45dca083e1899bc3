//! `morphgl train`: plan, train, evaluate.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use indicatif::HumanCount;
use morphgl_execute::CountersByOperator;
use morphgl_model_spec::{ModelFile, ModelSpec};
use morphgl_plan::{RouteKeys, Time};
use morphgl_registry::{CACHE_HITS, CACHE_REQUESTS, Key, NamedTensor, Registry};
use serde_json::{Value, json};

use super::Outcome;
use super::inference::{self, Inference};
use super::paths::lossy;
use super::plan_arg::{PlanArg, choose_training};
use super::planned::{Measured, PlannedArgs};
use super::run_dir::{self, RunDir};
use super::screen::Screen;
use super::show::{self, Show};
use super::usage::Usage;
use super::{interrupt, report, values};
use crate::budget;
use crate::{
    Evaluation, Event, Executor, ExecutorSettings, JobConfig, Plan, Recorder, Simulated, StopReason, TrainOptions,
    TrainReport, Trainer,
};

#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  morphgl train                                             a generated graph, three-layer GraphSAGE
  morphgl train cora                                        until validation stops improving
  morphgl train --model mlp                                 the features alone, for comparison
  morphgl train cora --model gcn --fanouts=-1,-1 --hidden 16 --lr 0.01 --weight-decay 5e-4 --epochs 200
  morphgl train products --fanouts 15,10,5 --run runs/products --patience 5
  morphgl train papers --memory 64GiB --cache inclusion:24GiB   from disk, hot rows cached
  morphgl train --json | jq .test_accuracy")]
pub(crate) struct Args {
    #[command(flatten)]
    planned: PlannedArgs,
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
    /// The plan: auto has the minimum predicted epoch time, and plans again when durations change;
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

impl Args {
    /// Checks options before the dataset is read.
    fn check(&self) -> anyhow::Result<()> {
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
        self.run.as_deref().map_or(Ok(()), RunDir::refuse_existing)?;
        self.save.as_deref().map_or(Ok(()), run_dir::refuse_unwritable)
    }

    /// The length of training on epochs of `steps_per_epoch` steps, and when to evaluate.
    fn options(&self, steps_per_epoch: usize, evaluation: Evaluation, validated: bool) -> TrainOptions {
        let mut options = match self.epochs {
            Some(epochs) => TrainOptions { evaluation, ..TrainOptions::epochs(epochs) },
            None => TrainOptions::until_best(steps_per_epoch, evaluation, validated),
        };
        if let Some(patience) = self.patience {
            options.evaluate_every = options.evaluate_every.min(patience.max(1));
            options.patience = Some(patience);
        }
        options.evaluate_every = self.evaluate_every.unwrap_or(options.evaluate_every);
        options
    }
}

fn nothing_validated(option: &str) -> anyhow::Error {
    let cure = "use a dataset with validation nodes and --evaluation full";
    Usage::error(format!("{option}: nothing is validated; {cure}"))
}

/// A number of epochs in words, with the optimizer steps that they take: `3 epochs (30 steps)`.
fn epochs_and_steps(epochs: u32, steps_per_epoch: usize) -> String {
    let epochs = u64::from(epochs);
    format!("{} ({})", show::plural(epochs, "epoch"), show::plural(epochs * steps_per_epoch as u64, "step"))
}

/// The length of a run without `--epochs`, in words.
fn length(options: &TrainOptions, steps_per_epoch: usize) -> String {
    let max = epochs_and_steps(options.epochs, steps_per_epoch);
    let Some(patience) = options.patience else {
        return format!("trains {max}, as nothing is validated; set --epochs for another number");
    };
    let patience = epochs_and_steps(patience, steps_per_epoch);
    let every = match options.evaluate_every {
        1 => "epoch".to_string(),
        every => format!("{every} epochs"),
    };
    format!("trains until validation has not improved for {patience}, at most {max}; evaluates every {every}")
}

/// The stop reason, in words.
fn stop_reason(args: &Args, report: &TrainReport, options: &TrainOptions, steps_per_epoch: usize) -> String {
    match report.stop_reason {
        StopReason::Interrupted => "interrupted".to_string(),
        StopReason::Patience => {
            let best = report.best.as_ref().map_or(0, |best| best.epoch);
            let since = report.epochs.last().map_or(0, |last| last.epoch - best);
            format!("stopped early: validation has not improved for {}", epochs_and_steps(since, steps_per_epoch))
        }
        StopReason::Epochs if args.epochs.is_none() && options.patience.is_some() => {
            let bound = epochs_and_steps(options.epochs, steps_per_epoch);
            format!("stopped at the bound of {bound}; --epochs trains longer")
        }
        StopReason::Epochs => "all epochs done".to_string(),
    }
}

pub(crate) fn run(args: &Args, show: Show) -> anyhow::Result<Outcome> {
    args.check()?;
    let plan_of_file = args.plan.read()?;
    let init = args.init.as_deref().map(ModelFile::open).transpose()?;
    let (dataset, mut config) = args.planned.open(show)?;
    if let Some(plan) = &plan_of_file {
        choose_training(plan, &mut config)?;
    }
    let requested = args.evaluation.or(args.planned.batch.evaluation());
    let mut evaluation = match config.disk_bytes {
        Some(_) => Inference::OnDisk.choose(requested, show)?,
        None => requested.unwrap_or_default(),
    };
    let validated = !dataset.splits.valid.is_empty();
    let unread = args.patience.map(|_| "--patience").or(args.evaluate_every.map(|_| "--evaluate-every"));
    if let Some(option) = unread.filter(|_| !validated) {
        return Err(nothing_validated(option));
    }
    let steps = dataset.splits.train.len().div_ceil(config.sampler.batch_size.max(1));
    let epochs = args.options(steps, evaluation, validated).least_epochs();
    let measured =
        args.planned.measure(&dataset, config.clone(), evaluation != Evaluation::None, Some(epochs), show)?;
    let Measured { mut job, profile, problem, plans, held_bytes } = measured;
    if let (Some(path), Some(mut file)) = (&args.init, init) {
        let set =
            file.parameters(&job.config.spec.model).map_err(anyhow::Error::from).and_then(|p| job.set_parameters(&p));
        set.with_context(|| format!("{}: not the parameters of this model; give its options again", path.display()))?;
    }
    let plan = args.plan.choose(plan_of_file, &plans, &problem)?;
    let available = problem.limits.host_bytes.unwrap_or(u64::MAX).saturating_sub(plan.memory.all_host());
    if evaluation == Evaluation::Full {
        let needed = plan.schedule.shares.first().and_then(|share| job.infer_bytes(&share.keys.training));
        evaluation = Inference::InMemory { needed, available }.choose(requested, show)?;
    }
    let mut options = args.options(plan.num_batches(), evaluation, validated);
    options.evaluation_workers = inference::fewer_workers(&problem, &plan, available);
    // The run directory is created late, so that a command that fails earlier can be repeated.
    let mut run_dir = match &args.run {
        Some(dir) => Some(RunDir::create(dir, &args.planned.data.dataset, &args.init, &config, &options)?),
        None => None,
    };
    if let Some(dir) = &run_dir {
        dir.write_plan(&plan)?;
    }
    plan.schedule.shares.iter().for_each(|share| show.line(&share.keys));
    profile.selections.iter().for_each(|selection| show.line(selection));
    show.line(format_args!("plan: {plan}"));
    plan.caches.iter().for_each(|cache| show.line(format_args!("cache: {cache}")));
    if job.config.caches() && !plan.schedule.shares.iter().any(|share| caches(&job.registry, &share.keys)) {
        show.say(format_args!("--cache {}: the plan uses no operator with a cache", config.cache));
    }
    let simulated = Simulated::of(&job.registry);
    let learns = !simulated.trains(&plan.schedule);
    if !learns {
        show.say("this plan trains on the simulated accelerator: nothing is learned, and no model is saved");
    }
    let (host, held) = (show::bytes(plan.memory.host), show::bytes(held_bytes));
    let caches = match plan.memory.caches {
        0 => String::new(),
        bytes => format!("caches {}, ", show::bytes(bytes)),
    };
    show.line(format_args!("memory: {caches}buffers and workers at most {host}, all else about {held}"));
    show.line(match args.epochs {
        Some(_) => String::new(),
        None => format!("{}\n", length(&options, plan.num_batches())),
    });

    let stop = interrupt::stop()?;
    let settings = ExecutorSettings { limit: Some(args.time_limit), ..Default::default() };
    // Only an automatic plan may be replaced during the run.
    let replan = matches!(args.plan, PlanArg::Auto).then(|| problem.clone());
    let mut recorder = run_dir.is_some().then(|| Recorder::new(&plan, &simulated));
    let open = args.epochs.is_none() && options.patience.is_some();
    let mut screen = Screen::new(show, plan.num_batches(), options.epochs, open);
    let mut trainer = Trainer { executor: Executor::new(job, &plan, replan, settings)?, options };
    let mut warned = false;
    let report = trainer.train(&stop, &mut |event| {
        screen.show(event);
        recorder.iter_mut().for_each(|recorder| recorder.observe(event));
        // A failed metrics write never stops training; it is retried with the next epoch and at the end.
        if let (Event::Epoch(row), Some(dir)) = (event, run_dir.as_mut())
            && let Err(e) = dir.append(row)
            && !std::mem::replace(&mut warned, true)
        {
            screen.bar.suspend(|| show.say(format_args!("{}; training goes on", show::one_line(&e))));
        }
    })?;
    screen.bar.finish_and_clear();
    let parameters = trainer.executor.training_mut()?.parameters()?;
    let run = report::Run {
        title: format!("{} on {}", config.spec.model.kind, dataset.name),
        profile: &profile,
        problem: &problem,
        plans: &plans,
        plan: &plan,
        report: &report,
        configuration: configuration(&config, &trainer.options),
        held_bytes,
        simulated: &simulated,
    };
    let model = learns.then_some((&config.spec.model, &parameters[..]));
    let unwritten = write(run_dir, args.save.as_deref(), model, run, recorder);
    let mut outcome = summary(&report, &plan, &stop_reason(args, &report, &trainer.options, plan.num_batches()));
    outcome.json["training"] = serde_json::to_value(&trainer.options)?;
    outcome.json["dataset"] = json!({
        "name": dataset.name, "path": args.planned.data.dataset.as_deref().map(lossy),
        "num_nodes": dataset.num_nodes(), "num_edges": dataset.topology.num_edges(),
    });
    outcome.json["config"] = serde_json::to_value(&config)?;
    outcome.json["profile"] = serde_json::to_value(&profile)?;
    outcome.json["held_bytes"] = json!(held_bytes);
    outcome.json["run"] = json!(args.run.as_deref().map(lossy));
    outcome.json["init"] = json!(args.init.as_deref().map(lossy));
    outcome.unwritten = (!unwritten.is_empty()).then(|| anyhow::anyhow!(unwritten.join("; ")));
    Ok(outcome)
}

/// Writes metrics, model and report, each even if another fails; returns the errors.
fn write(
    mut run_dir: Option<RunDir>,
    save: Option<&Path>,
    model: Option<(&ModelSpec, &[NamedTensor])>,
    run: report::Run<'_>,
    recorder: Option<Recorder>,
) -> Vec<String> {
    let mut unwritten = Vec::new();
    let mut note = |written: anyhow::Result<()>| unwritten.extend(written.err().map(|e| show::one_line(&e)));
    if let Some(dir) = &mut run_dir {
        note(dir.write_metrics());
    }
    let trained = run.report.epochs.iter().any(|e| e.report.batches > 0);
    if let Some((model, parameters)) = model.filter(|_| trained) {
        for path in run_dir.iter().map(RunDir::model).chain(save.map(Path::to_path_buf)) {
            note(morphgl_model_spec::save_model(&path, model, parameters).map_err(Into::into));
        }
    }
    if let (Some(dir), Some(recorder)) = (&run_dir, recorder) {
        note(dir.write_report(&report::of_run(run, recorder)));
    }
    unwritten
}

/// Whether an operator of the plan's route has a cache.
fn caches(registry: &Registry, keys: &RouteKeys) -> bool {
    let operator = |key: &String| key.parse::<Key>().is_ok_and(|key| budget::caches(registry, &key));
    operator(&keys.batching) || operator(&keys.transferring)
}

/// The configuration as a flat list of names and values.
fn configuration(config: &JobConfig, options: &TrainOptions) -> Vec<(String, String)> {
    fn flatten(prefix: &str, value: &Value, rows: &mut Vec<(String, String)>) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    let name = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
                    flatten(&name, value, rows);
                }
            }
            Value::String(text) => rows.push((prefix.to_string(), text.clone())),
            other => rows.push((prefix.to_string(), other.to_string())),
        }
    }
    let mut rows = Vec::new();
    for value in [serde_json::to_value(config), serde_json::to_value(options)].into_iter().flatten() {
        flatten("", &value, &mut rows);
    }
    rows
}

/// Counters of all epochs, a line an operator.
fn counter_lines(counters: &CountersByOperator) -> String {
    let line = |(operator, counters): (&String, &BTreeMap<String, u64>)| {
        let text = |(name, &n): (&String, &u64)| match name.ends_with("_bytes") {
            true => format!("{name} {}", show::bytes(n)),
            false => format!("{name} {}", HumanCount(n)),
        };
        let mut all: Vec<String> = counters.iter().map(text).collect();
        if let (Some(&hits), Some(&requests)) = (counters.get(CACHE_HITS.name), counters.get(CACHE_REQUESTS.name))
            && requests > 0
        {
            all.push(format!("cache hit rate {:.1}%", 100.0 * hits as f64 / requests as f64));
        }
        format!("{operator}: {}\n", all.join(", "))
    };
    counters.iter().map(line).collect()
}

fn summary(report: &TrainReport, plan: &Plan, stop_reason: &str) -> Outcome {
    let percent = |x: f64| format!("{:.2}%", 100.0 * x);
    let best = report.best.as_ref();
    let test = report.test;
    let valid = best.map(|b| format!("best validation accuracy {} in epoch {}", percent(b.valid.accuracy()), b.epoch));
    let tested = test.map(|t| format!("test accuracy {}", percent(t.accuracy())));
    let scores: Vec<String> = valid.into_iter().chain(tested).collect();
    let mut text = scores.join("; ");
    text.extend((!text.is_empty()).then_some('\n'));
    let predicted = plan.prediction.epoch_seconds;
    let measured = report.median_epoch_seconds();
    if let Some(measured) = measured {
        let off = 100.0 * (measured / predicted - 1.0);
        let (predicted, measured) = (Time(predicted), Time(measured));
        text += &format!("epoch: predicted {predicted}, measured {measured} (median, {off:+.0}%)\n");
    }
    let counters = report.counters();
    let peak = crate::peak_rss_bytes();
    text += &counter_lines(&counters);
    text += &format!("{stop_reason}; peak memory {}\n", show::bytes(peak));
    let json = json!({
        "test_accuracy": test.map(|t| t.accuracy()),
        "test_loss": test.map(|t| t.loss()),
        "best_valid_accuracy": best.map(|b| b.valid.accuracy()),
        "best_epoch": best.map(|b| b.epoch),
        "epochs": report.epochs,
        "predicted_epoch_seconds": predicted,
        "measured_epoch_seconds": measured,
        "counters": counters,
        "plan": plan,
        "ended": report.stop_reason,
        "peak_rss_bytes": peak,
    });
    Outcome { failed: report.stop_reason == StopReason::Interrupted, ..Outcome::new(text, json) }
}
