//! Sampled edges per second, compared with the random reads per second of this machine's memory.
//!
//! Run: `cargo bench -p morphgl-batching-cpu --bench sample -- [--json] [--threads 1,2,4] [--rounds 7]
//! [--graphs products-like,arxiv-like] [--data DIR] [--growth 1e5,1e6,…] [--kinds uniform,rmat] [--cpu]`.
//! Graphs are generated in memory (power-law degrees, sources by degree), or read from `DIR/<graph>/` with `indptr.npy` (i64),
//! `indices_i32.npy` (i32) and `train_idx.npy` (i64). `--growth` measures graphs of degree 16 with these
//! numbers of nodes instead, on one thread unless `--threads` is set: a graph of 10^8 takes 8 GB and, on four cores, two minutes.
//! `--cpu` measures CPU time, for a busy machine (workers of one thread only).
//! Fanouts 15,10,5, 1024 seeds per mini-batch, no features.
#![allow(clippy::print_stdout, reason = "a bench prints")]

mod graphs;
mod limit;

use std::path::PathBuf;
use std::sync::{Arc, Barrier};
use std::thread;

use graphs::Graph;
use limit::{Clock, Limit, median};
use morphgl_batching_cpu::CpuNeighbor;
use morphgl_graph_store::Topology;
use morphgl_registry::{BatchId, Batching, BatchingContext, MiniBatch, Place, Result, SamplerSettings, SeedSet};

/// Mini-batches of a worker in a round, and in the warm-up.
const BATCHES: u32 = 8;
const WARM: u32 = 4;
/// Average in-degree of the graphs of `--growth`.
const DEGREE: usize = 16;

struct Options {
    json: bool,
    threads: Vec<usize>,
    rounds: usize,
    graphs: Vec<String>,
    data: Option<PathBuf>,
    growth: Vec<usize>,
    kinds: Vec<String>,
    clock: Clock,
}

fn options() -> Options {
    let mut options = Options {
        json: false,
        threads: Vec::new(),
        rounds: 7,
        graphs: vec!["products-like".into(), "arxiv-like".into()],
        data: None,
        growth: Vec::new(),
        kinds: vec!["uniform".into(), "rmat".into()],
        clock: Clock::Wall,
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().unwrap_or_else(|| panic!("{arg} needs a value"));
        match arg.as_str() {
            "--json" => options.json = true,
            "--threads" => options.threads = value().split(',').map(|n| n.parse().expect("a number")).collect(),
            "--rounds" => options.rounds = value().parse().expect("a number"),
            "--graphs" => options.graphs = value().split(',').map(str::to_owned).collect(),
            "--data" => options.data = Some(value().into()),
            "--cpu" => options.clock = Clock::Cpu,
            "--growth" => options.growth = value().split(',').map(nodes).collect(),
            "--kinds" => options.kinds = value().split(',').map(str::to_owned).collect(),
            // An argument that cargo adds.
            "--bench" => {}
            _ => panic!("unknown option {arg}"),
        }
    }
    if options.threads.is_empty() {
        options.threads = if options.growth.is_empty() { vec![1, 2, 4] } else { vec![1] };
    }
    options
}

/// Parses a number of nodes, such as `1e8`.
fn nodes(text: &str) -> usize {
    text.parse::<f64>().ok().filter(|&n| n >= 1024.0).expect("a number of nodes from 1024 on") as usize
}

/// Average sizes of a mini-batch.
#[derive(Default, Clone, Copy)]
struct Counts {
    edges: usize,
    input_nodes: usize,
    /// Lines of the graph's indices.
    lines: f64,
}

impl Counts {
    fn add(&mut self, batch: &MiniBatch) {
        let batch = batch.host().expect("made in host memory");
        self.edges += batch.num_edges();
        self.input_nodes += batch.input_nodes.len();
    }
}

/// Edges per second of each round, for `workers` concurrent workers with `threads` threads each.
fn measure(
    sampler: &CpuNeighbor,
    topology: &Topology,
    [workers, threads]: [usize; 2],
    options: &Options,
) -> Result<(Vec<f64>, Counts)> {
    let (rounds, clock) = (options.rounds, options.clock);
    let barrier = Barrier::new(workers);
    let batches = sampler.num_batches() as u32;
    let work = |number: u32| -> Result<(Vec<f64>, Counts)> {
        let mut worker = sampler.worker(threads)?;
        let (mut recycled, mut index) = (None, number * 7);
        let mut make = |n: u32| -> Result<(usize, Counts)> {
            let mut counts = Counts::default();
            for _ in 0..n {
                let id = BatchId { epoch: 0, index: index % batches };
                let (batch, _) = worker.prepare(id, recycled.take())?.wait()?;
                counts.add(&batch);
                (recycled, index) = (Some(batch), index + 1);
            }
            Ok((counts.edges, counts))
        };
        make(WARM)?;
        let (mut rates, mut last) = (Vec::new(), Counts::default());
        for _ in 0..rounds {
            barrier.wait();
            let start = clock.now();
            let (edges, counts) = make(BATCHES)?;
            rates.push(edges as f64 / (clock.now() - start));
            last = counts;
        }
        Ok((rates, last))
    };
    let work = &work;
    let all: Vec<(Vec<f64>, Counts)> = thread::scope(|scope| {
        let running: Vec<_> = (0..workers as u32).map(|number| scope.spawn(move || work(number))).collect();
        running.into_iter().map(|w| w.join().expect("a worker ends well")).collect::<Result<_>>()
    })?;
    let rates = (0..rounds).map(|round| all.iter().map(|(rates, _)| rates[round]).sum()).collect();
    let mut counts = all[0].1;
    counts.edges /= BATCHES as usize;
    counts.input_nodes /= BATCHES as usize;
    let (batch, _) = sampler.worker(1)?.prepare(BatchId { epoch: 1, index: 0 }, None)?.wait()?;
    counts.lines = limit::lines(topology, batch.host()?) * counts.edges as f64 / batch.host()?.num_edges() as f64;
    Ok((rates, counts))
}

