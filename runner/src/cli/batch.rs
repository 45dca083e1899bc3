//! The options of mini-batches, operators and threads.

use std::collections::BTreeMap;

use clap::Args;
use morphgl_hotness::CachePolicy;
use morphgl_model_core::{ModelKind, ModelSpec};
use morphgl_registry::{
    Expansion, Fanouts, Key, NeighborSettings, OptionRole, Pick, SamplerKind, SamplerSettings, Sampling,
    ShadowSettings, WalkSettings,
};
use serde_json::{Map, Value};

use super::usage::{OrUsage, Usage};
use super::values;
use crate::build::layers_mismatch;
use crate::{Evaluation, JobConfig, OperatorChoice, RunContext, TrainingSpec, routes};

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Mini-batches and machine")]
pub(crate) struct BatchArgs {
    /// How neighbourhoods are sampled: neighbor, by fanouts; shadow, all edges among the nodes that hops by fanouts find; walk,
    /// the nodes that random walks visit most often, weighted by their visits (sage and gat) [default: neighbor]
    #[arg(long, value_parser = values::one_of::<SamplerKind, _>(["neighbor", "shadow", "walk"]))]
    sampler: Option<SamplerKind>,
    /// Neighbours sampled per node, the seeds' own hop first; -1 for all [default: 15,10,5, cut to the number of
    /// layers; shadow: 10,5, whatever that number]
    #[arg(long, allow_hyphen_values = true)]
    fanouts: Option<Fanouts>,
    /// Seeds per mini-batch [default: 1024]
    #[arg(long, value_parser = values::at_least_one)]
    batch_size: Option<usize>,
    /// Nodes a hop expands: all found so far (DGL), or the newly found (PyG) [default: all]
    #[arg(long, value_parser = values::one_of::<Expansion, _>(["all", "new"]))]
    expansion: Option<Expansion>,
    /// Pick neighbours by edge weight instead of uniformly
    #[arg(long)]
    weighted: bool,
    /// Walks from each node [default: 10]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    walks: Option<u32>,
    /// Steps of a walk at most [default: 3]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    walk_length: Option<u32>,
    /// Probability that a walk ends before a step after its first [default: 0.5]
    #[arg(long, value_parser = values::probability)]
    restart: Option<f64>,
    /// Neighbours that walks find for a node, at most: those visited most often [default: 10]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    neighbors: Option<u32>,
    /// Seed of permutation, sampling, initial parameters and dropout [default: 0]
    #[arg(long)]
    seed: Option<u64>,
    /// Threads to use [default: all cores]
    #[arg(long, value_parser = values::threads)]
    pub(crate) threads: Option<usize>,
    /// Batching operator, by its key [default: of the best plan]
    #[arg(long, value_name = "KEY")]
    pub(super) batching: Option<Key>,
    /// Transferring operator, by its key
    #[arg(long, value_name = "KEY")]
    transferring: Option<Key>,
    /// Training operator, by its key; no other is measured then [default: at each place the fastest, by measurement]
    #[arg(long, value_name = "KEY")]
    training: Option<Key>,
    /// Set an operator's option; may be repeated. `morphgl ops --options` lists keys, names and values
    #[arg(long, value_name = "KEY.NAME=VALUE", value_parser = values::setting)]
    set: Vec<(Key, String, Value)>,
    /// How a run samples whose model or configuration is used: the options above replace its settings one by one.
    #[arg(skip)]
    run: Option<SamplerSettings>,
}

/// The options of mini-batches and threads, with the operators that they name.
#[derive(Debug, Clone)]
pub(crate) struct Resolved<'a> {
    batch: &'a BatchArgs,
    operators: OperatorChoice,
    options: BTreeMap<Key, Map<String, Value>>,
}

impl Resolved<'_> {
    /// The options as they were given.
    pub(crate) fn options(&self) -> &BatchArgs {
        self.batch
    }

    /// The job of a model.
    pub(crate) fn job(&self, spec: TrainingSpec) -> JobConfig {
        JobConfig {
            sampler: self.batch.sampler(&spec.model),
            seed: self.batch.seed(),
            threads: self.batch.threads,
            operators: self.operators.clone(),
            options: self.options.clone(),
            ..JobConfig::new(spec)
        }
    }
}

