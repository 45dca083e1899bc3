//! The search: candidates, their predictions, and the choice among them.

use crate::assemble::{pools, schedule, share};
use crate::bound::{of_set, sets};
use crate::memory::{self, DoesNotFit, memory};
use crate::simulate::{Simulation, simulate};
use crate::{Plan, Plans, Policy, Problem, Schedule, Strategy, mixes, paper, plan as plans};

/// Predicts every candidate worth it, and keeps the best of each strategy and set of routes.
///
/// Candidates are: each route sequential and as a pipeline, with every split of the cores between batching workers, their
/// threads and training (`workers · threads + training threads ≤ cores + extra_threads` where training runs on cores); the
/// paper's own plan for every pair of routes it is meant for; and [`Policy::Interleaved`] mixes of routes that have the same
/// training operator. A candidate that cannot beat the best of its kind, by a lower bound of its own, is not simulated.
/// All fit the memory limits.
///
/// # Errors
///
/// Nothing fits.
///
/// # Complexity
///
/// Some 10 to 100 simulations.
pub fn plan(problem: &Problem) -> Result<Plans, DoesNotFit> {
    let bound = crate::bound(problem);
    let mut found: Vec<(Strategy, Schedule, Simulation)> = Vec::new();
    let mut refused = Vec::new();
    for route in 0..problem.routes.len() {
        let pipelined =
            if problem.routes[route].on_device_batched(problem) { Strategy::Device } else { Strategy::Pipeline };
        let of = [(Strategy::Sequential, sequential(problem, route)), (pipelined, pipelines(problem, route))];
        for (strategy, schedules) in of {
            let fitting = schedules.iter().filter_map(|s| memory::fit(problem, s.clone()));
            let best = best(fitting.collect()).map(trim);
            refused.extend(schedules.into_iter().filter(|_| best.is_none()));
            found.extend(best.map(|(schedule, simulation)| (strategy, schedule, simulation)));
        }
    }
    let mut best = found.iter().map(|f| f.2.seconds).fold(f64::INFINITY, f64::min);
    for set in sets(problem).iter().filter(|set| set.len() > 1) {
        if let [a, b] = set[..] {
            found.extend(paper::plan(problem, a, b).map(|(s, simulation)| (Strategy::Paper, s, simulation)));
        }
        let (least, split) = of_set(problem, set);
        if least * mixes::CLOSE < best {
            let mixed = mixes::best(problem, set, &split, least);
            if let Some((schedule, simulation)) = mixed {
                best = best.min(simulation.seconds);
                found.push((Strategy::Interleaved, schedule, simulation));
            }
        }
    }
    if found.is_empty() {
        return Err(memory::least(problem, &refused));
    }
    let plan = |(strategy, schedule, simulation): (Strategy, Schedule, Simulation)| Plan {
        strategy,
        prediction: plans::of(&schedule, &simulation, bound),
        memory: memory(problem, &schedule),
        schedule,
    };
    Ok(Plans::new(found.into_iter().map(plan).collect()))
}

impl crate::Candidate {
    /// Whether batching holds a resource of training: Category II.
    pub(crate) fn on_device_batched(&self, problem: &Problem) -> bool {
        problem.exclusive(&self.hardware.batching) & problem.exclusive(&self.hardware.training) != 0
    }
}

/// The schedule with the least simulated time. Those whose own lower bound is not below it are not simulated.
fn best(schedules: Vec<Schedule>) -> Option<(Schedule, Simulation)> {
    let mut schedules: Vec<(f64, Schedule)> = schedules.into_iter().map(|s| (least(&s), s)).collect();
    schedules.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut best: Option<(Schedule, Simulation)> = None;
    for (least, schedule) in schedules {
        if best.as_ref().is_some_and(|(_, b)| least >= b.seconds) {
            break;
        }
        let simulation = simulate(&schedule);
        if best.as_ref().is_none_or(|(_, b)| simulation.seconds < b.seconds) {
            best = Some((schedule, simulation));
        }
    }
    best
}

