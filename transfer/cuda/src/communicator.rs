//! Exchange of arrays between devices by NCCL.

use std::ffi::{c_int, c_void};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cudarc::nccl::sys::{ncclComm_t, ncclDataType_t};
use morphgl_registry::{Error, Place, Result};

use crate::driver::Outcome;
use crate::library::call;
use crate::nccl::{Nccl, nccl};
use crate::{Buffer, Device, Stream};

/// One device's end of a group of devices that exchange arrays by NCCL, on a stream of its own.
///
/// Every end makes the same calls in the same order. A call queues its work, whose end an [`crate::Event`] of the stream shows;
/// work that waits for an end that does not come is ended by [`Communicator::abort`] alone.
///
/// The handles are released when the last end is dropped, by the thread that drops it.
pub struct Communicator {
    rank: usize,
    stream: Stream,
    team: Arc<Team>,
}

/// The handles of all ends.
struct Team {
    nccl: &'static Nccl,
    version: String,
    handles: Vec<Handle>,
    /// Keeps the contexts of the handles.
    _devices: Vec<Device>,
}

struct Handle {
    comm: ncclComm_t,
    aborted: AtomicBool,
}

// SAFETY: a handle is used by one thread at a time: that which has its end, or drops the last one.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Drop for Team {
    fn drop(&mut self) {
        for handle in self.handles.iter().filter(|handle| !handle.aborted.load(Ordering::Relaxed)) {
            // It fails only where a device or another rank is lost, which an earlier call has reported.
            // SAFETY: no end is left that uses it.
            let _ = unsafe { call!(self.nccl, ncclCommDestroy(handle.comm)) };
        }
    }
}

/// Makes several calls of communicators one, so that none of them waits for another one.
#[derive(Debug)]
pub struct Calls {
    nccl: &'static Nccl,
    device: Device,
}

impl Calls {
    /// Calls of one end, or of several ends by one thread; within other such calls, too.
    ///
    /// # Errors
    ///
    /// The first of the calls', or NCCL's own; the work of none of them is done then.
    pub fn together(&self, calls: impl FnOnce() -> Result<()>) -> Result<()> {
        // SAFETY: it changes the state of the calling thread.
        self.device.check(unsafe { call!(self.nccl, ncclGroupStart()) })?;
        let called = calls();
        // SAFETY: as above, and arrays of the calls are used after it by their streams alone.
        let ended = self.device.check(unsafe { call!(self.nccl, ncclGroupEnd()) });
        called.and(ended)
    }
}

impl Communicator {
    /// The ends of a group, by rank, one for each stream's device.
    ///
    /// # Errors
    ///
    /// There is no NCCL, two streams belong to one device, or NCCL fails.
    pub fn group(streams: Vec<Stream>) -> Result<Vec<Self>> {
        let Some(first) = streams.first() else { return Ok(Vec::new()) };
        let devices: Vec<Device> = streams.iter().map(|stream| stream.device().clone()).collect();
        if let Some(twice) = devices.iter().enumerate().find_map(|(i, d)| devices[..i].iter().find(|o| o.is(d))) {
            let message = format!("NCCL: {} is given twice; give each device once", twice.place());
            return Err(Error::setting(first.device().operator(), message));
        }
        let nccl = first.check(nccl())?;
        let version = first.check(nccl.version())?;
        let ordinals: Vec<c_int> = devices.iter().map(|device| ordinal(device.place())).collect();
        let mut comms = vec![std::ptr::null_mut(); streams.len()];
        // SAFETY: there are as many handles as devices.
        first.check(unsafe {
            call!(nccl, ncclCommInitAll(comms.as_mut_ptr(), streams.len() as c_int, ordinals.as_ptr()))
        })?;
        let handle = |comm| Handle { comm, aborted: AtomicBool::new(false) };
        let handles = comms.into_iter().map(handle).collect();
        let team = Arc::new(Team { nccl, version, handles, _devices: devices });
        let end = |(rank, stream)| Self { rank, stream, team: Arc::clone(&team) };
        Ok(streams.into_iter().enumerate().map(end).collect())
    }

    /// Its number among the ends.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Number of ends.
    pub fn size(&self) -> usize {
        self.team.handles.len()
    }

    /// The stream that its work is queued on.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Version of NCCL, as in 2.21.5.
    pub fn version(&self) -> &str {
        &self.team.version
    }

