#![doc = include_str!("../README.md")]

mod ledger;
mod trainer;

pub use ledger::{Entry, Ledger};
pub use trainer::SimLedger;

use morphgl_registry::{At, Build, Description, Hardware, Key, Phase};
use morphgl_sim::{OPTIONS, SIM, accelerators, described_only, device, probe};

/// The operator's name, `Training_SIM_Ledger`.
pub const KEY: Key = Key::new(Phase::Training, Hardware::new(&[SIM]), "Ledger");
/// Name of the operator on the host of a described machine, `Training_CPU_SimLedger`.
pub const HOST_KEY: Key = Key::new(Phase::Training, Hardware::CPU, "SimLedger");

/// The operator on a device.
pub const DESCRIPTION: Description = Description::new(
    KEY,
    "trains nothing on the simulated accelerator for a configured time, and records mini-batches in a ledger",
    At::Device("sim"),
    At::Device("sim"),
    Build::Training(|c| Ok(Box::new(SimLedger::new(c, &device(&KEY, &c.place, &c.options)?)?))),
)
.with_probe(probe)
.with_accelerators(accelerators)
.with_options(&OPTIONS)
.taking_given_rows()
.as_simulated();

/// The operator on the host.
pub const HOST: Description = Description::new(
    HOST_KEY,
    "trains nothing on the host of a described machine, and records mini-batches in a ledger",
    At::Host,
    At::Host,
    Build::Training(|c| Ok(Box::new(SimLedger::new(c, &device(&HOST_KEY, &c.place, &c.options)?)?))),
)
.with_probe(described_only)
.with_options(&OPTIONS)
.as_simulated();

morphgl_registry::submit! { DESCRIPTION }
morphgl_registry::submit! { HOST }
