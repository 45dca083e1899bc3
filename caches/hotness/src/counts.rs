//! Accesses counted in mini-batches.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread;

use morphgl_registry::{BatchId, Batching, Error, HostBatch, Result};

use crate::Hotness;

/// With fewer mini-batches than this, of fewer blocks than [`MAX_BLOCKS`], no count of 32 bits overflows.
pub(crate) const MAX_BATCHES: usize = 1 << 24;
const MAX_BLOCKS: usize = 1 << 8;

/// Accesses by some mini-batches, node by node.
///
/// Threads share the counts: a mini-batch accesses a node's features once, so threads seldom meet at one count, and memory
/// does not grow with their number. The order in which integers are added does not matter.
#[derive(Debug)]
pub(crate) struct Counts {
    features: Vec<AtomicU32>,
    rows: Vec<AtomicU32>,
}

impl Counts {
    /// Samples the mini-batches `ids` by `threads` workers of one thread each, and counts their accesses.
    pub(crate) fn sample(batching: &dyn Batching, ids: &[BatchId], num_nodes: usize, threads: usize) -> Result<Self> {
        if threads == 0 {
            return Err(Error::setting("threads of pre-sampling", "0 threads count nothing; give at least 1"));
        }
        assert!(ids.len() < MAX_BATCHES, "{} mini-batches", ids.len());
        let zeros = || (0..num_nodes).map(|_| AtomicU32::new(0)).collect();
        let counts = Self { features: zeros(), rows: zeros() };
        let next = AtomicUsize::new(0);
        let work = || counts.add_all(batching, ids, &next).inspect_err(|_| next.store(ids.len(), Ordering::Relaxed));
        thread::scope(|scope| {
            let spawned: Vec<_> = (0..threads.min(ids.len())).map(|_| scope.spawn(work)).collect();
            let joined = spawned.into_iter().map(|t| t.join().unwrap_or_else(|p| std::panic::resume_unwind(p)));
            joined.collect::<Result<()>>()
        })?;
        Ok(counts)
    }

    /// One worker: takes the next mini-batch until none is left.
    fn add_all(&self, batching: &dyn Batching, ids: &[BatchId], next: &AtomicUsize) -> Result<()> {
        let (mut worker, mut recycled) = (batching.worker(1)?, None);
        while let Some(&id) = ids.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (batch, _) = worker.prepare(id, recycled.take())?.wait()?;
            self.add(batch.host()?)?;
            recycled = Some(batch);
        }
        Ok(())
    }

    /// Adds the accesses of one mini-batch.
    fn add(&self, batch: &HostBatch) -> Result<()> {
        let num_nodes = self.features.len();
        if let Some(v) = batch.input_nodes.iter().find(|&&v| v as usize >= num_nodes) {
            let what = format!("{} has node {v}, the graph {num_nodes} nodes; give a sampler of this graph", batch.id);
            return Err(Error::setting("pre-sampling", what));
        }
        assert!(batch.blocks.len() < MAX_BLOCKS, "{} blocks of a mini-batch", batch.blocks.len());
        let count = |counts: &[AtomicU32], v: u32| counts[v as usize].fetch_add(1, Ordering::Relaxed);
        for &v in &batch.input_nodes {
            count(&self.features, v);
        }
        for block in &batch.blocks {
            for row in (0..block.num_dst).filter(|&row| !block.row(row).is_empty()) {
                count(&self.rows, batch.input_nodes[row]);
            }
        }
        Ok(())
    }

    /// The counts, each multiplied by `scale` and rounded once.
    pub(crate) fn scaled(self, scale: f64) -> Hotness {
        let scaled = |counts: Vec<AtomicU32>| -> Arc<[f32]> {
            counts.into_iter().map(|count| (f64::from(count.into_inner()) * scale) as f32).collect()
        };
        Hotness { features: scaled(self.features), rows: scaled(self.rows) }
    }
}
