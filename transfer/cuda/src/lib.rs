#![doc = include_str!("../README.md")]

mod arguments;
mod batch;
mod device;
mod driver;
#[cfg(feature = "emulate")]
mod emulated;
mod floats;
mod memory;
mod module;
mod pool;
mod probe;
mod stream;

pub use arguments::{Argument, Shape};
pub use batch::{CudaBatch, CudaBlock, CudaFeatures};
pub use device::{Device, Properties};
pub use floats::Floats;
pub use memory::{Buffer, Mapped, Pinned};
pub use module::{Kernel, Module};
pub use probe::{accelerators, probe};
pub use stream::{Event, Graph, Readable, Span, Stream, Transpose, Writable, pending};

use morphgl_registry::Resource;

/// The resource of CUDA devices.
pub const CUDA: Resource = Resource::new("CUDA");
/// The backend in places, as in `cuda:0`.
pub const BACKEND: &str = "cuda";

#[doc(hidden)]
pub mod __private {
    pub use crate::module::Emulated;
}
