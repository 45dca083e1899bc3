//! The memory governor: bytes of a schedule, and smaller schedules that fit.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{CacheMemory, Limits, Policy, Problem, Schedule, ScheduleShare};

/// Peak bytes of a schedule's buffers, workers and caches, by the memory they are in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Memory {
    /// Buffers and workers in the host's memory.
    pub host: u64,
    /// Buffers and workers in the device's memory.
    pub device: u64,
    /// Caches in the host's memory.
    #[serde(default)]
    pub caches: u64,
    /// Caches in the device's memory.
    #[serde(default)]
    pub device_caches: u64,
    /// Buffers and workers in the memory of a device that batches for the one that trains.
    #[serde(default, skip_serializing_if = "is_none")]
    pub sampler: u64,
    /// Caches in the memory of that device.
    #[serde(default, skip_serializing_if = "is_none")]
    pub sampler_caches: u64,
}

fn is_none(bytes: &u64) -> bool {
    *bytes == 0
}

impl Memory {
    /// Bytes in the host's memory, caches included.
    pub fn all_host(&self) -> u64 {
        self.host.saturating_add(self.caches)
    }

    /// Bytes in the device's memory, caches included.
    pub fn all_device(&self) -> u64 {
        self.device.saturating_add(self.device_caches)
    }

    /// Bytes in the memory of a device that batches for the one that trains, caches included.
    pub fn all_sampler(&self) -> u64 {
        self.sampler.saturating_add(self.sampler_caches)
    }

    /// Bytes of one memory, caches included: of devices, of the fuller one.
    pub(crate) fn all(&self, memory: CacheMemory) -> u64 {
        match memory {
            CacheMemory::Host => self.all_host(),
            CacheMemory::Device => self.all_device().max(self.all_sampler()),
        }
    }

    /// Bytes of all memories.
    pub(crate) fn total(&self) -> u64 {
        [self.all_host(), self.all_device(), self.all_sampler()].into_iter().fold(0, u64::saturating_add)
    }

    fn fits(&self, limits: &Limits) -> bool {
        [CacheMemory::Host, CacheMemory::Device].iter().all(|m| limits.of(*m).is_none_or(|b| self.all(*m) <= b))
    }
}

/// The error when no schedule fits the limits.
#[derive(Debug, Clone, PartialEq)]
pub struct DoesNotFit {
    /// Bytes of the smallest schedule.
    pub minimum: Memory,
    /// The limits.
    pub limits: Box<Limits>,
}

impl fmt::Display for DoesNotFit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
        write!(f, "no plan fits in memory: the smallest needs {}", mib(self.minimum.all_host()))?;
        if self.minimum.caches > 0 {
            write!(f, ", {} of it for caches,", mib(self.minimum.caches))?;
        }
        if let Some(bytes) = self.limits.host_bytes {
            write!(f, " of the host's {} left for buffers", mib(bytes))?;
        }
        if let Some(bytes) = self.limits.device_bytes {
            write!(f, " and {} of the device's {}", mib(self.minimum.all(CacheMemory::Device)), mib(bytes))?;
        }
        f.write_str("; allow more memory, or make mini-batches smaller (batch size, fanouts)")
    }
}

impl std::error::Error for DoesNotFit {}

/// Peak bytes of `schedule`. A mini-batch in training counts in addition to those in the ready buffer.
pub fn memory(problem: &Problem, schedule: &Schedule) -> Memory {
    let mut memory = Memory::default();
    let (mut ready, mut on_host) = (0, false);
    // Of the host, and of a device that batches for the one that trains: bytes of a mini-batch, and shares that move theirs.
    let [mut of_host, mut of_sampler] = [(0, 0); 2];
    for share in &schedule.shares {
        let Some(route) = problem.routes.iter().find(|r| r.keys == share.keys) else { continue };
        let on_sampler = share.batches_apart(&problem.resources);
        // A worker's memory is at the place where it batches.
        let place = match share.in_place && !route.on_host {
            true => &mut memory.device,
            false if on_sampler => &mut memory.sampler,
            false => &mut memory.host,
        };
        *place += share.workers as u64 * route.bytes.worker;
        ready = ready.max(route.bytes.ready);
        on_host |= route.on_host;
        if !share.in_place {
            let (batched, moving): &mut (u64, u64) = if on_sampler { &mut of_sampler } else { &mut of_host };
            (*batched, *moving) = ((*batched).max(route.bytes.batched), *moving + 1);
        }
    }
    for cache in &problem.caches {
        let on_sampler = |s: &ScheduleShare| s.batches_apart(&problem.resources) && s.keys.batching == cache.operator;
        let users = || schedule.shares.iter().filter(|s| s.keys.uses(cache));
        let places = match cache.memory {
            CacheMemory::Host => [(&mut memory.caches, users().next().is_some()), (&mut memory.device_caches, false)],
            CacheMemory::Device => [
                (&mut memory.device_caches, !users().all(on_sampler)),
                (&mut memory.sampler_caches, users().any(on_sampler)),
            ],
        };
        for (held, _) in places.into_iter().filter(|(_, is_there)| *is_there) {
            *held = held.saturating_add(cache.curve.bytes);
        }
    }
    // A mini-batch being transferred exists at both places.
    for (place, (batched, moving)) in [(&mut memory.host, of_host), (&mut memory.sampler, of_sampler)] {
        if moving > 0 {
            *place += (schedule.batched as u64 + moving) * batched;
        }
    }
    // In a sequential schedule the ready buffer is empty while training runs.
    let in_training = u64::from(schedule.policy != Policy::Sequential);
    *if on_host { &mut memory.host } else { &mut memory.device } += (schedule.ready as u64 + in_training) * ready;
    memory
}

/// Shrinks buffers, then pools, until `schedule` fits; `None` where it cannot.
pub(crate) fn fit(problem: &Problem, mut schedule: Schedule) -> Option<Schedule> {
    loop {
        let now = memory(problem, &schedule);
        if now.fits(&problem.limits) {
            return Some(schedule);
        }
        if problem.limits.device_bytes.is_some_and(|b| now.all_device() > b) {
            if schedule.ready <= 1 {
                return None;
            }
            schedule.ready -= 1;
        } else if schedule.batched > schedule.workers(false).max(1) {
            schedule.batched -= 1;
        } else if schedule.ready > schedule.workers(true).max(1) {
            schedule.ready -= 1;
        } else if let Some(share) = schedule.shares.iter_mut().filter(|s| s.workers > 1).max_by_key(|s| s.workers) {
            // Fewer workers interfere less, so the measured seconds stay an upper bound.
            share.workers -= 1;
        } else {
            return None;
        }
        schedule.group = schedule.group.min(schedule.ready);
        schedule.keep = schedule.keep.min(schedule.ready - schedule.group);
    }
}

/// The error when nothing fits, with the minimum of all `schedules`.
pub(crate) fn does_not_fit(problem: &Problem, schedules: &[Schedule]) -> DoesNotFit {
    let smallest = |s: &Schedule| {
        let mut s = s.clone();
        s.shares.iter_mut().for_each(|share| share.workers = 1);
        (s.batched, s.ready) = (s.batched.min(1), 1);
        memory(problem, &s)
    };
    let minimum = schedules.iter().map(smallest).min_by_key(|m| (m.total(), m.host));
    DoesNotFit { minimum: minimum.unwrap_or_default(), limits: Box::new(problem.limits) }
}
