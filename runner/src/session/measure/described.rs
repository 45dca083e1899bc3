//! Plans for a described machine: nothing is measured, durations are those that the simulated operators state.

use std::sync::Arc;

use morphgl_graph_store::Dataset;
use morphgl_group::{Division, Weights};
use morphgl_plan::{Bytes, MAX_SECONDS};
use morphgl_profile::{
    LinkProfile, LinkShare, PeakBytes, PoolSample, Profile, RouteProfile, Settings, Statistics, TrainingSample, link_of,
};
use morphgl_registry::{
    BatchId, CACHE_HITS, CACHE_REQUESTS, CacheCurve, CounterSpec, Counters, HostBatch, MiniBatch, Operators, Place,
    Route, RouteOperators, Training,
};
use morphgl_sim::{DeviceDescription, LinkDescription, MachineDescription};

use super::{Measured, Planned, Wanted};
use crate::factored::{Factored, FactoredProfile, RolesInFlight, candidate};
use crate::session::choices::Choices;
use crate::usage::Usage;
use crate::{GroupProfile, Job, JobConfig, Limits, RunContext, Shares, Unified, budget, task, words};

/// Mini-batches whose durations are averaged.
const SAMPLES: usize = 4;
/// Bytes of a worker's own buffers per input node, as `morphgl_profile` estimates them.
const WORKER_NODE_BYTES: u64 = 64;
/// Bytes of a parameter with its gradient and the two moments of Adam.
const PARAMETER_BYTES: u64 = 16;

/// Builds the job, asks its operators for the durations of some mini-batches, and plans.
pub(super) fn measure(
    planned: Planned<'_>,
    context: &RunContext,
    machine: &MachineDescription,
    dataset: &Arc<Dataset>,
    config: JobConfig,
    wanted: Wanted,
) -> anyhow::Result<Measured> {
    let build = |every_device, roles| {
        let config = JobConfig { every_device, roles, whole_links: every_device && !roles, ..config.clone() };
        Job::new(context, Arc::clone(dataset), config)
    };
    let mut job = build(false, false)?;
    job.unbuilt.iter().for_each(|why| context.remark(format_args!("left out: {why}")));
    let (threads, choices) = (job.threads(), Choices::of(&job));
    let free = FreeBytes::of(planned, machine, &job)?;
    let limits = Limits { epochs: wanted.epochs, ..free.limits };
    let fitting = |largest: &PeakBytes| Some(cached_bytes(limits, in_flight(limits, largest)));
    let mut profile = profile(&mut job, &fitting)?;
    let held_bytes = dataset_bytes(dataset);
    let (problem, plans) = planned.schedule(&profile, threads, limits, (&job.config, held_bytes))?;
    let unified = match wanted.group {
        Some(shares) => group(&mut build(true, false)?, machine, shares, threads, limits).transpose(),
        None => None,
    };
    if wanted.links || unified.is_some() {
        profile.links = links(machine, &build(true, false)?);
    }
    let factored = match wanted.roles && machine.devices.len() > 1 {
        true => factored(&mut build(true, true)?, threads, (limits, free.of_trainer), wanted.staleness).transpose(),
        false => None,
    };
    Ok(Measured { job, profile, problem, plans, unified, factored, split: None, held_bytes, choices })
}

