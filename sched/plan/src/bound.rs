//! The lower bound of an epoch.

use crate::lp::{self, Row};
use crate::runs::{Line, lines};
use crate::{Candidate, Problem};

/// A lower bound of the seconds of any schedule of the problem.
///
/// The minimum over all sets of routes that can run at once (one training operator, no batching operator twice) of a linear
/// program's makespan. In it mini-batches are divided fractionally, and each resource is busy from the earliest time any phase can
/// need it to the latest time that leaves room for the phases after it. Where a route holds bus and device at once, the time lost
/// between its groups counts too. Durations are the minimum over all measured counts of workers and threads.
///
/// # Complexity
///
/// O(sets of routes · resources^routes); sets have at most 4 routes.
pub fn bound(problem: &Problem) -> f64 {
    if problem.num_batches == 0 {
        return 0.0;
    }
    sets(problem).iter().map(|set| of_set(problem, set).0).fold(f64::INFINITY, f64::min)
}

/// The sets of routes that a schedule can use, single routes first.
pub(crate) fn sets(problem: &Problem) -> Vec<Vec<usize>> {
    let routes = &problem.routes;
    let mut found: Vec<Vec<usize>> = (0..routes.len()).map(|r| vec![r]).collect();
    let mut from = 0;
    while from < found.len() {
        let set = found[from].clone();
        from += 1;
        if set.len() >= problem.num_batches.min(4) {
            continue;
        }
        let last = *set.last().expect("a set has a route");
        for next in last + 1..routes.len() {
            let fits = |&r: &usize| {
                let (a, b) = (&routes[r].keys, &routes[next].keys);
                a.training == b.training && a.batching != b.batching
            };
            if set.iter().all(fits) {
                found.push([&set[..], &[next]].concat());
            }
        }
    }
    found
}

/// The bound of schedules that use every route of `set`, and the division of the mini-batches that reaches it.
pub(crate) fn of_set(problem: &Problem, set: &[usize]) -> (f64, Vec<f64>) {
    let n = problem.num_batches as f64;
    let routes: Vec<&Candidate> = set.iter().map(|&r| &problem.routes[r]).collect();
    // Minimum seconds of each route's phases for a single mini-batch.
    let alone: Vec<[f64; 3]> = routes
        .iter()
        .map(|r| [r.durations.least_latency(), r.durations.transferring().mean, r.durations.training().least()])
        .collect();
    let mut rows = Vec::new();
    for (i, resource) in problem.resources.iter().enumerate() {
        let held = |r: &Candidate| {
            let h = &r.hardware;
            [&h.batching, &h.transferring, &h.training].map(|names| names.contains(&resource.name))
        };
        let used: Vec<[bool; 3]> = routes.iter().map(|r| held(r)).collect();
        if !used.iter().flatten().any(|&u| u) {
            continue;
        }
        let (mut head, mut tail) = (f64::INFINITY, f64::INFINITY);
        for (used, seconds) in used.iter().zip(&alone) {
            for phase in (0..3).filter(|&p| used[p]) {
                head = head.min(seconds[..phase].iter().sum());
                tail = tail.min(seconds[phase + 1..].iter().sum());
            }
        }
        let load = |(r, used): (&&Candidate, &[bool; 3])| {
            let d = &r.durations;
            let shared = problem.resources[i].cores.is_some();
            let work = match shared {
                true => [d.least_batching_work(), d.transferring().mean, d.training().least_work()],
                false => [d.least_batching(), d.transferring().mean, d.training().least()],
            };
            (0..3).filter(|&p| used[p]).map(|p| work[p]).sum::<f64>() / resource.cores.unwrap_or(1) as f64
        };
        // Cores may do other work at the ends of the epoch, so a resource with cores has no constant.
        let ends = if resource.cores.is_some() { 0.0 } else { head + tail };
        rows.push(Row { load: routes.iter().zip(&used).map(load).collect(), constant: ends });
    }
    for (i, (route, seconds)) in routes.iter().zip(&alone).enumerate() {
        let d = &route.durations;
        let only = |x: f64| (0..routes.len()).map(|r| if r == i { x } else { 0.0 }).collect();
        rows.push(Row { load: only(d.least_batching()), constant: seconds[1] + seconds[2] });
        rows.push(Row { load: only(d.transferring().mean), constant: seconds[0] + seconds[2] });
    }
    let fill = alone.iter().map(|s| s[0] + s[1]).fold(f64::INFINITY, f64::min);
    rows.push(Row { load: alone.iter().map(|s| s[2]).collect(), constant: fill });
    rows.extend(runs(problem, &routes));
    lp::least(&rows, n)
}

/// Rows for the time lost between groups of joint routes, if streamed transfers and training cannot run during a group.
fn runs(problem: &Problem, routes: &[&Candidate]) -> Vec<Row> {
    let held = |names: &[String]| problem.exclusive(names);
    let device = held(&routes[0].hardware.training);
    let joint = |r: &&Candidate| held(&r.hardware.batching) & held(&r.hardware.transferring) & device != 0;
    let (joined, streamed): (Vec<&Candidate>, Vec<&Candidate>) = routes.iter().partition(|r| joint(r));
    let common = |routes: &[&Candidate], names: &dyn Fn(&Candidate) -> u32| {
        routes.iter().map(|r| names(r)).fold(u32::MAX, |a, b| a & b)
    };
    let bus = common(&joined, &|r| held(&r.hardware.batching) & held(&r.hardware.transferring))
        & common(&streamed, &|r| held(&r.hardware.transferring));
    let least = |routes: &[&Candidate], seconds: &dyn Fn(&Candidate) -> f64| {
        routes.iter().map(|r| seconds(r)).fold(f64::INFINITY, f64::min)
    };
    let transfer = least(&streamed, &|r| r.durations.transferring().mean);
    let step = least(routes, &|r| r.durations.training().least());
    if joined.is_empty() || streamed.is_empty() || bus == 0 || !(transfer > 0.0 && step > 0.0) {
        return Vec::new();
    }
    let load = |line: Line| {
        let of = |r: &&Candidate| match joint(r) {
            true => line.step + r.durations.least_batching() + r.durations.transferring().mean,
            false => line.step + line.transfer,
        };
        Row { load: routes.iter().map(of).collect(), constant: 0.0 }
    };
    let mut lines = lines(transfer, step, problem.limits.ready.max(1));
    if routes.len() > 2 {
        // With many routes the program would have too many vertices.
        lines.drain(..lines.len() - 1);
    }
    lines.into_iter().map(load).collect()
}
