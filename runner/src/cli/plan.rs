//! `morphgl plan`: the plan with the minimum predicted epoch time, its rivals, and plans for faster machines.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args as _, Id, Parser};
use indicatif::HumanCount;
use morphgl_plan::{Time, WhatIf};
use morphgl_platform::replace_file;
use morphgl_report::{SvgOptions, svg};
use serde_json::json;

use super::profile::session;
use super::show;
use super::{Invocation, Outcome, systems};
use crate::recorder::predicted_roles;
use crate::session::durations::ManualDurations;
use crate::session::machine;
use crate::session::report;
use crate::session::systems::{Beside, LIST};
use crate::session::what_if::{self, Changed};
use crate::session::{Measured, PlanChoice, PlanningOptions};
use crate::usage::{OrUsage, Usage};
use crate::{
    Factored, Partitioner, Plans, Problem, Profile, RunContext, Scheduler, Simulated, SplitPlan, Unified,
    predicted_timeline, words,
};

#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  morphgl plan                                    measures the embedded default first
  morphgl plan --machine eight-v100               a machine that is described, not measured: eight V100 on two switches
  morphgl plan products --machine mine.toml --report plan.html   on a machine described in a file
  morphgl plan --machine list                     the machines that come with MorphGL
  morphgl plan --as gnnlab --machine eight-v100   as a system of the papers would, beside our best plan
  morphgl plan --as list                          the systems, and the options that each sets
  morphgl plan --profile cora-profile.json        from a profile saved by `morphgl profile --save`
  morphgl plan --profile p.json --threads 16      as if the machine had 16 cores
  morphgl plan --profile p.json --what-if 'CPU*2' --what-if 'CPU*2,PCIe*2'   with a device on PCIe
  morphgl plan --durations batching-cpu=80ms,workers=8,transferring-pcie=4ms,batching-device=14ms,\\
transferring-device=4ms,training=10ms,batches=1179 --timeline plan.svg --report plan.html")]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) planned: PlanningOptions,
    /// Plans from a saved profile instead of measuring
    #[arg(help_heading = "Plan", long, value_name = "FILE", conflicts_with_all = measured(), conflicts_with = "durations")]
    profile: Option<PathBuf>,
    /// Plans from durations on the command line: of a CPU worker, of PCIe, of the device (DEV), and of training
    #[arg(help_heading = "Plan", long, value_name = "NAME=TIME,…", conflicts_with_all = measured(), conflicts_with = "threads")]
    durations: Option<ManualDurations>,
    /// Plans as if resources were faster, too; may be given several times
    #[arg(help_heading = "Plan", long, value_name = "RESOURCE*FACTOR,…")]
    what_if: Vec<WhatIf>,
    /// Draws the best plan's timeline into this SVG file
    #[arg(help_heading = "Plan", long, value_name = "FILE")]
    timeline: Option<PathBuf>,
    /// Writes a report, a self-contained HTML page
    #[arg(help_heading = "Plan", long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Writes the best plan to this JSON file, for `morphgl train --plan FILE`
    #[arg(help_heading = "Plan", long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Planning options that are valid with `--profile` and `--durations` too; the others are about measuring.
const PLANNING: [&str; 4] = ["threads", "memory", "device_memory", "buffer"];

/// The options of what is measured, which conflict with a profile or durations: nothing is measured then.
fn measured() -> Vec<Id> {
    let command = PlanningOptions::augment_args(clap::Command::new("measured"));
    let ids = command.get_arguments().map(|argument| argument.get_id().clone());
    ids.filter(|id| !PLANNING.contains(&id.as_str())).collect()
}

pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    replace_file(path, |out| out.write_all(text.as_bytes()))
        .with_context(|| format!("{}: cannot be written; choose another file", path.display()))
}

