#![doc = include_str!("../README.md")]

mod induce;
mod sampler;

pub use sampler::CpuShadow;

use morphgl_registry::{At, Build, Description, Hardware, Key, Phase, SamplerKind};

/// What this crate registers.
pub const DESCRIPTION: Description = Description::new(
    Key::new(Phase::Batching, Hardware::CPU, "Shadow"),
    "samples ShaDow subgraphs on CPU threads: all edges among the nodes of a few hops",
    At::Host,
    At::Host,
    Build::Batching(|context| Ok(Box::new(CpuShadow::new(context)?))),
)
.sampling(&[SamplerKind::Shadow])
.interchangeable();

morphgl_registry::submit! { DESCRIPTION }
