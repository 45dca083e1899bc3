//! Host memory that a device reads over the bus.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use bytemuck::Pod;
use morphgl_registry::{Machine, Result};

use crate::device::Device;
use crate::driver::{Address, Failure, Outcome};
use crate::memory::Users;
use crate::registration::Lease;

/// Host memory that the device reads where it lies: no copy, every access goes over the bus.
///
/// Dropping it waits for the work that streams were given on it.
pub struct Mapped<T: Pod> {
    address: Address,
    len: usize,
    users: AtomicU64,
    how: Mapping,
    device: Device,
    /// `Some` until it is dropped.
    held: Option<Held>,
    of: PhantomData<T>,
}

/// How memory came to be [`Mapped`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mapping {
    /// It is pinned where it lies.
    InPlace,
    /// The driver refused that: the device reads a pinned copy.
    Copied {
        /// Bytes of memory the copy takes.
        bytes: u64,
        /// What making it took.
        took: Duration,
        /// What was refused, and its cure.
        refused: String,
    },
}

impl fmt::Display for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InPlace => f.write_str("pinned in place"),
            Self::Copied { bytes, took, refused } => {
                let (gigabytes, seconds) = (*bytes as f64 / 1e9, took.as_secs_f64());
                let rate = gigabytes / seconds.max(1e-9);
                write!(f, "copied {gigabytes:.3} GB into pinned memory in {seconds:.3} s ({rate:.1} GB/s): {refused}")
            }
        }
    }
}

/// What keeps mapped memory.
enum Held {
    /// There is nothing to keep.
    Empty,
    /// Its pages, which are unpinned before their owner goes.
    Pinned {
        lease: Lease,
        _owner: Arc<dyn Any + Send + Sync>,
    },
    Copied {
        _copy: Copy,
    },
}

/// Pinned memory outside of the pools.
struct Copy {
    pointer: *mut u8,
    device: Device,
}

// SAFETY: nobody has the pointer but the device.
unsafe impl Send for Copy {}
// SAFETY: as above.
unsafe impl Sync for Copy {}

impl Drop for Copy {
    fn drop(&mut self) {
        self.device.driver().free_pinned(self.pointer);
    }
}

impl<T: Pod> Mapped<T> {
    /// Pins `values`, which `owner` keeps where they are. The same memory is pinned once, however many ask.
    ///
    /// # Errors
    ///
    /// The driver refuses to page-lock it: the error says which limit may be the cause.
    ///
    /// # Safety
    ///
    /// `values` stay valid and unmoved, and nobody writes to them, for as long as `owner` or a clone of it lives.
    pub unsafe fn new(device: &Device, owner: Arc<dyn Any + Send + Sync>, values: &[T]) -> Result<Self> {
        // SAFETY: the caller's promise.
        unsafe { Self::in_place(device, owner, values) }.map_err(|e| device.error(&e))
    }

    /// As [`Mapped::new`], or if that is refused, a pinned copy: [`Mapped::how`] says which, and what it cost.
    ///
    /// # Errors
    ///
    /// It cannot be pinned in place, and there is no memory for a copy: the error says both.
    ///
    /// # Safety
    ///
    /// As [`Mapped::new`].
    pub unsafe fn new_or_copy(device: &Device, owner: Arc<dyn Any + Send + Sync>, values: &[T]) -> Result<Self> {
        // SAFETY: the caller's promise.
        let refused = match unsafe { Self::in_place(device, owner, values) } {
            Ok(mapped) => return Ok(mapped),
            Err(refused) => refused.to_string(),
        };
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let begin = Instant::now();
        let pointer = copy(device, bytes).map_err(|mut failure| {
            failure.what = format!("{} for a copy of what could not be pinned in place: {refused}", failure.what);
            device.error(&failure)
        })?;
        let how = Mapping::Copied { bytes: bytes.len() as u64, took: begin.elapsed(), refused };
        let held = Held::Copied { _copy: Copy { pointer, device: device.clone() } };
        Ok(Self::of(device, pointer as Address, values.len(), how, held))
    }

    /// # Safety
    ///
    /// As [`Mapped::new`].
    unsafe fn in_place(device: &Device, owner: Arc<dyn Any + Send + Sync>, values: &[T]) -> Outcome<Self> {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let held = match bytes {
            [] => Held::Empty,
            // SAFETY: the caller's promise.
            _ => Held::Pinned { lease: unsafe { Lease::new(device, &owner, bytes) }?, _owner: owner },
        };
        Ok(Self::of(device, bytes.as_ptr() as Address, values.len(), Mapping::InPlace, held))
    }

    fn of(device: &Device, address: Address, len: usize, how: Mapping, held: Held) -> Self {
        let (device, held) = (device.clone(), Some(held));
        Self { address, len, users: AtomicU64::new(0), how, device, held, of: PhantomData }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How it came to be mapped.
    pub fn how(&self) -> &Mapping {
        &self.how
    }

    pub(crate) fn address(&self) -> Address {
        self.address
    }

    pub(crate) fn users(&self) -> Users<'_> {
        Users { streams: &self.users, device: &self.device }
    }

    /// Addresses that no single copy may cross.
    pub(crate) fn cuts(&self) -> &[Address] {
        match &self.held {
            Some(Held::Pinned { lease, .. }) => &lease.cuts,
            _ => &[],
        }
    }
}

/// A copy in pinned memory of its own.
fn copy(device: &Device, bytes: &[u8]) -> Outcome<*mut u8> {
    let free = Machine::probe().available_bytes;
    // A machine that is told to pin all that it has stops, rather than refuse.
    if bytes.len() as u64 > free / 10 * 9 {
        let what = format!("{} bytes are needed and {free} are free", bytes.len());
        return Err(Failure { call: "cuMemHostAlloc", what, memory: true });
    }
    let pointer = device.driver().allocate_pinned(bytes.len())?;
    // SAFETY: both are so many bytes, and the new ones nobody else's.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), pointer, bytes.len()) };
    Ok(pointer)
}

impl<T: Pod> Drop for Mapped<T> {
    fn drop(&mut self) {
        let users = *self.users.get_mut();
        if self.device.inner().pools.wait_for(self.device.driver(), users).is_err() {
            // The device is in error and may still be reading: the memory stays for good.
            std::mem::forget(self.held.take());
        }
    }
}

impl<T: Pod> fmt::Debug for Mapped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mapped({} of {}, {})", self.len, std::any::type_name::<T>(), self.how)
    }
}
