//! The lower bound of an epoch.

use morphgl_registry::Phase;

use crate::assemble::pools;
use crate::lp::{self, Row};
use crate::runs::{Line, lines};
use crate::{Candidate, Problem};

/// A lower bound of the seconds of any schedule of the problem in which a pool has no more threads than there are cores, and no more
/// workers than mini-batches.
///
/// The minimum over all sets of routes that can run at once (one training operator, no batching operator twice) of a linear
/// program's makespan, with every cache as large as the host's limit allows. In it mini-batches are divided fractionally, and each
/// resource is busy from the earliest time any phase can need it to the latest time that leaves enough for the phases after it. Where a
/// route holds bus and device at once, the time lost between its groups counts too. Durations are the minimum over all measured counts
/// of workers and threads.
///
/// # Complexity
///
/// O(sets of routes · resources^routes); sets have at most 4 routes.
pub fn bound(problem: &Problem) -> f64 {
    if problem.num_batches == 0 {
        return 0.0;
    }
    let problem = &problem.with_largest_caches();
    sets(problem).iter().map(|set| of_set(problem, set).0).fold(f64::INFINITY, f64::min)
}

/// The sets of routes that a schedule can use, single routes first.
pub(crate) fn sets(problem: &Problem) -> Vec<Vec<usize>> {
    let keys = |route: usize| &problem.routes[route].keys;
    let mut sets: Vec<Vec<usize>> = (0..problem.routes.len()).map(|r| vec![r]).collect();
    let mut next = 0;
    while let Some(set) = sets.get(next).cloned() {
        next += 1;
        if set.len() >= problem.num_batches.min(4) {
            continue;
        }
        for added in set[set.len() - 1] + 1..problem.routes.len() {
            let fits =
                |&r: &usize| keys(r).training == keys(added).training && keys(r).batching != keys(added).batching;
            if set.iter().all(fits) {
                sets.push([&set[..], &[added]].concat());
            }
        }
    }
    sets
}

/// The bound of schedules that use every route of `set`, and the division of the mini-batches that reaches it.
pub(crate) fn of_set(problem: &Problem, set: &[usize]) -> (f64, Vec<f64>) {
    lp::min_makespan(&rows_of(problem, set), problem.num_batches as f64)
}

/// The rows of the linear program of schedules that use every route of `set`.
pub(crate) fn rows_of(problem: &Problem, set: &[usize]) -> Vec<Row> {
    let all_reduce = problem.limits.after_step;
    let routes: Vec<&Candidate> = set.iter().map(|&r| &problem.routes[r]).collect();
    // Minimum seconds of each route's phases for a single mini-batch.
    let alone: Vec<[f64; 3]> = routes
        .iter()
        .map(|r| [r.durations.min_latency(), r.durations.transferring().mean, r.durations.training().min()])
        .collect();
    let mut rows = Vec::new();
    for resource in &problem.resources {
        let held: Vec<[bool; 3]> =
            routes.iter().map(|r| Phase::ALL.map(|phase| r.hardware[phase].contains(&resource.name))).collect();
        if !held.iter().flatten().any(|&h| h) {
            continue;
        }
        let (mut head, mut tail) = (f64::INFINITY, f64::INFINITY);
        let holds_all_reduce = resource.cores.is_none() && !resource.queued;
        for (held, seconds) in held.iter().zip(&alone) {
            for phase in (0..3).filter(|&p| held[p]) {
                let holds = phase == 2 && holds_all_reduce;
                head = head.min(seconds[..phase].iter().sum());
                tail = tail.min(seconds[phase + 1..].iter().sum::<f64>() + if holds { 0.0 } else { all_reduce });
            }
        }
        let load = |(route, held): (&&Candidate, &[bool; 3])| {
            let d = &route.durations;
            let work = match resource.cores {
                Some(_) => [d.min_batching_work(), d.transferring().mean, d.training().min_work()],
                None => {
                    let held = if holds_all_reduce { all_reduce } else { 0.0 };
                    [d.min_batching(), d.transferring().mean, d.training().min() + held]
                }
            };
            (0..3).filter(|&p| held[p]).map(|p| work[p]).sum::<f64>() / resource.cores.unwrap_or(1) as f64
        };
        // Cores may do other work at the ends of the epoch, so a resource with cores has no constant.
        let ends = if resource.cores.is_some() { 0.0 } else { head + tail };
        rows.push(Row { load: routes.iter().zip(&held).map(load).collect(), constant: ends });
    }
    for (i, (route, seconds)) in routes.iter().zip(&alone).enumerate() {
        let only = |x: f64| (0..routes.len()).map(|r| if r == i { x } else { 0.0 }).collect();
        rows.push(Row { load: only(route.durations.min_batching()), constant: seconds[1] + seconds[2] + all_reduce });
        rows.push(Row {
            load: only(route.durations.transferring().mean),
            constant: seconds[0] + seconds[2] + all_reduce,
        });
    }
    if let [route] = set[..] {
        let [_, transferring, training] = alone[0];
        let ends = transferring + training + all_reduce;
        rows.push(Row { load: vec![0.0], constant: rounds(problem, route) + ends });
    }
    let fill = alone.iter().map(|s| s[0] + s[1]).fold(f64::INFINITY, f64::min);
    rows.push(Row { load: alone.iter().map(|s| s[2] + all_reduce).collect(), constant: fill });
    rows.extend(runs(problem, &routes, 0.0));
    if all_reduce > 0.0 {
        rows.extend(runs(problem, &routes, all_reduce));
    }
    rows
}

