#![doc = include_str!("../README.md")]

mod cache;
mod described;
mod operators;

pub use described::{
    DMA_GATHER, DMA_GATHER_KEY, HOST, HOST_GATHER, HOST_GATHER_KEY, HOST_KEY, SimDmaGather, SimHost, SimHostGather,
};
pub use operators::{SimCopy, SimDma, SimGather};

use cache::{SPECS, of_device};
use morphgl_registry::{
    At, Build, CACHE_HITS, CACHE_REQUESTS, Description, Hardware, Key, LINK_BYTES, PEER_BYTES, Phase, Resource,
};
use morphgl_sim::{OPTIONS, SIM, accelerators, device, probe};

/// Name of the copy from the host: `Transferring_PCIe_SimDma`.
pub const DMA_KEY: Key = Key::new(Phase::Transferring, Hardware::new(&[Resource::PCIE]), "SimDma");
/// Name of the gather on the device: `Transferring_PCIe+SIM_SimGather`.
pub const GATHER_KEY: Key = Key::new(Phase::Transferring, Hardware::new(&[Resource::PCIE, SIM]), "SimGather");
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
    Build::Transferring(|c| Ok(Box::new(SimGather::new(c, &device(&GATHER_KEY, &c.to, &of_device(&c.options))?)?))),
)
.taking_pairs()
.with_probe(probe)
.with_accelerators(accelerators)
.with_options(&SPECS)
.with_counters(&[LINK_BYTES, CACHE_REQUESTS, CACHE_HITS])
.as_simulated();

/// The copy from another device.
pub const COPY: Description = Description::new(
    COPY_KEY,
    "copies mini-batches from one simulated accelerator to another, which gathers their features, for a configured duration",
    At::Device("sim"),
    At::Device("sim"),
    Build::Transferring(|c| {
        let options = of_device(&c.options);
        let [from, to] = [device(&COPY_KEY, &c.from, &options)?, device(&COPY_KEY, &c.to, &options)?];
        Ok(Box::new(SimCopy::new(c, &from, &to)?))
    }),
)
.taking_pairs()
.with_probe(probe)
.with_accelerators(accelerators)
.gathering_features()
.between_devices()
.with_options(&SPECS)
.with_counters(&[PEER_BYTES, LINK_BYTES, CACHE_REQUESTS, CACHE_HITS])
.as_simulated();

morphgl_registry::submit! { DMA }
morphgl_registry::submit! { GATHER }
morphgl_registry::submit! { COPY }
