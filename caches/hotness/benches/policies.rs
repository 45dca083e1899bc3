//! Hits of every policy beside the optimum in hindsight, and its cost in epochs of sampling:
//! `cargo bench -p morphgl-hotness --bench policies -- [--nodes 200000] [--threads N] [--fanouts 10,5] [--batch-size 256]
//! [--epochs 3] [--rounds 5]`.
//!
//! Graphs are generated: a block model (edges go both ways) and R-MAT (they do not). Seeds are spread over the graph, or those of
//! one class, which is clustered in the block model. Hits are those of the first `--epochs` epochs; costs are
//! medians of `--rounds` rounds, in each of which an epoch is sampled on as many threads without features. The second table
//! compares the policies that read edges with the same by sequential scans, which is what they do up to some hundred thousand
//! nodes.
#![allow(clippy::print_stdout, reason = "a bench prints")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use morphgl_batching_cpu::CpuNeighbor;
use morphgl_generate::{RmatConfig, SbmConfig, rmat, sbm};
use morphgl_graph_store::Topology;
use morphgl_hotness::{Graph, Hindsight, Hotness, Policy, PolicyKind, coverage, hottest};
use morphgl_registry::{BatchId, Batching};

struct Options {
    nodes: usize,
    threads: usize,
    fanouts: String,
    batch_size: usize,
    epochs: u32,
    rounds: usize,
}

fn options() -> Options {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut options =
        Options { nodes: 200_000, threads, fanouts: "10,5".into(), batch_size: 256, epochs: 3, rounds: 5 };
    fn number<T: FromStr>(text: &str) -> T {
        text.parse().unwrap_or_else(|_| panic!("{text} is no number"))
    }
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().unwrap_or_else(|| panic!("{arg} needs a value"));
        match arg.as_str() {
            "--nodes" => options.nodes = number(&value()),
            "--threads" => options.threads = number(&value()),
            "--fanouts" => options.fanouts = value(),
            "--batch-size" => options.batch_size = number(&value()),
            "--epochs" => options.epochs = number(&value()),
            "--rounds" => options.rounds = number(&value()),
            // An argument that cargo adds.
            "--bench" => {}
            _ => panic!("unknown option {arg}"),
        }
    }
    options
}

fn seconds(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Median seconds of `ours` and of `theirs`, and of their ratios in each round, in which one follows the other.
fn compare_seconds(rounds: usize, mut ours: impl FnMut(), mut theirs: impl FnMut()) -> [f64; 3] {
    let (mut all, mut others, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds.max(1) {
        let (other, one) = (seconds(&mut theirs), seconds(&mut ours));
        all.push(one);
        others.push(other);
        ratios.push(one / other);
    }
    [all, others, ratios].map(median)
}

/// CPU seconds of all threads so far, in steps of 0.01; `None` where the system does not tell.
fn cpu_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    // User and system time, in ticks of 1/100 s, are fields 14 and 15; the second one ends with the last bracket.
    let mut fields = text.rsplit(')').next()?.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / 100.0)
}

/// Samples an epoch and counts nothing.
fn sample_epoch(sampler: &CpuNeighbor, threads: usize) {
    let next = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let (mut worker, mut recycled) = (sampler.worker(1).expect("a worker"), None);
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index as usize >= sampler.num_batches() {
                        break;
                    }
                    let handle = worker.prepare(BatchId { epoch: 0, index }, recycled.take()).expect("prepared");
                    recycled = Some(handle.wait().expect("a mini-batch").0);
                }
            });
        }
    });
}

