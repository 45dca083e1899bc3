#![doc = include_str!("../README.md")]

mod arguments;
mod batch;
mod capture;
pub mod compiler;
mod device;
mod driver;
#[cfg(feature = "emulate")]
mod emulated;
#[cfg(feature = "emulate")]
pub mod emulation;
mod event;
mod floats;
mod library;
mod mapped;
mod memory;
mod module;
mod pool;
mod probe;
#[cfg(not(feature = "emulate"))]
mod real;
mod registration;
mod spread;
mod stream;
#[cfg(all(test, feature = "emulate"))]
mod tests;

pub use arguments::{Argument, Shape};
pub use batch::{CudaBatch, CudaBlock, CudaFeatures, Used};
pub use capture::Graph;
pub use device::{Device, Properties, Statistics, statistics};
pub use driver::Precision;
pub use event::{Event, pending};
pub use floats::Floats;
pub use mapped::{Mapped, Mapping};
pub use memory::{Buffer, Pinned};
pub use module::{Kernel, Module};
pub use probe::{accelerators, probe};
pub use spread::Spread;
pub use stream::{Readable, Span, Stream, Transpose, Writable};

use morphgl_registry::Resource;

/// The resource of CUDA devices.
pub const CUDA: Resource = Resource::new("CUDA");
/// The backend in places, as in `cuda:0`.
pub const BACKEND: &str = "cuda";

#[doc(hidden)]
pub mod __private {
    pub use crate::module::Emulated;
}
