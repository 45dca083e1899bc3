//! Memory budgets: the one place that divides host memory among operators, before any of them is built.

use anyhow::Result;
use morphgl_registry::{Key, OptionRole, OptionSpec, Registry};
use serde_json::{Map, Value};

use crate::JobConfig;

/// Sampled evaluation beside training gets one of so many parts of the host memory budget: its nodes are few.
const EVALUATION_PARTS: u64 = 8;

/// What an operator is built for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// Training: its mini-batches are made in every epoch.
    Training,
    /// Sampled evaluation beside training.
    EvaluationBesideTraining,
    /// Evaluation without training.
    Evaluation,
}

impl Use {
    /// The part of a host memory budget of `bytes`.
    fn part(self, bytes: u64) -> u64 {
        match self {
            Use::Training => bytes - bytes / EVALUATION_PARTS,
            Use::EvaluationBesideTraining => bytes / EVALUATION_PARTS,
            Use::Evaluation => bytes,
        }
    }
}

/// The options an operator is built with: those the user set; else its part of the memory budget, and for evaluation what
/// suits mini-batches that are made once.
///
/// # Errors
///
/// No such operator.
pub(crate) fn options(config: &JobConfig, registry: &Registry, key: &Key, purpose: Use) -> Result<Value> {
    let mut options = Map::new();
    for spec in registry.get(key)?.options {
        if let Some(value) = of_budget(config, spec, purpose) {
            options.insert(spec.name.to_string(), value);
        }
    }
    options.extend(config.options.get(key).cloned().unwrap_or_default());
    Ok(if options.is_empty() { Value::Null } else { Value::Object(options) })
}

fn of_budget(config: &JobConfig, spec: &OptionSpec, purpose: Use) -> Option<Value> {
    let once = spec.single_pass.filter(|_| purpose != Use::Training);
    match (spec.role, once) {
        (OptionRole::HostBudget, _) => config.disk_bytes.map(|bytes| purpose.part(bytes).into()),
        // Device memory is divided by the operators themselves, in parts of what is free, until a budget is given for it.
        (OptionRole::DeviceBudget, _) => None,
        (OptionRole::Setting, Some(word)) => Some(word.into()),
        (OptionRole::Setting, None) => None,
    }
}