    /// What makes several calls one.
    pub fn calls(&self) -> Calls {
        Calls { nccl: self.team.nccl, device: self.stream.device().clone() }
    }

    /// Sends the `r`-th part of `from` to the end of rank `r`, and receives that end's own-rank-th part as the `r`-th part of `to`.
    /// Parts have `count` elements.
    ///
    /// # Panics
    ///
    /// When an array is shorter than all parts, or of another device.
    pub fn exchange_parts(&self, from: &Buffer<f32>, to: &mut Buffer<f32>, count: usize) -> Result<()> {
        let (size, nccl, comm) = (self.size(), self.team.nccl, self.comm());
        assert!(from.len() >= size * count && to.len() >= size * count, "{size} parts of {count} elements");
        [from.users(), to.users()].into_iter().for_each(|users| users.mark(&self.stream));
        let stream = self.library_stream()?;
        let bytes = (count * size_of::<f32>()) as u64;
        let part = |base: u64, rank: usize| (base + rank as u64 * bytes) as usize as *mut c_void;
        self.calls().together(|| {
            (0..size).try_for_each(|rank| {
                let (source, target, peer) = (part(from.address(), rank), part(to.address(), rank), rank as c_int);
                // SAFETY: both parts lie in memory that returns to its pool after the stream's work.
                let queued = unsafe {
                    call!(nccl, ncclSend(source.cast_const(), count, FLOAT, peer, comm, stream.cast()))
                        .and_then(|()| call!(nccl, ncclRecv(target, count, FLOAT, peer, comm, stream.cast())))
                };
                self.stream.check(queued)
            })
        })
    }

    /// Gathers the first `count` elements of every end's `from`, by rank.
    ///
    /// # Panics
    ///
    /// When an array is too short, or of another device.
    pub fn all_gather(&self, from: &Buffer<f32>, to: &mut Buffer<f32>, count: usize) -> Result<()> {
        assert!(from.len() >= count && to.len() >= self.size() * count, "{count} elements of {} ends", self.size());
        [from.users(), to.users()].into_iter().for_each(|users| users.mark(&self.stream));
        let (stream, nccl, comm) = (self.library_stream()?, self.team.nccl, self.comm());
        let (source, target) = (from.address() as usize as *const c_void, to.address() as usize as *mut c_void);
        // SAFETY: both lie in memory that returns to its pool after the stream's work.
        self.stream.check(unsafe { call!(nccl, ncclAllGather(source, target, count, FLOAT, comm, stream.cast())) })
    }

    /// Asks NCCL for failures of queued work.
    ///
    /// # Errors
    ///
    /// There was one.
    pub fn check(&self) -> Result<()> {
        let (nccl, mut failure) = (self.team.nccl, 0u32);
        // SAFETY: it writes a status, 32 bits long.
        let asked = unsafe { call!(nccl, ncclCommGetAsyncError(self.comm(), (&raw mut failure).cast())) };
        self.stream.check(asked.and_then(|()| nccl.check("ncclCommGetAsyncError", failure)))
    }

    /// Ends queued work that waits for other ends, and releases the handle: every further call fails.
    pub fn abort(&self) {
        if !self.handle().aborted.swap(true, Ordering::Relaxed) {
            // The failure that led here is the one to report.
            // SAFETY: the handle is not used again.
            let _ = unsafe { call!(self.team.nccl, ncclCommAbort(self.handle().comm)) };
        }
    }

    fn handle(&self) -> &Handle {
        &self.team.handles[self.rank]
    }

    /// The communicator's handle; null after an abort, so that further calls fail with NCCL's error for an invalid argument.
    fn comm(&self) -> ncclComm_t {
        if self.handle().aborted.load(Ordering::Relaxed) { std::ptr::null_mut() } else { self.handle().comm }
    }

    fn library_stream(&self) -> Result<*mut c_void> {
        let queued: Outcome<_> = self.stream.device().driver().library_stream(self.stream.id());
        self.stream.check(queued)
    }
}

const FLOAT: ncclDataType_t = ncclDataType_t::ncclFloat32;

/// The driver's number of a device.
fn ordinal(place: &Place) -> c_int {
    match place {
        Place::Device { index, .. } => *index as c_int,
        Place::Host | Place::Disk => unreachable!("a device is at a device's place"),
    }
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Communicator({} of {} by NCCL {}, {:?})", self.rank, self.size(), self.version(), self.stream)
    }
}
