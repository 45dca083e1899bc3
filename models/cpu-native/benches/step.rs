//! Time of a training step against Training_CPU_Burn on the same mini-batches, and against the processor's limits.
//!
//! Run: `cargo bench -p morphgl-training-cpu-native --bench step -- [--json] [--threads 1,4] [--rounds 9] [--no-burn]
//! [--models sage,gcn,gat] [--gemm]`; `--gemm` leaves the steps out.
//! The graph is generated: 169,000 nodes, 2.3 million directed edges with power-law degrees, 128 features, 40 classes; fanouts
//! 15,10,5 and 1,024 seeds by Batching_CPU_Neighbor. The rounds of both operators alternate, also with those of `direct` (the
//! step without features in the mini-batch), of the gather that `direct` avoids and, on processors with AMX, of the operator
//! without tiles. The peak FLOP/s is that of the instructions of the model's widest GEMMs; skipped zeros count as operations,
//! so a step can exceed the peak. A GEMM's share of the peak is the median, minimum and maximum of the rounds, each beside
//! the peak of the same round.
#![allow(clippy::print_stdout, reason = "a bench prints")]

use std::sync::Arc;
use std::time::Instant;

use morphgl_batching_cpu::CpuNeighbor;
use morphgl_graph_store::{Array, Dataset, FeatureMatrix, Topology};
use morphgl_platform::{Pages, SimdLevel};
use morphgl_registry::{
    BatchFeatures, BatchId, Batching, BatchingContext, HostBatch, MiniBatch, Pass, Result, SamplerSettings, SeedSet,
    Training, TrainingContext,
};
use morphgl_training_cpu_burn::CpuBurn;
use morphgl_training_cpu_native::{
    AMX_KEY, CpuNative, KEY, probe,
    probe::{GemmRates, Peaks},
};
use serde_json::json;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const NODES: usize = 169_000;
const EDGES: usize = 1_160_000;
const DIM: usize = 128;
const CLASSES: usize = 40;
const SEEDS: usize = 90_000;
const BATCHES: u32 = 3;

fn random(state: &mut u64) -> f64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as f64 / (1u64 << 31) as f64
}

fn dataset() -> Dataset {
    let mut state = 1;
    // The rank-th node has a degree in proportion to the rank to the power of -1/2.
    let mut node = || {
        let rank = (random(&mut state).powi(2) * NODES as f64) as usize;
        (rank * 48_271 % NODES) as u32
    };
    let edges: Vec<(u32, u32)> = (0..EDGES).map(|_| (node(), node())).flat_map(|(a, b)| [(a, b), (b, a)]).collect();
    let mut indptr = vec![0u64; NODES + 1];
    edges.iter().for_each(|&(_, dst)| indptr[dst as usize + 1] += 1);
    (0..NODES).for_each(|v| indptr[v + 1] += indptr[v]);
    let (mut next, mut indices) = (indptr.clone(), vec![0u32; edges.len()]);
    for (src, dst) in edges {
        indices[next[dst as usize] as usize] = src;
        next[dst as usize] += 1;
    }
    // In huge pages, as the features of an opened dataset.
    let mut pages = Pages::zeroed(4 * NODES * DIM).expect("memory for the features");
    pages.chunks_exact_mut(4).for_each(|x| x.copy_from_slice(&(random(&mut state) as f32 - 0.5).to_ne_bytes()));
    let features = Array::from_pages(pages).expect("whole floats");
    Dataset {
        features: Some(FeatureMatrix::F32 { data: features, dim: DIM }),
        labels: Some((0..NODES).map(|v| (v * 7 % CLASSES) as i32).collect::<Vec<_>>().into()),
        num_classes: CLASSES,
        ..Dataset::new("arxiv-like", Topology::new(indptr, indices, None).expect("a valid graph"))
    }
}

