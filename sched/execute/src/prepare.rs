//! Batching and transferring without training.

use std::ops::Range;
use std::time::Instant;

use morphgl_registry::{MiniBatch, Score};

use crate::drive::{Job, Transfer, drive};
use crate::{BatchDone, Pool, Prepared, Result, Stop};

/// Delivers mini-batches `batches` of an epoch, in order, to `consume`, which returns their score (or `Score::default()`).
///
/// For sampled evaluation (`consume` scores them) and for measuring how fast mini-batches come.
/// In the report and in the events `training` is the time `consume` took.
///
/// # Errors
///
/// An operator failed or panicked: the error says which, at which mini-batch. All earlier mini-batches were consumed, the failing
/// one and all later ones were not; every thread has ended. A failure of `consume` carries no operator.
pub fn prepare(
    pool: &mut Pool,
    transfer: Option<Transfer<'_>>,
    epoch: u32,
    batches: Range<u32>,
    stop: &Stop,
    consume: &mut dyn FnMut(&MiniBatch) -> morphgl_registry::Result<Score>,
    observe: &mut dyn FnMut(&BatchDone),
) -> Result<Prepared> {
    let job = Job { epoch, batches, stop };
    let timed = &mut |batch: &MiniBatch| {
        let start = Instant::now();
        let score = consume(batch)?;
        Ok((score, start.elapsed()))
    };
    drive(pool, transfer, &job, timed, observe)
}
