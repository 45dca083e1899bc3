//! Workers with their buffers, kept from epoch to epoch.

use std::fmt;
use std::ops::Range;

use morphgl_plan::Schedule;
use morphgl_registry::{Batching, BatchingWorker, Key, MiniBatch};

use crate::{Loader, Result, Stop};

/// The workers of one batching operator, and the mini-batches whose buffers they use again.
pub struct Pool {
    pub(crate) key: Key,
    pub(crate) schedule: Schedule,
    pub(crate) num_batches: usize,
    pub(crate) workers: Vec<Box<dyn BatchingWorker>>,
    pub(crate) spare: Vec<MiniBatch>,
}

impl Pool {
    /// Makes the schedule's workers. `key` names the operator in errors.
    pub fn new(key: &Key, batching: &dyn Batching, schedule: &Schedule) -> Result<Self> {
        let _ = (key, batching, schedule);
        todo!()
    }

    /// Mini-batches of one epoch.
    pub fn num_batches(&self) -> usize {
        self.num_batches
    }

    /// Starts batching mini-batches `batches` of an epoch, to be iterated over in order.
    pub fn load(&mut self, epoch: u32, batches: Range<u32>, stop: &Stop) -> Result<Loader<'_>> {
        let _ = (epoch, batches, stop);
        todo!()
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("key", &self.key).field("schedule", &self.schedule).finish_non_exhaustive()
    }
}
