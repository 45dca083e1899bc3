//! The sizes of caches, chosen with the plan: a larger cache, or more workers and larger buffers.

use crate::division::divide;
use crate::memory::DoesNotFit;
use crate::{Cache, CacheMemory, CacheSize, Plans, Problem, Schedule, bound};

/// Intervals between the sums of bytes that are tried.
const INTERVALS: u64 = 16;
/// Fraction of the epoch that other sizes than the profiled ones must save.
const GAIN: f64 = 0.02;
/// Tolerance of ties: another size is better only if its epoch is below this factor times the shortest one so far.
const BETTER: f64 = 0.999;

/// The plans that `plan` makes of the problem with caches as profiled, or with the sizes of the shortest epoch, where that
/// saves at least [`GAIN`] of it and, over the epochs of the limits, more than building the caches again.
///
/// Sizes are tried evenly from the smallest of the curve to the largest within the limit, and then what the best plan leaves. The
/// caches that a route keeps in one memory are sized together, each sum of their bytes divided by [`divide`]; others are sized one
/// after the other.
pub(crate) fn choose(
    problem: &Problem,
    plan: impl Fn(&Problem) -> Result<Plans, DoesNotFit>,
) -> Result<Plans, DoesNotFit> {
    let profiled = plan(problem);
    let mut best = (problem.clone(), profiled.clone());
    for caches in cache_groups(problem) {
        // Without a limit there is nothing to divide.
        let Some(limit) = problem.limits.of(caches[0].memory) else { continue };
        let base = best.0.clone();
        let attempt = |total: u64, best: &mut (Problem, Result<Plans, DoesNotFit>)| {
            let sizes = divide(&caches, total);
            let resized = caches.iter().zip(sizes).fold(base.clone(), |p, (c, bytes)| p.resized(&c.operator, bytes));
            if bound(&resized) < BETTER * seconds(&best.1) {
                let found = plan(&resized);
                if is_better(&found, &best.1) {
                    *best = (resized, found);
                }
            }
        };
        totals(&caches, limit).into_iter().for_each(|total| attempt(total, &mut best));
        if let Ok(plans) = &best.1 {
            let is_one = |c: &&Cache| caches.iter().any(|other| other.operator == c.operator);
            let held: u64 = best.0.caches.iter().filter(is_one).map(|c| c.curve.bytes).sum();
            let rest = limit.saturating_sub(plans.best().memory.all(caches[0].memory));
            attempt(held.saturating_add(rest), &mut best);
        }
    }
    let (_, best) = best;
    match (&profiled, &best) {
        (Ok(before), Ok(after)) if !pays(problem, before, after) => profiled,
        _ => best,
    }
}

/// The caches whose sizes can be chosen, in groups that share a budget: the caches of a route's batching and transferring operators
/// are one group if the same memory holds both, and every other cache is a group of its own.
fn cache_groups(problem: &Problem) -> Vec<Vec<&Cache>> {
    let resizable = || problem.caches.iter().filter(|c| c.is_resizable());
    let mut groups: Vec<Vec<&Cache>> = Vec::new();
    let is_in = |groups: &[Vec<&Cache>], cache: &Cache| groups.iter().flatten().any(|c| c.operator == cache.operator);
    // The caches of a route that batches on one device and trains on another lie in two memories.
    for route in problem.routes().iter().filter(|r| !r.batches_apart(problem)) {
        let pair: Vec<&Cache> = resizable().filter(|c| route.keys.uses(c) && !is_in(&groups, c)).collect();
        if let [a, b] = pair[..]
            && a.memory == b.memory
        {
            groups.push(pair);
        }
    }
    let single: Vec<_> = resizable().filter(|c| !is_in(&groups, c)).map(|c| vec![c]).collect();
    groups.extend(single);
    groups
}

/// Sums of bytes to try within `limit`, ascending; the smallest even if it exceeds the limit.
fn totals(caches: &[&Cache], limit: u64) -> Vec<u64> {
    let sum = |bytes: fn(&Cache) -> u64| caches.iter().fold(0u64, |sum, cache| sum.saturating_add(bytes(cache)));
    let least = sum(Cache::least);
    let span = sum(Cache::most).min(limit).saturating_sub(least);
    // Wide enough for any number of bytes.
    let total = |i: u64| least + (u128::from(span) * u128::from(i) / u128::from(INTERVALS)) as u64;
    let mut totals: Vec<u64> = (0..=INTERVALS).map(total).collect();
    totals.dedup();
    totals
}

/// Predicted seconds of the best plan; infinite where none fits.
fn seconds(plans: &Result<Plans, DoesNotFit>) -> f64 {
    plans.as_ref().map_or(f64::INFINITY, |plans| plans.best().prediction.epoch_seconds)
}

/// Whether the plans have a shorter epoch; of problems that do not fit, whether the memory needed is less.
fn is_better(found: &Result<Plans, DoesNotFit>, best: &Result<Plans, DoesNotFit>) -> bool {
    match (found, best) {
        (Err(found), Err(best)) => found.minimum.total() < best.minimum.total(),
        _ => seconds(found) < BETTER * seconds(best),
    }
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
    let apart = schedule.shares.iter().all(|s| s.batches_apart(&problem.resources));
    let is_beside = |a: &Cache, b: &Cache| {
        let (on_devices, phases) = (a.memory == CacheMemory::Device, [a.operator.phase, b.operator.phase]);
        a.memory == b.memory && (!(apart && on_devices) || phases[0] == phases[1])
    };
    let beside = |cache: &Cache| {
        let bytes = used().filter(|(c, _)| is_beside(c, cache)).map(|(_, planned)| planned.curve.bytes);
        bytes.fold(0u64, u64::saturating_add)
    };
    let size = |(profiled, planned): (&Cache, &Cache)| CacheSize {
        operator: profiled.operator.clone(),
        memory: profiled.memory,
        profiled_bytes: profiled.curve.bytes,
        bytes: planned.curve.bytes,
        saved_seconds: (1.0 - profiled.factor(planned.curve.bytes)) * profiled.curve.batch_seconds,
        hit_rate: planned.hit_rate,
        left_bytes: problem.limits.of(profiled.memory).map(|limit| limit.saturating_sub(beside(profiled))),
    };
    used().map(size).collect()
}
