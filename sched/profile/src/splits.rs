//! Which split of the cores to measure next.

use morphgl_plan::{Contention, InterferencePoint, Limits, Policy, Problem};

use crate::{Profile, RouteProfile};

/// Mini-batches that are planned to find out: the steady state counts, and planning is not to take long.
const BATCHES: usize = 500;
/// A route whose best plan is predicted to take this many times the best of all is not worth measuring.
const CLOSE: f64 = 1.15;
/// No more workers are tried than this many times those of the best plan as far as is known: each takes memory beside a
/// trainer that has its own, and a plan of many is found by way of those of fewer.
const MORE: usize = 2;

/// A route, and how its plan divides the cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Split {
    pub(crate) route: usize,
    pub(crate) workers: usize,
    pub(crate) threads: usize,
    pub(crate) training_threads: usize,
}

impl Split {
    fn of(&self, route: &RouteProfile) -> bool {
        let same = |t: &crate::TogetherSample| {
            (t.workers, t.threads, t.training_threads) == (self.workers, self.threads, self.training_threads)
        };
        route.together.iter().any(same)
    }
}

/// The split of the best plan of a promising route that was not measured yet; `None` when they all were.
///
/// A split nobody measured is planned as if nothing slowed the phases but what did with fewer workers: it is chosen as long
/// as it could be the best.
/// So when the best one is a measured one, no other can be better, but for one of more than [`MORE`] times its workers.
/// Workers and mini-batches take no more than `host_bytes`.
pub(crate) fn next(profile: &Profile, host_bytes: Option<u64>) -> Option<Split> {
    let cores = profile.settings.cores;
    let limits = Limits { host_bytes, ..Limits::default() };
    let known = limited(profile, profile.build(cores, RouteProfile::durations).ok()?).with_limits(limits);
    let known = morphgl_plan::plan(&known).ok()?;
    let most = MORE * known.best().schedule.shares.iter().map(|s| s.workers).max()?;
    let problem = optimistic(profile)?.with_limits(Limits { oversubscription: 1.0, ..limits });
    let plans = morphgl_plan::plan(&problem).ok()?;
    let worth = CLOSE * plans.best().prediction.epoch_seconds;
    plans.all().iter().filter(|p| p.prediction.epoch_seconds <= worth).find_map(|plan| {
        let [share] = &plan.schedule.shares[..] else { return None };
        let route = profile.routes.iter().position(|r| r.keys() == share.keys && r.shares_cores())?;
        let split = Split {
            route,
            workers: share.workers,
            threads: share.threads_per_worker,
            training_threads: plan.schedule.training_threads,
        };
        let wanted = plan.schedule.policy == Policy::Pipeline && split.training_threads > 0 && split.workers <= most;
        (wanted && !split.of(&profile.routes[route])).then_some(split)
    })
}

/// The problem in which what was not measured is taken to be at its best.
fn optimistic(profile: &Profile) -> Option<Problem> {
    let cores = profile.settings.cores;
    let measured = |r: &RouteProfile| {
        let durations = r.durations()?;
        let contention = with_more_workers(r.contention(&durations), cores);
        durations.with_interference(contention)
    };
    Some(limited(profile, profile.build(cores, measured).ok()?))
}

/// The problem of no more mini-batches than it takes to find out.
fn limited(profile: &Profile, problem: Problem) -> Problem {
    problem.with_batches(profile.num_batches.min(BATCHES))
}

/// Adds the splits that have more workers than one of `measured`, and else are like it: more workers slow training no less.
fn with_more_workers(measured: Vec<InterferencePoint>, cores: usize) -> Vec<InterferencePoint> {
    let counts = |t: &InterferencePoint| (t.workers, t.threads, t.training_threads);
    let mut all = measured.clone();
    for t in &measured {
        for workers in t.workers + 1..=cores / t.threads {
            let contention = Contention { batching: 1.0, training: t.contention.training };
            let more = InterferencePoint { workers, contention, ..*t };
            match all.iter_mut().find(|known| counts(known) == counts(&more)) {
                None => all.push(more),
                Some(known) if measured.iter().all(|m| counts(m) != counts(&more)) => {
                    known.contention.training = known.contention.training.max(contention.training);
                }
                Some(_) => {}
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_workers_slow_training_no_less() {
        let split = |workers, training| InterferencePoint {
            workers,
            threads: 1,
            training_threads: 3,
            contention: Contention { batching: 2.0, training },
        };
        let all = with_more_workers(vec![split(1, 1.2), split(3, 1.1)], 4);
        let training: Vec<_> =
            (1..=4).map(|w| all.iter().find(|t| t.workers == w).map(|t| t.contention.training)).collect();
        assert_eq!(training, [Some(1.2), Some(1.2), Some(1.1), Some(1.2)]);
        assert_eq!(all.len(), 4);
        assert_eq!(all.iter().find(|t| t.workers == 2).map(|t| t.contention.batching), Some(1.0));
    }
}