/// Prints one table for one graph and its seeds.
fn compare(what: &str, graph: &Topology, seeds: &[u32], options: &Options) {
    let num_nodes = graph.num_nodes();
    let settings = common::settings(&options.fanouts, options.batch_size);
    let sampler = common::sampler(graph, seeds, &settings);
    let threads = options.threads;
    println!(
        "\n{what}: {num_nodes} nodes, {} edges, {} seeds, {} mini-batches",
        graph.num_edges(),
        seeds.len(),
        sampler.num_batches()
    );
    let score = |policy: &dyn Policy| -> Hotness { policy.score(graph, seeds, &settings).expect("scores") };
    let optimum = Hindsight { batching: &sampler, epochs: 0..options.epochs, threads };
    let trained = score(&optimum).features;
    let rows = [1, 5, 10, 25].map(|percent| num_nodes * percent / 100);
    let hits = |scores: &[f32]| coverage(&trained, &hottest(scores, rows[3]), &rows);
    let best = hits(&trained)[2];
    println!("{:26} {:>6} {:>6} {:>6} {:>6}  of optimum at 10%  epochs of sampling", "hits %", 1, 5, 10, 25);
    let mut epochs = Vec::new();
    let two = PolicyKind::PreSample { epochs: 2.try_into().expect("positive") };
    for kind in PolicyKind::ALL.into_iter().chain([two]) {
        let policy = kind.policy_of(0, &sampler, threads).unwrap_or_else(|| Box::new(optimum.clone()));
        let mut hotness = None;
        let scored = || hotness = Some(score(&*policy));
        let [_, epoch, cost] = compare_seconds(options.rounds, scored, || sample_epoch(&sampler, threads));
        epochs.push(epoch);
        let rates = hits(&hotness.expect("a round").features);
        let shown: Vec<String> = rates.iter().map(|rate| format!("{:6.1}", 100.0 * rate)).collect();
        println!("{:26} {}  {:17.3}  {:18.2}", kind.to_string(), shown.join(" "), rates[2] / best, cost);
    }
    println!("an epoch of sampling on {threads} threads: {:.1} ms", 1e3 * median(epochs));
    println!("{:26} sequential ms  {threads} threads ms  ratio  ratio of CPU time", "scan of edges");
    for name in ["out-degree", "weighted-reverse-pagerank", "inclusion"] {
        let policy = name.parse::<PolicyKind>().expect("a policy").policy(0).expect("it needs no sampler");
        let mut cpu = [Some(0.0), Some(0.0)];
        let mut timed = |which: usize, graph: &dyn Graph| {
            let before = cpu_seconds();
            drop(policy.score(graph, seeds, &settings).expect("scores"));
            cpu[which] = cpu[which].zip(before).zip(cpu_seconds()).map(|((sum, before), after)| sum + after - before);
        };
        let (mut all, rounds) = ([Vec::new(), Vec::new()], options.rounds.max(1));
        for _ in 0..rounds {
            all[0].push(seconds(|| timed(0, &common::Scanned(graph))));
            all[1].push(seconds(|| timed(1, graph)));
        }
        let [sequential, parallel] = all.map(median);
        // Of less than half a second, the steps of the clock are too much.
        let cpu = cpu[0].zip(cpu[1]).filter(|(a, b)| a.min(*b) >= 0.5).map(|(a, b)| format!("{:5.2}", a / b));
        println!(
            "{name:26} {:13.1}  {:12.1}  {:5.2}  {:>17}",
            1e3 * sequential,
            1e3 * parallel,
            sequential / parallel,
            cpu.unwrap_or("-".into())
        );
    }
}

fn main() {
    let options = options();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(options.threads).build().expect("threads");
    let nodes = options.nodes as u64;
    pool.install(|| {
        let blocks = SbmConfig { nodes, dim: 1, train: 0.1, ..SbmConfig::default() };
        let blocks = sbm(&blocks).expect("a graph");
        compare("block model, seeds everywhere", &blocks.topology, &blocks.splits.train, &options);
        let labels = blocks.labels.as_ref().expect("a block model has classes");
        let of_class = (0..nodes as u32).filter(|&v| labels[v as usize] == 0);
        let clustered: Vec<u32> = of_class.take(options.nodes / 100).collect();
        compare("block model, seeds of one class", &blocks.topology, &clustered, &options);
        drop(blocks);
        let kronecker = RmatConfig { nodes, dim: 1, train: 0.01, ..RmatConfig::default() };
        let kronecker = rmat(&kronecker).expect("a graph");
        compare("R-MAT, seeds everywhere", &kronecker.topology, &kronecker.splits.train, &options);
    });
}
