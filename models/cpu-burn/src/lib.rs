#![doc = include_str!("../README.md")]

mod infer;
mod optimizer;
mod trainer;

use morphgl_registry::{At, Build, Description, Hardware, Key, Phase, Training, submit};

pub use trainer::CpuBurn;

/// The operator's name.
pub const KEY: Key = Key::new(Phase::Training, Hardware::CPU, "Burn");

/// What this crate registers.
pub const DESCRIPTION: Description = Description::new(
    KEY,
    "trains GCN, GraphSAGE, GAT, GIN and MLP on CPU threads with burn's flex backend",
    At::Host,
    At::Host,
    Build::Training(|context| Ok(Box::new(CpuBurn::new(context)?) as Box<dyn Training>)),
)
.as_reference()
.taking_given_rows()
.taking_pairs();

submit! { DESCRIPTION }