/// The best plan of several trainers together: of all, or of the devices alone, whose all-reduce may go over connections of their own.
/// `None` where there is one trainer.
fn group(
    job: &mut Job,
    machine: &MachineDescription,
    shares: Shares,
    threads: usize,
    limits: Limits,
) -> anyhow::Result<Option<Unified>> {
    let seeds = task::num_examples(&job.dataset, &job.config).min(job.config.sampler.batch_size);
    if job.operators.trainers.len() < 2 || seeds < 2 {
        return Ok(None);
    }
    let whole = profile(job, &|largest| Some(cached_bytes(limits, in_flight(limits, largest))))?;
    // Mini-batches overlap in their neighbourhoods: a share takes more than its part of a whole one, and a small one yet more.
    let share = 1.0 / job.operators.trainers.len() as f64;
    let divided = Weights::new(&[share, 1.0 - share]).expect("weights");
    let mut part = job.with_shares(&(Arc::new(divided) as _), 0, |job| profile(job, &as_they_are))?;
    part.links = links(machine, job);
    let in_use = machine.in_use_by_all();
    let gradient_bytes = 4.0 * parameters(&job.config) as f64;
    let mut best: Option<anyhow::Result<Unified>> = None;
    for with_host in [true, false] {
        let of = |profile: &Profile| {
            let mut profile = profile.clone();
            profile.routes.retain(|r| with_host || r.route.trained_at != Place::Host);
            profile
        };
        let places: Vec<Place> = of(&whole).trainers().into_iter().map(|(_, place)| place).collect();
        if places.len() < 2 || !with_host && places.len() == machine.devices.len() && !has_host(&whole) {
            continue;
        }
        let all_reduce = in_use.all_reduce(&places, gradient_bytes);
        let divided = GroupProfile::new(seeds, of(&part), share, all_reduce);
        let unified = Unified::plan(&of(&whole), &divided, shares, threads, limits);
        let is_better = match (&best, &unified) {
            (Some(Ok(best)), Ok(unified)) => unified.epoch_seconds < best.epoch_seconds,
            (Some(Ok(_)), Err(_)) => false,
            _ => true,
        };
        if is_better {
            best = Some(unified);
        }
    }
    best.transpose()
}

/// The best plan of devices with roles; `None` where no two sample, copy to each other and train. A device that only trains holds no
/// topology, and has `of_trainer` bytes for its cache and mini-batches.
fn factored(
    job: &mut Job,
    threads: usize,
    (limits, of_trainer): (Limits, Option<u64>),
    staleness: usize,
) -> anyhow::Result<Option<Factored>> {
    let seeds = task::num_examples(&job.dataset, &job.config).min(job.config.sampler.batch_size);
    job.operators.routes.retain(|r| r.route.batched_at != Place::Host);
    if job.operators.routes.is_empty() || seeds < 2 {
        return Ok(None);
    }
    let whole = profile(job, &as_they_are)?;
    let Some((route, places)) = candidate(&whole) else { return Ok(None) };
    let keys = route.keys();
    // As many trainers as there may be, so that the line through both is exact where shares are smallest.
    let share = 1.0 / (places.len() - 1).max(2) as f64;
    let divided = Weights::new(&[share, 1.0 - share]).expect("weights");
    let divided: Arc<dyn Division> = Arc::new(divided);
    // The durations of whole mini-batches and of a share of each on a route, with a cache of so many bytes.
    let mut with_cache = |route: &Route, bytes: u64| -> anyhow::Result<[RouteProfile; 2]> {
        let of_size = |_: &PeakBytes| Some(bytes);
        let one = |profile: Profile| profile.routes.into_iter().next().expect("the route has its durations");
        job.with_route(route, |job| {
            let whole = profile(job, &of_size)?;
            let part = job.with_shares(&divided, 0, |job| profile(job, &of_size))?;
            Ok([one(whole), one(part)])
        })
    };
    let in_flight = RolesInFlight::of(&route.largest, limits);
    let trainer_limits = Limits { device_bytes: of_trainer, ..limits };
    let trainer = with_cache(&route.route, cached_bytes(trainer_limits, in_flight.of_trainer))?;
    let of_standby = cached_bytes(limits, in_flight.of_standby);
    let own = FactoredProfile::own(&whole, &keys, &places);
    let standby = own.map(|own| with_cache(&own.route, of_standby)).transpose()?;
    let in_use = budget::machine(&job.config).expect("the job is of a described machine");
    let all_reduce = match places.len() {
        2 => 0.0,
        n => in_use.all_reduce(&places[..n - 1], 4.0 * parameters(&job.config) as f64),
    };
    let measured = FactoredProfile::new(trainer, standby, share, all_reduce, places).with_trainer_bytes(of_trainer);
    Factored::plan(&whole, &measured, threads, limits, staleness).map(Some)
}

