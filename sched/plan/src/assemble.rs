//! Schedules put together from a problem's routes: worker pools, shares, buffers.

use crate::{Candidate, Policy, Problem, Schedule, ScheduleShare};

/// The share of a route with `batches` mini-batches, a pool of (workers, threads per worker) and training threads, of a
/// schedule of this policy: a sequential one does not overlap phases.
pub(crate) fn share(
    problem: &Problem,
    policy: Policy,
    route: usize,
    batches: usize,
    (workers, threads): (usize, usize),
    training_threads: usize,
) -> ScheduleShare {
    let candidate = &problem.routes[route];
    let d = match policy {
        Policy::Sequential => &candidate.durations.alone(),
        _ => &candidate.durations,
    };
    ScheduleShare {
        keys: candidate.keys.clone(),
        hardware: candidate.hardware.clone(),
        in_place: candidate.in_place,
        batches,
        workers,
        threads_per_worker: threads,
        batching: d.batching(workers, threads).scaled(workers as f64),
        transferring: d.transferring(),
        training: d.training().at(training_threads),
        contention: d.contention(workers, threads, training_threads),
    }
}

/// A schedule of `shares`, with buffers as large as the limits allow.
pub(crate) fn schedule(
    problem: &Problem,
    policy: Policy,
    shares: Vec<ScheduleShare>,
    training_threads: usize,
) -> Schedule {
    let limits = &problem.limits;
    let mut schedule = Schedule {
        policy,
        resources: problem.resources.clone(),
        shares,
        training_threads,
        batched: 0,
        ready: limits.ready.max(1),
        group: 0,
        keep: 0,
        oversubscription: limits.oversubscription,
        after_step: limits.after_step,
    };
    if schedule.shares.iter().all(|s| problem.exclusive(&s.hardware.training) == 0) {
        // Mini-batches in the workers of an in-place pool occupy slots of the ready buffer.
        schedule.ready += schedule.workers(true);
    }
    if schedule.workers(false) > 0 {
        // A device that samples for another one holds at most as many mini-batches as the training device's ready buffer: its
        // memory is small beside the host's, for which the batched buffer's capacity is meant.
        let apart = schedule.shares.iter().any(|s| s.batches_apart(&schedule.resources));
        let most = if apart { limits.batched.min(limits.ready) } else { limits.batched };
        schedule.batched = most.max(schedule.workers(false));
    }
    schedule
}

/// The same schedule with the durations that its routes have in `problem`; `None` where one is missing there.
pub(crate) fn with_durations(schedule: &Schedule, problem: &Problem) -> Option<Schedule> {
    let again = |old: &ScheduleShare| {
        let is_same = |c: &Candidate| c.keys == old.keys && c.hardware == old.hardware;
        let route = problem.routes.iter().position(is_same)?;
        let pool = (old.workers, old.threads_per_worker);
        Some(share(problem, schedule.policy, route, old.batches, pool, schedule.training_threads))
    };
    let shares = schedule.shares.iter().map(again).collect::<Option<_>>()?;
    Some(Schedule { shares, ..schedule.clone() })
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
    let seconds =
        |&(workers, threads): &(usize, usize)| problem.routes[route].durations.batching(workers, threads).mean;
    let mut pools = pools(problem, route);
    pools.sort_by_key(|(workers, threads)| workers * threads);
    pools.into_iter().min_by(|a, b| seconds(a).total_cmp(&seconds(b))).expect("there is a pool")
}
