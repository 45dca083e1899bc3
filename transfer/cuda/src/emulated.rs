//! The emulated device: kernels run on the CPU at once, in the thread that launches them.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::Module;
use crate::arguments::Shape;
use crate::driver::{Address, Driver, Failure, Id, Outcome, Product};
use crate::module::Emulated as Kernel;

unsafe extern "C" {
    fn morphgl_emulation_launch(
        kernel: Kernel,
        arguments: *mut *mut c_void,
        grid: *const u32,
        block: *const u32,
        shared_bytes: usize,
    ) -> c_int;
}

/// Bytes of an emulated device's memory.
const MEMORY: u64 = 2 << 30;
const ALIGNMENT: usize = 256;

/// A device whose memory is the host's.
#[derive(Debug, Default)]
pub(crate) struct Emulated(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    blocks: HashMap<Address, usize>,
    used: u64,
    registered: HashMap<usize, usize>,
    events: HashMap<Id, Option<Instant>>,
    functions: Vec<(&'static str, Kernel)>,
    captures: HashMap<Id, Vec<Work>>,
    graphs: HashMap<Id, Vec<Work>>,
    next: Id,
}

/// Work of a stream.
#[derive(Debug, Clone)]
enum Work {
    Copy { from: Address, to: Address, bytes: usize },
    Fill { at: Address, byte: u8, bytes: usize },
    Launch { name: &'static str, kernel: Kernel, shape: Shape, arguments: Vec<u64> },
    Multiply(Product),
}

fn failure(call: &'static str, what: impl Into<String>) -> Failure {
    Failure { call, what: what.into(), memory: false }
}

impl Emulated {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, call: &'static str, bytes: usize) -> Outcome<Address> {
        let mut state = self.state();
        if state.used + bytes as u64 > MEMORY {
            let what = format!("{bytes} bytes asked for, {} of {MEMORY} in use", state.used);
            return Err(Failure { call, what, memory: true });
        }
        let layout = Layout::from_size_align(bytes, ALIGNMENT).map_err(|e| failure(call, e.to_string()))?;
        // SAFETY: sizes are positive.
        let pointer = unsafe { alloc_zeroed(layout) };
        if pointer.is_null() {
            return Err(Failure { call, what: "the host's memory is full".to_string(), memory: true });
        }
        state.used += bytes as u64;
        state.blocks.insert(pointer as Address, bytes);
        Ok(pointer as Address)
    }

    fn give(&self, address: Address) {
        let mut state = self.state();
        let bytes = state.blocks.remove(&address).expect("memory is freed once, by whom it was given to");
        state.used -= bytes as u64;
        let layout = Layout::from_size_align(bytes, ALIGNMENT).expect("it was one before");
        // SAFETY: it was allocated with this layout, and nobody uses it any more.
        unsafe { dealloc(address as *mut u8, layout) };
    }

    fn id(&self) -> Id {
        let mut state = self.state();
        state.next += 1;
        state.next
    }

    /// Does the work, or writes it down.
    ///
    /// # Safety
    ///
    /// As the driver's functions.
    unsafe fn submit(&self, stream: Id, work: Work) -> Outcome<()> {
        if let Some(capture) = self.state().captures.get_mut(&stream) {
            capture.push(work);
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe { run(&work) }
    }
}

/// # Safety
///
/// As the driver's functions.
unsafe fn run(work: &Work) -> Outcome<()> {
    match work {
        // SAFETY: the ranges are valid.
        Work::Copy { from, to, bytes } => unsafe { std::ptr::copy(*from as *const u8, *to as *mut u8, *bytes) },
        // SAFETY: the range is valid.
        Work::Fill { at, byte, bytes } => unsafe { std::ptr::write_bytes(*at as *mut u8, *byte, *bytes) },
        Work::Launch { name, kernel, shape, arguments } => {
            let mut values = arguments.clone();
            let mut pointers: Vec<*mut c_void> = values.iter_mut().map(|v| std::ptr::from_mut(v).cast()).collect();
            let (grid, block) = (shape.grid.as_ptr(), shape.block.as_ptr());
            // SAFETY: arguments are those of the kernel; shapes are checked on the other side.
            let status = unsafe { morphgl_emulation_launch(*kernel, pointers.as_mut_ptr(), grid, block, shape.shared) };
            match status {
                0 => {}
                1 => return Err(failure("cuLaunchKernel", format!("threads of {name} wait for ever at a barrier"))),
                _ => return Err(failure("cuLaunchKernel", format!("{shape:?} is not a launch of a device"))),
            }
        }
        // SAFETY: the matrices are valid.
        Work::Multiply(product) => unsafe { multiply(product) },
    }
    Ok(())
}

/// # Safety
///
/// The matrices are valid, and nobody else uses them.
unsafe fn multiply(p: &Product) {
    let at =
        |i: usize, j: usize, stride: usize, transposed: bool| if transposed { j * stride + i } else { i * stride + j };
    let (a, b, out) = (p.a as *const f32, p.b as *const f32, p.out as *mut f32);
    for i in 0..p.m {
        for j in 0..p.n {
            let mut sum = 0.0f32;
            for d in 0..p.k {
                // SAFETY: inside of the matrices.
                let (x, y) = unsafe {
                    (*a.add(at(i, d, p.strides[0], p.transpose[0])), *b.add(at(d, j, p.strides[1], p.transpose[1])))
                };
                sum = x.mul_add(y, sum);
            }
            // SAFETY: inside of the output.
            unsafe {
                let out = out.add(i * p.strides[2] + j);
                *out = p.alpha * sum + if p.beta == 0.0 { 0.0 } else { p.beta * *out };
            }
        }
    }
}

impl Driver for Emulated {
    fn name(&self) -> String {
        "emulated on the CPU".to_string()
    }

    fn multiprocessors(&self) -> u32 {
        4
    }

    fn memory(&self) -> Outcome<[u64; 2]> {
        Ok([MEMORY - self.state().used, MEMORY])
    }

    fn allocate(&self, bytes: usize) -> Outcome<Address> {
        let address = self.take("cuMemAlloc_v2", bytes)?;
        // What was not written is not to be read: zeros would hide that.
        // SAFETY: it was just allocated.
        unsafe { std::ptr::write_bytes(address as *mut u8, 0xa5, bytes) };
        Ok(address)
    }

    fn free(&self, address: Address) {
        self.give(address);
    }

    fn allocate_pinned(&self, bytes: usize) -> Outcome<*mut u8> {
        Ok(self.take("cuMemHostAlloc", bytes)? as *mut u8)
    }

    fn free_pinned(&self, pointer: *mut u8) {
        self.give(pointer as Address);
    }

    unsafe fn register(&self, pointer: *const u8, bytes: usize) -> Outcome<Address> {
        self.state().registered.insert(pointer as usize, bytes);
        Ok(pointer as Address)
    }

    fn unregister(&self, pointer: *const u8) {
        self.state().registered.remove(&(pointer as usize));
    }

    fn new_stream(&self, _: bool) -> Outcome<Id> {
        Ok(self.id())
    }

    fn free_stream(&self, _: Id) {}

    fn synchronize(&self, _: Id) -> Outcome<()> {
        Ok(())
    }

    fn new_event(&self, _: bool) -> Outcome<Id> {
        let id = self.id();
        self.state().events.insert(id, None);
        Ok(id)
    }

    fn free_event(&self, event: Id) {
        self.state().events.remove(&event).expect("an event is freed once");
    }

    fn record(&self, event: Id, _: Id) -> Outcome<()> {
        self.state().events.insert(event, Some(Instant::now()));
        Ok(())
    }

    fn wait(&self, _: Id, event: Id) -> Outcome<()> {
        self.wait_for(event)
    }

    fn is_done(&self, event: Id) -> Outcome<bool> {
        self.wait_for(event).map(|()| true)
    }

    fn wait_for(&self, event: Id) -> Outcome<()> {
        match self.state().events.get(&event) {
            Some(Some(_)) => Ok(()),
            _ => Err(failure("cuEventSynchronize", "the event was not recorded")),
        }
    }

    fn elapsed(&self, start: Id, end: Id) -> Outcome<Duration> {
        let state = self.state();
        let moment = |event: Id| state.events.get(&event).copied().flatten();
        let (start, end) =
            moment(start).zip(moment(end)).ok_or_else(|| failure("cuEventElapsedTime_v2", "not recorded"))?;
        Ok(end.saturating_duration_since(start))
    }

    unsafe fn copy(&self, stream: Id, from: Address, to: Address, bytes: usize) -> Outcome<()> {
        // SAFETY: the caller's promise.
        unsafe { self.submit(stream, Work::Copy { from, to, bytes }) }
    }

    unsafe fn fill(&self, stream: Id, at: Address, byte: u8, bytes: usize) -> Outcome<()> {
        // SAFETY: the caller's promise.
        unsafe { self.submit(stream, Work::Fill { at, byte, bytes }) }
    }

    fn function(&self, module: &'static Module, kernel: &'static str) -> Outcome<Id> {
        let at = module.kernels.iter().position(|k| *k == kernel);
        let compiled = at.and_then(|at| module.emulated.get(at)).ok_or_else(|| {
            failure("cuModuleGetFunction", format!("{kernel} of {} was not compiled for the CPU", module.name))
        })?;
        let mut state = self.state();
        state.functions.push((kernel, *compiled));
        Ok(state.functions.len() as Id - 1)
    }

    fn occupancy(&self, _: Id, block: u32, _: usize) -> Outcome<u32> {
        Ok(2048 / block.max(1))
    }

    unsafe fn launch(&self, stream: Id, function: Id, shape: Shape, arguments: &mut [*mut c_void]) -> Outcome<()> {
        let (name, kernel) = self.state().functions[function as usize];
        // SAFETY: an argument is eight bytes long.
        let arguments = arguments.iter().map(|a| unsafe { a.cast::<u64>().read_unaligned() }).collect();
        // SAFETY: the caller's promise.
        unsafe { self.submit(stream, Work::Launch { name, kernel, shape, arguments }) }
    }

    unsafe fn multiply(&self, stream: Id, product: &Product) -> Outcome<()> {
        // SAFETY: the caller's promise.
        unsafe { self.submit(stream, Work::Multiply(*product)) }
    }

    fn begin_capture(&self, stream: Id) -> Outcome<()> {
        match self.state().captures.insert(stream, Vec::new()) {
            None => Ok(()),
            Some(_) => Err(failure("cuStreamBeginCapture_v2", "the stream is captured already")),
        }
    }

    fn end_capture(&self, stream: Id) -> Outcome<Id> {
        let id = self.id();
        let mut state = self.state();
        let works = state.captures.remove(&stream);
        let works = works.ok_or_else(|| failure("cuStreamEndCapture", "the stream is not captured"))?;
        state.graphs.insert(id, works);
        Ok(id)
    }

    unsafe fn replay(&self, graph: Id, _: Id) -> Outcome<()> {
        let works = self.state().graphs.get(&graph).cloned();
        let works = works.ok_or_else(|| failure("cuGraphLaunch", "there is no such graph"))?;
        // SAFETY: the caller's promise.
        works.iter().try_for_each(|work| unsafe { run(work) })
    }

    fn free_graph(&self, graph: Id) {
        self.state().graphs.remove(&graph);
    }
}
