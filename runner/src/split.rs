//! The layer-split mode: the first layer of hot nodes is computed beside training, with bounded staleness (neutronorch §4).

use std::fmt;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use morphgl_layer_split::{LayerSplit, Rehearsal, Settings as Split, SplitStatistics, SuperBatches, leaves_nodes_out};
use morphgl_model_spec::Normalization;
use morphgl_plan::{Limits, Plan, Schedule, Time};
use morphgl_profile::{MemoryLimit, Progress, Settings, Watch};
use morphgl_registry::{BatchId, Batching, Operators, Place, Route, SeedSet, Training};
use serde::{Deserialize, Serialize};

use crate::{Job, OperatorBuilder, Stop};

/// Hot ratios that are measured. Rows of hot nodes have no part in the first layer's gradient: larger ratios may cost accuracy on
/// small graphs, and are left to the user (`docs/performance/layer-split.md`).
const RATIOS: [f64; 3] = [0.0625, 0.125, 0.25];

/// A plan of layer-split training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SplitPlan {
    /// Mini-batches of a super-batch.
    pub super_batch: u32,
    /// Share of a super-batch's nodes of the first layer that are computed beside training, the hottest first.
    pub hot_ratio: f64,
    /// The largest staleness of their rows, in steps.
    pub staleness: u64,
    /// The plan of mini-batches with given rows, the work beside them included.
    pub plan: Plan,
    /// Seconds of one core a mini-batch for choosing hot nodes and computing their rows, as measured.
    pub beside_seconds: f64,
    /// Share of the rows of the first layer that may be given and are, as counted in one super-batch.
    pub given_share: f64,
    /// Bytes of the rows of two super-batches.
    pub bytes: u64,
}

/// What the user allows and asks for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Allowed {
    /// The largest staleness, in steps.
    pub staleness: u64,
    /// The hot ratio; `None` leaves it to measurements.
    pub hot_ratio: Option<f64>,
}

impl fmt::Display for SplitPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { super_batch, hot_ratio, staleness, plan, beside_seconds, given_share, .. } = self;
        let (epoch, beside) = (Time(plan.prediction.epoch_seconds), Time(*beside_seconds));
        write!(
            f,
            "layer split: {epoch} an epoch; {:.0}% of the nodes are hot, {:.1}% of rows of the first layer are given, {beside} \
             beside each mini-batch; super-batches of {super_batch}, rows at most {staleness} steps old",
            100.0 * hot_ratio,
            100.0 * given_share
        )
    }
}

/// Mini-batches that may have been begun and not trained.
fn in_flight(schedule: &Schedule) -> usize {
    let workers: usize = schedule.shares.iter().map(|share| share.workers).sum();
    workers + schedule.batched + schedule.ready + 2
}

impl SplitPlan {
    /// Measures mini-batches with given rows at several hot ratios, and plans each; the fastest by prediction comes first.
    ///
    /// # Errors
    ///
    /// A model, sampler or route that cannot be split, with the reason; a failing operator; or a stop.
    pub fn measure(
        job: &mut Job,
        allowed: Allowed,
        settings: &Settings,
        limits: Limits,
        stop: &Stop,
        memory: Option<MemoryLimit<'_>>,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Vec<Self>> {
        let route = splittable(job)?;
        let batches = job.operators.routes[route].batching.num_batches();
        let batches = u32::try_from(batches).context("too many mini-batches")?;
        let Some(SuperBatches { len, .. }) = SuperBatches::within(batches, allowed.staleness) else {
            bail!("no staleness is allowed; --allow-staleness 1 or more allows it");
        };
        let super_batches = SuperBatches { batches, len: len.min(batches) };
        // Where training stops, no mini-batch in flight waits for rows of parameters that never come.
        let buffers = (super_batches.len as usize).saturating_sub(settings.cores + 2) / 2;
        if buffers == 0 {
            let least = 2 * (settings.cores + 4) - 1;
            bail!(
                "a super-batch of {} is shorter than what is in flight on {} cores; allow a staleness of {least}, or have more \
                 mini-batches in an epoch",
                super_batches.len,
                settings.cores
            );
        }
        let limits = Limits { ready: limits.ready.min(buffers), batched: limits.batched.min(buffers), ..limits };
        let ratios = allowed.hot_ratio.map_or(RATIOS.to_vec(), |ratio| vec![ratio]);
        let settings = Settings { budget: settings.budget / (ratios.len() as u32 + 1), ..settings.clone() };
        let mut plans = Vec::new();
        for hot_ratio in ratios {
            let split = settings_of(job, super_batches, hot_ratio, BatchId::default());
            plans.extend(Self::at(job, route, split, &settings, limits, stop, memory, progress)?);
        }
        if plans.is_empty() {
            bail!("the rows of two super-batches do not fit the memory; allow more, or give a smaller --hot-ratio");
        }
        plans.sort_by(|a, b| a.plan.prediction.epoch_seconds.total_cmp(&b.plan.prediction.epoch_seconds));
        Ok(plans)
    }

