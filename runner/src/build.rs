//! Operators built for a dataset and a configuration, and the routes to choose from.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use morphgl_generate::SbmConfig;
use morphgl_graph_store::{Dataset, FeatureMatrix};
use morphgl_group::ShardedBatching;
use morphgl_model_core::{ModelKind, Task, check_types, output_width};
use morphgl_plan::RouteKeys;
use morphgl_registry::{
    Batching, BatchingContext, CustomSettings, Error, ErrorKind, Key, NegativeDistribution, NeighborSettings,
    Operators, Phase, Place, Registry, Route, RouteOperators, SamplerSettings, Sampling, SamplingSetting, SeedSet,
    Training, TrainingContext, Transferring, TransferringContext,
};

use morphgl_sampler_core::TYPED;
use rayon::prelude::*;

use crate::budget::{self, Purpose};
use crate::examples;
use crate::task::{Examples, Split};
use crate::usage::Usage;
use crate::{JobConfig, OperatorChoice, RunContext};

/// Maximum sum of the weights of a node's edges: products of two such degrees are finite in f32.
const MAX_DEGREE: f64 = 1e18;

/// The embedded default dataset: 50,000 nodes, average degree 15, 16 classes; the same at every call.
pub fn default_dataset() -> Dataset {
    morphgl_generate::sbm(&SbmConfig::default()).expect("the default configuration is valid")
}

/// The routes of this machine that use the operators of `wanted` and sample by `kind`; an operator that is not interchangeable
/// with others samples only where `wanted` names it.
///
/// # Errors
///
/// An operator that does not exist or is not available, or no route with them; the error lists what exists.
pub fn routes(registry: &Registry, wanted: &OperatorChoice, kind: &str) -> Result<Vec<Route>> {
    let wanted = [&wanted.batching, &wanted.transferring, &wanted.training].map(Option::as_ref);
    for key in wanted.into_iter().flatten() {
        registry.get(key)?;
    }
    registry.sampling(kind)?;
    if let Some(batching) = wanted[0] {
        let samplers = registry.get(batching)?.samplers;
        if samplers.iter().all(|spec| spec.name != kind) {
            bail!("{batching} does not sample by {kind}; give --sampler {}, or no --batching", samplers[0].name);
        }
    }
    let mut routes = registry.routes();
    let n = routes.len();
    routes.retain(|r| registry.get(&r.batching).is_ok_and(|batching| batching.samples(kind, wanted[0])));
    routes.retain(|r| {
        let keys = [&r.batching, &r.transferring, &r.training];
        wanted.iter().zip(keys).all(|(wanted, key)| wanted.is_none_or(|wanted| wanted == key))
    });
    let status = registry.status();
    let by_name = status.iter().map(|s| s.description).filter(|d| d.samples(kind, Some(&d.key))).collect::<Vec<_>>();
    if routes.is_empty() && wanted[0].is_none() && by_name.iter().all(|d| !d.interchangeable) {
        let keys: Vec<String> = by_name.iter().map(|d| d.key.to_string()).collect();
        bail!(
            "sampler {kind}: operators that sample so run where they are named; give --batching {}",
            keys.join(" or ")
        );
    }
    if routes.is_empty() {
        bail!(
            "no route batching → transferring → training fits ({n} in all); `morphgl ops` lists operators and routes"
        );
    }
    Ok(routes)
}

/// The routes of a job: those of [`routes`] whose training operator is named or may have the model. A custom one is trained by
/// the operators with a model of their own, and no other model is.
///
/// # Errors
///
/// As [`routes`], and where no operator has a custom model, or takes what the dataset's examples are.
pub(crate) fn job_routes(registry: &Registry, config: &JobConfig, dataset: &Dataset) -> Result<Vec<Route>> {
    let JobConfig { operators, sampler, spec, .. } = config;
    let mut routes = routes(registry, operators, sampler.sampling.kind())?;
    let custom = spec.model.kind == ModelKind::Custom;
    let named = operators.training.is_some();
    routes.retain(|r| named || registry.get(&r.training).is_ok_and(|training| training.own_model == custom));
    if spec.model.learns_pairs() {
        let takes = |key: &Key| registry.get(key).is_ok_and(|operator| operator.takes_pairs);
        // What is named refuses pairs itself, by its name.
        let fits = |r: &Route| {
            let named = [&operators.batching, &operators.transferring, &operators.training];
            let keys = [&r.batching, &r.transferring, &r.training];
            keys.iter().zip(named).all(|(key, named)| named.is_some() || takes(key))
        };
        routes.retain(fits);
        if routes.is_empty() {
            let kind = sampler.sampling.kind();
            bail!(
                "{}: no operator here samples pairs by {kind}; `morphgl ops --json` lists those that take pairs",
                Examples::of(&spec.model).option()
            );
        }
    }
    if examples::are_rows(dataset) {
        // What is named refuses rows itself, by its name.
        routes.retain(|r| operators.batching.is_some() || registry.takes_rows(r));
        if routes.is_empty() {
            let (kind, label) = (sampler.sampling.kind(), label(dataset));
            bail!(
                "{label}: no operator here samples rows of a task by {kind}; give --sampler {}, or none: `morphgl ops --json` \
                 lists operators that take rows",
                TYPED.name
            );
        }
    }
    if routes.is_empty() {
        let what = "a custom model is trained by the operator that brings it, and no such operator is linked here";
        bail!("model.kind: {what}; name one of gcn, sage, gat, gin, mlp, rgcn, rsage, rgat, hgt");
    }
    Ok(routes)
}

