//! Nonblocking messages between ranks: the only module that calls the MPI library.
//!
//! A message owns its buffer. Where a message is abandoned before the library is done with it, its buffer is leaked: the library
//! may read or write it until the process ends.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytemuck::Pod;
use morphgl_group::{GroupError, Result};
use mpi::Threading;
use mpi::ffi;

/// This process's connection to all ranks of `MPI_COMM_WORLD`. There is one per process.
///
/// Invariant: the library is initialized with `MPI_THREAD_SERIALIZED` at least, and not finalized. Its methods take `&mut self`
/// or are called through one, so that no two threads are in the library at once.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) rank: usize,
    pub(crate) size: usize,
    /// The name of this machine.
    pub(crate) host: String,
}

/// Open MPI's components for one-sided reads. Distributions leave `pt2pt` out by default (Debian in `openmpi-mca-params.conf`),
/// without which there are no reads over TCP.
const ONE_SIDED: [&str; 2] = ["OMPI_MCA_osc", "sm,rdma,pt2pt"];

/// The connection, for several threads: a caller holds the lock for a single call of the library.
#[derive(Debug, Clone)]
pub(crate) struct SharedWire(Arc<Mutex<Wire>>);

impl SharedWire {
    pub(crate) fn new(wire: Wire) -> Self {
        Self(Arc::new(Mutex::new(wire)))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Wire> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Kinds of messages. Messages of one kind from one rank arrive in the order in which they were sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Tag {
    Gather = 1,
    Values = 2,
    Sums = 3,
    Left = 4,
    Done = 5,
}

/// The shortest and the longest interval between two polls of a wait, which takes a few percent of a core at most.
const PAUSES: [Duration; 2] = [Duration::from_micros(10), Duration::from_micros(200)];

fn check(status: c_int) -> Result<()> {
    if status == ffi::MPI_SUCCESS as c_int {
        return Ok(());
    }
    let mut text = [0u8; ffi::MPI_MAX_ERROR_STRING as usize];
    let mut length = 0;
    // SAFETY: `text` has the length that the library asks for.
    unsafe { ffi::MPI_Error_string(status, text.as_mut_ptr().cast(), &mut length) };
    let text = String::from_utf8_lossy(&text[..usize::try_from(length).unwrap_or(0).min(text.len())]);
    Err(GroupError::Engine(format!("MPI: {text}")))
}

impl Wire {
    /// Initializes the library. Called once per process, by the thread that will call [`Wire::finalize`].
    pub(crate) fn start() -> Result<Self> {
        let failed = |what: &str| GroupError::Engine(format!("MPI: {what}"));
        if std::env::var_os(ONE_SIDED[0]).is_none() {
            // SAFETY: the caller has started no thread that reads the environment: the library is initialized first.
            unsafe { std::env::set_var(ONE_SIDED[0], ONE_SIDED[1]) };
        }
        let (universe, threading) = mpi::initialize_with_threading(Threading::Serialized)
            .ok_or_else(|| failed("it is initialized already; a process has one group"))?;
        let host = mpi::environment::processor_name().map_err(|e| failed(&e.to_string()))?;
        let world = mpi::topology::SimpleCommunicator::world();
        let (rank, size) = {
            use mpi::traits::Communicator;
            (world.rank() as usize, world.size() as usize)
        };
        // Its drop would wait for all other ranks, of which one may hang.
        std::mem::forget(universe);
        if threading < Threading::Serialized {
            return Err(failed("the library is built without threads; use one with MPI_THREAD_SERIALIZED"));
        }
        // SAFETY: the library is initialized, and both are its own handles.
        check(unsafe { ffi::MPI_Comm_set_errhandler(ffi::RSMPI_COMM_WORLD, ffi::RSMPI_ERRORS_RETURN) })?;
        Ok(Self { rank, size, host })
    }

    /// Begins to send a part of `content` to another rank.
    pub(crate) fn send<T: Pod + Send + Sync>(
        &mut self,
        to: usize,
        tag: Tag,
        content: &Arc<Vec<T>>,
        part: Range<usize>,
    ) -> Result<Sending> {
        let bytes: &[u8] = bytemuck::cast_slice(&content[part]);
        let count = count(bytes.len())?;
        // SAFETY: a static of the library, initialized with it.
        let mut request = Request(unsafe { ffi::RSMPI_REQUEST_NULL });
        // SAFETY: `bytes` lie in `content`, which the message keeps, or leaks, until the library has sent them.
        check(unsafe {
            ffi::MPI_Isend(
                bytes.as_ptr().cast::<c_void>(),
                count,
                ffi::RSMPI_UINT8_T,
                to as c_int,
                tag as c_int,
                ffi::RSMPI_COMM_WORLD,
                &mut request.0,
            )
        })?;
        let content: Arc<Vec<T>> = Arc::clone(content);
        Ok(Sending { request, content: Some(content), bytes: bytes.len() as u64 })
    }

    /// The next message of this kind from rank `from`, or from any, if one is there: its sender and its bytes.
    pub(crate) fn arrived(&mut self, from: Option<usize>, tag: Tag) -> Result<Option<(usize, usize)>> {
        let mut there = 0;
        let mut status = std::mem::MaybeUninit::<ffi::MPI_Status>::uninit();
        // SAFETY: a static of the library, initialized with it.
        let source = from.map_or(unsafe { ffi::RSMPI_ANY_SOURCE }, |from| from as c_int);
        // SAFETY: both results are written here.
        check(unsafe {
            ffi::MPI_Iprobe(source, tag as c_int, ffi::RSMPI_COMM_WORLD, &mut there, status.as_mut_ptr())
        })?;
        if there == 0 {
            return Ok(None);
        }
        // SAFETY: the status is written where there is a message.
        let status = unsafe { status.assume_init() };
        let mut bytes = 0;
        // SAFETY: the status is that of a probe.
        check(unsafe { ffi::MPI_Get_count(&status, ffi::RSMPI_UINT8_T, &mut bytes) })?;
        Ok(Some((status.MPI_SOURCE as usize, bytes as usize)))
    }

    /// Begins to receive a message of `bytes` that [`Wire::arrived`] has found.
    pub(crate) fn receive<T: Pod>(&mut self, from: usize, tag: Tag, bytes: usize) -> Result<Receiving<T>> {
        let mut content = vec![T::zeroed(); bytes.div_ceil(size_of::<T>())];
        let buffer: &mut [u8] = &mut bytemuck::cast_slice_mut(&mut content)[..bytes];
        let count = count(bytes)?;
        // SAFETY: a static of the library, initialized with it.
        let mut request = Request(unsafe { ffi::RSMPI_REQUEST_NULL });
        // SAFETY: `buffer` is the content of a vector, which the message keeps, or leaks, until the library has written it; a
        // vector's content does not move with it.
        check(unsafe {
            ffi::MPI_Irecv(
                buffer.as_mut_ptr().cast::<c_void>(),
                count,
                ffi::RSMPI_UINT8_T,
                from as c_int,
                tag as c_int,
                ffi::RSMPI_COMM_WORLD,
                &mut request.0,
            )
        })?;
        Ok(Receiving { request, content: Some(content) })
    }

    /// Exposes this rank's rows to reads of all others. All ranks have to make the call.
    pub(crate) fn expose(&mut self, rows: Arc<Vec<u8>>) -> Result<Window> {
        let bytes = ffi::MPI_Aint::try_from(rows.len()).expect("memory is smaller than the address space");
        let mut window = std::mem::MaybeUninit::<ffi::MPI_Win>::uninit();
        // SAFETY: the window keeps the rows; others only read them.
        unsafe {
            check(ffi::MPI_Win_create(
                rows.as_ptr().cast_mut().cast::<c_void>(),
                bytes,
                1,
                ffi::RSMPI_INFO_NULL,
                ffi::RSMPI_COMM_WORLD,
                window.as_mut_ptr(),
            ))?;
            let handle = window.assume_init();
            check(ffi::MPI_Win_set_errhandler(handle, ffi::RSMPI_ERRORS_RETURN))?;
            // Every rank may read from every other until the window is closed.
            check(ffi::MPI_Win_lock_all(ffi::MPI_MODE_NOCHECK as c_int, handle))?;
            Ok(Window { handle, _rows: rows })
        }
    }

    /// Begins to read rows of `row_bytes` bytes that another rank exposes.
    pub(crate) fn read(&mut self, window: &Window, from: usize, rows: &[u32], row_bytes: usize) -> Result<Reading> {
        let mut content = vec![0u8; rows.len() * row_bytes];
        let places: Vec<ffi::MPI_Aint> =
            rows.iter().map(|&row| row as ffi::MPI_Aint * row_bytes as ffi::MPI_Aint).collect();
        let (bytes, blocks, block) = (count(content.len())?, count(rows.len())?, count(row_bytes)?);
        // SAFETY: a static of the library, initialized with it.
        let mut request = Request(unsafe { ffi::RSMPI_REQUEST_NULL });
        let mut of_rows = std::mem::MaybeUninit::<ffi::MPI_Datatype>::uninit();
        // SAFETY: a type of `blocks` blocks at as many places; the library keeps it until the read is done. `content` is kept, or
        // leaked, until the library has written it; a vector's content does not move with it.
        unsafe {
            check(ffi::MPI_Type_create_hindexed_block(
                blocks,
                block,
                places.as_ptr(),
                ffi::RSMPI_UINT8_T,
                of_rows.as_mut_ptr(),
            ))?;
            let mut of_rows = of_rows.assume_init();
            check(ffi::MPI_Type_commit(&mut of_rows))?;
            check(ffi::MPI_Rget(
                content.as_mut_ptr().cast::<c_void>(),
                bytes,
                ffi::RSMPI_UINT8_T,
                from as c_int,
                0,
                1,
                of_rows,
                window.handle,
                &mut request.0,
            ))?;
            check(ffi::MPI_Type_free(&mut of_rows))?;
        }
        Ok(Receiving { request, content: Some(content) })
    }

    /// Lets the library answer the reads of other ranks.
    pub(crate) fn progress(&mut self) -> Result<()> {
        self.arrived(None, Tag::Done).map(|_| ())
    }

    /// Closes a window. All ranks have to make the call, after their last read.
    pub(crate) fn close(&mut self, window: &Window) -> Result<()> {
        let mut handle = window.handle;
        // SAFETY: created by the library, and not used again.
        unsafe {
            check(ffi::MPI_Win_unlock_all(handle))?;
            check(ffi::MPI_Win_free(&mut handle))
        }
    }

    /// Ends the library: all ranks have to come, and no other method may be called again.
    pub(crate) fn finalize(&mut self) {
        // SAFETY: initialized, by this thread; the caller makes no call after it.
        unsafe { ffi::MPI_Finalize() };
    }

    /// Ends all ranks' processes.
    pub(crate) fn abort(&mut self, status: u8) -> ! {
        // SAFETY: the library is initialized.
        unsafe { ffi::MPI_Abort(ffi::RSMPI_COMM_WORLD, status.into()) };
        std::process::exit(status.into())
    }
}

fn count(bytes: usize) -> Result<c_int> {
    c_int::try_from(bytes).map_err(|_| {
        GroupError::Engine(format!("MPI: a message of {bytes} bytes; it carries 2 GiB at most: use more ranks"))
    })
}

/// Pauses that grow, so that a wait neither spins nor adds much to a short one.
pub(crate) struct Pause(Duration);

impl Pause {
    pub(crate) fn new() -> Self {
        Self(PAUSES[0])
    }

    pub(crate) fn sleep(&mut self) {
        std::thread::sleep(self.0);
        self.0 = (2 * self.0).min(PAUSES[1]);
    }
}

/// Rows that all other ranks may read, from its creation until it is closed.
#[derive(Debug)]
pub(crate) struct Window {
    handle: ffi::MPI_Win,
    /// The library reads them.
    _rows: Arc<Vec<u8>>,
}

// SAFETY: a handle, which the library lets any thread use, one at a time.
unsafe impl Send for Window {}
// SAFETY: it is used through `&mut Wire` alone.
unsafe impl Sync for Window {}

/// Rows on their way from another rank.
pub(crate) type Reading = Receiving<u8>;

#[derive(Debug)]
struct Request(ffi::MPI_Request);

// SAFETY: a handle, which the library lets any thread use, one at a time.
unsafe impl Send for Request {}

impl Request {
    /// Whether the library is done with the message's buffer. `_wire` keeps other threads out of the library.
    fn is_done(&mut self, _wire: &mut Wire) -> Result<bool> {
        let mut done = 0;
        // SAFETY: the request was begun by the library, or it is null, which counts as done; the status is not asked for.
        check(unsafe { ffi::MPI_Test(&mut self.0, &mut done, ffi::RSMPI_STATUS_IGNORE) })?;
        Ok(done != 0)
    }
}

/// A message on its way to another rank.
pub(crate) struct Sending {
    request: Request,
    /// `None` once it is sent.
    content: Option<Arc<dyn Send + Sync>>,
    pub(crate) bytes: u64,
}

impl Sending {
    pub(crate) fn is_done(&mut self, wire: &mut Wire) -> Result<bool> {
        if self.content.is_some() && self.request.is_done(wire)? {
            self.content = None;
        }
        Ok(self.content.is_none())
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        std::mem::forget(self.content.take());
    }
}

/// A message on its way from another rank.
pub(crate) struct Receiving<T: Pod> {
    request: Request,
    /// `None` once it is received and taken.
    content: Option<Vec<T>>,
}

impl<T: Pod> Receiving<T> {
    /// The message, once it is whole; no more than once.
    pub(crate) fn take(&mut self, wire: &mut Wire) -> Result<Option<Vec<T>>> {
        Ok(if self.request.is_done(wire)? { self.content.take() } else { None })
    }
}

impl<T: Pod> Drop for Receiving<T> {
    fn drop(&mut self) {
        std::mem::forget(self.content.take());
    }
}
