//! Memory of the device, pinned memory of the host, and host memory that is pinned where it lies.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};

use bytemuck::Pod;
use morphgl_registry::Result;

use crate::device::Device;
use crate::driver::Address;
use crate::pool::Kind;
use crate::stream::Stream;

/// A block out of a pool.
struct Block {
    address: Address,
    bytes: usize,
    /// Bit `i` says that stream `i` was given work on it.
    users: AtomicU64,
    device: Device,
    kind: Kind,
}

/// Who uses memory: streams of one device, which alone can be told to wait for each other by its pools.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Users<'a> {
    /// Bit `i` says that stream `i` was given work on it.
    pub(crate) streams: &'a AtomicU64,
    pub(crate) device: &'a Device,
}

impl Users<'_> {
    /// Says that a stream was given work on the memory.
    ///
    /// # Panics
    ///
    /// When it is a stream of another device.
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

    /// Says that only `len` elements of it may be touched.
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

/// Device memory of `len` elements, out of the device's pool. Its content is what was left there.
///
/// When it is dropped, it goes back to the pool; who takes it from there waits, on the device, for all work that
/// streams were given on it. So it may be dropped while such work is under way.
pub struct Buffer<T: Pod> {
    block: Block,
    len: usize,
    of: PhantomData<T>,
}

impl<T: Pod> Buffer<T> {
    /// Room for `len` elements, to be used by work of `stream`; work of other streams has to wait for an event of it.
    ///
    /// # Errors
    ///
    /// The device's memory is full.
    pub fn new(stream: &Stream, len: usize) -> Result<Self> {
        let device = stream.device();
        let taken = device.inner().pools.take_device(device.driver(), bytes_of::<T>(len), (stream.id(), stream.bit()));
        let (address, bytes) = taken.map_err(|e| device.error(&e))?;
        let users = AtomicU64::new(stream.bit());
        let block = Block { address, bytes, users, device: device.clone(), kind: Kind::Device };
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

    /// Elements there is room for.
    pub fn capacity(&self) -> usize {
        self.block.bytes / size_of::<T>()
    }

    /// Says that it has `len` elements from now on.
    ///
    /// # Panics
    ///
    /// When there is no room for them.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity(), "{len} elements in a buffer of {}", self.capacity());
        self.len = len;
        self.block.bound::<T>(len);
    }

    /// Forgets the work that streams were given on it so far: who takes its memory next does not wait for these streams,
    /// which may have been given other work since.
    ///
    /// # Safety
    ///
    /// That work is done: an event after it has happened.
    pub unsafe fn settle(&self) {
        self.block.users.store(0, Ordering::Relaxed);
    }

    /// Bytes of the device's memory that it takes, unused room included.
    pub fn num_bytes(&self) -> u64 {
        self.block.bytes as u64
    }

    /// The device whose memory it is.
    pub fn device(&self) -> &Device {
        &self.block.device
    }

    /// Waits, asleep, for all work that streams were given on it.
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

/// Pinned memory of the host, out of the device's pool: a device reads and writes it over the bus, at full speed.
///
/// It is a slice to the host. Who touches it while a stream still works on it reads or makes garbage, so wait for an
/// event first; dropping it is safe at any time.
pub struct Pinned<T: Pod> {
    block: Block,
    len: usize,
    of: PhantomData<T>,
}

impl<T: Pod> Pinned<T> {
    /// Room for `len` elements, whose content is what was left there.
    ///
    /// # Errors
    ///
    /// The driver refuses to page-lock so much.
    pub fn new(device: &Device, len: usize) -> Result<Self> {
        let taken = device.inner().pools.take_pinned(device.driver(), bytes_of::<T>(len));
        let (address, bytes) = taken.map_err(|e| device.error(&e))?;
        let block = Block { address, bytes, users: AtomicU64::new(0), device: device.clone(), kind: Kind::Pinned };
        block.bound::<T>(len);
        Ok(Self { block, len, of: PhantomData })
    }

    /// A copy of `values`.
    ///
    /// # Errors
    ///
    /// As [`Pinned::new`].
    pub fn of(device: &Device, values: &[T]) -> Result<Self> {
        let mut pinned = Self::new(device, values.len())?;
        pinned.copy_from_slice(values);
        Ok(pinned)
    }

    /// Elements there is room for.
    pub fn capacity(&self) -> usize {
        self.block.bytes / size_of::<T>()
    }

    /// Says that it has `len` elements from now on.
    ///
    /// # Panics
    ///
    /// When there is no room for them.
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

/// Bytes of `len` elements, or so many that no memory has them.
fn bytes_of<T>(len: usize) -> usize {
    len.saturating_mul(size_of::<T>())
}