/// Of the routes of the same operators, which lead to several devices, the one that trains on the first device: of those that
/// batch on another, the one that batches on the first of them. Devices of a backend are taken to be alike.
pub(crate) fn to_first_devices(routes: Vec<Route>) -> Vec<Route> {
    let mut first: Vec<Route> = Vec::new();
    for route in routes {
        let keys = |r: &Route| RouteKeys::from(r);
        let places = |r: &Route| (r.trained_at.clone(), r.batched_at.clone());
        match first.iter_mut().find(|known| keys(known) == keys(&route)) {
            Some(known) if places(&route) < places(known) => *known = route,
            Some(_) => {}
            None => first.push(route),
        }
    }
    first
}

/// Keeps one of the routes that differ only in the device that batches, since a plan names operators: that of the lowest
/// device, or of the highest.
pub(crate) fn keep_one_of_each(operators: &mut Operators, which: Ordering) {
    let ends = |r: &RouteOperators| (RouteKeys::from(&r.route), r.route.trained_at.clone());
    let mut kept = BTreeMap::new();
    for route in &operators.routes {
        let place = kept.entry(ends(route)).or_insert_with(|| route.route.batched_at.clone());
        if route.route.batched_at.cmp(place) == which {
            place.clone_from(&route.route.batched_at);
        }
    }
    operators.routes.retain(|route| kept[&ends(route)] == route.route.batched_at);
}

/// Whether the trainers of a group may train by a route: it batches on no device that trains.
pub(crate) fn serves_group(route: &Route, trainers: &[(Key, Place)]) -> bool {
    !route.is_between_devices() || trainers.iter().all(|(_, place)| *place != route.batched_at)
}

/// Whether a route can train on features that ranks divide among themselves: they are filled in when the host has batched.
pub(crate) fn takes_shards(route: &Route) -> bool {
    (&route.read_at, &route.batched_at, route.gathering) == (&Place::Host, &Place::Host, Phase::Batching)
}

/// Why a route cannot train on a dataset left on disk, with the operator that cannot; `None` where it can. A transferring operator
/// that gathers from disk, into host memory of its own, does so where it was chosen by name: its route would halve the memory of
/// the others.
pub(crate) fn left_on_disk(registry: &Registry, route: &Route, chosen: &OperatorChoice) -> Option<String> {
    let gathers_from_disk = || budget::takes_host_memory(registry, &route.transferring);
    let (key, what) = match (&route.read_at, route.gathering) {
        (Place::Disk, Phase::Batching) => return None,
        (Place::Disk, _) if gathers_from_disk() => match &chosen.transferring {
            Some(_) => return None,
            None => (&route.transferring, "is used where --transferring names it"),
        },
        (Place::Disk, _) => (&route.transferring, "gathers no features"),
        _ => (&route.batching, "does not read"),
    };
    Some(format!("{key}: the dataset does not fit in memory and is left on disk, where this operator {what}"))
}

/// The dataset in error messages: its directory, or its name without one.
pub(crate) fn label(dataset: &Dataset) -> String {
    let path = &dataset.path;
    if path.as_os_str().is_empty() { dataset.name.clone() } else { path.display().to_string() }
}

/// The dataset's features.
pub(crate) fn features(dataset: &Dataset) -> Result<&FeatureMatrix> {
    dataset.features.as_ref().with_context(|| {
        let what = match dataset.features_by_type[..] {
            [] => "the dataset has no features; import it with --random-features DIM",
            _ => {
                "features are per node type, and this reads one matrix of all nodes' rows; import it with such features"
            }
        };
        format!("{}: {what}", label(dataset))
    })
}

