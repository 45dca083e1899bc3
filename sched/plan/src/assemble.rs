//! Schedules put together from a problem's routes: worker pools, shares, buffers.

use crate::{Policy, Problem, Schedule, Share};

/// The share of a route with `batches` mini-batches, a pool of (workers, threads a worker) and training threads.
pub(crate) fn share(
    problem: &Problem,
    route: usize,
    batches: usize,
    (workers, threads): (usize, usize),
    training_threads: usize,
) -> Share {
    let candidate = &problem.routes[route];
    let d = &candidate.durations;
    let pool = d.batching(workers, threads);
    let workers_f = workers as f64;
    let contention = d.contention(workers, threads, training_threads);
    Share {
        keys: candidate.keys.clone(),
        hardware: candidate.hardware.clone(),
        in_place: candidate.in_place,
        batches,
        workers,
        threads_per_worker: threads,
        batching: crate::Seconds { mean: workers_f * pool.mean, std: workers_f * pool.std },
        transferring: d.transferring(),
        training: d.training().at(training_threads),
        contention,
    }
}

/// A schedule of `shares`, with buffers as large as the limits allow.
pub(crate) fn schedule(problem: &Problem, policy: Policy, shares: Vec<Share>, training_threads: usize) -> Schedule {
    let limits = &problem.limits;
    let workers = |in_place: bool| shares.iter().filter(|s| s.in_place == in_place).map(|s| s.workers).sum::<usize>();
    // Mini-batches in the workers of an in-place pool occupy slots of the ready buffer.
    let exclusive = shares.iter().any(|s| problem.exclusive(&s.hardware.training) != 0);
    let ready = if exclusive { limits.ready.max(1) } else { limits.ready.max(1) + workers(true) };
    let batched = limits.batched.max(workers(false));
    let batched = if workers(false) == 0 { 0 } else { batched };
    Schedule {
        policy,
        resources: problem.resources.clone(),
        shares,
        training_threads,
        batched,
        ready,
        group: 0,
        keep: 0,
        oversubscription: limits.oversubscription,
    }
}

/// The pools a route may have: workers, and threads of each.
pub(crate) fn pools(problem: &Problem, route: usize) -> Vec<(usize, usize)> {
    let candidate = &problem.routes[route];
    if !problem.on_cores(&candidate.hardware.batching) {
        return vec![(1, 1)];
    }
    let cores = problem.cores();
    let threads = candidate.durations.threads_per_worker().filter(|&t| t <= cores);
    threads.flat_map(|t| (1..=problem.num_batches.clamp(1, cores / t)).map(move |w| (w, t))).collect()
}

/// The pool with the highest throughput; of equal ones that with the fewest threads.
pub(crate) fn fastest_pool(problem: &Problem, route: usize) -> (usize, usize) {
    let d = &problem.routes[route].durations;
    let seconds = |&(workers, threads): &(usize, usize)| d.batching(workers, threads).mean;
    let mut pools = pools(problem, route);
    pools.sort_by_key(|(workers, threads)| workers * threads);
    pools.into_iter().min_by(|a, b| seconds(a).total_cmp(&seconds(b))).expect("there is a pool")
}
