//! Workers with their buffers, kept from epoch to epoch.

use std::fmt;
use std::ops::Range;

use morphgl_plan::{Policy, Schedule};
use morphgl_registry::{Batching, BatchingWorker, Key, MiniBatch};

use crate::{Error, ErrorKind, Loader, Result, Stop};

/// The workers of one batching operator, and the mini-batches whose buffers they use again.
pub struct Pool {
    pub(crate) key: Key,
    pub(crate) schedule: Schedule,
    num_batches: u32,
    /// Fewer than the schedule's when one panicked.
    pub(crate) workers: Vec<Box<dyn BatchingWorker>>,
    pub(crate) spare: Vec<MiniBatch>,
}

impl Pool {
    /// Makes the schedule's workers. `key` names the operator in errors.
    ///
    /// # Errors
    ///
    /// The operator cannot make a worker, has more mini-batches than a `BatchId` counts,
    /// or the schedule's policy is unknown to this executor.
    pub fn new(key: &Key, batching: &dyn Batching, schedule: &Schedule) -> Result<Self> {
        let setting =
            |what: String| Error { operator: Some(Box::new(key.clone())), batch: None, kind: ErrorKind::Setting(what) };
        let num_batches = batching.num_batches();
        let num_batches = u32::try_from(num_batches)
            .map_err(|_| setting(format!("{num_batches} mini-batches an epoch are too many; make them larger")))?;
        let count = match schedule.policy {
            Policy::Sequential => 1,
            Policy::Pipeline => schedule.workers.max(1),
            other => return Err(setting(format!("policy {other} cannot be run here; take sequential or pipeline"))),
        };
        let worker = |_| batching.worker(schedule.threads_per_worker.max(1));
        let workers = (0..count).map(worker).collect::<morphgl_registry::Result<Vec<_>>>();
        let workers = workers.map_err(|e| Error::failed(Some(key), None, e))?;
        Ok(Self { key: key.clone(), schedule: *schedule, num_batches, workers, spare: Vec::new() })
    }

    /// Mini-batches of one epoch.
    pub fn num_batches(&self) -> u32 {
        self.num_batches
    }

    /// The schedule its workers were made for.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Starts batching mini-batches `batches` of an epoch, to be iterated over in order.
    ///
    /// # Errors
    ///
    /// There are fewer mini-batches, a thread cannot be started, or all workers panicked earlier.
    pub fn load(&mut self, epoch: u32, batches: Range<u32>, stop: &Stop) -> Result<Loader<'_>> {
        let wrong = |what: String| Error {
            operator: Some(Box::new(self.key.clone())),
            batch: None,
            kind: ErrorKind::Setting(what),
        };
        if batches.end > self.num_batches {
            let (end, have) = (batches.end, self.num_batches);
            return Err(wrong(format!("mini-batches up to {end} are asked for, an epoch has {have}; ask for fewer")));
        }
        if self.workers.is_empty() {
            return Err(wrong("all of its workers panicked earlier; make a new pool".to_string()));
        }
        Loader::start(self, epoch, batches, stop)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("key", &self.key).field("schedule", &self.schedule).finish_non_exhaustive()
    }
}