/// The message for mini-batches that do not have one block per layer.
pub(crate) fn layers_mismatch(sampling: &Sampling, layers: usize) -> String {
    match sampling {
        Sampling::Neighbor(NeighborSettings { fanouts, .. })
        | Sampling::Custom(CustomSettings { hops: Some(NeighborSettings { fanouts, .. }), .. }) => {
            let hops = fanouts.0.len();
            format!("--fanouts {fanouts}: {hops} hops for a model of {layers} layers; give one fanout per layer")
        }
        other => {
            format!("{} blocks per mini-batch for a model of {layers} layers; sample {layers}", other.num_layers())
        }
    }
}

/// Wrong usage where a sampler refuses what one of its options says.
fn sampling_usage(error: Error) -> anyhow::Error {
    let option = match error.kind {
        ErrorKind::Sampling(SamplingSetting::Walks, _) => "--walks",
        ErrorKind::Sampling(SamplingSetting::Fanouts, _) => "--fanouts",
        ErrorKind::Sampling(SamplingSetting::WeightedPick, _) => "--weighted",
        _ => return error.into(),
    };
    Usage::error(Error { context: option.to_string(), ..error }.to_string())
}

/// Builds operators for a dataset and a configuration.
#[derive(Debug, Clone, Copy)]
pub struct OperatorBuilder<'a> {
    /// The dataset.
    pub dataset: &'a Arc<Dataset>,
    /// The configuration.
    pub config: &'a JobConfig,
    /// The operators and the machine.
    pub context: &'a RunContext,
}

