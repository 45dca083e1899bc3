//! Host memory mapped for a device, read over the bus.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use bytemuck::Pod;
use morphgl_registry::{Machine, Result};

use crate::device::Device;
use crate::driver::{Address, Failure, Outcome};
use crate::memory::{Guarded, Users};
use crate::pinning::{CHUNK, PinnedRange};

/// Host memory that the device reads in place; every access crosses the bus.
///
/// Dropping it waits for the work of its streams.
#[derive(Debug)]
pub struct Mapped<T: Pod> {
    address: Address,
    len: usize,
    /// Why the device reads a pinned copy, if it does.
    refused: Option<String>,
    /// Interior addresses that no single copy may cross.
    cuts: Vec<Address>,
    /// Keeps the memory valid.
    backing: Guarded<Box<dyn Any + Send + Sync>>,
    of: PhantomData<T>,
}

struct PinnedCopy {
    address: Address,
    device: Device,
}

impl Drop for PinnedCopy {
    fn drop(&mut self) {
        self.device.driver().free_pinned(self.address);
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
        device.check(unsafe { Self::in_place(device, owner, values) })
    }

    /// [`Mapped::new`], or a pinned copy if that is refused ([`Mapped::refused`]).
    ///
    /// # Errors
    ///
    /// It cannot be pinned in place and there is no memory for a copy: the error has both reasons.
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
        let address = device.check(copy(device, bytes).map_err(|failure| Failure {
            message: format!("{} for a copy, as pinning in place failed: {refused}", failure.message),
            ..failure
        }))?;
        let backing = Guarded::new(device, Box::new(PinnedCopy { address, device: device.clone() }) as _);
        Ok(Self { address, len: values.len(), refused: Some(refused), cuts: Vec::new(), backing, of: PhantomData })
    }

    /// # Safety
    ///
    /// As [`Mapped::new`].
    unsafe fn in_place(device: &Device, owner: Arc<dyn Any + Send + Sync>, values: &[T]) -> Outcome<Self> {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let mut cuts = Vec::new();
        let mut backing: Box<dyn Any + Send + Sync> = Box::new(());
        if !bytes.is_empty() {
            // SAFETY: the caller's promise.
            let range = unsafe { PinnedRange::new(device, &owner, bytes, CHUNK) }?;
            cuts = range.cuts();
            // The range comes first: pages are unpinned before their owner is released.
            backing = Box::new((range, owner));
        }
        let (address, backing) = (bytes.as_ptr() as Address, Guarded::new(device, backing));
        Ok(Self { address, len: values.len(), refused: None, cuts, backing, of: PhantomData })
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The driver's refusal to pin the memory in place, and its cure, if the device reads a pinned copy instead.
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    pub(crate) fn address(&self) -> Address {
        self.address
    }

    pub(crate) fn users(&self) -> &Users {
        self.backing.users()
    }

    pub(crate) fn cuts(&self) -> &[Address] {
        &self.cuts
    }
}

fn copy(device: &Device, bytes: &[u8]) -> Outcome<Address> {
    let free = Machine::probe().available_bytes;
    // Pinning almost all memory hangs the machine instead of failing.
    if bytes.len() as u64 > free / 10 * 9 {
        let message = format!("{} bytes are needed and {free} are free", bytes.len());
        return Err(Failure { call: "cuMemHostAlloc", message, out_of_memory: true });
    }
    let address = device.driver().allocate_pinned(bytes.len())?;
    // SAFETY: both have this length, and the new memory is unshared.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, bytes.len()) };
    Ok(address)
}
