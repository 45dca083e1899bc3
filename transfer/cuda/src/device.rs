//! Devices: shared handles, properties, memory queries.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use morphgl_registry::{Error, Key, Place, Result};

use crate::driver::{Driver, Failure, Outcome};
use crate::lock::lock;
use crate::pool::Pools;

/// A handle to a device, opened for an operator that every error names. Clones refer to the same device.
#[derive(Clone)]
pub struct Device {
    inner: Arc<Inner>,
    operator: Key,
}

pub(crate) struct Inner {
    place: Place,
    pools: Pools,
    pub(crate) waits: AtomicU64,
    pub(crate) launches: AtomicU64,
}

impl Inner {
    fn new(index: u32, driver: Box<dyn Driver>, limit: Option<u64>) -> Arc<Self> {
        let place = Place::Device { backend: crate::BACKEND.into(), index };
        let (waits, launches) = Default::default();
        Arc::new(Self { place, pools: Pools::new(driver, limit), waits, launches })
    }
}

/// Static properties of a device.
#[derive(Debug, Clone, PartialEq)]
pub struct Properties {
    /// Name reported by the driver.
    pub name: String,
    /// Number of multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of memory, or the limit of `MORPHGL_CUDA_MEMORY` if lower.
    pub memory_bytes: u64,
}

/// Counters of a device since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statistics {
    /// Driver allocations of device and pinned memory; a steady state adds none.
    pub allocations: u64,
    /// Waits of host threads for unfinished work, by event or stream.
    pub waits: u64,
    /// Kernel launches and GEMMs queued by the host.
    pub launches: u64,
}

/// Counters of a device so far.
pub fn statistics(device: &Device) -> Statistics {
    let inner = device.inner();
    Statistics {
        allocations: inner.pools.allocations.load(Ordering::Relaxed),
        waits: inner.waits.load(Ordering::Relaxed),
        launches: inner.launches.load(Ordering::Relaxed),
    }
}

impl Device {
    /// Opens the device at `place` for `operator`. All handles of the process share one device while any exists, so that
    /// operators that are built separately share its memory pools.
    ///
    /// # Errors
    ///
    /// `place` is no CUDA device, or the driver cannot open it.
    pub fn open(place: &Place, operator: &Key) -> Result<Self> {
        static DEVICES: Mutex<Vec<Weak<Inner>>> = Mutex::new(Vec::new());
        let index = match place {
            Place::Device { backend, index } if backend == crate::BACKEND => *index,
            other => {
                return Err(Error::setting(operator, format!("it runs on CUDA devices, not at {other}; give cuda:0")));
            }
        };
        let mut devices = lock(&DEVICES);
        devices.retain(|device| device.strong_count() > 0);
        let inner = match devices.iter().filter_map(Weak::upgrade).find(|device| device.place == *place) {
            Some(inner) => inner,
            None => {
                let limit = crate::pool::limit().map_err(|message| Error::setting(operator, message))?;
                let driver = crate::probe::open(index).map_err(|e| Error::failed(operator, e.to_string()))?;
                let inner = Inner::new(index, driver, limit);
                devices.push(Arc::downgrade(&inner));
                inner
            }
        };
        Ok(Self { inner, operator: operator.clone() })
    }

    /// An unshared device over a driver, with a memory limit.
    #[cfg(all(test, feature = "emulate"))]
    pub(crate) fn over(driver: impl Driver + 'static, limit: Option<u64>, operator: &Key) -> Self {
        let inner = Inner::new(driver.peer().device as u32, Box::new(driver), limit);
        Self { inner, operator: operator.clone() }
    }

    /// Its place.
    pub fn place(&self) -> &Place {
        &self.inner.place
    }

    pub(crate) fn operator(&self) -> &Key {
        &self.operator
    }

    /// Its properties.
    pub fn properties(&self) -> Result<Properties> {
        let [_, memory_bytes] = self.check(self.driver().memory())?;
        let (name, multiprocessors) = (self.driver().name(), self.driver().multiprocessors());
        let memory_bytes = self.inner.pools.limit.map_or(memory_bytes, |limit| memory_bytes.min(limit));
        Ok(Properties { name, multiprocessors, memory_bytes })
    }

    /// Whether this device has peer access to the memory of `other`, as [`crate::ShardedBuffer`] needs: over NVLink or the
    /// bus. Every device can access its own.
    pub fn reaches(&self, other: &Device) -> Result<bool> {
        Ok(self.is(other) || self.check_peer(other, self.driver().can_access(other.driver().peer()))?)
    }

    pub(crate) fn reach(&self, other: &Device) -> Result<()> {
        if self.is(other) {
            return Ok(());
        }
        self.check_peer(other, self.driver().enable_access(other.driver().peer()))
    }

    /// [`Device::check`] with a message that names both devices.
    fn check_peer<T>(&self, other: &Device, outcome: Outcome<T>) -> Result<T> {
        let subject = format_args!("{} reads the memory of {}", self.place(), other.place());
        self.check(outcome.map_err(|failure| failure.about(subject)))
    }

    /// Allocatable bytes of device memory: unallocated ones and idle blocks of the pool.
    pub fn free_bytes(&self) -> Result<u64> {
        Ok(self.unallocated_bytes()? + self.inner.pools.idle_bytes())
    }

    /// Unallocated bytes of device memory: those the driver reports free, within this process's limit. For long-lived
    /// allocations, made after temporary ones have filled the pool.
    pub fn unallocated_bytes(&self) -> Result<u64> {
        let [free, _] = self.check(self.driver().memory())?;
        Ok(self.inner.pools.unallocated_bytes(free))
    }

    /// Whether both handles refer to the same device.
    pub fn is(&self, other: &Device) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    pub(crate) fn driver(&self) -> &dyn Driver {
        self.inner.pools.driver.as_ref()
    }

    pub(crate) fn pools(&self) -> &Pools {
        &self.inner.pools
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }

    /// Runs driver calls, and leaves the calling thread's current context as it was.
    pub(crate) fn keeping_context<T>(&self, calls: impl FnOnce() -> T) -> T {
        let before = self.driver().current_context();
        let value = calls();
        self.driver().set_current_context(before);
        value
    }

    /// The outcome of a driver call as a result whose error names the operator.
    pub(crate) fn check<T>(&self, outcome: Outcome<T>) -> Result<T> {
        outcome.map_err(|failure| self.error(&failure))
    }

    pub(crate) fn error(&self, failure: &Failure) -> Error {
        Error::failed(&self.operator, failure.to_string())
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.place(), self.driver().name())
    }
}
