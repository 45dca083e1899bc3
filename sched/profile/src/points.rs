//! The points to measure, and the routes that share them.

use morphgl_plan::RouteKeys;
use morphgl_registry::{Machine, Operators, Place, Route};

use crate::budget::count;
use crate::problem::overlaps;
use crate::profile::on_host;
use crate::{Error, PoolSample, Result, RouteProfile, Selection, Settings, TrainingSample};

/// Points on the host's cores, in the order of measurement.
pub(crate) struct Points {
    /// Pools: the smallest and the largest, then those between.
    pub(crate) pools: Vec<(usize, usize)>,
    /// Counts of training threads, in descending order, the fastest first; but one less than the largest last.
    pub(crate) training: Vec<usize>,
}

impl Points {
    pub(crate) fn new(settings: &Settings) -> Self {
        let mut pools: Vec<_> = settings.pools.iter().copied().filter(|p| p.0 > 0 && p.1 > 0).collect();
        pools.push((1, 1));
        pools.sort_unstable();
        pools.dedup();
        if pools.len() > 2 {
            pools[1..].rotate_right(1);
        }
        let mut training: Vec<_> = settings.training_threads.iter().copied().filter(|&t| t > 0).collect();
        if training.is_empty() {
            training.push(1);
        }
        training.sort_unstable_by(|a, b| b.cmp(a));
        training.dedup();
        // From coarse to fine: one less than the largest differs least from its neighbours.
        if training.len() > 2 && training[1] + 1 == training[0] {
            training[1..].rotate_left(1);
        }
        Self { pools, training }
    }

    pub(crate) fn training(&self, route: &Route) -> &[usize] {
        if on_host(&route.training) { &self.training } else { &[1] }
    }

