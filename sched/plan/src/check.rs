//! Checks of plans from files, and the bounds of every number in a plan or a planning problem.
//!
//! Sums and products of numbers within the bounds do not overflow, and a schedule within them runs without a panic and ends.

use morphgl_registry::Phase;

use crate::problem::check_resources;
use crate::{Contention, Hardware, Invalid, Memory, Plan, Policy, Resource, RouteKeys, Schedule, Seconds, Share};

/// Maximum number of threads of a phase: workers times the threads of each, and threads of training.
pub const MAX_THREADS: usize = 1024;
/// Maximum number of cores.
pub(crate) const MAX_CORES: usize = 1 << 20;
/// Maximum capacity of a buffer, in mini-batches.
pub const MAX_BUFFER: usize = u16::MAX as usize + MAX_THREADS;
/// Maximum slowdown of a phase by another.
pub(crate) const MAX_FACTOR: f64 = 1e15;
/// Maximum seconds of a duration: 30 years.
pub const MAX_SECONDS: f64 = 1e9;
/// Maximum bytes of the name of an operator or a resource, which messages quote.
const MAX_NAME: usize = 256;
/// Maximum bytes of a mini-batch, a worker or a cache: 64 TiB.
pub const MAX_BYTES: u64 = 1 << 46;

impl Plan {
    /// Checks every number of a plan that this program did not make, such as one from a file.
    ///
    /// # Errors
    ///
    /// The first value that no planner would choose: the text names it and the bound.
    pub fn check(&self) -> Result<(), Invalid> {
        check_names(self.schedule.shares.iter().map(|share| (&share.keys, &share.hardware)), &self.schedule.resources)?;
        self.caches.iter().try_for_each(|cache| check_name(&cache.batching))?;
        self.schedule.check()?;
        let Memory { host, device, caches } = self.memory;
        for (name, bytes) in [("memory.host", host), ("memory.device", device), ("memory.caches", caches)] {
            check_bytes(&name, bytes)?;
        }
        for cache in &self.caches {
            for bytes in [cache.profiled_bytes, cache.bytes, cache.left_bytes.unwrap_or(0)] {
                check_bytes(&cache.batching, bytes)?;
            }
            if !cache.saved_seconds.is_finite() {
                return wrong(&cache.batching, format!("saves {} s, which is no number", cache.saved_seconds));
            }
        }
        let p = &self.prediction;
        let seconds = [p.epoch_seconds, p.bound_seconds, p.first_fill_seconds];
        if let Some(odd) = seconds.iter().chain(p.utilisation.iter().map(|u| &u.share)).find(|x| !is_amount(**x)) {
            return wrong(&"prediction", format!("{odd} is no finite number of at least 0"));
        }
        Ok(())
    }
}

impl Schedule {
    fn check(&self) -> Result<(), Invalid> {
        if self.shares.is_empty() || self.shares.len() > 32 {
            return wrong(&"shares", format!("there are {}; a schedule has 1 to 32", self.shares.len()));
        }
        check_resources(&self.resources)?;
        for share in &self.shares {
            self.check_share(share).map_err(|e| Invalid(format!("the share of {}: {e}", share.keys)))?;
        }
        let sum = self.shares.iter().try_fold(0usize, |sum, share| sum.checked_add(share.batches));
        if sum.is_none_or(|batches| batches > u32::MAX as usize) {
            return wrong(&"batches", "the shares have more than 2^32 - 1 mini-batches".to_string());
        }
        let trains_on_cores = self.shares.iter().any(|share| self.threads_on(share, Phase::Training));
        within("training_threads", self.training_threads, usize::from(trains_on_cores), MAX_THREADS)?;
        let batched = self.shares.iter().any(|share| !share.in_place);
        within("batched", self.batched, usize::from(batched), MAX_BUFFER)?;
        within("ready", self.ready, 1, MAX_BUFFER)?;
        within("group", self.group, 0, self.ready)?;
        within("keep", self.keep, 0, self.ready - self.group)?;
        if !(is_amount(self.oversubscription) && self.oversubscription <= MAX_SECONDS) {
            return wrong(&"crowding", format!("{} is no factor", self.oversubscription));
        }
        let in_place: Vec<bool> = self.shares.iter().map(|share| share.in_place).collect();
        if self.policy == Policy::DualBuffer && in_place != [false, true] {
            let what = "the policy dual-buffer takes a share batched by the host, then one batched by the device";
            return wrong(&"shares", what.to_string());
        }
        Ok(())
    }

