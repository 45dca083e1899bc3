//! Batching and transferring of one trainer's shares.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use morphgl_registry::{
    BatchId, Batching, BatchingWorker, CacheCurve, GivenNodes, Handle, HostBatch, MiniBatch, Result, Transferring,
};

use crate::Division;

/// Makes one trainer's share of each mini-batch. An empty share is a mini-batch without seeds, in host memory.
#[derive(Debug, Clone)]
pub struct ShareBatching {
    /// Makes whole mini-batches.
    pub inner: Arc<dyn Batching>,
    /// The trainer whose seeds are prepared.
    pub share: SeedShare,
}

/// Which seeds a trainer has.
#[derive(Debug, Clone)]
pub struct SeedShare {
    /// Divides mini-batches.
    pub division: Arc<dyn Division>,
    /// The trainer.
    pub rank: usize,
    /// Seeds of an epoch.
    pub num_seeds: usize,
    /// Seeds of a mini-batch; the last one of an epoch may have fewer.
    pub batch_size: usize,
}

impl SeedShare {
    /// The positions of the trainer's seeds in a mini-batch.
    ///
    /// # Errors
    ///
    /// As [`Division::share`].
    pub fn positions(&self, id: BatchId) -> Result<Range<usize>> {
        let start = (id.index as usize).saturating_mul(self.batch_size);
        let num_seeds = self.num_seeds.saturating_sub(start).min(self.batch_size);
        self.division.share(id, num_seeds, self.rank)
    }
}

impl Batching for ShareBatching {
    fn num_batches(&self) -> usize {
        self.inner.num_batches()
    }

    fn last_epoch(&self) -> u32 {
        self.inner.last_epoch()
    }

    fn worker(&self, threads: usize) -> Result<Box<dyn BatchingWorker>> {
        Ok(Box::new(ShareWorker { inner: self.inner.worker(threads)?, share: self.share.clone() }))
    }

    fn worker_with_given(
        &self,
        threads: usize,
        given: &Arc<dyn GivenNodes>,
    ) -> Option<Result<Box<dyn BatchingWorker>>> {
        let worker = self.inner.worker_with_given(threads, given)?;
        Some(worker.map(|inner| Box::new(ShareWorker { inner, share: self.share.clone() }) as Box<dyn BatchingWorker>))
    }

    fn cache(&self) -> Option<CacheCurve> {
        self.inner.cache()
    }
}

struct ShareWorker {
    inner: Box<dyn BatchingWorker>,
    share: SeedShare,
}

impl BatchingWorker for ShareWorker {
    fn prepare_share(
        &mut self,
        id: BatchId,
        seeds: Range<usize>,
        recycled: Option<MiniBatch>,
    ) -> Result<Handle<MiniBatch>> {
        let own = self.share.positions(id)?;
        let at = |position: usize| own.start.saturating_add(position).min(own.end);
        let seeds = at(seeds.start)..at(seeds.end);
        if seeds.is_empty() {
            let empty = HostBatch { id, ..HostBatch::default() };
            return Ok(Handle::ready(MiniBatch::Host(empty), Duration::ZERO));
        }
        // A mini-batch without seeds has no buffers to use again, and lies in host memory wherever the others lie.
        self.inner.prepare_share(id, seeds, recycled.filter(|batch| batch.num_seeds() > 0))
    }

    fn num_bytes(&self) -> Option<u64> {
        self.inner.num_bytes()
    }
}

/// Moves shares, and leaves empty ones where they are.
#[derive(Debug)]
pub(crate) struct ShareTransferring(pub(crate) Box<dyn Transferring>);

impl Transferring for ShareTransferring {
    fn transfer(&mut self, batch: MiniBatch) -> Result<Handle<MiniBatch>> {
        match batch.num_seeds() {
            0 => Ok(Handle::ready(batch, Duration::ZERO)),
            _ => self.0.transfer(batch),
        }
    }

    fn cache(&self) -> Option<CacheCurve> {
        self.0.cache()
    }

    fn resize_cache(&mut self, bytes: u64) -> Result<()> {
        self.0.resize_cache(bytes)
    }
}
