//! `morphgl profile`: measures every phase on this machine.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use morphgl_graph_store::Dataset;
use morphgl_profile::Statistics;
use serde_json::json;

use super::Outcome;
use super::job::{self, BatchArgs, DataArgs, ModelArgs};
use super::show::{self, Show};
use crate::{Job, JobConfig, Partitioner, Plans, Profile, Profiler, Scheduler};

#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  morphgl profile                       the embedded default dataset
  morphgl profile cora --model gcn --fanouts=-1,-1 --save cora-profile.json
  morphgl plan --profile cora-profile.json")]
pub(crate) struct Args {
    #[command(flatten)]
    data: DataArgs,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    batch: BatchArgs,
    #[command(flatten)]
    budget: BudgetArgs,
    /// Writes the profile to a file, for `morphgl plan --profile`
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct BudgetArgs {
    /// Seconds to spend on measuring, roughly
    #[arg(long, default_value_t = 5.0, value_name = "SECONDS")]
    pub(crate) profile_seconds: f64,
}

/// A route's job, its profile and its plans.
pub(crate) struct Measured {
    pub(crate) job: Job,
    pub(crate) profile: Profile,
    pub(crate) plans: Plans,
}

/// Profiles every route the configuration allows; the one with the least predicted epoch time first.
pub(crate) fn measure(
    dataset: &Arc<Dataset>,
    config: &JobConfig,
    budget: &BudgetArgs,
    show: Show,
) -> anyhow::Result<Vec<Measured>> {
    if !(budget.profile_seconds.is_finite() && budget.profile_seconds > 0.0) {
        anyhow::bail!("--profile-seconds {}: give a positive number of seconds", budget.profile_seconds);
    }
    let routes = crate::routes(&crate::registry()?, &config.operators)?;
    let mut measured = Vec::new();
    for route in routes {
        let mut job = Job::on_route(Arc::clone(dataset), config.clone(), crate::registry()?, route)?;
        let threads = job.threads();
        let mut profiler = Profiler::new(threads);
        profiler.settings.budget = Duration::from_secs_f64(budget.profile_seconds);
        let bar = show.bar("profiling {bar:30} {pos}/{len}  {msg}", 0);
        let profile = profiler.measure(&mut job, &mut |p| {
            bar.set_length(p.total as u64);
            bar.set_position(p.done as u64);
            bar.set_message(p.what.clone());
        })?;
        bar.finish_and_clear();
        let plans = Scheduler::schedule(&Partitioner::partition(&profile, threads));
        measured.push(Measured { job, profile, plans });
    }
    let predicted = |m: &Measured| m.plans.best().prediction.epoch_seconds;
    measured.sort_by(|a, b| predicted(a).total_cmp(&predicted(b)));
    Ok(measured)
}

pub(crate) fn run(args: &Args, show: Show) -> anyhow::Result<Outcome> {
    args.batch.limit_threads()?;
    let dataset = args.data.open(show)?;
    let config = job::config(&dataset, &args.model, &args.batch)?;
    let measured = measure(&dataset, &config, &args.budget, show)?;
    if let Some(path) = &args.save {
        let [only] = measured.as_slice() else {
            anyhow::bail!(
                "{}: {} routes were measured; name one's operators to save it",
                path.display(),
                measured.len()
            );
        };
        only.profile.save(path)?;
    }
    let text = measured.iter().map(|m| describe(&m.profile)).collect::<Vec<_>>().join("\n");
    let profiles: Vec<&Profile> = measured.iter().map(|m| &m.profile).collect();
    Ok(Outcome::new(text, json!({ "profiles": profiles })))
}

fn describe(profile: &Profile) -> String {
    let row = |phase: &str, how: String, s: &Statistics| {
        let rate = if s.mean > 0.0 { format!("{:.1}", 1.0 / s.mean) } else { "–".into() };
        let cells = [s.mean, s.std, s.median].map(show::seconds);
        let [mean, std, median] = cells;
        vec![phase.into(), how, mean, std, median, rate, s.samples.len().to_string(), s.outliers.len().to_string()]
    };
    let plural = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let pools = profile.batching.iter().map(|p| {
        row("batching", format!("{} x {}", plural(p.workers, "worker"), plural(p.threads, "thread")), &p.seconds)
    });
    let training = profile.training.iter().map(|t| row("training", plural(t.threads, "thread"), &t.seconds));
    let rows: Vec<Vec<String>> =
        pools.chain([row("transferring", String::new(), &profile.transferring)]).chain(training).collect();
    let header = ["phase", "with", "mean", "deviation", "median", "batches/s", "samples", "outliers"];
    let r = &profile.route;
    format!(
        "{} → {} → {}\n{} mini-batches an epoch; a mini-batch: {} edges, {}\n{}measured in {}\n{}",
        r.batching,
        r.transferring,
        r.training,
        profile.num_batches,
        show::number(profile.edges_per_batch as u64),
        show::bytes(profile.bytes_per_batch as u64),
        show::table(&header, &rows, &[0, 1]),
        show::seconds(profile.seconds),
        profile.skipped.iter().map(|s| format!("not measured: {s}\n")).collect::<String>()
    )
}
