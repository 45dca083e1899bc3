//! `morphgl reorder`: a copy of a dataset with its hottest nodes first.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use clap::Parser;
use indicatif::HumanCount;
use morphgl_graph_store::{Dataset, Load, OpenOptions};
use morphgl_hotness::PolicyKind;
use morphgl_plan::Time;
use morphgl_registry::{Fanouts, SamplerSettings};
use morphgl_tiering::{Order, ReorderOptions, reorder};
use serde_json::json;

use super::show::{Show, Stages};
use super::{Outcome, info};
use crate::load::cpu_seconds;
use crate::usage::Usage;
use crate::{examples, values};

#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  morphgl reorder products -o hot                                by in-degree
  morphgl reorder products -o hot --by inclusion --fanouts 15,10,5
  morphgl reorder products -o mine --order order.npy             an order of your own, as numpy's argsort gives it
  morphgl train hot                                              the losses and predictions of `morphgl train products`

Topology, weights, features, labels, targets, splits and ids are renumbered together. Mini-batches, and so losses, stay the
same, and `morphgl predict` names nodes by the ids that they had.")]
pub(crate) struct Args {
    /// Directory of the dataset
    dataset: PathBuf,
    /// Directory of the reordered dataset
    #[arg(short, long, value_name = "DATASET")]
    output: PathBuf,
    /// The policy that nodes are ordered by, the hottest first: in-degree, out-degree, reverse-pagerank,
    /// weighted-reverse-pagerank, inclusion or random
    #[arg(long, value_name = "POLICY", default_value = "in-degree", conflicts_with = "order")]
    by: PolicyKind,
    /// A .npy file that lists all nodes by their numbers in the dataset, the hottest first
    #[arg(long, value_name = "FILE")]
    order: Option<PathBuf>,
    /// inclusion: neighbours sampled per node, the seeds' own hop first; -1 for all [default: 15,10,5]
    #[arg(long, allow_hyphen_values = true)]
    fanouts: Option<Fanouts>,
    /// inclusion: seeds per mini-batch [default: 1024]
    #[arg(long, value_parser = values::at_least_one)]
    batch_size: Option<usize>,
    /// Threads to use [default: all cores]
    #[arg(long, value_parser = values::threads)]
    threads: Option<usize>,
    /// Skip checksums and the search for NaN features when opening the dataset
    #[arg(long)]
    no_verify: bool,
    /// Replace a dataset that exists
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(args: &Args, show: Show) -> anyhow::Result<Outcome> {
    let samples = args.order.is_none() && args.by == PolicyKind::Inclusion;
    if !samples && (args.fanouts.is_some() || args.batch_size.is_some()) {
        let option = if args.fanouts.is_some() { "--fanouts" } else { "--batch-size" };
        return Err(Usage::error(format!("{option}: --by inclusion alone reads it; leave it out")));
    }
    let threads = args.threads.unwrap_or_else(rayon::current_num_threads);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().context("no thread can be started")?;
    pool.install(|| in_pool(args, threads, show))
}

fn in_pool(args: &Args, threads: usize, show: Show) -> anyhow::Result<Outcome> {
    let options = OpenOptions { load: Load::Mmap, verify: !args.no_verify };
    let dataset = Dataset::open(&args.dataset, options)?;
    let start = Instant::now();
    let order = order(args, &dataset)?;
    let order_seconds = start.elapsed().as_secs_f64();
    let by = args.order.as_ref().map_or_else(|| args.by.to_string(), |file| file.display().to_string());

    let (stages, start, cpu) = (Stages::new(show), Instant::now(), cpu_seconds());
    let progress = |stage: &str, done: u64, total: u64| stages.set(stage, done, total);
    let options = ReorderOptions { by: by.clone(), replace: args.force };
    let path = reorder(&dataset, &order, &args.output, &options, &progress)?;
    let seconds = start.elapsed().as_secs_f64();
    let cpu_seconds = cpu.zip(cpu_seconds()).map(|(before, after)| after - before);
    stages.finish();

    let edges_per_s = dataset.topology.num_edges() as f64 / seconds;
    let mut outcome = info::describe(&path)?;
    outcome.text += &format!(
        "reordered by {by}: the order in {}, the copy in {}, {} edges/s\n",
        Time(order_seconds),
        Time(seconds),
        HumanCount(edges_per_s as u64)
    );
    outcome.json["reorder"] = json!({
        "by": by, "order_seconds": order_seconds, "seconds": seconds, "cpu_seconds": cpu_seconds,
        "edges_per_s": edges_per_s, "threads": threads,
    });
    Ok(outcome)
}

/// The order asked for, which later steps read as a list of nodes alone.
fn order(args: &Args, dataset: &Dataset) -> anyhow::Result<Order> {
    let order = match &args.order {
        Some(file) => Order::read(file)?,
        None => Order::by_hotness(&hotness(args, dataset)?)?,
    };
    if order.len() != dataset.num_nodes() {
        let file = args.order.as_deref().unwrap_or(&args.dataset).display();
        let (given, needed) = (order.len(), dataset.num_nodes());
        anyhow::bail!("{file}: an order of {given} nodes, and {} has {needed}; list every node once", dataset.name);
    }
    Ok(order)
}

/// Hotness of the nodes' features by the chosen policy.
fn hotness(args: &Args, dataset: &Dataset) -> anyhow::Result<Arc<[f32]>> {
    let mut settings: SamplerSettings = args.fanouts.clone().map_or_else(SamplerSettings::default, Into::into);
    if let Some(batch_size) = args.batch_size {
        settings.batch_size = batch_size;
    }
    let train = &*examples::nodes(&dataset.splits.train, dataset);
    let begins = matches!(args.by, PolicyKind::Inclusion | PolicyKind::WeightedReversePageRank);
    if begins && train.is_empty() {
        let (name, by) = (&dataset.name, args.by);
        let what = format!("--by {by}: it begins at training nodes, and {name} has none; use --by in-degree");
        return Err(Usage::error(what));
    }
    let Some(policy) = args.by.policy(settings.seed) else {
        let what = format!("--by {}: it counts sampled mini-batches; use another policy, or give an --order", args.by);
        return Err(Usage::error(what));
    };
    Ok(policy.score(&dataset.topology, train, &settings)?.features)
}
