//! The order of measurements.

use std::collections::BTreeMap;
use std::time::Duration;

use morphgl_registry::{Machine, MiniBatch, Operators, Place, Route};

use crate::budget::{Budget, SETTLE, Sampling, describe_pool};
use crate::memory::MemoryMonitor;
use crate::points::{
    Point, Points, add_pool, add_training, check, describe_training, known_training, same_batching,
    same_between_devices, same_training, same_transferring, selected, training_seconds,
};
use crate::problem::overlaps;
use crate::profile::{Counts, on_host};
use crate::splits;
use crate::transfer::{self, TransferSamples};
use crate::{
    Error, ErrorKind, InterferenceSample, PoolSample, Profile, Progress, Result, RouteProfile, Selection, Settings,
    Statistics, TrainingSample, VERSION, Watch, overlap, pool, training,
};

/// Shares of the time by whose end are measured: the points that a plan needs; also the other points of each phase alone; also
/// further samples of training; also interference.
const NEEDED: f64 = 0.35;
const ALONE: f64 = 0.6;
const REFINED: f64 = 0.75;
const ALL: f64 = 1.0;
/// Factor to the fastest training within which another count of threads may become the plan's.
const CLOSE: f64 = 1.15;
/// Mini-batches for which there is always time while phases overlap: the plan depends on them, and a device's take milliseconds.
const AT_ONCE: usize = 16;
/// Samples taken when a point is measured again.
const AGAIN: usize = 2;
/// Host mini-batches kept for measuring training; of a device's one is kept, as its memory may hold no more than two.
const KEPT: usize = 2;

/// Measures every phase of the routes: batching by pools of workers, transferring, training at counts of threads, and, where
/// batching and training share the host's cores, their interference at the splits of the cores that plans would choose.
///
/// Always measured, as a plan needs them: the smallest and the largest pool, transferring, training at the largest count of
/// threads, and all phases at once where they overlap on a device. Other points that exceed the budget, and pools that exceed
/// `watch.memory`, are listed in [`Profile::skipped`]; one worker, and a step, are measured in any case. An operator at a place
/// that two routes share is measured once, and so are routes of the same operators from one device to another: devices of one name
/// and as much memory are alike.
/// `selections` are earlier outcomes of [`select`](crate::select()): their time is a part of the budget, and their samples of the
/// chosen operators are used where there is no time for others.
/// Parameters and optimizer state of training are restored; `set_threads` is not.
///
/// # Errors
///
/// An operator failed or panicked, a stop was requested, there is no mini-batch or no route, or routes do not fit together.
/// Parameters and optimizer state are restored then, too, and no thread is left.
pub fn profile(
    operators: &mut Operators,
    selections: &[Selection],
    machine: &Machine,
    settings: &Settings,
    watch: &Watch<'_>,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Profile> {
    let num_batches = check(operators)?;
    let points = Points::new(settings);
    let total = points.count(operators, machine, settings);
    let before = selected(selections, num_batches);
    let mut budget = Budget::new(settings, (num_batches, total), before, watch.stop, progress);
    let memory = MemoryMonitor::new(watch.memory);
    let mut measurement = Measurement { operators, selections, settings, points, ready: BTreeMap::new(), memory };
    let mut profile = Profile {
        version: VERSION,
        machine: machine.clone(),
        settings: settings.clone(),
        num_batches,
        selections: selections.to_vec(),
        routes: Vec::new(),
        skipped: Vec::new(),
        seconds: 0.0,
        held_bytes: 0,
        links: Vec::new(),
    };
    let unplannable = |e: morphgl_plan::Invalid| Error::operators("what was measured", e.to_string());
    for i in 0..measurement.operators.routes.len() {
        let route = &measurement.operators.routes[i].route;
        let like = profile.routes.iter().find(|r| same_between_devices(&r.route, route, machine));
        let route = match like {
            Some(like) => RouteProfile { route: route.clone(), ..like.clone() },
            None => measurement.needed(i, &profile.routes, &mut budget)?,
        };
        profile.routes.push(route);
    }
    let problem = profile.build(settings.cores.max(1), RouteProfile::durations).map_err(unplannable)?;
    budget.limit(morphgl_plan::bound(&problem));
    measurement.alone(&mut profile.routes, &mut budget)?;
    measurement.again(&mut profile.routes, &budget, REFINED)?;
    for _ in 0..settings.splits {
        measurement.memory.raise_worker_bytes(&mut profile.routes);
        let Some((i, split)) = splits::next(&profile, measurement.memory.available_besides_training()) else { break };
        if !measurement.interference(i, split, &mut profile.routes, &mut budget)? {
            break;
        }
    }
    measurement.again(&mut profile.routes, &budget, ALL)?;
    // Mini-batches are dropped before the end is reported.
    let Measurement { memory, .. } = measurement;
    memory.raise_worker_bytes(&mut profile.routes);
    profile.held_bytes = memory.without_workers();
    (profile.skipped, profile.seconds) = budget.end();
    profile.check().map_err(unplannable)?;
    Ok(profile)
}

