//! How many steps the parameters may be ahead of what is computed with them.

use super::PlanChoice;
use crate::usage::Usage;
use crate::{Allowed, RunContext};

/// Training with bounded staleness.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Staleness")]
pub struct StalenessOptions {
    /// Allows what was computed with parameters of up to so many steps before. Rows of the first layer: those of hot nodes are computed
    /// once for several mini-batches, beside training, where that is predicted to be faster. With --plan factored gradients: devices
    /// train their next shares while those of earlier ones are added up. It changes results within this bound
    #[arg(long, value_name = "STEPS", default_value_t = 0, hide_default_value = true)]
    pub allow_staleness: u64,
    /// The share of nodes that are hot, from 0, which is exact training, to 1. It trains so even where exact training is predicted
    /// to be faster, and in the longest super-batches that --allow-staleness has, so that two runs have the same bits. With --plan
    /// unified the rows are computed once for all trainers
    /// [default: of several shares and lengths that are measured the fastest]
    #[arg(long, value_name = "RATIO", value_parser = ratio)]
    pub hot_ratio: Option<f64>,
    /// Lets the hot ratio follow measured times up to this one: lower where computing the rows of hot nodes takes longer than
    /// training meanwhile, higher where it takes less. For devices, whose training leaves cores idle; no two runs then have the
    /// same bits [default: the ratio stays]
    #[arg(long, value_name = "RATIO", value_parser = ratio)]
    pub max_hot_ratio: Option<f64>,
}

fn ratio(text: &str) -> Result<f64, String> {
    let ratio: f64 = text.parse().map_err(|_| "a number from 0 to 1 is needed".to_string())?;
    if (0.0..=1.0).contains(&ratio) { Ok(ratio) } else { Err("a number from 0 to 1 is needed".to_string()) }
}

impl StalenessOptions {
    /// Whether any of the options is given.
    pub(crate) fn is_asked(&self) -> bool {
        self.allow_staleness > 0 || self.splits_layers()
    }

    /// Whether any of the options is given that only layer-split training has.
    pub(crate) fn splits_layers(&self) -> bool {
        self.hot_ratio.is_some() || self.max_hot_ratio.is_some()
    }

    /// Steps by which gradients may be stale with this plan: devices with roles alone train so.
    pub(crate) fn of_gradients(&self, plan: &PlanChoice) -> usize {
        match plan {
            PlanChoice::Factored => usize::try_from(self.allow_staleness).unwrap_or(usize::MAX),
            _ => 0,
        }
    }

    /// Settings of layer-split training; `None` where no layers are split.
    ///
    /// # Errors
    ///
    /// A hot ratio without staleness, staleness under MPI or in a group without a hot ratio that stays, or staleness with another plan of
    /// the user's.
    pub(crate) fn allowed(&self, plan: Option<&PlanChoice>, context: &RunContext) -> anyhow::Result<Option<Allowed>> {
        if self.allow_staleness == 0 {
            let named = self.hot_ratio.map(|ratio| ("--hot-ratio", ratio));
            return match named.or(self.max_hot_ratio.map(|ratio| ("--max-hot-ratio", ratio))) {
                Some((option, ratio)) => {
                    Err(Usage::error(format!("{option} {ratio}: no row may be stale; give --allow-staleness too")))
                }
                None => Ok(None),
            };
        }
        if context.ranks().is_some() && (self.hot_ratio.is_none() || self.max_hot_ratio.is_some()) {
            let why = "each rank measures for itself, and all have the same hot nodes";
            return Err(Usage::error(format!(
                "--allow-staleness: {why}; give --hot-ratio and no --max-hot-ratio, or leave it out"
            )));
        }
        match plan {
            None | Some(PlanChoice::Auto) => {}
            Some(PlanChoice::Unified) if self.hot_ratio.is_none() || self.max_hot_ratio.is_some() => {
                let why = "a group's hot ratio is not measured, and follows no times";
                return Err(Usage::error(format!(
                    "--allow-staleness with --plan unified: {why}; give --hot-ratio and no --max-hot-ratio, or leave --plan out"
                )));
            }
            Some(PlanChoice::Unified) => {}
            Some(PlanChoice::Factored) if self.splits_layers() => {
                let why = "devices with roles split no layers; leave it out, or leave --plan out";
                return Err(Usage::error(format!("--hot-ratio, --max-hot-ratio: {why}")));
            }
            Some(PlanChoice::Factored) => return Ok(None),
            Some(_) => {
                let why = "layers are split by a plan of their own or with --plan unified, and gradients are stale with --plan factored";
                return Err(Usage::error(format!("--allow-staleness: {why}; leave --plan out, or take one of these")));
            }
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
