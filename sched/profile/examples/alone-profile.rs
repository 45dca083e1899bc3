//! Profiles operators that sleep, without the runner. Run: `cargo run -p morphgl-profile --example alone-profile`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::sync::Arc;

use morphgl_conformance::fake::{Fake, route};
use morphgl_plan::{Limits, plan};
use morphgl_profile::{Settings, Watch, profile};
use morphgl_registry::{Machine, Operators};

/// An operator that sleeps for so many milliseconds on one thread, a t-th of them on t threads.
fn asleep(key: &str, millis: f64) -> Fake {
    let mut fake = Fake { num_batches: 50, ..Fake::new(key, &Arc::default()) };
    fake.takes(move |_| millis);
    fake
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let machine = Machine::probe();
    let training = asleep("Training_CPU_Asleep", 5.0);
    let routes = vec![route(&asleep("Batching_CPU_Asleep", 3.0), &asleep("Transferring_CPU_Asleep", 0.0), &training)];
    let mut operators = Operators { routes, trainers: vec![training.trainer()] };
    let settings = Settings::new(machine.cores);
    let profile = profile(&mut operators, &[], &machine, &settings, &Watch::NONE, &mut |p| {
        println!("{}/{} {}", p.done, p.total, p.what)
    })?;
    for r in &profile.routes {
        println!("{}", r.keys());
        for s in &r.batching {
            let (mean, std) = (1e3 * s.seconds.mean, 1e3 * s.seconds.std);
            println!("batching, {} workers of {} threads: {mean:.2} ms ± {std:.2}", s.workers, s.threads);
        }
        for s in &r.training {
            println!("training, {} threads: {:.2} ms ± {:.2}", s.threads, 1e3 * s.seconds.mean, 1e3 * s.seconds.std);
        }
        for t in &r.interference {
            let (batching, training) = (1e3 * t.batching.mean, 1e3 * t.training.mean);
            print!("{} workers of {} threads beside {} training threads: ", t.workers, t.threads, t.training_threads);
            println!("batching {batching:.2} ms, training {training:.2} ms");
        }
    }
    println!("measured in {:.2} s; not measured: {:?}", profile.seconds, profile.skipped);
    println!("{}", plan(&profile.problem(machine.cores, Limits::default()))?);
    Ok(())
}
