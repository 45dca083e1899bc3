//! `morphgl profile`: measures every phase on this machine.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use morphgl_graph_store::Dataset;
use morphgl_plan::Time;
use morphgl_profile::{Memory, RouteProfile, Statistics};
use serde_json::json;

use super::Outcome;
use super::interrupt;
use super::job::{self, BatchArgs, DataArgs, LimitArgs};
use super::model::ModelArgs;
use super::show::{self, Show};
use super::values;
use crate::memory;
use crate::{Job, JobConfig, Partitioner, Plans, Problem, Profile, Profiler, Scheduler};

#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  morphgl profile                       the embedded default dataset
  morphgl profile cora --model gcn --fanouts=-1,-1 --save cora-profile.json
  morphgl plan --profile cora-profile.json")]
pub(crate) struct Args {
    #[command(flatten)]
    planned: PlannedArgs,
    /// Writes the profile to a file, for `morphgl plan --profile`
    #[arg(help_heading = "Profile", long, value_name = "FILE")]
    save: Option<PathBuf>,
}

/// The options of every command that profiles and plans.
#[derive(Debug, clap::Args)]
pub(crate) struct PlannedArgs {
    #[command(flatten)]
    pub(crate) data: DataArgs,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) batch: BatchArgs,
    /// Seconds to spend on measuring, roughly [default: about an epoch, 3 at most; where an epoch takes longer than that,
    /// choosing among training operators comes on top]
    #[arg(long, value_name = "SECONDS", value_parser = values::seconds)]
    profile_seconds: Option<Duration>,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
}

/// A job, its profile, and its plans.
pub(crate) struct Measured {
    pub(crate) job: Job,
    pub(crate) profile: Profile,
    pub(crate) problem: Problem,
    pub(crate) plans: Plans,
    /// The most that the program held while profiling when no worker batched: dataset (unless it is mapped), model, a step's
    /// own memory and its mini-batches; and what a worker for evaluation takes.
    pub(crate) held_bytes: u64,
}

impl PlannedArgs {
    /// Opens the dataset, and says which job the options describe on it.
    pub(crate) fn open(&self, show: Show) -> anyhow::Result<(Arc<Dataset>, JobConfig)> {
        self.model.check(&self.batch)?;
        self.batch.limit_threads()?;
        let (dataset, disk_bytes) = self.data.open_within(self.limits.memory, &self.batch, show)?;
        let config = job::config(&dataset, &self.model, &self.batch)?;
        Ok((dataset, JobConfig { disk_bytes, ..config }))
    }

    /// Builds the job, profiles its routes, and plans; where the model is to be evaluated, too, with memory left for that.
    pub(crate) fn measure(
        &self,
        dataset: &Arc<Dataset>,
        config: JobConfig,
        evaluates: bool,
        show: Show,
    ) -> anyhow::Result<Measured> {
        let mut job = Job::new(Arc::clone(dataset), config)?;
        job.unbuilt().iter().for_each(|why| show.say(format_args!("left out: {why}")));
        job.on_disk().iter().for_each(|how| show.say(how));
        let threads = job.threads();
        let mut profiler = Profiler::new(threads);
        if let Some(seconds) = self.profile_seconds {
            profiler.settings.budget = seconds;
            profiler.settings.epochs = None;
        }
        let stop = interrupt::stop()?;
        // The system takes the pages of a mapped dataset back when it needs the memory.
        let mapped = dataset.topology.indices().is_mapped() && job.config().disk_bytes.is_none();
        let peak = || memory::take_peak().saturating_sub(if mapped { memory::mapped_files() } else { 0 });
        peak();
        let watched = Memory { limit: self.limits.process(peak())?, peak: &peak };
        let bar = show.bar("profiling {bar:30} {pos}/{len}  {msg}", 0);
        let profile = profiler.measure(&mut job, &stop, Some(watched), &mut |p| {
            bar.set_length(p.total as u64);
            bar.set_position(p.done as u64);
            bar.set_message(p.what.clone());
        })?;
        bar.finish_and_clear();
        // The workers of a plan keep their memory when another batches for sampled evaluation.
        let worker = |r: &RouteProfile| r.largest.worker_bytes + r.largest.batched_bytes;
        let evaluation = profile.routes.iter().map(worker).max().filter(|_| evaluates).unwrap_or(0);
        let held_bytes = profile.held_bytes + evaluation;
        let problem = Partitioner::partition(&profile, threads, self.limits.here(held_bytes)?);
        let plans = Scheduler::schedule(&problem).with_context(|| {
            let held = show::bytes(held_bytes);
            format!("all else takes {held}")
        })?;
        Ok(Measured { job, profile, problem, plans, held_bytes })
    }
}

pub(crate) fn run(args: &Args, show: Show) -> anyhow::Result<Outcome> {
    let (dataset, config) = args.planned.open(show)?;
    let Measured { profile, .. } = args.planned.measure(&dataset, config, true, show)?;
    if let Some(path) = &args.save {
        profile.save(path)?;
    }
    Ok(Outcome::new(describe(&profile), json!({ "profile": profile })))
}

fn describe(profile: &Profile) -> String {
    let row = |phase: &str, how: String, s: &Statistics| {
        let rate = if s.mean > 0.0 { format!("{:.1}", 1.0 / s.mean) } else { "–".into() };
        let cells = [s.mean, s.std, s.median].map(|s| Time(s).to_string());
        let [mean, std, median] = cells;
        vec![phase.into(), how, mean, std, median, rate, s.samples.len().to_string(), s.outliers.len().to_string()]
    };
    let plural = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let header = ["phase", "with", "mean", "deviation", "median", "batches/s", "samples", "outliers"];
    let mut text: String = profile.selections.iter().map(|s| format!("{s}\n")).collect();
    for r in &profile.routes {
        let pool = |workers, threads| format!("{} x {}", plural(workers, "worker"), plural(threads, "thread"));
        let mut rows: Vec<Vec<String>> =
            r.batching.iter().map(|p| row("batching", pool(p.workers, p.threads), &p.seconds)).collect();
        rows.push(row("transferring", String::new(), &r.transferring));
        rows.extend(r.training.iter().map(|t| row("training", plural(t.threads, "thread"), &t.seconds)));
        for t in &r.together {
            let (pool, threads) = (pool(t.workers, t.threads), plural(t.training_threads, "thread"));
            rows.push(row("batching", format!("{pool}, beside {threads}"), &t.batching));
            rows.push(row("training", format!("{threads}, beside {pool}"), &t.training));
        }
        text += &format!(
            "{}\na mini-batch: {} edges, {}\n{}\n",
            r.keys(),
            show::number(r.edges_per_batch as u64),
            show::bytes(r.bytes_per_batch as u64),
            show::table(&header, &rows, &[0, 1]),
        );
    }
    text += &format!("{} mini-batches an epoch; measured in {}\n", profile.num_batches, Time(profile.seconds));
    text + &profile.skipped.iter().map(|s| format!("not measured: {s}\n")).collect::<String>()
}
