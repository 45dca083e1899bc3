//! Streams of other libraries in the process, torch's for one, whose work reads memory of ours.

use morphgl_registry::Result;

use crate::driver::Id;
use crate::{Device, Event, Stream};

/// A stream of another library on a device, by its handle in the driver (`CUstream`); 1 and 2 are the default streams of the process and
/// of the calling thread.
///
/// Calls leave the calling thread's current context as it was, which is how such libraries know their device.
#[derive(Debug, Clone)]
pub struct ForeignStream {
    device: Device,
    id: Id,
}

impl ForeignStream {
    /// The stream of this handle.
    ///
    /// # Safety
    ///
    /// It is a stream of the device's primary context, and is not destroyed while this or a clone of it is in use.
    pub unsafe fn new(device: &Device, handle: u64) -> Self {
        Self { device: device.clone(), id: handle }
    }

    /// Whether both are the same stream.
    pub fn is(&self, other: &Self) -> bool {
        self.device.is(&other.device) && self.id == other.id
    }

    /// Orders its later work after the event.
    pub fn wait(&self, event: &Event) -> Result<()> {
        self.device.keeping_context(|| self.device.check(self.device.driver().wait(self.id, event.id())))
    }

    /// Orders later work of `stream` after all work of this one so far.
    pub fn precede(&self, stream: &Stream) -> Result<()> {
        self.device.keeping_context(|| stream.wait(&Event::of(&self.device, self.id, false)?))
    }
}
