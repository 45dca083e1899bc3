//! The plan of devices with roles: from measured or described durations to the number of samplers, and changes of it.

use std::fmt;
use std::sync::Arc;

use anyhow::{Result, bail};
use morphgl_group::{Division, Weights};
use morphgl_plan::{
    Bottleneck, Bytes, Limits, Linear, Phase, Plan, Resource, RolesPlan, RolesProblem, RolesSchedule, RolesWork,
    RouteKeys, Segment, Strategy, Time, Utilisation, hit_rate_of_share, roles,
};
use morphgl_profile::{MemoryLimit, PeakBytes, Profile, Progress, RouteProfile, Settings, Watch};
use morphgl_registry::{Key, Operators, Place};
use serde::{Deserialize, Serialize};

use crate::unified::all_reduce_seconds;
use crate::{ExchangeKind, Job, Stop, task, words};

/// The share of a mini-batch that is measured beside whole ones.
const PART: f64 = 0.5;
/// Shares that wait for training at each trainer, at most.
const READY: usize = 2;

/// A plan of devices with roles.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Factored {
    /// The devices: the first ones train, the others sample.
    pub places: Vec<Place>,
    /// The operators that sample, that move shares between devices, and that train.
    pub keys: RouteKeys,
    /// What was planned.
    pub problem: RolesProblem,
    /// The roles, and the epoch that they are predicted to make.
    pub roles: RolesPlan,
    /// The operator that moves what a device sampled itself to its own training; `None` where no device changes its role.
    #[serde(default)]
    pub own: Option<Key>,
    /// Transport of the trainers' all-reduces.
    #[serde(default)]
    pub exchange: ExchangeKind,
    /// The leading trainer's plan, with the epoch of all.
    pub plan: Plan,
    /// The caches of feature rows, where the machine is described and has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caches: Option<RoleCaches>,
}

/// Caches of feature rows on devices with roles, by what else their memory holds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RoleCaches {
    /// Bytes on a device that only trains.
    pub trainer_bytes: u64,
    /// Bytes on a device that changes its role: it holds the topology, and mini-batches that it sampled, too.
    pub standby_bytes: u64,
    /// Part of the gathered rows of an epoch that are expected to be found, 0 to 1.
    pub hit_rate: f64,
}

/// Bytes of the mini-batches and workers that devices with roles have at most.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RolesInFlight {
    /// On a device that only trains: shares that wait, and one in training.
    pub(crate) of_trainer: u64,
    /// On a device that changes its role: the same, and a sampler's worker and queue.
    pub(crate) of_standby: u64,
}

impl RolesInFlight {
    /// With such mini-batches, by the limits of plans. A share takes no more than a whole one.
    pub(crate) fn of(largest: &PeakBytes, limits: Limits) -> Self {
        let Bytes { batched, ready, worker } = largest.with_margin();
        let of_trainer = ready.saturating_mul(READY.min(limits.ready) as u64 + 1);
        let queued = batched.saturating_mul(limits.ready as u64 + 1);
        Self { of_trainer, of_standby: of_trainer.saturating_add(worker).saturating_add(queued) }
    }
}

/// What devices with roles would do, as measured.
#[derive(Debug)]
pub struct FactoredProfile {
    /// Of a route between two devices, with whole mini-batches and with a share of each.
    whole: RouteProfile,
    part: RouteProfile,
    /// The share.
    share: f64,
    /// Seconds of adding up the gradients of the trainers.
    all_reduce: f64,
    places: Vec<Place>,
    /// Of the route by which a device trains what it sampled itself, whole mini-batches and the share of each: by it a device may change
    /// its role. `None` where some device has no such route.
    standby: Option<[RouteProfile; 2]>,
    /// Bytes of a device that only trains for its cache and mini-batches; `None` as of one that samples.
    trainer_bytes: Option<u64>,
}

