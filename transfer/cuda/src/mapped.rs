//! Host memory mapped for a device, read over the bus.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytemuck::Pod;
use morphgl_registry::{Machine, Result};

use crate::device::Device;
use crate::driver::{Address, Failure, Outcome};
use crate::memory::{Guarded, Users};
use crate::registration::{CHUNK, Lease};

/// Host memory that the device reads in place; every access crosses the bus.
///
/// Dropping it waits for the work of its streams.
pub struct Mapped<T: Pod> {
    address: Address,
    len: usize,
    how: Mapping,
    backing: Guarded<Backing>,
    of: PhantomData<T>,
}

/// How memory was [`Mapped`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mapping {
    /// Pinned in place.
    InPlace,
    /// The driver refused to pin it: the device reads a pinned copy.
    Copied {
        /// Bytes of the copy.
        bytes: u64,
        /// Time it took to make.
        took: Duration,
        /// The refusal and its cure.
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

/// What keeps mapped memory valid.
enum Backing {
    /// No memory.
    Empty,
    /// Pinned pages, unpinned before their owner is released.
    Pinned {
        lease: Lease,
        _owner: Arc<dyn Any + Send + Sync>,
    },
    Copied {
        _copy: PinnedCopy,
    },
}

/// Pinned memory outside the pools.
struct PinnedCopy {
    pointer: *mut u8,
    device: Device,
}

// SAFETY: only the device uses the pointer.
unsafe impl Send for PinnedCopy {}
// SAFETY: as above.
unsafe impl Sync for PinnedCopy {}

impl Drop for PinnedCopy {
    fn drop(&mut self) {
        self.device.driver().free_pinned(self.pointer);
    }
}

impl<T: Pod> Mapped<T> {
    /// Pins `values`, which `owner` keeps in place. Pages are pinned once, shared by all mappings.
    ///
    /// # Errors
    ///
    /// The driver refuses to page-lock it: the error names the likely limit.
    ///
    /// # Safety
    ///
    /// `values` stay valid and unmoved, and nobody writes to them, for as long as `owner` or a clone of it lives.
    pub unsafe fn new(device: &Device, owner: Arc<dyn Any + Send + Sync>, values: &[T]) -> Result<Self> {
        // SAFETY: the caller's promise.
        unsafe { Self::in_place(device, owner, values) }.map_err(|e| device.error(&e))
    }

    /// [`Mapped::new`], or a pinned copy if that is refused: [`Mapped::how`] says which, and its cost.
    ///
    /// # Errors
    ///
    /// It cannot be pinned in place and there is no memory for a copy: the error says both.
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
        let backing = Backing::Copied { _copy: PinnedCopy { pointer, device: device.clone() } };
        Ok(Self::of(device, pointer as Address, values.len(), how, backing))
    }

    /// # Safety
    ///
    /// As [`Mapped::new`].
    unsafe fn in_place(device: &Device, owner: Arc<dyn Any + Send + Sync>, values: &[T]) -> Outcome<Self> {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let backing = match bytes {
            [] => Backing::Empty,
            // SAFETY: the caller's promise.
            _ => Backing::Pinned { lease: unsafe { Lease::new(device, &owner, bytes, CHUNK) }?, _owner: owner },
        };
        Ok(Self::of(device, bytes.as_ptr() as Address, values.len(), Mapping::InPlace, backing))
    }

    fn of(device: &Device, address: Address, len: usize, how: Mapping, backing: Backing) -> Self {
        Self { address, len, how, backing: Guarded::new(device, backing), of: PhantomData }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How it was mapped.
    pub fn how(&self) -> &Mapping {
        &self.how
    }

    pub(crate) fn address(&self) -> Address {
        self.address
    }

    pub(crate) fn users(&self) -> Users<'_> {
        self.backing.users()
    }

    /// Interior addresses that no single copy may cross.
    pub(crate) fn cuts(&self) -> &[Address] {
        match &*self.backing {
            Backing::Pinned { lease, .. } => &lease.cuts,
            _ => &[],
        }
    }
}

/// Copies into freshly pinned memory.
fn copy(device: &Device, bytes: &[u8]) -> Outcome<*mut u8> {
    let free = Machine::probe().available_bytes;
    // Pinning almost all memory hangs the machine instead of failing.
    if bytes.len() as u64 > free / 10 * 9 {
        let what = format!("{} bytes are needed and {free} are free", bytes.len());
        return Err(Failure { call: "cuMemHostAlloc", what, memory: true });
    }
    let pointer = device.driver().allocate_pinned(bytes.len())?;
    // SAFETY: both have this length, and the new memory is unshared.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), pointer, bytes.len()) };
    Ok(pointer)
}

impl<T: Pod> fmt::Debug for Mapped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mapped({} of {}, {})", self.len, std::any::type_name::<T>(), self.how)
    }
}
