#![doc = include_str!("../README.md")]

mod imports;
mod mutate;
mod readers;
mod sandbox;

use std::panic;
use std::time::Duration;

pub use mutate::{Random, mutated};
pub use readers::{READERS, Reader};
pub use sandbox::{Outcome, Sandbox};

/// Bytes that one input may take: the largest inputs, and the least budget of an import, which is 1 MiB.
pub const MEMORY: usize = 256 << 20;
/// Time that one input may take.
pub const LIMIT: Duration = Duration::from_secs(1);

/// Keeps panics of the decoder of WebGraph's graphs, which the import catches, off the screen and from ending the process.
pub fn pass_over_decoders() {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let decoder = |file: &str| ["webgraph", "dsi-bitstream"].iter().any(|name| file.contains(&format!("/{name}-")));
        if !info.location().is_some_and(|at| decoder(at.file())) {
            hook(info);
        }
    }));
}
