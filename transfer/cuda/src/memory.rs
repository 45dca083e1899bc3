//! Pooled memory: device buffers and pinned host memory.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};

use bytemuck::Pod;
use morphgl_registry::Result;

use crate::device::Device;
use crate::driver::{Address, MemoryKind};
use crate::stream::Stream;

/// A block of a pool.
struct Block {
    address: Address,
    bytes: usize,
    /// Set of the streams that were given work on it, by stream number.
    users: AtomicU64,
    device: Device,
    kind: MemoryKind,
}

/// Streams that use memory; they belong to one device, whose pools order them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Users<'a> {
    /// Set of stream numbers.
    pub(crate) streams: &'a AtomicU64,
    pub(crate) device: &'a Device,
}

impl Users<'_> {
    /// Records that a stream was given work on the memory.
    ///
    /// # Panics
    ///
    /// When the stream belongs to another device.
    pub(crate) fn mark(self, stream: &Stream) {
        let (of, by) = (self.device, stream.device());
        assert!(
            of.is(by),
            "memory of {of:?} is given to work of {by:?}; spread it over both, or copy it through the host"
        );
        self.streams.fetch_or(stream.bit(), Ordering::Relaxed);
    }
}

impl Block {
    fn users(&self) -> Users<'_> {
        Users { streams: &self.users, device: &self.device }
    }

    /// Declares only the first `len` elements accessible.
    fn bound<T>(&self, len: usize) {
        self.device.driver().bound(self.address, len * size_of::<T>(), self.bytes);
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let pools = &self.device.inner().pools;
        pools.give(self.device.driver(), self.kind, self.address, self.bytes, *self.users.get_mut());
    }
}

/// An array in device memory, from the device's pool; initially uninitialised.
///
/// A drop returns it to the pool, whose next user waits, on the device, for all streams that used it. So it may be dropped
/// while work is in flight.
pub struct Buffer<T: Pod> {
    block: Block,
    len: usize,
    of: PhantomData<T>,
}

impl<T: Pod> Buffer<T> {
    /// Allocates `len` elements for work of `stream`; other streams must wait for an event of it.
    ///
    /// # Errors
    ///
    /// The device's memory is full.
    pub fn new(stream: &Stream, len: usize) -> Result<Self> {
        let device = stream.device();
        let taken = device.inner().pools.take_device(device.driver(), bytes_of::<T>(len), (stream.id(), stream.bit()));
        let (address, bytes) = taken.map_err(|e| device.error(&e))?;
        let users = AtomicU64::new(stream.bit());
        let block = Block { address, bytes, users, device: device.clone(), kind: MemoryKind::Device };
        block.bound::<T>(len);
        Ok(Self { block, len, of: PhantomData })
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Capacity in elements.
    pub fn capacity(&self) -> usize {
        self.block.bytes / size_of::<T>()
    }

    /// Sets the number of elements.
    ///
    /// # Panics
    ///
    /// When `len` exceeds the capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity(), "{len} elements in a buffer of {}", self.capacity());
        self.len = len;
        self.block.bound::<T>(len);
    }

    /// Forgets the streams that used it, so that the next user of its memory does not wait for their later work.
    ///
    /// # Safety
    ///
    /// All work on it is done: an event after it has happened.
    pub unsafe fn settle(&self) {
        self.block.users.store(0, Ordering::Relaxed);
    }

    /// Bytes of device memory, unused capacity included.
    pub fn num_bytes(&self) -> u64 {
        self.block.bytes as u64
    }

    /// Its device.
    pub fn device(&self) -> &Device {
        &self.block.device
    }

    /// Blocks until all streams that used it are done.
    pub(crate) fn finish(&self) -> Result<()> {
        let (device, users) = (self.device(), &self.block.users);
        let waited = device.inner().pools.wait_for(device.driver(), users.load(Ordering::Relaxed));
        waited.map_err(|e| device.error(&e))?;
        users.store(0, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn address(&self) -> Address {
        self.block.address
    }

    pub(crate) fn users(&self) -> Users<'_> {
        self.block.users()
    }
}

impl<T: Pod> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} of {} at {:?})", self.len, std::any::type_name::<T>(), self.block.device)
    }
}

/// An array in pinned host memory, from the device's pool; the device accesses it over the bus at full speed.
///
/// It dereferences to a slice. Access while a stream works on it reads or writes garbage: wait for an event first. It may be
/// dropped at any time.
pub struct Pinned<T: Pod> {
    block: Block,
    len: usize,
    of: PhantomData<T>,
}

impl<T: Pod> Pinned<T> {
    /// Allocates `len` elements with unspecified values.
    ///
    /// # Errors
    ///
    /// The driver refuses to page-lock that much.
    pub fn new(device: &Device, len: usize) -> Result<Self> {
        let taken = device.inner().pools.take_pinned(device.driver(), bytes_of::<T>(len));
        let (address, bytes) = taken.map_err(|e| device.error(&e))?;
        let block =
            Block { address, bytes, users: AtomicU64::new(0), device: device.clone(), kind: MemoryKind::Pinned };
        block.bound::<T>(len);
        Ok(Self { block, len, of: PhantomData })
    }

    /// Allocates a copy of `values`.
    ///
    /// # Errors
    ///
    /// As [`Pinned::new`].
    pub fn of(device: &Device, values: &[T]) -> Result<Self> {
        let mut pinned = Self::new(device, values.len())?;
        pinned.copy_from_slice(values);
        Ok(pinned)
    }

    /// Capacity in elements.
    pub fn capacity(&self) -> usize {
        self.block.bytes / size_of::<T>()
    }

    /// Sets the number of elements.
    ///
    /// # Panics
    ///
    /// When `len` exceeds the capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity(), "{len} elements in a buffer of {}", self.capacity());
        self.len = len;
        self.block.bound::<T>(len);
    }

    /// As [`Buffer::settle`].
    ///
    /// # Safety
    ///
    /// As there.
    pub unsafe fn settle(&self) {
        self.block.users.store(0, Ordering::Relaxed);
    }

    pub(crate) fn address(&self) -> Address {
        self.block.address
    }

    pub(crate) fn users(&self) -> Users<'_> {
        self.block.users()
    }
}

impl<T: Pod> Deref for Pinned<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the block is host memory of at least `len` elements, aligned for every Pod type; the driver clears
        // fresh memory, and every bit pattern is a value.
        unsafe { std::slice::from_raw_parts(self.block.address as *const T, self.len) }
    }
}

impl<T: Pod> DerefMut for Pinned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and the borrow is the only one on the host.
        unsafe { std::slice::from_raw_parts_mut(self.block.address as *mut T, self.len) }
    }
}

impl<T: Pod> fmt::Debug for Pinned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pinned({} of {})", self.len, std::any::type_name::<T>())
    }
}

/// Bytes of `len` elements; saturates.
fn bytes_of<T>(len: usize) -> usize {
    len.saturating_mul(size_of::<T>())
}