/// Seconds for which batching and transferring of a route hold the device that trains; 0 where they hold none.
pub(crate) fn joint_seconds(problem: &Problem, route: &Candidate) -> [f64; 2] {
    let training = problem.exclusive(&route.hardware.training);
    let phases =
        [(Phase::Batching, route.durations.min_batching()), (Phase::Transferring, route.durations.transferring().mean)];
    phases.map(|(phase, seconds)| if problem.exclusive(&route.hardware[phase]) & training == 0 { 0.0 } else { seconds })
}

/// Minimum seconds in which a pool of the route batches all mini-batches, each worker whole ones.
fn rounds(problem: &Problem, route: usize) -> f64 {
    let (durations, n) = (&problem.routes[route].durations, problem.num_batches);
    let of_pool = |(workers, threads): (usize, usize)| {
        n.div_ceil(workers) as f64 * workers as f64 * durations.batching(workers, threads).mean
    };
    // A sequential schedule has one worker, which may have other counts of threads.
    let sequential = n as f64 * durations.min_latency();
    pools(problem, route).into_iter().map(of_pool).fold(sequential, f64::min)
}

/// Rows for the time lost between groups of joint routes, if streamed transfers and training cannot run during a group; with so many
/// seconds after each step until the next.
fn runs(problem: &Problem, routes: &[&Candidate], after_step: f64) -> Vec<Row> {
    let held = |route: &Candidate, phase: Phase| problem.exclusive(&route.hardware[phase]);
    let batch_and_gather = |r: &Candidate| held(r, Phase::Batching) & held(r, Phase::Transferring);
    let is_joint = |r: &Candidate| batch_and_gather(r) & held(routes[0], Phase::Training) != 0;
    let (joint, streamed): (Vec<&Candidate>, Vec<&Candidate>) = routes.iter().partition(|r| is_joint(r));
    let bus = joint.iter().map(|r| batch_and_gather(r)).fold(u32::MAX, |a, b| a & b)
        & streamed.iter().map(|r| held(r, Phase::Transferring)).fold(u32::MAX, |a, b| a & b);
    let transfer = streamed.iter().map(|r| r.durations.transferring().mean).fold(f64::INFINITY, f64::min);
    let step = after_step + routes.iter().map(|r| r.durations.training().min()).fold(f64::INFINITY, f64::min);
    if joint.is_empty() || streamed.is_empty() || bus == 0 || !(transfer > 0.0 && step > 0.0) {
        return Vec::new();
    }
    let row = |line: Line| {
        let load = |r: &&Candidate| match is_joint(r) {
            // A group can begin while the all-reduce of the run's last step is under way.
            true => line.step + r.durations.min_batching() + r.durations.transferring().mean - after_step,
            false => line.step + line.transfer,
        };
        Row { load: routes.iter().map(load).collect(), constant: 0.0 }
    };
    let mut lines = lines(transfer, step, problem.limits.ready.max(1));
    if routes.len() > 2 {
        // With many routes the program would have too many vertices.
        lines.drain(..lines.len() - 1);
    }
    lines.into_iter().map(row).collect()
}
