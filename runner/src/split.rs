//! The layer-split mode: the first layer of hot nodes is computed beside training, with bounded staleness (neutronorch §4).

use std::fmt;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use morphgl_layer_split::{
    LayerSplit, Settings as Split, SplitStatistics, SuperBatchStatistics, SuperBatches, Trial, leaves_nodes_out,
};
use morphgl_model_spec::Normalization;
use morphgl_plan::{Curve, Limits, Plan, Point, Seconds, SplitPoint, SplitProblem, Time, layer_split};
use morphgl_profile::{Profile, Progress, Settings, Watch};
use morphgl_registry::{BatchId, Batching, Operators, Place, Route, SeedSet, Training};
use serde::{Deserialize, Serialize};

use crate::{Job, OperatorBuilder};

/// Hot ratios that are measured. Rows of hot nodes have no part in the first layer's gradient: larger ratios may cost accuracy on
/// small graphs, and are left to the user (`docs/performance/layer-split.md`).
const RATIOS: [f64; 3] = [0.0625, 0.125, 0.25];

/// A plan of layer-split training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SplitPlan {
    /// Super-batches, hot ratio, schedule, and the predicted epoch.
    pub split: morphgl_plan::SplitPlan,
    /// The largest staleness of given rows, in steps.
    pub staleness: u64,
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

/// The most mini-batches that each buffer may hold, so that a whole super-batch is never in flight: where training stops, nothing
/// waits for rows of parameters that never come.
fn buffers(len: u32, cores: usize) -> usize {
    (len as usize).saturating_sub(cores + 2) / 2
}

impl fmt::Display for SplitPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { split: planned, staleness, given_share, .. } = self;
        let (epoch, embedding) = (Time(self.plan().prediction.epoch_seconds), Time(planned.split.embedding.mean));
        write!(
            f,
            "layer split: {epoch} an epoch; {:.1}% of the nodes are hot, {:.1}% of rows of the first layer are given, {embedding} \
             beside each super-batch of {} mini-batches, {:.0}% of the time; rows at most {staleness} steps old",
            100.0 * planned.split.ratio,
            100.0 * given_share,
            planned.split.super_batch,
            100.0 * planned.load
        )
    }
}

/// A super-batch length and a hot ratio with the durations measured at them.
struct Measured {
    point: SplitPoint,
    beside: SuperBatchStatistics,
    bytes: u64,
}

impl SplitPlan {
    /// The plan of mini-batches, with the predicted epoch.
    pub fn plan(&self) -> &Plan {
        &self.split.plan
    }

    /// Measures mini-batches with given rows at two lengths of super-batches and several hot ratios, and returns the plan that is
    /// the fastest by prediction; `profile` has the exact ones.
    ///
    /// # Errors
    ///
    /// A model, sampler or route that cannot be split, with the reason; rows that do not fit; a failing operator; or a stop.
    pub fn measure(
        job: &mut Job,
        profile: &Profile,
        allowed: Allowed,
        settings: &Settings,
        limits: Limits,
        watch: &Watch<'_>,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Self> {
        let route = splittable(job)?;
        let batches = job.operators.routes[route].batching.num_batches();
        let batches = u32::try_from(batches).context("too many mini-batches")?;
        let Some(SuperBatches { len, .. }) = SuperBatches::within(batches, allowed.staleness) else {
            bail!("no staleness is allowed; --allow-staleness 1 or more allows it");
        };
        let longest = len.min(batches);
        // With a ratio of the user's nothing depends on times, and two runs have the same bits.
        let mut lengths = if allowed.hot_ratio.is_some() { vec![longest] } else { vec![longest / 2, longest] };
        lengths.retain(|&len| buffers(len, settings.cores) > 0);
        if lengths.is_empty() {
            let least = 2 * (settings.cores + 4) - 1;
            bail!(
                "a super-batch of {longest} is shorter than what is in flight on {} cores; allow a staleness of {least}, or have \
                 more mini-batches in an epoch",
                settings.cores
            );
        }
        let ratios = allowed.hot_ratio.map_or(RATIOS.to_vec(), |ratio| vec![ratio]);
        let points: Vec<(u32, f64)> = lengths.iter().flat_map(|&len| ratios.iter().map(move |&r| (len, r))).collect();
        let settings = Settings { budget: settings.budget / (points.len() as u32 + 1), ..settings.clone() };
        let mut measured = Vec::new();
        for (len, ratio) in points {
            let split = settings_of(job, SuperBatches { batches, len }, ratio);
            measured.extend(Measured::at(job, route, split, &settings, limits, watch, progress)?);
        }
        let own = &job.operators.routes[route].route;
        let routes = profile.routes.iter().filter(|r| r.route == *own).cloned().collect();
        let exact = Profile { routes, ..profile.clone() }.problem(settings.cores, limits);
        let points = measured.iter().map(|measured| measured.point.clone()).collect();
        let problem = SplitProblem::new(exact, points, usize::try_from(allowed.staleness).unwrap_or(usize::MAX))?;
        let Some(split) = layer_split(&problem)?.split else {
            bail!("the rows of two super-batches do not fit the memory; allow more, or give a smaller --hot-ratio");
        };
        let of_split =
            |m: &&Measured| (m.point.super_batch, m.point.ratio) == (split.split.super_batch, split.split.ratio);
        let Measured { beside, bytes, .. } = measured.iter().find(of_split).expect("it was planned with");
        let given_share = beside.given as f64 / (beside.occurrences as f64).max(1.0);
        Ok(Self { staleness: split.split.staleness() as u64, given_share, bytes: *bytes, split })
    }

