#![doc = include_str!("../README.md")]

mod arrays;
mod bounds;
mod buffer;
mod cache;
mod expand;
mod given;
mod graph;
mod kernels;
mod kind;
mod launch;
mod leave_out;
mod lists;
mod options;
mod order;
mod pairs;
mod presample;
mod sampler;
mod scratch;
mod shadow;
mod shared;
mod slope;
mod sub_rows;
mod typed;
mod walk;
mod without;
mod worker;

pub use cache::{SelectedRows, select_rows};
pub use options::TopologyPlacement;
pub use sampler::CudaSampler;

use morphgl_cuda::{BACKEND, CUDA, accelerators, probe};
use morphgl_registry::{At, Build, Description, FeatureFill, Hardware, Key, Phase, Resource, SamplingSpec};

/// Neighbour sampling, `Batching_CUDA+PCIe_Neighbor`.
pub const NEIGHBOR: Description = describe(
    "Neighbor",
    "samples k hops of neighbours on a CUDA device, of a graph in its memory, in the host's or in both",
    Build::Batching(|context| Ok(Box::new(CudaSampler::neighbor(context)?))),
)
.taking_pairs();

/// ShaDow sampling, `Batching_CUDA+PCIe_Shadow`.
pub const SHADOW: Description = describe(
    "Shadow",
    "samples ShaDow subgraphs on a CUDA device: all edges among the nodes of a few hops",
    Build::Batching(|context| Ok(Box::new(CudaSampler::shadow(context)?))),
)
.sampling(&[SamplingSpec::SHADOW])
.taking_pairs();

/// Random walks, `Batching_CUDA+PCIe_Walk`.
pub const WALK: Description = describe(
    "Walk",
    "samples neighbours by random walks on a CUDA device, with their visits as importance",
    Build::Batching(|context| Ok(Box::new(CudaSampler::walk(context)?))),
)
.sampling(&[SamplingSpec::WALK])
.with_options(options::SPECS_WITHOUT_ORDER)
.taking_pairs();

/// Sampling by edge type, `Batching_CUDA+PCIe_Typed`.
pub const TYPED: Description = describe(
    "Typed",
    "samples k hops of neighbours per edge type of a typed graph on a CUDA device, in trees and within times too",
    Build::Batching(|context| Ok(Box::new(CudaSampler::typed(context)?))),
)
.sampling(&[morphgl_sampler_core::TYPED])
.with_options(options::SPECS_WITHOUT_ORDER)
.taking_pairs();

const fn describe(name: &'static str, summary: &'static str, build: Build) -> Description {
    let key = Key::new(Phase::Batching, Hardware::new(&[CUDA, Resource::PCIE]), name);
    Description::new(key, summary, At::Host, At::Device(BACKEND), build)
        .with_probe(probe)
        .with_accelerators(accelerators)
        .queueing()
        .filling(FeatureFill::Never)
        .with_options(&options::SPECS)
        .interchangeable()
}

morphgl_registry::submit! { NEIGHBOR }
morphgl_registry::submit! { SHADOW }
morphgl_registry::submit! { WALK }
morphgl_registry::submit! { TYPED }
