//! The layer-split mode: the first layer of hot nodes is computed beside training, with bounded staleness (neutronorch §4).

mod group;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, bail};
use morphgl_layer_split::{
    Follow, LayerSplit, Settings as Split, SplitStatistics, SuperBatchStatistics, SuperBatches, Trial, leaves_nodes_out,
};
use morphgl_model_core::Normalization;
use morphgl_plan::{
    Curve, Limits, Plan, Point, Problem, RouteKeys, Seconds, SplitPoint, SplitProblem, Time, layer_split, next_ratio,
};
use morphgl_profile::{Profile, Progress, Settings, Watch};
use morphgl_registry::{
    BatchId, CacheCurve, GivenTable, Handle, MiniBatch, Operators, Place, Resource, Route, RouteOperators, SeedSet,
    Training, TrainingOperator, Transferring,
};
use serde::{Deserialize, Serialize};

use crate::{Job, OperatorBuilder};

pub(crate) use group::ExactGroup;

/// Hot ratios that are measured. With larger ones most rows of the first layer are stale, which may cost accuracy on small graphs: they
/// are left to the user (`docs/performance/layer-split.md`).
const RATIOS: [f64; 3] = [0.0625, 0.125, 0.25];

/// A plan of layer-split training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SplitPlan {
    /// Super-batches, hot ratio, schedule, and the predicted epoch.
    pub split: morphgl_plan::SplitPlan,
    /// The largest staleness of given rows, in steps.
    pub staleness: u64,
    /// Fraction of the rows of the first layer that may be given and are, as counted in one super-batch.
    pub given_share: f64,
    /// The largest hot ratio, where it follows measured times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_ratio: Option<f64>,
    /// Bytes of the rows of two super-batches, at the largest hot ratio.
    pub bytes: u64,
}

/// What the user allows and asks for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Allowed {
    /// The largest staleness, in steps.
    pub staleness: u64,
    /// The hot ratio; `None` leaves it to measurements.
    pub hot_ratio: Option<f64>,
    /// The largest hot ratio; while training, the ratio then follows measured times.
    pub max_hot_ratio: Option<f64>,
}

/// The most mini-batches that each buffer may hold, so that a whole super-batch is never in flight: where training stops, nothing
/// waits for rows of parameters that never come.
fn buffers(len: u32, cores: usize) -> usize {
    (len as usize).saturating_sub(cores + 2) / 2
}

/// Mini-batches of the longest super-batch.
///
/// # Errors
///
/// No staleness is allowed.
fn longest(batches: u32, staleness: u64) -> Result<u32> {
    let Some(SuperBatches { len, .. }) = SuperBatches::within(batches, staleness) else {
        bail!("no staleness is allowed; --allow-staleness 1 or more allows it");
    };
    Ok(len.min(batches))
}

/// The error where more mini-batches are in flight than a super-batch has.
fn too_short(longest: u32, cores: usize) -> anyhow::Error {
    let least = 2 * (cores + 4) - 1;
    anyhow::anyhow!(
        "a super-batch of {longest} is shorter than what is in flight on {cores} cores; allow a staleness of {least}, or have more \
         mini-batches in an epoch"
    )
}

/// Bytes of the rows of two super-batches that have so many nodes which may be given.
fn bytes_of(split: &Split, max_ratio: f64, nodes: u64) -> u64 {
    8 * (max_ratio * nodes as f64).ceil() as u64 * split.widths().iter().sum::<usize>() as u64
}

/// What the limits of host and device memory leave beside so many bytes; `None` where these do not fit.
fn left_beside(limits: Limits, on_host: u64, on_device: u64) -> Option<(Option<u64>, Option<u64>)> {
    let left = |free: Option<u64>, bytes| free.map_or(Some(None), |free: u64| free.checked_sub(bytes).map(Some));
    Some((left(limits.host_bytes, on_host)?, left(limits.device_bytes, on_device)?))
}

