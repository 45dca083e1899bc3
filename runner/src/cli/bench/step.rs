//! `morphgl bench step`: forward, backward and optimizer, on mini-batches prepared beforehand.

use std::time::Instant;

use anyhow::{Context, Result};
use clap::Parser;
use morphgl_profile::{Settings, Watch};
use morphgl_registry::{Key, MiniBatch, Place, Training, TrainingOperator};
use serde_json::json;

use super::measurement::Measurement;
use super::roofline::Rooflines;
use super::source::{self, BatchCounts, BatchSequence};
use super::{Amount, check, timed};
use crate::cli::show::Show;
use crate::session::data::Source;
use crate::session::measure;
use crate::session::options::batch::MiniBatches;
use crate::session::{BatchOptions, DataOptions, ModelOptions};
use crate::task::dataset_for;
use crate::{Job, RunContext, Stop, median};

/// Default number of mini-batches, trained on round-robin.
const BATCHES: u32 = 8;
/// Steps by which the fastest training operator is chosen.
const TRIALS: usize = 3;

#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  morphgl bench step
  morphgl bench step arxiv --model gcn --threads 4
  morphgl bench step arxiv --model gat --training Training_CPU_Burn    another operator than the fastest
  morphgl bench step arxiv --task link --negatives 5 --fanouts 15,10   of pairs
  morphgl bench step arxiv --roofline --training Training_CPU_Native   what bounds each layer

By default, hidden layers are 256 wide for GraphSAGE, GIN and MLP, 16 for GCN, 64 for GAT, of one head.
`morphgl ops` lists the training operators; without --training the one that `morphgl train` would choose is measured: of \
those at one place the one with the fastest mini-batches, among places the one with the fastest step.")]
pub(super) struct Args {
    #[command(flatten)]
    data: DataOptions,
    #[command(flatten)]
    model: ModelOptions,
    #[command(flatten)]
    batch: BatchOptions,
    #[command(flatten)]
    amount: Amount,
    /// Time every pass of a step, and show its FLOP and bytes beside the processor's peaks
    #[arg(long, help_heading = "Measurement")]
    roofline: bool,
}

pub(super) fn run(args: &Args, context: &RunContext, show: Show) -> Result<Measurement> {
    let model = args.model.with_peers_defaults();
    let batch = MiniBatches::by(&args.batch, model.model);
    model.check(batch)?;
    let batch = batch.resolve(context)?;
    let dataset = dataset_for(model.learned(), Source::of(&args.data, None).open(context)?, context)?;
    let config = measure::config(&dataset, &model, &batch)?;
    let mut job = Job::new(context, dataset, config)?;
    job.unbuilt.iter().for_each(|why| context.remark(format_args!("left out: {why}")));
    let (threads, stop) = (job.threads(), context.heed_stop());
    let watch = Watch { stop: &|| stop.is_requested(), memory: None };
    job.select(&Settings::new(threads), &watch, &mut |_| ())?;
    job.selections().iter().for_each(|selection| context.remark(selection));
    for trainer in &mut job.operators.trainers {
        trainer.operator.set_threads(threads)?;
    }
    let chosen = fastest(&mut job, threads, &stop)?;
    let TrainingOperator { key, place, mut operator } = job.operators.trainers.swap_remove(chosen);
    let (batches, counts) = batches(&mut job, (&key, &place), args.amount.batches.unwrap_or(BATCHES), &stop)?;
    for batch in batches.iter().cycle().take(args.amount.warm_up as usize) {
        step(operator.as_mut(), batch)?;
        check(&stop)?;
    }
    let steps = args.amount.repeats as usize * batches.len();
    let mut rooflines = Rooflines::default();
    if args.roofline {
        // The operator measures the peaks once, outside of the steps that are timed.
        step(operator.as_mut(), &batches[0])?;
        Rooflines::default().add(&key, operator.as_mut(), &batches[0])?;
    }
    let timed = timed(0..steps, show, &stop, |i| {
        let batch = &batches[i % batches.len()];
        step(operator.as_mut(), batch)?;
        if args.roofline { rooflines.add(&key, operator.as_mut(), batch) } else { Ok(()) }
    })?;
    let values = timed.map(|seconds, _| 1e3 * seconds);
    let parameters: usize = operator.parameters()?.iter().map(|p| p.values.len()).sum();
    let model = &job.config.spec.model;
    let edges = counts.mean(counts.edges);
    let details = if args.roofline { rooflines.text(median(&values)) } else { String::new() };
    let mut fields = json!({
        "model": model.kind, "hidden": model.hidden, "layers": model.layers, "params": parameters,
        "training": key.to_string(), "batches": batches.len(),
        "input_nodes_per_batch": counts.mean(counts.nodes), "edges_per_batch": edges,
        "edges_per_s": edges / median(&values) * 1e3,
    });
    if args.roofline {
        fields["roofline"] = rooflines.json();
    }
    let settings = source::settings_in_words(&job.config);
    Ok(Measurement {
        what: "step",
        data: job.dataset.name.clone(),
        threads,
        unit: "ms/step",
        other_units: vec![("M edges/s", values.iter().map(|ms| edges / ms / 1e3).collect())],
        values,
        settings: format!("{key}, {} of width {}, {settings}", model.kind, model.hidden),
        load: timed.load,
        details,
        fields: vec![fields, source::settings(&job.config)],
    })
}

/// Index of the training operator with the fastest step, among operators at different places.
fn fastest(job: &mut Job, threads: usize, stop: &Stop) -> Result<usize> {
    if job.operators.trainers.len() == 1 {
        return Ok(0);
    }
    let mut best = (f64::INFINITY, 0);
    for i in 0..job.operators.trainers.len() {
        let (key, place) = (job.operators.trainers[i].key.clone(), job.operators.trainers[i].place.clone());
        let (batches, _) = batches(job, (&key, &place), 1, stop)?;
        let operator = job.operators.trainers[i].operator.as_mut();
        operator.set_threads(threads)?;
        for trial in 0..=TRIALS {
            let start = Instant::now();
            step(operator, &batches[0])?;
            let seconds = start.elapsed().as_secs_f64();
            check(stop)?;
            // The first step of an operator fills its memory.
            if trial > 0 && seconds < best.0 {
                best = (seconds, i);
            }
        }
    }
    Ok(best.1)
}

/// Mini-batches of epoch 0, moved to where the operator trains.
fn batches(job: &mut Job, trainer: (&Key, &Place), count: u32, stop: &Stop) -> Result<(Vec<MiniBatch>, BatchCounts)> {
    let threads = job.threads();
    let route = job.operators.routes.iter_mut().find(|r| (&r.route.training, &r.route.trained_at) == trainer);
    let route = route.with_context(|| format!("{}: no route leads to it", trainer.0))?;
    let batches_per_epoch = u32::try_from(route.batching.num_batches()).unwrap_or(u32::MAX);
    let sequence = BatchSequence { first_epoch: 0, batches_per_epoch };
    let mut worker = route.batching.worker(threads)?;
    let (mut made, mut counts) = (Vec::new(), BatchCounts::default());
    for number in 0..count {
        check(stop)?;
        let (batch, _) = worker.prepare(sequence.id(number), None)?.wait()?;
        let (batch, _) = route.transferring.transfer(batch)?.wait()?;
        counts.add(&batch)?;
        made.push(batch);
    }
    Ok((made, counts))
}

/// Trains one step, and waits for the new parameters.
fn step(training: &mut dyn Training, batch: &MiniBatch) -> Result<()> {
    training.train(batch)?.wait()?;
    Ok(())
}
