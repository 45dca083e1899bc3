//! Epochs executed on the simulated accelerator, compared with their predictions.
//!
//! `cargo bench -p morphgl-execute --bench simulated` prints a table, for an otherwise idle machine, as threads sleep for
//! milliseconds. It fails when a mini-batch is lost, trained twice or changed on the way; not when an epoch is late.
#![allow(clippy::print_stdout, reason = "a benchmark prints")]

#[path = "../tests/simulated/mod.rs"]
mod simulated;

use morphgl_plan::{Limits, Strategy, plan};
use simulated::{Millis, Rig};

fn main() {
    // Milliseconds: a CPU worker, PCIe, device batching, device gather, training; and workers.
    let sets: [(&str, Millis, usize); 24] = [
        ("CPU-bound", [60.0, 2.0, 9.0, 3.0, 4.0], 3),
        ("CPU-bound", [80.0, 3.0, 20.0, 10.0, 5.0], 4),
        ("CPU-bound", [40.0, 1.5, 30.0, 10.0, 3.0], 2),
        ("CPU-bound", [30.0, 2.0, 40.0, 9.0, 2.0], 1),
        ("CPU-bound", [90.0, 4.0, 60.0, 20.0, 6.0], 6),
        ("CPU-bound", [50.0, 2.0, 25.0, 5.0, 8.0], 2),
        ("PCIe-bound", [10.0, 12.0, 10.0, 10.0, 3.0], 4),
        ("PCIe-bound", [20.0, 15.0, 14.0, 6.0, 2.0], 6),
        ("PCIe-bound", [8.0, 9.0, 6.0, 8.0, 2.5], 2),
        ("PCIe-bound", [12.0, 20.0, 8.0, 6.0, 4.0], 4),
        ("PCIe-bound", [6.0, 10.0, 30.0, 10.0, 3.0], 1),
        ("PCIe-bound", [30.0, 8.0, 5.0, 7.0, 2.0], 8),
        ("device-bound", [12.0, 2.0, 8.0, 4.0, 12.0], 4),
        ("device-bound", [20.0, 4.0, 3.0, 2.0, 15.0], 4),
        ("device-bound", [10.0, 3.0, 10.0, 5.0, 9.0], 2),
        ("device-bound", [15.0, 5.0, 6.0, 3.0, 10.0], 2),
        ("device-bound", [100.0, 2.0, 3.0, 1.0, 8.0], 1),
        ("device-bound", [25.0, 3.0, 4.0, 4.0, 20.0], 8),
        ("balanced", [40.0, 4.0, 6.0, 4.0, 5.0], 4),
        ("balanced", [24.0, 6.0, 5.0, 3.0, 4.0], 4),
        ("balanced", [36.0, 5.0, 9.0, 3.0, 7.0], 3),
        ("balanced", [16.0, 8.0, 8.0, 8.0, 8.0], 2),
        ("balanced", [48.0, 3.0, 4.0, 2.0, 6.0], 6),
        ("balanced", [32.0, 7.0, 7.0, 5.0, 3.0], 4),
    ];
    let n = 160;
    println!(
        "| regime | CPU / PCIe / device + gather / training, ms | workers | plan | bound, s | predicted, s | executed, s | executed / predicted |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let mut ratios = Vec::new();
    let mut row = |regime: &str, millis: &Millis, workers: usize, chosen: Option<Strategy>| {
        let rig = Rig::new(n, *millis, workers, "");
        let plans = plan(&rig.problem(Limits::default())).expect("no memory limits");
        let plan = match chosen {
            None => plans.best().clone(),
            Some(strategy) => plans.best_of(strategy).expect("two routes have all strategies").clone(),
        };
        let report = rig.run(&plan.schedule).expect("no faults");
        let p = &plan.prediction;
        let [host, pcie, device, gather, training] = millis;
        let ratio = report.seconds / p.epoch_seconds;
        println!(
            "| {regime} | {host} / {pcie} / {device} + {gather} / {training} | {workers} | {} | {:.3} | {:.3} | {:.3} | {ratio:.3} |",
            plan.strategy, p.bound_seconds, p.epoch_seconds, report.seconds,
        );
        ratios.push(ratio);
    };
    for (regime, millis, workers) in &sets {
        row(regime, millis, *workers, None);
    }
    // Every strategy, on one set of each regime.
    for (regime, millis, workers) in sets.iter().step_by(6) {
        for strategy in Strategy::ALL.into_iter().filter(|s| *s != Strategy::Sequential) {
            row(regime, millis, *workers, Some(strategy));
        }
    }
    ratios.sort_by(f64::total_cmp);
    let within = ratios.iter().filter(|r| (*r - 1.0).abs() <= 0.05).count();
    println!(
        "\nexecuted / predicted: median {:.3}, least {:.3}, most {:.3}; {within} of {} within 5%",
        ratios[ratios.len() / 2],
        ratios[0],
        ratios[ratios.len() - 1],
        ratios.len()
    );
}
