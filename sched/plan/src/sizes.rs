//! The sizes of caches, chosen with the plan: a larger cache, or more workers and larger buffers.

use crate::memory::{DoesNotFit, Memory};
use crate::{Cache, CacheSize, Plans, Problem, Schedule, bound};

/// Fraction of the epoch that other sizes than the profiled ones must save.
const GAIN: f64 = 0.02;
/// Tolerance of ties: another size is better only if its epoch is below this factor times the shortest one so far.
const BETTER: f64 = 0.999;

/// The plans that `plan` makes of the problem with caches as profiled, or with the sizes of the shortest epoch, where that
/// saves at least [`GAIN`] of it and, over the epochs of the limits, more than building the caches again.
///
/// Sizes are tried evenly from the smallest of the curve to the largest within the limit, and then what the best plan leaves.
/// Several caches are sized one after the other.
pub(crate) fn choose(
    problem: &Problem,
    plan: impl Fn(&Problem) -> Result<Plans, DoesNotFit>,
) -> Result<Plans, DoesNotFit> {
    let profiled = plan(problem);
    let mut best = (problem.clone(), profiled.clone());
    for cache in problem.caches.iter().filter(|c| c.is_resizable()) {
        // Without a limit there is nothing to divide.
        let Some(limit) = problem.limits.of(cache.memory) else { continue };
        let base = best.0.clone();
        let attempt = |bytes: u64, best: &mut (Problem, Result<Plans, DoesNotFit>)| {
            let resized = base.resized(&cache.operator, bytes);
            if bound(&resized) < BETTER * seconds(&best.1) {
                let found = plan(&resized);
                if is_better(&found, &best.1) {
                    *best = (resized, found);
                }
            }
        };
        cache.sizes(limit).into_iter().for_each(|bytes| attempt(bytes, &mut best));
        if let (Ok(plans), Some(most)) = (&best.1, cache.curve.points.last()) {
            let size = best.0.caches.iter().find(|c| c.operator == cache.operator).map_or(0, |c| c.curve.bytes);
            let rest = limit.saturating_sub(plans.best().memory.all(cache.memory));
            attempt(size.saturating_add(rest).min(most.bytes), &mut best);
        }
    }
    let (_, best) = best;
    match (&profiled, &best) {
        (Ok(before), Ok(after)) if !pays(problem, before, after) => profiled,
        _ => best,
    }
}

/// Predicted seconds of the best plan; infinite where none fits.
fn seconds(plans: &Result<Plans, DoesNotFit>) -> f64 {
    plans.as_ref().map_or(f64::INFINITY, |plans| plans.best().prediction.epoch_seconds)
}

/// Whether the plans have a shorter epoch; of problems that do not fit, whether the memory needed is less.
fn is_better(found: &Result<Plans, DoesNotFit>, best: &Result<Plans, DoesNotFit>) -> bool {
    match (found, best) {
        (Err(found), Err(best)) => all(&found.minimum) < all(&best.minimum),
        _ => seconds(found) < BETTER * seconds(best),
    }
}

fn all(memory: &Memory) -> u64 {
    memory.all_host().saturating_add(memory.all_device())
}

/// Whether the other sizes are worth building the caches again.
fn pays(problem: &Problem, before: &Plans, after: &Plans) -> bool {
    let [before, after] = [before, after].map(Plans::best);
    let gain = before.prediction.epoch_seconds - after.prediction.epoch_seconds;
    let is_built = |c: &&Cache| after.caches.iter().any(|s| s.operator == c.operator && s.bytes != s.profiled_bytes);
    let building: f64 = problem.caches.iter().filter(is_built).map(|c| c.curve.build_seconds).sum();
    let epochs = problem.limits.epochs.map_or(f64::INFINITY, f64::from);
    gain >= GAIN * before.prediction.epoch_seconds && gain > 0.0 && epochs * gain > building
}

/// The caches of the schedule's operators: as profiled in `problem`, as planned in `resized`.
pub(crate) fn of_schedule(problem: &Problem, resized: &Problem, schedule: &Schedule) -> Vec<CacheSize> {
    let is_used = |c: &Cache| schedule.shares.iter().any(|s| s.keys.uses(c));
    let used = || problem.caches.iter().zip(&resized.caches).filter(|(cache, _)| is_used(cache));
    let all = |memory| {
        let bytes = used().filter(|(c, _)| c.memory == memory).map(|(_, planned)| planned.curve.bytes);
        bytes.fold(0u64, u64::saturating_add)
    };
    let size = |(profiled, planned): (&Cache, &Cache)| CacheSize {
        operator: profiled.operator.clone(),
        memory: profiled.memory,
        profiled_bytes: profiled.curve.bytes,
        bytes: planned.curve.bytes,
        saved_seconds: (1.0 - profiled.factor(planned.curve.bytes)) * profiled.curve.batch_seconds,
        left_bytes: problem.limits.of(profiled.memory).map(|limit| limit.saturating_sub(all(profiled.memory))),
    };
    used().map(size).collect()
}
