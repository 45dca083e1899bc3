#![doc = include_str!("../README.md")]

mod cpu;
mod device;
mod sampler;

pub use cpu::CpuSimNeighbor;
pub use device::SimNeighbor;

use morphgl_registry::{At, Build, Description, FeatureFill, Hardware, Key, Phase, Resource};
use morphgl_sim::{OPTIONS, SIM, accelerators, device as simulated, probe};

/// Name of the operator on the device: `Batching_PCIe+SIM_Neighbor`.
pub const DEVICE_KEY: Key = Key::new(Phase::Batching, Hardware::new(&[Resource::PCIE, SIM]), "Neighbor");
/// Name of the operator on the host: `Batching_CPU_SimNeighbor`.
pub const CPU_KEY: Key = Key::new(Phase::Batching, Hardware::CPU, "SimNeighbor");

/// The operator on the device.
pub const DEVICE: Description = Description::new(
    DEVICE_KEY,
    "samples neighbours on the simulated accelerator, for the configured time",
    At::Host,
    At::Device("sim"),
    Build::Batching(|c| Ok(Box::new(SimNeighbor::new(c, &simulated(&DEVICE_KEY, &c.place, &c.options)?)?))),
)
.with_probe(probe)
.with_accelerators(accelerators)
.filling(FeatureFill::Never)
.with_options(&OPTIONS)
.taking_pairs()
.interchangeable()
.as_simulated();

/// The operator on the host.
pub const CPU: Description = Description::new(
    CPU_KEY,
    "samples neighbours on simulated CPU workers, each for the configured time",
    At::Host,
    At::Host,
    Build::Batching(|c| Ok(Box::new(CpuSimNeighbor::new(c, &simulated(&CPU_KEY, &c.place, &c.options)?)?))),
)
.with_probe(probe)
.with_accelerators(accelerators)
.with_options(&OPTIONS)
.taking_pairs()
.interchangeable()
.as_simulated();

morphgl_registry::submit! { DEVICE }
morphgl_registry::submit! { CPU }
