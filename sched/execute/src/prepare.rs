//! Batching and transferring without training.

use std::ops::Range;

use morphgl_registry::{Key, MiniBatch, Score, Transferring};

use crate::{BatchDone, EpochReport, Pool, Result, Stop};

/// A transferring operator and its key.
#[derive(Debug)]
pub struct Transfer<'a> {
    /// Its key, for errors.
    pub key: &'a Key,
    /// The operator.
    pub operator: &'a mut dyn Transferring,
}

/// Delivers mini-batches `batches` of an epoch, in order, to `consume`, which returns their score (or `Score::default()`).
pub fn prepare(
    pool: &mut Pool,
    transfer: Option<Transfer<'_>>,
    epoch: u32,
    batches: Range<u32>,
    stop: &Stop,
    consume: &mut dyn FnMut(&MiniBatch) -> morphgl_registry::Result<Score>,
    observe: &mut dyn FnMut(&BatchDone),
) -> Result<EpochReport> {
    let _ = (pool, transfer, epoch, batches, stop, consume, observe);
    todo!()
}
