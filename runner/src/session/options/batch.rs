//! Mini-batches, operators and threads.

use std::collections::BTreeMap;

use clap::Args;
use morphgl_hotness::CachePolicy;
use morphgl_model_core::{ModelKind, ModelSpec};
use morphgl_registry::{
    Expansion, Fanouts, Key, NeighborSettings, OptionRole, Pick, SamplerKind, SamplerSettings, Sampling,
    ShadowSettings, WalkSettings,
};
use serde_json::{Map, Value};

use crate::build::layers_mismatch;
use crate::usage::{OrUsage, Usage};
use crate::{Evaluation, JobConfig, OperatorChoice, RunContext, TrainingSpec, routes, threads, values};

/// Mini-batches, operators and threads.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Mini-batches and machine")]
pub struct BatchOptions {
    /// How neighbourhoods are sampled: neighbor, by fanouts; shadow, all edges among the nodes that hops by fanouts find; walk,
    /// the nodes that random walks visit most often, weighted by their visits (sage and gat) [default: neighbor]
    #[arg(long, value_parser = values::one_of::<SamplerKind, _>(["neighbor", "shadow", "walk"]))]
    pub sampler: Option<SamplerKind>,
    /// Neighbours sampled per node, the seeds' own hop first; -1 for all [default: 15,10,5, cut to the number of
    /// layers; shadow: 10,5, whatever that number]
    #[arg(long, allow_hyphen_values = true)]
    pub fanouts: Option<Fanouts>,
    /// Seeds per mini-batch [default: 1024]
    #[arg(long, value_parser = values::at_least_one)]
    pub batch_size: Option<usize>,
    /// Nodes a hop expands: all found so far (DGL), or the newly found (PyG) [default: all]
    #[arg(long, value_parser = values::one_of::<Expansion, _>(["all", "new"]))]
    pub expansion: Option<Expansion>,
    /// Pick neighbours by edge weight instead of uniformly
    #[arg(long)]
    pub weighted: bool,
    /// Walks from each node [default: 10]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub walks: Option<u32>,
    /// Steps of a walk at most [default: 3]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub walk_length: Option<u32>,
    /// Probability that a walk ends before a step after its first [default: 0.5]
    #[arg(long, value_parser = values::probability)]
    pub restart: Option<f64>,
    /// Neighbours that walks find for a node, at most: those visited most often [default: 10]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub neighbors: Option<u32>,
    /// Seed of permutation, sampling, initial parameters and dropout [default: 0]
    #[arg(long)]
    pub seed: Option<u64>,
    /// Threads to use [default: all cores]
    #[arg(long, value_parser = values::threads)]
    pub threads: Option<usize>,
    /// Batching operator, by its key [default: of the best plan]
    #[arg(long, value_name = "KEY")]
    pub batching: Option<Key>,
    /// Transferring operator, by its key
    #[arg(long, value_name = "KEY")]
    pub transferring: Option<Key>,
    /// Training operator, by its key; no other is measured then [default: at each place the fastest, by measurement]
    #[arg(long, value_name = "KEY")]
    pub training: Option<Key>,
    /// Set an operator's option; may be repeated. `morphgl ops --options` lists keys, names and values
    #[arg(long, value_name = "KEY.NAME=VALUE", value_parser = values::setting)]
    pub set: Vec<(Key, String, Value)>,
}

/// The options of mini-batches and threads, with the operators that they name.
#[derive(Debug, Clone)]
pub(crate) struct Resolved<'a> {
    batch: MiniBatches<'a>,
    operators: OperatorChoice,
    options: BTreeMap<Key, Map<String, Value>>,
}

impl<'a> Resolved<'a> {
    /// The mini-batches as they were asked for.
    pub(crate) fn batch(&self) -> MiniBatches<'a> {
        self.batch
    }

    /// The job of a model.
    pub(crate) fn job(&self, spec: TrainingSpec) -> JobConfig {
        JobConfig {
            sampler: self.batch.sampler(&spec.model),
            seed: self.batch.seed(),
            threads: self.batch.options.threads,
            operators: self.operators.clone(),
            options: self.options.clone(),
            ..JobConfig::new(spec)
        }
    }
}

/// The mini-batches that options ask for; what they leave open is as a run had it, or by default.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MiniBatches<'a> {
    pub(crate) options: &'a BatchOptions,
    /// How the run samples whose model or configuration is used.
    pub(crate) run: Option<&'a SamplerSettings>,
}

impl<'a> MiniBatches<'a> {
    /// Mini-batches by these options alone.
    pub(crate) fn of(options: &'a BatchOptions) -> Self {
        Self { options, run: None }
    }

