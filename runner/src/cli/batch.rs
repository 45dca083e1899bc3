//! The options of mini-batches, operators and threads.

use std::collections::BTreeMap;

use clap::Args;
use morphgl_model_spec::ModelSpec;
use morphgl_registry::{Expansion, Fanouts, Key, Pick, SamplerSettings};
use serde_json::{Map, Value};

use super::usage::{OrUsage, Usage};
use super::values;
use crate::build::hops_mismatch;
use crate::{OperatorChoice, registry, routes};

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Mini-batches and machine")]
pub(crate) struct BatchArgs {
    /// Neighbours sampled a node, the seeds' own hop first; -1 for all [default: 15,10,5, cut to the number of layers]
    #[arg(long, allow_hyphen_values = true)]
    pub(super) fanouts: Option<Fanouts>,
    /// Seeds a mini-batch
    #[arg(long, value_parser = values::at_least_one, default_value_t = 1024)]
    batch_size: usize,
    /// Nodes a hop expands: all found so far (DGL), or the newly found (PyG)
    #[arg(long, value_parser = values::one_of::<Expansion, _>(["all", "new"]), default_value = "all")]
    expansion: Expansion,
    /// Pick neighbours by edge weight instead of uniformly
    #[arg(long)]
    weighted: bool,
    /// Seed of permutation, sampling, initial parameters and dropout
    #[arg(long, default_value_t = 0)]
    pub(super) seed: u64,
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
}

impl BatchArgs {
    /// Requires one fanout a layer.
    pub(crate) fn check_layers(&self, layers: usize) -> anyhow::Result<()> {
        match &self.fanouts {
            Some(fanouts) if fanouts.0.len() != layers => Err(Usage::error(hops_mismatch(fanouts, layers))),
            _ => Ok(()),
        }
    }

    /// The sampler settings for a model.
    pub(super) fn sampler(&self, model: &ModelSpec) -> SamplerSettings {
        SamplerSettings {
            fanouts: self.fanouts.clone().unwrap_or_else(|| crate::default_fanouts(model)),
            batch_size: self.batch_size,
            seed: self.seed,
            expansion: self.expansion,
            pick: if self.weighted { Pick::Weighted } else { Pick::Uniform },
            shuffle: true,
        }
    }

    pub(super) fn operators(&self) -> OperatorChoice {
        let Self { batching, transferring, training, .. } = self.clone();
        OperatorChoice { batching, transferring, training }
    }

    /// The options of operators, checked; the last value of a name counts. Sizes may be text such as `2GiB`.
    pub(super) fn options(&self) -> anyhow::Result<BTreeMap<Key, Map<String, Value>>> {
        let mut all = BTreeMap::<Key, Map<String, Value>>::new();
        let registry = registry()?;
        for (key, name, value) in &self.set {
            let options = registry.get(key).or_usage("--set")?.options;
            let in_bytes = options.iter().any(|o| o.name == name && o.unit == "bytes");
            let size = value.as_str().filter(|_| in_bytes).and_then(|text| values::bytes(text).ok());
            all.entry(key.clone()).or_default().insert(name.clone(), size.map_or(value.clone(), Value::from));
        }
        for (key, options) in &all {
            registry.check_options(key, &Value::Object(options.clone())).or_usage("--set")?;
        }
        Ok(all)
    }

    /// Refuses operators that no route has, before a dataset is read; and limits threads outside of plans (opening, checking,
    /// gathering).
    pub(crate) fn limit_threads(&self) -> anyhow::Result<()> {
        let named =
            [("--batching", &self.batching), ("--transferring", &self.transferring), ("--training", &self.training)];
        let named: Vec<&str> = named.iter().filter(|(_, key)| key.is_some()).map(|(option, _)| *option).collect();
        if !named.is_empty() {
            routes(&registry()?, &self.operators()).or_usage(named.join(", "))?;
        }
        self.options()?;
        if let Some(threads) = self.threads {
            rayon::ThreadPoolBuilder::new().num_threads(threads).build_global()?;
        }
        Ok(())
    }
}