impl fmt::Display for SplitPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { split: planned, staleness, given_share, max_ratio, .. } = self;
        let follows = max_ratio.map_or_else(String::new, |most| format!(" at first, {:.1}% at most", 100.0 * most));
        let plan = self.plan();
        let (epoch, embedding) = (Time(plan.prediction.epoch_seconds), Time(planned.split.embedding.mean));
        let training = plan.schedule.shares.first().map_or_else(String::new, |share| share.keys.training.to_string());
        write!(
            f,
            "layer split: {epoch} per epoch by {training}; {:.1}% of the nodes are hot{follows}, {:.1}% of rows of the first layer are given, {embedding} \
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

    /// Replaces the plan by the same one with another prediction; the first epoch's prediction changes by as many seconds.
    pub(crate) fn set_plan(&mut self, plan: Plan) {
        self.split.first_seconds += plan.prediction.epoch_seconds - self.split.plan.prediction.epoch_seconds;
        self.split.plan = plan;
    }

    /// Predicted seconds of an epoch, on average over so many.
    pub fn epoch_seconds(&self, epochs: u32) -> f64 {
        let later = self.plan().prediction.epoch_seconds;
        later + (self.split.first_seconds - later) / f64::from(epochs.max(1))
    }

    /// Measures mini-batches with given rows at two lengths of super-batches and several hot ratios, on the fastest of the routes
    /// that can be split, and returns the plan that is the fastest by prediction; `profile` has the exact ones.
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
        let exact = |route: &Route| {
            let routes = profile.routes.iter().filter(|r| r.route == *route).cloned().collect();
            on_cores(Profile { routes, ..profile.clone() }.problem(settings.cores, limits), settings.cores)
        };
        // Of several routes the one that is fastest without given rows.
        let routes = splittable(job)?.into_iter().filter_map(|i| {
            let plans = morphgl_plan::plan(&exact(&job.operators.routes[i].route)).ok()?;
            Some((i, plans.best().prediction.epoch_seconds))
        });
        let fastest = routes.min_by(|a, b| a.1.total_cmp(&b.1));
        let (route, _) = fastest.context("no route that can be split fits the memory; allow more")?;
        let exact = exact(&job.operators.routes[route].route);
        let batches = job.operators.routes[route].batching.num_batches();
        let batches = u32::try_from(batches).context("too many mini-batches")?;
        let longest = longest(batches, allowed.staleness)?;
        // With a ratio of the user's nothing but the place of training depends on times, and two runs at one place have the same
        // bits.
        let mut lengths = if allowed.hot_ratio.is_some() { vec![longest] } else { vec![longest / 2, longest] };
        lengths.retain(|&len| buffers(len, settings.cores) > 0);
        if lengths.is_empty() {
            return Err(too_short(longest, settings.cores));
        }
        let mut ratios = allowed.hot_ratio.map_or(RATIOS.to_vec(), |ratio| vec![ratio]);
        // With a limit below all of them, the limit.
        if let Some(most) = allowed.max_hot_ratio {
            ratios.retain(|&ratio| ratio <= most);
            ratios = if ratios.is_empty() { vec![most] } else { ratios };
        }
        let points: Vec<(u32, f64)> = lengths.iter().flat_map(|&len| ratios.iter().map(move |&r| (len, r))).collect();
        let settings = Settings { budget: settings.budget / (points.len() as u32 + 1), ..settings.clone() };
        let mut measured = Vec::new();
        for (len, ratio) in points {
            let split = settings_of(job, route, SuperBatches { batches, len }, ratio)?;
            let most = allowed.max_hot_ratio.unwrap_or(ratio);
            measured.extend(Measured::at(job, route, (split, most), &settings, limits, watch, progress)?);
        }
        let points = measured.iter().map(|measured| measured.point.clone()).collect();
        let problem = SplitProblem::new(exact, points, usize::try_from(allowed.staleness).unwrap_or(usize::MAX))?;
        let Some(split) = layer_split(&problem)?.split else {
            bail!("the rows of two super-batches do not fit the memory; allow more, or give a smaller --hot-ratio");
        };
        let of_split =
            |m: &&Measured| (m.point.super_batch, m.point.ratio) == (split.split.super_batch, split.split.ratio);
        let Measured { beside, bytes, .. } = measured.iter().find(of_split).expect("it was planned with");
        let given_share = beside.given as f64 / (beside.occurrences as f64).max(1.0);
        let (staleness, max_ratio) = (split.split.staleness() as u64, allowed.max_hot_ratio);
        Ok(Self { staleness, given_share, max_ratio, bytes: *bytes, split })
    }

    /// Splits the training of the job's operators, from mini-batch `start` on; `resumed` says whether it is restored there.
    pub(crate) fn apply(&self, job: &mut Job, (start, resumed): (BatchId, bool)) -> Result<SplitStatistics> {
        let planned = self.plan().schedule.shares.first().map(|share| &share.keys);
        let is_planned = |&i: &usize| planned == Some(&RouteKeys::from(&job.operators.routes[i].route));
        let route = splittable(job)?.into_iter().find(is_planned);
        let route = route.context("the route of the plan cannot be split; plan again")?;
        let batches = job.operators.routes[route].batching.num_batches() as u32;
        let super_batches = SuperBatches { batches, len: self.split.split.super_batch as u32 };
        let follow = self.max_ratio.map(|most| Follow { most, next: next_ratio });
        let threads = self.split.split.threads;
        let split = settings_of(job, route, super_batches, self.split.split.ratio)?;
        let split = Split { follow, threads, start, resumed, ..split };
        let first_layer = first_layer(job, route)?;
        let operators = single(std::mem::take(&mut job.operators), route);
        let seeds = seeds(job)?;
        let LayerSplit { operators, statistics, .. } =
            LayerSplit::new(operators, first_layer, (&job.dataset, &seeds, &job.config.sampler), split)?;
        job.operators = operators;
        Ok(statistics)
    }
}

