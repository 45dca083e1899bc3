//! A dataset, a configuration, and the operators built for them.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use morphgl_execute::RouteOperators;
use morphgl_generate::SbmConfig;
use morphgl_graph_store::Dataset;
use morphgl_registry::{
    BatchingContext, Key, NamedTensor, Place, Registry, Resource, Route, SeedSet, Training, TrainingContext,
    Transferring, TransferringContext,
};
use serde_json::{Value, json};

use crate::{JobConfig, Operators};

/// The operators this program is linked with, on this machine.
///
/// # Errors
///
/// Two linked crates register the same key.
pub fn registry() -> Result<Registry> {
    Ok(Registry::collect()?)
}

/// The embedded default dataset: 50,000 nodes, average degree 15, 16 classes; the same at every call.
pub fn default_dataset() -> Dataset {
    morphgl_generate::sbm(&SbmConfig::default()).expect("the default configuration is valid")
}

/// The routes of this machine that use the operators asked for.
///
/// # Errors
///
/// An operator that does not exist or is not available, or no route with them; the error says what there is.
pub fn routes(registry: &Registry, wanted: &Operators) -> Result<Vec<Route>> {
    for key in [&wanted.batching, &wanted.transferring, &wanted.training].into_iter().flatten() {
        registry.get(key)?;
    }
    let all = registry.routes();
    let fits = |r: &&Route| {
        wanted.batching.as_ref().is_none_or(|k| *k == r.batching)
            && wanted.transferring.as_ref().is_none_or(|k| *k == r.transferring)
            && wanted.training.as_ref().is_none_or(|k| *k == r.training)
    };
    let routes: Vec<Route> = all.iter().filter(fits).cloned().collect();
    if routes.is_empty() {
        let n = all.len();
        bail!(
            "no route batching → transferring → training fits ({n} in all); `morphgl ops` lists operators and routes"
        );
    }
    Ok(routes)
}

/// Sampled evaluation while training gets one of so many parts of the bytes that may be held of a dataset on disk: its nodes
/// are few.
pub(crate) const EVALUATION: u64 = 8;

/// What an operator holds that reads the dataset from where it is stored.
pub(crate) const DISK: Resource = Resource::new("Disk");

/// Why an operator is left out that looks for the dataset in memory.
const LEFT_ON_DISK: &str = "the dataset does not fit in memory and is left on disk, where this operator does not read";

/// Whether a route's mini-batches are read from disk.
pub(crate) fn reads_disk(route: &Route) -> bool {
    route.batching.hardware.resources().contains(&DISK)
}

/// The options of the operator that batches for training, where so many bytes of a dataset on disk may be held.
fn training_options(route: &Route, bytes: Option<u64>) -> Value {
    match bytes.filter(|_| reads_disk(route)) {
        Some(bytes) => json!({ "memory_bytes": bytes - bytes / EVALUATION }),
        None => Value::Null,
    }
}

/// The same, of the operators that batch for sampled evaluation: their few mini-batches are not worth a pass over the graph.
pub(crate) fn evaluation_options(route: &Route, bytes: Option<u64>) -> Value {
    match bytes.filter(|_| reads_disk(route)) {
        Some(bytes) => json!({ "memory_bytes": bytes, "hotness": "none" }),
        None => Value::Null,
    }
}

/// What a dataset is called in errors: its directory, where it has one.
fn name(dataset: &Dataset) -> String {
    let path = &dataset.path;
    if path.as_os_str().is_empty() { dataset.name.clone() } else { path.display().to_string() }
}

/// The first route that fits whose training operator can be built, which is all that inference needs; where the dataset is
/// left on disk, of those that read it there.
///
/// # Errors
///
/// As [`routes`] and [`build_training`], and where none reads a dataset that is left on disk.
pub fn trained_route(
    dataset: &Arc<Dataset>,
    config: &JobConfig,
    registry: &Registry,
) -> Result<(Route, Box<dyn Training>)> {
    let mut first = None;
    let fits = |r: &Route| config.disk_bytes.is_none() || reads_disk(r);
    for route in routes(registry, &config.operators)?.into_iter().filter(fits) {
        match build_training(dataset, config, registry, &route) {
            Ok(training) => return Ok((route, training)),
            Err(e) => first = first.or(Some(e)),
        }
    }
    Err(first.unwrap_or_else(|| anyhow::anyhow!("{LEFT_ON_DISK}; allow more memory, or name no other")))
}

