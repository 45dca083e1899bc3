//! Pooled memory: device buffers and pinned host memory.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};

use bytemuck::Pod;
use morphgl_registry::Result;

use crate::driver::{Address, MemoryKind};
use crate::{Device, Stream};

/// An array in a block of a pool.
struct Block<T: Pod> {
    address: Address,
    bytes: usize,
    len: usize,
    /// Set of the streams that were given work on it, by stream number.
    users: AtomicU64,
    device: Device,
    kind: MemoryKind,
    of: PhantomData<T>,
}

/// Streams that use memory; they belong to one device, whose pools order them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Users<'a> {
    /// Set of stream numbers.
    streams: &'a AtomicU64,
    device: &'a Device,
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

impl<T: Pod> Block<T> {
    fn new(device: &Device, kind: MemoryKind, (address, bytes): (Address, usize), len: usize, users: u64) -> Self {
        let (device, users) = (device.clone(), AtomicU64::new(users));
        let block = Self { address, bytes, len, users, device, kind, of: PhantomData };
        block.bound();
        block
    }

    /// Declares only the first `len` elements accessible.
    fn bound(&self) {
        self.device.driver().bound(self.address, self.len * size_of::<T>(), self.bytes);
    }
}

impl<T: Pod> Drop for Block<T> {
    fn drop(&mut self) {
        let pools = &self.device.inner().pools;
        pools.give(self.device.driver(), self.kind, self.address, self.bytes, *self.users.get_mut());
    }
}

/// Methods that both kinds of memory have.
macro_rules! block_methods {
    ($type:ident) => {
        impl<T: Pod> $type<T> {
            /// Capacity in elements.
            pub fn capacity(&self) -> usize {
                self.0.bytes / size_of::<T>()
            }

            /// Sets the number of elements.
            ///
            /// # Panics
            ///
            /// When `len` exceeds the capacity.
            pub fn set_len(&mut self, len: usize) {
                assert!(len <= self.capacity(), "{len} elements in a buffer of {}", self.capacity());
                self.0.len = len;
                self.0.bound();
            }

            /// Forgets the streams that used it, so that the next user of its memory does not wait for their later work.
            ///
            /// # Safety
            ///
            /// All work on it is done: an event after it has happened.
            pub unsafe fn settle(&self) {
                self.0.users.store(0, Ordering::Relaxed);
            }

            pub(crate) fn address(&self) -> Address {
                self.0.address
            }

            pub(crate) fn users(&self) -> Users<'_> {
                Users { streams: &self.0.users, device: &self.0.device }
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
pub struct Buffer<T: Pod>(Block<T>);

impl<T: Pod> Buffer<T> {
    /// Allocates `len` elements for work of `stream`; other streams must wait for an event of it.
    ///
    /// # Errors
    ///
    /// The device's memory is full.
    pub fn new(stream: &Stream, len: usize) -> Result<Self> {
        let device = stream.device();
        let taken = device.inner().pools.take_device(device.driver(), bytes_of::<T>(len), (stream.id(), stream.bit()));
        Ok(Self(Block::new(device, MemoryKind::Device, device.check(taken)?, len, stream.bit())))
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// Bytes of device memory, unused capacity included.
    pub fn num_bytes(&self) -> u64 {
        self.0.bytes as u64
    }

    /// Its device.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Blocks until all streams that used it are done.
    pub(crate) fn finish(&self) -> Result<()> {
        let (device, users) = (self.device(), &self.0.users);
        let waited = device.inner().pools.wait_for(device.driver(), users.load(Ordering::Relaxed));
        device.check(waited)?;
        users.store(0, Ordering::Relaxed);
        Ok(())
    }
}

impl<T: Pod> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} of {} at {:?})", self.0.len, std::any::type_name::<T>(), self.0.device)
    }
}

/// An array in pinned host memory, from the device's pool; the device accesses it over the bus at full speed.
///
/// It dereferences to a slice. Access while a stream works on it reads or writes garbage: wait for an event first. It may be
/// dropped at any time.
pub struct Pinned<T: Pod>(Block<T>);

impl<T: Pod> Pinned<T> {
    /// Allocates `len` elements with unspecified values.
    ///
    /// # Errors
    ///
    /// The driver refuses to page-lock that much.
    pub fn new(device: &Device, len: usize) -> Result<Self> {
        let taken = device.inner().pools.take_pinned(device.driver(), bytes_of::<T>(len));
        Ok(Self(Block::new(device, MemoryKind::Pinned, device.check(taken)?, len, 0)))
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
        // SAFETY: the block is host memory of at least `len` elements, aligned for every Pod type; the driver clears
        // fresh memory, and every bit pattern is a value.
        unsafe { std::slice::from_raw_parts(self.0.address as *const T, self.0.len) }
    }
}

impl<T: Pod> DerefMut for Pinned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and the borrow is the only one on the host.
        unsafe { std::slice::from_raw_parts_mut(self.0.address as *mut T, self.0.len) }
    }
}

impl<T: Pod> fmt::Debug for Pinned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pinned({} of {})", self.0.len, std::any::type_name::<T>())
    }
}

/// Memory that is released only after the streams that used it.
pub(crate) struct Guarded<B> {
    /// `Some` until the drop.
    backing: Option<B>,
    users: AtomicU64,
    device: Device,
}

impl<B> Guarded<B> {
    pub(crate) fn new(device: &Device, backing: B) -> Self {
        Self { backing: Some(backing), users: AtomicU64::new(0), device: device.clone() }
    }

    pub(crate) fn users(&self) -> Users<'_> {
        Users { streams: &self.users, device: &self.device }
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }
}

impl<B> Deref for Guarded<B> {
    type Target = B;

    fn deref(&self) -> &B {
        self.backing.as_ref().expect("it is there until the drop")
    }
}

impl<B> Drop for Guarded<B> {
    fn drop(&mut self) {
        let users = *self.users.get_mut();
        if self.device.inner().pools.wait_for(self.device.driver(), users).is_err() {
            // The device is in error and may still read: the memory is leaked.
            std::mem::forget(self.backing.take());
        }
    }
}

/// Bytes of `len` elements; saturates.
fn bytes_of<T>(len: usize) -> usize {
    len.saturating_mul(size_of::<T>())
}
