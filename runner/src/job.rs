//! A dataset, a configuration, and the operators of one route built for them.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use morphgl_execute::Operators as Built;
use morphgl_generate::SbmConfig;
use morphgl_graph_store::Dataset;
use morphgl_registry::{
    BatchingContext, Registry, Route, SeedSet, Training, TrainingContext, Transferring, TransferringContext,
};
use serde_json::Value;

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

/// What a dataset is called in errors: its directory, where it has one.
fn name(dataset: &Dataset) -> String {
    let path = &dataset.path;
    if path.as_os_str().is_empty() { dataset.name.clone() } else { path.display().to_string() }
}

/// Builds the training operator of `route` alone, which is all that inference needs.
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

/// Builds the transferring operator of `route` alone.
///
/// # Errors
///
/// The operator's own.
pub fn build_transferring(dataset: &Arc<Dataset>, registry: &Registry, route: &Route) -> Result<Box<dyn Transferring>> {
    let context = TransferringContext {
        dataset: Arc::clone(dataset),
        from: route.batched_at.clone(),
        to: route.trained_at.clone(),
        options: Value::Null,
    };
    Ok(registry.transferring(&route.transferring, &context)?)
}

/// What is trained: a dataset and a configuration, with the operators of one route.
#[derive(Debug)]
pub struct Job {
    dataset: Arc<Dataset>,
    config: JobConfig,
    registry: Registry,
    operators: Built,
}

impl Job {
    /// Builds the operators of the first route that has those asked for.
    ///
    /// # Errors
    ///
    /// As [`routes`] and [`Job::on_route`].
    pub fn new(dataset: Arc<Dataset>, config: JobConfig) -> Result<Self> {
        let registry = registry()?;
        let route = routes(&registry, &config.operators)?.swap_remove(0);
        Self::on_route(dataset, config, registry, route)
    }

    /// Builds the operators of `route`.
    ///
    /// # Errors
    ///
    /// A dataset without features, labels or training nodes; settings that do not fit it or one another.
    pub fn on_route(dataset: Arc<Dataset>, config: JobConfig, registry: Registry, route: Route) -> Result<Self> {
        let training = build_training(&dataset, &config, &registry, &route)?;
        let (layers, fanouts) = (config.spec.model.layers, &config.sampler.fanouts);
        if fanouts.0.len() != layers {
            bail!(
                "--fanouts {fanouts}: {} hops for a model of {layers} layers; give one fanout a layer",
                fanouts.0.len()
            );
        }
        if dataset.labels.is_none() {
            bail!("{}: the dataset has no labels to train on; import it with labels", name(&dataset));
        }
        let seeds = SeedSet::new("train split", &dataset.splits.train, dataset.num_nodes());
        let seeds = seeds.with_context(|| name(&dataset))?;
        let context = BatchingContext {
            dataset: Arc::clone(&dataset),
            seeds,
            settings: config.sampler.clone(),
            gather: true,
            place: route.batched_at.clone(),
            options: Value::Null,
        };
        let batching = registry.batching(&route.batching, &context)?;
        let transferring = build_transferring(&dataset, &registry, &route)?;
        Ok(Self { dataset, config, registry, operators: Built { route, batching, transferring, training } })
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

    /// The operators of the job's route.
    pub fn operators_mut(&mut self) -> &mut Built {
        &mut self.operators
    }

    /// The job's route.
    pub fn route(&self) -> &Route {
        &self.operators.route
    }

    pub(crate) fn into_parts(self) -> (Arc<Dataset>, JobConfig, Registry, Built) {
        (self.dataset, self.config, self.registry, self.operators)
    }
}
