//! What this crate needs of a CUDA driver, and nothing more: CUDA's own, or the emulation.

use std::ffi::c_void;
use std::fmt;
use std::time::Duration;

use crate::module::Module;

/// An address in a device's address space.
pub(crate) type Address = u64;
/// A driver's name for a stream, an event, a module's function, a graph.
pub(crate) type Id = u64;

/// A call of the driver that failed.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The driver's function.
    pub(crate) call: &'static str,
    /// What it said, and where there is one, the cure.
    pub(crate) what: String,
    /// Whether memory was full: freeing some may help.
    pub(crate) memory: bool,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, self.what)
    }
}

impl Failure {
    /// The same, saying what it was about.
    pub(crate) fn of(mut self, about: String) -> Self {
        self.what = format!("{about}: {}", self.what);
        self
    }
}

pub(crate) type Outcome<T> = Result<T, Failure>;

/// How one device's driver names another device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peer {
    /// The driver's number of it.
    pub(crate) device: i32,
    /// The context that its memory is of.
    pub(crate) context: Id,
}

/// What is said of a captured product on a stream that has no means for it.
pub(crate) const UNPREPARED: &str =
    "a product is captured on a stream that has done none: call Stream::prepare_products before the capture";

/// Launch configuration of a kernel: grid, block and dynamic shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Blocks along x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y and z: at most 1,024 in all.
    pub block: [u32; 3],
    /// Bytes of `DYNAMIC_SHARED` memory per block.
    pub shared: usize,
}

impl Shape {
    /// One-dimensional grid of one-dimensional blocks; at least one block.
    pub fn linear(blocks: usize, threads: u32) -> Self {
        let blocks = u32::try_from(blocks.max(1)).expect("a device takes 2^31 - 1 blocks");
        Self { grid: [blocks, 1, 1], block: [threads, 1, 1], shared: 0 }
    }

    /// One thread per element, in blocks of `threads` threads.
    pub fn covering(elements: usize, threads: u32) -> Self {
        Self::linear(elements.div_ceil(threads as usize), threads)
    }

    /// The same shape with `bytes` of dynamic shared memory per block.
    pub fn with_shared(mut self, bytes: usize) -> Self {
        self.shared = bytes;
        self
    }
}

/// A row-major matrix product `out = alpha * op(a) * op(b) + beta * out` in f32, `op(a)` being `m` x `k`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Product {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) a: Address,
    pub(crate) b: Address,
    pub(crate) out: Address,
    /// Elements from one row to the next of `a`, `b` and `out` as they are stored.
    pub(crate) strides: [usize; 3],
    pub(crate) transpose: [bool; 2],
    pub(crate) alpha: f32,
    pub(crate) beta: f32,
}

/// What matrix products compute with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Precision {
    /// f32 throughout, as on the CPU.
    #[default]
    F32,
    /// TF32 on tensor cores: factors are rounded to ten mantissa bits, sums are f32. By NVIDIA's data sheets eight times as fast
    /// on an A100.
    Tf32,
}

/// A device of a driver. Every function but those that say so returns before the work is done.
///
/// Sizes are positive. Memory, streams and events belong to the device.
pub(crate) trait Driver: fmt::Debug + Send + Sync {
    /// The concrete driver, for the controls that only the emulation has.
    #[cfg(feature = "emulate")]
    fn as_any(&self) -> &dyn std::any::Any;

    fn name(&self) -> String;
    fn multiprocessors(&self) -> u32;
    /// Bytes of device memory that are free, and in all.
    fn memory(&self) -> Outcome<[u64; 2]>;

    /// What other devices' drivers know it by.
    fn peer(&self) -> Peer;
    /// Whether work of this device can read the memory of another one where it lies.
    fn can_access(&self, peer: Peer) -> Outcome<bool>;
    /// Lets work of this device read the memory of another one, also what is taken later, for as long as both are open.
    /// Asking again changes nothing.
    fn enable_access(&self, peer: Peer) -> Outcome<()>;

    fn allocate(&self, bytes: usize) -> Outcome<Address>;
    /// May wait for the whole device. `address` was allocated, and nothing uses it any more.
    fn free(&self, address: Address);
    /// Says that of the block at `address`, which has `capacity` bytes, only the first `bytes` may be touched from now on.
    fn bound(&self, _address: Address, _bytes: usize, _capacity: usize) {}
    /// Page-locked host memory, the same address on host and device.
    fn allocate_pinned(&self, bytes: usize) -> Outcome<*mut u8>;
    fn free_pinned(&self, pointer: *mut u8);
    /// Page-locks whole pages of host memory as they lie; their address on the device. `read_only` says that the process
    /// itself cannot write to them.
    ///
    /// # Safety
    ///
    /// `pointer` is that of `bytes` bytes which stay until they are unregistered.
    unsafe fn register(&self, pointer: *const u8, bytes: usize, read_only: bool) -> Outcome<Address>;
    fn unregister(&self, pointer: *const u8);

    fn new_stream(&self, high_priority: bool) -> Outcome<Id>;
    fn free_stream(&self, stream: Id);
    fn synchronize(&self, stream: Id) -> Outcome<()>;

    fn new_event(&self, timed: bool) -> Outcome<Id>;
    fn free_event(&self, event: Id);
    fn record(&self, event: Id, stream: Id) -> Outcome<()>;
    /// The stream's later work begins after the event.
    fn wait(&self, stream: Id, event: Id) -> Outcome<()>;
    /// Whether the event has happened, without waiting.
    fn is_done(&self, event: Id) -> Outcome<bool>;
    /// Waits without spinning.
    fn wait_for(&self, event: Id) -> Outcome<()>;
    fn elapsed(&self, start: Id, end: Id) -> Outcome<Duration>;

    /// Copies between any two of host and device.
    ///
    /// # Safety
    ///
    /// Both ranges are valid until the copy is done; memory of the host is page-locked.
    unsafe fn copy(&self, stream: Id, from: Address, to: Address, bytes: usize) -> Outcome<()>;
    /// # Safety
    ///
    /// The range is valid until it is done.
    unsafe fn fill(&self, stream: Id, at: Address, byte: u8, bytes: usize) -> Outcome<()>;

    /// A kernel of a module, which is compiled and loaded once.
    fn function(&self, module: &'static Module, kernel: &'static str) -> Outcome<Id>;
    /// Blocks of `block` threads with `shared` bytes of shared memory that a multiprocessor runs at a time.
    fn occupancy(&self, function: Id, block: u32, shared: usize) -> Outcome<u32>;
    /// # Safety
    ///
    /// Arguments are those of the kernel, in number and type, and what they point at is valid until it is done.
    unsafe fn launch(&self, stream: Id, function: Id, shape: Shape, arguments: &mut [*mut c_void]) -> Outcome<()>;
    /// Makes the stream ready for products: in a capture it cannot become so.
    fn prepare_products(&self, stream: Id, precision: Precision) -> Outcome<()>;
    /// # Safety
    ///
    /// The matrices are valid until it is done.
    unsafe fn multiply(&self, stream: Id, product: &Product) -> Outcome<()>;

    /// From here on, work of the stream is written down and not done.
    fn begin_capture(&self, stream: Id) -> Outcome<()>;
    /// What was written down.
    fn end_capture(&self, stream: Id) -> Outcome<Id>;
    /// # Safety
    ///
    /// All that the graph's work needs is still valid.
    unsafe fn replay(&self, graph: Id, stream: Id) -> Outcome<()>;
    fn free_graph(&self, graph: Id);
}
