//! `morphgl cache`: how many accesses caches of each size and policy would serve.

use std::io::Write;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::{Args as _, Id, Parser};
use indicatif::HumanCount;
use morphgl_graph_store::Dataset;
use morphgl_hotness::{Hindsight, Hotness, Policy, PolicyKind, coverage, hottest};
use morphgl_model_spec::{ModelKind, ModelSpec};
use morphgl_plan::Time;
use morphgl_platform::replace_file;
use morphgl_registry::{Batching, SamplerSettings};
use morphgl_report::{LineChart, Scale, Series, line_chart_svg};
use serde_json::{Value, json};

use super::batch::BatchArgs;
use super::data::DataArgs;
use super::show::{self, Show};
use super::usage::{OrUsage, Usage};
use super::{Outcome, planned, run_dir, values};
use crate::{JobConfig, OperatorBuilder, TrainingSpec, registry, routes};

/// Shares of the nodes in the plot, in percent.
const CURVE: [f64; 15] = [0.0, 1.0, 2.0, 3.0, 5.0, 7.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 75.0, 100.0];

#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  morphgl cache                                              the embedded default dataset, every policy
  morphgl cache products --sampler walk --plot products.svg  hit rate against cache size, as a picture
  morphgl cache products --policies presample:1,inclusion --shares 1,5,10 --json
  morphgl cache products --policies inclusion --save hotness.npy
  morphgl cache --run runs/products                          adds the plot to a training's report

A static cache holds the feature rows of the nodes that its policy ranks first. Hits are counted in the epochs that training
would run; hindsight ranks by these counts themselves, so no static cache has more hits.")]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) data: DataArgs,
    #[command(flatten)]
    batch: BatchArgs,
    /// Policies to compare [default: all]
    #[arg(help_heading = "Caches", long, value_delimiter = ',', value_name = "POLICY,…")]
    policies: Vec<PolicyKind>,
    /// Shares of the nodes that are cached, in percent
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
    let command = BatchArgs::augment_args(DataArgs::augment_args(clap::Command::new("described")));
    command.get_arguments().map(|argument| argument.get_id().clone()).filter(|id| id != "threads").collect()
}

/// A policy's scores, what they cost, and the order of nodes by them.
struct Ranked {
    kind: PolicyKind,
    seconds: f64,
    order: Vec<u32>,
}

