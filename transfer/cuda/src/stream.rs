//! Streams: queues of device work.

use std::sync::atomic::Ordering;

use morphgl_registry::Result;

use crate::device::Device;
use crate::driver::{Id, Outcome, Priority};

/// A queue of device work, executed in order. Only events order the work of two streams.
///
/// Functions return before their work is done, unless stated otherwise.
#[derive(Debug)]
pub struct Stream {
    device: Device,
    id: Id,
    number: u32,
}

impl Stream {
    /// Creates a stream: of high priority, whose blocks get multiprocessors first, or of the middle one.
    ///
    /// # Errors
    ///
    /// The driver creates none, or the device has 64 streams already.
    pub fn new(device: &Device, high_priority: bool) -> Result<Self> {
        Self::of(device, if high_priority { Priority::High } else { Priority::Normal })
    }

    /// Creates a stream of the lowest priority: its blocks get the multiprocessors that others leave idle.
    ///
    /// # Errors
    ///
    /// As [`Stream::new`].
    pub fn of_low_priority(device: &Device) -> Result<Self> {
        Self::of(device, Priority::Low)
    }

    fn of(device: &Device, priority: Priority) -> Result<Self> {
        let id = device.check(device.driver().new_stream(priority))?;
        let number = device.pools().add_stream(id).inspect_err(|_| device.driver().free_stream(id));
        Ok(Self { device: device.clone(), id, number: device.check(number)? })
    }

    /// Its device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) fn id(&self) -> Id {
        self.id
    }

    /// Mask of this stream in a set of streams.
    pub(crate) fn bit(&self) -> u64 {
        1 << self.number
    }

    pub(crate) fn check<T>(&self, outcome: Outcome<T>) -> Result<T> {
        self.device.check(outcome)
    }

    /// Waits until all work queued so far is done.
    pub fn synchronize(&self) -> Result<()> {
        self.device.inner().waits.fetch_add(1, Ordering::Relaxed);
        self.check(self.device.driver().synchronize(self.id))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // A failure has been reported already, or is by the next call of the device.
        let _ = self.device.driver().synchronize(self.id);
        self.device.pools().remove_stream(self.number);
        self.device.driver().free_stream(self.id);
    }
}