/// Builds the training operator of `route` alone.
///
/// # Errors
///
/// A dataset without features, or one that the model is not made for.
pub fn build_training(
    dataset: &Arc<Dataset>,
    config: &JobConfig,
    registry: &Registry,
    route: &Route,
) -> Result<Box<dyn Training>> {
    check_model(dataset, config)?;
    let context = TrainingContext {
        dataset: Arc::clone(dataset),
        spec: serde_json::to_value(&config.spec)?,
        seed: config.seed,
        threads: config.threads.unwrap_or(registry.machine().cores).max(1),
        place: route.trained_at.clone(),
        options: Value::Null,
    };
    Ok(registry.training(&route.training, &context)?)
}

fn check_model(dataset: &Dataset, config: &JobConfig) -> Result<()> {
    let model = &config.spec.model;
    if dataset.features.is_none() {
        bail!("{}: the dataset has no features; import it with --random-features DIM", name(dataset));
    }
    // A dataset may know fewer classes than the model: one to predict on has no labels at all.
    if model.in_dim != dataset.feature_dim() || model.num_classes < dataset.num_classes {
        bail!(
            "{}: the dataset has {} features and {} classes, the model {} and {}; use a model made for it",
            name(dataset),
            dataset.feature_dim(),
            dataset.num_classes,
            model.in_dim,
            model.num_classes
        );
    }
    Ok(())
}

/// Whether mini-batches of `route` are to bring features. They need not where whoever trains them reads the dataset in
/// memory itself.
pub fn brings_features(config: &JobConfig, registry: &Registry, route: &Route) -> bool {
    config.disk_bytes.is_some() || !registry.reads_store(route)
}

/// Builds the transferring operator of `route` alone; `gather` says whether it fills in the features a mini-batch lacks.
///
/// # Errors
///
/// The operator's own.
pub fn build_transferring(
    dataset: &Arc<Dataset>,
    registry: &Registry,
    route: &Route,
    gather: bool,
) -> Result<Box<dyn Transferring>> {
    let context = TransferringContext {
        dataset: Arc::clone(dataset),
        from: route.batched_at.clone(),
        to: route.trained_at.clone(),
        gather,
        options: Value::Null,
    };
    Ok(registry.transferring(&route.transferring, &context)?)
}

/// A training operator, its key and its place.
#[derive(Debug)]
pub struct TrainingOperator {
    /// Its key.
    pub key: Key,
    /// Where it trains.
    pub place: Place,
    /// The operator.
    pub operator: Box<dyn Training>,
}

/// What is trained: a dataset and a configuration, with the operators of every route that could do it.
#[derive(Debug)]
pub struct Job {
    pub(crate) dataset: Arc<Dataset>,
    pub(crate) config: JobConfig,
    pub(crate) registry: Registry,
    pub(crate) routes: Vec<RouteOperators>,
    pub(crate) trainers: Vec<TrainingOperator>,
    /// Routes that could not be built, and why.
    unbuilt: Vec<String>,
}

impl Job {
    /// Builds the operators of the routes that have those asked for; of several devices of a backend, the first is used.
    /// Routes through a reference operator are built only where no other is.
    ///
    /// # Errors
    ///
    /// A dataset without features, labels or training nodes; settings that do not fit it or one another;
    /// or no route that can be built: the first one's reason.
    pub fn new(dataset: Arc<Dataset>, config: JobConfig) -> Result<Self> {
        let registry = registry()?;
        let mut routes = routes(&registry, &config.operators)?;
        let keys = |r: &Route| (r.batching.clone(), r.transferring.clone(), r.training.clone());
        routes.dedup_by_key(|r| keys(r));
        let mut job = Self { dataset, config, registry, routes: Vec::new(), trainers: Vec::new(), unbuilt: Vec::new() };
        job.check()?;
        let mut first = None;
        let (on_disk, wanted) = (job.config.disk_bytes.is_some(), job.config.operators.batching.clone());
        // Who samples a dataset that lies in memory from disk only loses time: that is done where it is asked for, and not tried.
        routes.retain(|r| on_disk || !reads_disk(r) || wanted.is_some());
        // Routes share mini-batches and what was measured of them: either those of all bring features, or those of none.
        // A route through a reference is built beside others of its kind alone.
        let brings = [false, true].map(|reference| {
            let mut alike = routes.iter().filter(|r| job.registry.is_reference(r) == reference);
            alike.any(|r| brings_features(&job.config, &job.registry, r))
        });
        for route in routes {
            let is_reference = |r: &Route| job.registry.is_reference(r);
            if is_reference(&route) && job.routes.iter().any(|r| !is_reference(&r.route)) {
                continue;
            }
            if on_disk && !reads_disk(&route) {
                job.unbuilt.push(format!("{}: {LEFT_ON_DISK}", route.batching));
                continue;
            }
            let brings = brings[usize::from(is_reference(&route))];
            if let Err(e) = job.add(&route, brings) {
                job.unbuilt.push(format!("{} → {} → {}: {e:#}", route.batching, route.transferring, route.training));
                first = first.or(Some(e));
            }
        }
        match first {
            Some(e) if job.routes.is_empty() => Err(e),
            None if job.routes.is_empty() => bail!("{}; allow more memory, or name no other", job.unbuilt.join("; ")),
            _ => Ok(job),
        }
    }

