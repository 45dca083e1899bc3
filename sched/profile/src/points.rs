//! What there is to measure, and which routes share it.

use morphgl_registry::Route;

use crate::course::count;
use crate::profile::on_host;
use crate::{
    Error, Operators, PoolSample, Result, RouteProfile, Selection, Settings, TrainingOperator, TrainingSample,
};

/// What to measure on the host's cores.
pub(crate) struct Points {
    /// The smallest and the largest, then those between.
    pub(crate) pools: Vec<(usize, usize)>,
    /// The largest, then downwards: the cheapest first; one less than the largest last.
    pub(crate) training: Vec<usize>,
}

impl Points {
    pub(crate) fn new(settings: &Settings) -> Self {
        let mut pools: Vec<_> = settings.pools.iter().copied().filter(|p| p.0 > 0 && p.1 > 0).collect();
        pools.push((1, 1));
        pools.sort_unstable();
        pools.dedup();
        if pools.len() > 2 {
            let last = pools.pop().expect("there are more than two");
            pools.insert(1, last);
        }
        let mut training: Vec<_> = settings.training_threads.iter().copied().filter(|&t| t > 0).collect();
        if training.is_empty() {
            training.push(1);
        }
        training.sort_unstable_by(|a, b| b.cmp(a));
        training.dedup();
        // From coarse to fine: what lies just below the largest is the easiest to tell from its neighbours.
        if training.len() > 2 && training[1] + 1 == training[0] {
            let finest = training.remove(1);
            training.push(finest);
        }
        Self { pools, training }
    }

    pub(crate) fn training(&self, route: &Route) -> &[usize] {
        if on_host(&route.training) { &self.training } else { &[1] }
    }

    /// Points of all routes, those that are the same once.
    pub(crate) fn count(&self, operators: &Operators<'_>, settings: &Settings) -> usize {
        let routes: Vec<&Route> = operators.routes.iter().map(|r| r.route).collect();
        let of = |(i, route): (usize, &&Route)| {
            let new = |same: fn(&Route, &Route) -> bool| !routes[..i].iter().any(|r| same(r, route));
            let pools = if on_host(&route.batching) && new(same_batching) { self.pools.len() } else { 0 };
            let training = if new(same_training) { self.training(route).len() } else { 0 };
            pools + usize::from(new(same_transferring)) + training
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

/// Seconds training probably takes with `threads` threads, fewer than were measured yet: as it went on between the fewest two
/// that were, and half way between no speed-up and a perfect one where only one was.
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

pub(crate) fn training_in_words(route: &Route, threads: usize) -> String {
    if on_host(&route.training) {
        format!("training with {}", count(threads, "thread"))
    } else {
        "training".to_string()
    }
}

/// Adds a sample to every route that batches in the same way.
pub(crate) fn add_pool(routes: &mut [RouteProfile], i: usize, sample: &PoolSample) {
    let route = routes[i].route.clone();
    for r in routes.iter_mut().filter(|r| same_batching(&r.route, &route)) {
        r.batching.push(sample.clone());
        r.batching.sort_by_key(|s| (s.threads, s.workers));
    }
}

/// Adds a sample to every route that trains in the same way, in place of an earlier one with as many threads.
pub(crate) fn add_training(routes: &mut [RouteProfile], i: usize, sample: &TrainingSample) {
    let route = routes[i].route.clone();
    for r in routes.iter_mut().filter(|r| same_training(&r.route, &route)) {
        r.training.retain(|s| s.threads != sample.threads);
        r.training.push(sample.clone());
        r.training.sort_by_key(|s| s.threads);
    }
}

pub(crate) fn trains(trainer: &TrainingOperator<'_>, route: &Route) -> bool {
    *trainer.key == route.training && *trainer.place == route.trained_at
}

/// Seconds that choosing training operators took, and those of an epoch of `num_batches` by the chosen ones, one phase after the
/// other.
pub(crate) fn selected(selections: &[Selection], num_batches: usize) -> (f64, f64) {
    let typical = selections.iter().filter_map(|s| s.of_chosen()?.typical());
    let fastest = typical.fold(f64::INFINITY, f64::min);
    let epoch = if fastest.is_finite() { fastest * num_batches as f64 } else { 0.0 };
    (selections.iter().map(|s| s.seconds).sum(), epoch)
}

/// Samples of training with so many threads, taken when the operator was chosen.
pub(crate) fn known_training(operators: &Operators<'_>, route: &Route, threads: usize) -> Vec<f64> {
    let of = |s: &&Selection| (&s.place, &s.chosen) == (&route.trained_at, &route.training);
    let Some(selection) = operators.selections.iter().find(of) else { return Vec::new() };
    if on_host(&route.training) && selection.threads != threads {
        return Vec::new();
    }
    selection.of_chosen().and_then(|c| c.training_seconds.as_ref()).map(|s| s.samples.clone()).unwrap_or_default()
}

pub(crate) fn same_batching(a: &Route, b: &Route) -> bool {
    a.batching == b.batching && a.batched_at == b.batched_at
}

pub(crate) fn same_transferring(a: &Route, b: &Route) -> bool {
    same_batching(a, b) && a.transferring == b.transferring && a.trained_at == b.trained_at
}

pub(crate) fn same_training(a: &Route, b: &Route) -> bool {
    a.training == b.training && a.trained_at == b.trained_at
}

/// Mini-batches of an epoch, the same on every route.
pub(crate) fn check(operators: &Operators<'_>) -> Result<usize> {
    let Some(first) = operators.routes.first() else {
        return Err(Error::operators("profiling", "there is no route to measure; give one at least".to_string()));
    };
    let num_batches = first.batching.num_batches();
    for r in &operators.routes {
        let n = r.batching.num_batches();
        if n == 0 {
            let what = "there is no mini-batch to measure; give it seeds";
            return Err(Error::nothing(&r.route.batching, what));
        }
        if n != num_batches {
            let what = format!(
                "it makes {n} mini-batches an epoch, and {} makes {num_batches}; build all operators with the same seeds \
                 and batch size",
                first.route.batching
            );
            return Err(Error::operators(&r.route.batching, what));
        }
        if !operators.trainers.iter().any(|t| trains(t, r.route)) {
            let what = format!("it is not among the trainers at {}; give it too", r.route.trained_at);
            return Err(Error::operators(&r.route.training, what));
        }
    }
    Ok(num_batches)
}
