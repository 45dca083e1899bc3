//! Checks of plans from files.

use morphgl_registry::Phase;

use crate::numbers::{
    MAX_BUFFER, MAX_FACTOR, MAX_SECONDS, MAX_THREADS, check_bytes, check_key, is_amount, within, wrong,
};
use crate::problem::{check_names, check_resources};
use crate::{Contention, Invalid, Memory, Plan, Policy, Resource, Schedule, ScheduleShare};

impl Plan {
    /// Checks every number of a plan that this program did not make, such as one from a file.
    ///
    /// # Errors
    ///
    /// The first value that no planner would choose: the text names it and the bound.
    pub fn check(&self) -> Result<(), Invalid> {
        check_names(self.schedule.shares.iter().map(|share| (&share.keys, &share.hardware)), &self.schedule.resources)?;
        self.caches.iter().try_for_each(|cache| check_key(&cache.operator))?;
        self.schedule.check()?;
        let Memory { host, device, caches, device_caches, sampler, sampler_caches } = self.memory;
        let of_sampler = [("sampler", sampler), ("sampler_caches", sampler_caches)];
        let memory = [("host", host), ("device", device), ("caches", caches), ("device_caches", device_caches)];
        let memory = memory.into_iter().chain(of_sampler);
        for (name, bytes) in memory.map(|(name, bytes)| (format!("memory.{name}"), bytes)) {
            check_bytes(&name, bytes)?;
        }
        for cache in &self.caches {
            for bytes in [cache.profiled_bytes, cache.bytes, cache.left_bytes.unwrap_or(0)] {
                check_bytes(&cache.operator, bytes)?;
            }
            if !cache.saved_seconds.is_finite() {
                return wrong(&cache.operator, format!("saves {} s, which is no number", cache.saved_seconds));
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
            return wrong(&"oversubscription", format!("{} is no factor", self.oversubscription));
        }
        if !(is_amount(self.after_step) && self.after_step <= MAX_SECONDS) {
            return wrong(&"after_step", format!("{} s are no finite number of at least 0", self.after_step));
        }
        let in_place: Vec<bool> = self.shares.iter().map(|share| share.in_place).collect();
        if self.policy == Policy::DualBuffer && in_place != [false, true] {
            let what = "the policy dual-buffer takes a share batched by the host, then one batched by the device";
            return wrong(&"shares", what.to_string());
        }
        Ok(())
    }

    fn threads_on(&self, share: &ScheduleShare, phase: Phase) -> bool {
        Resource::on_cores(&self.resources, &share.hardware[phase])
    }

    fn check_share(&self, share: &ScheduleShare) -> Result<(), Invalid> {
        let on_cores = self.threads_on(share, Phase::Batching);
        within("workers", share.workers, 1, MAX_THREADS)?;
        within("threads_per_worker", share.threads_per_worker, usize::from(on_cores), MAX_THREADS)?;
        within("workers times threads_per_worker", share.workers * share.threads_per_worker, 0, MAX_THREADS)?;
        for (phase, seconds) in Phase::ALL.into_iter().zip(share.seconds()) {
            seconds.check(&phase.noun())?;
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
