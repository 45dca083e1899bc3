//! Epochs of two trainers on this machine's cores: the balanced division beside every static one in steps of 5%.
//! `cargo run --release -p morphgl-group --example cores [ROUNDS]`
#![allow(clippy::print_stdout, reason = "the table is the point")]

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use morphgl_batching_cpu::CpuNeighbor;
use morphgl_generate::{SbmConfig, sbm};
use morphgl_graph_store::Dataset;
use morphgl_group::{BUCKET_BYTES, Balanced, Division, GroupMember, HostExchange, Weights, join, work};
use morphgl_registry::{
    BatchId, BatchingContext, Fanouts, Handle, Operators, Place, Route, SamplerSettings, SeedSet, TrainingContext,
    TransferringContext,
};
use morphgl_sampler_core::Epochs;
use morphgl_training_cpu_burn::CpuBurn;
use morphgl_training_cpu_native::CpuNative;
use morphgl_transferring_cpu_host::CpuHost;
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(300);
const BATCH_SIZE: usize = 1024;
/// Static divisions: parts of the first trainer.
const PARTS: usize = 20;

/// Two trainers, each with its threads; a trainer makes its mini-batches by itself, one before each step.
#[derive(Clone, Copy)]
struct Pair {
    name: &'static str,
    threads: [usize; 2],
    /// Whether the second one trains by burn, which is slower.
    burn: bool,
}

const PAIRS: [Pair; 3] = [
    Pair { name: "1 thread and 1 thread", threads: [1, 1], burn: false },
    Pair { name: "1 thread and 2 threads", threads: [1, 2], burn: false },
    Pair { name: "1 thread and 1 thread of burn", threads: [1, 1], burn: true },
];

fn operators(
    dataset: &Arc<Dataset>,
    settings: &SamplerSettings,
    spec: &Value,
    threads: usize,
    burn: bool,
) -> Operators {
    let dataset = || Arc::clone(dataset);
    let seeds = SeedSet::new("train split", &dataset().splits.train, dataset().num_nodes()).expect("distinct nodes");
    let batching = CpuNeighbor::new(&BatchingContext::new(dataset(), seeds, settings.clone()));
    let transferring = CpuHost::new(&TransferringContext::new(dataset(), Place::Host, Place::Host));
    let context = TrainingContext { seed: 1, threads, ..TrainingContext::new(dataset(), spec.clone()) };
    let (key, operator): (_, Box<dyn morphgl_registry::Training>) = match burn {
        true => (morphgl_training_cpu_burn::KEY, Box::new(CpuBurn::new(&context).expect("a model"))),
        false => (morphgl_training_cpu_native::KEY, Box::new(CpuNative::new(&context).expect("a model"))),
    };
    let keys = [morphgl_batching_cpu::NEIGHBOR.key, morphgl_transferring_cpu_host::DESCRIPTION.key, key];
    let (batching, transferring) = (batching.expect("settings"), transferring.expect("no options"));
    let route = Route::new(keys, Place::Host, Place::Host);
    Operators::of(route, Arc::new(batching), Box::new(transferring), operator)
}