/// The links that several devices share by their description. Each device can take all of a link's bandwidth.
fn links(machine: &MachineDescription, job: &Job) -> Vec<LinkProfile> {
    let of_link = |link: &LinkDescription| {
        let mut users: Vec<LinkShare> = Vec::new();
        for RouteOperators { route, .. } in &job.operators.routes {
            let is_behind = machine.device(&route.trained_at).is_some_and(|device| device.link == link.name);
            if let Some(resource) = link_of(route).filter(|_| is_behind)
                && users.iter().all(|user| user.place != route.trained_at)
            {
                users.push(LinkShare { place: route.trained_at.clone(), resource, fraction: 1.0 });
            }
        }
        LinkProfile { name: link.name.clone(), users }
    };
    machine.links.iter().map(of_link).filter(|link| link.users.len() > 1).collect()
}

fn has_host(profile: &Profile) -> bool {
    profile.routes.iter().any(|r| r.route.trained_at == Place::Host)
}

/// Number of the model's parameters.
fn parameters(config: &JobConfig) -> u64 {
    config.spec.model.parameters().iter().map(|p| p.shape.iter().product::<usize>() as u64).sum()
}

/// Bytes of a dataset's topology and features.
fn dataset_bytes(dataset: &Dataset) -> u64 {
    let features = dataset.features.as_ref().map_or(0, |f| (f.row_bytes() * dataset.num_nodes()) as u64);
    topology_bytes(dataset) + features
}

fn topology_bytes(dataset: &Dataset) -> u64 {
    8 * (dataset.num_nodes() as u64 + 1) + 4 * dataset.topology.num_edges()
}

/// Memory of a described machine for caches, mini-batches in flight and workers.
struct FreeBytes {
    /// The limits of plans: the options', else nine tenths of what the host's memory has beside the dataset, and that of the smallest
    /// device beside the model and, where it samples from its own memory, the topology. No plan has more threads than cores.
    limits: Limits,
    /// The limit of a device that only trains, and so holds no topology.
    of_trainer: Option<u64>,
}

impl FreeBytes {
    fn of(planned: Planned<'_>, machine: &MachineDescription, job: &Job) -> anyhow::Result<Self> {
        let given = planned.options.limits.options();
        let (held, memory) = (dataset_bytes(&job.dataset), (machine.host.memory_gb * 1e9) as u64);
        let Some(free) = memory.checked_sub(held) else {
            let (held, memory) = (words::bytes(held), words::bytes(memory));
            let what = format!("the dataset takes {held}, and machine {} has {memory}", machine.name);
            return Err(Usage::error(format!("--machine: {what}; describe more memory, or choose another dataset")));
        };
        let topology = topology_bytes(&job.dataset);
        let model = PARAMETER_BYTES * parameters(&job.config);
        let left =
            |device: &DeviceDescription, held: u64| ((device.memory_gb * 1e9) as u64).saturating_sub(held) / 10 * 9;
        let of_any = |device: &DeviceDescription| {
            let samples = device.sampling_m_edges_per_s.is_some() && device.holds(topology);
            left(device, model + if samples { topology } else { 0 })
        };
        let smallest = |of: &dyn Fn(&DeviceDescription) -> u64| {
            given.device_bytes.or_else(|| machine.devices.iter().map(of).min())
        };
        let host_bytes = given.host_bytes.or(Some(free / 10 * 9));
        let limits = Limits { host_bytes, device_bytes: smallest(&of_any), extra_threads: 0, ..given };
        Ok(Self { limits, of_trainer: smallest(&|device| left(device, model)) })
    }
}

