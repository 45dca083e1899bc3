//! Options and results of layer-split training.

use morphgl_layer_split::SplitStatistics;
use morphgl_plan::Time;
use serde_json::{Value, json};

use super::plan_arg::PlanArg;
use super::show::{self, Show};
use super::usage::Usage;
use crate::{Allowed, Plan, RunContext, SplitPlan, Unified};

/// The options of layer-split training.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Layer split")]
pub(crate) struct SplitArgs {
    /// Allows rows of the first layer that are up to so many steps old: those of hot nodes are computed once for several
    /// mini-batches, beside training, where that is predicted to be faster. It changes results within this bound
    #[arg(long, value_name = "STEPS", default_value_t = 0, hide_default_value = true)]
    allow_staleness: u64,
    /// The share of nodes that are hot, from 0, which is exact training, to 1. It trains so even where exact training is predicted
    /// to be faster, and in the longest super-batches that --allow-staleness has, so that two runs have the same bits
    /// [default: of several shares and lengths that are measured the fastest]
    #[arg(long, value_name = "RATIO", value_parser = ratio)]
    hot_ratio: Option<f64>,
    /// Lets the hot ratio follow measured times up to this one: lower where computing the rows of hot nodes takes longer than
    /// training meanwhile, higher where it takes less. For devices, whose training leaves cores idle; no two runs then have the
    /// same bits [default: the ratio stays]
    #[arg(long, value_name = "RATIO", value_parser = ratio)]
    max_hot_ratio: Option<f64>,
}

fn ratio(text: &str) -> Result<f64, String> {
    let ratio: f64 = text.parse().map_err(|_| "a number from 0 to 1 is needed".to_string())?;
    if (0.0..=1.0).contains(&ratio) { Ok(ratio) } else { Err("a number from 0 to 1 is needed".to_string()) }
}

impl SplitArgs {
    /// What is allowed; `None` trains exactly.
    ///
    /// # Errors
    ///
    /// A hot ratio without staleness, or staleness under MPI or with a plan of the user's.
    pub(crate) fn allowed(&self, plan: Option<&PlanArg>, context: &RunContext) -> anyhow::Result<Option<Allowed>> {
        if self.allow_staleness == 0 {
            let named = self.hot_ratio.map(|ratio| ("--hot-ratio", ratio));
            return match named.or(self.max_hot_ratio.map(|ratio| ("--max-hot-ratio", ratio))) {
                Some((option, ratio)) => {
                    Err(Usage::error(format!("{option} {ratio}: no row may be stale; give --allow-staleness too")))
                }
                None => Ok(None),
            };
        }
        if context.ranks().is_some() {
            return Err(Usage::error("--allow-staleness: ranks of MPI train exactly; leave it out"));
        }
        if plan.is_some_and(|plan| !matches!(plan, PlanArg::Auto)) {
            return Err(Usage::error("--allow-staleness: layers are split by a plan of their own; leave --plan out"));
        }
        let Self { allow_staleness: staleness, hot_ratio, max_hot_ratio } = *self;
        if let (Some(ratio), Some(most)) = (hot_ratio, max_hot_ratio)
            && ratio > most
        {
            return Err(Usage::error(format!(
                "--hot-ratio {ratio}: it is above --max-hot-ratio {most}; give a lower one"
            )));
        }
        if hot_ratio == Some(0.0) || max_hot_ratio == Some(0.0) {
            return Ok(None);
        }
        Ok(Some(Allowed { staleness, hot_ratio, max_hot_ratio }))
    }
}

/// The split to train with: where the hot ratio was given, or it is predicted to be faster than exact training for `epochs`.
pub(crate) fn choose(
    allowed: Option<Allowed>,
    planned: Option<anyhow::Result<SplitPlan>>,
    exact: &Plan,
    unified: Option<&Unified>,
    epochs: u32,
    show: Show,
) -> anyhow::Result<Option<SplitPlan>> {
    let (Some(allowed), Some(planned)) = (allowed, planned) else { return Ok(None) };
    let asked = allowed.hot_ratio.is_some();
    let best = match planned {
        Ok(split) => split,
        Err(e) if asked => return Err(e.context("--hot-ratio: layers cannot be split")),
        Err(e) => {
            show.say(format_args!("layer split: {}; training is exact", show::one_line(&e)));
            return Ok(None);
        }
    };
    let exact = unified.map_or(exact.prediction.epoch_seconds, |unified| unified.epoch_seconds);
    let is_chosen = |split: &SplitPlan| {
        let seconds = split.epoch_seconds(epochs);
        let chosen = asked || seconds < exact;
        if !chosen {
            let (split, exact) = (Time(seconds), Time(exact));
            show.line(format_args!("layer split: {split} per epoch predicted, exact training {exact}: not split"));
        }
        chosen
    };
    Ok(Some(best).filter(is_chosen))
}

/// What was given and computed beside training, as text and JSON.
pub(crate) fn summary(plan: &SplitPlan, statistics: &SplitStatistics) -> (String, Value) {
    let all = statistics.all();
    let sum = |of: fn(&morphgl_layer_split::SuperBatchStatistics) -> f64| all.iter().map(of).sum::<f64>();
    let share = sum(|s| s.given as f64) / sum(|s| s.occurrences as f64).max(1.0);
    let (choosing, computing) = (sum(|s| s.choosing), sum(|s| s.computing));
    let text = format!(
        "layer split: {:.1}% of rows of the first layer were given; {} super-batches, {} to choose their hot nodes, {} to \
         compute their rows\n",
        100.0 * share,
        all.len(),
        Time(choosing),
        Time(computing)
    );
    let ratios = [all.first(), all.last()].map(|s| s.map(|s| s.ratio));
    let text = match ratios {
        [Some(first), Some(last)] if plan.max_ratio.is_some() => {
            format!("{text}the hot ratio went from {:.1}% to {:.1}%\n", 100.0 * first, 100.0 * last)
        }
        _ => text,
    };
    let json = json!({
        "plan": plan, "hot_ratios": ratios, "super_batches": all.len(), "given_share": share, "hot_nodes": sum(|s| s.hot as f64),
        "staleness": statistics.staleness(), "choosing_seconds": choosing, "computing_seconds": computing,
    });
    (text, json)
}
