//! Mini-batches, operators and threads.

use std::collections::BTreeMap;

use clap::Args;
use morphgl_graph_store::Dataset;
use morphgl_hotness::CachePolicy;
use morphgl_model_core::{ModelKind, ModelSpec};
use morphgl_registry::{
    CustomSettings, Expansion, Fanouts, Key, NeighborSettings, OptionRole, Pick, SamplerSettings, Sampling,
    SamplingSpec, ShadowSettings, WalkSettings,
};
use morphgl_sampler_core::TYPED;
use serde_json::{Map, Value};

use crate::build::layers_mismatch;
use crate::usage::{OrUsage, Usage};
use crate::{Evaluation, JobConfig, OperatorChoice, RunContext, TrainingSpec, examples, routes, threads, values};

/// Mini-batches, operators and threads.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Mini-batches and machine")]
pub struct BatchOptions {
    /// How neighbourhoods are sampled (walk: for sage and gat) [default: neighbor]
    #[arg(long, value_parser = values::sampler())]
    pub sampler: Option<String>,
    /// Set a setting of a sampler that a linked operator declares; may be repeated. `morphgl ops --options` lists names and values
    #[arg(long, value_name = "NAME=VALUE", value_parser = values::named)]
    pub sampler_option: Vec<(String, Value)>,
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

/// The setting of sampling by edge type that says whether it keeps to times.
const TEMPORAL: &str = "temporal";

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

    /// The same of the examples of a dataset.
    pub(crate) fn of(&self, dataset: &Dataset) -> Self {
        Self { batch: self.batch.of(dataset), ..self.clone() }
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
    /// The kind of the model: a typed one is sampled for by edge type, where nothing else is said.
    pub(crate) model: ModelKind,
    /// Whether seeds are rows of a task: they are sampled by edge type and within their times, where nothing else is said.
    pub(crate) rows: bool,
}

impl<'a> MiniBatches<'a> {
    /// Mini-batches of a model by these options alone.
    pub(crate) fn by(options: &'a BatchOptions, model: ModelKind) -> Self {
        Self { options, run: None, model, rows: false }
    }

    /// The same of the examples of a dataset.
    pub(crate) fn of(self, dataset: &Dataset) -> Self {
        Self { rows: examples::are_rows(dataset), ..self }
    }