/// Bytes of a device's static cache of feature rows: what the limit leaves beside `in_flight` bytes. (The operator takes no more than all
/// rows need, and than `--cache` allows.)
fn cached_bytes(limits: Limits, in_flight: u64) -> u64 {
    limits.device_bytes.unwrap_or(0).saturating_sub(in_flight)
}

/// Bytes of the mini-batches and of the worker that a plan of one trainer has on its device at most.
fn in_flight(limits: Limits, largest: &PeakBytes) -> u64 {
    let Bytes { ready, worker, .. } = largest.with_margin();
    ready.saturating_mul(limits.ready as u64 + 1).saturating_add(worker)
}

/// Leaves a cache the size that it has.
fn as_they_are(_: &PeakBytes) -> Option<u64> {
    None
}

/// Bytes of a cache, by those of the mini-batches in flight; `None` leaves it as it is.
type CacheSize<'a> = &'a dyn Fn(&PeakBytes) -> Option<u64>;

/// The durations of a job's routes, as their operators state them for some mini-batches. Routes that differ in the number of the
/// device alone have the same where the devices are of a kind. `size` says how many bytes the cache of a route with such mini-batches
/// may take.
fn profile(job: &mut Job, size: CacheSize<'_>) -> anyhow::Result<Profile> {
    let cores = job.threads();
    let machine = job.config.machine.clone().expect("the job is of a described machine");
    let num_batches = job.operators.routes.first().map_or(0, |route| route.batching.num_batches());
    let ids = sampled(num_batches);
    let row_bytes = job.dataset.features.as_ref().map_or(0, |matrix| matrix.row_bytes() as u64);
    let mut routes: Vec<RouteProfile> = Vec::new();
    let Operators { routes: built, trainers } = &mut job.operators;
    for operators in built {
        let route = operators.route.clone();
        let kinds = |r: &Route| {
            let devices = [&r.batched_at, &r.trained_at].map(|place| machine.device(place).cloned());
            (r.batching.clone(), r.transferring.clone(), r.training.clone(), devices)
        };
        if let Some(known) = routes.iter().find(|known| kinds(&known.route) == kinds(&route)) {
            routes.push(RouteProfile { route, ..known.clone() });
            continue;
        }
        let trainer = trainers.iter_mut().find(|t| (&t.key, &t.place) == (&route.training, &route.trained_at));
        let trainer = trainer.expect("a route's trainer was built with it");
        let untrained = trainer.operator.parameters()?;
        let stated = stated(operators, trainer.operator.as_mut(), (&ids, cores), (row_bytes, size))?;
        trainer.operator.set_parameters(&untrained)?;
        routes.push(stated);
    }
    let settings = Settings::new(cores);
    let machine = job.registry().machine().clone();
    let version = morphgl_profile::VERSION;
    let (selections, skipped, seconds, held_bytes) = (Vec::new(), Vec::new(), 0.0, 0);
    let links = Vec::new();
    Ok(Profile { version, machine, settings, num_batches, selections, routes, skipped, seconds, held_bytes, links })
}

/// Some mini-batches of epoch 0, spread evenly over it; the last one of an epoch may be smaller, and is left out.
fn sampled(num_batches: usize) -> Vec<BatchId> {
    let whole = num_batches.saturating_sub(1).max(1);
    let count = whole.min(SAMPLES);
    (0..count).map(|i| BatchId { epoch: 0, index: (i * whole / count) as u32 }).collect()
}