impl BatchArgs {
    /// Samples as a run did, but for the options that are given; returns these in words, if there are any.
    pub(super) fn sample_as(&mut self, run: &SamplerSettings) -> Option<String> {
        self.run = Some(run.clone());
        let given = [
            ("--sampler", self.sampler.is_some()),
            ("--fanouts", self.fanouts.is_some()),
            ("--batch-size", self.batch_size.is_some()),
            ("--expansion", self.expansion.is_some()),
            ("--weighted", self.weighted),
            ("--walks", self.walks.is_some()),
            ("--walk-length", self.walk_length.is_some()),
            ("--restart", self.restart.is_some()),
            ("--neighbors", self.neighbors.is_some()),
            ("--seed", self.seed.is_some()),
        ];
        let given: Vec<&str> = given.into_iter().filter(|(_, given)| *given).map(|(option, _)| option).collect();
        (!given.is_empty()).then(|| format!("samples as the run did, but for {}", given.join(", ")))
    }

    /// The kind of sampling: the one given, or that of the run, or by neighbours.
    fn kind(&self) -> SamplerKind {
        let of_run = self.run.as_ref().map(|run| run.sampling.kind());
        self.sampler.or(of_run).unwrap_or(SamplerKind::Neighbor)
    }

    /// Seed of all randomness.
    fn seed(&self) -> u64 {
        self.seed.or(self.run.as_ref().map(|run| run.seed)).unwrap_or(0)
    }

    /// Refuses options that the kind of sampling does not read, and mini-batches without one block per layer.
    pub(crate) fn check_sampling(&self, model: &ModelSpec) -> anyhow::Result<()> {
        let kind = self.kind();
        let of_walks = [
            ("--walks", self.walks.is_some()),
            ("--walk-length", self.walk_length.is_some()),
            ("--restart", self.restart.is_some()),
            ("--neighbors", self.neighbors.is_some()),
        ];
        let of_hops = [
            ("--fanouts", self.fanouts.is_some()),
            ("--weighted", self.weighted),
            ("--expansion", self.expansion.is_some()),
        ];
        let unread = if kind == SamplerKind::Walk { &of_hops[..] } else { &of_walks[..] };
        if let Some((option, _)) = unread.iter().find(|(_, given)| *given) {
            return Err(Usage::error(format!("{option}: --sampler {kind} does not read it; leave it out")));
        }
        if kind == SamplerKind::Walk && matches!(model.kind, ModelKind::Gcn | ModelKind::Gin) {
            let what =
                format!("--sampler walk: {} does not read the importance of neighbours; use sage or gat", model.kind);
            return Err(Usage::error(what));
        }
        let sampling = self.sampling(model);
        if sampling.num_layers() != model.layers {
            return Err(Usage::error(layers_mismatch(&sampling, model.layers)));
        }
        Ok(())
    }

    /// Number of layers of a model for which none is given: of the run's, or as many as hops, where they are layers.
    pub(super) fn num_layers(&self) -> usize {
        let hops = self.fanouts.as_ref().filter(|_| self.kind() == SamplerKind::Neighbor);
        let of_run = self.run.as_ref().map(|run| run.sampling.num_layers());
        of_run.or(hops.map(|fanouts| fanouts.0.len())).unwrap_or(3)
    }

    /// How a model is evaluated that is trained on such mini-batches, where this is not said: `None` as its memory allows. With
    /// all neighbours, a model trained on subgraphs or walks would be another one.
    pub(super) fn evaluation(&self) -> Option<Evaluation> {
        (self.kind() != SamplerKind::Neighbor).then_some(Evaluation::Sampled)
    }

    /// The sampler settings for a model.
    pub(super) fn sampler(&self, model: &ModelSpec) -> SamplerSettings {
        let mut settings: SamplerSettings = self.sampling(model).into();
        let of_run = self.run.as_ref().map(|run| run.batch_size);
        settings.batch_size = self.batch_size.or(of_run).unwrap_or(settings.batch_size);
        SamplerSettings { seed: self.seed(), ..settings }
    }

