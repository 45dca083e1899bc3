//! Workers with their buffers, kept from epoch to epoch.

use std::fmt;

use morphgl_registry::{Batching, BatchingWorker, Key, MiniBatch};

use crate::error::guarded;
use crate::{Error, PoolSettings, Result};

/// The workers of one batching operator, and the mini-batches whose buffers they use again.
pub struct Pool {
    pub(crate) key: Key,
    pub(crate) settings: PoolSettings,
    pub(crate) num_batches: u32,
    /// Fewer than it was made with when one panicked.
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

    /// What it was made with.
    pub fn settings(&self) -> PoolSettings {
        self.settings
    }
}

/// Mini-batches of one epoch, as a `BatchId` counts them.
pub(crate) fn count(key: &Key, batching: &dyn Batching) -> Result<u32> {
    let n = batching.num_batches();
    u32::try_from(n)
        .map_err(|_| Error::setting(key, format!("{n} mini-batches an epoch are too many; make them larger")))
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("key", &self.key).field("settings", &self.settings).finish_non_exhaustive()
    }
}