pub(crate) fn run(args: &Args, show: Show) -> Result<Outcome> {
    let policies = if args.policies.is_empty() { &PolicyKind::ALL[..] } else { &args.policies };
    if args.save.is_some() && policies.len() != 1 {
        return Err(Usage::error("--save: it keeps the scores of one policy; name it with --policies"));
    }
    if let Some(share) = args.shares.iter().find(|share| !(0.0..=100.0).contains(*share)) {
        return Err(Usage::error(format!("--shares: {share} is no percentage; give numbers from 0 to 100")));
    }
    let sampled = Sampled::open(args, show)?;
    let counted = sampled.count(args.epochs)?;
    let bar = show.bar("{msg:26} {bar:40} {pos}/{len}  {eta}", policies.len() as u64);
    let mut ranked = Vec::new();
    for &kind in policies {
        bar.set_message(kind.to_string());
        let begun = Instant::now();
        let hotness = match kind {
            PolicyKind::Hindsight => Ok(counted.hotness.clone()),
            _ => sampled.score(kind),
        };
        match hotness {
            Ok(hotness) => {
                if let Some(path) = &args.save {
                    hotness.save(path)?;
                }
                let seconds =
                    if kind == PolicyKind::Hindsight { counted.seconds } else { begun.elapsed().as_secs_f64() };
                ranked.push(Ranked { kind, seconds, order: hottest(&hotness.features, usize::MAX) });
            }
            // A policy that was not asked for by name may not fit the kind of sampling.
            Err(e) if args.policies.is_empty() => show.say(format_args!("left out: {kind}: {e:#}")),
            Err(e) => return Err(e).or_usage(format_args!("--policies {kind}")),
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let table = Table::new(&sampled, &counted, &ranked, &args.shares);
    let measured = args.run.as_deref().map(run_dir::hit_rate).transpose()?.flatten();
    let chart = chart(&sampled, &counted, &ranked, measured);
    if let Some(path) = &args.plot {
        replace_file(path, |out| out.write_all(line_chart_svg(&chart).as_bytes()))
            .with_context(|| format!("{}: cannot be written; choose another file", path.display()))?;
    }
    if let Some(dir) = &args.run {
        run_dir::write_hit_rates(dir, &chart, &table.json())?;
    }
    Ok(Outcome::new(table.text(), table.json()))
}

/// A dataset, and the batching operator whose accesses are counted.
struct Sampled {
    dataset: Arc<Dataset>,
    settings: SamplerSettings,
    batching: Box<dyn Batching>,
    threads: usize,
}

/// The accesses of an epoch, on average, and the time that sampling one takes.
struct Counted {
    hotness: Hotness,
    epochs: u32,
    seconds: f64,
}

impl Sampled {
    fn open(args: &Args, show: Show) -> Result<Self> {
        args.batch.limit_threads()?;
        let (dataset, config) = match &args.run {
            Some(dir) => Self::of_run(dir, args.batch.threads, show)?,
            None => Self::of_options(args, show)?,
        };
        let registry = registry()?;
        let routes = routes(&registry, &config.operators, config.sampler.sampling.kind())?;
        let route = routes.into_iter().min_by_key(|r| r.batching.hardware.resources().len()).context("no route")?;
        let builder = OperatorBuilder { dataset: &dataset, config: &config, registry: &registry };
        let batching = builder.batching(&route, false)?;
        let threads = config.num_threads(&registry);
        Ok(Self { dataset, settings: config.sampler, batching, threads })
    }

    fn of_options(args: &Args, show: Show) -> Result<(Arc<Dataset>, JobConfig)> {
        let dataset = args.data.open(show)?;
        let model = ModelSpec::new(ModelKind::Sage, dataset.feature_dim(), dataset.num_classes);
        let model = ModelSpec { layers: args.batch.num_layers(), ..model };
        args.batch.check_sampling(&model)?;
        let config = planned::with_spec(TrainingSpec { model, optimizer: Default::default() }, &args.batch)?;
        Ok((dataset, config))
    }

    /// What a run sampled. Its operators are not needed: any makes the same mini-batches.
    fn of_run(dir: &Path, threads: Option<usize>, show: Show) -> Result<(Arc<Dataset>, JobConfig)> {
        let run_dir::Configured { dataset, job, .. } = run_dir::Configured::read(dir)?;
        // What was left on disk is larger than memory.
        let mmap = job.disk_bytes.is_some();
        let dataset = DataArgs { dataset, mmap, no_verify: mmap, given: None, divided: false }.open(show)?;
        Ok((dataset, JobConfig { sampler: job.sampler, threads, ..JobConfig::new(job.spec) }))
    }

    fn count(&self, epochs: NonZeroU32) -> Result<Counted> {
        let (begun, epochs) = (Instant::now(), epochs.get());
        let policy = Hindsight { batching: self.batching.as_ref(), epochs: 0..epochs, threads: self.threads };
        let hotness = policy.score(&self.dataset.topology, &self.dataset.splits.train, &self.settings)?;
        Ok(Counted { hotness, epochs, seconds: begun.elapsed().as_secs_f64() / f64::from(epochs) })
    }

    fn score(&self, kind: PolicyKind) -> Result<Hotness> {
        let policy = kind.policy_of(self.settings.seed, self.batching.as_ref(), self.threads);
        let policy = policy.context("it counts the epochs of a training; name another policy")?;
        Ok(policy.score(&self.dataset.topology, &self.dataset.splits.train, &self.settings)?)
    }

    /// Number of rows that a share in percent is.
    fn rows(&self, percent: f64) -> usize {
        (self.dataset.num_nodes() as f64 * percent / 100.0).round() as usize
    }

    fn row_bytes(&self) -> u64 {
        self.dataset.features.as_ref().map_or(0, |features| features.row_bytes() as u64)
    }
}

/// Hit rates at some sizes, policy by policy.
struct Table<'a> {
    sampled: &'a Sampled,
    counted: &'a Counted,
    shares: &'a [f64],
    rows: Vec<usize>,
    policies: Vec<(&'a Ranked, Vec<f64>)>,
}

impl<'a> Table<'a> {
    fn new(sampled: &'a Sampled, counted: &'a Counted, ranked: &'a [Ranked], shares: &'a [f64]) -> Self {
        let rows: Vec<usize> = shares.iter().map(|&share| sampled.rows(share)).collect();
        let hits = |r: &'a Ranked| (r, coverage(&counted.hotness.features, &r.order, &rows));
        let policies = ranked.iter().map(hits).collect();
        Self { sampled, counted, shares, policies, rows }
    }

    fn accesses(&self) -> f64 {
        self.counted.hotness.features.iter().map(|&count| f64::from(count)).sum()
    }

    fn text(&self) -> String {
        let Self { sampled, counted, shares, .. } = self;
        let mut header = vec!["policy".to_string()];
        header.extend(shares.iter().map(|share| format!("{share}% of rows")));
        header.extend(["seconds".to_string(), "epochs of sampling".to_string()]);
        let row = |(ranked, hits): &(&Ranked, Vec<f64>)| {
            let mut cells = vec![ranked.kind.to_string()];
            cells.extend(hits.iter().map(|hit| format!("{:.1}%", 100.0 * hit)));
            cells.extend([format!("{:.3}", ranked.seconds), format!("{:.2}", ranked.seconds / counted.seconds)]);
            cells
        };
        let rows: Vec<Vec<String>> = self.policies.iter().map(row).collect();
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        let accesses = self.accesses();
        format!(
            "{}: {}, {} seeds a mini-batch\n{} accesses an epoch to {} rows of {}: {} without a cache ({}, sampled in {} an epoch)\n{}",
            sampled.dataset.name,
            sampled.settings.sampling,
            sampled.settings.batch_size,
            HumanCount(accesses as u64),
            HumanCount(sampled.dataset.num_nodes() as u64),
            show::bytes(sampled.row_bytes()),
            show::bytes((accesses * sampled.row_bytes() as f64) as u64),
            show::plural(counted.epochs.into(), "epoch"),
            Time(counted.seconds),
            show::table(&header, &rows, &[0]),
        )
    }

    fn json(&self) -> Value {
        let Self { sampled, counted, shares, .. } = self;
        let (accesses, row_bytes) = (self.accesses(), sampled.row_bytes());
        let policies = self.policies.iter().map(|(ranked, hits)| {
            let sizes = shares.iter().zip(&self.rows).zip(hits).map(|((share, rows), hit)| {
                let missed = (accesses * (1.0 - hit) * row_bytes as f64).round() as u64;
                let cache_bytes = *rows as u64 * row_bytes;
                json!({ "share": share / 100.0, "rows": rows, "cache_bytes": cache_bytes, "hit_rate": hit, "missed_bytes": missed })
            });
            json!({
                "policy": ranked.kind.to_string(),
                "seconds": ranked.seconds,
                "epochs_of_sampling": ranked.seconds / counted.seconds,
                "sizes": sizes.collect::<Vec<_>>(),
            })
        });
        json!({
            "dataset": sampled.dataset.name,
            "settings": sampled.settings,
            "epochs": counted.epochs,
            "sampling_seconds": counted.seconds,
            "accesses": accesses,
            "row_bytes": row_bytes,
            "policies": policies.collect::<Vec<_>>(),
        })
    }
}

/// Hit rate against cache size, as the survey's Fig. 15; and the hit rate that a run `measured`, whatever its cache.
fn chart(sampled: &Sampled, counted: &Counted, ranked: &[Ranked], measured: Option<f64>) -> LineChart {
    let rows = CURVE.map(|percent| sampled.rows(percent));
    let series = ranked.iter().map(|r| Series {
        name: r.kind.to_string(),
        style: String::new(),
        points: CURVE.into_iter().zip(coverage(&counted.hotness.features, &r.order, &rows)).collect(),
    });
    let measured = measured.map(|rate| Series {
        name: "measured in the run".to_string(),
        style: "measured".to_string(),
        points: CURVE.map(|percent| (percent, rate)).to_vec(),
    });
    LineChart {
        title: format!("{}: hit rate of static caches, {}", sampled.dataset.name, sampled.settings.sampling),
        x_name: "cached rows, percent of all".to_string(),
        scale: Scale::Percent,
        from_zero: true,
        series: series.chain(measured).collect(),
        events: Vec::new(),
    }
}
