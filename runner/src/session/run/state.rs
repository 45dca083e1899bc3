//! What a run was planned with, and the machine it ran on: kept with every checkpoint, so that a resumed run measures nothing
//! again and can say what may differ.

use std::collections::BTreeMap;

use morphgl_platform::SimdLevel;
use serde::{Deserialize, Serialize};

use crate::{Factored, Plan, Problem, Profile, SplitPlan, Unified};

/// A run besides its configuration and progress.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RunState {
    pub(crate) profile: Profile,
    /// The problem that was planned first.
    pub(crate) problem: Problem,
    /// The first plan.
    pub(crate) plan: Plan,
    pub(crate) held_bytes: u64,
    /// Whether the number of epochs was not given.
    pub(crate) open: bool,
    /// Checksums of the dataset's arrays; empty for the generated default.
    pub(crate) dataset: BTreeMap<String, String>,
    pub(crate) machine: MachineState,
    /// The plan of a group of trainers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unified: Option<Unified>,
    /// The plan of devices with roles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) factored: Option<Factored>,
    /// Number of MPI ranks that trained it, each with the threads of `machine`.
    #[serde(default = "one")]
    pub(crate) ranks: usize,
    /// The plan of layer-split training.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) split: Option<SplitPlan>,
}

fn one() -> usize {
    1
}

/// What the bits of a run may depend on besides its configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MachineState {
    simd: String,
    cores: usize,
    /// Settings of the simulated accelerator.
    simulated: Option<String>,
}

impl MachineState {
    /// Cores that plans were made for.
    pub(crate) fn cores(&self) -> usize {
        self.cores
    }

    /// This process's.
    pub(crate) fn current(cores: usize) -> Self {
        let simulated = std::env::var_os("MORPHGL_SIM").map(|text| text.to_string_lossy().into_owned());
        Self { simd: SimdLevel::current().name().to_string(), cores, simulated }
    }

    /// What may differ when a run that was made with `self` goes on with `now`, a line each.
    pub(crate) fn differences(&self, now: &Self) -> Vec<String> {
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