impl Measured {
    /// Measures one length and hot ratio; `None` where the rows do not fit, at the largest ratio.
    fn at(
        job: &mut Job,
        route: usize,
        (split, max_ratio): (Split, f64),
        settings: &Settings,
        limits: Limits,
        watch: &Watch<'_>,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Option<Self>> {
        let first_layer = first_layer(job, route)?;
        let threads = threads_within(settings.cores);
        let inputs = (&job.dataset, &seeds(job)?, &job.config.sampler);
        let trial = Arc::new(Trial::new(first_layer, inputs, split.clone(), &threads)?);
        let (_, beside) = trial.statistics[0];
        let bytes = bytes_of(&split, max_ratio, beside.nodes);
        // A device that trains has a copy of them.
        let on_device = if job.operators.routes[route].route.trained_at == Place::Host { 0 } else { bytes };
        let Some((host_bytes, device_bytes)) = left_beside(limits, bytes, on_device) else { return Ok(None) };
        let most = buffers(split.super_batches.len, settings.cores);
        let (ready, batched) = (limits.ready.min(most), limits.batched.min(most));
        let limits = Limits { ready, batched, host_bytes, device_bytes, ..limits };
        let machine = job.registry().machine().clone();
        let profile = with_trial(job, &[route], &trial, |job| {
            morphgl_profile::profile(&mut job.operators, &[], &machine, settings, watch, progress)
        })?;
        let embedding = trial.statistics.iter().map(|&(at, SuperBatchStatistics { choosing, computing, .. })| {
            let seconds = Seconds::constant(choosing + computing);
            Point { at, seconds }
        });
        let point = SplitPoint {
            super_batch: split.super_batches.len as usize,
            ratio: split.hot_ratio,
            problem: on_cores(profile.problem(settings.cores, limits), settings.cores),
            embedding: Curve::new(embedding.collect())?,
        };
        Ok(Some(Self { point, beside, bytes }))
    }
}

/// Numbers of threads on which the rows of hot nodes are measured: powers of two up to the cores.
fn threads_within(cores: usize) -> Vec<usize> {
    std::iter::successors(Some(1), |threads| Some(2 * threads)).take_while(|&threads| threads <= cores.max(1)).collect()
}

/// The problem with the host's cores, which compute the rows of hot nodes: the phases of a route need not run on them.
fn on_cores(problem: Problem, cores: usize) -> Problem {
    problem.beside_cores(Resource::CPU.name(), cores)
}

fn settings_of(job: &Job, route: usize, super_batches: SuperBatches, hot_ratio: f64) -> Result<Split> {
    let model = &job.config.spec.model;
    let (width, input_widths) = (model.layer(0).out_dim, model.given_input_widths());
    let (learns, start) = (learns(job, route)?, BatchId::default());
    let (follow, threads, resumed) = (None, 1, false);
    Ok(Split { super_batches, hot_ratio, follow, width, input_widths, threads, learns, start, resumed })
}

/// Whether the training operator of a route learns.
fn learns(job: &Job, route: usize) -> Result<bool> {
    Ok(!job.registry().get(&job.operators.routes[route].route.training)?.simulated)
}

fn seeds(job: &Job) -> Result<SeedSet> {
    OperatorBuilder { dataset: &job.dataset, config: &job.config, context: &job.context }.seeds()
}

/// The training operator that computes first layers, on threads of its own: that of the route where it trains on the host, else
/// the first one of the host that can train the model, so that a resumed run has the same.
///
/// # Errors
///
/// None can, with the reason of the first.
fn first_layer(job: &Job, route: usize) -> Result<Box<dyn Training>> {
    let builder = OperatorBuilder { dataset: &job.dataset, config: &job.config, context: &job.context };
    let own = &job.operators.routes[route].route;
    let on_host = |r: &Route| r.trained_at == Place::Host && job.registry().takes_given_rows(r);
    let mut routes: Vec<Route> = job.registry().routes().into_iter().filter(on_host).collect();
    routes.retain(|r| own.trained_at != Place::Host || r.training == own.training);
    let mut built = routes.iter().map(|r| builder.training(r));
    let first = built.next().context("no training operator of the host computes the first layer")?;
    let mut training = first.or_else(|why| built.find_map(Result::ok).ok_or(why))?;
    let learns = learns(job, route)?;
    if let Some(trainer) = job.operators.trainer(own).filter(|_| learns) {
        training.set_parameters(&job.operators.trainers[trainer].operator.parameters()?)?;
    }
    Ok(training)
}

