//! The search: candidates, their predictions, and the choice among them.

use crate::assemble::{pools, schedule, share};
use crate::bound::{of_set, sets};
use crate::memory::{self, DoesNotFit, memory};
use crate::simulate::{Simulation, simulate, simulated};
use crate::{Plan, Plans, Policy, Problem, Schedule, Strategy, mixes, paper, plan as plans, sizes};

/// Predicts every candidate worth it, and keeps the best of each strategy and set of routes.
///
/// Candidates are: each route sequential and as a pipeline, with every split of the cores between batching workers, their
/// threads and training (`workers · threads + training threads ≤ cores + extra_threads` where training runs on cores); the
/// paper's own plan for every pair of routes it is meant for; and [`Policy::Interleaved`] mixes of routes that have the same
/// training operator. A candidate that cannot beat the best of its kind, by a lower bound of its own, is not simulated.
/// All fit the memory limits.
///
/// All plans have the same sizes of caches: those with which the best of them is shortest, or as profiled where others would
/// save less than 2% of the epoch, or less over the limits' epochs than building the caches again takes. Without a limit of its
/// memory a cache stays as profiled.
///
/// # Errors
///
/// Nothing fits.
///
/// # Complexity
///
/// Some 10 to 100 simulations; for a cache whose size is chosen, as many for each of up to 18 sizes whose own bound is below the
/// best so far.
pub fn plan(problem: &Problem) -> Result<Plans, DoesNotFit> {
    sizes::choose(problem, |resized| search(problem, resized))
}

/// The best plans of `problem` with its caches as they are; they state the sizes of the caches of `profiled`, too.
fn search(profiled: &Problem, problem: &Problem) -> Result<Plans, DoesNotFit> {
    let bound = crate::bound(&problem.settled(&[]));
    let mut found: Vec<(Strategy, (Schedule, Simulation))> = Vec::new();
    let mut too_large = Vec::new();
    for (route, candidate) in problem.routes.iter().enumerate() {
        let pipelined = if candidate.is_batched_by_device(problem) { Strategy::Device } else { Strategy::Pipeline };
        let candidates =
            [(Strategy::Sequential, vec![sequential(problem, route)]), (pipelined, pipelines(problem, route))];
        for (strategy, schedules) in candidates {
            let fitting = schedules.iter().filter_map(|s| memory::fit(problem, s.clone()));
            match best(fitting.collect()) {
                Some(best) => found.push((strategy, trim(best))),
                None => too_large.extend(schedules),
            }
        }
    }
    let mut best = found.iter().map(|f| f.1.1.seconds).fold(f64::INFINITY, f64::min);
    for set in sets(problem).iter().filter(|set| set.len() > 1) {
        if let [a, b] = set[..] {
            found.extend(paper::plan(problem, a, b).map(|plan| (Strategy::Paper, plan)));
        }
        let (bound, split) = of_set(problem, set);
        if bound * mixes::CLOSE < best
            && let Some(mix) = mixes::best(problem, set, &split, bound)
        {
            best = best.min(mix.1.seconds);
            found.push((Strategy::Interleaved, mix));
        }
    }
    if found.is_empty() {
        return Err(memory::does_not_fit(problem, &too_large));
    }
    let plan = |(strategy, (schedule, simulation)): (Strategy, (Schedule, Simulation))| {
        let mut prediction = plans::prediction(&schedule, &simulation, bound);
        prediction.epoch_seconds += problem.limits.overhead;
        let (memory, caches) = (memory(problem, &schedule), sizes::of_schedule(profiled, problem, &schedule));
        Plan { strategy, prediction, memory, caches, schedule }
    };
    Ok(Plans::new(found.into_iter().map(plan).collect()))
}

impl crate::Candidate {
    /// Whether batching holds a resource of training: Category II.
    pub(crate) fn is_batched_by_device(&self, problem: &Problem) -> bool {
        problem.exclusive(&self.hardware.batching) & problem.exclusive(&self.hardware.training) != 0
    }

    /// As [`ScheduleShare::batches_apart`](crate::ScheduleShare::batches_apart).
    pub(crate) fn batches_apart(&self, problem: &Problem) -> bool {
        !self.in_place && !problem.on_cores(&self.hardware.batching)
    }
}

/// The schedule with the minimum simulated time. Those whose own lower bound is not below it are not simulated.
fn best(schedules: Vec<Schedule>) -> Option<(Schedule, Simulation)> {
    let mut schedules: Vec<(f64, Schedule)> = schedules.into_iter().map(|s| (lower_bound(&s), s)).collect();
    schedules.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut best: Option<(Schedule, Simulation)> = None;
    for (bound, schedule) in schedules {
        if best.as_ref().is_some_and(|b| bound >= b.1.seconds) {
            break;
        }
        let found = simulated(schedule);
        if best.as_ref().is_none_or(|b| found.1.seconds < b.1.seconds) {
            best = Some(found);
        }
    }
    best
}