    /// Splits the training of the job's operators, from mini-batch `start` on; `resumed` says whether it is restored there.
    pub(crate) fn apply(&self, job: &mut Job, (start, resumed): (BatchId, bool)) -> Result<SplitStatistics> {
        let route = splittable(job)?;
        let batches = job.operators.routes[route].batching.num_batches() as u32;
        let super_batches = SuperBatches { batches, len: self.split.split.super_batch as u32 };
        let split = Split { start, resumed, ..settings_of(job, super_batches, self.split.split.ratio) };
        let first_layer = first_layer(job, &job.operators.routes[route].route)?;
        let operators = single(std::mem::take(&mut job.operators), route);
        let seeds = seeds(job)?;
        let LayerSplit { operators, statistics, .. } =
            LayerSplit::new(operators, first_layer, (&job.dataset, &seeds, &job.config.sampler), split)?;
        job.operators = operators;
        Ok(statistics)
    }
}

impl Measured {
    /// Measures one length and hot ratio; `None` where the rows do not fit.
    fn at(
        job: &mut Job,
        route: usize,
        split: Split,
        settings: &Settings,
        limits: Limits,
        watch: &Watch<'_>,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Option<Self>> {
        let first_layer = first_layer(job, &job.operators.routes[route].route)?;
        let trial = Trial::new(first_layer, (&job.dataset, &seeds(job)?, &job.config.sampler), split)?;
        let beside = trial.statistics;
        let trial = Arc::new(trial);
        let bytes = 8 * beside.hot * split.width as u64;
        let host_bytes = match limits.host_bytes {
            Some(free) if free < bytes => return Ok(None),
            free => free.map(|free| free - bytes),
        };
        let most = buffers(split.super_batches.len, settings.cores);
        let limits = Limits { ready: limits.ready.min(most), batched: limits.batched.min(most), host_bytes, ..limits };
        let machine = job.registry.machine().clone();
        let wrap = |inner| trial.batching(inner);
        let profile = with_batching(job, route, wrap, |operators| {
            morphgl_profile::profile(operators, &[], &machine, settings, watch, progress)
        })?;
        let seconds = Seconds::constant(beside.choosing + beside.computing);
        let point = SplitPoint {
            super_batch: split.super_batches.len as usize,
            ratio: split.hot_ratio,
            problem: profile.problem(settings.cores, limits),
            embedding: Curve::new(vec![Point { at: 1, seconds }])?,
        };
        Ok(Some(Self { point, beside, bytes }))
    }
}

fn settings_of(job: &Job, super_batches: SuperBatches, hot_ratio: f64) -> Split {
    let width = job.config.spec.model.layer(0).out_dim;
    Split { super_batches, hot_ratio, width, start: BatchId::default(), resumed: false }
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