struct Measurement<'a> {
    operators: &'a mut Operators,
    selections: &'a [Selection],
    settings: &'a Settings,
    points: Points,
    /// Mini-batches ready for training, by place.
    ready: BTreeMap<Place, Vec<MiniBatch>>,
    memory: MemoryMonitor<'a>,
}

impl Measurement<'_> {
    /// Measures the points of route `i` that every plan needs, except those shared with a route measured before.
    fn needed<'c>(&mut self, i: usize, before: &[RouteProfile], budget: &mut Budget<'c>) -> Result<RouteProfile> {
        let route = self.operators.routes[i].route.clone();
        let earlier = |same: fn(&Route, &Route) -> bool| before.iter().find(|r| same(&r.route, &route));
        // Two pools, a transfer and training of each route left.
        let mut left = 4 * (self.operators.routes.len() - i);
        let mut next = |budget: &mut Budget<'c>, what: String| {
            left -= 1;
            budget.needed(what, NEEDED, left + 1)
        };
        let mut batching = earlier(same_batching).map(|r| r.batching.clone()).unwrap_or_default();
        if batching.is_empty() && on_host(&route.batching) {
            for (n, size) in self.points.pools.clone().into_iter().take(2).enumerate() {
                if n > 0 && !self.memory.fits(size.0) {
                    budget.skip_pool(size);
                    continue;
                }
                let sampling = next(budget, describe_pool(size))?;
                batching.push(self.pool(i, size, sampling)?);
            }
        }
        let (transferring, largest, edges_per_batch, bytes_per_batch) = match earlier(same_transferring) {
            Some(r) => (r.transferring.clone(), r.largest, r.edges_per_batch, r.bytes_per_batch),
            None => {
                let what = if on_host(&route.batching) { "transferring" } else { "batching and transferring" };
                let sampling = next(budget, what.to_string())?;
                let samples = self.transfer(i, earlier(same_training).is_none(), sampling)?;
                if batching.is_empty() {
                    batching.push(PoolSample { workers: 1, threads: 1, seconds: Statistics::of(samples.batching) });
                }
                (Statistics::of(samples.transferring), samples.peak, samples.edges, samples.bytes)
            }
        };
        let mut training = earlier(same_training).map(|r| r.training.clone()).unwrap_or_default();
        if training.is_empty() {
            let threads = self.points.training(&route)[0];
            let sampling = next(budget, describe_training(&route, threads))?;
            training.push(self.first_training(i, threads, sampling, budget)?);
        }
        if route.trained_at != Place::Host {
            // No other point is measured with them, and a device's memory is small.
            self.ready.remove(&route.trained_at);
        }
        let alone = batching[0].seconds.mean + transferring.mean + training[0].seconds.mean;
        let overlapped = self.overlapped(i, alone, budget)?;
        let operators = &self.operators.routes[i];
        let (cache, device_cache) = (operators.batching.cache(), operators.transferring.cache());
        Ok(RouteProfile {
            route,
            edges_per_batch,
            bytes_per_batch,
            largest,
            batching,
            transferring,
            training,
            interference: Vec::new(),
            overlapped,
            cache,
            device_cache,
            hit_rate: None,
        })
    }

    /// Seconds per mini-batch of route `i` with all phases at once, where they overlap on a device; `None`, and the
    /// reason listed, where that fails.
    fn overlapped(&mut self, i: usize, seconds: f64, budget: &mut Budget<'_>) -> Result<Option<Statistics>> {
        let route = &self.operators.routes[i].route;
        if !overlaps(route) {
            return Ok(None);
        }
        let what = format!("all phases of {} at once", route.batching);
        let sampling = budget.needed(what.clone(), NEEDED, 1)?.at_least(AT_ONCE, seconds);
        let (trainer, _) = self.trainer(i);
        let Operators { routes: operators, trainers } = &mut *self.operators;
        match overlap::measure(&mut operators[i], &mut trainers[trainer], sampling) {
            Ok(samples) => Ok(Some(Statistics::of(samples))),
            Err(error) if matches!(error.kind, ErrorKind::Stopped) => Err(error),
            // Each phase has succeeded alone: the device may have no memory for the mini-batches of all three.
            Err(error) => {
                budget.give_up(format!("{what}: {error}"));
                Ok(None)
            }
        }
    }

    /// Measures the phases alone at all other counts, the cheapest of each first, as long as there is time.
    fn alone(&mut self, routes: &mut [RouteProfile], budget: &mut Budget<'_>) -> Result<()> {
        let mut points: Vec<(usize, usize, Point)> = Vec::new();
        for (i, r) in routes.iter().enumerate() {
            let new = |same: fn(&Route, &Route) -> bool| !routes[..i].iter().any(|b| same(&b.route, &r.route));
            if on_host(&r.route.batching) && new(same_batching) {
                points.extend(self.points.pools.iter().skip(2).enumerate().map(|(rank, &p)| (rank, i, Point::Pool(p))));
            }
            if new(same_training) {
                let threads = self.points.training(&r.route).iter().skip(1);
                points.extend(threads.enumerate().map(|(rank, &t)| (rank, i, Point::Training(t))));
            }
        }
        points.sort_unstable();
        let number = points.len();
        for (done, (_, i, point)) in points.into_iter().enumerate() {
            let durations = routes[i].durations().map_err(|e| Error::operators(&routes[i].route.batching, e.0))?;
            let (what, seconds) = match point {
                Point::Pool(size) if !self.memory.fits(size.0) => {
                    budget.skip_pool(size);
                    continue;
                }
                Point::Pool(size) => (describe_pool(size), size.0 as f64 * durations.batching(size.0, size.1).mean),
                Point::Training(threads) => {
                    (describe_training(&routes[i].route, threads), training_seconds(&routes[i], threads))
                }
            };
            if let Some(sampling) = budget.optional(what, ALONE, number - done, seconds)? {
                match point {
                    Point::Pool(size) => add_pool(routes, i, &self.pool(i, size, sampling)?),
                    Point::Training(threads) => add_training(routes, i, &self.training(i, threads, sampling)?),
                }
            }
        }
        Ok(())
    }

    /// Repeats training measurements, alternating among the thread counts that are close to the fastest and have few samples, so that a
    /// change of the machine's speed affects all of them alike.
    fn again(&mut self, routes: &mut [RouteProfile], budget: &Budget<'_>, share: f64) -> Result<()> {
        loop {
            let close = |(i, r): (usize, &RouteProfile)| {
                let best = r.training.iter().map(|s| s.seconds.median).fold(f64::INFINITY, f64::min);
                let few = |s: &&TrainingSample| {
                    s.seconds.median <= CLOSE * best && s.seconds.samples.len() < self.settings.batches
                };
                let fewest = r.training.iter().filter(few).min_by_key(|s| s.seconds.samples.len())?;
                on_host(&r.route.training).then(|| (i, fewest.clone()))
            };
            let fewest = routes.iter().enumerate().filter_map(close).min_by_key(|(_, s)| s.seconds.samples.len());
            let Some((i, known)) = fewest else { return Ok(()) };
            let samples = AGAIN.min(self.settings.batches - known.seconds.samples.len());
            let Some(sampling) = budget.again(share, samples, known.seconds.median) else { return Ok(()) };
            let more = self.training(i, known.threads, sampling)?;
            let all = [known.seconds.samples, more.seconds.samples].concat();
            let sample = TrainingSample { threads: known.threads, seconds: Statistics::of(all) };
            add_training(routes, i, &sample);
        }
    }

    /// Measures the interference of batching and training on route `i` at a split of the cores, and each unmeasured phase alone;
    /// returns whether there was time.
    fn interference(
        &mut self,
        i: usize,
        split: Counts,
        routes: &mut [RouteProfile],
        budget: &mut Budget<'_>,
    ) -> Result<bool> {
        let (workers, threads, training_threads) = split;
        let size = (workers, threads);
        let route = &routes[i];
        let durations = route.durations().map_err(|e| Error::operators(&route.route.batching, e.0))?;
        let batching_seconds = workers as f64 * durations.batching(workers, threads).mean;
        let training_seconds = durations.training().at(training_threads).mean;
        let batched = route.batching.iter().any(|s| (s.workers, s.threads) == size);
        let trained = route.training.iter().any(|s| s.threads == training_threads);
        // During training, at least one mini-batch of every worker has to begin and to end, after those of the warm-up.
        let seconds = 2.0 * batching_seconds.max(training_seconds)
            + if batched { 0.0 } else { batching_seconds }
            + if trained { 0.0 } else { training_seconds };
        let what = format!("{} beside {}", describe_pool(size), describe_training(&route.route, training_threads));
        // A third of the time left: if the plan changes by the outcome, there is time for other splits.
        let Some(sampling) = budget.optional(what, ALL, 3, seconds)? else { return Ok(false) };
        if !batched {
            add_pool(routes, i, &self.pool(i, size, sampling)?);
        }
        if !trained {
            add_training(routes, i, &self.training(i, training_threads, sampling)?);
        }
        let (trainer, place) = self.trainer(i);
        let Operators { routes: operators, trainers } = &mut *self.operators;
        let ready = &self.ready[&place];
        let (batching, training) =
            training::measure_interference(&operators[i], &mut trainers[trainer], split, ready, sampling)?;
        let (batching, training) = (Statistics::of(batching), Statistics::of(training));
        let sample = InterferenceSample { workers, threads, training_threads, batching, training };
        let own = routes[i].route.clone();
        let same = routes.iter_mut().filter(|r| same_batching(&r.route, &own) && same_training(&r.route, &own));
        same.for_each(|r| r.interference.push(sample.clone()));
        Ok(true)
    }

    /// Index of the training operator of route `i`, and its place.
    fn trainer(&self, i: usize) -> (usize, Place) {
        let route = &self.operators.routes[i].route;
        (self.operators.trainer(route).expect("it was checked"), route.trained_at.clone())
    }

    fn pool(&mut self, i: usize, size: (usize, usize), sampling: Sampling<'_>) -> Result<PoolSample> {
        let r = &self.operators.routes[i];
        let measure = || pool::measure(r.batching.as_ref(), &r.route.batching, size, sampling, None);
        let samples = self.memory.pool(size.0, measure)?;
        Ok(PoolSample { workers: size.0, threads: size.1, seconds: Statistics::of(samples) })
    }

    /// Measures transferring, and keeps mini-batches at their place where they are `wanted` and there are none yet.
    fn transfer(&mut self, i: usize, wanted: bool, sampling: Sampling<'_>) -> Result<TransferSamples> {
        let operators = &mut self.operators.routes[i];
        let place = operators.route.trained_at.clone();
        let threads = if on_host(&operators.route.batching) { self.settings.cores.max(1) } else { 1 };
        let keep = match place {
            _ if !wanted || self.ready.contains_key(&place) => 0,
            Place::Host => KEPT.min(sampling.batches + 1),
            _ => 1,
        };
        let mut samples = transfer::measure(operators, threads, keep, sampling)?;
        if keep > 0 {
            self.ready.insert(place, std::mem::take(&mut samples.ready));
        }
        Ok(samples)
    }

    /// Training with the needed count of threads, measured as with the others. Where there is no time for that: the samples of its
    /// selection, and one step more, to measure its memory. Between steps of the selection mini-batches were prepared, so that they
    /// found less in the caches than steps one after another do, and a smaller count of threads could seem the faster one.
    /// It also could where threads shared a core in the selection's samples, so short steps are measured in any case, once the
    /// threads have settled.
    fn first_training(
        &mut self,
        i: usize,
        threads: usize,
        sampling: Sampling<'_>,
        budget: &mut Budget<'_>,
    ) -> Result<TrainingSample> {
        let known = known_training(self.selections, &self.operators.routes[i].route, threads);
        let median = if known.is_empty() { 0.0 } else { Statistics::of(known.clone()).median };
        if threads > 1 && median < SETTLE.as_secs_f64() {
            return self.training(i, threads, sampling.after(budget.settling()));
        }
        if known.is_empty() || sampling.has_time_for(median) {
            return self.training(i, threads, sampling);
        }
        let more =
            self.training(i, threads, Sampling { warm_up: 0, settle: Duration::ZERO, batches: 1, ..sampling })?;
        Ok(TrainingSample { threads, seconds: Statistics::of([known, more.seconds.samples].concat()) })
    }

    fn training(&mut self, i: usize, threads: usize, sampling: Sampling<'_>) -> Result<TrainingSample> {
        let (trainer, place) = self.trainer(i);
        let trainer = &mut self.operators.trainers[trainer];
        let samples = self.memory.training(|| training::measure(trainer, threads, &self.ready[&place], sampling))?;
        Ok(TrainingSample { threads, seconds: Statistics::of(samples) })
    }
}
