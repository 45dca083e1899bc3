#![doc = include_str!("../README.md")]

mod bounds;
mod cache;
mod expand;
mod graph;
mod kernels;
mod launch;
mod lists;
mod options;
mod order;
mod presample;
mod sampler;
mod scratch;
mod shared;
mod slope;
mod worker;

pub use cache::{SelectedRows, select_rows};
pub use options::TopologyPlacement;
pub use sampler::CudaNeighbor;

use morphgl_cuda::{BACKEND, CUDA, accelerators, probe};
use morphgl_registry::{At, Build, Description, FeatureFill, Hardware, Key, Phase, Resource};

/// The operator's name: `Batching_CUDA+PCIe_Neighbor`.
pub const KEY: Key = Key::new(Phase::Batching, Hardware::new(&[CUDA, Resource::PCIE]), "Neighbor");

/// What this crate registers.
pub const DESCRIPTION: Description = Description::new(
    KEY,
    "samples k hops of neighbours on a CUDA device, of a graph in its memory, in the host's or in both",
    At::Host,
    At::Device(BACKEND),
    Build::Batching(|context| Ok(Box::new(CudaNeighbor::new(context)?))),
)
.with_probe(probe)
.with_accelerators(accelerators)
.queueing()
.filling(FeatureFill::Never)
.with_options(&options::SPECS)
.interchangeable();

morphgl_registry::submit! { DESCRIPTION }
