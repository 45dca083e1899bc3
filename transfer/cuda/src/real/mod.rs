//! The driver interface over libcuda.

mod api;
mod blas;
mod modules;
mod node;
pub(crate) mod probe;

use std::ffi::c_void;
use std::time::Duration;

use cudarc::driver::sys::{self, CUcontext, CUdeviceptr, CUevent, CUfunction, CUstream};

use self::api::Cuda;
use self::probe::DeviceInfo;
use crate::driver::{Address, Driver, Failure, Gemm, Id, Outcome, Peer, Precision, Priority, Shape};
use crate::library::call;
use crate::module::Module;

/// A device by its primary context, shared by the whole process.
#[derive(Debug)]
pub(crate) struct CudaDevice {
    cuda: &'static Cuda,
    info: DeviceInfo,
    device: sys::CUdevice,
    context: Context,
    /// The lowest and the highest priority of streams.
    priorities: [i32; 2],
    blas: blas::Blas,
    modules: modules::Modules,
}

#[derive(Debug, Clone, Copy)]
struct Context(CUcontext);

// SAFETY: the driver's functions may be called from any thread.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

fn stream(id: Id) -> CUstream {
    id as usize as CUstream
}

fn event(id: Id) -> CUevent {
    id as usize as CUevent
}

/// Opens the device `cuda:{ordinal}`.
pub(crate) fn open(ordinal: u32) -> Outcome<Box<dyn Driver>> {
    let machine = probe::machine().map_err(|why| Failure::new("cuInit", why))?;
    let info = machine.devices.iter().find(|d| d.ordinal == ordinal).cloned().ok_or_else(|| {
        let usable: Vec<String> = machine.devices.iter().map(|d| format!("cuda:{}", d.ordinal)).collect();
        let why = machine.refused.iter().map(|why| format!("; {why}")).collect::<String>();
        let message = format!("there is no usable device cuda:{ordinal}; there is {}{why}", usable.join(", "));
        Failure::new("cuDeviceGet", message)
    })?;
    let cuda = &machine.cuda;
    let (mut device, mut context) = (0, std::ptr::null_mut());
    // SAFETY: they write a number and a handle, which `CudaDevice` releases.
    unsafe {
        call!(cuda, cuDeviceGet(&mut device, ordinal as i32))?;
        call!(cuda, cuDevicePrimaryCtxRetain(&mut context, device))?;
    }
    let (context, priorities, blas, modules) = (Context(context), [0; 2], Default::default(), Default::default());
    let mut real = CudaDevice { cuda, info, device, context, priorities, blas, modules };
    real.enter()?;
    let [low, high] = &mut real.priorities;
    // SAFETY: it writes two numbers.
    unsafe { call!(cuda, cuCtxGetStreamPriorityRange(low, high)) }?;
    Ok(Box::new(real))
}

impl CudaDevice {
    fn enter(&self) -> Outcome<()> {
        let mut current = std::ptr::null_mut();
        // SAFETY: it writes a handle.
        unsafe { call!(self.cuda, cuCtxGetCurrent(&mut current)) }?;
        if current == self.context.0 {
            return Ok(());
        }
        // SAFETY: the context is retained for as long as this lives.
        unsafe { call!(self.cuda, cuCtxSetCurrent(self.context.0)) }
    }

    /// Runs a call of a drop: a failure means a lost device, which the next call reports.
    fn leave(&self, call: impl FnOnce() -> Outcome<()>) {
        let _ = self.enter().and_then(|()| call());
    }
}

impl Drop for CudaDevice {
    fn drop(&mut self) {
        self.leave(|| {
            self.modules.unload(self.cuda);
            Ok(())
        });
        // SAFETY: everything created in it is gone. A failure means a lost device.
        let _ = unsafe { call!(self.cuda, cuDevicePrimaryCtxRelease_v2(self.device)) };
    }
}

impl Driver for CudaDevice {
    fn name(&self) -> String {
        self.info.name.clone()
    }

    fn multiprocessors(&self) -> u32 {
        self.info.multiprocessors
    }

    fn memory(&self) -> Outcome<[u64; 2]> {
        self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: it writes two numbers.
        unsafe { call!(self.cuda, cuMemGetInfo_v2(&mut free, &mut total)) }?;
        Ok([free as u64, total as u64])
    }

    fn current_context(&self) -> Id {
        let mut current = std::ptr::null_mut();
        // SAFETY: it writes a handle. A failure is reported by the next call.
        let _ = unsafe { call!(self.cuda, cuCtxGetCurrent(&mut current)) };
        current as usize as Id
    }

    fn set_current_context(&self, context: Id) {
        // SAFETY: it was current before; null makes none current.
        let _ = unsafe { call!(self.cuda, cuCtxSetCurrent(context as usize as CUcontext)) };
    }

    fn peer(&self) -> Peer {
        Peer { device: self.device, context: self.context.0 as usize as Id }
    }

