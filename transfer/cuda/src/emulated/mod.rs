//! The emulated device: kernels run on the CPU, in the thread that launches them or, in late mode, that waits for them.

mod blocks;
mod queue;
mod settings;
mod work;

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use self::blocks::Blocks;
use self::queue::{QueueItem, Recording, StreamId, queues};
pub(crate) use self::settings::Settings;
use self::work::Work;
use crate::driver::{Address, Driver, Failure, Gemm, Id, MemoryKind, Outcome, Peer, Precision, Priority, Shape};
use crate::lock::lock;
use crate::module::{EmulatedKernel, Module};

const PAGE: usize = 4096;

unsafe extern "C" {
    fn morphgl_emulation_bound(address: *mut c_void, bytes: usize, capacity: usize);
}

/// A device whose memory is host memory.
#[derive(Debug)]
pub(crate) struct EmulatedDevice {
    index: u32,
    settings: Settings,
    state: Mutex<State>,
    /// Its number among all that the process has opened.
    number: u64,
    /// Number of calls so far, and number of the first call that fails.
    pub(crate) calls: AtomicU64,
    pub(crate) failing: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    blocks: Blocks,
    registered: BTreeMap<usize, usize>,
    /// Latest recording of each event.
    events: HashMap<Id, Option<Arc<Recording>>>,
    functions: Vec<(&'static str, EmulatedKernel)>,
    next: Id,
}

impl EmulatedDevice {
    /// Device number `index` of a machine with these settings.
    pub(crate) fn new(index: u32, settings: Settings) -> Self {
        static OPENED: AtomicU64 = AtomicU64::new(0);
        let (failing, number) = (AtomicU64::new(u64::MAX), OPENED.fetch_add(1, Ordering::Relaxed));
        // Lower numbers are those of streams of other libraries, the default streams among them.
        let state = Mutex::new(State { next: 16, ..State::default() });
        Self { index, settings, state, number, calls: AtomicU64::new(0), failing }
    }

    /// Bytes of host memory that are registered.
    #[cfg(test)]
    pub(crate) fn registered(&self) -> usize {
        self.state().registered.iter().map(|(start, end)| end - start).sum()
    }

    /// Bytes of allocated host memory.
    #[cfg(test)]
    pub(crate) fn pinned(&self) -> u64 {
        self.state().blocks.used(MemoryKind::Pinned)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Counts a call and injects its failure.
    fn enter(&self, call: &'static str) -> Outcome<()> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        if number >= self.failing.load(Ordering::Relaxed) {
            return Err(Failure::new(call, format!("call {number} is made to fail")));
        }
        // Without queues work fails at once.
        if self.settings.late { queues().check(self.number) } else { Ok(()) }
    }

    fn stream(&self, stream: Id) -> StreamId {
        StreamId { device: self.number, stream }
    }

    fn take(&self, call: &'static str, bytes: usize, kind: MemoryKind) -> Outcome<Address> {
        self.enter(call)?;
        self.state().blocks.allocate(call, bytes, kind, self.settings.memory)
    }

    fn id(&self) -> Id {
        let mut state = self.state();
        state.next += 1;
        state.next
    }

    /// Runs or queues work.
    ///
    /// # Safety
    ///
    /// As for the driver's functions.
    unsafe fn submit(&self, stream: Id, work: Work) -> Outcome<()> {
        if self.settings.late {
            return queues().push(self.stream(stream), QueueItem::Work(work));
        }
        // SAFETY: the caller's promise.
        unsafe { work.run() }
    }

    fn recording(&self, event: Id) -> Option<Arc<Recording>> {
        self.state().events.get(&event).expect("an event is used until it is freed").clone()
    }
}

impl Drop for EmulatedDevice {
    fn drop(&mut self) {
        queues().remove(self.number);
    }
}

impl Driver for EmulatedDevice {
    fn name(&self) -> String {
        "emulated on the CPU".to_string()
    }

    fn multiprocessors(&self) -> u32 {
        4
    }

    fn memory(&self) -> Outcome<[u64; 2]> {
        self.enter("cuMemGetInfo_v2")?;
        let total = self.settings.memory;
        Ok([total - self.state().blocks.used(MemoryKind::Device), total])
    }

    fn peer(&self) -> Peer {
        Peer { device: self.index as i32, context: Id::from(self.index) }
    }

