//! The order of measuring.

use morphgl_registry::{Machine, MiniBatch, Place, Route};

use crate::course::{Course, Sampling, pool_in_words};
use crate::memory::Seen;
use crate::points::{
    Point, Points, add_pool, add_training, check, known_training, same_batching, same_training, same_transferring,
    selected, training_in_words, training_seconds, trains,
};
use crate::profile::on_host;
use crate::splits::{self, Split};
use crate::{
    Error, Operators, PoolSample, Profile, Progress, Result, RouteProfile, Settings, Statistics, TogetherSample,
    TrainingSample, VERSION, Watch, chain, pool, training,
};

/// Shares of the time: what is needed for a plan; that and each phase alone; that and what is measured again; and that and
/// phases beside each other.
const NEEDED: f64 = 0.35;
const ALONE: f64 = 0.6;
const REFINED: f64 = 0.75;
const ALL: f64 = 1.0;
/// Training at a count of threads that takes no more than this many times the best may become the plan's.
const CLOSE: f64 = 1.15;
/// Samples taken when a point is measured again.
const AGAIN: usize = 2;
/// Host mini-batches kept for training to be measured with; of a device's one, as its memory may hold no more than two.
const KEPT: usize = 2;

/// Measures every phase of the routes: batching by pools of workers, transferring, training at counts of threads, and, where
/// batching and training share the host's cores, both beside each other at the splits of the cores that plans would choose.
///
/// Each point is warmed up first. What two routes share (an operator at a place) is measured once.
/// Needed for a plan, and measured whatever the budget: the smallest and the largest pool, transferring,
/// and training at the largest count of threads. What else the budget does not allow, and pools that `watch.memory` has no
/// room for, are listed in [`Profile::skipped`]; one worker, and a step, are measured in any case.
/// Parameters and optimizer state of training are put back; `set_threads` stays as it was measured last.
///
/// # Errors
///
/// An operator failed or panicked, `stop` said so, there is no mini-batch or no route, or routes do not fit together.
/// Parameters and optimizer state are put back then, too, and no thread is left.
pub fn profile(
    operators: &mut Operators<'_>,
    machine: &Machine,
    settings: &Settings,
    watch: &Watch<'_>,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Profile> {
    let num_batches = check(operators)?;
    let points = Points::new(settings);
    let total = points.count(operators, settings);
    let before = selected(&operators.selections, num_batches);
    let mut course = Course::new(settings, (num_batches, total), before, watch.stop, progress);
    let seen = Seen::new(watch.memory);
    let mut measuring = Measuring { operators, settings, points, kept: Vec::new(), seen };
    let mut profile = Profile {
        version: VERSION,
        machine: machine.clone(),
        settings: settings.clone(),
        num_batches,
        selections: measuring.operators.selections.clone(),
        routes: Vec::new(),
        skipped: Vec::new(),
        seconds: 0.0,
        held_bytes: 0,
    };
    let unplannable = |e: morphgl_plan::Invalid| Error::operators("what was measured", e.to_string());
    for i in 0..measuring.operators.routes.len() {
        let left = measuring.operators.routes.len() - i;
        let route = measuring.needed(i, &profile.routes, &mut course, left)?;
        profile.routes.push(route);
    }
    let problem = profile.build(settings.cores.max(1), RouteProfile::durations).map_err(unplannable)?;
    course.limit(morphgl_plan::bound(&problem));
    measuring.alone(&mut profile.routes, &mut course)?;
    measuring.again(&mut profile.routes, &mut course, REFINED)?;
    for _ in 0..settings.splits {
        measuring.seen.workers_of(&mut profile.routes);
        let Some(split) = splits::next(&profile, measuring.seen.room_beside_training()) else { break };
        if !measuring.split(split, &mut profile.routes, &mut course)? {
            break;
        }
    }
    measuring.again(&mut profile.routes, &mut course, ALL)?;
    // Mini-batches are gone before it is told that all is done.
    let seen = measuring.end();
    seen.workers_of(&mut profile.routes);
    profile.held_bytes = seen.held();
    (profile.skipped, profile.seconds) = course.end();
    profile.check().map_err(unplannable)?;
    Ok(profile)
}

struct Measuring<'a, 'o, 'm> {
    operators: &'a mut Operators<'o>,
    settings: &'a Settings,
    points: Points,
    /// Ready mini-batches, by place.
    kept: Vec<(Place, Vec<MiniBatch>)>,
    seen: Seen<'m>,
}