/// Edges of a mini-batch, its seconds with the first number of threads, and the seconds of its reads at the limit.
fn run(graph: &Graph, options: &Options) -> Result<[f64; 3]> {
    let topology = &graph.dataset.topology;
    let num_nodes = topology.num_nodes();
    let context = BatchingContext {
        dataset: Arc::clone(&graph.dataset),
        seeds: SeedSet::new("seeds", &graph.seeds, num_nodes)?,
        settings: SamplerSettings::default(),
        gather: false,
        place: Place::Host,
        options: Default::default(),
    };
    let sampler = CpuNeighbor::new(&context)?;
    let (mut single, mut first) = (0.0, None);
    for &threads in &options.threads {
        // The limit is measured again for each line, since other programs change it.
        let limit = Limit::measure(topology, threads, options.clock);
        // One mini-batch per thread, then all threads on one mini-batch.
        let shared = threads > 1 && matches!(options.clock, Clock::Wall);
        for (workers, each) in [(threads, 1), (1, threads)].into_iter().take(if shared { 2 } else { 1 }) {
            let (mut rates, counts) = measure(&sampler, topology, [workers, each], options)?;
            let all = rates.clone();
            let rate = median(&mut rates);
            if threads == 1 {
                single = rate;
            }
            // An edge reads a cache line of the graph's indices, possibly shared, and the table of local ids. Offsets are
            // read for all nodes if the graph is too large for a table with offsets.
            let located = if num_nodes > 1 << 22 { counts.input_nodes } else { 0 };
            let [located, lines] = [located as f64, counts.lines].map(|n| n / counts.edges as f64);
            let bound = 1.0 / (lines / limit.indices + located / limit.offsets + 1.0 / limit.table);
            let edges = counts.edges as f64;
            first.get_or_insert([edges, edges * workers as f64 / rate, edges * workers as f64 / bound]);
            let scaling = if single > 0.0 { rate / single } else { f64::NAN };
            let (min, max) = (rates[0], rates[rates.len() - 1]);
            if options.json {
                let line = serde_json::json!({
                    "what": "sample", "isa": morphgl_platform::SimdLevel::current().name(), "graph": graph.dataset.name, "num_nodes": num_nodes,
                    "num_edges": topology.num_edges(), "unit": "edges/s", "median": rate, "all": all,
                    "threads": threads, "workers": workers, "threads_per_worker": each, "scaling": scaling,
                    "edges_per_batch": counts.edges, "input_nodes_per_batch": counts.input_nodes,
                    "seconds_per_batch": counts.edges as f64 * workers as f64 / rate,
                    "lines_per_edge": lines, "reads_per_edge": 1.0 + lines + located, "index_reads_per_second": limit.indices,
                    "offset_reads_per_second": limit.offsets, "table_reads_per_second": limit.table, "latency_ns": limit.latency * 1e9,
                    "bound": bound, "share": rate / bound,
                });
                println!("{line}");
            } else {
                println!(
                    "{:>14} {num_nodes:>9} nodes  {workers} x {each} threads  {:5.1} / {:5.1} / {:5.1} M edges/s  x{scaling:.2}  \
                     {:6.2} ms per mini-batch of {} edges  {:.2} reads per edge  {:.0} M index, {:.0} M offset, {:.0} M table reads/s, {:.0} ns  \
                     bound {:.1}  share {:.2}",
                    graph.dataset.name,
                    min / 1e6,
                    rate / 1e6,
                    max / 1e6,
                    counts.edges as f64 * workers as f64 / rate * 1e3,
                    counts.edges,
                    1.0 + lines + located,
                    limit.indices / 1e6,
                    limit.offsets / 1e6,
                    limit.table / 1e6,
                    limit.latency * 1e9,
                    bound / 1e6,
                    rate / bound,
                );
            }
        }
    }
    Ok(first.expect("there is a number of threads"))
}

fn main() -> Result<()> {
    let options = options();
    if options.growth.is_empty() {
        for name in &options.graphs {
            run(&graphs::named(name, options.data.as_deref()), &options)?;
        }
    }
    for kind in &options.kinds {
        let mut smallest = None;
        for &num_nodes in &options.growth {
            let graph = match kind.as_str() {
                "uniform" => graphs::uniform(num_nodes, DEGREE),
                "rmat" => graphs::rmat(num_nodes, DEGREE),
                _ => panic!("unknown kind {kind}; use uniform or rmat"),
            };
            let [edges, seconds, reads] = run(&graph, &options)?;
            let [work, waits] = [seconds, reads].map(|s| s / edges * 1e9);
            let [work_of_smallest, waits_of_smallest] = *smallest.get_or_insert([work, waits]);
            if !options.json {
                println!(
                    "{kind:>14} {num_nodes:>9} nodes: {:.2} ms per mini-batch, {work:.1} ns per edge, x{:.2} of the smallest \
                     graph's; its reads alone, at random in arrays so large: {waits:.1} ns, x{:.2}",
                    seconds * 1e3,
                    work / work_of_smallest,
                    waits / waits_of_smallest,
                );
            }
        }
    }
    Ok(())
}