    fn threads_on(&self, share: &Share, phase: Phase) -> bool {
        crate::problem::on_cores(&self.resources, &share.hardware[phase])
    }

    fn check_share(&self, share: &Share) -> Result<(), Invalid> {
        let on_cores = self.threads_on(share, Phase::Batching);
        within("workers", share.workers, 1, MAX_THREADS)?;
        within("threads_per_worker", share.threads_per_worker, usize::from(on_cores), MAX_THREADS)?;
        within("workers times threads_per_worker", share.workers * share.threads_per_worker, 0, MAX_THREADS)?;
        for (phase, seconds) in Phase::ALL.into_iter().zip(share.seconds()) {
            check_seconds(&phase.noun(), seconds)?;
            if let Some(name) = share.hardware[phase].iter().find(|n| self.resources.iter().all(|r| r.name != **n)) {
                return wrong(&phase.noun(), format!("holds {name}, which is not among the resources"));
            }
        }
        if let Some(Contention { batching, training }) = share.contention
            && ![batching, training].iter().all(|f| (1.0..=MAX_FACTOR).contains(f))
        {
            return wrong(&"contention", format!("{batching} and {training}; factors are from 1 to 10^15"));
        }
        Ok(())
    }
}

/// Checks the lengths of all names, before any is quoted.
pub(crate) fn check_names<'a>(
    mut routes: impl Iterator<Item = (&'a RouteKeys, &'a Hardware)>,
    resources: &[Resource],
) -> Result<(), Invalid> {
    resources.iter().try_for_each(|resource| check_name(&resource.name))?;
    routes.try_for_each(|(keys, hardware)| {
        let held = Phase::ALL.into_iter().flat_map(|phase| &hardware[phase]);
        [&keys.batching, &keys.transferring, &keys.training].into_iter().chain(held).try_for_each(|name| check_name(name))
    })
}

fn check_name(name: &str) -> Result<(), Invalid> {
    if name.len() <= MAX_NAME {
        return Ok(());
    }
    wrong(&"names", format!("an operator's or a resource's has {} bytes; give {MAX_NAME} at most", name.len()))
}

/// Checks a count against its bounds.
pub(crate) fn within(name: &str, value: usize, least: usize, most: usize) -> Result<(), Invalid> {
    if (least..=most).contains(&value) { Ok(()) } else { wrong(&name, format!("{value} is outside {least} to {most}")) }
}

/// Checks a duration: `what` names it.
pub(crate) fn check_seconds(what: &dyn std::fmt::Display, seconds: Seconds) -> Result<(), Invalid> {
    for (name, value) in [("mean", seconds.mean), ("deviation", seconds.std)] {
        if !(is_amount(value) && value <= MAX_SECONDS) {
            let cure = "give a finite number of at least 0, and at most 10^9";
            return wrong(what, format!("a {name} of {value} s; {cure}"));
        }
    }
    Ok(())
}

pub(crate) fn check_bytes(what: &dyn std::fmt::Display, bytes: u64) -> Result<(), Invalid> {
    if bytes <= MAX_BYTES { Ok(()) } else { wrong(what, format!("{bytes} bytes are more than {MAX_BYTES}")) }
}

/// Whether a number is finite and not negative.
fn is_amount(x: f64) -> bool {
    x.is_finite() && x >= 0.0
}

fn wrong(what: &dyn std::fmt::Display, fault: String) -> Result<(), Invalid> {
    Err(Invalid(format!("{what}: {fault}")))
}
