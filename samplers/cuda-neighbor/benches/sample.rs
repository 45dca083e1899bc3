//! Sampled edges per second on a CUDA device, by placement of the topology, compared with the rate of random four-byte reads
//! of device memory and over the bus.
//!
//! Run: `cargo bench -p morphgl-batching-cuda-neighbor --bench sample -- [--json] [--nodes 2400000] [--degree 52]
//! [--fanouts 15,10,5] [--batch-size 1024] [--batches 100] [--rounds 5] [--emulated]`.
//! Without a device it ends with a notice; `--emulated` runs it on the emulated one, where rates mean nothing. The graph has
//! power-law degrees, neighbours drawn by degree, and no features.
#![allow(clippy::print_stdout, reason = "a bench prints")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use morphgl_batching_cuda_neighbor::{CudaSampler, NEIGHBOR};
use morphgl_cuda::{Buffer, CudaBatch, Device, Mapped, Pinned, Shape, Stream};
use morphgl_graph_store::{Array, Dataset, Topology};
use morphgl_platform::philox::philox4x32_10;
use morphgl_registry::{
    BatchId, Batching, BatchingContext, Fanouts, Handle, Machine, MiniBatch, Result, SamplerSettings, SeedSet,
};
use serde_json::{Value, json};

morphgl_cuda::module! {
    static LIMIT = "benches/limit.cu" { limit_random_reads }
}

/// Mini-batches in flight at a time.
const WINDOW: usize = 4;

struct Options {
    json: bool,
    nodes: u32,
    degree: u32,
    fanouts: String,
    batch_size: usize,
    batches: u32,
    rounds: usize,
    emulated: bool,
}

fn options() -> Options {
    let (fanouts, batch_size) = ("15,10,5".to_string(), 1024);
    let (json, emulated) = (false, false);
    let mut options =
        Options { json, nodes: 2_400_000, degree: 52, fanouts, batch_size, batches: 100, rounds: 5, emulated };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().unwrap_or_else(|| panic!("{arg} needs a value"));
        match arg.as_str() {
            "--json" => options.json = true,
            "--emulated" => options.emulated = true,
            "--nodes" => options.nodes = value().parse().expect("a number"),
            "--degree" => options.degree = value().parse().expect("a number"),
            "--fanouts" => options.fanouts = value(),
            "--batch-size" => options.batch_size = value().parse().expect("a number"),
            "--batches" => options.batches = value().parse().expect("a number"),
            "--rounds" => options.rounds = value().parse().expect("a number"),
            // Added by cargo.
            "--bench" => {}
            _ => panic!("unknown option {arg}"),
        }
    }
    options
}

/// A graph with power-law degrees, and neighbours drawn approximately by degree.
fn graph(nodes: u32, degree: u32) -> Topology {
    // Ids are independent of degrees: the v-th largest degree is that of node v * step mod n, a permutation.
    let n = u64::from(nodes);
    let step = (n * 618 / 1000..).find(|&s| gcd(s, n) == 1).expect("some step is coprime");
    let id = |v: u64| v * step % n;
    // Exponent -1/2, half of the mean at the end: the distribution of squares of uniform numbers.
    let of = |v: u64| (f64::from(degree) / 2.0 * (n as f64 / (v + 1) as f64).sqrt()).ceil() as u64;
    let mut degrees = vec![0u64; nodes as usize];
    (0..n).for_each(|v| degrees[id(v) as usize] = of(v).min(n));
    let mut indptr = vec![0u64];
    let mut edges = 0;
    indptr.extend(degrees.iter().map(|d| {
        edges += d;
        edges
    }));
    let mut indices = Vec::with_capacity(edges as usize + 4);
    for block in 0..edges.div_ceil(4) {
        for word in philox4x32_10([block as u32, (block >> 32) as u32, 0, 0], [7, 7]) {
            let uniform = f64::from(word) / 4294967296.0;
            indices.push(id((uniform * uniform * n as f64) as u64) as u32);
        }
    }
    indices.truncate(edges as usize);
    Topology::new(indptr, indices, None).expect("it is a graph")
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn median(values: &mut [f64]) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [values[0], values[values.len() / 2], values[values.len() - 1]]
}

/// Edges per second of each round, and nodes per edge.
fn sample(sampler: &CudaSampler, device: &Device, options: &Options) -> Result<(Vec<f64>, f64)> {
    let mut worker = sampler.worker(1)?;
    let all = sampler.num_batches() as u32;
    let mut index = 0;
    let mut round = |batches: u32| -> Result<(f64, f64, f64)> {
        let mut in_flight: VecDeque<Handle<MiniBatch>> = VecDeque::new();
        let (mut edges, mut nodes) = (0, 0);
        let mut finish = |handle: Handle<MiniBatch>| -> Result<()> {
            let (batch, _) = handle.wait()?;
            let batch = CudaBatch::on(device, &batch)?;
            edges += batch.blocks.iter().map(|b| b.indices.len()).sum::<usize>();
            nodes += batch.input_nodes.len();
            Ok(())
        };
        let start = Instant::now();
        for _ in 0..batches {
            in_flight.push_back(worker.prepare(BatchId { epoch: index / all, index: index % all }, None)?);
            index += 1;
            if in_flight.len() == WINDOW {
                finish(in_flight.pop_front().expect("the window is full"))?;
            }
        }
        in_flight.into_iter().try_for_each(&mut finish)?;
        Ok((start.elapsed().as_secs_f64(), edges as f64, nodes as f64))
    };
    round(options.batches.min(10))?;
    let rounds = (0..options.rounds).map(|_| round(options.batches)).collect::<Result<Vec<_>>>()?;
    let ratio = rounds.iter().map(|r| r.2).sum::<f64>() / rounds.iter().map(|r| r.1).sum::<f64>();
    Ok((rounds.iter().map(|(seconds, edges, _)| edges / seconds).collect(), ratio))
}

