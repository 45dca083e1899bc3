//! Which plan is trained by: the best plan, the best plan of a strategy, or a plan from a file.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::anyhow;
use morphgl_plan::{CacheMemory, Strategy};
use morphgl_platform::{excerpt, read_text};
use morphgl_registry::Registry;

use crate::usage::{OrUsage, Usage};
use crate::{JobConfig, Plan, Plans, Problem, words};

/// Maximum bytes of a plan's file; a plan has some thousand.
const MAX_FILE: u64 = 16 << 20;
/// Characters of a message about the file, which quotes it.
const EXCERPT: usize = 300;

/// Which plan is trained by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanChoice {
    /// The one of minimum predicted epoch time.
    Auto,
    /// All trainers together.
    Unified,
    /// Devices with roles: some sample, the others train.
    Factored,
    /// The best of a strategy.
    Strategy(Strategy),
    /// The plan in a file that `morphgl plan --output` wrote.
    File(PathBuf),
}

impl FromStr for PlanChoice {
    type Err = std::convert::Infallible;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let strategy = Strategy::ALL.into_iter().find(|strategy| strategy.to_string() == s);
        Ok(match strategy {
            _ if s == "auto" => Self::Auto,
            _ if s == "unified" => Self::Unified,
            _ if s == "factored" => Self::Factored,
            Some(strategy) => Self::Strategy(strategy),
            None => Self::File(PathBuf::from(s)),
        })
    }
}

impl fmt::Display for PlanChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Unified => f.write_str("unified"),
            Self::Factored => f.write_str("factored"),
            Self::Strategy(strategy) => strategy.fmt(f),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

impl PlanChoice {
    /// Reads the plan from its file.
    pub(crate) fn read(&self) -> anyhow::Result<Option<Plan>> {
        let Self::File(path) = self else { return Ok(None) };
        let names = Strategy::ALL.map(|s| s.to_string()).join(", ");
        let option =
            format!("--plan {}: neither a plan's file nor one of auto, unified, factored, {names}", path.display());
        let text = read_text(path, MAX_FILE).or_usage(&option)?;
        let read = serde_json::from_str::<Plan>(&text).map_err(|e| anyhow!("{}", excerpt(&e.to_string(), EXCERPT)));
        let plan = read.or_usage(&option)?;
        plan.check().or_usage(format!("--plan {}: this is no plan to run; plan again", path.display()))?;
        Ok(Some(plan))
    }

    /// The plan chosen from `plans`; `from_file` is the file's, whose caches, buffers and workers have to fit in the memory that
    /// `problem` has for them, by the file's figures and by those of the problem.
    pub(crate) fn choose(&self, from_file: Option<Plan>, plans: &Plans, problem: &Problem) -> anyhow::Result<Plan> {
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
                let host = plan.memory.host.max(morphgl_plan::memory(problem, &plan.schedule).host);
                let needed = plan
                    .caches
                    .iter()
                    .filter(|c| c.memory == CacheMemory::Host)
                    .fold(host, |sum, cache| sum.saturating_add(cache.bytes));
                if let Some(free) = problem.limits.host_bytes.filter(|&free| needed > free) {
                    let (needed, free) = (words::bytes(needed), words::bytes(free));
                    anyhow::bail!(
                        "{}: its caches, buffers and workers take {needed}, and {free} are left; plan again",
                        path.display()
                    );
                }
                Ok(plan)
            }
            _ => Ok(plans.chosen().clone()),
        }
    }
}

/// Chooses the training operator of `plan` where it exists and no other is chosen.
pub(crate) fn choose_training(plan: &Plan, registry: &Registry, config: &mut JobConfig) {
    let key = plan.schedule.shares.first().map(|share| share.keys.training.clone());
    let existing = key.filter(|key| registry.get(key).is_ok());
    config.operators.training = config.operators.training.take().or(existing);
}
