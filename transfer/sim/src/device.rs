//! A simulated device: place, configuration or description, resources and memory.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use morphgl_registry::{BatchId, Error, Hardware, Key, Place, Resource, Result};

use crate::memory::Memory;
use crate::resources::{Closed, Resources, Statistics, Stop};
use crate::{Config, DeviceDescription, FaultKind, MachineDescription, Work};

/// What a transfer occupies of the device that it reads from.
static LINKS: Hardware = Hardware::new(&[Resource::PEER]);

/// A handle to a simulated device. Clones refer to the same device.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

struct Inner {
    place: Place,
    config: Config,
    /// The machine that the device is of, where it is described; its time is then virtual.
    machine: Option<MachineDescription>,
    is_virtual: bool,
    resources: Resources,
    memory: Arc<Memory>,
}

/// An operation on a device.
#[derive(Debug, Clone, Copy)]
pub struct Operation<'a> {
    /// The operator; its hardware determines the occupied resources.
    pub key: &'a Key,
    /// The work, which determines duration and failure.
    pub work: Work,
    /// The mini-batch.
    pub id: BatchId,
    /// Part of the configured duration that it takes: 1, or less where a part of the work is left out. Not read on a described
    /// machine, where the operator computes its seconds.
    pub part: f64,
}

impl Operation<'_> {
    fn error(&self, message: String) -> Error {
        Error::failed(format!("{}, {}", self.key, self.id), message)
    }
}

impl Device {
    /// A new, unshared device at `place`.
    pub fn new(place: Place, config: Config) -> Self {
        Self::of(place, config, None)
    }

    /// The device at `place` of a described machine, or its host. **Its time is virtual:** an operation returns when its real work
    /// is done, with the seconds that the description says it takes. Its memory holds any number of mini-batches: a plan keeps to
    /// the bytes that are described.
    pub fn described(place: Place, machine: MachineDescription) -> Self {
        Self::of(place, Config::instant(usize::MAX), Some(machine))
    }

    /// A new, unshared device at `place` in virtual time: an operation returns when its real work is done, with its configured
    /// duration.
    pub fn in_virtual_time(place: Place, config: Config) -> Self {
        Self::with_time(place, config, None, true)
    }

    fn of(place: Place, config: Config, machine: Option<MachineDescription>) -> Self {
        let is_virtual = machine.is_some();
        Self::with_time(place, config, machine, is_virtual)
    }

    fn with_time(place: Place, config: Config, machine: Option<MachineDescription>, is_virtual: bool) -> Self {
        let memory = Arc::new(Memory::new(config.memory));
        Self(Arc::new(Inner { place, config, machine, is_virtual, resources: Resources::default(), memory }))
    }

    /// The process-wide device of this place and configuration, shared while any handle exists, so that operators that are
    /// built separately meet on one device.
    pub fn shared(place: Place, config: Config) -> Self {
        Self::find_or_make(place, config, None)
    }

    /// As [`Device::shared`], of a described machine.
    pub fn shared_described(place: Place, machine: MachineDescription) -> Self {
        Self::find_or_make(place, Config::instant(usize::MAX), Some(machine))
    }

    fn find_or_make(place: Place, config: Config, machine: Option<MachineDescription>) -> Self {
        static DEVICES: Mutex<Vec<Weak<Inner>>> = Mutex::new(Vec::new());
        let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
        devices.retain(|device| device.strong_count() > 0);
        let is_it = |d: &Arc<Inner>| d.place == place && d.config == config && d.machine == machine;
        if let Some(inner) = devices.iter().filter_map(Weak::upgrade).find(is_it) {
            return Self(inner);
        }
        let device = Self::of(place, config, machine);
        devices.push(Arc::downgrade(&device.0));
        device
    }

    /// Its place.
    pub fn place(&self) -> &Place {
        &self.0.place
    }

    /// Its configuration.
    pub fn config(&self) -> &Config {
        &self.0.config
    }

    /// Whether its time is virtual: that of a described machine, or as it was made ([`Device::in_virtual_time`]).
    pub fn is_virtual(&self) -> bool {
        self.0.is_virtual
    }

    /// Seconds by the description of the machine, and of this device of it; 0 where durations are configured.
    ///
    /// # Panics
    ///
    /// When it is the host of a machine: [`Device::host_seconds`].
    pub fn seconds(&self, of: impl FnOnce(&MachineDescription, &DeviceDescription) -> f64) -> f64 {
        let own = |machine| of(machine, machine.device(self.place()).expect("the place of a described device"));
        self.0.machine.as_ref().map_or(0.0, own)
    }

    /// Seconds by the description of the machine; 0 where durations are configured.
    pub fn host_seconds(&self, of: impl FnOnce(&MachineDescription) -> f64) -> f64 {
        self.0.machine.as_ref().map_or(0.0, of)
    }

