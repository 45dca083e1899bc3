//! Mini-batches per second from disk, compared with the disk's limit and with memory:
//! `cargo bench -p morphgl-batching-disk-neighbor -- [DATASET] [--json] [--memory MIB,…] [--workers N,…] [--batches N]
//! [--rounds N] [--fanouts 15,10,5] [--batch-size N] [--cache auto,inclusion,none,…] [--block 512,4096] [--gap BYTES,…] [--in-memory]`.
//! Without a dataset, one of 2 million nodes is generated in the temporary folder, and removed.
#![allow(clippy::print_stdout, reason = "a bench prints its table")]

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use morphgl_batching_cpu::CpuNeighbor;
use morphgl_batching_disk_neighbor::{DiskNeighbor, Options};
use morphgl_generate::{SbmConfig, sbm_to_disk};
use morphgl_graph_store::{Dataset, Dtype, Load, OpenOptions};
use morphgl_hotness::CachePolicy;
use morphgl_platform::direct::{DirectFile, Fetch, Reader, Settings, ring_refused};
use morphgl_registry::{BatchId, Batching, BatchingContext, Fanouts, SamplerSettings, SeedSet};
use serde_json::json;

struct Arguments(Vec<String>);

impl Arguments {
    fn is(&self, name: &str) -> bool {
        self.0.iter().any(|a| a == name)
    }

    fn list<T: FromStr>(&self, name: &str, default: &str) -> Vec<T> {
        let at = self.0.iter().position(|a| a == name);
        let text = at.and_then(|i| self.0.get(i + 1)).map_or(default, String::as_str);
        text.split(',').map(|t| t.parse().unwrap_or_else(|_| panic!("{name} {text}: not what it takes"))).collect()
    }

    fn one<T: FromStr>(&self, name: &str, default: &str) -> T {
        self.list(name, default).remove(0)
    }
}

fn main() {
    let arguments = Arguments(std::env::args().skip(1).filter(|a| a != "--bench").collect());
    let given = arguments.0.first().filter(|a| !a.starts_with("--")).map(PathBuf::from);
    let generated =
        given.is_none().then(|| std::env::temp_dir().join(format!("morphgl-disk-bench-{}", std::process::id())));
    let path = given.clone().or(generated.clone()).expect("one of both");
    if generated.is_some() {
        let config = SbmConfig { nodes: 2_000_000, degree: 29.0, dim: 128, dtype: Dtype::F16, ..SbmConfig::default() };
        sbm_to_disk(&config, &path, 512 << 20, true, &|_, _, _| ()).expect("space on the disk");
    }
    run(&path, &arguments);
    if let Some(generated) = generated {
        std::fs::remove_dir_all(generated).expect("it was created above");
    }
}