/// Durations, bytes and hits that the operators of a route report for these mini-batches, with a cache of the bytes that `size` gives.
fn stated(
    operators: &mut RouteOperators,
    training: &mut dyn Training,
    (ids, cores): (&[BatchId], usize),
    (row_bytes, size): (u64, CacheSize<'_>),
) -> anyhow::Result<RouteProfile> {
    let RouteOperators { route, batching, transferring } = operators;
    let mut worker = batching.worker(1)?;
    let counts = |on_host: bool| if on_host && cores > 1 { vec![1, cores] } else { vec![1] };
    let training_threads = counts(route.trained_at == Place::Host);
    let (mut batched, mut moved) = (Vec::new(), Vec::new());
    let mut trained: Vec<Vec<f64>> = vec![Vec::new(); training_threads.len()];
    let (mut edges, mut bytes, mut largest) = (0.0, 0.0, PeakBytes::default());
    let mut batches = Vec::new();
    for &id in ids {
        let (batch, took) = worker.prepare(id, None)?.wait()?;
        batched.push(took.as_secs_f64());
        let content = on_host(&batch)?;
        let (batched_bytes, inputs) = (content.num_bytes() as u64, content.input_nodes.len() as u64);
        let missing = if content.features.is_none() { inputs * row_bytes } else { 0 };
        largest.batched_bytes = largest.batched_bytes.max(batched_bytes);
        largest.ready_bytes = largest.ready_bytes.max(batched_bytes + missing);
        largest.worker_bytes = largest.worker_bytes.max(largest.batched_bytes + WORKER_NODE_BYTES * inputs);
        batches.push(batch);
    }
    if let Some(bytes) = size(&largest).filter(|_| transferring.cache().is_some()) {
        transferring.resize_cache(bytes)?;
    }
    // What a mini-batch has where it is trained may be less than was estimated.
    largest.ready_bytes = 0;
    let mut counted = Counters::NONE;
    for batch in batches {
        let (batch, measured) = transferring.transfer(batch)?.measured()?;
        moved.push(measured.busy.as_secs_f64());
        counted += measured.counters;
        let content = on_host(&batch)?;
        edges += content.num_edges() as f64 / ids.len() as f64;
        bytes += content.num_bytes() as f64 / ids.len() as f64;
        largest.ready_bytes = largest.ready_bytes.max(content.num_bytes() as u64);
        for (&threads, seconds) in training_threads.iter().zip(&mut trained) {
            training.set_threads(threads)?;
            seconds.push(training.accumulate(&batch)?.wait()?.1.as_secs_f64());
        }
    }
    let amount = |spec: &CounterSpec| counted.get(spec).filter(|&n| n > 0).map(|n| n as f64);
    let hit_rate = amount(&CACHE_REQUESTS).map(|requests| amount(&CACHE_HITS).unwrap_or(0.0) / requests);
    let batch_seconds = moved.iter().sum::<f64>() / moved.len() as f64;
    let device_cache = transferring.cache().filter(|cache| cache.bytes > 0);
    let device_cache = device_cache.map(|cache| CacheCurve { batch_seconds, ..cache });
    let slowest = batched.iter().chain(&moved).chain(trained.iter().flatten()).copied().fold(0.0, f64::max);
    if slowest > MAX_SECONDS {
        let what = format!("a phase of a mini-batch takes {slowest:.1e} s by the description, too long to plan with");
        return Err(Usage::error(format!("--machine: {what}; describe a faster machine")));
    }
    let pool = |workers: usize| {
        let seconds = Statistics::of(batched.iter().map(|took| took / workers as f64).collect());
        PoolSample { workers, threads: 1, seconds }
    };
    let batching = counts(route.batched_at == Place::Host).into_iter().map(pool).collect();
    let sample = |(threads, seconds)| TrainingSample { threads, seconds: Statistics::of(seconds) };
    Ok(RouteProfile {
        route: route.clone(),
        edges_per_batch: edges,
        bytes_per_batch: bytes,
        largest,
        batching,
        transferring: Statistics::of(moved),
        training: training_threads.into_iter().zip(trained).map(sample).collect(),
        interference: Vec::new(),
        overlapped: None,
        cache: None,
        device_cache,
        hit_rate,
    })
}

/// The content of a mini-batch.
fn on_host(batch: &MiniBatch) -> anyhow::Result<HostBatch> {
    Ok(match batch {
        MiniBatch::Host(batch) => batch.clone(),
        MiniBatch::Device(batch) => batch.to_host()?,
    })
}