fn batches(dataset: &Arc<Dataset>) -> Result<Vec<MiniBatch>> {
    let seeds: Vec<u32> = (0..SEEDS as u32).collect();
    let sampler = CpuNeighbor::new(&BatchingContext::new(
        Arc::clone(dataset),
        SeedSet::new("seeds", &seeds, NODES)?,
        SamplerSettings::default(),
    ))?;
    let mut worker = sampler.worker(1)?;
    (0..BATCHES).map(|index| Ok(worker.prepare(BatchId { epoch: 0, index }, None)?.wait()?.0)).collect()
}

/// Milliseconds of gathering the mini-batch's features in `pool`, into reused memory.
fn gather(dataset: &Dataset, batch: &HostBatch, pool: &rayon::ThreadPool, features: &mut BatchFeatures) -> f64 {
    let matrix = dataset.features.as_ref().expect("the dataset has features");
    let start = Instant::now();
    let out = features.resize(batch.input_nodes.len(), matrix.dim(), matrix.dtype());
    pool.install(|| matrix.par_gather_rows(&batch.input_nodes, out));
    start.elapsed().as_secs_f64() * 1e3
}

/// Milliseconds of a step.
fn step(trainer: &mut dyn Training, batch: &MiniBatch) -> Result<f64> {
    Ok(trainer.train(batch)?.wait()?.1.as_secs_f64() * 1e3)
}

/// Name of the current SIMD level.
fn isa() -> &'static str {
    SimdLevel::current().name()
}

fn sorted(mut times: Vec<f64>) -> [f64; 3] {
    times.sort_by(f64::total_cmp);
    [times[0], times[times.len() / 2], times[times.len() - 1]]
}

struct Options {
    json: bool,
    burn: bool,
    gemm: bool,
    threads: Vec<usize>,
    models: Vec<String>,
    rounds: usize,
}

impl Options {
    fn read() -> Self {
        let all: Vec<String> = std::env::args().collect();
        let after = |name: &str| all.iter().position(|a| a == name).and_then(|i| all.get(i + 1));
        let number = |s: &str| s.parse().expect("a number");
        Self {
            json: all.iter().any(|a| a == "--json"),
            gemm: all.iter().any(|a| a == "--gemm"),
            burn: !all.iter().any(|a| a == "--no-burn"),
            threads: after("--threads").map_or(vec![1, 4], |s| s.split(',').map(number).collect()),
            models: after("--models").map_or("sage,gcn,gat", |s| s).split(',').map(str::to_string).collect(),
            rounds: after("--rounds").map_or(9, |s| number(s)),
        }
    }
}

/// Measured limits of the processor with some number of threads: peak FLOP/s and read bandwidth.
struct Limits {
    peaks: Peaks,
    /// Read bandwidth in bytes per second.
    bandwidth: f64,
}

impl Limits {
    /// Peak FLOP/s of the instructions that the GEMMs of a model of this width use.
    fn flops(&self, hidden: usize) -> f64 {
        self.peaks.tiles.filter(|_| probe::on_tiles(hidden, DIM)).unwrap_or(self.peaks.vectors)
    }
}

