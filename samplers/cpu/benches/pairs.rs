//! Mini-batches of link prediction per second, beside mini-batches of as many nodes as seeds, which are neither drawn nor without any
//! edge.
//!
//! Run: `cargo bench -p morphgl-batching-cpu --bench pairs -- [--graph arxiv-like] [--fanouts 15,10] [--batch 1024]
//! [--negatives 5] [--rounds 7] [--rows sorted|as-generated]`.
//! Positives are edges of the graph, drawn at random; graphs are those of the bench `sample`. One thread, no features.
#![allow(clippy::print_stdout, reason = "a bench prints")]

#[path = "sample/graphs.rs"]
#[allow(dead_code, reason = "of the generators it calls one")]
mod graphs;

use std::sync::Arc;
use std::time::Instant;

use morphgl_batching_cpu::CpuNeighbor;
use morphgl_graph_store::{Dataset, Topology};
use morphgl_platform::philox::philox4x32_10;
use morphgl_registry::{
    BatchId, Batching, BatchingContext, Fanouts, NegativeDistribution, PairSettings, Result, SamplerSettings, SeedSet,
};

/// Mini-batches of a round.
const BATCHES: u32 = 8;
/// Positives to choose mini-batches from.
const PAIRS: u32 = 200_000;

struct Options {
    graph: String,
    fanouts: String,
    batch: usize,
    negatives: u32,
    rounds: usize,
    sorted: bool,
}

fn options() -> Options {
    let mut options = Options {
        graph: "arxiv-like".into(),
        fanouts: "15,10".into(),
        batch: 1024,
        negatives: 5,
        rounds: 7,
        sorted: true,
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().unwrap_or_else(|| panic!("{arg} needs a value"));
        match arg.as_str() {
            "--graph" => options.graph = value(),
            "--fanouts" => options.fanouts = value(),
            "--batch" => options.batch = value().parse().expect("a number"),
            "--negatives" => options.negatives = value().parse().expect("a number"),
            "--rounds" => options.rounds = value().parse().expect("a number"),
            "--rows" => options.sorted = value() == "sorted",
            // An argument that cargo adds.
            "--bench" => {}
            _ => panic!("unknown option {arg}"),
        }
    }
    options
}

/// The graph with the in-neighbours of each node in ascending order, as imported graphs have them.
fn sorted(dataset: &Dataset) -> Result<Arc<Dataset>> {
    let indptr: &[u64] = dataset.topology.indptr();
    let mut indices = dataset.topology.indices().to_vec();
    indptr.windows(2).for_each(|row| indices[row[0] as usize..row[1] as usize].sort_unstable());
    let topology = Topology::new(indptr.to_vec(), indices, None).expect("the same graph");
    Ok(Arc::new(Dataset { topology, ..dataset.clone() }))
}

/// Seconds per mini-batch of each round, ascending; and seeds and edges per mini-batch.
fn measure(operator: &CpuNeighbor, rounds: usize) -> Result<(Vec<f64>, usize, usize)> {
    let mut worker = operator.worker(1)?;
    let (mut recycled, mut seconds, mut sizes) = (None, Vec::new(), (0, 0));
    for round in 0..=rounds {
        let start = Instant::now();
        sizes = (0, 0);
        for index in 0..BATCHES.min(operator.num_batches() as u32) {
            let (batch, _) = worker.prepare(BatchId { epoch: 0, index }, recycled.take())?.wait()?;
            let host = batch.host()?;
            sizes = (sizes.0 + host.num_seeds, sizes.1 + host.num_edges());
            recycled = Some(batch);
        }
        // The first round warms up.
        if round > 0 {
            seconds.push(start.elapsed().as_secs_f64() / f64::from(BATCHES));
        }
    }
    seconds.sort_by(f64::total_cmp);
    Ok((seconds, sizes.0 / BATCHES as usize, sizes.1 / BATCHES as usize))
}

fn main() -> Result<()> {
    let options = options();
    let graph = graphs::named(&options.graph, None).dataset;
    let dataset = if options.sorted { sorted(&graph)? } else { graph };
    let topology = &dataset.topology;
    let num_nodes = topology.num_nodes();
    let pairs: Vec<[u32; 2]> = (0..PAIRS)
        .map(|i| {
            let [low, high, ..] = philox4x32_10([i, 0, 0, 0], [7, 7]);
            let edge = (u64::from(low) | u64::from(high) << 32) % topology.num_edges();
            let node = topology.indptr().partition_point(|&start| start <= edge) as u32 - 1;
            [topology.indices()[edge as usize], node]
        })
        .collect();
    let fanouts: Fanouts = options.fanouts.parse()?;
    let settings = SamplerSettings { batch_size: options.batch, ..fanouts.into() };
    let context = |seeds, settings| BatchingContext {
        gather: false,
        ..BatchingContext::new(Arc::clone(&dataset), seeds, settings)
    };
    let report = |what: &str, (seconds, seeds, edges): &(Vec<f64>, usize, usize)| {
        let [min, median, max] = [0, seconds.len() / 2, seconds.len() - 1].map(|i| seconds[i] * 1e3);
        println!(
            "{:>14}  {what:<34} {min:6.2} / {median:6.2} / {max:6.2} ms per mini-batch, {:6.1} per second, of {seeds} seeds and {edges} edges",
            dataset.name,
            1e3 / median,
        );
        median
    };
    let mut nodes = None;
    for distribution in [NegativeDistribution::Uniform, NegativeDistribution::Degree, NegativeDistribution::InBatch] {
        for (exclude, avoid_edges) in [(true, false), (false, false), (true, true)] {
            let negatives = options.negatives;
            let drawn = PairSettings { negatives, distribution, avoid_edges, exclude };
            let seeds = SeedSet::of_pairs("edges", &pairs, num_nodes, drawn)?;
            let operator = CpuNeighbor::new(&context(seeds, settings.clone()))?;
            let measured = measure(&operator, options.rounds)?;
            let what = format!(
                "{negatives} {distribution:?}{}{}",
                if exclude { ", without the pairs" } else { "" },
                if avoid_edges { ", no edges" } else { "" }
            );
            let median = report(&what, &measured);
            if nodes.is_none() {
                // The seeds of the same mini-batches, as nodes.
                let mut worker = operator.worker(1)?;
                let (mut all, size) = (Vec::new(), measured.1);
                for index in 0..BATCHES {
                    let (batch, _) = worker.prepare(BatchId { epoch: 0, index }, None)?.wait()?;
                    let seeds = batch.host()?.seeds();
                    all.extend_from_slice(&seeds[..size.min(seeds.len())]);
                }
                let seeds = SeedSet::new("the same seeds", &all, num_nodes)?;
                let settings = SamplerSettings { batch_size: size, shuffle: false, ..settings.clone() };
                let of_nodes = measure(&CpuNeighbor::new(&context(seeds, settings))?, options.rounds)?;
                let of_nodes = report("the same seeds as nodes", &of_nodes);
                println!("{:>14}  x{:.2} of a mini-batch of nodes", dataset.name, median / of_nodes);
                nodes = Some(of_nodes);
            }
        }
    }
    Ok(())
}
