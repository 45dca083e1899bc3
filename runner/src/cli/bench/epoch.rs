//! `morphgl bench epoch`: epochs as training runs them, profiled and planned first.

use std::sync::Arc;

use anyhow::{Result, bail};
use clap::Parser;
use morphgl_graph_store::Dataset;
use serde_json::json;

use super::figures::{Report, fields};
use super::source;
use super::{Timed, peers_widths, stop, timed};
use crate::cli::planned::{self, Measured, PlannedArgs};
use crate::cli::show::Show;
use crate::{EpochReport, Executor, ExecutorSettings};

#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  morphgl bench epoch
  morphgl bench epoch arxiv --model gat --repeats 3
  morphgl bench epoch products --batches 100           a part of an epoch, planned as such

Unless asked for, hidden layers are 256 wide for GraphSAGE, GIN and MLP, 16 for GCN, 64 for GAT, of one head.
Profiling and planning are not counted; the document says how long they took.")]
pub(super) struct Args {
    #[command(flatten)]
    planned: PlannedArgs,
    /// Epochs measured; the median counts
    #[arg(help_heading = "Measurement", long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    repeats: u32,
    /// Mini-batches of an epoch, of an even choice among the training nodes [default: all]
    #[arg(help_heading = "Measurement", long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    batches: Option<u32>,
}

pub(super) fn run(args: &Args, show: Show) -> Result<Report> {
    let PlannedArgs { data, model, batch, .. } = &args.planned;
    let model = peers_widths(model);
    model.check(batch)?;
    batch.limit_threads()?;
    let mut dataset = data.open(show)?;
    let config = planned::config(&dataset, &model, batch)?;
    if let Some(batches) = args.batches {
        keep(&mut dataset, u64::from(batches).saturating_mul(config.sampler.batch_size as u64));
    }
    let measured = args.planned.measure(&dataset, config.clone(), false, show)?;
    let Measured { job, profile, problem, plans, .. } = measured;
    let (plan, threads, stop) = (plans.best().clone(), job.threads(), stop()?);
    profile.selections.iter().for_each(|selection| show.say(selection));
    show.say(format_args!("plan: {plan}"));
    let mut executor = Executor::new(job, &plan, Some(problem), ExecutorSettings::default())?;
    let mut replanned = 0;
    let Timed { runs, load } = timed(0..args.repeats, show, &stop, |epoch| {
        let report = executor.epoch(epoch, &stop, &mut |told| {
            replanned += u32::from(matches!(told, crate::Event::Replanned(_)));
        })?;
        if !report.score.loss().is_finite() {
            bail!("epoch {epoch}: the loss is not a number; give a smaller --lr");
        }
        Ok(report)
    })?;
    let of = |value: fn(&EpochReport) -> f64| runs.iter().map(|(_, r)| value(r)).collect::<Vec<f64>>();
    let share = &plan.schedule.shares[0];
    let model = &config.spec.model;
    let batches = runs[0].1.batches;
    let rates = of(|r| r.batches as f64 / r.seconds);
    let edges = of(|r| r.edges as f64 / r.seconds);
    let mut document = fields(json!({
        "model": model.kind, "hidden": model.hidden, "layers": model.layers, "batches": batches,
        "batches_per_s": super::figures::median(&rates), "edges_per_s": super::figures::median(&edges),
        "edges_per_batch": runs[0].1.edges as f64 / batches.max(1) as f64,
        "training": share.keys.training, "workers": share.workers, "plan": plan.to_string(),
        "predicted_epoch_seconds": plan.prediction.epoch_seconds, "replanned": replanned,
        "profile_s": profile.seconds, "step_s": of(|r| r.busy.training), "waited_s": of(|r| r.trainer_waited),
        "loss": of(|r| r.score.loss()),
    }));
    document.extend(fields(source::settings(&config.sampler)));
    Ok(Report {
        what: "epoch",
        data: dataset.name.clone(),
        threads,
        unit: "s/epoch",
        all: of(|r| r.seconds),
        more: vec![("batches/s", rates), ("edges/s", edges)],
        with: format!(
            "{}, {} of width {}, {}\n{batches} mini-batches, {plan}",
            share.keys.training,
            model.kind,
            model.hidden,
            source::in_words(&config.sampler)
        ),
        load,
        fields: document,
    })
}

/// Keeps as many training nodes, chosen evenly.
fn keep(dataset: &mut Arc<Dataset>, count: u64) {
    let dataset = Arc::get_mut(dataset).expect("it was opened here, and nobody else has it yet");
    let train = &dataset.splits.train;
    let all = train.len() as u64;
    if count < all {
        let kept: Vec<u32> = (0..count).map(|i| train[(i * all / count) as usize]).collect();
        dataset.splits.train = kept.into();
    }
}
