#![doc = include_str!("../README.md")]

mod cache;
mod options;
mod ranking;
mod rows;
mod zero_copy;

pub use zero_copy::ZeroCopy;

use morphgl_cuda::{BACKEND, CUDA, accelerators, probe};
use morphgl_registry::{At, Build, Description, Hardware, Key, Phase, Resource};

/// The operator's name, `Transferring_CUDA+PCIe_ZeroCopy`.
pub const KEY: Key = Key::new(Phase::Transferring, Hardware::new(&[CUDA, Resource::PCIE]), "ZeroCopy");

/// What this crate registers.
pub const DESCRIPTION: Description = Description::new(
    KEY,
    "gathers features by a CUDA device, hot rows from its memory or its peers', the others directly from the host's",
    At::Device(BACKEND),
    At::Device(BACKEND),
    Build::Transferring(|context| Ok(Box::new(ZeroCopy::new(context)?))),
)
.with_probe(probe)
.with_accelerators(accelerators)
.with_options(&options::SPECS);

morphgl_registry::submit! { DESCRIPTION }

morphgl_cuda::module! {
    /// Gathers rows, and counts accesses.
    static KERNELS = "kernels/gather.cu" {
        gather_rows_1, gather_rows_2, gather_rows_4, gather_rows_8, gather_rows_16,
        gather_short_rows_8, gather_short_rows_16, gather_count
    }
}
