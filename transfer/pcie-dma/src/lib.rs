#![doc = include_str!("../README.md")]

mod arena;
mod dma;

pub use dma::PcieDma;

use morphgl_cuda::{BACKEND, accelerators, probe};
use morphgl_registry::{At, Build, Description, Hardware, Key, LINK_BYTES, OptionSpec, OptionType, Phase, Resource};

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
.with_options(&[OptionSpec::new(
    "depth",
    OptionType::Count,
    "3",
    "mini-batches in pinned memory at a time, at least 1",
)
.in_unit("mini-batches")])
.with_counters(&[LINK_BYTES]);

morphgl_registry::submit! { DESCRIPTION }
