//! The planning problem: resources, routes over them with their durations, and limits.

use std::fmt;
use std::ops::Index;

use morphgl_registry::{Key, Phase, Route};
use serde::{Deserialize, Serialize};

use crate::cache::hit_rate_of_share;
use crate::numbers::{MAX_CORES, check_bytes, check_key, check_name, within};
use crate::{Cache, CacheMemory, CacheSize, Durations, Invalid};

/// A unit of hardware that phases compete for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resource {
    /// Its name, as the hardware of keys has it.
    pub name: String,
    /// Cores that threads of all phases share; `None` for a resource that one phase holds at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<usize>,
    /// Whether it queues the work of several phases, as a device with streams does. It is planned as if one phase held it at a
    /// time, since the work of all phases takes as long either way; an executor begins a phase on it before others have ended.
    #[serde(default, skip_serializing_if = "is_false")]
    pub queued: bool,
}

fn is_false(value: &bool) -> bool {
    !value
}

impl Resource {
    /// Whether one of `names` is one of `resources` that has cores.
    pub(crate) fn on_cores(resources: &[Self], names: &[String]) -> bool {
        resources.iter().any(|r| r.cores.is_some() && names.contains(&r.name))
    }

    /// A resource that one phase holds at a time.
    pub fn exclusive(name: impl Into<String>) -> Self {
        Self { name: name.into(), cores: None, queued: false }
    }

    /// A resource that queues the work of several phases.
    pub fn queued(name: impl Into<String>) -> Self {
        Self { queued: true, ..Self::exclusive(name) }
    }

    /// A resource of `cores` cores.
    pub fn shared(name: impl Into<String>, cores: usize) -> Self {
        Self { name: name.into(), cores: Some(cores.max(1)), queued: false }
    }
}

/// A value for each phase of a route.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PerPhase<T> {
    /// Of batching.
    pub batching: T,
    /// Of transferring.
    pub transferring: T,
    /// Of training.
    pub training: T,
}

impl From<&Route> for RouteKeys {
    fn from(route: &Route) -> Self {
        let Route { batching, transferring, training, .. } = route.clone();
        Self { batching, transferring, training }
    }
}

impl<T> Index<Phase> for PerPhase<T> {
    type Output = T;

    fn index(&self, phase: Phase) -> &T {
        [&self.batching, &self.transferring, &self.training][phase as usize]
    }
}

/// The operators of a route, by their keys.
pub type RouteKeys = PerPhase<Key>;

impl fmt::Display for RouteKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} → {} → {}", self.batching, self.transferring, self.training)
    }
}

/// The resources each phase of a route holds, by name.
pub type Hardware = PerPhase<Vec<String>>;

/// Memory of a mini-batch and of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Bytes {
    /// A mini-batch where it was batched, in bytes.
    pub batched: u64,
    /// A mini-batch where it is trained, in bytes.
    pub ready: u64,
    /// A worker at its place besides mini-batches, in bytes.
    pub worker: u64,
}

/// A route with its durations and memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// Its operators.
    pub keys: RouteKeys,
    /// Resources of its phases.
    pub hardware: Hardware,
    /// Whether it batches at the place where it trains (Route 1, and routes of one machine's CPU alone).
    /// A mini-batch then occupies a slot of the ready buffer from the beginning of its batching.
    pub in_place: bool,
    /// Whether mini-batches are trained in the host's memory.
    pub on_host: bool,
    /// Durations of its phases.
    pub durations: Durations,
    /// Its memory.
    #[serde(default)]
    pub bytes: Bytes,
}

