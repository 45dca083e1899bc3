//! The candidates, and what is predicted of each.

use serde::{Deserialize, Serialize};

use crate::{Durations, Plan, Plans, RouteKeys, Schedule, predict};

/// What a plan may use.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Longest queue, in mini-batches. Default 16.
    pub max_queue: usize,
    /// Threads a plan may have beyond the cores. Default 1.
    pub extra_threads: usize,
    /// How much longer core-seconds get when threads outnumber the cores, as a factor from 1. Default 1.1.
    pub crowding: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_queue: 16, extra_threads: 1, crowding: 1.1 }
    }
}

/// One route whose phases share the cores of one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Problem {
    /// The operators, for the plan to name.
    pub route: RouteKeys,
    /// Mini-batches of an epoch.
    pub num_batches: usize,
    /// Cores; 0 counts as 1.
    pub cores: usize,
    /// How long each phase takes.
    pub durations: Durations,
    /// What a plan may use.
    pub limits: Limits,
}

/// Predicts every candidate and sorts them.
///
/// Candidates are: sequential with all cores in every phase, and with the counts of threads at which each phase is fastest;
/// pipelines of all splits `workers · threads a worker + training threads ≤ cores + extra_threads`,
/// for every count of threads a worker that was measured.
///
/// # Complexity
///
/// O(cores² · log cores) for each measured count of threads a worker, however many mini-batches there are.
pub fn plan(problem: &Problem) -> Plans {
    let mut schedules = sequential(problem);
    schedules.extend(pipelines(problem));
    let plans = schedules.into_iter().map(|schedule| {
        let prediction = predict(problem, &schedule);
        Plan { route: problem.route.clone(), num_batches: problem.num_batches, schedule, prediction }
    });
    Plans::new(plans.collect())
}

fn sequential(problem: &Problem) -> Vec<Schedule> {
    let (cores, d) = (problem.cores.max(1), &problem.durations);
    let fastest = |seconds: &dyn Fn(usize) -> f64| {
        let least = |a, b| if seconds(b) < seconds(a) { b } else { a };
        (1..=cores).reduce(least).expect("there is a core")
    };
    let all = Schedule::sequential(cores);
    let best = Schedule {
        threads_per_worker: fastest(&|p| d.batching(1, p).mean),
        training_threads: fastest(&|t| d.training().at(t).mean),
        ..all
    };
    if best == all { vec![all] } else { vec![best, all] }
}

fn pipelines(problem: &Problem) -> Vec<Schedule> {
    let cores = problem.cores.max(1);
    let allowed = cores + problem.limits.extra_threads;
    let mut found = Vec::new();
    for threads in problem.durations.threads_per_worker().filter(|&p| p <= cores) {
        for workers in (1..=problem.num_batches.clamp(1, cores)).take_while(|w| w * threads < allowed) {
            for training_threads in 1..=(allowed - workers * threads).min(cores) {
                let schedule =
                    Schedule { threads_per_worker: threads, ..Schedule::pipeline(workers, training_threads) };
                found.push(Schedule { queue: queue(problem, &schedule), ..schedule });
            }
        }
    }
    // Of plans that are predicted the same, the one with the fewest threads comes first.
    found.sort_by_key(|s| s.workers * s.threads_per_worker + s.training_threads);
    found
}

/// Two mini-batches, and as many more as training goes through while batching or training is late by two deviations.
fn queue(problem: &Problem, schedule: &Schedule) -> usize {
    let d = &problem.durations;
    let latency = schedule.workers as f64 * d.batching(schedule.workers, schedule.threads_per_worker).std;
    let late = 2.0 * latency.hypot(d.training().at(schedule.training_threads).std);
    let period = predict(problem, schedule).period_seconds;
    let more = if period > 0.0 { (late / period).ceil() } else { 0.0 };
    // The cast saturates.
    2usize.saturating_add(more as usize).min(problem.limits.max_queue).min(problem.num_batches).max(1)
}
