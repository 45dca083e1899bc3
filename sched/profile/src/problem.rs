//! The planner's problem of a profile, and what a profile has to hold for there to be one.

use morphgl_plan::{
    Bytes, Candidate, Contention, Curve, Durations, Hardware, InterferencePoint, Invalid, Limits, Point, PoolPoint,
    Problem, Resource,
};
use morphgl_registry::{Key, Phase, Place};

use crate::{Profile, RouteProfile, Statistics};

/// Bytes of the largest measured mini-batch are taken times this: an epoch has larger ones.
const MARGIN: f64 = 1.25;

impl Profile {
    /// The planning problem of the profiled routes on `cores` of the host's cores.
    ///
    /// Resources are those of the routes' keys; the host's processor has cores, all others are held by one phase at a time.
    /// Contention was measured at some splits of the cores; every other one is taken to be like the nearest that was,
    /// and `limits.oversubscription` worse where it has more threads than cores.
    ///
    /// # Panics
    ///
    /// When its fields were changed to what cannot be planned with; one that was measured or loaded can.
    pub fn problem(&self, cores: usize, limits: Limits) -> Problem {
        let problem = self.build(cores, |route| {
            let durations = route.durations()?;
            let together = all_splits(route.contention(&durations), &durations, cores.max(1), &limits);
            durations.with_interference(together)
        });
        problem.unwrap_or_else(|e| panic!("the profile was changed: {e}")).with_limits(limits)
    }

    /// The problem with what was measured, and nothing taken to be like it.
    pub(crate) fn build(
        &self,
        cores: usize,
        durations: impl Fn(&RouteProfile) -> Result<Durations, Invalid>,
    ) -> Result<Problem, Invalid> {
        let mut resources: Vec<Resource> = Vec::new();
        let keys = self.routes.iter().flat_map(|r| [&r.route.batching, &r.route.transferring, &r.route.training]);
        for resource in keys.flat_map(held) {
            if resources.iter().all(|r| r.name != resource.name()) {
                resources.push(match *resource == morphgl_registry::Resource::CPU {
                    true => Resource::shared(resource.name(), cores),
                    false => Resource::exclusive(resource.name()),
                });
            }
        }
        let candidate = |r: &RouteProfile| {
            let names = |key: &Key| held(key).map(|r| r.name().to_string()).collect();
            let room = |bytes: u64| (bytes as f64 * MARGIN).ceil() as u64;
            let (route, largest) = (&r.route, &r.largest);
            Ok(Candidate {
                keys: r.keys(),
                hardware: Hardware {
                    batching: names(&route.batching),
                    transferring: names(&route.transferring),
                    training: names(&route.training),
                },
                in_place: route.batched_at == route.trained_at,
                on_host: route.trained_at == Place::Host,
                durations: durations(r)?,
                bytes: Bytes {
                    batched: room(largest.batched_bytes),
                    ready: room(largest.ready_bytes),
                    worker: room(largest.worker_bytes),
                },
            })
        };
        Problem::new(self.num_batches, resources, self.routes.iter().map(candidate).collect::<Result<_, _>>()?)
    }

    /// Everything a reader of the profile relies on.
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        let fault = |what: &str| Err(Invalid(what.to_string()));
        if self.num_batches == 0 || self.settings.cores == 0 || self.machine.cores == 0 {
            return fault("there are no mini-batches, or no cores");
        }
        if !(self.seconds.is_finite() && self.seconds >= 0.0) {
            return fault("it took no finite time");
        }
        for (i, route) in self.routes.iter().enumerate() {
            let keys = [&route.route.batching, &route.route.transferring, &route.route.training];
            if let Some((key, phase)) = keys.into_iter().zip(Phase::ALL).find(|(key, phase)| key.phase != *phase) {
                return Err(Invalid(format!("{key} is named as the operator of phase {phase}")));
            }
            let named = |e: Invalid| Invalid(format!("{}: {e}", route.keys()));
            if self.routes[..i].iter().any(|r| r.route == route.route) {
                return Err(named(Invalid("the route is there twice".to_string())));
            }
            route.check().map_err(named)?;
        }
        self.build(self.settings.cores, |r| r.durations()?.with_interference(r.contention(&r.durations()?))).map(|_| ())
    }
}

/// What an operator holds while it runs. Workers that batch on the host's cores share all else they use (a disk): how they get
/// into each other's way was measured with them, and none of them holds it alone.
fn held(key: &Key) -> impl Iterator<Item = &morphgl_registry::Resource> {
    let pool = key.phase == Phase::Batching && crate::profile::on_host(key);
    key.hardware.resources().iter().filter(move |r| !pool || **r == morphgl_registry::Resource::CPU)
}

