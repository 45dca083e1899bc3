//! Options that the run sets before operators are built: each operator's part of the host memory budget, and its cache
//! policy.

use anyhow::Result;
use morphgl_hotness::CachePolicy;
use morphgl_registry::{Key, OptionRole, OptionSpec, Phase, Registry};
use morphgl_sim::MachineDescription;
use serde_json::{Map, Value, json};

use crate::JobConfig;

/// Sampled evaluation during training gets 1 / `EVALUATION_PARTS` of the host memory budget: its nodes are few.
const EVALUATION_PARTS: u64 = 8;

/// What an operator is built for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Training, which makes mini-batches in every epoch.
    Training,
    /// Sampled evaluation during training.
    EvaluationBesideTraining,
    /// Evaluation without training.
    Evaluation,
    /// Training, with a budget of so many bytes of the memory where it samples, chosen with the plan.
    Resized(u64),
}

impl Purpose {
    /// The part of the job's budget of host memory, which a batching operator halves with a transferring one that `gathers` in its
    /// place; `None` without a budget.
    pub(crate) fn host_bytes(self, config: &JobConfig, gathers: bool) -> Option<u64> {
        let budget = config.disk_bytes.map(|bytes| if gathers { bytes / 2 } else { bytes });
        match self {
            Purpose::Training => budget.map(|bytes| bytes - bytes / EVALUATION_PARTS),
            Purpose::EvaluationBesideTraining => budget.map(|bytes| bytes / EVALUATION_PARTS),
            Purpose::Evaluation => budget,
            Purpose::Resized(bytes) => Some(bytes),
        }
    }

    fn is_training(self) -> bool {
        matches!(self, Purpose::Training | Purpose::Resized(_))
    }
}

/// The options an operator is built with: the user's; else its part of the memory budget, what the run caches, and for
/// evaluation the value that suits mini-batches made once. With the purpose comes whether the route gathers when it transfers.
pub(crate) fn options(
    config: &JobConfig,
    registry: &Registry,
    key: &Key,
    (purpose, gathers): (Purpose, bool),
) -> Result<Value> {
    let defaults = registry.get(key)?.options.iter();
    let defaults = defaults.filter_map(|spec| Some((spec.name.to_string(), default(config, spec, purpose, gathers)?)));
    let mut options: Map<String, Value> = defaults.collect();
    options.extend(config.options.get(key).cloned().unwrap_or_default());
    Ok(if options.is_empty() { Value::Null } else { Value::Object(options) })
}

/// The described machine as the job's operators use it: where there are some on every device, these work at once, unless the job has
/// whole links.
pub(crate) fn machine(config: &JobConfig) -> Option<MachineDescription> {
    let machine = config.machine.as_ref()?;
    Some(if config.every_device && !config.whole_links { machine.in_use_by_all() } else { machine.clone() })
}

/// Whether the operator takes the run's cache policy.
pub(crate) fn caches(registry: &Registry, key: &Key) -> bool {
    let takes = |spec: &OptionSpec| spec.role == OptionRole::CachePolicy;
    registry.get(key).is_ok_and(|operator| operator.options.iter().any(takes))
}

/// Whether the operator takes a part of the host memory in which a dataset on disk is cached.
pub(crate) fn takes_host_memory(registry: &Registry, key: &Key) -> bool {
    let takes = |spec: &OptionSpec| spec.role == OptionRole::HostBudget;
    registry.get(key).is_ok_and(|operator| operator.options.iter().any(takes))
}

fn default(config: &JobConfig, spec: &OptionSpec, purpose: Purpose, gathers: bool) -> Option<Value> {
    match spec.role {
        OptionRole::HostBudget => purpose.host_bytes(config, gathers).map(Value::from),
        // Until sizes are planned, operators divide free device memory themselves.
        OptionRole::DeviceBudget => match purpose {
            Purpose::Resized(bytes) => Some(bytes.into()),
            _ => None,
        },
        OptionRole::CachePolicy if purpose.is_training() => {
            Some(config.cache).filter(|&policy| policy != CachePolicy::Auto).map(|policy| policy.to_string().into())
        }
        OptionRole::CacheBytes => config.cache_bytes.filter(|_| purpose.is_training()).map(Value::from),
        OptionRole::Machine => machine(config).map(|machine| json!(machine)),
        OptionRole::Setting | OptionRole::CachePolicy => {
            spec.single_pass.filter(|_| !purpose.is_training()).map(Value::from)
        }
    }
}

/// Whether the user set the memory of the operator's cache: of a batching operator its part of the host's or the device's, of a
/// transferring one the size of its cache. Then no plan changes it; on a described machine a plan's size is within it.
pub(crate) fn is_fixed(config: &JobConfig, registry: &Registry, key: &Key) -> Result<bool> {
    let of_cache = key.phase == Phase::Transferring;
    let is_size = |spec: &&OptionSpec| match spec.role {
        OptionRole::CacheBytes => of_cache,
        OptionRole::HostBudget | OptionRole::DeviceBudget => !of_cache,
        _ => false,
    };
    let mut sizes = registry.get(key)?.options.iter().filter(is_size);
    let is_set = config.options.get(key).is_some_and(|given| sizes.any(|spec| given.contains_key(spec.name)));
    Ok((is_set || of_cache && config.cache_bytes.is_some()) && config.machine.is_none())
}
