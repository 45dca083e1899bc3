//! Profiles operators of the example's own, without the runner. Run: `cargo run -p morphgl-profile --example alone-profile`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use morphgl_plan::{Limits, plan};
use morphgl_profile::{Settings, Watch, profile};
use morphgl_registry::{
    BatchId, Batching, BatchingWorker, Gradients, Handle, HostBatch, Machine, MiniBatch, ModelState, NamedTensor,
    Operators, Phase, Place, Result, Route, RouteOperators, Score, Training, TrainingOperator, Transferring,
};

/// An operator of all three phases, which sleeps for 3 ms, no time and 5 ms.
#[derive(Debug, Clone, Copy)]
struct Asleep;

impl Batching for Asleep {
    fn num_batches(&self) -> usize {
        50
    }
    fn worker(&self, _threads: usize) -> Result<Box<dyn BatchingWorker>> {
        Ok(Box::new(Asleep))
    }
}

impl BatchingWorker for Asleep {
    fn prepare_share(
        &mut self,
        id: BatchId,
        _share: Range<usize>,
        _recycled: Option<MiniBatch>,
    ) -> Result<Handle<MiniBatch>> {
        thread::sleep(Duration::from_millis(3));
        let batch = HostBatch { id, num_seeds: 1, input_nodes: vec![id.index], ..HostBatch::default() };
        Ok(Handle::ready(MiniBatch::Host(batch), Duration::from_millis(3)))
    }
}

impl Transferring for Asleep {
    fn transfer(&mut self, batch: MiniBatch) -> Result<Handle<MiniBatch>> {
        Ok(Handle::ready(batch, Duration::ZERO))
    }
}

impl ModelState for Asleep {
    fn gradients(&mut self) -> Result<Gradients> {
        Ok(Gradients::default())
    }
    fn set_gradients(&mut self, _gradients: &Gradients) -> Result<()> {
        Ok(())
    }
    fn parameters(&self) -> Result<Vec<NamedTensor>> {
        Ok(Vec::new())
    }
    fn set_parameters(&mut self, _parameters: &[NamedTensor]) -> Result<()> {
        Ok(())
    }
    fn optimizer_state(&self) -> Result<Vec<NamedTensor>> {
        Ok(Vec::new())
    }
    fn set_optimizer_state(&mut self, _state: &[NamedTensor]) -> Result<()> {
        Ok(())
    }
}

impl Training for Asleep {
    fn set_threads(&mut self, _threads: usize) -> Result<()> {
        Ok(())
    }
    fn accumulate(&mut self, _batch: &MiniBatch) -> Result<Handle<Score>> {
        thread::sleep(Duration::from_millis(5));
        Ok(Handle::ready(Score::default(), Duration::from_millis(5)))
    }
    fn step(&mut self) -> Result<Handle<()>> {
        Ok(Handle::ready((), Duration::ZERO))
    }
    fn score(&mut self, _batch: &MiniBatch) -> Result<Handle<Score>> {
        Ok(Handle::ready(Score::default(), Duration::ZERO))
    }
    fn infer(&mut self, _nodes: &[u32]) -> Result<Vec<f32>> {
        Ok(Vec::new())
    }
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let route = Route {
        batching: "Batching_CPU_Asleep".parse()?,
        transferring: "Transferring_CPU_Asleep".parse()?,
        training: "Training_CPU_Asleep".parse()?,
        read_at: Place::Host,
        batched_at: Place::Host,
        trained_at: Place::Host,
        gathering: Phase::Batching,
        queueing: Vec::new(),
    };
    let machine = Machine::probe();
    let (key, place) = (route.training.clone(), route.trained_at.clone());
    let mut operators = Operators {
        routes: vec![RouteOperators { route, batching: Arc::new(Asleep), transferring: Box::new(Asleep) }],
        trainers: vec![TrainingOperator { key, place, operator: Box::new(Asleep) }],
    };
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
