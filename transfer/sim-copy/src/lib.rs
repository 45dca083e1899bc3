#![doc = include_str!("../README.md")]

mod operators;

pub use operators::{SimDma, SimGather};

use morphgl_registry::{At, Build, Description, Hardware, Key, LINK_BYTES, Phase, Resource};
use morphgl_sim::{OPTIONS, SIM, accelerators, device, probe};

/// Name of the copy from the host: `Transferring_PCIe_SimDma`.
pub const DMA_KEY: Key = Key::new(Phase::Transferring, Hardware::new(&[Resource::PCIE]), "SimDma");
/// Name of the gather on the device: `Transferring_PCIe+SIM_SimGather`.
pub const GATHER_KEY: Key = Key::new(Phase::Transferring, Hardware::new(&[Resource::PCIE, SIM]), "SimGather");

/// The copy from the host.
pub const DMA: Description = Description::new(
    DMA_KEY,
    "copies mini-batches to the simulated accelerator, for a configured duration",
    At::Host,
    At::Device("sim"),
    Build::Transferring(|c| Ok(Box::new(SimDma::new(c, &device(&DMA_KEY, &c.to, &c.options)?)?))),
)
.with_probe(probe)
.with_accelerators(accelerators)
.with_options(&OPTIONS)
.with_counters(&[LINK_BYTES])
.taking_given_rows()
.as_simulated();

/// The gather on the device.
pub const GATHER: Description = Description::new(
    GATHER_KEY,
    "gathers features into mini-batches on the simulated accelerator, for a configured duration",
    At::Device("sim"),
    At::Device("sim"),
    Build::Transferring(|c| Ok(Box::new(SimGather::new(c, &device(&GATHER_KEY, &c.to, &c.options)?)?))),
)
.with_probe(probe)
.with_accelerators(accelerators)
.with_options(&OPTIONS)
.with_counters(&[LINK_BYTES])
.as_simulated();

morphgl_registry::submit! { DMA }
morphgl_registry::submit! { GATHER }
