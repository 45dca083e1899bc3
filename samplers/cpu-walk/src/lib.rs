#![doc = include_str!("../README.md")]

mod sampler;
mod visits;
mod walks;

pub use sampler::CpuWalk;

use morphgl_registry::{At, Build, Description, Hardware, Key, Phase, SamplerKind};

/// What this crate registers.
pub const DESCRIPTION: Description = Description::new(
    Key::new(Phase::Batching, Hardware::CPU, "Walk"),
    "samples neighbours by random walks on CPU threads, with their visits as importance",
    At::Host,
    At::Host,
    Build::Batching(|context| Ok(Box::new(CpuWalk::new(context)?))),
)
.sampling(&[SamplerKind::Walk])
.interchangeable();

morphgl_registry::submit! { DESCRIPTION }