    fn can_access(&self, peer: Peer) -> Outcome<bool> {
        self.enter("cuDeviceCanAccessPeer")?;
        Ok(self.settings.reaches(self.index, peer.device as u32))
    }

    fn enable_access(&self, peer: Peer) -> Outcome<()> {
        const CALL: &str = "cuCtxEnablePeerAccess";
        self.enter(CALL)?;
        match self.settings.reaches(self.index, peer.device as u32) {
            true => Ok(()),
            false => Err(Failure::new(CALL, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED")),
        }
    }

    fn allocate(&self, bytes: usize) -> Outcome<Address> {
        let address = self.take("cuMemAlloc_v2", bytes, MemoryKind::Device)?;
        // Garbage, because zeros would hide reads of unwritten memory.
        // SAFETY: the block was just allocated.
        unsafe { std::ptr::write_bytes(address as *mut u8, 0xa5, bytes) };
        Ok(address)
    }

    fn free(&self, address: Address) {
        self.state().blocks.free(address);
    }

    fn bound(&self, address: Address, bytes: usize, capacity: usize) {
        // Queued work may still use returned memory, or a buffer's former length.
        let bytes = if self.settings.late { capacity } else { bytes };
        // SAFETY: the block has `capacity` bytes; they are only marked.
        unsafe { morphgl_emulation_bound(address as *mut c_void, bytes, capacity) };
    }

    fn allocate_pinned(&self, bytes: usize) -> Outcome<Address> {
        self.take("cuMemHostAlloc", bytes, MemoryKind::Pinned)
    }

    fn free_pinned(&self, address: Address) {
        self.free(address);
    }

    fn allocate_on_node(&self, bytes: usize) -> Outcome<(Address, usize)> {
        Ok((self.take("cuMemCreate", bytes, MemoryKind::Pinned)?, bytes))
    }

    fn free_on_node(&self, address: Address, _: usize) {
        self.free(address);
    }

    unsafe fn register(&self, pointer: *const u8, bytes: usize, _: bool) -> Outcome<Address> {
        const CALL: &str = "cuMemHostRegister_v2";
        self.enter(CALL)?;
        let (start, end) = (pointer as usize, pointer as usize + bytes);
        assert!(start.is_multiple_of(PAGE) && bytes.is_multiple_of(PAGE) && bytes > 0, "whole pages are registered");
        let mut state = self.state();
        let overlaps = state.registered.range(..end).next_back().is_some_and(|(_, end)| *end > start);
        assert!(!overlaps, "a page is registered twice");
        let locked: usize = state.registered.iter().map(|(start, end)| end - start).sum();
        if (locked + bytes) as u64 > self.settings.locked {
            return Err(Failure::new(CALL, format!("{bytes} bytes requested, {locked} locked")));
        }
        state.registered.insert(start, end);
        Ok(pointer as Address)
    }

    fn unregister(&self, pointer: *const u8) {
        self.state().registered.remove(&(pointer as usize)).expect("pages are registered before they are unregistered");
    }

    fn new_stream(&self, _: Priority) -> Outcome<Id> {
        self.enter("cuStreamCreateWithPriority")?;
        Ok(self.id())
    }

    fn free_stream(&self, _: Id) {}

    fn synchronize(&self, stream: Id) -> Outcome<()> {
        self.enter("cuStreamSynchronize")?;
        // SAFETY: the submitters' promise.
        unsafe { queues().drain(self.stream(stream)) }
    }

    fn new_event(&self, _: bool) -> Outcome<Id> {
        self.enter("cuEventCreate")?;
        let id = self.id();
        self.state().events.insert(id, None);
        Ok(id)
    }

    fn free_event(&self, event: Id) {
        self.state().events.remove(&event).expect("an event is freed once");
    }

    fn record(&self, event: Id, stream: Id) -> Outcome<()> {
        self.enter("cuEventRecord")?;
        let recording = Recording::new(self.stream(stream), !self.settings.late);
        if self.settings.late {
            queues().push(self.stream(stream), QueueItem::Record(Arc::clone(&recording)))?;
        }
        self.state().events.insert(event, Some(recording)).expect("an event is used until it is freed");
        Ok(())
    }

    fn wait(&self, stream: Id, event: Id) -> Outcome<()> {
        self.enter("cuStreamWaitEvent")?;
        match self.recording(event) {
            Some(recording) if self.settings.late => queues().push(self.stream(stream), QueueItem::Wait(recording)),
            _ => Ok(()),
        }
    }

    fn wait_across(&self, stream: Id, other: &dyn Driver, event: Id) -> Outcome<()> {
        self.enter("cuStreamWaitEvent")?;
        let other: &dyn Any = other;
        let other: &Self = other.downcast_ref().expect("with the feature `emulate` every device is emulated");
        match other.recording(event) {
            Some(recording) if self.settings.late => queues().push(self.stream(stream), QueueItem::Wait(recording)),
            _ => Ok(()),
        }
    }

    fn is_done(&self, event: Id) -> Outcome<bool> {
        self.enter("cuEventQuery")?;
        let Some(recording) = self.recording(event) else { return Ok(true) };
        if recording.happened().is_none() && recording.poll() {
            // SAFETY: the submitters' promise.
            unsafe { queues().reach(&recording) }?;
        }
        Ok(recording.happened().is_some())
    }

    fn wait_for(&self, event: Id) -> Outcome<()> {
        self.enter("cuEventSynchronize")?;
        let Some(recording) = self.recording(event) else { return Ok(()) };
        // SAFETY: the submitters' promise.
        unsafe { queues().reach(&recording) }
    }

    fn elapsed(&self, start: Id, end: Id) -> Outcome<Duration> {
        self.enter("cuEventElapsedTime")?;
        let moment = |event| self.recording(event).and_then(|recording| recording.happened());
        let (start, end) =
            moment(start).zip(moment(end)).ok_or_else(|| Failure::new("cuEventElapsedTime", "not ready"))?;
        Ok(end.saturating_duration_since(start))
    }

    unsafe fn copy(&self, stream: Id, from: Address, to: Address, bytes: usize) -> Outcome<()> {
        self.enter("cuMemcpyAsync")?;
        // SAFETY: the caller's promise.
        unsafe { self.submit(stream, Work::Copy { from, to, bytes }) }
    }

    unsafe fn fill(&self, stream: Id, at: Address, byte: u8, bytes: usize) -> Outcome<()> {
        self.enter("cuMemsetD8Async")?;
        // SAFETY: the caller's promise.
        unsafe { self.submit(stream, Work::Fill { at, byte, bytes }) }
    }

    fn function(&self, module: &'static Module, kernel: &'static str) -> Outcome<Id> {
        self.enter("cuModuleGetFunction")?;
        let at = module.kernels.iter().position(|k| *k == kernel);
        let compiled = *at.and_then(|at| module.emulated.get(at)).ok_or_else(|| {
            Failure::new("cuModuleGetFunction", format!("{kernel} of {} was not compiled for the CPU", module.name))
        })?;
        let mut state = self.state();
        state.functions.push((kernel, compiled));
        Ok(state.functions.len() as Id - 1)
    }

    fn occupancy(&self, _: Id, block: u32, _: usize) -> Outcome<u32> {
        self.enter("cuOccupancyMaxActiveBlocksPerMultiprocessor")?;
        Ok(2048 / block.max(1))
    }

    unsafe fn launch(&self, stream: Id, function: Id, shape: Shape, arguments: &mut [*mut c_void]) -> Outcome<()> {
        self.enter("cuLaunchKernel")?;
        let (name, kernel) = self.state().functions[function as usize];
        // SAFETY: an argument is eight bytes long.
        let arguments = arguments.iter().map(|a| unsafe { a.cast::<u64>().read_unaligned() }).collect();
        // SAFETY: the caller's promise.
        unsafe { self.submit(stream, Work::Launch { name, kernel, shape, arguments }) }
    }

    fn prepare_products(&self, _: Id, _: Precision) -> Outcome<()> {
        self.enter("cublasCreate_v2")
    }

    unsafe fn multiply(&self, stream: Id, gemm: &Gemm) -> Outcome<()> {
        self.enter("cublasSgemm_v2")?;
        // SAFETY: the caller's promise.
        unsafe { self.submit(stream, Work::Gemm(*gemm)) }
    }

    fn library_stream(&self, stream: Id) -> Outcome<*mut c_void> {
        self.enter("cuCtxSetCurrent")?;
        // SAFETY: the submitters' promise.
        unsafe { queues().drain(self.stream(stream)) }?;
        Ok(stream as usize as *mut c_void)
    }
}