    /// The machine, where it is described.
    pub fn machine(&self) -> Option<&MachineDescription> {
        self.0.machine.as_ref()
    }

    /// Whether both handles refer to the same device.
    pub fn is(&self, other: &Device) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Usage of resources and memory so far, without operations in flight.
    pub fn statistics(&self) -> Statistics {
        let (([pcie, sim, peer], hanging), (memory_used, memory_peak)) =
            (self.0.resources.uses(), self.0.memory.used());
        Statistics { pcie, sim, peer, memory_used, memory_peak, hanging }
    }

    /// Ends all operations that hang now ([`FaultKind::Hang`], [`Statistics::hanging`]); each of them fails. Later ones still
    /// hang.
    pub fn release(&self) {
        self.0.resources.release();
    }

    /// Runs `run` while it occupies the resources of the operator's hardware, for the configured duration or as long as `run`
    /// takes, whichever is longer.
    ///
    /// It waits for the resources in order of arrival, returns the time they were occupied, and releases them at once if `run`
    /// fails. Resources that are not the device's, such as the CPU, are not waited for.
    ///
    /// # Errors
    ///
    /// The configured fault, or the error of `run`.
    ///
    /// # Panics
    ///
    /// By [`FaultKind::Panic`], or when `run` does.
    pub fn operate<T>(&self, operation: Operation<'_>, run: impl FnOnce() -> Result<T>) -> Result<(T, Duration)> {
        self.operate_costing(operation, || Ok((run()?, 0.0)))
    }

    /// As [`Device::operate`]. Besides its result, `run` returns the seconds that it takes on a described machine
    /// ([`Device::seconds`]).
    ///
    /// # Errors
    ///
    /// As [`Device::operate`].
    ///
    /// # Panics
    ///
    /// As [`Device::operate`].
    pub fn operate_costing<T>(
        &self,
        operation: Operation<'_>,
        run: impl FnOnce() -> Result<(T, f64)>,
    ) -> Result<(T, Duration)> {
        self.operate_until(operation, None, &Stop::default(), run)
    }

    /// [`Device::operate`], which also occupies the links of the device that it reads `from`.
    pub(crate) fn operate_until<T>(
        &self,
        operation: Operation<'_>,
        from: Option<&Device>,
        stop: &Stop,
        run: impl FnOnce() -> Result<(T, f64)>,
    ) -> Result<(T, Duration)> {
        let Operation { key, work, id, part } = operation;
        let closed = |Closed| operation.error("the operator was dropped before this was done".to_string());
        // In the order of places, so that transfers in opposite directions do not wait for each other.
        let mut devices: Vec<&Device> = from.into_iter().chain([self]).collect();
        devices.sort_by(|a, b| a.place().cmp(b.place()));
        let held = devices.into_iter().map(|device| {
            let hardware = if device.is(self) { &key.hardware } else { &LINKS };
            device.0.resources.acquire(hardware, stop).map_err(closed)
        });
        let held = held.collect::<Result<Vec<_>>>()?;
        let since = held.iter().map(|guard| guard.since).max().expect("its own resources");
        self.fail(operation, stop)?;
        let (value, seconds) = run()?;
        if self.0.machine.is_some() {
            // What is longer than 500 years is that.
            return Ok((value, Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)));
        }
        let duration = self.config().duration(work, id).mul_f64(part);
        if self.is_virtual() {
            return Ok((value, duration));
        }
        self.0.resources.sleep_until(since + duration, stop).map_err(closed)?;
        Ok((value, since.elapsed()))
    }

    /// Injects the configured fault.
    fn fail(&self, operation: Operation<'_>, stop: &Stop) -> Result<()> {
        let Operation { key, work, id, .. } = operation;
        match self.config().fault(work, id) {
            None => Ok(()),
            Some(FaultKind::Error) => Err(operation.error(format!("simulated error of {work}"))),
            Some(FaultKind::Panic) => panic!("simulated panic of {key} at {id}"),
            Some(FaultKind::Memory) => Err(self.memory().full(key, id)),
            Some(FaultKind::Hang) => {
                let end = if self.0.resources.hang(stop).is_ok() { "was let go" } else { "ended with its operator" };
                Err(operation.error(format!("simulated hang of {work}, which {end}")))
            }
        }
    }

    pub(crate) fn memory(&self) -> &Arc<Memory> {
        &self.0.memory
    }

    pub(crate) fn close(&self, stop: &Stop) {
        self.0.resources.close(stop);
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.machine {
            Some(machine) => write!(f, "simulated device at {} ({})", self.place(), machine.name),
            None => write!(f, "simulated device at {} ({})", self.place(), self.config()),
        }
    }
}
