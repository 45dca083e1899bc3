//! `morphgl plan`: the plan with the least predicted epoch time, and its rivals.

use std::path::PathBuf;

use clap::Parser;
use serde_json::json;

use super::Outcome;
use super::job::{self, BatchArgs, DataArgs, ModelArgs};
use super::profile::{BudgetArgs, measure};
use super::show::Show;
use crate::{Partitioner, Plans, Profile, Scheduler};

#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  morphgl plan                                    measures the embedded default first
  morphgl plan --profile cora-profile.json        from a profile saved by `morphgl profile --save`
  morphgl plan --profile p.json --threads 16      as if the machine had 16 cores")]
pub(crate) struct Args {
    #[command(flatten)]
    data: DataArgs,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    batch: BatchArgs,
    #[command(flatten)]
    budget: BudgetArgs,
    /// Plans from a saved profile instead of measuring
    #[arg(long, value_name = "FILE", conflicts_with = "dataset")]
    profile: Option<PathBuf>,
}

/// Plans of a route that are printed; there are hundreds on a machine of many cores.
const SHOWN: usize = 12;

pub(crate) fn run(args: &Args, show: Show) -> anyhow::Result<Outcome> {
    let planned: Vec<(Profile, Plans)> = match &args.profile {
        Some(path) => {
            let profile = Profile::load(path)?;
            let cores = args.batch.threads()?.unwrap_or(profile.machine.cores);
            let plans = Scheduler::schedule(&Partitioner::partition(&profile, cores));
            vec![(profile, plans)]
        }
        None => {
            args.batch.limit_threads()?;
            let dataset = args.data.open(show)?;
            let config = job::config(&dataset, &args.model, &args.batch)?;
            measure(&dataset, &config, &args.budget, show)?.into_iter().map(|m| (m.profile, m.plans)).collect()
        }
    };
    let mut text = String::new();
    for (_, plans) in &planned {
        let table = plans.to_string();
        let (shown, all) = (table.lines().take(1 + SHOWN), plans.all().len());
        text += &format!("{}\n{}\n", plans.best().route, shown.collect::<Vec<_>>().join("\n"));
        text += &if all > SHOWN { format!("… and {} more (--json has all)\n\n", all - SHOWN) } else { "\n".into() };
    }
    let best = planned.first().map(|(_, plans)| plans.best());
    if let Some(best) = best {
        text += &format!("plan: {best}\n");
    }
    let routes: Vec<_> = planned.iter().map(|(p, plans)| json!({ "route": p.route, "plans": plans })).collect();
    Ok(Outcome::new(text, json!({ "plan": best, "routes": routes })))
}
