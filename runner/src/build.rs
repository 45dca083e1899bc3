//! Operators built for a dataset and a configuration, and the routes to choose from.

use std::sync::Arc;

use anyhow::{Result, bail};
use morphgl_generate::SbmConfig;
use morphgl_graph_store::Dataset;
use morphgl_registry::{Place, Registry, Route, Training, TrainingContext, Transferring, TransferringContext};

use crate::budget::{self, Use};
use crate::{JobConfig, OperatorChoice};

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
pub fn routes(registry: &Registry, wanted: &OperatorChoice) -> Result<Vec<Route>> {
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

/// Why a route is left out whose sampler reads the dataset in memory.
pub(crate) const LEFT_ON_DISK: &str =
    "the dataset does not fit in memory and is left on disk, where this operator does not read";

/// What a dataset is called in errors: its directory, where it has one.
pub(crate) fn name(dataset: &Dataset) -> String {
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
    let fits = |r: &Route| config.disk_bytes.is_none() || r.read_at == Place::Disk;
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
        options: budget::options(config, registry, &route.training, Use::Training)?,
    };
    Ok(registry.training(&route.training, &context)?)
}

pub(crate) fn check_model(dataset: &Dataset, config: &JobConfig) -> Result<()> {
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
    config: &JobConfig,
    registry: &Registry,
    route: &Route,
    gather: bool,
) -> Result<Box<dyn Transferring>> {
    let context = TransferringContext {
        dataset: Arc::clone(dataset),
        from: route.batched_at.clone(),
        to: route.trained_at.clone(),
        gather,
        options: budget::options(config, registry, &route.transferring, Use::Training)?,
    };
    Ok(registry.transferring(&route.transferring, &context)?)
}
