//! How long an epoch takes by a schedule.

use crate::{Bottleneck, Policy, Prediction, Problem, Schedule, bound};

/// Predicts an epoch by `schedule`, which need not be one that [`plan`](crate::plan) would propose.
///
/// A sequential epoch is the sum of its phases.
/// A pipeline is a flow shop whose first stage delivers `workers` mini-batches at a time;
/// with constant durations and a queue that never starves training its end is known exactly.
/// Where all phases together need more core-seconds than the cores have in that time, the epoch takes as long as the cores need:
/// the first fill, then all that is left on all cores, longer by `crowding` when threads outnumber them.
///
/// # Complexity
///
/// O(log of the measured points).
pub fn predict(problem: &Problem, schedule: &Schedule) -> Prediction {
    let bound_seconds = bound(problem);
    let mut prediction = match schedule.policy {
        Policy::Sequential => sequential(problem, schedule),
        Policy::Pipeline => pipeline(problem, schedule),
    };
    prediction.bound_seconds = bound_seconds;
    // Only rounding can bring it below the bound.
    debug_assert!(
        prediction.epoch_seconds >= bound_seconds * (1.0 - 1e-9),
        "{schedule}: predicted {} s, below the bound of {bound_seconds} s",
        prediction.epoch_seconds
    );
    prediction.epoch_seconds = prediction.epoch_seconds.max(bound_seconds);
    let available = problem.cores.max(1) as f64 * prediction.epoch_seconds;
    prediction.utilisation = if available > 0.0 { (prediction.utilisation / available).min(1.0) } else { 0.0 };
    prediction
}

/// What both return: `utilisation` holds core-seconds still, and the bound is not set yet.
fn sequential(problem: &Problem, schedule: &Schedule) -> Prediction {
    let (n, cores, d) = (problem.num_batches as f64, problem.cores.max(1), &problem.durations);
    let (threads, training_threads) =
        (schedule.threads_per_worker.clamp(1, cores), schedule.training_threads.clamp(1, cores));
    let batching = d.batching(1, threads).mean;
    let (transferring, training) = (d.transferring().mean, d.training().at(training_threads).mean);
    let period = batching + transferring + training;
    let stages =
        [(batching, Bottleneck::Batching), (transferring, Bottleneck::Transferring), (training, Bottleneck::Training)];
    Prediction {
        epoch_seconds: n * period,
        bound_seconds: 0.0,
        first_fill_seconds: batching + transferring,
        period_seconds: period,
        utilisation: n * (threads as f64 * batching + transferring + training_threads as f64 * training),
        bottleneck: largest(&stages).1,
    }
}

fn pipeline(problem: &Problem, schedule: &Schedule) -> Prediction {
    let (cores, d) = (problem.cores.max(1), &problem.durations);
    let (threads, training_threads) =
        (schedule.threads_per_worker.clamp(1, cores), schedule.training_threads.clamp(1, cores));
    // No more workers than mini-batches ever have something to do.
    let workers = schedule.workers.clamp(1, problem.num_batches.max(1));
    let batching = d.batching(workers, threads).mean;
    let (transferring, training) = (d.transferring().mean, d.training().at(training_threads).mean);
    let latency = workers as f64 * batching;
    let wanted = workers * threads + training_threads;
    let crowding = if wanted > cores { problem.limits.crowding.max(1.0) } else { 1.0 };
    let work = threads as f64 * latency + transferring + training_threads as f64 * training;
    let n = problem.num_batches as f64;

    // Mini-batches arrive in groups of `workers`, `latency` apart. The end is the longest of the paths that wait for
    // group g and then pass the rest through the slower of the two later stages: linear in g, so the first or the last.
    let groups = problem.num_batches.div_ceil(workers);
    let last = problem.num_batches - (groups.max(1) - 1) * workers;
    let slower = transferring.max(training);
    let first_path = latency + (n - 1.0) * slower;
    let last_path = groups as f64 * latency + (last as f64 - 1.0) * slower;
    let flow = transferring + training + first_path.max(last_path);
    let filling = (workers * threads).min(cores) as f64;
    let fluid = latency + (n * crowding * work - filling * latency) / cores as f64;

    let stages = [
        (batching, Bottleneck::Batching),
        (transferring, Bottleneck::Transferring),
        (training, Bottleneck::Training),
        (crowding * work / cores as f64, Bottleneck::Cores),
    ];
    let (period, bottleneck) = largest(&stages);
    Prediction {
        epoch_seconds: if problem.num_batches == 0 { 0.0 } else { flow.max(fluid) },
        bound_seconds: 0.0,
        first_fill_seconds: latency + transferring,
        period_seconds: period,
        utilisation: n * work,
        bottleneck,
    }
}

/// The largest; of equal ones the first.
fn largest(stages: &[(f64, Bottleneck)]) -> (f64, Bottleneck) {
    stages.iter().copied().reduce(|a, b| if b.0 > a.0 { b } else { a }).expect("there are stages")
}
