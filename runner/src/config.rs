//! The configuration of a training run.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use morphgl_hotness::CachePolicy;
use morphgl_model_core::{ModelKind, ModelSpec, TrainingSpec};
use morphgl_registry::{Fanout, Fanouts, Key, NeighborSettings, PairSettings, Registry, SamplerSettings};
use morphgl_sim::MachineDescription;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// All that a training run depends on besides the dataset: `input_dict` in Listing 1 of morphgl.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobConfig {
    /// Model and optimizer.
    pub spec: TrainingSpec,
    /// Sampler settings.
    pub sampler: SamplerSettings,
    /// How pairs of nodes are made, of a model of links; `None` where nodes are learned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pairs: Option<PairSettings>,
    /// Seed of initial parameters and dropout.
    pub seed: u64,
    /// Threads; `None` for all cores this process may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<usize>,
    /// Operators chosen by key.
    #[serde(default)]
    pub operators: OperatorChoice,
    /// Options of operators, by the operator's key and the option's name; each operator's README lists its own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<Key, Map<String, Value>>,
    /// Whether operators are built on every device of a backend, as a group of trainers needs them, or on its first device alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub every_device: bool,
    /// Whether routes lead from every device of a backend to every other, as devices with roles need them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub roles: bool,
    /// For a dataset on disk, the budget of host memory in which operators cache it until a plan chooses another size, in bytes;
    /// `None` for one in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
    /// What operators fill their caches by; anything but `auto` requires an operator with a cache.
    #[serde(default, skip_serializing_if = "is_auto")]
    pub cache: CachePolicy,
    /// Maximum bytes of an operator's cache; `None` leaves it to the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_bytes: Option<u64>,
    /// Whether devices of a described machine that share a link have all of its bandwidth each, where operators are built on every
    /// device: their durations are those of a device alone.
    #[serde(skip)]
    pub(crate) whole_links: bool,
    /// The described machine that the job is simulated on; `None` on the one that there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<MachineDescription>,
}

fn is_auto(policy: &CachePolicy) -> bool {
    *policy == CachePolicy::Auto
}

/// Operators chosen by key; `None` leaves training to a measurement, the other phases to the plan.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OperatorChoice {
    /// The batching operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batching: Option<Key>,
    /// The transferring operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transferring: Option<Key>,
    /// The training operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub training: Option<Key>,
}

impl JobConfig {
    /// A job with the defaults: three-layer fanouts 15,10,5 cut to the model's layers, batch size 1024, seed 0.
    pub fn new(spec: TrainingSpec) -> Self {
        let fanouts = default_fanouts(&spec.model);
        let pairs = spec.model.learns_pairs().then(PairSettings::default);
        let pairs =
            pairs.map(|pairs| if spec.model.learns_edges() { PairSettings { negatives: 0, ..pairs } } else { pairs });
        Self {
            spec,
            sampler: fanouts.into(),
            pairs,
            seed: 0,
            threads: None,
            operators: OperatorChoice::default(),
            options: BTreeMap::new(),
            every_device: false,
            roles: false,
            disk_bytes: None,
            cache: CachePolicy::Auto,
            cache_bytes: None,
            whole_links: false,
            machine: None,
        }
    }

    /// Whether it says what operators cache, which requires one that does.
    pub(crate) fn caches(&self) -> bool {
        self.cache != CachePolicy::Auto || self.cache_bytes.is_some()
    }

    /// Threads, at least 1.
    pub(crate) fn num_threads(&self, registry: &Registry) -> usize {
        self.threads.unwrap_or(registry.machine().cores).max(1)
    }
}

/// The default fanouts of a model: 15, 10, then 5 per layer; 1 for models that do not read neighbours.
pub fn default_fanouts(model: &ModelSpec) -> Fanouts {
    let default = match model.kind {
        ModelKind::Mlp | ModelKind::Embedding => vec![Fanout::AtMost(NonZeroU32::MIN)],
        _ => NeighborSettings::default().fanouts.0,
    };
    let last = *default.last().expect("the defaults are not empty");
    Fanouts((0..model.layers).map(|l| default.get(l).copied().unwrap_or(last)).collect())
}
