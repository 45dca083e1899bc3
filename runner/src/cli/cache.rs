//! `morphgl cache`: how many accesses caches of each size and policy would serve.

use std::fmt;
use std::io::Write;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::{Args as _, Id, Parser};
use morphgl_hotness::{PolicyKind, coverage};
use morphgl_platform::replace_file;
use morphgl_report::{LineChart, Scale, Series, line_chart_svg};
use morphgl_row_cache::Eviction;

use super::{Invocation, Outcome};
use crate::session::hit_rates::lists::Lists;
use crate::session::hit_rates::rows::Rows;
use crate::session::{BatchOptions, Counted, DataOptions, Sampled, run_dir};
use crate::usage::{OrUsage, Usage};
use crate::{RunContext, values};

mod table;

use table::Table;

/// Shares of the nodes in the plot, in percent.
const CURVE: [f64; 15] = [0.0, 1.0, 2.0, 3.0, 5.0, 7.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 75.0, 100.0];

#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  morphgl cache                                              the embedded default dataset, every policy
  morphgl cache products --sampler walk --plot products.svg  hit rate against cache size, as a picture
  morphgl cache products --policies presample:1,inclusion --shares 1,5,10 --json
  morphgl cache products --policies inclusion,lru,sieve      static caches beside dynamic ones
  morphgl cache products --policies inclusion --save hotness.npy
  morphgl cache --run runs/products                          adds the plot to a training's report

A static cache holds the feature rows of the nodes that its policy ranks first, or the adjacency lists with the highest score
a byte. Where node types have rows of different length, or none, shares are of the rows' bytes, and a miss costs the bytes of its row. Hits are counted in the epochs that training would run; hindsight ranks by these counts themselves, so no static cache
has more hits. lru and sieve are dynamic caches, which insert the rows that they miss: one more epoch fills them before hits are counted.")]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) data: DataOptions,
    #[command(flatten)]
    batch: BatchOptions,
    /// Policies to compare: those of static caches, lru, sieve [default: all static ones]
    #[arg(help_heading = "Caches", long, value_delimiter = ',', value_name = "POLICY,…")]
    policies: Vec<Compared>,
    /// Shares that are cached, in percent: of the nodes' rows (of their bytes, where lengths differ), and of the bytes of the adjacency lists
    #[arg(help_heading = "Caches", long, value_delimiter = ',', value_parser = values::finite::<f64>, default_values_t = [1.0, 5.0, 10.0, 25.0])]
    shares: Vec<f64>,
    /// Epochs whose accesses are counted
    #[arg(help_heading = "Caches", long, default_value = "1")]
    epochs: NonZeroU32,
    /// Takes dataset and sampler settings of this run, writes the result to its cache.json, and puts the hit rates against cache
    /// size into its report.html, beside the rate that was measured
    #[arg(help_heading = "Caches", long, value_name = "DIR", conflicts_with_all = described())]
    run: Option<PathBuf>,
    /// Writes the hit rates against cache size as a picture
    #[arg(help_heading = "Caches", long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Writes the scores of a single policy, of features and of rows of the topology, `[2, nodes]` f32
    #[arg(help_heading = "Caches", long, value_name = "FILE.npy")]
    save: Option<PathBuf>,
}

/// The options that a run has already decided.
fn described() -> Vec<Id> {
    let command = BatchOptions::augment_args(DataOptions::augment_args(clap::Command::new("described")));
    command.get_arguments().map(|argument| argument.get_id().clone()).filter(|id| id != "threads").collect()
}

/// A policy whose hits are compared.
#[derive(Debug, Clone, Copy)]
enum Compared {
    /// Of a static cache.
    Static(PolicyKind),
    /// Of a dynamic cache, which inserts the rows that it misses.
    Dynamic(Eviction),
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Static(kind) => kind.fmt(f),
            Self::Dynamic(Eviction::Lru) => f.write_str("lru"),
            Self::Dynamic(Eviction::Sieve) => f.write_str("sieve"),
        }
    }
}

impl FromStr for Compared {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "lru" => Ok(Self::Dynamic(Eviction::Lru)),
            "sieve" => Ok(Self::Dynamic(Eviction::Sieve)),
            _ => text
                .parse()
                .map(Self::Static)
                .map_err(|error: morphgl_registry::Error| format!("{error}; or lru, sieve")),
        }
    }
}

/// A policy, and the seconds before its cache can be used.
struct Ranked {
    policy: Compared,
    seconds: f64,
    by: Chosen,
}

/// What a cache holds.
enum Chosen {
    /// The rows of the first nodes in `order`, and the adjacency lists of the first in `lists`.
    First { order: Vec<u32>, lists: Vec<u32> },
    /// The rows that a dynamic cache keeps: the hit rate at each share.
    Replayed(Vec<f64>),
}

