//! Devices.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use morphgl_registry::{Error, Key, Place, Result};

use crate::driver::{Driver, Failure, Outcome};
use crate::pool::Pools;

/// A handle to a device, with the operator it was given to, which every error names. Clones are the same device.
#[derive(Clone)]
pub struct Device {
    inner: Arc<Inner>,
    operator: Key,
}

pub(crate) struct Inner {
    place: Place,
    pub(crate) driver: Box<dyn Driver>,
    pub(crate) pools: Pools,
    /// See [`Statistics::waits`].
    pub(crate) waits: AtomicU64,
    /// See [`Statistics::launches`].
    pub(crate) launches: AtomicU64,
}

/// What a device is.
#[derive(Debug, Clone, PartialEq)]
pub struct Properties {
    /// Its name, as its driver says it.
    pub name: String,
    /// Its multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of its memory, as far as they may be taken.
    pub memory_bytes: u64,
}

/// What a device was asked for so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statistics {
    /// Times that memory was asked of the driver, device and pinned memory together: a steady state adds none.
    pub allocations: u64,
    /// Times that a host thread waited for work that was still to be done, by an event or by a stream.
    pub waits: u64,
    /// Kernels and matrix products that streams were given by the host; those of a captured graph count once.
    pub launches: u64,
}

/// What a device was asked for so far.
pub fn statistics(device: &Device) -> Statistics {
    let inner = device.inner();
    Statistics {
        allocations: device.allocations(),
        waits: inner.waits.load(Ordering::Relaxed),
        launches: inner.launches.load(Ordering::Relaxed),
    }
}

impl Device {
    /// The device at `place`, for `operator`: one for all of this process who ask while anybody has it.
    /// That is how operators that are built apart share memory.
    ///
    /// # Errors
    ///
    /// `place` is no CUDA device, or the driver does not give it.
    pub fn open(place: &Place, operator: &Key) -> Result<Self> {
        static DEVICES: Mutex<Vec<Weak<Inner>>> = Mutex::new(Vec::new());
        let index = match place {
            Place::Device { backend, index } if backend == crate::BACKEND => *index,
            other => {
                return Err(Error::setting(operator, format!("it runs on CUDA devices, not at {other}; give cuda:0")));
            }
        };
        let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
        devices.retain(|device| device.strong_count() > 0);
        let known = devices.iter().filter_map(Weak::upgrade).find(|d| d.place == *place);
        let inner = match known {
            Some(inner) => inner,
            None => {
                let limit = crate::pool::limit().map_err(|what| Error::setting(operator, what))?;
                let driver = crate::probe::open(index).map_err(|e| Error::failed(operator, e.to_string()))?;
                let inner = Arc::new(Inner {
                    place: place.clone(),
                    driver,
                    pools: Pools::within(limit),
                    waits: AtomicU64::new(0),
                    launches: AtomicU64::new(0),
                });
                devices.push(Arc::downgrade(&inner));
                inner
            }
        };
        Ok(Self { inner, operator: operator.clone() })
    }

    /// A device of its own over a driver, of whose memory so many bytes may be taken.
    #[cfg(all(test, feature = "emulate"))]
    pub(crate) fn over(driver: impl Driver + 'static, limit: Option<u64>, operator: &Key) -> Self {
        let index = driver.peer().device as u32;
        let place = Place::Device { backend: crate::BACKEND.into(), index };
        let [waits, launches] = [(); 2].map(|()| AtomicU64::new(0));
        let inner = Inner { place, driver: Box::new(driver), pools: Pools::within(limit), waits, launches };
        Self { inner: Arc::new(inner), operator: operator.clone() }
    }

    /// Where it is.
    pub fn place(&self) -> &Place {
        &self.inner.place
    }

    /// The operator that has this handle.
    pub fn operator(&self) -> &Key {
        &self.operator
    }

    /// What it is.
    ///
    /// # Errors
    ///
    /// The driver does not say.
    pub fn properties(&self) -> Result<Properties> {
        let [_, memory_bytes] = self.check(self.driver().memory())?;
        let (name, multiprocessors) = (self.driver().name(), self.driver().multiprocessors());
        let memory_bytes = self.inner.pools.limit.map_or(memory_bytes, |most| memory_bytes.min(most));
        Ok(Properties { name, multiprocessors, memory_bytes })
    }

    /// Whether work of this device can read the memory of `other` where it lies, as [`crate::Spread`] has it do: over
    /// NVLink, or over the bus. Every device reads its own.
    ///
    /// # Errors
    ///
    /// The driver does not say.
    pub fn reaches(&self, other: &Device) -> Result<bool> {
        if self.is(other) {
            return Ok(true);
        }
        self.driver().can_access(other.driver().peer()).map_err(|e| self.error(&e.of(self.reading(other))))
    }

    /// Lets work of this device read the memory of `other`.
    pub(crate) fn reach(&self, other: &Device) -> Result<()> {
        if self.is(other) {
            return Ok(());
        }
        self.driver().enable_access(other.driver().peer()).map_err(|e| self.error(&e.of(self.reading(other))))
    }

    fn reading(&self, other: &Device) -> String {
        format!("{} reads the memory of {}", self.place(), other.place())
    }

    /// Bytes of device memory that can still be taken: what nobody has taken yet, and what buffers left behind.
    ///
    /// # Errors
    ///
    /// The driver does not say.
    pub fn free_bytes(&self) -> Result<u64> {
        Ok(self.untaken_bytes()? + self.inner.pools.device.idle_bytes())
    }

    /// Bytes of device memory that nobody has taken yet: what the driver says is free, as far as this process may take it.
    /// For what stays, when all else that comes and goes has been there.
    ///
    /// # Errors
    ///
    /// The driver does not say.
    pub fn untaken_bytes(&self) -> Result<u64> {
        let [free, _] = self.check(self.driver().memory())?;
        Ok(self.inner.pools.untaken_bytes(free))
    }

    /// Blocks of device and pinned memory that the driver was asked for so far: in a steady state no more of them.
    pub fn allocations(&self) -> u64 {
        self.inner.pools.asked.load(Ordering::Relaxed)
    }

    /// Whether both are handles to the same device.
    pub fn is(&self, other: &Device) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    pub(crate) fn driver(&self) -> &dyn Driver {
        self.inner.driver.as_ref()
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }

    /// The outcome of a driver call as a result whose error names the operator.
    pub(crate) fn check<T>(&self, outcome: Outcome<T>) -> Result<T> {
        outcome.map_err(|failure| self.error(&failure))
    }

    pub(crate) fn error(&self, failure: &Failure) -> Error {
        Error::failed(&self.operator, failure.to_string())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.pools.clear(self.driver.as_ref());
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.inner.place, self.inner.driver.name())
    }
}