impl OperatorBuilder<'_> {
    /// The first route whose training operator can be built, which is all that inference needs, one whose batching gathers
    /// features if there is any; for a dataset on disk, the first that reads from there.
    ///
    /// # Errors
    ///
    /// As [`routes`] and [`OperatorBuilder::training`]; no operator has a custom model; no route reads a dataset on disk.
    pub fn first_route(self) -> Result<(Route, Box<dyn Training>)> {
        let (mut first, mut left_out) = (None, String::new());
        let mut routes = to_first_devices(job_routes(self.context.registry(), self.config, self.dataset)?);
        // A device's gather pins all features and fills a cache, which one pass does not pay for.
        routes.sort_by_key(|route| (self.context.registry().is_reference(route), route.gathering));
        for route in routes {
            let unable = |_: &String| self.config.disk_bytes.is_some();
            if let Some(why) = left_on_disk(self.context.registry(), &route, &self.config.operators).filter(unable) {
                left_out = why;
                continue;
            }
            match self.training(&route) {
                Ok(training) => return Ok((route, training)),
                Err(e) => first = first.or(Some(e)),
            }
        }
        Err(first.unwrap_or_else(|| anyhow::anyhow!("{left_out}; allow more memory, or name no other")))
    }

    pub(crate) fn check_model(self) -> Result<()> {
        let (dataset, model) = (self.dataset, &self.config.spec.model);
        let by_type = !model.input_widths.is_empty();
        if !by_type {
            features(dataset)?;
        }
        check_types(model, dataset)?;
        if examples::are_rows(dataset) && matches!(model.kind, ModelKind::Gcn | ModelKind::Gin) {
            let (label, kind) = (label(dataset), model.kind);
            let why = "reads the in-degrees of nodes, which count edges later than a row of the task, too";
            bail!("{label}: {kind} {why}; use sage, gat or a typed model");
        }
        // A dataset may have fewer classes than the model: one to predict on has no labels at all.
        let width = output_width(dataset, model.task, model.learns_edges());
        // Values and labels have a place each; of none nothing is known.
        let other =
            matches!(model.task, Task::Multilabel | Task::Regress) && width > 0 && width != model.target_width();
        if !by_type && model.in_dim != dataset.feature_dim() || model.target_width() < width || other {
            let what = if model.task == Task::Classify { "classes" } else { "targets" };
            bail!(
                "{}: the dataset has {} features and {width} {what}, the model {} and {}; use a model made for it",
                label(dataset),
                dataset.feature_dim(),
                model.in_dim,
                model.target_width()
            );
        }
        Ok(())
    }

    /// Refuses edge weights that add up to more than models can divide by.
    pub(crate) fn check_weights(self) -> Result<()> {
        let topology = &self.dataset.topology;
        let Some(weights) = topology.weights().filter(|_| self.config.spec.model.reads_graph()) else { return Ok(()) };
        let sum = |row: &[u64]| weights[row[0] as usize..row[1] as usize].iter().map(|&w| f64::from(w)).sum::<f64>();
        if let Some(node) = topology.indptr().par_windows(2).position_first(|row| sum(row) > MAX_DEGREE) {
            let sum = sum(&topology.indptr()[node..node + 2]);
            bail!(
                "{}: the weights of the edges of node {node} add up to {sum:.1e}, at most {MAX_DEGREE:.0e} are allowed; divide all \
                 weights by a constant",
                label(self.dataset)
            );
        }
        Ok(())
    }

    /// Whether mini-batches of `route` carry features: they do unless the training operator reads the dataset in memory.
    pub fn carries_features(self, route: &Route) -> bool {
        self.config.disk_bytes.is_some()
            || self.context.shards().is_some()
            || !self.context.registry().reads_store(route)
    }

    /// Builds the batching operator of `route` for the training nodes; `gather` says whether it gathers features.
    ///
    /// # Errors
    ///
    /// A dataset without training nodes, or the operator's own.
    pub fn batching(self, route: &Route, gather: bool) -> Result<Box<dyn Batching>> {
        self.batching_for(route, gather, Purpose::Training)
    }

    pub(crate) fn batching_for(self, route: &Route, gather: bool, purpose: Purpose) -> Result<Box<dyn Batching>> {
        self.batching_of(route, self.seeds()?, self.config.sampler.clone(), gather, purpose)
    }

    pub(crate) fn seeds(self) -> Result<SeedSet> {
        let (dataset, num_nodes) = (self.dataset, self.dataset.num_nodes());
        let seeds = match self.config.pairs {
            Some(settings) => {
                let given = settings.distribution == NegativeDistribution::Given;
                let negatives = if given { dataset.edges.train_negative_pairs() } else { &[] };
                let destinations: Vec<u32> = negatives.iter().map(|pair| pair[1]).collect();
                let pairs = dataset.train_pairs();
                let pairs = SeedSet::of_pairs_against("train edges", &pairs, &destinations, num_nodes, settings);
                let pairs = match dataset.train_pair_types() {
                    Some(types) => pairs.and_then(|pairs| pairs.with_edge_types("train edges", &types)),
                    None => pairs,
                };
                let targets = || Split::Train.of_pairs(dataset).clone();
                match self.config.spec.model.learns_edges() {
                    true => pairs.and_then(|pairs| pairs.with_targets("train edges", targets())),
                    false => pairs,
                }
            }
            None => examples::seeds("train split", &dataset.splits.train, dataset),
        };
        seeds.with_context(|| label(self.dataset))
    }

    pub(crate) fn batching_of(
        self,
        route: &Route,
        seeds: SeedSet,
        settings: SamplerSettings,
        gather: bool,
        purpose: Purpose,
    ) -> Result<Box<dyn Batching>> {
        let context = BatchingContext {
            dataset: Arc::clone(self.dataset),
            seeds,
            settings,
            gather: gather && self.context.shards().is_none(),
            place: route.batched_at.clone(),
            options: budget::options(self.config, self.context.registry(), &route.batching, (purpose, !gather))?,
        };
        let inner = self.context.registry().batching(&route.batching, &context).map_err(sampling_usage)?;
        Ok(match self.context.shards().filter(|_| gather) {
            Some(shards) => Box::new(ShardedBatching { inner, shards: Arc::clone(shards) }),
            None => inner,
        })
    }

    /// Builds the transferring operator of `route`; `gather` says whether it fills in the features a mini-batch lacks.
    ///
    /// # Errors
    ///
    /// The operator's own.
    pub fn transferring(self, route: &Route, gather: bool) -> Result<Box<dyn Transferring>> {
        // Checking seeds takes one byte per node. A dataset without training nodes is evaluated on, without caches.
        let sampled = budget::caches(self.context.registry(), &route.transferring).then(|| self.seeds().ok()).flatten();
        let context = TransferringContext {
            dataset: Arc::clone(self.dataset),
            from: route.batched_at.clone(),
            to: route.trained_at.clone(),
            gather,
            sampled: sampled.map(|seeds| (seeds, self.config.sampler.clone())),
            options: budget::options(
                self.config,
                self.context.registry(),
                &route.transferring,
                (Purpose::Training, true),
            )?,
        };
        Ok(self.context.registry().transferring(&route.transferring, &context)?)
    }

    /// Builds the training operator of `route`.
    ///
    /// # Errors
    ///
    /// A dataset without features, or one that the model is not made for.
    pub fn training(self, route: &Route) -> Result<Box<dyn Training>> {
        self.check_model()?;
        let context = TrainingContext {
            dataset: Arc::clone(self.dataset),
            spec: serde_json::to_value(&self.config.spec)?,
            seed: self.config.seed,
            threads: self.config.num_threads(self.context.registry()),
            place: route.trained_at.clone(),
            options: budget::options(
                self.config,
                self.context.registry(),
                &route.training,
                (Purpose::Training, false),
            )?,
        };
        Ok(self.context.registry().training(&route.training, &context)?)
    }
}