/// The route between devices with the fastest mini-batches, and the devices that have both roles by it.
pub(crate) fn candidate(profile: &Profile) -> Option<(RouteProfile, Vec<Place>)> {
    let seconds = |r: &RouteProfile| -> f64 {
        let batching = r.batching.first().map_or(0.0, |pool| pool.seconds.mean);
        batching + r.transferring.mean + r.training.first().map_or(0.0, |sample| sample.seconds.mean)
    };
    let between = profile.routes.iter().filter(|r| r.route.is_between_devices());
    let fastest = between.min_by(|a, b| seconds(a).total_cmp(&seconds(b)))?;
    let mut places: Vec<Place> = Vec::new();
    for RouteProfile { route, .. } in profile.routes.iter().filter(|r| r.keys() == fastest.keys()) {
        places.extend([route.batched_at.clone(), route.trained_at.clone()]);
    }
    places.sort();
    places.dedup();
    Some((fastest.clone(), places))
}

impl FactoredProfile {
    /// What is known of a route between devices, and of the `standby` route by which a device trains what it sampled itself, with whole
    /// mini-batches and with such a share of each.
    pub(crate) fn new(
        [whole, part]: [RouteProfile; 2],
        standby: Option<[RouteProfile; 2]>,
        share: f64,
        all_reduce: f64,
        places: Vec<Place>,
    ) -> Self {
        Self { whole, part, share, all_reduce, places, standby, trainer_bytes: None }
    }

    /// The same, where a device that only trains has so many bytes for its cache and mini-batches.
    pub(crate) fn with_trainer_bytes(self, trainer_bytes: Option<u64>) -> Self {
        Self { trainer_bytes, ..self }
    }

    /// The route by which a device trains mini-batches that it sampled itself, by the operators of `keys`: of the operators that move
    /// them on each of these devices the fastest. `None` where some device has none.
    pub(crate) fn own<'a>(profile: &'a Profile, keys: &RouteKeys, places: &[Place]) -> Option<&'a RouteProfile> {
        let own = profile.routes.iter().filter(|r| {
            (&r.route.batching, &r.route.training) == (&keys.batching, &keys.training)
                && r.route.batched_at == r.route.trained_at
        });
        let own: Vec<&RouteProfile> = own.collect();
        let has =
            |place: &Place, key: &Key| own.iter().any(|r| (&r.route.trained_at, &r.route.transferring) == (place, key));
        let everywhere = own.iter().filter(|r| places.iter().all(|place| has(place, &r.route.transferring)));
        everywhere.min_by(|a, b| a.transferring.mean.total_cmp(&b.transferring.mean)).copied()
    }

    /// Measures halves of mini-batches on the fastest route between devices, and the all-reduce of gradients; `None` where no
    /// two devices have operators of both roles.
    ///
    /// # Errors
    ///
    /// An operator fails, or a stop is requested.
    pub fn measure(
        job: &mut Job,
        profile: &Profile,
        settings: &Settings,
        stop: &Stop,
        memory: Option<MemoryLimit<'_>>,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Option<Self>> {
        let num_seeds = task::num_examples(&job.dataset, &job.config).min(job.config.sampler.batch_size);
        let Some((whole, places)) = candidate(profile).filter(|_| num_seeds > 1) else { return Ok(None) };
        let all_reduce = all_reduce_seconds(&mut job.operators.trainers)?.map_or(0.0, |(_, seconds)| seconds);
        let halves = Weights::new(&[PART, 1.0 - PART]).expect("weights");
        let (budget, epochs) = (settings.budget.mul_f64(PART), settings.epochs.map(|epochs| epochs * PART));
        let settings = Settings { budget, epochs, ..settings.clone() };
        let halves: Arc<dyn Division> = Arc::new(halves);
        let mut with_part = |whole: &RouteProfile| -> Result<[RouteProfile; 2]> {
            let part = job.with_route(&whole.route, |job| -> Result<Profile> {
                let machine = job.registry().machine().clone();
                let watch = Watch { stop: &|| stop.is_requested(), memory };
                Ok(job.with_shares(&halves, 0, |job| {
                    morphgl_profile::profile(&mut job.operators, &[], &machine, &settings, &watch, progress)
                })?)
            })?;
            Ok([whole.clone(), part.routes.into_iter().next().expect("the route was measured")])
        };
        let own = Self::own(profile, &whole.keys(), &places);
        let standby = own.map(&mut with_part).transpose()?;
        Ok(Some(Self::new(with_part(&whole)?, standby, PART, all_reduce, places)))
    }
}