    /// Number of points of all routes, shared ones counted once.
    pub(crate) fn count(&self, operators: &Operators, machine: &Machine, settings: &Settings) -> usize {
        let all: Vec<&Route> = operators.routes.iter().map(|r| &r.route).collect();
        let is_measured = |i: &usize| !all[..*i].iter().any(|r| same_between_devices(r, all[*i], machine));
        let routes: Vec<&Route> = (0..all.len()).filter(is_measured).map(|i| all[i]).collect();
        let of = |(i, route): (usize, &&Route)| {
            let new = |same: fn(&Route, &Route) -> bool| !routes[..i].iter().any(|r| same(r, route));
            let pools = if on_host(&route.batching) && new(same_batching) { self.pools.len() } else { 0 };
            let training = if new(same_training) { self.training(route).len() } else { 0 };
            pools + usize::from(new(same_transferring)) + training + usize::from(overlaps(route))
        };
        let shared = routes.iter().any(|r| on_host(&r.batching) && on_host(&r.training));
        routes.iter().enumerate().map(of).sum::<usize>() + if shared { settings.splits } else { 0 }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Point {
    Training(usize),
    Pool((usize, usize)),
}

/// Predicted seconds of training with `threads` threads. Below the measured counts, the speed-up is extrapolated from the two
/// smallest; from only one, it is assumed to be half way between none and a perfect one.
pub(crate) fn training_seconds(route: &RouteProfile, threads: usize) -> f64 {
    let mean = |i: usize| route.training[i].seconds.mean;
    let least = route.training[0].threads;
    if threads >= least {
        let at = |s: &&TrainingSample| s.threads >= threads;
        return route.training.iter().find(at).map_or(mean(0), |s| s.seconds.mean);
    }
    let speedup = route.training.get(1).map_or(0.5, |s| {
        let slower = (mean(0).max(f64::MIN_POSITIVE) / s.seconds.mean.max(f64::MIN_POSITIVE)).ln();
        (slower / (s.threads as f64 / least as f64).ln()).clamp(0.0, 1.0)
    });
    mean(0) * (least as f64 / threads as f64).powf(speedup)
}

pub(crate) fn describe_training(route: &Route, threads: usize) -> String {
    if on_host(&route.training) {
        format!("training with {}", count(threads, "thread"))
    } else {
        "training".to_string()
    }
}

/// Adds a sample to every route with the same batching as route `i`.
pub(crate) fn add_pool(routes: &mut [RouteProfile], i: usize, sample: &PoolSample) {
    let route = routes[i].route.clone();
    for r in routes.iter_mut().filter(|r| same_batching(&r.route, &route)) {
        r.batching.push(sample.clone());
        r.batching.sort_by_key(|s| (s.threads, s.workers));
    }
}

/// Adds a sample to every route with the same training as route `i`, in place of an earlier one with as many threads.
pub(crate) fn add_training(routes: &mut [RouteProfile], i: usize, sample: &TrainingSample) {
    let route = routes[i].route.clone();
    for r in routes.iter_mut().filter(|r| same_training(&r.route, &route)) {
        r.training.retain(|s| s.threads != sample.threads);
        r.training.push(sample.clone());
        r.training.sort_by_key(|s| s.threads);
    }
}

/// Seconds that the choice among training operators took, and those of an epoch of `num_batches` with the chosen ones, one phase
/// after the other.
pub(crate) fn selected(selections: &[Selection], num_batches: usize) -> (f64, f64) {
    let typical = selections.iter().filter_map(|s| s.chosen_profile()?.typical());
    let fastest = typical.fold(f64::INFINITY, f64::min);
    let epoch = if fastest.is_finite() { fastest * num_batches as f64 } else { 0.0 };
    (selections.iter().map(|s| s.seconds).sum(), epoch)
}

/// Samples of training with so many threads, taken when the operator was chosen.
pub(crate) fn known_training(selections: &[Selection], route: &Route, threads: usize) -> Vec<f64> {
    let of = |s: &&Selection| (&s.place, &s.chosen) == (&route.trained_at, &route.training);
    let selection = selections.iter().find(of).filter(|s| !on_host(&route.training) || s.threads == threads);
    let samples = selection.and_then(|s| s.chosen_profile()?.training_seconds.as_ref()).map(|s| s.samples.clone());
    samples.unwrap_or_default()
}

/// Whether batching does the same work on both routes: the same operator, which gathers features on both or on neither.
pub(crate) fn same_batching(a: &Route, b: &Route) -> bool {
    a.batching == b.batching && a.batched_at == b.batched_at && a.gathering == b.gathering
}

pub(crate) fn same_transferring(a: &Route, b: &Route) -> bool {
    same_batching(a, b) && a.transferring == b.transferring && a.trained_at == b.trained_at
}

pub(crate) fn same_training(a: &Route, b: &Route) -> bool {
    a.training == b.training && a.trained_at == b.trained_at
}

/// Whether both routes go from one device to another by the same operators, and their devices are alike: one of them is measured.
pub(crate) fn same_between_devices(a: &Route, b: &Route, machine: &Machine) -> bool {
    let device = |place: &Place| machine.accelerators.iter().find(|accelerator| accelerator.place == *place);
    let alike = |a: &Place, b: &Place| {
        let both = device(a).zip(device(b));
        a == b || both.is_some_and(|(a, b)| (&a.name, a.memory_bytes) == (&b.name, b.memory_bytes))
    };
    let keys = |r: &Route| RouteKeys::from(r);
    [a, b].iter().all(|r| r.is_between_devices())
        && keys(a) == keys(b)
        && (&a.read_at, a.gathering) == (&b.read_at, b.gathering)
        && alike(&a.batched_at, &b.batched_at)
        && alike(&a.trained_at, &b.trained_at)
}

/// Number of mini-batches of an epoch, the same on every route.
pub(crate) fn check(operators: &Operators) -> Result<usize> {
    let Some(first) = operators.routes.first() else {
        return Err(Error::operators("profiling", "there is no route to measure; give one at least"));
    };
    let num_batches = first.batching.num_batches();
    for r in &operators.routes {
        let n = r.batching.num_batches();
        if n == 0 {
            return Err(Error::operators(&r.route.batching, "there is no mini-batch to measure; give it seeds"));
        }
        if n != num_batches {
            let text = format!(
                "it makes {n} mini-batches per epoch, and {} makes {num_batches}; build all operators with the same seeds \
                 and batch size",
                first.route.batching
            );
            return Err(Error::operators(&r.route.batching, text));
        }
        if operators.trainer(&r.route).is_none() {
            let text = format!("it is not among the trainers at {}; give it too", r.route.trained_at);
            return Err(Error::operators(&r.route.training, text));
        }
    }
    Ok(num_batches)
}