/// The routes that can be split: batching reads the graph in host memory and leaves nodes unexpanded, and the other operators take given
/// rows.
///
/// # Errors
///
/// A model without a second layer that reads the graph, one with batch normalization, other sampling than by neighbours; or no
/// such route.
fn splittable(job: &Job) -> Result<Vec<usize>> {
    let model = &job.config.spec.model;
    if !model.reads_graph() || model.layers < 2 {
        bail!("{} of {} layers has no second layer that reads given rows", model.kind, model.layers);
    }
    if model.reads_edges() {
        bail!("a {} that reads features of edges has no given rows", model.kind);
    }
    if model.normalization == Normalization::Batch {
        bail!("batch normalization needs the statistics of all rows");
    }
    job.config.sampler.neighbor()?;
    let takes_rows = |r: &RouteOperators| {
        r.route.read_at == Place::Host
            && job.registry().takes_given_rows(&r.route)
            && leaves_nodes_out(r.batching.as_ref())
    };
    let routes = &job.operators.routes;
    let found: Vec<usize> = (0..routes.len()).filter(|&i| takes_rows(&routes[i])).collect();
    if found.is_empty() {
        bail!("no route samples a graph in host memory by operators that take given rows (`morphgl ops` lists routes)");
    }
    Ok(found)
}

/// The operators of one route.
fn single(operators: Operators, route: usize) -> Operators {
    let Operators { mut routes, mut trainers } = operators;
    let route = routes.swap_remove(route);
    trainers.retain(|t| t.key == route.route.training && t.place == route.route.trained_at);
    Operators { routes: vec![route], trainers }
}

/// A transferring operator that a trial shares with its owner.
#[derive(Debug)]
struct SharedTransferring(Arc<Mutex<Box<dyn Transferring>>>);

impl SharedTransferring {
    fn lock(&self) -> MutexGuard<'_, Box<dyn Transferring>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Transferring for SharedTransferring {
    fn transfer(&mut self, batch: MiniBatch) -> morphgl_registry::Result<Handle<MiniBatch>> {
        self.lock().transfer(batch)
    }

    fn transfer_with_given(
        &mut self,
        batch: MiniBatch,
        table: &dyn GivenTable,
    ) -> morphgl_registry::Result<Handle<MiniBatch>> {
        self.lock().transfer_with_given(batch, table)
    }

    fn cache(&self) -> Option<CacheCurve> {
        self.lock().cache()
    }

    fn resize_cache(&mut self, bytes: u64) -> morphgl_registry::Result<()> {
        self.lock().resize_cache(bytes)
    }
}

/// Works with these routes and their trainers alone, whose mini-batches are given the trial's rows.
fn with_trial<R>(job: &mut Job, routes: &[usize], trial: &Arc<Trial>, work: impl FnOnce(&mut Job) -> R) -> R {
    let Operators { routes: all, trainers } = std::mem::take(&mut job.operators);
    let share =
        |RouteOperators { route, batching, transferring }| (route, batching, Arc::new(Mutex::new(transferring)));
    let all: Vec<_> = all.into_iter().map(share).collect();
    let tried = |&i: &usize| {
        let (route, batching, transferring) = &all[i];
        let transferring = Box::new(SharedTransferring(Arc::clone(transferring)));
        trial.route(RouteOperators { route: route.clone(), batching: Arc::clone(batching), transferring })
    };
    let leads =
        |t: &TrainingOperator| routes.iter().any(|&i| all[i].0.training == t.key && all[i].0.trained_at == t.place);
    let (leading, others): (Vec<_>, Vec<_>) = trainers.into_iter().partition(leads);
    job.operators = Operators { routes: routes.iter().map(tried).collect(), trainers: leading };
    let done = work(job);
    let Operators { routes: tried, mut trainers } = std::mem::take(&mut job.operators);
    drop(tried);
    trainers.extend(others);
    let own = |(route, batching, transferring)| {
        let transferring: Mutex<_> = Arc::into_inner(transferring).expect("the trial is over");
        RouteOperators {
            route,
            batching,
            transferring: transferring.into_inner().unwrap_or_else(PoisonError::into_inner),
        }
    };
    job.operators = Operators { routes: all.into_iter().map(own).collect(), trainers };
    done
}