/// Limits of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Capacity of the ready buffer, in mini-batches: MorphGL's gbs. Default 10.
    pub ready: usize,
    /// Capacity of the batched buffer, in mini-batches, those being batched included. Default 64.
    pub batched: usize,
    /// Threads a plan may have beyond the number of cores. Default 1.
    pub extra_threads: usize,
    /// Slowdown by oversubscription (more threads than cores) where interference was not measured; a factor from 1. Default 1.1.
    #[serde(alias = "crowding")]
    pub oversubscription: f64,
    /// Bytes of host memory for caches, buffers and workers; `None` is no limit, and leaves caches as they were profiled.
    pub host_bytes: Option<u64>,
    /// Bytes of device memory for caches, buffers and workers; `None` is no limit, and leaves caches there as they were profiled.
    pub device_bytes: Option<u64>,
    /// Epochs in which a cache of another size has to save the seconds of building it; `None` for very many.
    pub epochs: Option<u32>,
    /// Seconds that every epoch takes besides its phases, as measured: threads begin and end, mini-batches are handed on, caches
    /// are cold. Default 0.
    pub overhead: f64,
    /// Seconds from the end of a step until the next one may begin, in which other trainers of a group end theirs and gradients are
    /// added up. A device that queues work goes on with other phases meanwhile. Default 0.
    pub after_step: f64,
}

impl Limits {
    /// Bytes that caches, buffers and workers may take of host or device memory; `None` is no limit.
    pub(crate) fn of(&self, memory: CacheMemory) -> Option<u64> {
        match memory {
            CacheMemory::Host => self.host_bytes,
            CacheMemory::Device => self.device_bytes,
        }
    }
}

impl RouteKeys {
    /// Whether the route uses this cache.
    pub(crate) fn uses(&self, cache: &Cache) -> bool {
        [&self.batching, &self.transferring].contains(&&cache.operator)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            ready: 10,
            batched: 64,
            extra_threads: 1,
            oversubscription: 1.1,
            host_bytes: None,
            device_bytes: None,
            epochs: None,
            overhead: 0.0,
            after_step: 0.0,
        }
    }
}

/// Resources, routes over them, and an epoch to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct Problem {
    // Invariant: every name in a route's hardware is a resource's; at most one resource has cores; there is a route; an operator
    // has one cache at most, with a valid curve.
    pub(crate) num_batches: usize,
    pub(crate) resources: Vec<Resource>,
    pub(crate) routes: Vec<Candidate>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) caches: Vec<Cache>,
    /// Limits of plans.
    pub limits: Limits,
}

#[derive(Deserialize)]
struct Unchecked {
    num_batches: usize,
    resources: Vec<Resource>,
    routes: Vec<Candidate>,
    #[serde(default)]
    caches: Vec<Cache>,
    #[serde(default)]
    limits: Limits,
}

impl TryFrom<Unchecked> for Problem {
    type Error = Invalid;

    fn try_from(u: Unchecked) -> Result<Self, Invalid> {
        Ok(Self::new(u.num_batches, u.resources, u.routes)?.with_caches(u.caches)?.with_limits(u.limits))
    }
}

impl Problem {
    /// Takes the parts of a problem, with default limits.
    ///
    /// # Errors
    ///
    /// No route, a phase that holds nothing or a resource that does not exist, a resource named twice, two with cores, or more
    /// than 32; more mini-batches, cores, or bytes than can be planned with.
    pub fn new(num_batches: usize, resources: Vec<Resource>, routes: Vec<Candidate>) -> Result<Self, Invalid> {
        let error = |message: &str| Err(Invalid(format!("a planning problem: {message}")));
        if routes.is_empty() {
            return error("no route; give one at least");
        }
        if num_batches > u32::MAX as usize {
            return error("at most 2^32 - 1 mini-batches can be planned");
        }
        check_names(routes.iter().map(|route| (&route.keys, &route.hardware)), &resources)?;
        check_resources(&resources)?;
        for Candidate { keys, bytes, .. } in &routes {
            let Bytes { batched, ready, worker } = *bytes;
            [batched, ready, worker].into_iter().try_for_each(|bytes| check_bytes(keys, bytes))?;
        }
        for Candidate { keys, hardware, .. } in &routes {
            for phase in Phase::ALL {
                let (names, phase) = (&hardware[phase], phase.noun());
                if names.is_empty() {
                    return Err(Invalid(format!("{keys}: {phase} holds no resource; name one")));
                }
                if let Some(name) = names.iter().find(|n| resources.iter().all(|r| r.name != **n)) {
                    return Err(Invalid(format!("{keys}: {phase} holds {name}, which is not among the resources")));
                }
            }
        }
        Ok(Self { num_batches, resources, routes, caches: Vec::new(), limits: Limits::default() })
    }

