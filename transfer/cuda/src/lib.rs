#![doc = include_str!("../README.md")]

mod arguments;
mod batch;
mod communicator;
pub mod compiler;
mod copied;
mod copy;
mod device;
mod driver;
#[cfg(feature = "emulate")]
mod emulated;
#[cfg(feature = "emulate")]
pub mod emulation;
mod event;
mod export;
mod foreign;
mod gemm;
mod kernel;
mod library;
mod link;
mod lock;
mod mapped;
mod memory;
mod module;
mod nccl;
mod order;
mod peers;
mod pinning;
mod pool;
mod probe;
#[cfg(not(feature = "emulate"))]
mod real;
mod sharded;
mod staging;
mod stream;
#[cfg(all(test, feature = "emulate"))]
#[path = "../tests/common/mod.rs"]
mod test_kernels;
#[cfg(all(test, feature = "emulate"))]
mod tests;
mod upload;

pub use arguments::Argument;
pub use batch::{
    CudaBatch, CudaBlock, CudaFeatures, CudaGivenRows, CudaPairs, CudaRows, CudaTargets, LastUse, RowTable,
};
pub use communicator::{Calls, Communicator};
pub use copy::{Readable, Span, Writable};
pub use device::{Device, Properties, Statistics, statistics};
pub use driver::{Precision, Shape};
pub use event::{Event, pending, pending_counting};
pub use export::{EdgeList, Exported, ExportedArray, ExportedBlock, Exporter};
pub use foreign::ForeignStream;
pub use gemm::{Floats, Transpose};
pub use kernel::Kernel;
pub use link::DeviceLink;
pub use mapped::{HostMemory, Mapped};
pub use memory::{Buffer, Pinned};
#[doc(hidden)]
pub use module::EmulatedKernel;
pub use module::Module;
pub use order::{Order, PageOrder};
pub use peers::peers;
pub use probe::{accelerators, probe};
pub use sharded::ShardedBuffer;
pub use staging::Staging;
pub use stream::Stream;
pub use upload::Upload;

use morphgl_registry::Resource;

#[cfg(all(test, feature = "emulate"))]
extern crate self as morphgl_cuda;

/// The resource of CUDA devices.
pub const CUDA: Resource = Resource::new("CUDA");
/// Backend name in places such as `cuda:0`.
pub const BACKEND: &str = "cuda";

/// The sanitizer that the loaded libraries of emulated kernels are instrumented for, `address` or `thread`; `None` for plain ones
/// and on devices.
pub fn sanitizer() -> Option<&'static str> {
    #[cfg(feature = "emulate")]
    return emulation::sanitizer();
    #[cfg(not(feature = "emulate"))]
    None
}
