//! The executor over operators that sleep, without the runner. Run: `cargo run --release -p morphgl-execute --example alone-execute`.
//!
//! Prints the throughput of a pipeline of operators that sleep, and the executor's own time per mini-batch.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::sync::Arc;
use std::time::Instant;

use morphgl_conformance::fake::{Fake, route};
use morphgl_execute::{Control, Executor, Settings, Stop};
use morphgl_plan::{Hardware, Policy, Resource, RouteKeys, Schedule, ScheduleShare, Seconds};
use morphgl_registry::Operators;

fn schedule(policy: Policy, batches: usize, workers: usize) -> Schedule {
    let cpu = || vec!["CPU".to_string()];
    let share = ScheduleShare {
        keys: RouteKeys {
            batching: "Batching_CPU_Sleepy".parse().expect("a key"),
            transferring: "Transferring_CPU_Sleepy".parse().expect("a key"),
            training: "Training_CPU_Sleepy".parse().expect("a key"),
        },
        hardware: Hardware { batching: cpu(), transferring: cpu(), training: cpu() },
        in_place: true,
        batches,
        workers,
        threads_per_worker: 1,
        batching: Seconds::constant(0.01),
        transferring: Seconds::constant(0.0),
        training: Seconds::constant(0.005),
        contention: None,
    };
    Schedule {
        policy,
        resources: vec![Resource::shared("CPU", 8)],
        shares: vec![share],
        training_threads: 1,
        batched: 0,
        ready: if policy == Policy::Sequential { 1 } else { workers + 2 },
        group: 0,
        keep: 0,
        oversubscription: 1.0,
        after_step: 0.0,
    }
}

/// Seconds of an epoch whose batching sleeps for so many milliseconds, and training for half of them.
fn epoch(millis: f64, schedule: &Schedule) -> std::result::Result<f64, Box<dyn std::error::Error>> {
    let (log, num_batches) = (Arc::default(), schedule.num_batches());
    let fake = |key: &str, millis: f64| {
        let mut fake = Fake { num_batches, ..Fake::new(key, &log) };
        fake.takes(move |_| millis);
        fake
    };
    let training = fake("Training_CPU_Sleepy", millis / 2.0);
    let (batching, transferring) = (fake("Batching_CPU_Sleepy", millis), fake("Transferring_CPU_Sleepy", 0.0));
    let operators =
        Operators { routes: vec![route(&batching, &transferring, &training)], trainers: vec![training.trainer()] };
    let mut executor = Executor::new(operators, schedule, Settings::default())?;
    let batches: Vec<u32> = (0..executor.num_batches()).collect();
    let start = Instant::now();
    let report = executor.train(0, &batches, &Stop::new(), &mut |_| Control::Continue)?;
    assert!(report.remaining.is_empty());
    Ok(start.elapsed().as_secs_f64())
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    for (policy, workers) in [(Policy::Sequential, 1), (Policy::Pipeline, 1), (Policy::Pipeline, 2)] {
        let schedule = schedule(policy, 64, workers);
        println!("{schedule}: {:.0} mini-batches per second", 64.0 / epoch(10.0, &schedule)?);
    }
    for (policy, workers) in
        [(Policy::Sequential, 1), (Policy::Pipeline, 1), (Policy::Pipeline, 2), (Policy::Pipeline, 4)]
    {
        let schedule = schedule(policy, 10_000, workers);
        let mut micros: Vec<f64> = Vec::new();
        for _ in 0..5 {
            micros.push(1e6 * epoch(0.0, &schedule)? / 10_000.0);
        }
        micros.sort_by(f64::total_cmp);
        println!(
            "{schedule}: {:.1} ({:.1} to {:.1}) µs of the executor's own per mini-batch",
            micros[2], micros[0], micros[4]
        );
    }
    Ok(())
}