    /// The same problem with other limits.
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// The same problem with a resource of so many cores, where it has none: for what is computed on them beside mini-batches, whose phases
    /// hold other resources alone.
    pub fn beside_cores(mut self, name: &str, cores: usize) -> Self {
        if self.resources.iter().all(|r| r.cores.is_none()) {
            self.resources.push(Resource::shared(name, cores));
        }
        self
    }

    /// The same problem with the caches of its operators, in place of any it had. The limit of their memory counts them, and
    /// [`plan`](crate::plan()) chooses their sizes within it.
    ///
    /// # Errors
    ///
    /// Two caches of one operator, or a curve that falls or has values that are not finite or negative.
    pub fn with_caches(self, caches: Vec<Cache>) -> Result<Self, Invalid> {
        for (i, cache) in caches.iter().enumerate() {
            cache.check()?;
            if caches[..i].iter().any(|c| c.operator == cache.operator) {
                return Err(Invalid(format!("{}: two caches; give one", cache.operator)));
            }
        }
        Ok(Self { caches, ..self })
    }

    /// The same problem with caches of these `sizes`, and the others as profiled; no plan of it changes them.
    pub fn settled(&self, sizes: &[CacheSize]) -> Self {
        let mut settled = sizes.iter().fold(self.clone(), |p, size| p.resized(&size.operator, size.bytes));
        settled.caches.iter_mut().for_each(|cache| cache.curve.points.clear());
        settled
    }

    /// The same problem with the cache of an operator at `bytes`; no plan of it changes that.
    pub(crate) fn resized(&self, operator: &Key, bytes: u64) -> Self {
        let mut resized = self.clone();
        let Some(cache) = resized.caches.iter_mut().find(|c| c.operator == *operator) else { return resized };
        let factor = cache.factor(bytes);
        for route in resized.routes.iter_mut().filter(|r| r.keys.uses(cache)) {
            let of = |key: &Key| if key == operator { factor } else { 1.0 };
            route.durations = route.durations.scaled(of(&route.keys.batching), of(&route.keys.transferring), 1.0);
        }
        // What another size finds is not predicted.
        cache.hit_rate = cache.hit_rate.filter(|_| cache.curve.bytes == bytes);
        cache.curve.bytes = bytes;
        cache.curve.points.clear();
        resized
    }

    /// The same problem with every cache as large as the limits alone allow: no size makes a phase shorter.
    pub(crate) fn with_largest_caches(&self) -> Self {
        let largest = |p: Self, c: &Cache| p.resized(&c.operator, c.largest(self.limits.of(c.memory)));
        self.caches.iter().fold(self.clone(), largest)
    }

    /// The same problem with the durations of a share of each mini-batch, linear between these of whole ones and those of `part`, a
    /// share of `of`. Routes that `part` does not have are left out.
    pub(crate) fn of_share(&self, part: &Self, of: f64, share: f64) -> Self {
        let with = |route: &Candidate| {
            let durations = route.durations.of_share(&part.route_like(route)?.durations, of, share);
            Some(Candidate { durations, ..route.clone() })
        };
        let cached = |cache: &Cache| {
            let mut cache = cache.clone();
            let of_part =
                part.caches.iter().find(|c| c.operator == cache.operator && c.curve.bytes == cache.curve.bytes);
            let rates = cache.hit_rate.zip(of_part.and_then(|c| c.hit_rate));
            cache.hit_rate = rates.map(|(whole, part)| hit_rate_of_share(whole, (of, part), share));
            cache
        };
        let (routes, caches) =
            (self.routes.iter().filter_map(with).collect(), self.caches.iter().map(cached).collect());
        Self { routes, caches, ..self.clone() }
    }

    /// The route with the same operators on the same resources.
    pub(crate) fn route_like(&self, other: &Candidate) -> Option<&Candidate> {
        self.routes.iter().find(|r| r.keys == other.keys && r.hardware == other.hardware)
    }

    /// The same problem with another number of cores, where a resource has cores.
    pub(crate) fn with_cores(mut self, cores: usize) -> Self {
        self.resources.iter_mut().filter_map(|r| r.cores.as_mut()).for_each(|own| *own = cores.max(1));
        self
    }