impl FactoredProfile {
    /// The caches of devices with such roles; `None` where nothing is cached.
    fn caches(&self, problem: &RolesProblem, planned: &RolesPlan) -> Option<RoleCaches> {
        // Bytes, and hits per request, of a cache whose hits are predicted.
        let cached = |profile: &RouteProfile| {
            profile.device_cache.as_ref().and_then(|cache| Some((cache.bytes, profile.hit_rate?))).unwrap_or_default()
        };
        let bytes = |profile: &RouteProfile| cached(profile).0;
        let rate_of = |[whole, part]: [&RouteProfile; 2], share: f64| {
            let [whole, part] = [whole, part].map(|profile| cached(profile).1);
            hit_rate_of_share(whole, (self.share, part), share)
        };
        let own = [&self.whole, &self.part];
        let standby = self.standby.as_ref().map_or(own, |[whole, part]| [whole, part]);
        if own.into_iter().chain(standby).all(|profile| bytes(profile) == 0) {
            return None;
        }
        let schedule = problem.schedule(&planned.segments);
        let stay = schedule.min_trainers();
        let rate_of_batch = |batch: usize| {
            let trainers = schedule.trainers(batch);
            let share = 1.0 / trainers as f64;
            stay as f64 * share * rate_of(own, share) + (trainers - stay) as f64 * share * rate_of(standby, share)
        };
        let sum: f64 = (0..problem.num_batches).map(rate_of_batch).sum();
        Some(RoleCaches {
            trainer_bytes: bytes(&self.whole),
            standby_bytes: bytes(standby[0]),
            hit_rate: sum / problem.num_batches.max(1) as f64,
        })
    }
}

impl Job {
    /// Works with the operators of one route alone.
    pub(crate) fn with_route<R>(&mut self, route: &morphgl_registry::Route, work: impl FnOnce(&mut Self) -> R) -> R {
        let Operators { routes, trainers } = std::mem::take(&mut self.operators);
        let (routes, others) = routes.into_iter().partition(|r| r.route == *route);
        let (trainers, idle): (Vec<_>, Vec<_>) =
            trainers.into_iter().partition(|t| (&t.key, &t.place) == (&route.training, &route.trained_at));
        self.operators = Operators { routes, trainers };
        let done = work(self);
        self.operators.routes.extend::<Vec<_>>(others);
        self.operators.trainers.extend(idle);
        done
    }
}