fn run(path: &Path, arguments: &Arguments) {
    let json = arguments.is("--json");
    if let Some(reason) = ring_refused() {
        println!("{reason}");
    }
    let blocks: Vec<usize> = arguments.list("--block", "512");
    let workers: Vec<usize> = arguments.list("--workers", "1,2,4");
    let limit: Vec<f64> = blocks.iter().map(|&block| limits(path, block, &workers, json)).collect();
    let dataset =
        Arc::new(Dataset::open(path, OpenOptions { load: Load::Disk, verify: false }).expect("the dataset opens"));
    let fanouts = arguments.0.iter().position(|a| a == "--fanouts").map_or("15,10,5", |i| &arguments.0[i + 1]);
    let fanouts: Fanouts = fanouts.parse().expect("fanouts");
    let settings = SamplerSettings { batch_size: arguments.one("--batch-size", "1024"), ..fanouts.into() };
    let seeds = SeedSet::new("train split", &dataset.splits.train, dataset.num_nodes()).expect("training nodes");
    let context = BatchingContext::new(dataset, seeds, settings);
    let (rounds, batches): (usize, u32) = (arguments.one("--rounds", "5"), arguments.one("--batches", "8"));
    if !json {
        println!(
            "\n{:>10} {:>6} {:>6} {:>7} {:>7} {:>10} {:>15} {:>8} {:>9} {:>7} {:>7} {:>7} {:>9} {:>7}",
            "cache",
            "block",
            "gap",
            "MiB",
            "workers",
            "batches/s",
            "min–max",
            "build s",
            "reads",
            "MiB",
            "amplif.",
            "row hit",
            "feat. hit",
            "limit"
        );
    }
    for (&block, &limit) in blocks.iter().zip(&limit) {
        for gap in arguments.list::<usize>("--gap", "4096") {
            for memory in arguments.list::<u64>("--memory", "64,256,1024") {
                for cache in arguments.list::<CachePolicy>("--cache", "inclusion,in-degree") {
                    let options = Options { memory_bytes: memory << 20, cache, block, gap, ..Options::default() };
                    from_disk(&context, &options, &workers, (rounds, batches), limit, json);
                }
            }
        }
    }
    if arguments.is("--in-memory") {
        let dataset = Dataset::open(path, OpenOptions { load: Load::Ram, verify: false }).expect("it fits in memory");
        let context = BatchingContext { dataset: Arc::new(dataset), options: serde_json::Value::Null, ..context };
        let operator = CpuNeighbor::new(&context).expect("a sampler in memory");
        for &workers in &workers {
            let all = measure(&operator, workers, rounds, batches);
            if json {
                println!(
                    "{}",
                    json!({ "what": "prepare", "isa": morphgl_platform::SimdLevel::current().name(), "unit": "batches/s", "median": median(&all), "all": all, "threads": workers, "cache": "in memory" })
                );
            } else {
                println!(
                    "{:>10} {:>6} {:>6} {:>7} {workers:>7} {:>10.2} {:>15}",
                    "in memory",
                    "",
                    "",
                    "",
                    median(&all),
                    spread(&all)
                );
            }
        }
    }
}

fn from_disk(
    context: &BatchingContext,
    options: &Options,
    workers: &[usize],
    (rounds, batches): (usize, u32),
    limit: f64,
    json: bool,
) {
    let context = BatchingContext { options: serde_json::to_value(options).expect("plain data"), ..context.clone() };
    let start = Instant::now();
    let operator = DiskNeighbor::new(&context).expect("a sampler");
    let build = start.elapsed().as_secs_f64();
    let policy = options.cache.to_string();
    if !json {
        println!("{operator:?}");
    }
    for &workers in workers {
        let before = operator.counts();
        let all = measure(&operator, workers, rounds, batches);
        let after = operator.counts();
        let sampled = (after.batches - before.batches) as f64;
        let share = |hits: u64, misses: u64| hits as f64 / (hits + misses).max(1) as f64;
        let rows = share(after.row_hits.hits - before.row_hits.hits, after.row_hits.misses - before.row_hits.misses);
        let features = share(
            after.feature_hits.hits - before.feature_hits.hits,
            after.feature_hits.misses - before.feature_hits.misses,
        );
        let (a, b) = (after.reads(), before.reads());
        let (reads, bytes) = ((a.reads - b.reads) as f64 / sampled, (a.bytes - b.bytes) as f64 / sampled);
        let amplification = (a.bytes - b.bytes) as f64 / (a.wanted - b.wanted).max(1) as f64;
        let rate = median(&all);
        if json {
            let line = json!({
                "what": "prepare", "isa": morphgl_platform::SimdLevel::current().name(), "unit": "batches/s", "median": rate, "all": all, "threads": workers, "cache": policy,
                "memory_bytes": options.memory_bytes, "held_bytes": operator.num_bytes(), "block": options.block,
                "gap": options.gap, "build_seconds": build, "reads_per_batch": reads, "bytes_per_batch": bytes,
                "amplification": amplification, "row_hit_rate": rows, "feature_hit_rate": features,
                "reads_per_second": rate * reads, "share_of_limit": rate * reads / limit,
                "neighbors": { "reads": after.neighbors.reads - before.neighbors.reads, "bytes": after.neighbors.bytes - before.neighbors.bytes },
                "features": { "reads": after.features.reads - before.features.reads, "bytes": after.features.bytes - before.features.bytes },
            });
            println!("{line}");
        } else {
            println!(
                "{policy:>10} {:>6} {:>6} {:>7} {workers:>7} {rate:>10.2} {:>15} {build:>8.1} {reads:>9.0} {:>7.1} {amplification:>7.1} {:>6.1}% {:>8.1}% {:>6.0}%",
                options.block,
                options.gap,
                options.memory_bytes >> 20,
                spread(&all),
                bytes / f64::from(1 << 20),
                100.0 * rows,
                100.0 * features,
                100.0 * rate * reads / limit,
            );
        }
    }
}

