#![doc = include_str!("../README.md")]

mod operators;

pub use operators::{SimCopy, SimDma, SimGather, SimHost, SimHostGather};

use morphgl_registry::{At, Build, Description, Hardware, Key, LINK_BYTES, PEER_BYTES, Phase, Resource};
use morphgl_sim::{OPTIONS, SIM, accelerators, described_only, device, probe};

/// Name of the copy from the host: `Transferring_PCIe_SimDma`.
pub const DMA_KEY: Key = Key::new(Phase::Transferring, Hardware::new(&[Resource::PCIE]), "SimDma");
/// Name of the gather on the device: `Transferring_PCIe+SIM_SimGather`.
pub const GATHER_KEY: Key = Key::new(Phase::Transferring, Hardware::new(&[Resource::PCIE, SIM]), "SimGather");
/// Name of the gather by the host for the device: `Transferring_CPU+PCIe_SimHostGather`.
pub const HOST_GATHER_KEY: Key =
    Key::new(Phase::Transferring, Hardware::new(&[Resource::CPU, Resource::PCIE]), "SimHostGather");
/// Name of the host's own: `Transferring_CPU_SimHost`.
pub const HOST_KEY: Key = Key::new(Phase::Transferring, Hardware::CPU, "SimHost");
/// Name of the copy from another device: `Transferring_PCIe+Peer+SIM_SimCopy`.
pub const COPY_KEY: Key =
    Key::new(Phase::Transferring, Hardware::new(&[Resource::PCIE, Resource::PEER, SIM]), "SimCopy");

/// The copy from the host.
pub const DMA: Description = Description::new(
    DMA_KEY,
    "copies mini-batches to the simulated accelerator, for a configured duration",
    At::Host,
    At::Device("sim"),
    Build::Transferring(|c| Ok(Box::new(SimDma::new(c, &device(&DMA_KEY, &c.to, &c.options)?)?))),
)
.taking_pairs()
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
.taking_pairs()
.with_probe(probe)
.with_accelerators(accelerators)
.with_options(&OPTIONS)
.with_counters(&[LINK_BYTES])
.as_simulated();

/// The gather by the host, of a described machine.
pub const HOST_GATHER: Description = Description::new(
    HOST_GATHER_KEY,
    "gathers features by the host into mini-batches that a device of a described machine sampled",
    At::Device("sim"),
    At::Device("sim"),
    Build::Transferring(|c| Ok(Box::new(SimHostGather::new(c, &device(&HOST_GATHER_KEY, &c.to, &c.options)?)?))),
)
.taking_pairs()
.with_probe(described_only)
.with_accelerators(accelerators)
.with_options(&OPTIONS)
.with_counters(&[LINK_BYTES])
.as_simulated();

/// The copy from another device.
pub const COPY: Description = Description::new(
    COPY_KEY,
    "copies mini-batches from one simulated accelerator to another, which gathers their features, for a configured duration",
    At::Device("sim"),
    At::Device("sim"),
    Build::Transferring(|c| {
        let [from, to] = [device(&COPY_KEY, &c.from, &c.options)?, device(&COPY_KEY, &c.to, &c.options)?];
        Ok(Box::new(SimCopy::new(c, &from, &to)?))
    }),
)
.taking_pairs()
.with_probe(probe)
.with_accelerators(accelerators)
.gathering_features()
.between_devices()
.with_options(&OPTIONS)
.with_counters(&[PEER_BYTES, LINK_BYTES])
.as_simulated();

/// The host's own, of a described machine.
pub const HOST: Description = Description::new(
    HOST_KEY,
    "moves nothing on the host of a described machine, fills in features, takes no time",
    At::Host,
    At::Host,
    Build::Transferring(|c| Ok(Box::new(SimHost::new(c)?))),
)
.taking_pairs()
.with_probe(described_only)
.with_options(&OPTIONS)
.as_simulated();

morphgl_registry::submit! { DMA }
morphgl_registry::submit! { GATHER }
morphgl_registry::submit! { COPY }
morphgl_registry::submit! { HOST }
