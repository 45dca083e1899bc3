//! A loader over a batching operator of one's own, without the runner. Run: `cargo run -p morphgl-execute --example alone-execute`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::thread;
use std::time::{Duration, Instant};

use morphgl_execute::{Pool, Stop};
use morphgl_plan::Schedule;
use morphgl_registry::{BatchId, Batching, BatchingWorker, Handle, HostBatch, MiniBatch, Result};

/// Mini-batches that take 10 ms each.
#[derive(Debug)]
struct Slow;
struct Worker;

impl Batching for Slow {
    fn num_batches(&self) -> usize {
        64
    }

    fn worker(&self, _threads: usize) -> Result<Box<dyn BatchingWorker>> {
        Ok(Box::new(Worker))
    }
}

impl BatchingWorker for Worker {
    fn prepare(&mut self, id: BatchId, recycled: Option<MiniBatch>) -> Result<Handle<MiniBatch>> {
        let start = Instant::now();
        let mut batch = recycled.map(MiniBatch::into_host).transpose()?.unwrap_or_default();
        thread::sleep(Duration::from_millis(10));
        batch.input_nodes.clear();
        batch.input_nodes.push(id.index);
        let batch = HostBatch { id, num_seeds: 1, ..batch };
        Ok(Handle::ready(MiniBatch::Host(batch), start.elapsed()))
    }
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let key = "Batching_CPU_Slow".parse()?;
    for workers in [1, 2, 4, 8] {
        let mut pool = Pool::new(&key, &Slow, &Schedule::pipeline(workers, 1))?;
        let start = Instant::now();
        let mut loader = pool.load(0, 0..pool.num_batches(), &Stop::new())?;
        let mut count = 0;
        while let Some(batch) = loader.next() {
            loader.recycle(batch?);
            count += 1;
        }
        println!("{workers} workers: {:.0} mini-batches a second", f64::from(count) / start.elapsed().as_secs_f64());
    }
    Ok(())
}
