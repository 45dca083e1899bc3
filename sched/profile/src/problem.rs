//! The planning problem of a profile, and the checks of profiles.

use std::collections::BTreeSet;

use morphgl_plan::{
    Bytes, Cache, CacheMemory, Candidate, Contention, Curve, Durations, Hardware, InterferencePoint, Invalid, Limits,
    MAX_BYTES, MAX_SECONDS, MAX_THREADS, Point, PoolPoint, Problem, Resource,
};
use morphgl_registry::{Key, Phase, Place, Route};

use crate::profile::{Counts, on_host};
use crate::{InterferenceSample, PeakBytes, PoolSample, Profile, RouteProfile, Statistics};

/// Factor to the bytes of the largest measured mini-batch: an epoch has larger ones.
const MARGIN: f64 = 1.25;
/// Bounds of a profile from a file, so that planning from it ends soon: mini-batches of an epoch, routes, and splits of the
/// cores at which interference was measured.
const MAX_BATCHES: usize = 10_000_000;
const MAX_ROUTES: usize = 256;
const MAX_SPLITS: usize = 1024;

impl PeakBytes {
    /// What plans count: a quarter more, since an epoch has larger mini-batches than those measured.
    pub fn with_margin(&self) -> Bytes {
        let with_margin = |bytes: u64| (bytes as f64 * MARGIN).ceil() as u64;
        let [batched, ready, worker] = [self.batched_bytes, self.ready_bytes, self.worker_bytes].map(with_margin);
        Bytes { batched, ready, worker }
    }
}

impl Profile {
    /// The planning problem of the profiled routes on `cores` of the host's cores; of a backend's devices, of the first that was
    /// profiled ([`Profile::of_trainer`] has those of another one).
    ///
    /// Resources are those of the routes' keys, a device's and its link's with the device's number (`CUDA:0`, `PCIe:0`); the
    /// host's processor has cores, all others are used by one phase after the other: several at a time where all of their operators
    /// queue ([`morphgl_registry::Description::queueing`]).
    /// Interference was measured at some splits of the cores; at every other one it is that of the nearest measured split,
    /// and at least `limits.oversubscription` times the threads per core where there are more threads than cores.
    /// The limit of host memory is that of caches, buffers and workers: of what was held while profiling,
    /// [`Profile::cache_bytes`] count among it. Without a limit of device memory, that is nine tenths of what was free, where a cache
    /// there has a size to choose.
    ///
    /// # Panics
    ///
    /// When its fields were changed so that it cannot be planned with; a measured or loaded profile can.
    pub fn problem(&self, cores: usize, limits: Limits) -> Problem {
        let problem = self.build(cores, |route| {
            let durations = route.durations()?;
            let interference = all_splits(route.contention(&durations), &durations, cores.max(1), &limits);
            durations.with_interference(interference)
        });
        let problem = problem.and_then(|p| p.with_caches(self.caches()));
        let device_bytes = limits.device_bytes.or_else(|| self.device_bytes());
        let problem = problem.unwrap_or_else(|e| panic!("the profile was changed: {e}"));
        problem.with_limits(Limits { device_bytes, ..limits })
    }

    /// The caches of the batching operators in the memory where they sample, and of the transferring operators in the device's.
    fn caches(&self) -> Vec<Cache> {
        let mut caches: Vec<Cache> = Vec::new();
        for RouteProfile { route, cache, device_cache, hit_rate, .. } in &self.routes {
            let on_host = route.batched_at == Place::Host;
            let memory = if on_host { CacheMemory::Host } else { CacheMemory::Device };
            let of_batching = (&route.batching, memory, cache);
            for (key, memory, curve) in [of_batching, (&route.transferring, CacheMemory::Device, device_cache)] {
                let hit_rate = hit_rate.filter(|_| *key == route.transferring);
                if let Some(curve) = curve.clone().filter(|_| caches.iter().all(|c| c.operator != *key)) {
                    caches.push(Cache { operator: key.clone(), memory, curve, hit_rate });
                }
            }
        }
        caches
    }