/// Measures and prints the processor's limits and single GEMMs.
fn limits(options: &Options, threads: usize) -> Limits {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
    let (peaks, bandwidth) = pool.install(|| (probe::peak_flops(), probe::read_bandwidth()));
    if options.json {
        let line = json!({"what": "limits", "isa": isa(), "threads": threads, "flops": peaks.vectors, "tiles_flops": peaks.tiles,
            "read_bytes": bandwidth});
        println!("{line}");
    } else {
        let tiles = peaks.tiles.map_or("none".to_string(), |f| format!("{:.0} GFLOP/s", f / 1e9));
        let (vectors, bandwidth) = (peaks.vectors / 1e9, bandwidth / 1e9);
        println!(
            "{threads} threads: peak of vector registers {vectors:.0} GFLOP/s, of tiles {tiles}, reads {bandwidth:.1} GB/s"
        );
    }
    for shape in [
        [120_000, 256, 128],
        [40_000, 256, 512],
        [9_000, 256, 256],
        [120_000, 256, 100],
        [100_000, 16, 128],
        [1_024, 40, 256],
    ] {
        let [_, columns, depth] = shape;
        for tiles in [false, true] {
            if tiles && (peaks.tiles.is_none() || !probe::on_tiles(columns, depth)) {
                continue;
            }
            let rates = pool.install(|| probe::gemm_rates(shape, tiles, options.rounds));
            let of = |f: fn(&GemmRates) -> f64| sorted(rates.iter().map(f).collect());
            let [forward, gradient, peak] = [of(|r| r.forward), of(|r| r.gradient), of(|r| r.peak)];
            let of_peak = [of(|r| r.forward / r.peak), of(|r| r.gradient / r.peak)];
            if options.json {
                let line = json!({"what": "product", "isa": isa(), "threads": threads, "rows, columns, depth": shape, "tiles": tiles,
                    "forward_flops": forward, "weight_flops": gradient, "peak_flops": peak, "forward_of_peak": of_peak[0],
                    "weight_of_peak": of_peak[1]});
                println!("{line}");
            } else {
                let [f, g] = [forward, gradient].map(|[_, median, _]| median / 1e9);
                let [fs, gs] =
                    of_peak.map(|all| all.map(|x| 100.0 * x)).map(|[a, m, b]| format!("{m:.0} %, {a:.0} to {b:.0}"));
                let on = if tiles { "tiles" } else { "vector registers" };
                println!("  GEMM {shape:?} on {on}: {f:.0} GFLOP/s ({fs}), weight gradient {g:.0} ({gs})");
            }
        }
    }
    Limits { peaks, bandwidth }
}

/// Prints the speedup of skipping zeros, by the share of nonzeros in a gradient of 256 columns.
fn zeros(options: &Options) {
    for columns_of_x in [100, 256] {
        for share in [0.1, 0.25, 0.5, 0.75] {
            let probe::SecondsByZeros { skipped, multiplied, on_tiles } =
                probe::seconds_by_nonzeros([9_600, 256, columns_of_x], share);
            if options.json {
                let line = json!({"what": "zeros", "isa": isa(), "depth": columns_of_x, "nonzeros": share,
                    "skipped_s": skipped, "multiplied_s": multiplied, "on_tiles_s": on_tiles});
                println!("{line}");
            } else {
                let (percent, gain) = (100.0 * share, multiplied / skipped);
                let over_tiles =
                    on_tiles.map_or(String::new(), |s| format!(", {:.2} times as fast as on tiles", s / skipped));
                println!(
                    "weight gradient 256 x {columns_of_x}, {percent:.0} % nonzeros: {gain:.2} times as fast with zeros skipped{over_tiles}"
                );
            }
        }
    }
}

