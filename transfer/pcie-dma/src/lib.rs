#![doc = include_str!("../README.md")]

mod dma;

pub use dma::PcieDma;

use morphgl_cuda::{BACKEND, Staging, accelerators, probe};
use morphgl_registry::{At, Build, Description, Hardware, Key, LINK_BYTES, Phase, Resource};

/// The operator's name, `Transferring_PCIe_Dma`.
pub const KEY: Key = Key::new(Phase::Transferring, Hardware::new(&[Resource::PCIE]), "Dma");

/// What this crate registers.
pub const DESCRIPTION: Description = Description::new(
    KEY,
    "copies mini-batches to a CUDA device through pinned memory, with its copy engine",
    At::Host,
    At::Device(BACKEND),
    Build::Transferring(|context| Ok(Box::new(PcieDma::new(context)?))),
)
.with_probe(probe)
.with_accelerators(accelerators)
.queueing()
.with_options(&[Staging::DEPTH])
.with_counters(&[LINK_BYTES])
.taking_given_rows();

morphgl_registry::submit! { DESCRIPTION }
