//! `morphgl profile`: measures every phase on this machine.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Parser;
use indicatif::HumanCount;
use morphgl_plan::Time;
use morphgl_profile::Statistics;
use serde_json::json;

use super::show;
use super::{Invocation, Outcome};
use crate::session::{PlanningOptions, Session, SessionConfig, machine};
use crate::{Profile, RunContext};

#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  morphgl profile                       the embedded default dataset
  morphgl profile cora --model gcn --fanouts=-1,-1 --save cora-profile.json
  morphgl plan --profile cora-profile.json
  morphgl profile --machine a100        the durations that follow from a machine's description")]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) planned: PlanningOptions,
    /// Writes the profile to a file, for `morphgl plan --profile`
    #[arg(help_heading = "Profile", long, value_name = "FILE")]
    save: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, context: RunContext, call: &Invocation<'_>) -> anyhow::Result<Outcome> {
    let machine = args.planned.machine.as_deref().map(machine::named).transpose()?;
    let profile = session(&args.planned, context, call).measure()?.profile;
    if let Some(path) = &args.save {
        profile.save(path)?;
    }
    let mut text = describe(&profile);
    text += &match machine {
        Some(_) => format!("{} mini-batches per epoch\n", profile.num_batches),
        None => format!("{} mini-batches per epoch; measured in {}\n", profile.num_batches, Time(profile.seconds)),
    };
    text += &profile.skipped.iter().map(|s| format!("not measured: {s}\n")).collect::<String>();
    if let Some(described) = &machine {
        let notice = machine::notice(described, false);
        text = format!("{notice}\n{text}{notice}\n");
    }
    Ok(Outcome::new(text, json!({ "profile": profile, "machine": machine })))
}

/// A session that profiles and plans by these options.
pub(super) fn session(planning: &PlanningOptions, context: RunContext, call: &Invocation<'_>) -> Session {
    let session = Session::new(context, SessionConfig { planning: planning.clone(), ..SessionConfig::default() });
    match &call.dataset {
        Some(dataset) => session.on(Arc::clone(dataset)),
        None => session,
    }
}

fn describe(profile: &Profile) -> String {
    let row = |phase: &str, settings: String, s: &Statistics| {
        let rate = if s.mean > 0.0 { format!("{:.1}", 1.0 / s.mean) } else { "–".into() };
        let [mean, std, median] = [s.mean, s.std, s.median].map(|s| Time(s).to_string());
        vec![phase.into(), settings, mean, std, median, rate, s.samples.len().to_string(), s.outliers.len().to_string()]
    };
    let plural = |n: usize, noun: &str| show::plural(n as u64, noun);
    let header = ["phase", "with", "mean", "deviation", "median", "batches/s", "samples", "outliers"];
    let mut text: String = profile.selections.iter().map(|s| format!("{s}\n")).collect();
    for r in &profile.routes {
        let pool = |workers, threads| format!("{} x {}", plural(workers, "worker"), plural(threads, "thread"));
        let mut rows: Vec<Vec<String>> =
            r.batching.iter().map(|p| row("batching", pool(p.workers, p.threads), &p.seconds)).collect();
        rows.push(row("transferring", String::new(), &r.transferring));
        rows.extend(r.training.iter().map(|t| row("training", plural(t.threads, "thread"), &t.seconds)));
        for t in &r.interference {
            let (pool, threads) = (pool(t.workers, t.threads), plural(t.training_threads, "thread"));
            rows.push(row("batching", format!("{pool}, beside {threads}"), &t.batching));
            rows.push(row("training", format!("{threads}, beside {pool}"), &t.training));
        }
        rows.extend(r.overlapped.iter().map(|s| row("all", "at once".into(), s)));
        text += &format!(
            "{}\na mini-batch: {} edges, {}\n{}\n",
            r.keys(),
            HumanCount(r.edges_per_batch as u64),
            show::bytes(r.bytes_per_batch as u64),
            show::table(&header, &rows, &[0, 1]),
        );
    }
    text += &profile.links.iter().map(|link| format!("{link}\n")).collect::<String>();
    text
}