/// The same schedule with the smallest buffers that do not make the epoch longer, and room for durations that vary.
fn trim((schedule, simulation): (Schedule, Simulation)) -> (Schedule, Simulation) {
    if schedule.policy != Policy::Pipeline {
        return (schedule, simulation);
    }
    let share = &schedule.shares[0];
    // As many more as training goes through while batching or training is late by two deviations.
    let period = simulation.seconds / schedule.num_batches().max(1) as f64;
    let late = 2.0 * share.batching.std.hypot(share.training.std);
    // The cast saturates.
    let spare = 1 + if period > 0.0 { (late / period).ceil() as usize } else { 0 };
    let enough = simulation.seconds * 1.001;
    let mut found = (schedule, simulation);
    let (in_place, workers) = (found.0.shares[0].in_place, found.0.shares[0].workers);
    let ready = |s: &Schedule, size| Schedule { ready: size, ..s.clone() };
    let batched = |s: &Schedule, size| Schedule { batched: size, ..s.clone() };
    found = shrink(found, if in_place { workers } else { 1 }, |s| s.ready, ready, (enough, spare));
    if in_place { found } else { shrink(found, workers, |s| s.batched, batched, (enough, spare)) }
}

/// One buffer as small as it can be, from `least` on, for the epoch to take `enough` seconds, and `spare` more.
fn shrink(
    found: (Schedule, Simulation),
    least: usize,
    size: fn(&Schedule) -> usize,
    with: impl Fn(&Schedule, usize) -> Schedule,
    (enough, spare): (f64, usize),
) -> (Schedule, Simulation) {
    let sizes = [0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48].map(|more| least + more);
    let mut smaller = sizes.into_iter().take_while(|s| s + spare < size(&found.0));
    match smaller.find(|&s| simulate(&with(&found.0, s)).seconds <= enough) {
        Some(s) => {
            let schedule = with(&found.0, s + spare);
            let simulation = simulate(&schedule);
            (schedule, simulation)
        }
        None => found,
    }
}

/// A lower bound of a schedule of one route, in seconds.
fn least(s: &Schedule) -> f64 {
    let share = &s.shares[0];
    let (b, t, m) = (share.batching.mean, share.transferring.mean, share.training.mean);
    let n = share.batches as f64;
    if n == 0.0 {
        return 0.0;
    }
    if s.policy == Policy::Sequential {
        return n * (b + t + m);
    }
    let rounds = share.batches.div_ceil(share.workers.max(1)) as f64;
    let held = |names: &[String], work: f64| if s.on_cores(names) { work } else { 0.0 };
    let work = held(&share.hardware.batching, share.threads_per_worker as f64 * b)
        + held(&share.hardware.transferring, t)
        + held(&share.hardware.training, s.training_threads as f64 * m);
    [rounds * b + t + m, b + n * t + m, b + t + n * m, n * work / s.cores() as f64].into_iter().fold(0.0, f64::max)
}

/// The sequential schedule: each phase with the number of threads at which it is fastest.
fn sequential(problem: &Problem, route: usize) -> Vec<Schedule> {
    let candidate = &problem.routes[route];
    let d = &candidate.durations;
    let counts = |names: &[String]| if problem.on_cores(names) { problem.cores() } else { 1 };
    let fastest = |most: usize, seconds: &dyn Fn(usize) -> f64| {
        (1..=most).reduce(|a, b| if seconds(b) < seconds(a) { b } else { a }).expect("there is a core")
    };
    let threads = fastest(counts(&candidate.hardware.batching), &|p| d.batching(1, p).mean);
    let training = fastest(counts(&candidate.hardware.training), &|t| d.training().at(t).mean);
    let training_threads = if problem.on_cores(&candidate.hardware.training) { training } else { 0 };
    let share = share(problem, route, problem.num_batches, (1, threads), training_threads);
    let mut s = schedule(problem, Policy::Sequential, vec![share], training_threads);
    (s.batched, s.ready) = (s.batched.min(1), 1);
    vec![s]
}

/// Pipelines with every split of the cores between batching workers, their threads, and training.
fn pipelines(problem: &Problem, route: usize) -> Vec<Schedule> {
    let hardware = &problem.routes[route].hardware;
    let (cores, extra) = (problem.cores(), problem.limits.extra_threads);
    let training_on_cores = problem.on_cores(&hardware.training);
    let mut found = Vec::new();
    for (workers, threads) in pools(problem, route) {
        let most = match training_on_cores {
            true => {
                (cores + extra).saturating_sub(if problem.on_cores(&hardware.batching) { workers * threads } else { 0 })
            }
            false => 0,
        };
        for training_threads in usize::from(training_on_cores)..=most.min(cores) {
            let share = share(problem, route, problem.num_batches, (workers, threads), training_threads);
            found.push(schedule(problem, Policy::Pipeline, vec![share], training_threads));
        }
    }
    // Of plans that are predicted the same, the one with the fewest threads comes first.
    found.sort_by_key(|s| s.shares[0].workers * s.shares[0].threads_per_worker + s.training_threads);
    found
}