impl RouteProfile {
    /// What was measured of each phase alone, for the planner.
    ///
    /// # Errors
    ///
    /// Its fields were changed to what cannot be planned with.
    pub fn durations(&self) -> Result<Durations, Invalid> {
        let pool =
            |s: &crate::PoolSample| PoolPoint { workers: s.workers, threads: s.threads, seconds: s.seconds.seconds() };
        let batching: Vec<PoolPoint> = self.batching.iter().map(pool).collect();
        let training = self.training.iter().map(|s| Point { at: s.threads, seconds: s.seconds.seconds() });
        Durations::new(&batching, self.transferring.seconds(), Curve::new(training.collect())?)
    }

    /// How batching and training slowed each other, as multiples of what `durations` say of them alone.
    pub fn contention(&self, durations: &Durations) -> Vec<InterferencePoint> {
        let factor = |beside: f64, alone: f64| if alone > 0.0 { (beside / alone).max(1.0) } else { 1.0 };
        let of = |t: &crate::TogetherSample| InterferencePoint {
            workers: t.workers,
            threads: t.threads,
            training_threads: t.training_threads,
            contention: Contention {
                batching: factor(t.batching.seconds().mean, durations.batching(t.workers, t.threads).mean),
                training: factor(t.training.seconds().mean, durations.training().at(t.training_threads).mean),
            },
        };
        self.together.iter().map(of).collect()
    }

    fn check(&self) -> Result<(), Invalid> {
        let fault = |what: &str| Err(Invalid(what.to_string()));
        let together = self.together.iter().flat_map(|t| [&t.batching, &t.training]);
        let statistics = self.batching.iter().map(|s| &s.seconds).chain(self.training.iter().map(|s| &s.seconds));
        for s in statistics.chain(together).chain([&self.transferring]) {
            s.check()?;
        }
        if self.together.iter().any(|t| t.workers * t.threads * t.training_threads == 0) {
            return fault("batching beside training with a count of 0");
        }
        if !self.together.is_empty() && !self.shares_cores() {
            return fault("batching beside training on the cores, where not both run on them");
        }
        let good = |x: f64| x.is_finite() && x >= 0.0;
        if !good(self.edges_per_batch) || !good(self.bytes_per_batch) {
            return fault("a size of mini-batches that is no finite number");
        }
        Ok(())
    }
}

impl Statistics {
    fn check(&self) -> Result<(), Invalid> {
        let good = |x: &f64| x.is_finite() && *x >= 0.0;
        if self.samples.is_empty() || !self.samples.iter().chain([&self.mean, &self.std, &self.median]).all(good) {
            return Err(Invalid("a duration without samples, or one that is no finite number of seconds".to_string()));
        }
        let within = self.outliers.iter().all(|&i| i < self.samples.len());
        if !within || self.outliers.len() >= self.samples.len() {
            return Err(Invalid("a duration whose outliers are not some of its samples".to_string()));
        }
        Ok(())
    }
}

/// Contention at every split of the cores a plan may have: as measured, or as at the nearest split that was.
fn all_splits(
    measured: Vec<InterferencePoint>,
    durations: &Durations,
    cores: usize,
    limits: &Limits,
) -> Vec<InterferencePoint> {
    if measured.is_empty() {
        return measured;
    }
    let counts = |t: &InterferencePoint| (t.workers, t.threads, t.training_threads);
    let mut all = measured.clone();
    for threads in durations.threads_per_worker().filter(|&t| t <= cores) {
        for workers in 1..=cores / threads {
            let most = (cores + limits.extra_threads).saturating_sub(workers * threads).min(cores);
            for training_threads in 1..=most {
                if measured.iter().any(|t| counts(t) == (workers, threads, training_threads)) {
                    continue;
                }
                let distance = |t: &&InterferencePoint| {
                    (t.workers * t.threads).abs_diff(workers * threads) + t.training_threads.abs_diff(training_threads)
                };
                let mut contention = measured.iter().min_by_key(distance).expect("something was measured").contention;
                let scarce = (workers * threads + training_threads) as f64 / cores as f64;
                if scarce > 1.0 {
                    let crowded = scarce * limits.oversubscription.max(1.0);
                    contention.batching = contention.batching.max(crowded);
                    contention.training = contention.training.max(crowded);
                }
                all.push(InterferencePoint { workers, threads, training_threads, contention });
            }
        }
    }
    all
}