impl Factored {
    /// The roles with the least predicted epoch ([`roles`]), with gradients that are at most `staleness` steps stale. The global queue has
    /// as many mini-batches as a device's memory has room for, at most those of the limit of the ready queue.
    ///
    /// # Errors
    ///
    /// Fewer than two devices, or a limit that nothing fits.
    ///
    /// # Complexity
    ///
    /// As [`roles`].
    pub fn plan(
        profile: &Profile,
        measured: &FactoredProfile,
        cores: usize,
        limits: Limits,
        staleness: usize,
    ) -> Result<Self> {
        let FactoredProfile { whole, part, share, all_reduce, places, standby, trainer_bytes } = measured;
        let line = |of: &dyn Fn(&RouteProfile) -> f64| Linear::through(of(whole), *share, of(part));
        let sampling = line(&|r| r.batching.first().map_or(0.0, |pool| pool.seconds.mean));
        let gathering = line(&|r| r.transferring.mean);
        let training = line(&|r| r.training.first().map_or(0.0, |sample| sample.seconds.mean));
        let own = Profile { routes: vec![whole.clone()], ..profile.clone() }.problem(cores, limits);
        let problem = RolesProblem {
            num_batches: profile.num_batches,
            devices: places.len(),
            sampling,
            gathering,
            standby_gathering: standby.as_ref().map_or(gathering, |[whole, part]| {
                Linear::through(whole.transferring.mean, *share, part.transferring.mean)
            }),
            training,
            all_reduce: *all_reduce,
            queue: queue(&whole.largest, own.limits)?,
            ready: READY.min(limits.ready),
            // Operators of both roles are there from the beginning, and a device that changes its role copies nothing.
            switching: 0.0,
            staleness,
        };
        let mut planned = roles(&problem)?;
        if standby.is_none() {
            planned.segments = vec![Segment { from: 0, trainers: planned.unswitched_trainers }];
            planned.epoch_seconds = planned.unswitched_seconds;
        }
        let caches = measured.caches(&problem, &planned);
        let of_trainer = Limits { device_bytes: trainer_bytes.or(own.limits.device_bytes), ..own.limits };
        let plans = morphgl_plan::plan(&own.with_limits(of_trainer))?;
        let pipelined = plans.all().iter().find(|plan| plan.strategy != Strategy::Sequential);
        let mut plan = leading(pipelined.unwrap_or(plans.best()).clone(), &problem, &planned, places);
        for cache in plan.caches.iter_mut().filter(|cache| cache.operator == whole.route.transferring) {
            cache.hit_rate = caches.map(|caches| caches.hit_rate);
        }
        let (places, keys, exchange) = (places.clone(), whole.keys(), ExchangeKind::Auto);
        let own = standby.as_ref().map(|[whole, _]| whole.route.transferring.clone());
        Ok(Self { places, keys, own, problem, roles: planned, exchange, plan, caches })
    }

    /// The same roles with gradients added up by `exchange`.
    pub fn exchanging(self, exchange: ExchangeKind) -> Self {
        Self { exchange, ..self }
    }

    /// What the executor follows.
    pub fn schedule(&self) -> RolesSchedule {
        self.problem.schedule(&self.roles.segments)
    }

    /// Predicted seconds of an epoch.
    pub fn epoch_seconds(&self) -> f64 {
        self.roles.epoch_seconds
    }

    /// Whether a device samples, gathers and trains at some time.
    pub(crate) fn roles_of(&self, device: usize) -> [bool; 3] {
        let schedule = self.schedule();
        let trains = device < schedule.max_trainers();
        [device >= schedule.min_trainers(), trains, trains]
    }

    /// Devices that train at some time, and at all times.
    pub(crate) fn trainers(&self) -> (&[Place], &[Place]) {
        let schedule = self.schedule();
        (&self.places[..schedule.max_trainers()], &self.places[..schedule.min_trainers()])
    }
}

/// Mini-batches of the global queue: a device that samples alone has to have room for them.
fn queue(largest: &PeakBytes, limits: Limits) -> Result<usize> {
    let Some(free) = limits.device_bytes else { return Ok(limits.ready) };
    let room = free.saturating_sub(largest.worker_bytes) / largest.batched_bytes.max(1);
    let trained = largest.ready_bytes.saturating_mul(READY as u64 + 1);
    // One more is copied while the next one is sampled.
    if room < 2 || trained > free {
        let (free, one) = (words::bytes(free), words::bytes(largest.batched_bytes.max(largest.ready_bytes)));
        bail!("devices with roles: a mini-batch takes up to {one}, and {free} of a device are left; make them smaller");
    }
    Ok(limits.ready.min(room as usize - 1).max(1))
}

