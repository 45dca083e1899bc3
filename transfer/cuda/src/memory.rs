//! Memory of the device, pinned memory of the host, and host memory that is pinned where it lies.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytemuck::Pod;
use morphgl_registry::Result;

use crate::driver::Address;
use crate::{Device, Stream};

/// A block out of a pool.
struct Block {
    address: Address,
    bytes: usize,
    /// Bit `i` says that stream `i` was given work on it.
    users: AtomicU64,
    device: Device,
    pinned: bool,
}

impl Drop for Block {
    fn drop(&mut self) {
        let pools = &self.device.inner().pools;
        let pool = if self.pinned { &pools.pinned } else { &pools.device };
        pools.give(self.device.driver(), pool, self.address, self.bytes, *self.users.get_mut());
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
        let taken = device.inner().pools.take_device(device.driver(), len * size_of::<T>(), stream.id());
        let (address, bytes) = taken.map_err(|e| device.error(&e))?;
        let users = AtomicU64::new(stream.bit());
        let block = Block { address, bytes, users, device: device.clone(), pinned: false };
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

    pub(crate) fn address(&self) -> Address {
        self.block.address
    }

    pub(crate) fn users(&self) -> &AtomicU64 {
        &self.block.users
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
        let taken = device.inner().pools.take_pinned(device.driver(), len * size_of::<T>());
        let (address, bytes) = taken.map_err(|e| device.error(&e))?;
        let block = Block { address, bytes, users: AtomicU64::new(0), device: device.clone(), pinned: true };
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

    pub(crate) fn users(&self) -> &AtomicU64 {
        &self.block.users
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

/// Host memory that the device reads where it lies: no copy, every access goes over the bus.
pub struct Mapped<T: Pod> {
    address: Address,
    len: usize,
    _registration: Arc<Registration>,
    of: PhantomData<T>,
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
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let registration = device.inner().registrations.get(device, owner, bytes)?;
        Ok(Self { address: registration.address, len: values.len(), _registration: registration, of: PhantomData })
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn address(&self) -> Address {
        self.address
    }
}

impl<T: Pod> fmt::Debug for Mapped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mapped({} of {})", self.len, std::any::type_name::<T>())
    }
}

/// What is pinned on a device.
#[derive(Default)]
pub(crate) struct Registrations(Mutex<Vec<Weak<Registration>>>);

struct Registration {
    pointer: *const u8,
    bytes: usize,
    address: Address,
    device: Device,
    _owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the pointer is only handed to the driver, whose functions may be called from any thread.
unsafe impl Send for Registration {}
// SAFETY: as above; nothing in it changes.
unsafe impl Sync for Registration {}

impl Registrations {
    fn get(&self, device: &Device, owner: Arc<dyn Any + Send + Sync>, bytes: &[u8]) -> Result<Arc<Registration>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|r| r.strong_count() > 0);
        let same = |r: &Arc<Registration>| r.pointer == bytes.as_ptr() && r.bytes == bytes.len();
        if let Some(known) = all.iter().filter_map(Weak::upgrade).find(same) {
            return Ok(known);
        }
        let (pointer, len) = (bytes.as_ptr(), bytes.len());
        // SAFETY: the caller of `Mapped::new` says that the owner keeps them, and the registration keeps the owner.
        let address = unsafe { device.driver().register(pointer, len) }.map_err(|e| device.error(&e))?;
        let (device, _owner) = (device.clone(), owner);
        let registration = Arc::new(Registration { pointer, bytes: len, address, device, _owner });
        all.push(Arc::downgrade(&registration));
        Ok(registration)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.device.driver().unregister(self.pointer);
    }
}

impl fmt::Debug for Registrations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Registrations")
    }
}

/// Says that a stream was given work on a block.
pub(crate) fn mark(users: &AtomicU64, stream: &Stream) {
    users.fetch_or(stream.bit(), Ordering::Relaxed);
}