pub(crate) fn run(args: &Args, context: &RunContext, call: &Invocation<'_>) -> Result<Outcome> {
    let policies = match &args.policies[..] {
        [] => PolicyKind::ALL.map(Compared::Static).to_vec(),
        named => named.to_vec(),
    };
    if args.save.is_some() && policies.len() != 1 {
        return Err(Usage::error("--save: it keeps the scores of one policy; name it with --policies"));
    }
    let replayed = policies.iter().find(|policy| matches!(policy, Compared::Dynamic(_)));
    if let (Some(policy), true) = (replayed, args.save.is_some()) {
        return Err(Usage::error(format!("--save: {policy} has no scores; name a policy of a static cache")));
    }
    if let Some(share) = args.shares.iter().find(|share| !(0.0..=100.0).contains(*share)) {
        return Err(Usage::error(format!("--shares: {share} is no percentage; give numbers from 0 to 100")));
    }
    let sampled = match &args.run {
        Some(dir) => Sampled::of_run(context, dir, &args.batch)?,
        None => Sampled::new(context, (&args.data, &args.batch), call.dataset.as_ref())?,
    };
    let counted = sampled.count(args.epochs)?;
    let (lists, rows) = (Lists::of(&sampled), Rows::of(&sampled.dataset));
    if let (Some(policy), true) = (replayed, rows.types.len() > 1) {
        let what = format!("--policies {policy}: dynamic caches are replayed on graphs without types; leave it out");
        return Err(Usage::error(what));
    }
    let bar = call.show.bar("{msg:26} {bar:40} {pos}/{len}  {eta}", policies.len() as u64);
    let mut ranked = Vec::new();
    for policy in policies {
        bar.set_message(policy.to_string());
        let begun = Instant::now();
        let hotness = match policy {
            Compared::Static(PolicyKind::Hindsight) => Ok(counted.hotness.clone()),
            Compared::Static(kind) => sampled.score(kind),
            Compared::Dynamic(eviction) => {
                let sizes: Vec<usize> = args.shares.iter().map(|&share| sampled.rows(share)).collect();
                let by = Chosen::Replayed(sampled.replay(eviction, &sizes, args.epochs)?);
                ranked.push(Ranked { policy, seconds: 0.0, by });
                bar.inc(1);
                continue;
            }
        };
        match hotness {
            Ok(hotness) => {
                if let Some(path) = &args.save {
                    hotness.save(path)?;
                }
                let seconds = match policy {
                    Compared::Static(PolicyKind::Hindsight) => counted.seconds,
                    _ => begun.elapsed().as_secs_f64(),
                };
                let order = rows.order(&hotness.features);
                let lists = lists.as_ref().map(|lists| lists.order(&hotness.rows)).unwrap_or_default();
                ranked.push(Ranked { policy, seconds, by: Chosen::First { order, lists } });
            }
            // A policy that was not asked for by name may not fit the kind of sampling.
            Err(e) if args.policies.is_empty() => context.remark(format_args!("left out: {policy}: {e:#}")),
            Err(e) => return Err(e).or_usage(format_args!("--policies {policy}")),
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let table = Table::new((&sampled, &counted), &ranked, (&rows, lists.as_ref()), &args.shares);
    let measured = args.run.as_deref().map(run_dir::hit_rate).transpose()?.flatten();
    let chart = chart((&sampled, &counted), &ranked, (&rows, &args.shares), measured);
    if let Some(path) = &args.plot {
        replace_file(path, |out| out.write_all(line_chart_svg(&chart).as_bytes()))
            .with_context(|| format!("{}: cannot be written; choose another file", path.display()))?;
    }
    if let Some(dir) = &args.run {
        run_dir::write_hit_rates(dir, &chart, &table.json())?;
    }
    Ok(Outcome::new(table.text(), table.json()))
}

/// Hit rate against cache size, as the survey's Fig. 15; and the hit rate that a run `measured`, whatever its cache.
fn chart(
    (sampled, counted): (&Sampled, &Counted),
    ranked: &[Ranked],
    (rows, shares): (&Rows, &[f64]),
    measured: Option<f64>,
) -> LineChart {
    let accesses = rows.accesses(&counted.hotness.features);
    let hits = |order: &[u32]| coverage(&accesses, order, &rows.within(order, &CURVE));
    let series = ranked.iter().map(|ranked| Series {
        name: ranked.policy.to_string(),
        style: String::new(),
        points: match &ranked.by {
            Chosen::First { order, .. } => CURVE.into_iter().zip(hits(order)).collect(),
            Chosen::Replayed(hits) => shares.iter().copied().zip(hits.iter().copied()).collect(),
        },
    });
    let measured = measured.map(|rate| Series {
        name: "measured in the run".to_string(),
        style: "measured".to_string(),
        points: CURVE.map(|percent| (percent, rate)).to_vec(),
    });
    LineChart {
        title: format!("{}: hit rate of caches, {}", sampled.dataset.name, sampled.settings.sampling),
        x_name: if rows.row_bytes.is_some() {
            "cached rows, percent of all"
        } else {
            "cached bytes, percent of all rows'"
        }
        .to_string(),
        scale: Scale::Percent,
        from_zero: true,
        series: series.chain(measured).collect(),
        events: Vec::new(),
    }
}
