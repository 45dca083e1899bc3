//! The fluid bound: what no schedule can go below.

use crate::Problem;

/// Seconds that no schedule of the problem can go below.
///
/// The largest of four, each with every duration at the least measured at any count of workers and threads:
/// - the core-seconds of all mini-batches, spread over all cores without a gap;
/// - batching without a pause, then the last mini-batch's transfer and training;
/// - training without a pause, after the first mini-batch's batching and transfer;
/// - transferring without a pause, between the first batching and the last training.
///
/// # Complexity
///
/// O(measured points).
pub fn bound(problem: &Problem) -> f64 {
    if problem.num_batches == 0 {
        return 0.0;
    }
    let (n, cores, d) = (problem.num_batches as f64, problem.cores.max(1) as f64, &problem.durations);
    let (transferring, training) = (d.transferring().mean, d.training().least());
    let work = d.least_batching_work() + transferring + d.training().least_work();
    [
        n * work / cores,
        n * d.least_batching() + transferring + training,
        d.least_latency() + transferring + n * training,
        d.least_latency() + n * transferring + training,
    ]
    .into_iter()
    .fold(0.0, f64::max)
}
