//! The option `--plan`: the best plan, the best plan of a strategy, or a plan from a file.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::str::FromStr;

use morphgl_plan::Strategy;
use morphgl_registry::Key;

use super::show;
use super::usage::{OrUsage, Usage};
use crate::{JobConfig, Plan, Plans};

#[derive(Debug, Clone)]
pub(super) enum PlanArg {
    Auto,
    Strategy(Strategy),
    File(PathBuf),
}

impl FromStr for PlanArg {
    type Err = std::convert::Infallible;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let strategy = Strategy::ALL.into_iter().find(|strategy| strategy.to_string() == s);
        Ok(match strategy {
            _ if s == "auto" => Self::Auto,
            Some(strategy) => Self::Strategy(strategy),
            None => Self::File(PathBuf::from(s)),
        })
    }
}

impl PlanArg {
    /// Reads the plan from its file.
    pub(super) fn read(&self) -> anyhow::Result<Option<Plan>> {
        let Self::File(path) = self else { return Ok(None) };
        let names = Strategy::ALL.map(|s| s.to_string()).join(", ");
        let option = format!("--plan {}: neither a plan's file nor one of auto, {names}", path.display());
        let text = std::fs::read_to_string(path).or_usage(&option)?;
        serde_json::from_str(&text).or_usage(&option)
    }

    /// The plan chosen from `plans`; `from_file` is the file's, whose caches, buffers and workers have to fit in `host_bytes`.
    pub(super) fn choose(
        &self,
        from_file: Option<Plan>,
        plans: &Plans,
        host_bytes: Option<u64>,
    ) -> anyhow::Result<Plan> {
        match (self, from_file) {
            (Self::Strategy(strategy), _) => plans.best_of(*strategy).cloned().ok_or_else(|| {
                let possible: BTreeSet<String> = plans.all().iter().map(|p| p.strategy.to_string()).collect();
                let possible = Vec::from_iter(possible).join(", ");
                Usage::error(format!("--plan {strategy}: no route of this machine can be run so; there are {possible}"))
            }),
            (Self::File(path), Some(plan)) => {
                let (has, wanted) = (plan.num_batches(), plans.best().num_batches());
                if has != wanted {
                    anyhow::bail!("{}: it is of {has} mini-batches, an epoch has {wanted}; plan again", path.display());
                }
                let needed = plan.caches.iter().fold(plan.memory.host, |sum, cache| sum.saturating_add(cache.bytes));
                if let Some(free) = host_bytes.filter(|&free| !plan.caches.is_empty() && needed > free) {
                    let (needed, free) = (show::bytes(needed), show::bytes(free));
                    anyhow::bail!(
                        "{}: its caches, buffers and workers take {needed}, and {free} are left; plan again",
                        path.display()
                    );
                }
                Ok(plan)
            }
            _ => Ok(plans.best().clone()),
        }
    }
}

/// Chooses the training operator of `plan` where it exists and no other is chosen.
pub(super) fn choose_training(plan: &Plan, config: &mut JobConfig) -> anyhow::Result<()> {
    let key = plan.schedule.shares.first().and_then(|share| share.keys.training.parse::<Key>().ok());
    let registry = crate::registry()?;
    let existing = key.filter(|key| registry.get(key).is_ok());
    config.operators.training = config.operators.training.take().or(existing);
    Ok(())
}