    /// The same problem for another number of mini-batches.
    pub fn with_batches(self, num_batches: usize) -> Self {
        Self { num_batches: num_batches.min(u32::MAX as usize), ..self }
    }

    /// Mini-batches of the epoch.
    pub fn num_batches(&self) -> usize {
        self.num_batches
    }

    /// The resources.
    pub fn resources(&self) -> &[Resource] {
        &self.resources
    }

    /// The routes.
    pub fn routes(&self) -> &[Candidate] {
        &self.routes
    }

    /// The caches of its operators.
    pub fn caches(&self) -> &[Cache] {
        &self.caches
    }

    /// The cores that threads share; 1 where no resource has cores.
    pub fn cores(&self) -> usize {
        cores(&self.resources)
    }

    pub(crate) fn on_cores(&self, names: &[String]) -> bool {
        Resource::on_cores(&self.resources, names)
    }

    pub(crate) fn exclusive(&self, names: &[String]) -> u32 {
        exclusive(&self.resources, names)
    }
}

/// Checks the lengths of all names, before any is quoted.
pub(crate) fn check_names<'a>(
    mut routes: impl Iterator<Item = (&'a RouteKeys, &'a Hardware)>,
    resources: &[Resource],
) -> Result<(), Invalid> {
    resources.iter().try_for_each(|resource| check_name(&resource.name))?;
    routes.try_for_each(|(keys, hardware)| {
        Phase::ALL.into_iter().try_for_each(|phase| {
            check_key(&keys[phase])?;
            hardware[phase].iter().try_for_each(|name| check_name(name))
        })
    })
}

/// Checks the resources of a machine.
///
/// # Errors
///
/// More than 32 resources, one named twice, two with cores, or one with none or too many of them.
pub(crate) fn check_resources(resources: &[Resource]) -> Result<(), Invalid> {
    let error = |message: &str| Err(Invalid(format!("a planning problem: {message}")));
    if resources.len() > 32 {
        return error("at most 32 resources can be planned");
    }
    if resources.iter().filter(|r| r.cores.is_some()).count() > 1 {
        return error("two resources have cores; threads share those of one machine");
    }
    for (i, Resource { name, cores, .. }) in resources.iter().enumerate() {
        if resources[..i].iter().any(|r| r.name == *name) {
            return Err(Invalid(format!("resource {name}: named twice; name each once")));
        }
        cores.map_or(Ok(()), |cores| within(&format!("cores of {name}"), cores, 1, MAX_CORES))?;
    }
    Ok(())
}

/// The cores that threads share; 1 where no resource has cores.
pub(crate) fn cores(resources: &[Resource]) -> usize {
    resources.iter().find_map(|r| r.cores).unwrap_or(1)
}

/// The exclusive resources among `names`, as a set of bits by position.
pub(crate) fn exclusive(resources: &[Resource], names: &[String]) -> u32 {
    let held = |(_, r): &(usize, &Resource)| r.cores.is_none() && names.contains(&r.name);
    resources.iter().enumerate().filter(held).map(|(i, _)| 1 << i).sum()
}

/// Whether two problems are the same but for the names of their resources.
pub(crate) fn alike(a: &Problem, b: &Problem) -> bool {
    let of = |r: &Resource| (r.cores, r.queued);
    let positions = |problem: &Problem, names: &[String]| -> Vec<Option<usize>> {
        names.iter().map(|name| problem.resources.iter().position(|r| r.name == *name)).collect()
    };
    let is_same = |(x, y): (&Candidate, &Candidate)| {
        let hardware = |phase: Phase| positions(a, &x.hardware[phase]) == positions(b, &y.hardware[phase]);
        let of = |c: &Candidate| (c.keys.clone(), c.in_place, c.on_host, c.bytes);
        Phase::ALL.into_iter().all(hardware) && of(x) == of(y) && x.durations == y.durations
    };
    a.num_batches == b.num_batches
        && (a.limits, &a.caches) == (b.limits, &b.caches)
        && a.resources.iter().map(of).eq(b.resources.iter().map(of))
        && a.routes.len() == b.routes.len()
        && a.routes.iter().zip(&b.routes).all(is_same)
}
