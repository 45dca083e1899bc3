#![doc = include_str!("../README.md")]

mod host;

pub use host::CpuHost;

use morphgl_registry::{At, Build, Description, Hardware, Key, Phase};

/// What this crate registers.
pub const DESCRIPTION: Description = Description::new(
    Key::new(Phase::Transferring, Hardware::CPU, "Host"),
    "moves nothing, and gathers the features a mini-batch lacks",
    At::Host,
    At::Host,
    Build::Transferring(|context| Ok(Box::new(CpuHost::new(context)?))),
)
.taking_pairs()
.taking_given_rows();

morphgl_registry::submit! { DESCRIPTION }