    /// The limit of device memory for the caches whose sizes can be chosen, buffers and workers, where the user sets none: nine
    /// tenths of what such caches hold and of what is free beside them.
    fn device_bytes(&self) -> Option<u64> {
        let caches =
            self.caches().into_iter().filter(|c| c.memory == CacheMemory::Device && !c.curve.points.is_empty());
        let (held, free): (Vec<u64>, Vec<Option<u64>>) = caches.map(|c| (c.curve.bytes, c.curve.free_bytes)).unzip();
        let free = free.into_iter().flatten().min()?;
        Some(held.into_iter().fold(free, u64::saturating_add) / 10 * 9)
    }

    /// Bytes of the batching operators' caches in host memory, which are part of [`Profile::held_bytes`] where that was measured.
    pub fn cache_bytes(&self) -> u64 {
        self.caches().iter().filter(|c| c.memory == CacheMemory::Host).map(|c| c.curve.bytes).sum()
    }

    /// The profile of the routes to one training operator at one place alone.
    pub fn of_trainer(&self, training: &Key, place: &Place) -> Self {
        let leads = |r: &&RouteProfile| r.route.training == *training && r.route.trained_at == *place;
        Self { routes: self.routes.iter().filter(leads).cloned().collect(), ..self.clone() }
    }

    /// The training operators that its routes lead to, with their places: sorted, each once.
    pub fn trainers(&self) -> Vec<(Key, Place)> {
        let ends = self.routes.iter().map(|r| (r.route.training.clone(), r.route.trained_at.clone()));
        ends.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The problem with the given durations of each route, and caches as they are. Of routes with the same keys, which lead to
    /// several devices of a backend, it has the first: a plan trains at one place.
    pub(crate) fn build(
        &self,
        cores: usize,
        durations: impl Fn(&RouteProfile) -> Result<Durations, Invalid>,
    ) -> Result<Problem, Invalid> {
        let is_first =
            |&(i, r): &(usize, &RouteProfile)| self.routes[..i].iter().all(|before| before.keys() != r.keys());
        let routes: Vec<&RouteProfile> = self.routes.iter().enumerate().filter(is_first).map(|(_, r)| r).collect();
        let mut resources: Vec<Resource> = Vec::new();
        for (queued, name) in routes.iter().flat_map(|r| held(&r.route)) {
            match resources.iter_mut().find(|r| r.name == name) {
                Some(known) => known.queued &= queued,
                None if name == morphgl_registry::Resource::CPU.name() => resources.push(Resource::shared(name, cores)),
                None if queued => resources.push(Resource::queued(name)),
                None => resources.push(Resource::exclusive(name)),
            }
        }
        let candidate = |r: &RouteProfile| {
            let [batching, transferring, training] = hardware(&r.route);
            let route = &r.route;
            Ok(Candidate {
                keys: r.keys(),
                hardware: Hardware { batching, transferring, training },
                in_place: route.batched_at == route.trained_at,
                on_host: route.trained_at == Place::Host,
                durations: durations(r)?,
                bytes: r.largest.with_margin(),
            })
        };
        Problem::new(self.num_batches, resources, routes.into_iter().map(candidate).collect::<Result<_, _>>()?)
    }

    /// # Errors
    ///
    /// No plan can be made from the profile.
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        if self.num_batches == 0 || self.settings.cores == 0 || self.machine.cores == 0 {
            return invalid("there are no mini-batches, or no cores");
        }
        if self.num_batches > MAX_BATCHES {
            return invalid(format!("more than {MAX_BATCHES} mini-batches, which would take too long to plan"));
        }
        if self.settings.cores.max(self.machine.cores) > MAX_THREADS {
            return invalid(format!("more cores than the {MAX_THREADS} that can be planned with"));
        }
        if !is_amount(self.seconds) {
            return invalid("it took no finite time");
        }
        if self.routes.len() > MAX_ROUTES {
            return invalid(format!("{} routes are more than the {MAX_ROUTES} that can be planned", self.routes.len()));
        }
        if self.held_bytes > MAX_BYTES {
            return invalid(format!("{} bytes are more than any machine has", self.held_bytes));
        }
        for (i, route) in self.routes.iter().enumerate() {
            if let Some((key, phase)) = keys(&route.route).into_iter().zip(Phase::ALL).find(|(k, p)| k.phase != *p) {
                return invalid(format!("{key} is named as the operator of phase {phase}"));
            }
            let named = |e: Invalid| Invalid(format!("{}: {e}", route.keys()));
            if self.routes[..i].iter().any(|r| r.route == route.route) {
                return invalid("the route is there twice").map_err(named);
            }
            route.check().map_err(named)?;
        }
        let problem =
            self.build(self.settings.cores, |r| r.durations()?.with_interference(r.contention(&r.durations()?)))?;
        problem.with_caches(self.caches()).map(|_| ())
    }
}