    fn can_access(&self, peer: Peer) -> Outcome<bool> {
        let mut can = 0;
        // SAFETY: it writes a number.
        unsafe { call!(self.cuda, cuDeviceCanAccessPeer(&mut can, self.device, peer.device)) }?;
        Ok(can != 0)
    }

    fn enable_access(&self, peer: Peer) -> Outcome<()> {
        self.enter()?;
        // SAFETY: the caller's: the other device's driver retains its context.
        match unsafe { (self.cuda.cuCtxEnablePeerAccess)(peer.context as usize as CUcontext, 0) } {
            api::ALREADY_ENABLED => Ok(()),
            status => self.cuda.check("cuCtxEnablePeerAccess", status),
        }
    }

    fn allocate(&self, bytes: usize) -> Outcome<Address> {
        self.enter()?;
        let mut address: CUdeviceptr = 0;
        // SAFETY: it writes an address.
        let status = unsafe { call!(self.cuda, cuMemAlloc_v2(&mut address, bytes)) };
        status.map_err(|failure| failure.about(format_args!("{bytes} bytes of device memory")))?;
        Ok(address)
    }

    fn free(&self, address: Address) {
        // SAFETY: the caller's: it was allocated, and nothing uses it.
        self.leave(|| unsafe { call!(self.cuda, cuMemFree_v2(address)) });
    }

    fn allocate_pinned(&self, bytes: usize) -> Outcome<Address> {
        self.enter()?;
        let mut pointer = std::ptr::null_mut();
        // Not write-combined: the host reads it too.
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: it writes an address.
        let status = unsafe { call!(self.cuda, cuMemHostAlloc(&mut pointer, bytes, flags)) };
        status.map_err(|failure| failure.about(format_args!("{bytes} bytes of page-locked host memory")))?;
        // Zeroed, so that the content is valid for every Pod type.
        // SAFETY: it has this length and is unshared.
        unsafe { std::ptr::write_bytes(pointer.cast::<u8>(), 0, bytes) };
        Ok(pointer as Address)
    }

    fn free_pinned(&self, address: Address) {
        // SAFETY: the caller's.
        self.leave(|| unsafe { call!(self.cuda, cuMemFreeHost(address as *mut c_void)) });
    }

    fn allocate_on_node(&self, bytes: usize) -> Outcome<(Address, usize)> {
        self.enter()?;
        let (address, bytes) = node::allocate(self.cuda, self.device, bytes)?;
        // Zeroed, as pinned memory is.
        // SAFETY: it has this length and is unshared.
        unsafe { std::ptr::write_bytes(address as *mut u8, 0, bytes) };
        Ok((address, bytes))
    }

    fn free_on_node(&self, address: Address, bytes: usize) {
        self.leave(|| node::free(self.cuda, address, bytes));
    }

    unsafe fn register(&self, pointer: *const u8, bytes: usize, read_only: bool) -> Outcome<Address> {
        self.enter()?;
        let mut flags = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP;
        if read_only {
            if !self.info.pins_read_only {
                return Err(Failure::new(
                    "cuMemHostRegister_v2",
                    "the device cannot pin memory that is mapped read-only",
                ));
            }
            flags |= sys::CU_MEMHOSTREGISTER_READ_ONLY;
        }
        let pointer = pointer.cast_mut().cast();
        // SAFETY: the caller's.
        unsafe { call!(self.cuda, cuMemHostRegister_v2(pointer, bytes, flags)) }?;
        let mut address = 0;
        // SAFETY: it writes an address; the memory was registered.
        let status = unsafe { call!(self.cuda, cuMemHostGetDevicePointer_v2(&mut address, pointer, 0)) };
        status.inspect_err(|_| self.unregister(pointer.cast()))?;
        Ok(address)
    }

    fn unregister(&self, pointer: *const u8) {
        // SAFETY: the caller's.
        self.leave(|| unsafe { call!(self.cuda, cuMemHostUnregister(pointer.cast_mut().cast())) });
    }

    fn new_stream(&self, priority: Priority) -> Outcome<Id> {
        self.enter()?;
        let mut made = std::ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        let [low, high] = self.priorities;
        let priority = match priority {
            Priority::Low => low,
            Priority::Normal => (low + high) / 2,
            Priority::High => high,
        };
        // SAFETY: it writes a handle.
        unsafe { call!(self.cuda, cuStreamCreateWithPriority(&mut made, flags, priority)) }?;
        Ok(made as usize as Id)
    }

    fn free_stream(&self, id: Id) {
        self.leave(|| {
            self.blas.forget(self.cuda, id);
            // SAFETY: the caller's.
            unsafe { call!(self.cuda, cuStreamDestroy_v2(stream(id))) }
        });
    }

    fn synchronize(&self, id: Id) -> Outcome<()> {
        // cuStreamSynchronize spins in contexts configured to spin; a blocking event never does.
        let event = self.new_event(false)?;
        let waited = self.record(event, id).and_then(|()| self.wait_for(event));
        self.free_event(event);
        waited
    }

