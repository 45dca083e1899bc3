//! What a run was planned with, and the machine it ran on: kept with every checkpoint, so that a resumed run measures nothing
//! again and can say what may differ.

use std::collections::BTreeMap;
use std::path::Path;

use morphgl_graph_store::Meta;
use morphgl_platform::SimdLevel;
use serde::{Deserialize, Serialize};

use crate::{Plan, Problem, Profile, SplitPlan, Unified};

/// A run besides its configuration and progress.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct RunState {
    pub(super) profile: Profile,
    /// The problem that was planned first.
    pub(super) problem: Problem,
    /// The first plan.
    pub(super) plan: Plan,
    pub(super) held_bytes: u64,
    /// Whether the number of epochs was not given.
    pub(super) open: bool,
    /// Checksums of the dataset's arrays; empty for the generated default.
    pub(super) dataset: BTreeMap<String, String>,
    pub(super) machine: MachineState,
    /// The plan of a group of trainers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) unified: Option<Unified>,
    /// The plan of layer-split training.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) split: Option<SplitPlan>,
}

/// What the bits of a run may depend on besides its configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MachineState {
    simd: String,
    cores: usize,
    /// Settings of the simulated accelerator.
    simulated: Option<String>,
}

impl MachineState {
    /// This process's.
    pub(super) fn current(cores: usize) -> Self {
        let simulated = std::env::var_os("MORPHGL_SIM").map(|text| text.to_string_lossy().into_owned());
        Self { simd: SimdLevel::current().name().to_string(), cores, simulated }
    }

    /// What may differ when a run that was made with `self` goes on with `now`, a line each.
    pub(super) fn differences(&self, now: &Self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.simd != now.simd {
            let (was, is) = (&self.simd, &now.simd);
            lines.push(format!(
                "the run was made at SIMD level {was}, this is {is}: sums may be rounded otherwise, so the last digits of losses \
                 and parameters may differ from those of an undisturbed run (MORPHGL_ISA={was} avoids it where the \
                 processor has that level)"
            ));
        }
        if self.cores != now.cores {
            let (was, is) = (self.cores, now.cores);
            lines.push(format!(
                "the run was planned for {was} cores, there are {is}: times differ, and with operators whose sums depend on \
                 the number of threads the last digits of losses and parameters"
            ));
        }
        if self.simulated != now.simulated {
            lines.push("the simulated accelerator has other settings: times differ, and so may plans".to_string());
        }
        lines
    }
}

/// Checksums of the arrays of the dataset at `path`, by name.
pub(super) fn checksums(path: Option<&Path>) -> anyhow::Result<BTreeMap<String, String>> {
    let Some(path) = path else { return Ok(BTreeMap::new()) };
    Ok(Meta::read(path)?.arrays.into_iter().map(|(name, array)| (name, array.xxh3)).collect())
}