fn invalid(text: impl Into<String>) -> Result<(), Invalid> {
    Err(Invalid(text.into()))
}

/// Whether a number is finite and not negative.
fn is_amount(x: f64) -> bool {
    x.is_finite() && x >= 0.0
}

fn keys(route: &Route) -> [&Key; 3] {
    [&route.batching, &route.transferring, &route.training]
}

/// Resources that an operator uses exclusively, and the cores. Workers that batch on the host's cores share all other resources
/// (a disk): their interference was measured with the pool, and none of them uses such a resource alone.
fn used(key: &Key) -> impl Iterator<Item = &morphgl_registry::Resource> {
    let pool = key.phase == Phase::Batching && on_host(key);
    key.hardware.resources().iter().filter(move |r| !pool || **r == morphgl_registry::Resource::CPU)
}

/// The name of each resource that a route's operators hold, with whether the operator queues its work there.
fn held(route: &Route) -> impl Iterator<Item = (bool, String)> {
    Phase::ALL.into_iter().zip(hardware(route)).flat_map(|(phase, names)| {
        let queued = route.queueing.contains(&phase);
        names.into_iter().map(move |name| (queued, name))
    })
}

/// Names of the resources each phase of a route uses, by [`used`]. What is not the processor of an operator at a device is
/// that device's own: its name has the device's number. A transfer between two devices of a backend holds the links among devices
/// ([`Resource::PEER`](morphgl_registry::Resource::PEER)) at both ends, and everything else where it leaves mini-batches.
fn hardware(route: &Route) -> [Vec<String>; 3] {
    use morphgl_registry::Resource;
    let Route { batching, transferring, training, batched_at, trained_at, .. } = route;
    let device = |place: &Place| match place {
        Place::Device { index, .. } => Some(*index),
        Place::Host | Place::Disk => None,
    };
    let [batches, trains] = [batched_at, trained_at].map(device);
    let moves = if route.is_between_devices() { trains } else { batches.or(trains) };
    let names = |key: &Key, number: Option<u32>, from: Option<u32>| {
        let name = |r: &Resource| -> Vec<String> {
            match number {
                Some(number) if *r != Resource::CPU => {
                    let other = from.filter(|_| *r == Resource::PEER);
                    other.into_iter().chain([number]).map(|number| format!("{r}:{number}")).collect()
                }
                _ => vec![r.to_string()],
            }
        };
        used(key).flat_map(name).collect()
    };
    let from = batches.filter(|_| route.is_between_devices());
    [names(batching, batches, None), names(transferring, moves, from), names(training, trains, None)]
}

/// The link between the host and the device to which a route copies or gathers mini-batches, as its resource is named; `None` where it
/// uses none.
pub fn link_of(route: &Route) -> Option<String> {
    let link = morphgl_registry::Resource::PCIE.name();
    let [_, transferring, _] = hardware(route);
    transferring.into_iter().find(|name| name.split(':').next() == Some(link))
}

/// Whether the phases of a route overlap on one device: batching and training hold it, and all three operators queue their work.
pub(crate) fn overlaps(route: &Route) -> bool {
    let [batching, _, training] = hardware(route);
    let on_one_device = route.trained_at != Place::Host && batching.iter().any(|name| training.contains(name));
    on_one_device && Phase::ALL.iter().all(|phase| route.queueing.contains(phase))
}