/// Random four-byte reads per second of each round.
fn limit(device: &Device, topology: &Topology, on_device: bool, options: &Options) -> Result<Vec<f64>> {
    let stream = Stream::new(device, false)?;
    let kernel = LIMIT.kernel(device, "limit_random_reads")?;
    let blocks = device.properties()?.multiprocessors * if options.emulated { 1 } else { 16 };
    let reads = if options.emulated { 8u32 } else { 256 };
    let indices = topology.indices();
    let mut out = Buffer::<u32>::new(&stream, blocks as usize * 128)?;
    let mut buffer = Buffer::<u32>::new(&stream, if on_device { indices.len() } else { 0 })?;
    let owner: Arc<Array<u32>> = Arc::new(indices.clone());
    // SAFETY: a clone of the array keeps its elements, which are never moved or written.
    let mapped = unsafe { Mapped::new(device, owner, indices) }?;
    if on_device {
        let mut at = 0;
        for piece in indices.chunks(1 << 20) {
            stream.copy(&Pinned::of(device, piece)?, 0..piece.len(), &mut buffer, at)?;
            stream.synchronize()?;
            at += piece.len();
        }
    }
    let len = indices.len() as u64;
    let mut run = |round: u32| -> Result<f64> {
        let from = if on_device { (&buffer).into() } else { (&mapped).into() };
        let start = stream.record(true)?;
        let mut arguments = [from, len.into(), reads.into(), round.into(), (&mut out).into()];
        // SAFETY: the arguments are the kernel's: it reads below `len`, and writes one element per thread.
        unsafe { stream.launch(&kernel, Shape::linear(blocks as usize, 128), &mut arguments) }?;
        let end = stream.record(true)?;
        end.synchronize()?;
        Ok(f64::from(blocks) * 128.0 * f64::from(reads) / end.elapsed(&start)?.as_secs_f64())
    };
    run(0)?;
    (1..=options.rounds as u32).map(run).collect()
}

fn main() -> Result<()> {
    let options = options();
    let devices = morphgl_cuda::accelerators(&Machine::probe());
    let emulated = cfg!(feature = "emulate");
    let Some(accelerator) = devices.first().filter(|_| !emulated || options.emulated) else {
        println!("no CUDA device: nothing is measured");
        return Ok(());
    };
    let device = Device::open(&accelerator.place, &NEIGHBOR.key)?;
    let topology = graph(options.nodes, options.degree);
    let (num_edges, nodes) = (topology.num_edges(), u64::from(options.nodes));
    let dataset = Arc::new(Dataset::new("power law", topology));
    let seeds: Vec<u32> = (0..options.nodes).step_by(12).collect();
    let context = |topology: Value| -> Result<BatchingContext> {
        Ok(BatchingContext {
            dataset: Arc::clone(&dataset),
            seeds: SeedSet::new("every twelfth node", &seeds, options.nodes as usize)?,
            settings: SamplerSettings { batch_size: options.batch_size, ..options.fanouts.parse::<Fanouts>()?.into() },
            gather: false,
            place: accelerator.place.clone(),
            options: topology,
        })
    };
    let whole = json!({"topology": "device", "topology_bytes": u64::MAX});
    let cached = |share: u64| json!({"topology": "cached", "topology_bytes": 12 * nodes + num_edges * 4 * share / 100});
    let cases = [
        ("topology on the device", whole.clone()),
        (
            "topology on the device, one in flight",
            json!({"topology": "device", "topology_bytes": u64::MAX, "in_flight": 1}),
        ),
        ("half of the edges cached", cached(50)),
        ("a fifth of the edges cached", cached(20)),
        ("topology on the host", json!({"topology": "host"})),
    ];
    if !options.json {
        let Options { fanouts, batch_size, .. } = &options;
        println!("{}: {nodes} nodes, {num_edges} edges, fanouts {fanouts}, batch size {batch_size}", accelerator.name);
        println!("{:40} {:>10} {:>10} {:>10}  M/s", "", "min", "median", "max");
    }
    let print = |what: &str, unit: &str, mut all: Vec<f64>, nodes_per_edge: Option<f64>| {
        let raw = all.clone();
        let [min, mid, max] = median(&mut all);
        if options.json {
            let line = json!({"what": what, "unit": unit, "median": mid, "all": raw, "nodes_per_edge": nodes_per_edge,
                "device": accelerator.name, "fanouts": options.fanouts, "batch_size": options.batch_size});
            println!("{line}");
        } else {
            let note = nodes_per_edge.map_or(String::new(), |r| format!(", {r:.2} input nodes per edge"));
            println!("{what:40} {:10.1} {:10.1} {:10.1}  {unit}{note}", min / 1e6, mid / 1e6, max / 1e6);
        }
    };
    for (what, topology) in cases {
        let sampler = CudaSampler::new(&context(topology)?)?;
        let (rates, nodes_per_edge) = sample(&sampler, &device, &options)?;
        print(what, "edges/s", rates, Some(nodes_per_edge));
    }
    print("limit: random reads, device", "reads/s", limit(&device, &dataset.topology, true, &options)?, None);
    print("limit: random reads, host", "reads/s", limit(&device, &dataset.topology, false, &options)?, None);
    Ok(())
}
