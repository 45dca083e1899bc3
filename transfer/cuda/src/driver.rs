//! The driver interface of this crate, implemented by CUDA and by the emulation.

use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::time::Duration;

use crate::module::Module;

/// An address in a device's address space.
pub(crate) type Address = u64;
/// Driver handle of a stream, event, kernel function or graph.
pub(crate) type Id = u64;

/// A failed driver call.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) call: &'static str,
    /// Its message and, if known, the cure.
    pub(crate) message: String,
    /// Whether memory was exhausted: freeing some may help.
    pub(crate) out_of_memory: bool,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, self.message)
    }
}

impl Failure {
    /// A failure other than exhausted memory.
    pub(crate) fn new(call: &'static str, message: impl Into<String>) -> Self {
        Self { call, message: message.into(), out_of_memory: false }
    }

    /// Prefixes the message with its subject.
    pub(crate) fn about(mut self, subject: impl fmt::Display) -> Self {
        self.message = format!("{subject}: {}", self.message);
        self
    }
}

pub(crate) type Outcome<T> = Result<T, Failure>;

/// Identity of a device towards other devices' drivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) device: i32,
    /// Context that owns its memory.
    pub(crate) context: Id,
}

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

/// A row-major GEMM `out = alpha * op(a) * op(b) + beta * out` in f32, `op(a)` being `m` x `k`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gemm {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) a: Address,
    pub(crate) b: Address,
    pub(crate) out: Address,
    /// Leading dimensions of `a`, `b` and `out` as stored.
    pub(crate) strides: [usize; 3],
    pub(crate) transpose: [bool; 2],
    pub(crate) alpha: f32,
    pub(crate) beta: f32,
}

/// Priority of a stream: blocks of a higher one get multiprocessors first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Priority {
    Low,
    Normal,
    High,
}

/// Kind of memory of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryKind {
    Device,
    Pinned,
}

/// Arithmetic of GEMM.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Precision {
    /// f32 throughout, as on the CPU.
    #[default]
    F32,
    /// TF32 on tensor cores: factors are rounded to ten mantissa bits, sums are f32.
    Tf32,
}

/// A device of a driver. Functions return before their work is done unless stated otherwise.
///
/// Sizes are positive. Memory, streams and events belong to the device.
pub(crate) trait Driver: Any + fmt::Debug + Send + Sync {
    fn name(&self) -> String;
    fn multiprocessors(&self) -> u32;
    /// Free and total bytes of device memory.
    fn memory(&self) -> Outcome<[u64; 2]>;

    /// The calling thread's current context, which every other call may replace by the device's.
    fn current_context(&self) -> Id {
        0
    }
    fn set_current_context(&self, _context: Id) {}

    fn peer(&self) -> Peer;
    /// Whether this device can have peer access to another one.
    fn can_access(&self, peer: Peer) -> Outcome<bool>;
    /// Enables peer access to another device, for later allocations too, while both are open. Idempotent.
    fn enable_access(&self, peer: Peer) -> Outcome<()>;

    fn allocate(&self, bytes: usize) -> Outcome<Address>;
    /// May synchronize the whole device. `address` was allocated and is unused.
    fn free(&self, address: Address);
    /// Declares only the first `bytes` of the block of `capacity` bytes at `address` accessible (for sanitizers).
    fn bound(&self, _address: Address, _bytes: usize, _capacity: usize) {}
    /// Allocates cleared page-locked host memory, mapped at the same address on the device.
    fn allocate_pinned(&self, bytes: usize) -> Outcome<Address>;
    fn free_pinned(&self, address: Address);
    /// Allocates cleared host memory on the NUMA node nearest the device, mapped at the same address on the device; returns its
    /// address and its bytes, rounded up to whole pages of the device.
    fn allocate_on_node(&self, bytes: usize) -> Outcome<(Address, usize)>;
    /// Both are those that [`Driver::allocate_on_node`] returned.
    fn free_on_node(&self, address: Address, bytes: usize);
    /// Page-locks whole pages of existing host memory; returns their device address. `read_only`: the process itself cannot
    /// write to them.
    ///
    /// # Safety
    ///
    /// The `bytes` bytes at `pointer` stay mapped until they are unregistered.
    unsafe fn register(&self, pointer: *const u8, bytes: usize, read_only: bool) -> Outcome<Address>;
    fn unregister(&self, pointer: *const u8);

    fn new_stream(&self, priority: Priority) -> Outcome<Id>;
    fn free_stream(&self, stream: Id);
    fn synchronize(&self, stream: Id) -> Outcome<()>;

    fn new_event(&self, timed: bool) -> Outcome<Id>;
    fn free_event(&self, event: Id);
    fn record(&self, event: Id, stream: Id) -> Outcome<()>;
    /// Orders the stream's later work after the event.
    fn wait(&self, stream: Id, event: Id) -> Outcome<()>;
    /// [`Driver::wait`] for an event of another device; both drivers are of one kind.
    fn wait_across(&self, stream: Id, other: &dyn Driver, event: Id) -> Outcome<()>;
    /// Whether the event has happened, without waiting.
    fn is_done(&self, event: Id) -> Outcome<bool>;
    /// Blocks without spinning.
    fn wait_for(&self, event: Id) -> Outcome<()>;
    fn elapsed(&self, start: Id, end: Id) -> Outcome<Duration>;

    /// Copies between any two of the host, this device and one that it has access to.
    ///
    /// # Safety
    ///
    /// Both ranges are valid until the copy is done; memory of the host is page-locked.
    unsafe fn copy(&self, stream: Id, from: Address, to: Address, bytes: usize) -> Outcome<()>;
    /// # Safety
    ///
    /// The range is valid until the fill is done.
    unsafe fn fill(&self, stream: Id, at: Address, byte: u8, bytes: usize) -> Outcome<()>;

    /// Loads a kernel; its module is compiled and loaded once.
    fn function(&self, module: &'static Module, kernel: &'static str) -> Outcome<Id>;
    /// Occupancy: resident blocks per multiprocessor.
    fn occupancy(&self, function: Id, block: u32, shared: usize) -> Outcome<u32>;
    /// # Safety
    ///
    /// Arguments match the kernel in number and type, and their memory is valid until the kernel is done.
    unsafe fn launch(&self, stream: Id, function: Id, shape: Shape, arguments: &mut [*mut c_void]) -> Outcome<()>;
    /// Creates the stream's cuBLAS handle.
    fn prepare_products(&self, stream: Id, precision: Precision) -> Outcome<()>;
    /// # Safety
    ///
    /// The matrices are valid until the GEMM is done.
    unsafe fn multiply(&self, stream: Id, gemm: &Gemm) -> Outcome<()>;

    /// Handle of a stream for a library that queues work on it: the next call of the calling thread. On the emulated device such
    /// a library works at once, after all work of the stream.
    fn library_stream(&self, stream: Id) -> Outcome<*mut c_void>;
}