pub(crate) fn run(args: &Args, context: RunContext, call: &Invocation<'_>) -> Result<Outcome> {
    if args.planned.machine.as_deref().is_some_and(|machine| machine.as_os_str() == "list") {
        return Ok(Outcome::new(morphgl_sim::list(), machine::list_json()));
    }
    if args.planned.as_system.as_deref() == Some(LIST) {
        return Ok(systems::list());
    }
    let machine = args.planned.machine.as_deref().map(machine::named).transpose()?;
    let notice = machine.as_ref().map(|described| format!("{}\n", machine::notice(described, false)));
    let (mut choice, mut beside) = (PlanChoice::Auto, None);
    type Planned = (Option<Profile>, Problem, Plans, Option<Unified>, Option<Factored>, Option<SplitPlan>);
    let (profile, problem, plans, unified, factored, split): Planned = if let Some(durations) = &args.durations {
        let problem = durations.problem(args.planned.limits.options()).or_usage("--durations")?;
        let plans = Scheduler::schedule(&problem)?;
        (None, problem, plans, None, None, None)
    } else if let Some(path) = &args.profile {
        let profile = Profile::load(path)?;
        let cores = args.planned.batch.threads.unwrap_or(profile.machine.cores);
        let problem = Partitioner::partition(&profile, cores, args.planned.limits.options());
        let plans = Scheduler::schedule(&problem)?;
        (Some(profile), problem, plans, None, None, None)
    } else {
        let session = session(&args.planned, context.clone(), call);
        let (own, applied) = session.here()?;
        refuse_of_several(args, own.choice())?;
        let measured = session.plan()?;
        if let Some(applied) = applied {
            choice = own.choice().clone();
            beside = Some(Beside::new(applied, &measured, &session.like_no_system().plan()?)?);
        }
        let Measured { profile, problem, plans, unified, factored, split, .. } = measured;
        (Some(profile), problem, plans, unified.transpose()?, factored.transpose()?, split.transpose()?)
    };
    let best = &match (&choice, &unified, &factored) {
        (PlanChoice::Unified, Some(unified), _) => unified.leading_plan(),
        (PlanChoice::Factored, _, Some(factored)) => factored.plan.clone(),
        _ => choice.choose(None, &plans, &problem)?,
    };
    let rows = what_if::changed(&problem, best, &args.what_if)?;
    let passed_over =
        Some(&choice).filter(|choice| **choice == PlanChoice::Auto).and_then(|_| words::passed_over(&plans));
    let mut text = notice.clone().unwrap_or_default();
    let of_several = matches!(choice, PlanChoice::Unified | PlanChoice::Factored);
    if !of_several {
        text += &format!("{plans}\nplan: {best}\n");
        text += &passed_over.iter().map(|passed_over| format!("{passed_over}\n")).collect::<String>();
    }
    text += &profile.iter().flat_map(|p| &p.selections).map(|s| format!("{s}\n")).collect::<String>();
    if !of_several && best.memory.host + best.memory.device + best.memory.sampler > 0 {
        let [host, device, sampler] = [best.memory.host, best.memory.device, best.memory.sampler].map(show::bytes);
        let sampler = match best.memory.sampler {
            0 => String::new(),
            _ => format!(", {sampler} on the one that samples for it"),
        };
        text += &format!("buffers and workers take at most {host} on the host, {device} on the device{sampler}\n");
    }
    text += &best.caches.iter().map(|cache| format!("cache: {cache}\n")).collect::<String>();
    if !rows.is_empty() {
        text += &format!("\n{}", table(&rows));
    }
    text += &unified.iter().map(|unified| format!("{unified}\n")).collect::<String>();
    text += &factored.iter().map(|factored| format!("{factored}\n")).collect::<String>();
    text += &split.iter().map(|split| format!("{split}\n")).collect::<String>();
    text += &beside.iter().map(|beside| format!("\n{}", beside.text())).collect::<String>();
    let simulated = match &machine {
        Some(machine) => Simulated::of(context.on_machine(machine.clone())?.registry()),
        None => Simulated::of(context.registry()),
    };
    if let Some(path) = &args.timeline {
        let where_to = machine.as_ref().map(|machine| format!(" for the simulated machine {}", machine.name));
        let (count, where_to) = (HumanCount(best.num_batches() as u64), where_to.unwrap_or_default());
        // Devices with roles, where they are the fastest.
        let others = unified.iter().map(|unified| unified.epoch_seconds).fold(best.prediction.epoch_seconds, f64::min);
        let asked = matches!(choice, PlanChoice::Factored);
        let roles = factored.as_ref().filter(|factored| asked || factored.epoch_seconds() < others);
        let (what, timeline) = match roles {
            Some(factored) => ("factored".to_string(), predicted_roles(factored, &simulated)),
            None => (best.strategy.to_string(), predicted_timeline(best, &simulated)),
        };
        let title = format!("{count} mini-batches, {what}, as predicted{where_to}");
        write(path, &svg(&timeline, &SvgOptions { title, ..SvgOptions::default() }))?;
        text += &format!("timeline: {}\n", path.display());
    }
    if let Some(path) = &args.output {
        write(path, &format!("{:#}\n", serde_json::to_value(best)?))?;
        text += &format!("plan: {}\n", path.display());
    }
    if let Some(path) = &args.report {
        let default = rows.is_empty().then(|| what_if::changed(&problem, best, &what_if::each_twice(&problem)));
        let default = default.transpose()?;
        let page = report::of_plan(
            profile.as_ref(),
            &plans,
            default.as_ref().unwrap_or(&rows),
            &simulated,
            machine.as_ref(),
            (unified.as_ref(), factored.as_ref()),
        );
        write(path, &morphgl_report::html(&page))?;
        text += &format!("report: {}\n", path.display());
    }
    text += &notice.unwrap_or_default();
    let what_if: Vec<_> =
        rows.iter().map(|c| json!({ "change": c.change, "speed_up": c.speed_up, "plan": c.plan })).collect();
    Ok(Outcome::new(
        text,
        json!({ "as": beside.as_ref().map(Beside::json), "plan": best, "passed_over": passed_over.and_then(|_| plans.passed_over()), "plans": plans, "what_if": what_if, "problem": problem, "profile": profile, "unified": unified, "factored": factored, "layer_split": split, "machine": machine }),
    ))
}

/// Refuses what is made of the plan of one trainer, where several are asked for.
fn refuse_of_several(args: &Args, choice: &PlanChoice) -> Result<()> {
    let of_several = matches!(choice, PlanChoice::Unified | PlanChoice::Factored);
    let given = [("--output", args.output.is_some()), ("--what-if", !args.what_if.is_empty())];
    match given.into_iter().find(|(_, given)| of_several && *given) {
        Some((option, _)) => {
            let why = format!("{option}: it is of plans of one trainer, and --as asks for --plan {choice}");
            Err(Usage::error(format!("{why}; leave one of the two out")))
        }
        None => Ok(()),
    }
}

/// What the changes give, one line each.
fn table(rows: &[Changed]) -> String {
    let row = |c: &Changed| {
        let p = &c.plan.prediction;
        let (epoch, speed_up) = (Time(p.epoch_seconds).to_string(), format!("{:.2}x", c.speed_up));
        vec![c.change.clone(), epoch, speed_up, p.bottleneck.to_string(), c.plan.schedule.to_string()]
    };
    let header = ["what if", "epoch", "speed-up", "bottleneck", "plan"];
    show::table(&header, &rows.iter().map(row).collect::<Vec<_>>(), &[0, 3, 4])
}

#[cfg(test)]
mod tests;
