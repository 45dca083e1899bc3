//! Listing 1 of morphgl as a program: profile, partition, schedule, execute.
//! Run: `cargo run --release -p morphgl --example alone-runner`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::sync::Arc;

use morphgl::{
    Executor, ExecutorSettings, Job, JobConfig, Limits, ModelKind, ModelSpec, OptimizerSpec, Partitioner, Profiler,
    RunContext, Scheduler, Stop, TrainingSpec,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> anyhow::Result<()> {
    let dataset = Arc::new(morphgl::default_dataset());
    let model = ModelSpec::new(ModelKind::Sage, dataset.feature_dim(), dataset.num_classes);
    let mut job = Job::new(
        &RunContext::new()?,
        dataset,
        JobConfig::new(TrainingSpec { model, optimizer: OptimizerSpec::default() }),
    )?;
    let cores = job.threads();
    let stop = Stop::new();
    let profile = Profiler::new(cores).measure(&mut job, &stop, None, &mut |p| println!("measuring {}", p.what))?;
    let problem = Partitioner::partition(&profile, cores, Limits::default());
    let plans = Scheduler::schedule(&problem)?;
    println!("{plans}");
    // With the problem at hand it plans again when durations change.
    let mut executor = Executor::new(job, plans.chosen(), Some(problem), ExecutorSettings::default())?;
    for epoch in 0..2 {
        let report = executor.epoch(epoch, &stop, &mut |_| ())?;
        println!("epoch {epoch}: loss {:.3} in {:.2} s", report.score.loss(), report.seconds);
    }
    Ok(())
}