/// Seconds of each of `epochs` of two trainers by a division, the first one, which warms up, left out.
fn epochs(
    dataset: &Arc<Dataset>,
    settings: &SamplerSettings,
    spec: &Value,
    pair: Pair,
    division: &Arc<dyn Division>,
    epochs: u32,
) -> Vec<f64> {
    let together = Barrier::new(2);
    let together = &together;
    thread::scope(|scope| {
        let trainer = |(rank, end): (usize, HostExchange)| {
            let member = GroupMember {
                exchange: Box::new(end),
                division: Arc::clone(division),
                num_seeds: dataset.splits.train.len(),
                batch_size: settings.batch_size,
                stop: None,
                observe: None,
                bucket_bytes: BUCKET_BYTES,
                virtual_steps: None,
            };
            scope.spawn(move || {
                let threads = pair.threads[rank];
                let operators = operators(dataset, settings, spec, threads, pair.burn && rank == 1);
                let Operators { mut routes, mut trainers } = join(operators, member).expect("one training operator");
                let (route, training) = (&mut routes[0], &mut trainers[0].operator);
                let mut worker = route.batching.worker(threads).expect("a worker");
                let mut seconds = Vec::new();
                for epoch in 0..=epochs {
                    together.wait();
                    let start = Instant::now();
                    for index in 0..route.batching.num_batches() as u32 {
                        let batch = worker.prepare(BatchId { epoch, index }, None).and_then(Handle::wait);
                        let batch = route.transferring.transfer(batch.expect("batching").0).and_then(Handle::wait);
                        training.train(&batch.expect("transferring").0).and_then(Handle::wait).expect("training");
                    }
                    seconds.push(start.elapsed().as_secs_f64());
                }
                seconds.split_off(1)
            })
        };
        let running: Vec<_> = HostExchange::group(2, LIMIT).into_iter().enumerate().map(trainer).collect();
        let mut all = running.into_iter().map(|thread| thread.join().expect("the trainer ends well"));
        all.next().expect("two trainers")
    })
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(5, |n| n.parse().expect("a number of rounds"));
    let graph = SbmConfig { nodes: 50_000, classes: 16, dim: 64, degree: 15.0, ..SbmConfig::default() };
    let dataset = Arc::new(sbm(&graph).expect("a graph"));
    let fanouts: Fanouts = "15,10".parse().expect("fanouts");
    let settings = SamplerSettings { batch_size: BATCH_SIZE, seed: 5, ..fanouts.into() };
    let model = json!({
        "kind": "sage", "hidden": 256, "dropout": 0.0, "layers": 2,
        "in_dim": dataset.feature_dim(), "num_classes": dataset.num_classes,
    });
    let spec = json!({ "model": model, "optimizer": { "lr": 0.001 } });
    let cores = thread::available_parallelism().map_or(1, usize::from);
    println!(
        "{cores} cores; {} mini-batches of {BATCH_SIZE} per epoch; {rounds} rounds; seconds per epoch (median, from, to)\n",
        dataset.splits.train.len().div_ceil(BATCH_SIZE)
    );
    println!(
        "| trainers | best static part of the first | its seconds | balanced | balanced / best |\n|---|--:|--:|--:|--:|"
    );
    for pair in PAIRS {
        let seeds = SeedSet::new("train split", &dataset.splits.train, dataset.num_nodes()).expect("distinct nodes");
        let work: Arc<[f32]> = Arc::from(work(&dataset.topology, &settings.sampling));
        let run = |division: Arc<dyn Division>| epochs(&dataset, &settings, &spec, pair, &division, 2);
        let (mut fixed, mut balanced) = (vec![Vec::new(); PARTS + 1], Vec::new());
        for _ in 0..rounds {
            for (part, seconds) in fixed.iter_mut().enumerate() {
                // Among the others, so that whatever else the machine does meets all alike.
                if part % 4 == 0 {
                    let division = Balanced::new(Epochs::new(&seeds, &settings), Arc::clone(&work), &[1.0, 1.0], 1);
                    balanced.extend(run(Arc::new(division.expect("speeds"))));
                }
                let part = part as f64 / PARTS as f64;
                seconds.extend(run(Arc::new(Weights::new(&[part, 1.0 - part]).expect("parts"))));
            }
        }
        let of = |seconds: &mut Vec<f64>| [median(seconds), seconds[0], seconds[seconds.len() - 1]];
        let balanced = of(&mut balanced);
        let fixed: Vec<[f64; 3]> = fixed.iter_mut().map(of).collect();
        let best = (0..=PARTS).min_by(|&a, &b| fixed[a][0].total_cmp(&fixed[b][0])).expect("parts");
        let show = |[median, least, most]: [f64; 3]| format!("{median:.3} ({least:.3}, {most:.3})");
        println!(
            "| {} | {}% | {} | {} | {:.3} |",
            pair.name,
            100 * best / PARTS,
            show(fixed[best]),
            show(balanced),
            balanced[0] / fixed[best][0]
        );
    }
}
