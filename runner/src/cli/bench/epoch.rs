//! `morphgl bench epoch`: epochs as training runs them, profiled and planned first.

use std::sync::Arc;

use anyhow::{Result, bail};
use clap::Parser;
use morphgl_graph_store::{Dataset, PairTargets, TargetMatrix};
use serde_json::json;

use super::measurement::Measurement;
use super::{source, timed};
use crate::cli::show::Show;
use crate::session::PlanningOptions;
use crate::session::measure::{self, Measured, Planned, Wanted};
use crate::task::dataset_for;
use crate::{Event, Executor, ExecutorSettings, RunContext, median};

#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  morphgl bench epoch
  morphgl bench epoch arxiv --model gat --repeats 3
  morphgl bench epoch products --batches 100           a part of an epoch, planned as such

By default, hidden layers are 256 wide for GraphSAGE, GIN and MLP, 16 for GCN, 64 for GAT, of one head.
Profiling and planning are not counted; the document has their seconds.")]
pub(super) struct Args {
    #[command(flatten)]
    planned: PlanningOptions,
    /// Epochs measured; the median counts
    #[arg(help_heading = "Measurement", long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    repeats: u32,
    /// Mini-batches of an epoch, of an even choice among the training nodes or pairs [default: all]
    #[arg(help_heading = "Measurement", long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    batches: Option<u32>,
}

pub(super) fn run(args: &Args, context: &RunContext, show: Show) -> Result<Measurement> {
    let planned = Planned::of(&args.planned, None);
    let model = args.planned.model.with_peers_defaults();
    model.check(planned.batch)?;
    let batch = planned.batch.resolve(context)?;
    let mut dataset = dataset_for(model.learned(), planned.source.open(context)?, context)?;
    let config = measure::config(&dataset, &model, &batch)?;
    if let Some(batches) = args.batches {
        keep_examples(&mut dataset, u64::from(batches).saturating_mul(config.sampler.batch_size as u64));
    }
    let wanted = Wanted { epochs: Some(args.repeats), ..Wanted::default() };
    let measured = planned.measure(context, &dataset, config.clone(), wanted)?;
    let Measured { job, profile, problem, plans, .. } = measured;
    let (plan, threads, stop) = (plans.chosen().clone(), job.threads(), context.heed_stop());
    profile.selections.iter().for_each(|selection| context.remark(selection));
    context.remark(format_args!("plan: {plan}"));
    plan.caches.iter().for_each(|cache| context.remark(format_args!("cache: {cache}")));
    let mut executor = Executor::new(job, &plan, Some(problem), ExecutorSettings::default())?;
    let mut replanned = 0;
    let timed = timed(0..args.repeats, show, &stop, |epoch| {
        let report = executor.epoch(epoch, &stop, &mut |event| {
            replanned += u32::from(matches!(event, Event::Replanned(_)));
        })?;
        if !report.score.loss().is_finite() {
            bail!("epoch {epoch}: the loss is not a number; give a smaller --lr");
        }
        Ok(report)
    })?;
    let share = &plan.schedule.shares[0];
    let model = &config.spec.model;
    let (batches, edges) = (timed.runs[0].1.batches, timed.runs[0].1.edges);
    let batches_per_s = timed.map(|_, r| r.batches as f64 / r.seconds);
    let edges_per_s = timed.map(|_, r| r.edges as f64 / r.seconds);
    let fields = json!({
        "model": model.kind, "hidden": model.hidden, "layers": model.layers, "batches": batches,
        "batches_per_s": median(&batches_per_s), "edges_per_s": median(&edges_per_s),
        "edges_per_batch": edges as f64 / batches.max(1) as f64,
        "training": share.keys.training, "workers": share.workers, "plan": plan.to_string(),
        "predicted_epoch_seconds": plan.prediction.epoch_seconds, "replanned": replanned,
        "profile_s": profile.seconds, "step_s": timed.map(|_, r| r.busy.training),
        "waited_s": timed.map(|_, r| r.trainer_waited), "loss": timed.map(|_, r| r.score.loss()),
    });
    let settings = source::settings_in_words(&config);
    Ok(Measurement {
        what: "epoch",
        data: dataset.name.clone(),
        threads,
        unit: "s/epoch",
        values: timed.map(|_, r| r.seconds),
        other_units: vec![("batches/s", batches_per_s), ("edges/s", edges_per_s)],
        settings: format!(
            "{}, {} of width {}, {settings}\n{batches} mini-batches, {plan}",
            share.keys.training, model.kind, model.hidden
        ),
        load: timed.load,
        details: String::new(),
        fields: vec![fields, source::settings(&config)],
    })
}

/// Keeps `count` training nodes and as many training pairs, evenly spaced.
fn keep_examples(dataset: &mut Arc<Dataset>, count: u64) {
    let dataset = Arc::get_mut(dataset).expect("the caller opened it and has the only reference");
    let kept = |all: usize| (0..count).map(move |i| (i * all as u64 / count) as usize);
    let train = &dataset.splits.train;
    if count < train.len() as u64 {
        dataset.splits.train = kept(train.len()).map(|i| train[i]).collect::<Vec<_>>().into();
    }
    if dataset.edges.train.is_some() && count < dataset.train_pairs().len() as u64 {
        let (pairs, negatives) = (dataset.train_pairs(), dataset.edges.train_negative_pairs());
        let per_pair = negatives.len() / pairs.len();
        let (all, kept) = (pairs.len(), kept(pairs.len()).collect::<Vec<_>>());
        let own = |&i: &usize| negatives[i * per_pair..(i + 1) * per_pair].iter().copied().flatten();
        let negatives: Vec<u32> = kept.iter().flat_map(own).collect();
        let pairs: Vec<u32> = kept.iter().flat_map(|&i| pairs[i]).collect();
        dataset.edges.train = Some(pairs.into());
        if let Some(types) = &dataset.edges.types[0] {
            dataset.edges.types[0] = Some(kept.iter().map(|&i| types[i]).collect::<Vec<_>>().into());
        }
        dataset.edges.train_negatives = dataset.edges.train_negatives.is_some().then(|| negatives.into());
        let PairTargets { labels, values } = &dataset.edges.targets[0];
        debug_assert!(labels.as_ref().is_none_or(|labels| labels.len() == all), "a label per pair");
        dataset.edges.targets[0] = PairTargets {
            labels: labels.as_ref().map(|labels| kept.iter().map(|&i| labels[i]).collect::<Vec<_>>().into()),
            values: values.as_ref().map(|values| {
                let rows: Vec<f32> = kept.iter().flat_map(|&i| values.row(i as u32)).copied().collect();
                TargetMatrix::new(rows, values.dim()).expect("rows of a matrix")
            }),
        };
    }
}