/// The same schedule with the smallest buffers that do not make the epoch longer, and some more for durations that vary.
fn trim((schedule, simulation): (Schedule, Simulation)) -> (Schedule, Simulation) {
    if schedule.policy != Policy::Pipeline {
        return (schedule, simulation);
    }
    let share = &schedule.shares[0];
    let (in_place, workers) = (share.in_place, share.workers);
    // Spare slots: as many mini-batches as training consumes while batching or training is late by two standard
    // deviations.
    let period = simulation.seconds / schedule.num_batches().max(1) as f64;
    let late = 2.0 * share.batching.std.hypot(share.training.std);
    // The cast saturates.
    let spare = 1 + if period > 0.0 { (late / period).ceil() as usize } else { 0 };
    let enough = simulation.seconds * 1.001;
    let min_ready = if in_place { workers } else { 1 };
    let found = shrink((schedule, simulation), min_ready, |s| &mut s.ready, (enough, spare));
    if in_place { found } else { shrink(found, workers, |s| &mut s.batched, (enough, spare)) }
}

/// One buffer as small as it can be, from `min` on, for the epoch to take `enough` seconds, and `spare` slots more.
fn shrink(
    (schedule, simulation): (Schedule, Simulation),
    min: usize,
    buffer: fn(&mut Schedule) -> &mut usize,
    (enough, spare): (f64, usize),
) -> (Schedule, Simulation) {
    let with = |size: usize| {
        let mut smaller = schedule.clone();
        *buffer(&mut smaller) = size;
        smaller
    };
    let size = *buffer(&mut schedule.clone());
    let sizes = [0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48].map(|more| min + more);
    let mut smaller = sizes.into_iter().take_while(|s| s + spare < size);
    match smaller.find(|&s| simulate(&with(s)).seconds <= enough) {
        Some(s) => simulated(with(s + spare)),
        None => (schedule, simulation),
    }
}

/// A lower bound of a schedule of one route, in seconds.
pub(crate) fn lower_bound(s: &Schedule) -> f64 {
    let share = &s.shares[0];
    let [b, t, m] = share.seconds().map(|s| s.mean);
    let n = share.batches as f64;
    if n == 0.0 {
        return 0.0;
    }
    if s.policy == Policy::Sequential {
        return n * (b + t + m);
    }
    let rounds = share.batches.div_ceil(share.workers.max(1)) as f64;
    let work: f64 = s.threads_on_cores(share).iter().zip([b, t, m]).map(|(&threads, s)| threads as f64 * s).sum();
    let cores = crate::problem::cores(&s.resources) as f64;
    [rounds * b + t + m, b + n * t + m, b + t + n * m, n * work / cores].into_iter().fold(0.0, f64::max)
}

/// The sequential schedule: each phase with the number of threads at which it is fastest.
fn sequential(problem: &Problem, route: usize) -> Schedule {
    let candidate = &problem.routes[route];
    let d = &candidate.durations;
    let training_on_cores = problem.on_cores(&candidate.hardware.training);
    let fastest = |on_cores: bool, seconds: &dyn Fn(usize) -> f64| {
        let counts = 1..=if on_cores { problem.cores() } else { 1 };
        counts.reduce(|a, b| if seconds(b) < seconds(a) { b } else { a }).expect("there is a core")
    };
    let threads = fastest(problem.on_cores(&candidate.hardware.batching), &|p| d.batching(1, p).mean);
    let training_threads = if training_on_cores { fastest(true, &|t| d.training().at(t).mean) } else { 0 };
    let share = share(problem, Policy::Sequential, route, problem.num_batches, (1, threads), training_threads);
    let s = schedule(problem, Policy::Sequential, vec![share], training_threads);
    Schedule { batched: s.batched.min(1), ready: 1, ..s }
}

/// Pipelines with every split of the cores between batching workers, their threads, and training.
pub(crate) fn pipelines(problem: &Problem, route: usize) -> Vec<Schedule> {
    let hardware = &problem.routes[route].hardware;
    let threads = problem.cores() + problem.limits.extra_threads;
    let mut found = Vec::new();
    for pool in pools(problem, route) {
        let batching = if problem.on_cores(&hardware.batching) { pool.0 * pool.1 } else { 0 };
        let training = match problem.on_cores(&hardware.training) {
            true => 1..=threads.saturating_sub(batching).min(problem.cores()),
            false => 0..=0,
        };
        for training_threads in training {
            let share = share(problem, Policy::Pipeline, route, problem.num_batches, pool, training_threads);
            found.push(schedule(problem, Policy::Pipeline, vec![share], training_threads));
        }
    }
    // Of plans that are predicted the same, the one with the fewest threads comes first.
    found.sort_by_key(|s| s.shares[0].workers * s.shares[0].threads_per_worker + s.training_threads);
    found
}
