//! The option `--plan`: the best plan, the best of a strategy, or that of a file.

use std::path::PathBuf;
use std::str::FromStr;

use morphgl_plan::Strategy;
use morphgl_registry::Key;

use super::usage::{OrUsage, Usage};
use crate::{JobConfig, Plan, Plans};

#[derive(Debug, Clone)]
pub(super) enum PlanArg {
    Auto,
    Of(Strategy),
    File(PathBuf),
}

impl FromStr for PlanArg {
    type Err = std::convert::Infallible;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let strategy = Strategy::ALL.into_iter().find(|strategy| strategy.to_string() == s);
        Ok(match strategy {
            _ if s == "auto" => Self::Auto,
            Some(strategy) => Self::Of(strategy),
            None => Self::File(PathBuf::from(s)),
        })
    }
}

impl PlanArg {
    /// The plan of a file.
    pub(super) fn read(&self) -> anyhow::Result<Option<Plan>> {
        let Self::File(path) = self else { return Ok(None) };
        let names = Strategy::ALL.map(|s| s.to_string()).join(", ");
        let option = format!("--plan {}: neither a plan's file nor one of auto, {names}", path.display());
        let text = std::fs::read_to_string(path).or_usage(&option)?;
        serde_json::from_str(&text).or_usage(&option)
    }

    /// The plan asked for, of those there are; `given` is that of a file.
    pub(super) fn choose(&self, given: Option<Plan>, plans: &Plans) -> anyhow::Result<Plan> {
        match (self, given) {
            (Self::Of(strategy), _) => plans.best_of(*strategy).cloned().ok_or_else(|| {
                let mut there: Vec<String> = plans.all().iter().map(|p| p.strategy.to_string()).collect();
                there.sort();
                there.dedup();
                let there = there.join(", ");
                Usage::error(format!("--plan {strategy}: no route of this machine can be run so; there are {there}"))
            }),
            (Self::File(path), Some(plan)) => {
                let (has, wanted) = (plan.num_batches(), plans.best().num_batches());
                if has != wanted {
                    anyhow::bail!("{}: it is of {has} mini-batches, an epoch has {wanted}; plan again", path.display());
                }
                Ok(plan)
            }
            _ => Ok(plans.best().clone()),
        }
    }
}

/// Names the training operator of `plan`, where there is one of that key and none was asked for.
pub(super) fn name_training(plan: &Plan, config: &mut JobConfig) -> anyhow::Result<()> {
    let key = plan.schedule.shares.first().and_then(|share| share.keys.training.parse::<Key>().ok());
    let registry = crate::registry()?;
    let there = key.filter(|key| registry.get(key).is_ok());
    config.operators.training = config.operators.training.take().or(there);
    Ok(())
}