impl RouteProfile {
    /// Durations of each phase alone, and the share of them that overlapping does not hide, for the planner.
    ///
    /// # Errors
    ///
    /// Its fields were changed so that it cannot be planned with.
    pub fn durations(&self) -> Result<Durations, Invalid> {
        let pool = |s: &PoolSample| PoolPoint { workers: s.workers, threads: s.threads, seconds: s.seconds.seconds() };
        let batching: Vec<PoolPoint> = self.batching.iter().map(pool).collect();
        let training = self.training.iter().map(|s| Point { at: s.threads, seconds: s.seconds.seconds() });
        let durations = Durations::new(&batching, self.transferring.seconds(), Curve::new(training.collect())?)?;
        let Some(overlapped) = &self.overlapped else { return Ok(durations) };
        let alone = durations.batching(1, 1).mean + durations.transferring().mean;
        let added = overlapped.mean - durations.training().at(1).mean;
        let overlap = if alone > 0.0 { (added / alone).clamp(0.0, 1.0) } else { 1.0 };
        durations.with_overlap(overlap)
    }

    /// Interference of batching and training, as factors to their `durations` alone.
    pub fn contention(&self, durations: &Durations) -> Vec<InterferencePoint> {
        let factor = |both: f64, alone: f64| if alone > 0.0 { (both / alone).max(1.0) } else { 1.0 };
        let of = |t: &InterferenceSample| InterferencePoint {
            workers: t.workers,
            threads: t.threads,
            training_threads: t.training_threads,
            contention: Contention {
                batching: factor(t.batching.seconds().mean, durations.batching(t.workers, t.threads).mean),
                training: factor(t.training.seconds().mean, durations.training().at(t.training_threads).mean),
            },
        };
        self.interference.iter().map(of).collect()
    }

    fn check(&self) -> Result<(), Invalid> {
        let both = self.interference.iter().flat_map(|t| [&t.batching, &t.training]);
        let statistics = self.batching.iter().map(|s| &s.seconds).chain(self.training.iter().map(|s| &s.seconds));
        for s in statistics.chain(both).chain([&self.transferring]).chain(&self.overlapped) {
            s.check()?;
        }
        if self.interference.len() > MAX_SPLITS {
            return invalid(format!("more than {MAX_SPLITS} splits of the cores"));
        }
        let counts = self.interference.iter().flat_map(|t| [t.workers, t.threads, t.training_threads]);
        if let Some(odd) = counts.into_iter().find(|count| !(1..=MAX_THREADS).contains(count)) {
            return invalid(format!("batching beside training with a count of {odd}, outside 1 to {MAX_THREADS}"));
        }
        if !self.interference.is_empty() && !self.shares_cores() {
            return invalid("batching beside training on the cores, where not both run on them");
        }
        if !is_amount(self.edges_per_batch) || !is_amount(self.bytes_per_batch) {
            return invalid("a size of mini-batches that is no finite number");
        }
        Ok(())
    }
}

impl Statistics {
    fn check(&self) -> Result<(), Invalid> {
        let samples = &self.samples;
        if samples.is_empty() || !samples.iter().chain([&self.mean, &self.std, &self.median]).all(|&x| is_amount(x)) {
            return invalid("a duration without samples, or one that is no finite number of seconds");
        }
        if samples.iter().any(|&x| x > MAX_SECONDS) {
            return invalid("a duration of more than 10^9 s");
        }
        if self.outliers.iter().any(|&i| i >= samples.len()) || self.outliers.len() >= samples.len() {
            return invalid("a duration whose outliers are not some of its samples");
        }
        Ok(())
    }
}

pub(crate) fn counts(t: &InterferencePoint) -> Counts {
    (t.workers, t.threads, t.training_threads)
}

/// Interference at every split of the cores that a plan may have: as measured, or that of the nearest measured split.
fn all_splits(
    measured: Vec<InterferencePoint>,
    durations: &Durations,
    cores: usize,
    limits: &Limits,
) -> Vec<InterferencePoint> {
    if measured.is_empty() {
        return measured;
    }
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
                let mut contention = measured.iter().min_by_key(distance).expect("a split was measured").contention;
                let threads_per_core = (workers * threads + training_threads) as f64 / cores as f64;
                if threads_per_core > 1.0 {
                    let slowdown = threads_per_core * limits.oversubscription.max(1.0);
                    contention.batching = contention.batching.max(slowdown);
                    contention.training = contention.training.max(slowdown);
                }
                all.push(InterferencePoint { workers, threads, training_threads, contention });
            }
        }
    }
    all
}