    /// What is not sampled as the run did, in words.
    pub(crate) fn differences(self) -> Option<String> {
        self.run?;
        let options = self.options;
        let given = [
            ("--sampler", options.sampler.is_some()),
            ("--sampler-option", !options.sampler_option.is_empty()),
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

    /// The name of the kind of sampling: the one given, or that of the run, or by neighbours, of each edge type for a typed model.
    pub(crate) fn kind(self) -> &'a str {
        let of_run = self.run.map(|run| run.sampling.kind());
        // An operator that is named samples by a kind of its own, or refuses rows by its name.
        let of_rows = self.rows && self.options.batching.is_none();
        let default = if self.model.is_typed() || of_rows { TYPED } else { SamplingSpec::NEIGHBOR };
        self.options.sampler.as_deref().or(of_run).unwrap_or(default.name)
    }

    /// The kind of sampling; `None` where it is that of a run, and no linked operator samples so.
    fn spec(self) -> Option<SamplingSpec> {
        SamplingSpec::linked().into_iter().find(|spec| spec.name == self.kind())
    }

    /// Seed of all randomness.
    fn seed(self) -> u64 {
        self.options.seed.or(self.run.map(|run| run.seed)).unwrap_or(0)
    }

    /// Refuses options that the kind of sampling does not read, and mini-batches without one block per layer.
    pub(crate) fn check_sampling(self, model: &ModelSpec) -> anyhow::Result<()> {
        // A kind that is not linked is refused where its operators are looked up.
        let Some(spec) = self.spec() else { return Ok(()) };
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
        let of_walks = of_walks.into_iter().filter(|_| spec != SamplingSpec::WALK);
        let of_hops = of_hops.into_iter().filter(|_| !spec.by_fanouts);
        if let Some((option, _)) = of_walks.chain(of_hops).find(|(_, given)| *given) {
            return Err(Usage::error(format!("{option}: --sampler {} does not read it; leave it out", spec.name)));
        }
        let options = Value::Object(self.options.sampler_option.iter().cloned().collect());
        spec.check_values(&options).or_usage("--sampler-option")?;
        if model.kind.is_typed() && spec != TYPED {
            let (kind, name) = (model.kind, spec.name);
            let what =
                format!("--sampler {name}: {kind} reads the types of edges, which it leaves out; use {}", TYPED.name);
            return Err(Usage::error(what));
        }
        if spec == SamplingSpec::WALK && matches!(model.kind, ModelKind::Gcn | ModelKind::Gin) {
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
        let are_layers = self.spec().is_some_and(|spec| spec.by_fanouts && spec != SamplingSpec::SHADOW);
        let hops = self.options.fanouts.as_ref().filter(|_| are_layers);
        let of_run = self.run.map(|run| run.sampling.num_layers());
        of_run.or(hops.map(|fanouts| fanouts.0.len())).unwrap_or(3)
    }

    /// How a model is evaluated that is trained on such mini-batches, where this is not said: `None` as its memory allows. With
    /// all neighbours, a model trained on subgraphs, walks or edges within a time would be another one.
    pub(crate) fn evaluation(self) -> Option<Evaluation> {
        let has_all_neighbours = match self.kind() {
            kind if kind == TYPED.name => !self.is_temporal(),
            kind => kind == SamplingSpec::NEIGHBOR.name,
        };
        (!has_all_neighbours).then_some(Evaluation::Sampled)
    }

    /// Whether sampling by edge type keeps to the times of the seeds.
    fn is_temporal(self) -> bool {
        let of_run = match self.run.map(|run| &run.sampling) {
            Some(Sampling::Custom(custom)) => custom.settings.get(TEMPORAL),
            _ => None,
        };
        self.rows || self.temporal().or(of_run).is_some_and(|value| value != "no")
    }

    /// Whether sampling keeps to times, and how, where the options say it.
    fn temporal(self) -> Option<&'a Value> {
        self.options.sampler_option.iter().rev().find(|(name, _)| name == TEMPORAL).map(|(_, value)| value)
    }

    /// The sampler settings for a model.
    pub(crate) fn sampler(self, model: &ModelSpec) -> SamplerSettings {
        let mut settings: SamplerSettings = self.sampling(model).into();
        let of_run = self.run.map(|run| run.batch_size);
        settings.batch_size = self.options.batch_size.or(of_run).unwrap_or(settings.batch_size);
        SamplerSettings { seed: self.seed(), ..settings }
    }

    fn sampling(self, model: &ModelSpec) -> Sampling {
        let (kind, options) = (self.kind(), self.options);
        let of_run = self.run.map(|run| &run.sampling).filter(|sampling| sampling.kind() == kind);
        let mut sampling = of_run.cloned().unwrap_or_else(|| self.default_sampling(model));
        let given = |hops: &mut NeighborSettings| {
            let NeighborSettings { fanouts, expansion, pick } = hops;
            *fanouts = options.fanouts.clone().unwrap_or_else(|| fanouts.clone());
            *expansion = options.expansion.unwrap_or(*expansion);
            *pick = if options.weighted { Pick::Weighted } else { *pick };
        };
        match &mut sampling {
            Sampling::Neighbor(hops) | Sampling::Shadow(ShadowSettings { hops, .. }) => given(hops),
            Sampling::Walk(WalkSettings { walks, length, restart, neighbors, layers: _ }) => {
                *walks = options.walks.unwrap_or(*walks);
                *length = options.walk_length.unwrap_or(*length);
                *restart = options.restart.unwrap_or(*restart);
                *neighbors = options.neighbors.unwrap_or(*neighbors);
            }
            Sampling::Custom(CustomSettings { layers, hops, settings, .. }) => {
                hops.iter_mut().for_each(given);
                *layers = hops.as_ref().map_or(*layers, |hops| hops.fanouts.0.len());
                settings.extend(options.sampler_option.iter().cloned());
                let ignores_times = settings.get(TEMPORAL).is_some_and(|value| value == "no");
                if self.rows && ignores_times && self.temporal().is_none() {
                    settings.insert(TEMPORAL.into(), "uniform".into());
                }
            }
        }
        sampling
    }

    /// Sampling for a model, where nothing but the kind is said.
    fn default_sampling(self, model: &ModelSpec) -> Sampling {
        let one_per_layer = || NeighborSettings::from(crate::default_fanouts(model));
        match self.spec() {
            Some(SamplingSpec::SHADOW) => {
                let two_hops: Fanouts = "10,5".parse().expect("the default fanouts are valid");
                Sampling::Shadow(ShadowSettings { hops: two_hops.into(), layers: model.layers })
            }
            Some(SamplingSpec::WALK) => Sampling::Walk(WalkSettings::of_layers(model.layers)),
            None | Some(SamplingSpec::NEIGHBOR) => Sampling::Neighbor(one_per_layer()),
            Some(spec) => Sampling::Custom(CustomSettings {
                kind: spec.name.to_string(),
                layers: model.layers,
                hops: spec.by_fanouts.then(one_per_layer),
                settings: spec.defaults(),
            }),
        }
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
