//! Epochs of simulated trainers by the dynamic balancer, beside the best static division in hindsight, the static one by profiled
//! speeds, and the one as published. `cargo run --release -p morphgl-group --example balance [MACHINES]`
#![allow(clippy::print_stdout, reason = "the table is the point")]

#[path = "../tests/simulated/mod.rs"]
mod simulated;

use morphgl_group::Weights;
use rayon::prelude::*;
use simulated::Machine;

const BATCHES: usize = 300;
const BATCH_SIZE: usize = 512;
const COLUMNS: [&str; 9] = [
    "balanced, first epoch",
    "balanced, second epoch",
    "balanced from equal shares, first epoch",
    "balanced from equal shares, second epoch",
    "static by profiled speeds, first epoch",
    "static by profiled speeds, second epoch",
    "as published, first epoch",
    "as published, second epoch",
    "the fastest trainer alone, second epoch",
];

fn main() {
    let machines = std::env::args().nth(1).map_or(1000, |n| n.parse().expect("a number of machines"));
    for size in 2..=8 {
        let machines = if size == 2 { machines } else { machines / 10 };
        let rows: Vec<[f64; 10]> = (0..machines as u64).into_par_iter().map(|seed| row(seed, size)).collect();
        println!(
            "\n{machines} machines of {size} trainers, seconds as a multiple of the best static division in hindsight\n"
        );
        println!("| division | median | 95th percentile | most | within 5% |\n|---|--:|--:|--:|--:|");
        let by_work = (size == 2).then_some("best fixed parts of the work in hindsight, second epoch");
        for (column, name) in COLUMNS.into_iter().chain(by_work).enumerate() {
            let mut ratios: Vec<f64> = rows.iter().map(|row| row[column]).collect();
            ratios.sort_by(f64::total_cmp);
            let at = |share: f64| ratios[((ratios.len() - 1) as f64 * share) as usize];
            let within = ratios.iter().filter(|&&ratio| ratio <= 1.05).count() as f64 / ratios.len() as f64;
            println!("| {name} | {:.3} | {:.3} | {:.3} | {:.1}% |", at(0.5), at(0.95), at(1.0), 100.0 * within);
        }
    }
}

/// Seconds of each column, as a multiple of the best static division's.
fn row(seed: u64, size: usize) -> [f64; 10] {
    let machine = Machine::random(seed, size, BATCHES, BATCH_SIZE);
    let epochs = [machine.epoch(0), machine.epoch(1)];
    let best = [epochs[0].best_static(), epochs[1].best_static()];
    let profiled = machine.profiled();
    let speeds: Vec<f64> = profiled.iter().map(|seconds| 1.0 / seconds).collect();
    let informed = machine.balanced(&speeds);
    let uninformed = machine.balanced(&vec![1.0; size]);
    let fixed = Weights::new(&speeds).expect("positive");
    let mut published: Vec<(f64, f64)> = profiled.iter().map(|s| (s / BATCH_SIZE as f64, 1.0)).collect();
    let alone = (0..size).map(|rank| epochs[1].with_ends(|step| ends_of(&epochs[1], step, rank, size)));
    let alone = alone.fold(f64::INFINITY, f64::min);
    let by_work = if size == 2 { epochs[1].best_by_work() } else { f64::NAN };
    let both = |mut by: Box<dyn FnMut(usize) -> f64 + '_>| [by(0) / best[0], by(1) / best[1]];
    let [a, b] = both(Box::new(|e| epochs[e].by(&informed)));
    let [c, d] = both(Box::new(|e| epochs[e].by(&uninformed)));
    let [e, f] = both(Box::new(|e| epochs[e].by(&fixed)));
    let [g, h] = both(Box::new(|e| epochs[e].published(&mut published)));
    [a, b, c, d, e, f, g, h, alone / best[1], by_work / best[1]]
}

/// All seeds of a step for one trainer.
fn ends_of(epoch: &simulated::Epoch<'_>, step: usize, rank: usize, size: usize) -> Vec<usize> {
    (0..size).map(|r| if r >= rank { epoch.num_seeds(step) } else { 0 }).collect()
}