/// Mini-batches per second of each round; no two rounds sample the same mini-batch.
fn measure(operator: &dyn Batching, workers: usize, rounds: usize, batches: u32) -> Vec<f64> {
    let num_batches = operator.num_batches() as u32;
    let mut pool: Vec<_> = (0..workers).map(|_| (operator.worker(1).expect("a worker"), None)).collect();
    (0..=rounds as u32)
        .map(|round| {
            let start = Instant::now();
            std::thread::scope(|scope| {
                for ((worker, recycled), w) in pool.iter_mut().zip(0u32..) {
                    scope.spawn(move || {
                        for i in (w..batches).step_by(workers) {
                            let number = round * batches + i;
                            let id = BatchId { epoch: number / num_batches, index: number % num_batches };
                            let handle = worker.prepare(id, recycled.take()).expect("a mini-batch");
                            *recycled = Some(handle.wait().expect("a mini-batch").0);
                        }
                    });
                }
            });
            f64::from(batches) / start.elapsed().as_secs_f64()
        })
        // The first round warms up buffers.
        .skip(1)
        .collect()
}

/// Prints and returns the disk's limit: the maximum of random reads per second, by up to as many threads as workers.
fn limits(path: &Path, block: usize, workers: &[usize], json: bool) -> f64 {
    let file = DirectFile::open(path.join("features.npy"), block).expect("the features open");
    if !json {
        println!("{:>8} {:>6} {:>8} {:>10} {:>8}", "bytes", "depth", "threads", "reads/s", "MB/s");
    }
    let mut best = 0f64;
    let points = [1, 4, 16, 64, 128, 256].map(|depth| (depth, 1));
    for (depth, threads) in points.into_iter().chain(workers.iter().filter(|w| **w > 1).map(|&w| (128, w))) {
        let mut all: Vec<f64> = (0..3).map(|round| random_reads(&file, block, depth, threads, round)).collect();
        all.sort_by(f64::total_cmp);
        let rate = all[1];
        best = best.max(rate);
        if json {
            println!(
                "{}",
                json!({ "what": "random reads", "unit": "reads/s", "median": rate, "all": all, "threads": threads, "depth": depth, "block": block })
            );
        } else {
            println!("{block:>8} {depth:>6} {threads:>8} {rate:>10.0} {:>8.0}", rate * block as f64 / 1e6);
        }
    }
    best
}

fn random_reads(file: &DirectFile, block: usize, depth: usize, threads: usize, round: u64) -> f64 {
    let start = Instant::now();
    let reads: u64 = std::thread::scope(|scope| {
        let one = |thread: u64| {
            let mut reader = Reader::new(Settings { depth, most: 4 * block, gap: 0, method: None }).expect("a reader");
            let (blocks, mut out) = (file.num_bytes() / block as u64, vec![0; block]);
            let mut state = (round << 32) + thread + 1;
            while start.elapsed() < Duration::from_millis(400) {
                let fetches: Vec<Fetch> = (0..8 * depth)
                    .map(|_| {
                        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                        Fetch { element: (state >> 20) % blocks, to: 0 }
                    })
                    .collect();
                reader.read(file, 0, block, &fetches, &mut out).expect("the disk reads");
            }
            reader.stats().reads
        };
        let threads: Vec<_> = (0..threads as u64).map(|t| scope.spawn(move || one(t))).collect();
        threads.into_iter().map(|t| t.join().expect("reads do not panic")).sum()
    });
    reads as f64 / start.elapsed().as_secs_f64()
}

fn median(all: &[f64]) -> f64 {
    let mut sorted = all.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn spread(all: &[f64]) -> String {
    let (min, max) = all.iter().fold((f64::MAX, 0f64), |(a, b), &x| (a.min(x), b.max(x)));
    format!("{min:.2}–{max:.2}")
}