/// The plan of the first device, with the epoch of all devices, and what each of them is busy.
fn leading(mut plan: Plan, problem: &RolesProblem, planned: &RolesPlan, places: &[Place]) -> Plan {
    let timeline = problem.timeline(&planned.segments).expect("planned roles can be run");
    let mut busy = vec![[0.0; 2]; places.len()];
    for activity in &timeline.activities {
        match activity.step.work {
            RolesWork::Sampling => busy[activity.step.device][0] += activity.span.seconds(),
            RolesWork::Training => busy[activity.step.device][1] += activity.span.seconds(),
            RolesWork::Gathering | RolesWork::Switching => {}
        }
    }
    // Names of the devices as resources: that of the first one, with each one's number.
    let share = &mut plan.schedule.shares[0];
    let first = share.hardware.training.first().cloned().unwrap_or_default();
    let kind = first.split(':').next().unwrap_or_default().to_string();
    let name = |place: &Place| match place {
        Place::Device { index, .. } => format!("{kind}:{index}"),
        other => other.to_string(),
    };
    let names: Vec<String> = places.iter().map(name).collect();
    let of_role = |role: usize| -> Vec<String> {
        names.iter().zip(&busy).filter(|(_, busy)| busy[role] > 0.0).map(|(name, _)| name.clone()).collect()
    };
    (share.hardware.batching, share.hardware.training) = (of_role(0), of_role(1));
    for name in &names {
        if plan.schedule.resources.iter().all(|r| r.name != *name) {
            plan.schedule.resources.push(Resource::exclusive(name.clone()));
        }
    }
    let seconds = planned.epoch_seconds;
    let part = |busy: f64| if seconds > 0.0 { (busy / seconds).min(1.0) } else { 0.0 };
    let busiest = names.iter().zip(&busy).max_by(|a, b| (a.1[0] + a.1[1]).total_cmp(&(b.1[0] + b.1[1])));
    let (resource, [samples, trains]) =
        busiest.map(|(name, busy)| (name.clone(), *busy)).expect("two devices at least");
    let prediction = &mut plan.prediction;
    prediction.bottleneck =
        Bottleneck { resource, phase: if samples > trains { Phase::Batching } else { Phase::Training } };
    prediction.utilisation = names
        .iter()
        .zip(&busy)
        .map(|(name, busy)| Utilisation { resource: name.clone(), share: part(busy[0] + busy[1]) })
        .collect();
    let first_step = timeline.activities.iter().find(|a| a.step.work == RolesWork::Training);
    prediction.first_fill_seconds = first_step.map_or(0.0, |a| a.span.start);
    (prediction.epoch_seconds, prediction.bound_seconds) = (seconds, planned.bound_seconds);
    plan
}

impl fmt::Display for Factored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RolesPlan { segments, epoch_seconds, unswitched_trainers, unswitched_seconds, samplers_by_formula, .. } =
            &self.roles;
        let n = self.places.len();
        let named = |places: &[Place]| places.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let (train, stay) = self.trainers();
        write!(f, "factored: {} per epoch; ", Time(*epoch_seconds))?;
        let (samplers, turns) = (&self.places[train.len()..], &self.places[stay.len()..train.len()]);
        let roles = [("train", stay), ("sample", samplers), ("change roles", turns)];
        let roles = roles.iter().filter(|(_, places)| !places.is_empty());
        let roles: Vec<String> = roles.map(|(what, places)| format!("{what}: {}", named(places))).collect();
        write!(f, "{}", roles.join("; "))?;
        let all_reduce = Time(self.problem.all_reduce);
        write!(
            f,
            "; {} of {n} devices sample by GNNLab's formula, {} by the search; a queue of {}, {all_reduce} per step for the all-reduce of \
             gradients",
            samplers_by_formula,
            n - unswitched_trainers,
            words::plural(self.problem.queue as u64, "mini-batch"),
        )?;
        if self.problem.staleness > 0 {
            let steps = words::plural(self.problem.staleness as u64, "step");
            write!(f, "; gradients at most {steps} stale, so that trainers go on during the all-reduce")?;
        }
        if let Some(RoleCaches { trainer_bytes, standby_bytes, hit_rate }) = self.caches {
            write!(f, "; a cache of {} on a device that only trains", words::bytes(trainer_bytes))?;
            if train.len() > stay.len() {
                write!(f, " and of {} on one that changes its role", words::bytes(standby_bytes))?;
            }
            write!(f, ", {:.1}% of rows are predicted to be found", 100.0 * hit_rate)?;
        }
        if segments.len() > 1 {
            let changes = words::plural(segments.len() as u64 - 1, "change");
            write!(f, "\n{changes} of roles; without any {} per epoch", Time(*unswitched_seconds))?;
        }
        Ok(())
    }
}
