//! The executor over operators of one's own, without the runner. Run: `cargo run --release -p morphgl-execute --example alone-execute`.
//!
//! Prints the throughput of a pipeline of operators that sleep, and the executor's own time per mini-batch.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use morphgl_execute::{Control, Executor, Settings, Stop};
use morphgl_plan::{Hardware, Policy, Resource, RouteKeys, Schedule, ScheduleShare, Seconds};
use morphgl_registry::{
    BatchId, Batching, BatchingWorker, Gradients, Handle, HostBatch, MiniBatch, ModelState, NamedTensor, Operators,
    Phase, Place, Result, Route, RouteOperators, Score, Training, TrainingOperator, Transferring,
};

/// An operator of all three phases: sleeps, and delivers a mini-batch of one node.
#[derive(Debug, Clone, Copy)]
struct Sleepy {
    num_batches: usize,
    /// Duration of batching; training takes half of it.
    sleep: Duration,
}

impl Batching for Sleepy {
    fn num_batches(&self) -> usize {
        self.num_batches
    }

    fn worker(&self, _threads: usize) -> Result<Box<dyn BatchingWorker>> {
        Ok(Box::new(*self))
    }
}

/// Sleeps, and returns the time; does nothing for a time of zero.
fn work(sleep: Duration) -> Duration {
    if !sleep.is_zero() {
        thread::sleep(sleep);
    }
    sleep
}

impl BatchingWorker for Sleepy {
    fn prepare_share(
        &mut self,
        id: BatchId,
        _share: Range<usize>,
        recycled: Option<MiniBatch>,
    ) -> Result<Handle<MiniBatch>> {
        let mut batch = recycled.map(MiniBatch::into_host).transpose()?.unwrap_or_default();
        batch.input_nodes.clear();
        batch.input_nodes.push(id.index);
        Ok(Handle::ready(MiniBatch::Host(HostBatch { id, num_seeds: 1, ..batch }), work(self.sleep)))
    }
}

impl Transferring for Sleepy {
    fn transfer(&mut self, batch: MiniBatch) -> Result<Handle<MiniBatch>> {
        Ok(Handle::ready(batch, Duration::ZERO))
    }
}

impl ModelState for Sleepy {
    fn gradients(&mut self) -> Result<Gradients> {
        Ok(Gradients::default())
    }

    fn set_gradients(&mut self, _: &Gradients) -> Result<()> {
        Ok(())
    }

    fn parameters(&self) -> Result<Vec<NamedTensor>> {
        Ok(Vec::new())
    }

    fn set_parameters(&mut self, _: &[NamedTensor]) -> Result<()> {
        Ok(())
    }

    fn optimizer_state(&self) -> Result<Vec<NamedTensor>> {
        Ok(Vec::new())
    }

    fn set_optimizer_state(&mut self, _: &[NamedTensor]) -> Result<()> {
        Ok(())
    }
}

impl Training for Sleepy {
    fn set_threads(&mut self, _: usize) -> Result<()> {
        Ok(())
    }

    fn accumulate(&mut self, batch: &MiniBatch) -> Result<Handle<Score>> {
        let score = Score { loss_sum: 0.0, correct: 0, count: batch.num_seeds() as u64 };
        Ok(Handle::ready(score, work(self.sleep / 2)))
    }

    fn step(&mut self) -> Result<Handle<()>> {
        Ok(Handle::ready((), Duration::ZERO))
    }

    fn score(&mut self, batch: &MiniBatch) -> Result<Handle<Score>> {
        self.accumulate(batch)
    }

    fn infer(&mut self, _: &[u32]) -> Result<Vec<f32>> {
        Ok(Vec::new())
    }
}

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
    }
}

/// Seconds of an epoch.
fn epoch(operator: Sleepy, schedule: &Schedule) -> std::result::Result<f64, Box<dyn std::error::Error>> {
    let route = Route {
        batching: "Batching_CPU_Sleepy".parse()?,
        transferring: "Transferring_CPU_Sleepy".parse()?,
        training: "Training_CPU_Sleepy".parse()?,
        read_at: Place::Host,
        batched_at: Place::Host,
        trained_at: Place::Host,
        gathering: Phase::Batching,
        queueing: Vec::new(),
    };
    let (key, place) = (route.training.clone(), route.trained_at.clone());
    let trainers = vec![TrainingOperator { key, place, operator: Box::new(operator) }];
    let routes = vec![RouteOperators { route, batching: Arc::new(operator), transferring: Box::new(operator) }];
    let mut executor = Executor::new(Operators { routes, trainers }, schedule, Settings::default())?;
    let batches: Vec<u32> = (0..executor.num_batches()).collect();
    let start = Instant::now();
    let report = executor.train(0, &batches, &Stop::new(), &mut |_| Control::Continue)?;
    assert!(report.remaining.is_empty());
    Ok(start.elapsed().as_secs_f64())
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let slow = Sleepy { num_batches: 64, sleep: Duration::from_millis(10) };
    for (policy, workers) in [(Policy::Sequential, 1), (Policy::Pipeline, 1), (Policy::Pipeline, 2)] {
        let schedule = schedule(policy, slow.num_batches, workers);
        println!("{schedule}: {:.0} mini-batches per second", slow.num_batches as f64 / epoch(slow, &schedule)?);
    }
    let nothing = Sleepy { num_batches: 10_000, sleep: Duration::ZERO };
    for (policy, workers) in
        [(Policy::Sequential, 1), (Policy::Pipeline, 1), (Policy::Pipeline, 2), (Policy::Pipeline, 4)]
    {
        let schedule = schedule(policy, nothing.num_batches, workers);
        let mut micros: Vec<f64> = Vec::new();
        for _ in 0..5 {
            micros.push(1e6 * epoch(nothing, &schedule)? / nothing.num_batches as f64);
        }
        micros.sort_by(f64::total_cmp);
        println!(
            "{schedule}: {:.1} ({:.1} to {:.1}) µs of the executor's own a mini-batch",
            micros[2], micros[0], micros[4]
        );
    }
    Ok(())
}
