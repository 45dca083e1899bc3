//! What caches of other sizes would save: the shape by the allocator, the scale by the time of reads that were waited for.

use morphgl_dual_cache::{Kind, savings};
use morphgl_registry::CachePoint;

/// Intervals between the sizes, which have equal ratios: a power law of accesses is then followed evenly.
const INTERVALS: i32 = 24;

/// Savings by size, in the unit of the allocator.
#[derive(Debug)]
pub(crate) struct Shape {
    /// Bytes of the caches, ascending, and what they save.
    points: Vec<(u64, f64)>,
    /// What the largest caches save beyond those that were built: all that these still read.
    left: f64,
}

impl Shape {
    /// Savings by budgets from `least` to `most` bytes, of which `budget` was used; `None` where nothing is left to save.
    pub(crate) fn new(num_nodes: u32, kinds: [Kind<'_>; 2], (least, budget, most): (u64, u64, u64)) -> Option<Self> {
        if !(1..=budget).contains(&least) || budget >= most {
            return None;
        }
        let ratio = most as f64 / least as f64;
        let size = |i: i32| (least as f64 * ratio.powf(f64::from(i) / f64::from(INTERVALS))) as u64;
        let mut budgets: Vec<u64> = (1..INTERVALS).map(size).chain([least, budget, most]).collect();
        budgets.sort_unstable();
        budgets.dedup();
        let saved = savings(num_nodes, kinds, &budgets);
        let left = saved[budgets.len() - 1] - saved[budgets.partition_point(|&bytes| bytes < budget)];
        (left > 0.0).then(|| Self { points: budgets.into_iter().zip(saved).collect(), left })
    }

    /// Seconds saved per mini-batch that still reads for `seconds`; `fixed` bytes are held besides the caches.
    ///
    /// Slopes are measured on scattered reads and overstate what a hit saves where reads merge: so only the shape is theirs.
    pub(crate) fn points(&self, seconds: f64, fixed: u64) -> Vec<CachePoint> {
        let point = |&(bytes, saved): &(u64, f64)| CachePoint {
            bytes: fixed + bytes,
            saved_seconds: saved * (seconds / self.left),
        };
        self.points.iter().map(point).collect()
    }
}
