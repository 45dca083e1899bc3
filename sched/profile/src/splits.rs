//! The choice of the split of the cores to measure next.

use morphgl_plan::{Contention, InterferencePoint, Limits, Policy, Problem};

use crate::problem::counts;
use crate::profile::Counts;
use crate::{Profile, RouteProfile};

/// Maximum number of mini-batches of the planned epoch: enough for its steady state, and quickly planned.
const BATCHES: usize = 500;
/// Factor to the best plan's predicted epoch within which a route's best plan is worth measuring.
const CLOSE: f64 = 1.15;
/// Factor to the workers of the best known plan up to which more workers are tried: each takes memory besides a trainer that has
/// its own, and plans of many workers are reached by way of those of fewer.
const MORE: usize = 2;

/// The unmeasured split of the best plan of a promising route, with the route's index; `None` when the best plans' splits are all
/// measured.
///
/// An unmeasured split is planned as if the phases slowed each other no more than with fewer workers: it is chosen as long as it
/// could be the best. So when the best plan's split is a measured one, no other can be better, except those of more than [`MORE`]
/// times its workers.
/// Workers and mini-batches take no more than `host_bytes`.
pub(crate) fn next(profile: &Profile, host_bytes: Option<u64>) -> Option<(usize, Counts)> {
    let cores = profile.settings.cores;
    let limits = Limits { host_bytes, ..Limits::default() };
    let limited = |problem: Problem| problem.with_batches(profile.num_batches.min(BATCHES));
    let known = limited(profile.build(cores, RouteProfile::durations).ok()?).with_limits(limits);
    let known = morphgl_plan::plan(&known).ok()?;
    let most = MORE * known.best().schedule.shares.iter().map(|s| s.workers).max()?;
    let optimistic = profile.build(cores, |r| {
        let durations = r.durations()?;
        let contention = with_more_workers(r.contention(&durations), cores);
        durations.with_interference(contention)
    });
    let optimistic = limited(optimistic.ok()?).with_limits(Limits { oversubscription: 1.0, ..limits });
    let plans = morphgl_plan::plan(&optimistic).ok()?;
    let worth = CLOSE * plans.best().prediction.epoch_seconds;
    plans.all().iter().filter(|p| p.prediction.epoch_seconds <= worth).find_map(|plan| {
        let [share] = &plan.schedule.shares[..] else { return None };
        let route = profile.routes.iter().position(|r| r.keys() == share.keys && r.shares_cores())?;
        let split = (share.workers, share.threads_per_worker, plan.schedule.training_threads);
        let wanted = plan.schedule.policy == Policy::Pipeline && split.2 > 0 && split.0 <= most;
        let measured = profile.routes[route].interference.iter().any(|s| s.counts() == split);
        (wanted && !measured).then_some((route, split))
    })
}

/// Adds to each of the `measured` splits those with more workers, which are assumed to slow training at least as much.
fn with_more_workers(measured: Vec<InterferencePoint>, cores: usize) -> Vec<InterferencePoint> {
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
mod tests;