    fn check(&self) -> Result<()> {
        let (layers, fanouts) = (self.config.spec.model.layers, &self.config.sampler.fanouts);
        check_model(&self.dataset, &self.config)?;
        if fanouts.0.len() != layers {
            bail!(
                "--fanouts {fanouts}: {} hops for a model of {layers} layers; give one fanout a layer",
                fanouts.0.len()
            );
        }
        if self.dataset.labels.is_none() {
            bail!("{}: the dataset has no labels to train on; import it with labels", name(&self.dataset));
        }
        Ok(())
    }

    /// Builds the operators of a route, whose mini-batches bring features or not.
    fn add(&mut self, route: &Route, brings_features: bool) -> Result<()> {
        let seeds = SeedSet::new("train split", &self.dataset.splits.train, self.dataset.num_nodes());
        let seeds = seeds.with_context(|| name(&self.dataset))?;
        let context = BatchingContext {
            dataset: Arc::clone(&self.dataset),
            seeds,
            settings: self.config.sampler.clone(),
            // What a device batches has its features gathered by the transfer that follows.
            gather: brings_features && route.batched_at == Place::Host,
            place: route.batched_at.clone(),
            options: training_options(route, self.config.disk_bytes),
        };
        let batching = self.registry.batching(&route.batching, &context)?;
        let transferring = build_transferring(&self.dataset, &self.registry, route, brings_features)?;
        if self.trainer(route).is_none() {
            let operator = build_training(&self.dataset, &self.config, &self.registry, route)?;
            self.trainers.push(TrainingOperator {
                key: route.training.clone(),
                place: route.trained_at.clone(),
                operator,
            });
        }
        self.routes.push(RouteOperators { route: route.clone(), batching, transferring });
        Ok(())
    }

    fn trainer(&self, route: &Route) -> Option<usize> {
        self.trainers.iter().position(|t| t.key == route.training && t.place == route.trained_at)
    }

    /// The dataset.
    pub fn dataset(&self) -> &Arc<Dataset> {
        &self.dataset
    }

    /// The configuration.
    pub fn config(&self) -> &JobConfig {
        &self.config
    }

    /// The operators and the machine.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Threads the job may use.
    pub fn threads(&self) -> usize {
        self.config.threads.unwrap_or(self.registry.machine().cores).max(1)
    }

    /// Routes that could not be built, and why: one line each.
    pub fn unbuilt(&self) -> &[String] {
        &self.unbuilt
    }

    /// Bytes that inference of all nodes takes by the training operator of this key; `None` where that is not known.
    pub fn infer_bytes(&self, training: &str) -> Option<u64> {
        self.trainers.iter().find(|t| t.key.to_string() == training)?.operator.infer_bytes()
    }

    /// How the dataset is read, where it is left on disk: one line an operator.
    pub fn on_disk(&self) -> Vec<String> {
        let routes = self.routes.iter().filter(|r| reads_disk(&r.route));
        routes.map(|r| format!("{}: {:?}", r.route.batching, r.batching)).collect()
    }

    /// All operators, to be profiled.
    pub fn operators_mut(&mut self) -> morphgl_profile::Operators<'_> {
        let mut routes = Vec::new();
        for RouteOperators { route, batching, transferring } in &mut self.routes {
            let (batching, transferring) = (&**batching, &mut **transferring);
            routes.push(morphgl_profile::RouteOperators { route, batching, transferring });
        }
        let mut trainers = Vec::new();
        for TrainingOperator { key, place, operator } in &mut self.trainers {
            trainers.push(morphgl_profile::TrainingOperator { key, place, operator: operator.as_mut() });
        }
        morphgl_profile::Operators { routes, trainers, selections: Vec::new() }
    }

    /// Replaces the model's parameters, wherever it may be trained.
    ///
    /// # Errors
    ///
    /// Parameters that are not the model's.
    pub fn set_parameters(&mut self, parameters: &[NamedTensor]) -> Result<()> {
        self.trainers.iter_mut().try_for_each(|t| t.operator.set_parameters(parameters)).map_err(Into::into)
    }
}