    fn new_event(&self, timed: bool) -> Outcome<Id> {
        self.enter()?;
        let mut flags = sys::CUevent_flags::CU_EVENT_BLOCKING_SYNC as u32;
        if !timed {
            flags |= sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        }
        let mut made = std::ptr::null_mut();
        // SAFETY: it writes a handle.
        unsafe { call!(self.cuda, cuEventCreate(&mut made, flags)) }?;
        Ok(made as usize as Id)
    }

    fn free_event(&self, id: Id) {
        // SAFETY: the caller's; work that waits for the event goes on doing so.
        self.leave(|| unsafe { call!(self.cuda, cuEventDestroy_v2(event(id))) });
    }

    fn record(&self, id: Id, on: Id) -> Outcome<()> {
        self.enter()?;
        // SAFETY: both are of this context.
        unsafe { call!(self.cuda, cuEventRecord(event(id), stream(on))) }
    }

    fn wait(&self, on: Id, id: Id) -> Outcome<()> {
        self.enter()?;
        // SAFETY: both are the driver's.
        unsafe { call!(self.cuda, cuStreamWaitEvent(stream(on), event(id), 0)) }
    }

    fn wait_across(&self, on: Id, _: &dyn Driver, id: Id) -> Outcome<()> {
        // A stream may wait for an event of any context.
        self.wait(on, id)
    }

    fn is_done(&self, id: Id) -> Outcome<bool> {
        self.enter()?;
        // SAFETY: it is the driver's.
        match unsafe { (self.cuda.cuEventQuery)(event(id)) } {
            api::NOT_READY => Ok(false),
            status => self.cuda.check("cuEventQuery", status).map(|()| true),
        }
    }

    fn wait_for(&self, id: Id) -> Outcome<()> {
        self.enter()?;
        // SAFETY: it is the driver's.
        unsafe { call!(self.cuda, cuEventSynchronize(event(id))) }
    }

    fn elapsed(&self, start: Id, end: Id) -> Outcome<Duration> {
        self.enter()?;
        let mut milliseconds = 0.0f32;
        // SAFETY: it writes a number; both are the driver's.
        unsafe { call!(self.cuda, cuEventElapsedTime(&mut milliseconds, event(start), event(end))) }?;
        Ok(Duration::from_secs_f64(f64::from(milliseconds.max(0.0)) / 1e3))
    }

    unsafe fn copy(&self, on: Id, from: Address, to: Address, bytes: usize) -> Outcome<()> {
        self.enter()?;
        // SAFETY: the caller's.
        unsafe { call!(self.cuda, cuMemcpyAsync(to, from, bytes, stream(on))) }
    }

    unsafe fn fill(&self, on: Id, at: Address, byte: u8, bytes: usize) -> Outcome<()> {
        self.enter()?;
        // SAFETY: the caller's.
        unsafe { call!(self.cuda, cuMemsetD8Async(at, byte, bytes, stream(on))) }
    }

    fn function(&self, module: &'static Module, kernel: &'static str) -> Outcome<Id> {
        self.enter()?;
        self.modules.function(self.cuda, &self.info, module, kernel)
    }

    fn occupancy(&self, function: Id, block: u32, shared: usize) -> Outcome<u32> {
        self.enter()?;
        let mut blocks = 0;
        let function = function as usize as CUfunction;
        // SAFETY: it writes a number.
        unsafe {
            call!(self.cuda, cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, function, block as i32, shared))
        }?;
        Ok(blocks as u32)
    }

    unsafe fn launch(&self, on: Id, function: Id, shape: Shape, arguments: &mut [*mut c_void]) -> Outcome<()> {
        self.enter()?;
        let (function, [gx, gy, gz], [bx, by, bz]) = (function as usize as CUfunction, shape.grid, shape.block);
        let shared = u32::try_from(shape.shared).map_err(|_| {
            Failure::new("cuLaunchKernel", format!("{} bytes of shared memory per block", shape.shared))
        })?;
        let (arguments, extra) = (arguments.as_mut_ptr(), std::ptr::null_mut());
        // SAFETY: the caller's.
        let launched = unsafe {
            call!(self.cuda, cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, stream(on), arguments, extra))
        };
        launched.map_err(|failure| failure.about(format_args!("{shape:?}")))
    }

    fn prepare_products(&self, on: Id, precision: Precision) -> Outcome<()> {
        self.enter()?;
        self.blas.prepare(self.cuda, on, precision)
    }

    unsafe fn multiply(&self, on: Id, gemm: &Gemm) -> Outcome<()> {
        self.enter()?;
        if !self.blas.is_prepared(on) {
            self.blas.prepare(self.cuda, on, Precision::F32)?;
        }
        // SAFETY: the caller's.
        unsafe { self.blas.multiply(on, gemm) }
    }

    fn library_stream(&self, id: Id) -> Outcome<*mut c_void> {
        self.enter()?;
        Ok(stream(id).cast())
    }
}
