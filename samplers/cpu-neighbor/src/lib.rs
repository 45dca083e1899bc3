#![doc = include_str!("../README.md")]

mod sampler;

pub use sampler::CpuNeighbor;

// Graph and contract, so that this crate alone samples.
pub use {morphgl_graph_store as graph_store, morphgl_registry as registry};

use morphgl_registry::{At, Build, Description, Hardware, Key, Phase};

/// What this crate registers.
pub const DESCRIPTION: Description = Description::new(
    Key::new(Phase::Batching, Hardware::CPU, "Neighbor"),
    "samples k hops of neighbours on CPU threads, and gathers their features",
    At::Host,
    At::Host,
    Build::Batching(|context| Ok(Box::new(CpuNeighbor::new(context)?))),
)
.interchangeable();

morphgl_registry::submit! { DESCRIPTION }