    /// What is not sampled as the run did, in words.
    pub(crate) fn differences(self) -> Option<String> {
        self.run?;
        let options = self.options;
        let given = [
            ("--sampler", options.sampler.is_some()),
            ("--fanouts", options.fanouts.is_some()),
            ("--batch-size", options.batch_size.is_some()),
            ("--expansion", options.expansion.is_some()),
            ("--weighted", options.weighted),
            ("--walks", options.walks.is_some()),
            ("--walk-length", options.walk_length.is_some()),
            ("--restart", options.restart.is_some()),
            ("--neighbors", options.neighbors.is_some()),
            ("--seed", options.seed.is_some()),
        ];
        let given: Vec<&str> = given.into_iter().filter(|(_, given)| *given).map(|(option, _)| option).collect();
        (!given.is_empty()).then(|| format!("samples as the run did, but for {}", given.join(", ")))
    }

    /// The kind of sampling: the one given, or that of the run, or by neighbours.
    fn kind(self) -> SamplerKind {
        let of_run = self.run.map(|run| run.sampling.kind());
        self.options.sampler.or(of_run).unwrap_or(SamplerKind::Neighbor)
    }

    /// Seed of all randomness.
    fn seed(self) -> u64 {
        self.options.seed.or(self.run.map(|run| run.seed)).unwrap_or(0)
    }

    /// Refuses options that the kind of sampling does not read, and mini-batches without one block per layer.
    pub(crate) fn check_sampling(self, model: &ModelSpec) -> anyhow::Result<()> {
        let kind = self.kind();
        let of_walks = [
            ("--walks", self.options.walks.is_some()),
            ("--walk-length", self.options.walk_length.is_some()),
            ("--restart", self.options.restart.is_some()),
            ("--neighbors", self.options.neighbors.is_some()),
        ];
        let of_hops = [
            ("--fanouts", self.options.fanouts.is_some()),
            ("--weighted", self.options.weighted),
            ("--expansion", self.options.expansion.is_some()),
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
    pub(crate) fn num_layers(self) -> usize {
        let hops = self.options.fanouts.as_ref().filter(|_| self.kind() == SamplerKind::Neighbor);
        let of_run = self.run.map(|run| run.sampling.num_layers());
        of_run.or(hops.map(|fanouts| fanouts.0.len())).unwrap_or(3)
    }

    /// How a model is evaluated that is trained on such mini-batches, where this is not said: `None` as its memory allows. With
    /// all neighbours, a model trained on subgraphs or walks would be another one.
    pub(crate) fn evaluation(self) -> Option<Evaluation> {
        (self.kind() != SamplerKind::Neighbor).then_some(Evaluation::Sampled)
    }

    /// The sampler settings for a model.
    pub(crate) fn sampler(self, model: &ModelSpec) -> SamplerSettings {
        let mut settings: SamplerSettings = self.sampling(model).into();
        let of_run = self.run.map(|run| run.batch_size);
        settings.batch_size = self.options.batch_size.or(of_run).unwrap_or(settings.batch_size);
        SamplerSettings { seed: self.seed(), ..settings }
    }

    fn sampling(self, model: &ModelSpec) -> Sampling {
        let kind = self.kind();
        let of_run = self.run.map(|run| &run.sampling).filter(|sampling| sampling.kind() == kind);
        let mut sampling = of_run.cloned().unwrap_or_else(|| default_sampling(kind, model));
        match &mut sampling {
            Sampling::Neighbor(hops) | Sampling::Shadow(ShadowSettings { hops, .. }) => {
                let NeighborSettings { fanouts, expansion, pick } = hops;
                *fanouts = self.options.fanouts.clone().unwrap_or_else(|| fanouts.clone());
                *expansion = self.options.expansion.unwrap_or(*expansion);
                *pick = if self.options.weighted { Pick::Weighted } else { *pick };
            }
            Sampling::Walk(WalkSettings { walks, length, restart, neighbors, layers: _ }) => {
                *walks = self.options.walks.unwrap_or(*walks);
                *length = self.options.walk_length.unwrap_or(*length);
                *restart = self.options.restart.unwrap_or(*restart);
                *neighbors = self.options.neighbors.unwrap_or(*neighbors);
            }
        }
        sampling
    }

    fn operators(self) -> OperatorChoice {
        let BatchOptions { batching, transferring, training, .. } = self.options.clone();
        OperatorChoice { batching, transferring, training }
    }

    /// The options of operators, checked; the last value of a name counts. Sizes may be text such as `2GiB`.
    fn options(self, context: &RunContext) -> anyhow::Result<BTreeMap<Key, Map<String, Value>>> {
        let mut all = BTreeMap::<Key, Map<String, Value>>::new();
        let registry = context.registry();
        for (key, name, value) in &self.options.set {
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
    pub(crate) fn resolve(self, context: &RunContext) -> anyhow::Result<Resolved<'a>> {
        let operators = self.operators();
        let BatchOptions { batching, transferring, training, .. } = self.options;
        let named = [("--batching", batching), ("--transferring", transferring), ("--training", training)];
        let named: Vec<&str> = named.iter().filter(|(_, key)| key.is_some()).map(|(option, _)| *option).collect();
        if !named.is_empty() {
            routes(context.registry(), &operators, self.kind()).or_usage(named.join(", "))?;
        }
        let options = self.options(context)?;
        if let Some(threads) = self.options.threads {
            threads::start(context.process(), threads)?;
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
