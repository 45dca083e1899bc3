//! `morphgl ops`: the operators, and the routes they form here.

use clap::Parser;
use morphgl_model_core::{LossDescription, ModelDescription, ScoreDescription};
use morphgl_platform::SimdLevel;
use morphgl_registry::{OptionSpec, Phase, SamplingSpec, Status};
use serde_json::json;

use super::{Outcome, show};
use crate::{NumaNode, RunContext, numa};

#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  morphgl ops
  morphgl ops --options                                        kinds of sampling, options for --set, and counters
  morphgl ops --options --json | jq '.operators[] | {key, options}'
  morphgl ops --json | jq '.operators[] | select(.available).key'")]
pub(crate) struct Args {
    /// Lists the kinds of sampling with their settings for --sampler-option, and of every operator the options for --set and the
    /// counters
    #[arg(long)]
    options: bool,
}

/// The kinds of sampling and their settings, and the options and counters of every operator that has any.
fn options(samplings: &[SamplingSpec], status: &[Status<'_>]) -> String {
    let mut text = String::new();
    for spec in samplings {
        let fanouts = if spec.by_fanouts { "; reads --fanouts" } else { "" };
        text += &format!("--sampler {}\n  {}{fanouts}\n", spec.name, spec.help);
        text += &settings_text(spec.settings);
    }
    text += "\nset one with --sampler-option NAME=VALUE\n\n";
    for d in status.iter().map(|s| s.description).filter(|d| !(d.options.is_empty() && d.counters.is_empty())) {
        text += &format!("{}\n{}", d.key, settings_text(d.options));
        let counters: Vec<&str> = d.counters.iter().map(|c| c.name).collect();
        if !counters.is_empty() {
            text += &format!("  counts {}\n", counters.join(", "));
        }
        text.push('\n');
    }
    text += "set one with --set KEY.NAME=VALUE\n";
    for (what, name, settings) in
        submitted().iter().filter(|s| !s.settings.is_empty()).map(|s| (s.what, s.name, s.settings))
    {
        text += &format!("\n--{what} {name}\n{}set one with --{what}-option NAME=VALUE\n", settings_text(settings));
    }
    text
}

/// A model, a loss or a score of a linked crate.
struct Submitted {
    what: &'static str,
    name: &'static str,
    summary: &'static str,
    settings: &'static [OptionSpec],
}

fn submitted() -> Vec<Submitted> {
    let models = ModelDescription::linked().into_iter();
    let models = models.map(|m| Submitted { what: "model", name: m.name, summary: m.summary, settings: m.settings });
    let losses = LossDescription::linked().into_iter();
    let scores = ScoreDescription::linked().into_iter();
    models
        .chain(losses.map(|l| Submitted { what: "loss", name: l.name, summary: l.summary, settings: l.settings }))
        .chain(scores.map(|s| Submitted { what: "score", name: s.name, summary: s.summary, settings: &[] }))
        .collect()
}

fn settings_text(options: &[OptionSpec]) -> String {
    let line = |o: &OptionSpec| {
        let unit = if o.unit.is_empty() { String::new() } else { format!(" ({})", o.unit) };
        format!("  {} = {}{unit}, default {}\n      {}\n", o.name, o.kind, o.default, o.help)
    };
    options.iter().map(line).collect()
}

fn option(o: &OptionSpec) -> serde_json::Value {
    json!({
        "name": o.name, "type": o.kind.to_string(), "unit": o.unit, "default": o.default, "help": o.help,
        "set_by": o.role, "single_pass": o.single_pass,
    })
}

pub(crate) fn run(args: &Args, context: &RunContext) -> anyhow::Result<Outcome> {
    let registry = context.registry();
    let machine = registry.machine();
    let status = registry.status();
    let routes = registry.routes();
    let rows: Vec<Vec<String>> = status
        .iter()
        .map(|s| {
            let named = s.description.key.phase == Phase::Batching && !s.description.interchangeable;
            let yes = match s.description.reference {
                true => "yes, a reference",
                false if named => "yes, where --batching names it",
                false => "yes",
            };
            let available = s.availability.as_ref().map_or_else(|u| format!("no: {}", u.reason), |()| yes.into());
            let places = format!("{} → {}", s.description.reads, s.description.writes);
            vec![s.description.key.to_string(), places, available, s.description.summary.to_string()]
        })
        .collect();
    let mut text = format!(
        "{}, {} cores, SIMD level {}, {} of memory ({} free)\n",
        machine.cpu,
        machine.cores,
        SimdLevel::current(),
        show::bytes(machine.memory_bytes),
        show::bytes(machine.available_bytes)
    );
    for a in &machine.accelerators {
        text += &format!("{}: {}, {}\n", a.place, a.name, show::bytes(a.memory_bytes));
    }
    let numa_nodes = NumaNode::all();
    text.extend(numa::advice(&numa_nodes).map(|advice| advice + "\n"));
    text += "\n";
    text += &show::table(&["operator", "places", "available", "summary"], &rows, &[0, 1, 2, 3]);
    let submitted = submitted();
    if !submitted.is_empty() {
        let rows: Vec<Vec<String>> =
            submitted.iter().map(|s| vec![format!("--{} {}", s.what, s.name), s.summary.to_string()]).collect();
        text += "\n";
        text += &show::table(&["of linked crates", "summary"], &rows, &[0, 1]);
    }
    text += "\nroutes\n";
    for (i, r) in routes.iter().enumerate() {
        let batched = if r.is_between_devices() { format!("batched at {}, ", r.batched_at) } else { String::new() };
        let (keys, trained) = (format!("{} → {} → {}", r.batching, r.transferring, r.training), &r.trained_at);
        text += &format!("{i}: {keys} ({batched}trained at {trained})\n");
    }
    if args.options {
        text = options(&registry.samplings(), &status);
    }
    let operators: Vec<_> = status
        .iter()
        .map(|s| {
            let d = s.description;
            json!({
                "key": d.key, "phase": d.key.phase, "hardware": d.key.hardware, "operator": d.key.operator(),
                "summary": d.summary, "reads": d.reads.to_string(), "writes": d.writes.to_string(),
                "available": s.availability.is_ok(), "reference": d.reference,
                "reason": s.availability.as_ref().err().map(|u| &u.reason),
                "simulated": d.simulated, "queues": d.queues, "features": d.features, "gathers_features": d.gathers_features,
                "between_devices": d.between_devices,
                "samplers": d.samplers.iter().map(|spec| spec.name).collect::<Vec<_>>(), "interchangeable": d.interchangeable, "takes_pairs": d.takes_pairs, "takes_rows": d.takes_rows, "own_model": d.own_model,
                "options": d.options.iter().map(option).collect::<Vec<_>>(),
                "counters": d.counters.iter().map(|c| json!({ "name": c.name, "help": c.help })).collect::<Vec<_>>(),
            })
        })
        .collect();
    let samplers = registry.samplings();
    let samplers = samplers.iter().map(|spec| {
        let settings: Vec<_> = spec.settings.iter().map(option).collect();
        json!({ "name": spec.name, "help": spec.help, "by_fanouts": spec.by_fanouts, "settings": settings })
    });
    let samplers: Vec<_> = samplers.collect();
    let listed = |what: &str| {
        let of = submitted.iter().filter(|s| s.what == what);
        let entry = |s: &Submitted| json!({ "name": s.name, "summary": s.summary, "settings": s.settings.iter().map(option).collect::<Vec<_>>() });
        of.map(entry).collect::<Vec<_>>()
    };
    Ok(Outcome::new(
        text,
        json!({
            "machine": machine, "numa_nodes": numa_nodes, "isa": SimdLevel::current().name(), "operators": operators, "routes": routes,
            "samplers": samplers, "models": listed("model"), "losses": listed("loss"),
            "scores": listed("score"),
        }),
    ))
}
