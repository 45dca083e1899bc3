#![doc = include_str!("../README.md")]

mod induced;
mod neighbor;
mod shadow;
mod typed;
mod walk;

pub use induced::InducedEdges;
pub use neighbor::CpuNeighbor;
pub use shadow::CpuShadow;
pub use typed::CpuTyped;
pub use walk::CpuWalk;

// Graph and contract, so that this crate alone samples.
pub use {morphgl_graph_store as graph_store, morphgl_registry as registry};

use morphgl_registry::{At, Build, Description, Hardware, Key, Phase, SamplingSpec};

/// Neighbour sampling.
pub const NEIGHBOR: Description = Description::new(
    Key::new(Phase::Batching, Hardware::CPU, "Neighbor"),
    "samples k hops of neighbours on CPU threads, and gathers their features",
    At::Host,
    At::Host,
    Build::Batching(|context| Ok(Box::new(CpuNeighbor::new(context)?))),
)
.taking_pairs()
.interchangeable();

/// ShaDow sampling.
pub const SHADOW: Description = Description::new(
    Key::new(Phase::Batching, Hardware::CPU, "Shadow"),
    "samples ShaDow subgraphs on CPU threads: all edges among the nodes of a few hops",
    At::Host,
    At::Host,
    Build::Batching(|context| Ok(Box::new(CpuShadow::new(context)?))),
)
.sampling(&[SamplingSpec::SHADOW])
.taking_pairs()
.interchangeable();

/// Random walks.
pub const WALK: Description = Description::new(
    Key::new(Phase::Batching, Hardware::CPU, "Walk"),
    "samples neighbours by random walks on CPU threads, with their visits as importance",
    At::Host,
    At::Host,
    Build::Batching(|context| Ok(Box::new(CpuWalk::new(context)?))),
)
.sampling(&[SamplingSpec::WALK])
.taking_pairs()
.interchangeable();

/// Neighbour sampling by edge type.
pub const TYPED: Description = Description::new(
    Key::new(Phase::Batching, Hardware::CPU, "Typed"),
    "samples k hops of neighbours per edge type of a typed graph on CPU threads",
    At::Host,
    At::Host,
    Build::Batching(|context| Ok(Box::new(CpuTyped::new(context)?))),
)
.sampling(&[morphgl_sampler_core::TYPED])
.taking_pairs()
.taking_rows()
.interchangeable();

morphgl_registry::submit! { NEIGHBOR }
morphgl_registry::submit! { SHADOW }
morphgl_registry::submit! { WALK }
morphgl_registry::submit! { TYPED }
