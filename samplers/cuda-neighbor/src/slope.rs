//! What adjacency caches of other sizes would save (DUCATI, SIGMOD'23, §4: the measured slope of a hit).

use std::sync::Arc;
use std::time::Duration;

use morphgl_registry::{BatchId, CachePoint, Result};

use crate::cache::{CsrRows, SelectedRows};
use crate::graph::min_cache_bytes;
use crate::shared::Shared;
use crate::worker::Worker;

/// Mini-batches that are timed, after as many that are not: buffers grow in the first ones.
const TIMED: u32 = 8;
/// Intervals between the sizes of the curve.
const INTERVALS: u64 = 32;

/// Median seconds of a mini-batch on the device, of those of an epoch that is never trained.
pub(crate) fn batch_seconds(shared: &Arc<Shared>) -> Result<f64> {
    let num_batches = (shared.num_batches() as u32).max(1);
    let mut worker = Worker::new(shared, 1)?;
    let mut took: Vec<Duration> = Vec::new();
    for i in 0..2 * TIMED {
        let id = BatchId { epoch: shared.kind.last_epoch(), index: i % num_batches };
        let (_, duration) = worker.make(id, 0..usize::MAX, None)?.wait()?;
        if i >= TIMED {
            took.push(duration);
        }
    }
    took.sort_unstable();
    Ok(took[took.len() / 2].as_secs_f64())
}

/// Seconds per mini-batch that caches of ascending sizes save, compared with the whole topology on the host.
///
/// The cache of the `selected` rows was measured to save `saved` seconds. Divided by the neighbours that it serves, that is the
/// saving per neighbour, which is taken to be the same for all rows. A cache of 0 bytes is among the sizes if `from_nothing`. Empty if
/// the selected rows are never read.
///
/// # Complexity
///
/// Two passes over the nodes.
pub(crate) fn points(rows: &CsrRows<'_>, selected: &SelectedRows, saved: f64, from_nothing: bool) -> Vec<CachePoint> {
    let reads = rows.reads(selected);
    if reads <= 0.0 {
        return Vec::new();
    }
    let (least, most) = (min_cache_bytes(rows.topology, rows.extra), rows.all_bytes());
    let size = |i: u64| least + (u128::from(most.saturating_sub(least)) * u128::from(i) / u128::from(INTERVALS)) as u64;
    let mut sizes: Vec<u64> = (0..=INTERVALS).map(size).collect();
    sizes.dedup();
    let seconds_per_read = saved.max(0.0) / reads;
    let by_size = sizes.iter().zip(rows.reads_within(&sizes));
    let points = by_size.map(|(&bytes, reads)| CachePoint { bytes, saved_seconds: reads * seconds_per_read });
    // Less than the least caches nothing.
    let nothing = [0, least.saturating_sub(1)].map(|bytes| CachePoint { bytes, saved_seconds: 0.0 });
    let nothing = nothing.into_iter().filter(|point| from_nothing && point.bytes < least);
    let mut all: Vec<CachePoint> = nothing.chain(points).collect();
    all.dedup_by_key(|point| point.bytes);
    all
}
