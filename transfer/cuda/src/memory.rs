//! Pooled memory: device buffers and pinned host memory.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};

use bytemuck::Pod;
use morphgl_registry::Result;

use crate::driver::{Address, MemoryKind};
use crate::{Device, Stream};

/// Streams that were given work on memory; they belong to one device, whose pools order them.
#[derive(Debug)]
pub(crate) struct Users {
    streams: AtomicU64,
    device: Device,
}

impl Users {
    fn new(device: &Device, streams: u64) -> Self {
        Self { streams: AtomicU64::new(streams), device: device.clone() }
    }

    /// Records that a stream was given work on the memory.
    ///
    /// # Panics
    ///
    /// When the stream belongs to another device.
    pub(crate) fn mark(&self, stream: &Stream) {
        let (of, by) = (&self.device, stream.device());
        assert!(
            of.is(by),
            "memory of {of:?} is given to work of {by:?}; shard it over both, or copy it through the host"
        );
        self.streams.fetch_or(stream.bit(), Ordering::Relaxed);
    }

    /// Blocks until the work of all of them is done.
    pub(crate) fn wait(&self) -> Result<()> {
        self.device.check(self.device.pools().wait_for(self.streams.load(Ordering::Relaxed)))?;
        self.streams.store(0, Ordering::Relaxed);
        Ok(())
    }
}

/// A block of a pool, of which the first `len` bytes are in use.
#[derive(Debug)]
pub(crate) struct Block {
    address: Address,
    capacity: usize,
    len: usize,
    kind: MemoryKind,
    users: Users,
}

impl Block {
    fn new(users: Users, kind: MemoryKind, (address, capacity): (Address, usize), len: usize) -> Self {
        let mut block = Self { address, capacity, len, kind, users };
        block.set_len(len);
        block
    }

    /// Declares only the first `len` bytes accessible.
    fn set_len(&mut self, len: usize) {
        self.len = len;
        self.users.device.driver().bound(self.address, len, self.capacity);
    }

    /// Bytes in use.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of the block, unused capacity included.
    pub(crate) fn num_bytes(&self) -> u64 {
        self.capacity as u64
    }

    pub(crate) fn users(&self) -> &Users {
        &self.users
    }

    /// # Safety
    ///
    /// All work on it is done: an event after it has happened.
    pub(crate) unsafe fn settle(&self) {
        self.users.streams.store(0, Ordering::Relaxed);
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let users = *self.users.streams.get_mut();
        self.users.device.pools().release(self.kind, self.address, self.capacity, users);
    }
}

/// Methods that both kinds of memory have.
macro_rules! block_methods {
    ($type:ident) => {
        impl<T: Pod> $type<T> {
            /// Capacity in elements.
            pub fn capacity(&self) -> usize {
                self.0.capacity / size_of::<T>()
            }

            /// Sets the number of elements.
            ///
            /// # Panics
            ///
            /// When `len` exceeds the capacity.
            pub fn set_len(&mut self, len: usize) {
                assert!(len <= self.capacity(), "{len} elements in a buffer of {}", self.capacity());
                self.0.set_len(len * size_of::<T>());
            }

            /// Forgets the streams that used it, so that the next user of its memory does not wait for their later work.
            ///
            /// # Safety
            ///
            /// All work on it is done: an event after it has happened.
            pub unsafe fn settle(&self) {
                // SAFETY: the caller's promise.
                unsafe { self.0.settle() }
            }

            pub(crate) fn address(&self) -> Address {
                self.0.address
            }

            pub(crate) fn users(&self) -> &Users {
                &self.0.users
            }
        }
    };
}
block_methods!(Buffer);
block_methods!(Pinned);

/// An array in device memory, from the device's pool; initially uninitialised.
///
/// A drop returns it to the pool, whose next user waits, on the device, for all streams that used it. So it may be dropped
/// while work is in flight.
#[derive(Debug)]
pub struct Buffer<T: Pod>(Block, PhantomData<T>);

impl<T: Pod> Buffer<T> {
    /// Allocates `len` elements for work of `stream`; other streams must wait for an event of it.
    ///
    /// # Errors
    ///
    /// The device's memory is full.
    pub fn new(stream: &Stream, len: usize) -> Result<Self> {
        let (device, bytes) = (stream.device(), bytes_of::<T>(len));
        let block = device.check(device.pools().take_device(bytes, stream.id()))?;
        Ok(Self(Block::new(Users::new(device, stream.bit()), MemoryKind::Device, block, bytes), PhantomData))
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.0.len / size_of::<T>()
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// Bytes of device memory, unused capacity included.
    pub fn num_bytes(&self) -> u64 {
        self.0.num_bytes()
    }

    /// Its device.
    pub fn device(&self) -> &Device {
        &self.0.users.device
    }

    pub(crate) fn block(&self) -> &Block {
        &self.0
    }
}

/// An array in pinned host memory, from the device's pool; the device accesses it over the bus at full speed.
///
/// It dereferences to a slice. Access while a stream works on it reads or writes garbage: wait for an event first. It may be
/// dropped at any time.
#[derive(Debug)]
pub struct Pinned<T: Pod>(Block, PhantomData<T>);

impl<T: Pod> Pinned<T> {
    /// Allocates `len` elements with unspecified values.
    ///
    /// # Errors
    ///
    /// The driver refuses to page-lock that much.
    pub fn new(device: &Device, len: usize) -> Result<Self> {
        let bytes = bytes_of::<T>(len);
        let block = device.check(device.pools().take_pinned(bytes))?;
        Ok(Self(Block::new(Users::new(device, 0), MemoryKind::Pinned, block, bytes), PhantomData))
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
}

impl<T: Pod> Deref for Pinned<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the block is host memory of at least `len` bytes, aligned for every Pod type; the driver clears fresh
        // memory, and every bit pattern is a value.
        unsafe { std::slice::from_raw_parts(self.0.address as *const T, self.0.len / size_of::<T>()) }
    }
}

impl<T: Pod> DerefMut for Pinned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and the borrow is the only one on the host.
        unsafe { std::slice::from_raw_parts_mut(self.0.address as *mut T, self.0.len / size_of::<T>()) }
    }
}

/// Memory that is released only after the streams that used it.
#[derive(Debug)]
pub(crate) struct Guarded<B> {
    /// `Some` until the drop.
    backing: Option<B>,
    users: Users,
}

impl<B> Guarded<B> {
    pub(crate) fn new(device: &Device, backing: B) -> Self {
        Self { backing: Some(backing), users: Users::new(device, 0) }
    }

    pub(crate) fn users(&self) -> &Users {
        &self.users
    }

    pub(crate) fn get(&self) -> &B {
        self.backing.as_ref().expect("the backing exists until the drop")
    }
}

impl<B> Drop for Guarded<B> {
    fn drop(&mut self) {
        if self.users.wait().is_err() {
            // The device is in error and may still read: the memory is leaked.
            std::mem::forget(self.backing.take());
        }
    }
}

/// Bytes of `len` elements; saturates.
fn bytes_of<T>(len: usize) -> usize {
    len.saturating_mul(size_of::<T>())
}
