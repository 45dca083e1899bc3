//! Batching workers outside of training, with their spare mini-batches.

use std::fmt;

use morphgl_registry::{Batching, BatchingWorker, Key, MiniBatch};

use crate::error::guarded;
use crate::operators::count;
use crate::{PoolSettings, Result};

/// The workers of one batching operator, and mini-batches whose memory they use again. Both are kept from epoch to epoch.
pub struct Pool {
    pub(crate) key: Key,
    pub(crate) settings: PoolSettings,
    pub(crate) num_batches: u32,
    /// All workers but those that panicked.
    pub(crate) workers: Vec<Box<dyn BatchingWorker>>,
    pub(crate) spare: Vec<MiniBatch>,
}

impl Pool {
    /// Makes the workers. `key` names the operator in errors.
    ///
    /// # Errors
    ///
    /// The operator cannot make a worker, or has more mini-batches than a `BatchId` counts.
    pub fn new(key: &Key, batching: &dyn Batching, settings: PoolSettings) -> Result<Self> {
        let num_batches = count(key, batching)?;
        let make =
            || (0..settings.workers.max(1)).map(|_| batching.worker(settings.threads_per_worker.max(1))).collect();
        let workers = guarded(Some(key), None, make)?;
        Ok(Self { key: key.clone(), settings, num_batches, workers, spare: Vec::new() })
    }

    /// Mini-batches of one epoch.
    pub fn num_batches(&self) -> u32 {
        self.num_batches
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("key", &self.key).field("settings", &self.settings).finish_non_exhaustive()
    }
}