fn main() -> Result<()> {
    let options = Options::read();
    if options.gemm {
        for &threads in &options.threads {
            limits(&options, threads);
        }
        return Ok(());
    }
    let dataset = Arc::new(dataset());
    let batches = batches(&dataset)?;
    let strip = |batch: &MiniBatch| Ok(MiniBatch::Host(HostBatch { features: None, ..batch.host()?.clone() }));
    let without_features = batches.iter().map(strip).collect::<Result<Vec<_>>>()?;
    zeros(&options);
    let mut features = batches[0].host()?.features.clone().expect("gathered features");
    let host = batches[0].host()?;
    if !options.json {
        let shapes: Vec<_> = host.blocks.iter().map(|b| (b.num_src, b.num_dst, b.num_edges())).collect();
        println!("SIMD level {}; blocks (sources, destinations, edges): {shapes:?}", isa());
    }
    for &threads in &options.threads {
        let limits = limits(&options, threads);
        for (kind, hidden) in [("sage", 256), ("gcn", 16), ("gat", 64)] {
            if !options.models.iter().any(|model| model == kind) {
                continue;
            }
            let context = TrainingContext {
                threads,
                ..TrainingContext::new(
                    Arc::clone(&dataset),
                    json!({"model": {"kind": kind, "in_dim": DIM, "num_classes": CLASSES, "hidden": hidden}}),
                )
            };
            let (peak, bandwidth) = (limits.flops(hidden), limits.bandwidth);
            let on_vectors = CpuNative::new(&context)?;
            let (mut native, mut vector_native) = match CpuNative::on_tiles(&context) {
                Ok(on_tiles) => (on_tiles, Some(on_vectors)),
                Err(_) => (on_vectors, None),
            };
            let operator = if vector_native.is_some() { AMX_KEY } else { KEY }.to_string();
            let mut burn = if options.burn { Some(CpuBurn::new(&context)?) } else { None };
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
            let [mut gathered_steps, mut burn_steps, mut direct, mut gathering, mut untiled] =
                [const { Vec::new() }; 5];
            for round in 0..2 + options.rounds {
                let batch = &batches[round % batches.len()];
                let time = step(&mut native, batch)?;
                let without_tiles = vector_native.as_mut().map(|native| step(native, batch)).transpose()?;
                let gathered = gather(&dataset, batch.host()?, &pool, &mut features);
                let without_features = step(&mut native, &without_features[round % batches.len()])?;
                let burn_time = burn.as_mut().map(|burn| step(burn, batch)).transpose()?;
                if round >= 2 {
                    gathered_steps.push(time);
                    direct.push(without_features);
                    gathering.push(gathered);
                    burn_steps.extend(burn_time);
                    untiled.extend(without_tiles);
                }
            }
            let (all, [min, median, max]) = (gathered_steps.clone(), sorted(gathered_steps));
            let [direct, gathering] = [sorted(direct), sorted(gathering)];
            step(&mut native, &batches[0])?;
            let (times, passes) = (native.times().clone(), native.passes(host)?);
            let of = |work: fn(&Pass) -> f64| passes.iter().map(work).sum::<f64>() / min * 1e3;
            let (flops, bytes) = (of(|pass| pass.flops), of(|pass| pass.bytes));
            let [burn, untiled] = [burn_steps, untiled].map(|times| (!times.is_empty()).then(|| sorted(times)));
            let untiled_phases = vector_native.as_ref().map(|native| native.times().clone());
            if options.json {
                let line = json!({"what": "step", "isa": isa(), "operator": operator, "model": kind, "hidden": hidden,
                    "unit": "ms", "threads": threads, "min": min, "median": median, "max": max, "all": all,
                    "direct": direct, "gather": gathering, "without_tiles": untiled,
                    "burn": burn, "flops": flops, "share_of_peak": flops / peak, "bytes": bytes,
                    "share_of_bandwidth": bytes / bandwidth,
                    "phases": {"prepare": times.prepare, "forward": times.forward, "loss": times.loss,
                        "backward": times.backward}});
                println!("{line}");
                continue;
            }
            println!(
                "{kind}-{hidden}: {min:.1} / {median:.1} / {max:.1} ms, {:.0} GFLOP/s ({:.0} %), {:.1} GB/s ({:.0} %)",
                flops / 1e9,
                100.0 * flops / peak,
                bytes / 1e9,
                100.0 * bytes / bandwidth
            );
            let whole = median + gathering[1];
            let [min, median, max] = direct;
            println!(
                "  direct: {min:.1} / {median:.1} / {max:.1} ms; gathered, a step and its gather ({:.1} / {:.1} / {:.1}): {whole:.1}",
                gathering[0], gathering[1], gathering[2]
            );
            if let Some([min, median, max]) = burn {
                println!("  burn: {min:.1} / {median:.1} / {max:.1} ms");
            }
            if let Some([min, median, max]) = untiled {
                println!("  without tiles: {min:.1} / {median:.1} / {max:.1} ms");
            }
            for times in untiled_phases.iter().chain([&times]) {
                let ms = |all: &[f64]| all.iter().map(|s| format!("{:.1}", s * 1e3)).collect::<Vec<_>>().join(" ");
                println!(
                    "  prepare {:.1}, forward {}, loss {:.1}, backward {} ms",
                    times.prepare * 1e3,
                    ms(&times.forward),
                    times.loss * 1e3,
                    ms(&times.backward)
                );
            }
        }
    }
    Ok(())
}
