//! Layer split in a group of trainers of this process: the rows of hot nodes are computed once for all of them (neutronorch §4).

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use morphgl_layer_split::{LayerSplit, SplitStatistics, SuperBatches, Trial};
use morphgl_plan::{Curve, GroupSplit, Limits, Point, Seconds, group_split};
use morphgl_profile::{Profile, Progress, Settings, Watch};
use morphgl_registry::{BatchId, Operators, Place, RouteOperators, TrainingOperator};

use super::{
    Allowed, Split, SplitPlan, bytes_of, first_layer, left_beside, longest, seeds, settings_of, splittable,
    threads_within, too_short, with_trial,
};
use crate::{GroupProfile, Job, Shares, Stop, Unified, UnifiedTrainer};

/// What was measured of the group without given rows, of whole mini-batches and of parts of them, and how mini-batches are divided.
pub(crate) struct ExactGroup<'a> {
    pub(crate) profile: &'a Profile,
    pub(crate) parts: &'a GroupProfile,
    pub(crate) shares: Shares,
}

impl SplitPlan {
    /// Measures whole mini-batches and parts of them with given rows, in the longest super-batches and at the hot ratio that is
    /// allowed, and plans the trainers of the group with these, by one route each, and what computes the rows beside the first of
    /// them.
    ///
    /// # Errors
    ///
    /// No hot ratio; a model or sampler that cannot be split; a trainer of the group without a route that can; rows that do not
    /// fit; a failing operator; or a stop.
    pub(crate) fn measure_group(
        job: &mut Job,
        exact: &ExactGroup<'_>,
        allowed: Allowed,
        settings: &Settings,
        limits: Limits,
        (stop, watch): (&Stop, &Watch<'_>),
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<(Unified, Self)> {
        let ratio = allowed.hot_ratio.context("a group splits layers at a given ratio; give --hot-ratio")?;
        let routes = splittable(job)?;
        let splits = |(key, place): &(_, Place)| {
            let leads = |&i: &usize| {
                let route = &job.operators.routes[i].route;
                (&route.training, &route.trained_at) == (key, place)
            };
            routes.iter().any(leads)
        };
        let trainers = exact.parts.trainers();
        if let Some((key, place)) = trainers.iter().find(|trainer| !splits(trainer)) {
            bail!("no route to {key} at {place} takes given rows; leave it out by --training, or split no layers");
        }
        // The first layer of a trainer of the host is computed by the same operator.
        let on_host = |&&i: &&usize| job.operators.routes[i].route.trained_at == Place::Host;
        let route = *routes.iter().find(on_host).unwrap_or(&routes[0]);
        let batches = u32::try_from(job.operators.routes[route].batching.num_batches())?;
        let len = longest(batches, allowed.staleness)?;
        let most = super::buffers(len, settings.cores);
        if most == 0 {
            return Err(too_short(len, settings.cores));
        }
        let split = settings_of(job, route, SuperBatches { batches, len }, ratio)?;
        let inputs = (&job.dataset, &seeds(job)?, &job.config.sampler);
        let first_layer = first_layer(job, route)?;
        let trial = Arc::new(Trial::new(first_layer, inputs, split.clone(), &threads_within(settings.cores))?);
        let (_, beside) = trial.statistics[0];
        let bytes = bytes_of(&split, ratio, beside.nodes);
        let (host_bytes, device_bytes) = left_beside(limits, bytes, bytes).context(
            "the rows of two super-batches do not fit the memory; allow more, or give a smaller --hot-ratio",
        )?;
        let (ready, batched) = (limits.ready.min(most), limits.batched.min(most));
        let given_limits = Limits { ready, batched, host_bytes, device_bytes, ..limits };
        let machine = job.registry().machine().clone();
        let (whole, parts) = with_trial(job, &routes, &trial, |job| -> Result<_> {
            let whole = morphgl_profile::profile(&mut job.operators, &[], &machine, settings, watch, progress)?;
            Ok((whole, GroupProfile::measure(job, settings, stop, watch.memory, progress)?))
        })?;
        let parts = parts.context("fewer than two trainers share mini-batches with given rows")?;
        let mut unified = Unified::of_routes(&whole, &parts, exact.shares, (settings.cores, given_limits), false)?;
        let UnifiedTrainer { place, plan, cores, share } = &unified.trainers[0];
        let key = &plan.schedule.shares[0].keys.training;
        let (trainer, part) = exact.parts.trainer(exact.profile, &(key.clone(), place.clone()), settings.cores, limits);
        let embedding = trial.statistics.iter().map(|&(at, of_threads)| {
            let seconds = Seconds::constant(of_threads.choosing + of_threads.computing);
            Point { at, seconds }
        });
        let split = GroupSplit {
            exact: (&trainer, part),
            leading: (plan, *share, *cores),
            epoch_seconds: unified.epoch_seconds,
            super_batch: len as usize,
            ratio,
            embedding: &Curve::new(embedding.collect())?,
        };
        let split = group_split(split, settings.cores);
        let split = split.context("the first trainer's route was not measured without given rows")?;
        unified.epoch_seconds = split.plan.prediction.epoch_seconds;
        let given_share = beside.given as f64 / (beside.occurrences as f64).max(1.0);
        let staleness = split.split.staleness() as u64;
        Ok((unified, Self { split, staleness, given_share, max_ratio: None, bytes }))
    }

    /// Splits the training of the group's operators in the job, from mini-batch `start` on; `resumed` says whether it is restored
    /// there. The rows are computed by the parameters of the first trainer.
    pub(crate) fn apply_to_group(
        &self,
        job: &mut Job,
        unified: &Unified,
        (start, resumed): (BatchId, bool),
    ) -> Result<SplitStatistics> {
        let routes = splittable(job)?;
        let Operators { routes: all, mut trainers } = std::mem::take(&mut job.operators);
        let is_split = |(i, _): &(usize, RouteOperators)| routes.contains(i);
        let of_group = all.into_iter().enumerate().filter(is_split).map(|(_, operators)| operators);
        job.operators.routes = of_group.collect();
        // The first trainer of the plan leads: checkpoints have its state.
        let own = |UnifiedTrainer { place, plan, .. }: &UnifiedTrainer| {
            let key = &plan.schedule.shares[0].keys.training;
            let at = trainers.iter().position(|t: &TrainingOperator| t.key == *key && t.place == *place);
            let missing =
                || format!("{key} at {place}: the run was planned with it, and it cannot be built here; train anew");
            at.map(|at| trainers.swap_remove(at)).with_context(missing)
        };
        job.operators.trainers = unified.trainers.iter().map(own).collect::<Result<_>>()?;
        let TrainingOperator { key, place, .. } = &job.operators.trainers[0];
        let leads = |r: &RouteOperators| r.route.training == *key && r.route.trained_at == *place;
        let route = job.operators.routes.iter().position(leads);
        let route = route.with_context(|| format!("no route to {key} at {place} can be split; plan again"))?;
        let batches = job.operators.routes[route].batching.num_batches() as u32;
        let super_batches = SuperBatches { batches, len: self.split.split.super_batch as u32 };
        let split = settings_of(job, route, super_batches, self.split.split.ratio)?;
        let split = Split { threads: self.split.split.threads, start, resumed, ..split };
        let (first_layer, seeds) = (first_layer(job, route)?, seeds(job)?);
        let operators = std::mem::take(&mut job.operators);
        let LayerSplit { operators, statistics, .. } =
            LayerSplit::new(operators, first_layer, (&job.dataset, &seeds, &job.config.sampler), split)?;
        job.operators = operators;
        Ok(statistics)
    }
}
