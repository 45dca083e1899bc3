//! Which split of the cores to measure next.

use morphgl_plan::{Limits, Policy, Problem};

use crate::{Profile, RouteProfile};

/// Mini-batches that are planned to find out: the steady state counts, and planning is not to take long.
const BATCHES: usize = 500;
/// A route whose best plan is predicted to take this many times the best of all is not worth measuring.
const CLOSE: f64 = 1.15;

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
/// A split nobody measured is planned as if nothing slowed the phases: it is chosen as long as it could be the best.
/// So when the best one is a measured one, no other can be better.
pub(crate) fn next(profile: &Profile) -> Option<Split> {
    let problem = optimistic(profile)?;
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
        let wanted = plan.schedule.policy == Policy::Pipeline && split.training_threads > 0;
        (wanted && !split.of(&profile.routes[route])).then_some(split)
    })
}

/// The problem in which what was not measured is taken to be at its best.
fn optimistic(profile: &Profile) -> Option<Problem> {
    let measured = |r: &RouteProfile| {
        let durations = r.durations()?;
        let contention = r.contention(&durations);
        durations.with_together(contention)
    };
    let problem = profile.build(profile.settings.cores, measured).ok()?;
    let limits = Limits { crowding: 1.0, ..Limits::default() };
    Some(problem.with_batches(profile.num_batches.min(BATCHES)).with_limits(limits))
}