    fn sampling(&self, model: &ModelSpec) -> Sampling {
        let kind = self.kind();
        let of_run = self.run.as_ref().map(|run| &run.sampling).filter(|sampling| sampling.kind() == kind);
        let mut sampling = of_run.cloned().unwrap_or_else(|| default_sampling(kind, model));
        match &mut sampling {
            Sampling::Neighbor(hops) | Sampling::Shadow(ShadowSettings { hops, .. }) => {
                let NeighborSettings { fanouts, expansion, pick } = hops;
                *fanouts = self.fanouts.clone().unwrap_or_else(|| fanouts.clone());
                *expansion = self.expansion.unwrap_or(*expansion);
                *pick = if self.weighted { Pick::Weighted } else { *pick };
            }
            Sampling::Walk(WalkSettings { walks, length, restart, neighbors, layers: _ }) => {
                *walks = self.walks.unwrap_or(*walks);
                *length = self.walk_length.unwrap_or(*length);
                *restart = self.restart.unwrap_or(*restart);
                *neighbors = self.neighbors.unwrap_or(*neighbors);
            }
        }
        sampling
    }

    fn operators(&self) -> OperatorChoice {
        let Self { batching, transferring, training, .. } = self.clone();
        OperatorChoice { batching, transferring, training }
    }

    /// The options of operators, checked; the last value of a name counts. Sizes may be text such as `2GiB`.
    fn options(&self, context: &RunContext) -> anyhow::Result<BTreeMap<Key, Map<String, Value>>> {
        let mut all = BTreeMap::<Key, Map<String, Value>>::new();
        let registry = context.registry();
        for (key, name, value) in &self.set {
            let options = registry.get(key).or_usage("--set")?.options;
            let is_policy = options.iter().any(|o| o.name == name && o.role == OptionRole::CachePolicy);
            if let Some(text) = value.as_str().filter(|_| is_policy) {
                text.parse::<CachePolicy>().or_usage(format_args!("--set {key}.{name}"))?;
            }
            let in_bytes = options.iter().any(|o| o.name == name && o.unit == "bytes");
            let size = value.as_str().filter(|_| in_bytes).and_then(|text| values::bytes(text).ok());
            all.entry(key.clone()).or_default().insert(name.clone(), size.map_or(value.clone(), Value::from));
        }
        for (key, options) in &all {
            registry.check_options(key, &Value::Object(options.clone())).or_usage("--set")?;
        }
        Ok(all)
    }

    /// The operators that are named and their options, before a dataset is read: those that no route has are refused. Threads
    /// outside of plans (opening, checking, gathering) are limited from here on.
    pub(crate) fn resolve(&self, context: &RunContext) -> anyhow::Result<Resolved<'_>> {
        let operators = self.operators();
        let named =
            [("--batching", &self.batching), ("--transferring", &self.transferring), ("--training", &self.training)];
        let named: Vec<&str> = named.iter().filter(|(_, key)| key.is_some()).map(|(option, _)| *option).collect();
        if !named.is_empty() {
            routes(context.registry(), &operators, self.kind()).or_usage(named.join(", "))?;
        }
        let options = self.options(context)?;
        if let Some(threads) = self.threads {
            super::threads::start(context.process(), threads)?;
        }
        Ok(Resolved { batch: self, operators, options })
    }
}

/// Sampling of a kind for a model, where nothing else is said.
fn default_sampling(kind: SamplerKind, model: &ModelSpec) -> Sampling {
    let hops = |fanouts: Fanouts| NeighborSettings { fanouts, expansion: Expansion::All, pick: Pick::Uniform };
    match kind {
        SamplerKind::Shadow => {
            let two_hops = "10,5".parse().expect("the default fanouts are valid");
            Sampling::Shadow(ShadowSettings { hops: hops(two_hops), layers: model.layers })
        }
        SamplerKind::Walk => Sampling::Walk(WalkSettings::of_layers(model.layers)),
        _ => Sampling::Neighbor(hops(crate::default_fanouts(model))),
    }
}