impl<'m> Measuring<'_, '_, 'm> {
    fn end(self) -> Seen<'m> {
        self.seen
    }

    /// What no plan can do without, of route `i`; what it shares with those measured before is taken from them.
    fn needed<'c>(
        &mut self,
        i: usize,
        before: &[RouteProfile],
        course: &mut Course<'c>,
        routes_left: usize,
    ) -> Result<RouteProfile> {
        let route = self.operators.routes[i].route;
        let earlier = |same: fn(&Route, &Route) -> bool| before.iter().find(|r| same(&r.route, route));
        // Two pools, a transfer, training.
        let mut left = 4 * routes_left;
        let mut next = |course: &mut Course<'c>, what: String| {
            left -= 1;
            course.needed(what, NEEDED, left + 1)
        };
        let mut batching = earlier(same_batching).map(|r| r.batching.clone()).unwrap_or_default();
        if batching.is_empty() && on_host(&route.batching) {
            for (n, size) in self.points.pools.clone().into_iter().take(2).enumerate() {
                if n > 0 && !self.seen.fits(size.0) {
                    course.does_not_fit(pool_in_words(size));
                    continue;
                }
                let sampling = next(course, pool_in_words(size))?;
                batching.push(self.pool(i, size, sampling)?);
            }
        }
        let chain = match earlier(same_transferring) {
            Some(r) => Chained::Known(r),
            None => {
                let what = if on_host(&route.batching) { "transferring" } else { "batching and transferring" };
                let sampling = next(course, what.to_string())?;
                Chained::New(self.chain(i, earlier(same_training).is_none(), sampling)?)
            }
        };
        let (transferring, largest, edges, bytes) = match chain {
            Chained::Known(r) => (r.transferring.clone(), r.largest, r.edges_per_batch, r.bytes_per_batch),
            Chained::New(chain) => {
                if batching.is_empty() {
                    batching.push(PoolSample { workers: 1, threads: 1, seconds: Statistics::of(chain.batching) });
                }
                (Statistics::of(chain.transferring), chain.largest, chain.edges, chain.bytes)
            }
        };
        let mut training = earlier(same_training).map(|r| r.training.clone()).unwrap_or_default();
        if training.is_empty() {
            let threads = self.points.training(route)[0];
            let sampling = next(course, training_in_words(route, threads))?;
            training.push(self.first_training(i, threads, sampling)?);
        }
        if route.trained_at != Place::Host {
            // Nothing else is measured with them, and a device's memory is small.
            self.kept.retain(|(place, _)| *place != route.trained_at);
        }
        Ok(RouteProfile {
            route: route.clone(),
            edges_per_batch: edges,
            bytes_per_batch: bytes,
            largest,
            batching,
            transferring,
            training,
            together: Vec::new(),
        })
    }

    /// The phases alone at all other counts, the cheapest of each first, as long as there is time.
    fn alone(&mut self, routes: &mut [RouteProfile], course: &mut Course<'_>) -> Result<()> {
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
            match point {
                Point::Pool(size) if !self.seen.fits(size.0) => course.does_not_fit(pool_in_words(size)),
                Point::Pool(size) => {
                    let seconds = size.0 as f64 * durations.batching(size.0, size.1).mean;
                    let sampling = course.optional(pool_in_words(size), ALONE, number - done, seconds)?;
                    if let Some(sampling) = sampling {
                        let sample = self.pool(i, size, sampling)?;
                        add_pool(routes, i, &sample);
                    }
                }
                Point::Training(threads) => {
                    let seconds = training_seconds(&routes[i], threads);
                    let what = training_in_words(&routes[i].route, threads);
                    if let Some(sampling) = course.optional(what, ALONE, number - done, seconds)? {
                        let sample = self.training(i, threads, sampling)?;
                        add_training(routes, i, &sample);
                    }
                }
            }
        }
        Ok(())
    }

    /// Training again, at the counts of threads that are close to the best and have few samples, by turns: what is different
    /// then is seen in the samples of all.
    fn again(&mut self, routes: &mut [RouteProfile], course: &mut Course<'_>, share: f64) -> Result<()> {
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
            let Some(sampling) = course.again(share, samples, known.seconds.median) else { return Ok(()) };
            let more = self.training(i, known.threads, sampling)?;
            let all = [known.seconds.samples, more.seconds.samples].concat();
            let sample = TrainingSample { threads: known.threads, seconds: Statistics::of(all) };
            add_training(routes, i, &sample);
        }
    }

    /// Batching and training at a split of the cores: alone where that was not measured yet, and beside each other.
    /// Whether there was time.
    fn split(&mut self, split: Split, routes: &mut [RouteProfile], course: &mut Course<'_>) -> Result<bool> {
        let Split { route: i, workers, threads, training_threads } = split;
        let route = &routes[i];
        let durations = route.durations().map_err(|e| Error::operators(&route.route.batching, e.0))?;
        let alone = [
            workers as f64 * durations.batching(workers, threads).mean,
            durations.training().at(training_threads).mean,
        ];
        let pooled = route.batching.iter().any(|s| (s.workers, s.threads) == (workers, threads));
        let trained = route.training.iter().any(|s| s.threads == training_threads);
        // Beside training at least one mini-batch of every worker has to begin and to end, after those to warm up.
        let seconds =
            2.0 * alone[0].max(alone[1]) + if pooled { 0.0 } else { alone[0] } + if trained { 0.0 } else { alone[1] };
        let what = format!(
            "{} beside {}",
            pool_in_words((workers, threads)),
            training_in_words(&route.route, training_threads)
        );
        // A third of what is left: if the plan changes for what is found, there is time for others.
        let Some(sampling) = course.optional(what, ALL, 3, seconds)? else { return Ok(false) };
        if !pooled {
            let sample = self.pool(i, (workers, threads), sampling)?;
            add_pool(routes, i, &sample);
        }
        if !trained {
            let sample = self.training(i, training_threads, sampling)?;
            add_training(routes, i, &sample);
        }
        let route = self.operators.routes[i].route;
        let trainer = self.operators.trainers.iter_mut().find(|t| trains(t, route)).expect("it was checked");
        let batches = &self.kept.iter().find(|(place, _)| *place == route.trained_at).expect("they were kept").1;
        let batching = (self.operators.routes[i].batching, &route.batching);
        let split = (workers, threads, training_threads);
        let (batching, training) = training::measure_beside(batching, trainer, split, batches, sampling)?;
        let (batching, training) = (Statistics::of(batching), Statistics::of(training));
        let sample = TogetherSample { workers, threads, training_threads, batching, training };
        let own = routes[i].route.clone();
        let same = routes.iter_mut().filter(|r| same_batching(&r.route, &own) && same_training(&r.route, &own));
        same.for_each(|r| r.together.push(sample.clone()));
        Ok(true)
    }

    fn pool(&mut self, i: usize, size: (usize, usize), sampling: Sampling<'_>) -> Result<PoolSample> {
        let r = &self.operators.routes[i];
        let samples = self.seen.pool(size.0, || pool::measure(r.batching, &r.route.batching, size, sampling))?;
        Ok(PoolSample { workers: size.0, threads: size.1, seconds: Statistics::of(samples) })
    }

    /// Measures transferring, and keeps mini-batches at their place where they are `wanted` and there are none yet.
    fn chain(&mut self, i: usize, wanted: bool, sampling: Sampling<'_>) -> Result<chain::Chain> {
        let route = self.operators.routes[i].route;
        let threads = if on_host(&route.batching) { self.settings.cores.max(1) } else { 1 };
        let keep = match &route.trained_at {
            _ if !wanted || self.kept.iter().any(|(place, _)| *place == route.trained_at) => 0,
            Place::Host => KEPT.min(sampling.batches + 1),
            _ => 1,
        };
        let mut chain = chain::measure(&mut self.operators.routes[i], threads, keep, sampling)?;
        if keep > 0 {
            self.kept.push((route.trained_at.clone(), std::mem::take(&mut chain.ready)));
        }
        Ok(chain)
    }

    /// Training at the count of threads that is needed; what was measured of it when it was chosen is taken over, and one
    /// more step is measured for the memory it takes.
    fn first_training(&mut self, i: usize, threads: usize, sampling: Sampling<'_>) -> Result<TrainingSample> {
        let known = known_training(self.operators, self.operators.routes[i].route, threads);
        if known.is_empty() {
            return self.training(i, threads, sampling);
        }
        let more = self.training(i, threads, Sampling { warm_up: 0, batches: 1, ..sampling })?;
        Ok(TrainingSample { threads, seconds: Statistics::of([known, more.seconds.samples].concat()) })
    }

    fn training(&mut self, i: usize, threads: usize, sampling: Sampling<'_>) -> Result<TrainingSample> {
        let route = self.operators.routes[i].route;
        let trainer = self.operators.trainers.iter_mut().find(|t| trains(t, route)).expect("it was checked");
        let batches = &self.kept.iter().find(|(place, _)| *place == route.trained_at).expect("they were kept").1;
        let samples = self.seen.training(|| training::measure(trainer, threads, batches, sampling))?;
        Ok(TrainingSample { threads, seconds: Statistics::of(samples) })
    }
}

enum Chained<'a> {
    Known(&'a RouteProfile),
    New(chain::Chain),
}
