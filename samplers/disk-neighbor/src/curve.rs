//! What caches of other sizes would save: the shape by the allocator, the scale by reads that were carried out.

use morphgl_dual_cache::{Kind, savings};
use morphgl_registry::CachePoint;

/// Intervals between the sizes, which have equal ratios: a power law of accesses is then followed evenly.
const INTERVALS: i32 = 24;

/// Seconds that budgets from `least` to `most` bytes save a mini-batch, `budget` among them, whose misses take `seconds` to
/// read. Empty where `budget` holds all that is worth caching: nothing was read then that tells the scale.
///
/// Slopes are measured on scattered reads and overstate what a hit saves where reads merge; the seconds of all that is left to
/// save are those of `seconds`, which were measured on the reads of a mini-batch.
pub(crate) fn points(
    num_nodes: u32,
    kinds: [Kind<'_>; 2],
    (least, budget, most): (u64, u64, u64),
    seconds: f64,
) -> Vec<CachePoint> {
    if !(1..=budget).contains(&least) || budget >= most {
        return Vec::new();
    }
    let ratio = most as f64 / least as f64;
    let size = |i: i32| (least as f64 * ratio.powf(f64::from(i) / f64::from(INTERVALS))) as u64;
    let mut budgets: Vec<u64> = (1..INTERVALS).map(size).chain([least, budget, most]).collect();
    budgets.sort_unstable();
    budgets.dedup();
    let saved = savings(num_nodes, kinds, &budgets);
    let left = saved[budgets.len() - 1] - saved[budgets.partition_point(|&bytes| bytes < budget)];
    if left <= 0.0 {
        return Vec::new();
    }
    let point = |(bytes, saved): (u64, f64)| CachePoint { bytes, saved_seconds: saved * (seconds / left) };
    budgets.into_iter().zip(saved).map(point).collect()
}
