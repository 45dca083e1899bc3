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

/// Ways to allocate host memory that a device reads in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostMemory {
    /// Page-locked memory (`cuMemHostAlloc`).
    PageLocked,
    /// Memory of the NUMA node nearest the device (`cuMemCreate`), mapped in pages of the granularity that the driver states:
    /// 2 MiB where page-locked memory may have 4 KiB. Needs driver 535 (CUDA 12.2) or later.
    OnNode,
}

/// An allocation of host memory.
struct HostBlock {
    address: Address,
    bytes: usize,
    memory: HostMemory,
    device: Device,
}

impl HostBlock {
    fn new(device: &Device, memory: HostMemory, bytes: usize) -> Outcome<Self> {
        let free = Machine::probe().available_bytes;
        // Pinning almost all memory hangs the machine instead of failing.
        if bytes as u64 > free / 10 * 9 {
            let call = if memory == HostMemory::OnNode { "cuMemCreate" } else { "cuMemHostAlloc" };
            let message = format!("{bytes} bytes are needed and {free} are free");
            return Err(Failure { call, message, out_of_memory: true });
        }
        let (address, bytes) = match memory {
            HostMemory::PageLocked => (device.driver().allocate_pinned(bytes)?, bytes),
            HostMemory::OnNode => device.driver().allocate_on_node(bytes)?,
        };
        Ok(Self { address, bytes, memory, device: device.clone() })
    }
}

impl Drop for HostBlock {
    fn drop(&mut self) {
        match self.memory {
            HostMemory::PageLocked => self.device.driver().free_pinned(self.address),
            HostMemory::OnNode => self.device.driver().free_on_node(self.address, self.bytes),
        }
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
        let block = HostBlock::new(device, HostMemory::PageLocked, bytes.len());
        let block = device.check(block.map_err(|failure| Failure {
            message: format!("{} for a copy, as pinning in place failed: {refused}", failure.message),
            ..failure
        }))?;
        // SAFETY: both have this length, and the new memory is unshared.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), block.address as *mut u8, bytes.len()) };
        Ok(Self { refused: Some(refused), ..Self::of_block(device, block, values.len()) })
    }

    /// Allocates `len` zeros in host memory of a kind, which `fill` overwrites.
    ///
    /// # Errors
    ///
    /// There is no such memory, or the driver has none of this kind.
    pub fn allocate(device: &Device, memory: HostMemory, len: usize, fill: impl FnOnce(&mut [T])) -> Result<Self> {
        if len == 0 {
            // SAFETY: an empty slice has no memory that the device could read.
            return device.check(unsafe { Self::in_place(device, Arc::new(()), &[]) });
        }
        let block = device.check(HostBlock::new(device, memory, len.saturating_mul(size_of::<T>())))?;
        // SAFETY: the block is unshared host memory of at least this length, aligned to pages; it is cleared, and zeros are a
        // value of every Pod type.
        fill(unsafe { std::slice::from_raw_parts_mut(block.address as *mut T, len) });
        Ok(Self::of_block(device, block, len))
    }

    fn of_block(device: &Device, block: HostBlock, len: usize) -> Self {
        let (address, backing) = (block.address, Guarded::new(device, Box::new(block) as _));
        Self { address, len, refused: None, cuts: Vec::new(), backing, of: PhantomData }
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

    /// The address at which the device reads it.
    pub fn address(&self) -> Address {
        self.address
    }

    pub(crate) fn users(&self) -> &Users {
        self.backing.users()
    }

    pub(crate) fn cuts(&self) -> &[Address] {
        &self.cuts
    }
}