    /// Measures and plans one hot ratio; `None` where its rows do not fit.
    #[allow(clippy::too_many_arguments, reason = "private, called once")]
    fn at(
        job: &mut Job,
        route: usize,
        split: Split,
        settings: &Settings,
        limits: Limits,
        stop: &Stop,
        memory: Option<MemoryLimit<'_>>,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Option<Self>> {
        let rehearsal = {
            let first_layer = first_layer(job, &job.operators.routes[route].route)?;
            Arc::new(Rehearsal::new(first_layer, (&job.dataset, &seeds(job)?, &job.config.sampler), split)?)
        };
        let beside = rehearsal.statistics;
        let len = f64::from(split.super_batches.len);
        let bytes = 8 * beside.hot * split.width as u64;
        let limits = match limits.host_bytes {
            Some(free) if free < bytes => return Ok(None),
            free => Limits { host_bytes: free.map(|free| free - bytes), ..limits },
        };
        let machine = job.registry.machine().clone();
        let watch = Watch { stop: &|| stop.is_requested(), memory };
        let profile = with_batching(
            job,
            route,
            |inner| rehearsal.batching(inner),
            |operators| morphgl_profile::profile(operators, &[], &machine, settings, &watch, progress),
        )?;
        let beside_seconds = (beside.choosing + beside.computing) / len;
        let problem = profile.problem(settings.cores, limits).with_work(beside_seconds);
        let mut plan = morphgl_plan::plan(&problem)?.best().clone();
        // The next super-batch waits where its rows, which one thread computes, take longer than training this one.
        let beside_epoch = beside_seconds * f64::from(split.super_batches.batches);
        plan.prediction.epoch_seconds = plan.prediction.epoch_seconds.max(beside_epoch);
        Ok((in_flight(&plan.schedule) <= split.super_batches.len as usize).then(|| Self {
            super_batch: split.super_batches.len,
            hot_ratio: split.hot_ratio,
            staleness: split.super_batches.bound(),
            plan,
            beside_seconds,
            given_share: beside.given as f64 / (beside.occurrences as f64).max(1.0),
            bytes,
        }))
    }

    /// Splits the training of the job's operators, from mini-batch `start` on.
    pub(crate) fn apply(&self, job: &mut Job, start: BatchId) -> Result<SplitStatistics> {
        let route = splittable(job)?;
        let batches = job.operators.routes[route].batching.num_batches() as u32;
        let super_batches = SuperBatches { batches, len: self.super_batch };
        let split = settings_of(job, super_batches, self.hot_ratio, start);
        let first_layer = first_layer(job, &job.operators.routes[route].route)?;
        let operators = single(std::mem::take(&mut job.operators), route);
        let seeds = seeds(job)?;
        let LayerSplit { operators, statistics, .. } =
            LayerSplit::new(operators, first_layer, (&job.dataset, &seeds, &job.config.sampler), split)?;
        job.operators = operators;
        Ok(statistics)
    }
}

fn settings_of(job: &Job, super_batches: SuperBatches, hot_ratio: f64, start: BatchId) -> Split {
    Split { super_batches, hot_ratio, width: job.config.spec.model.layer(0).out_dim, start }
}

fn seeds(job: &Job) -> Result<SeedSet> {
    Ok(SeedSet::new("train split", &job.dataset.splits.train, job.dataset.num_nodes())?)
}

/// The training operator that computes first layers, on a thread of its own.
fn first_layer(job: &Job, route: &Route) -> Result<Box<dyn Training>> {
    let builder = OperatorBuilder { dataset: &job.dataset, config: &job.config, registry: &job.registry };
    let mut training = builder.training(route)?;
    training.set_threads(1)?;
    let parameters = job.operators.trainer(route).map(|i| job.operators.trainers[i].operator.parameters());
    if let Some(parameters) = parameters.transpose()? {
        training.set_parameters(&parameters)?;
    }
    Ok(training)
}

/// The route of the host's memory that is split.
///
/// # Errors
///
/// A model without a second layer that reads the graph, one with batch normalization, other sampling than by neighbours; or no
/// such route.
fn splittable(job: &Job) -> Result<usize> {
    let model = &job.config.spec.model;
    if !model.reads_graph() || model.layers < 2 {
        bail!("{} of {} layers has no second layer that reads given rows", model.kind, model.layers);
    }
    if model.normalization == Normalization::Batch {
        bail!("batch normalization needs the statistics of all rows");
    }
    job.config.sampler.neighbor()?;
    let is_host = |place: &Place| *place == Place::Host;
    let found = job.operators.routes.iter().position(|r| {
        let Route { read_at, batched_at, trained_at, .. } = &r.route;
        [read_at, batched_at, trained_at].into_iter().all(is_host) && leaves_nodes_out(r.batching.as_ref())
    });
    found.context("no route samples and trains in the host's memory, which is where layers are split so far")
}

/// The operators of one route.
fn single(operators: Operators, route: usize) -> Operators {
    let Operators { mut routes, mut trainers } = operators;
    let route = routes.swap_remove(route);
    trainers.retain(|t| t.key == route.route.training && t.place == route.route.trained_at);
    Operators { routes: vec![route], trainers }
}

/// Works with one route alone, by another batching operator.
fn with_batching<R>(
    job: &mut Job,
    route: usize,
    wrap: impl FnOnce(Arc<dyn Batching>) -> Arc<dyn Batching>,
    work: impl FnOnce(&mut Operators) -> R,
) -> R {
    let Operators { mut routes, trainers } = std::mem::take(&mut job.operators);
    let mut chosen = routes.remove(route);
    let inner = Arc::clone(&chosen.batching);
    chosen.batching = wrap(Arc::clone(&inner));
    let leads =
        |t: &morphgl_registry::TrainingOperator| t.key == chosen.route.training && t.place == chosen.route.trained_at;
    let (own, others): (Vec<_>, Vec<_>) = trainers.into_iter().partition(leads);
    let mut operators = Operators { routes: vec![chosen], trainers: own };
    let done = work(&mut operators);
    let mut chosen = operators.routes.remove(0);
    chosen.batching = inner;
    routes.insert(route, chosen);
    operators.trainers.extend(others);
    job.operators = Operators { routes, trainers: operators.trainers };
    done
}
