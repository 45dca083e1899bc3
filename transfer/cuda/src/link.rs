//! Copies of mini-batches from one device to another.

use bytemuck::Pod;
use morphgl_registry::{BatchId, Error, Result};

use crate::copied::{CopyArrays, copy_batch};
use crate::{Buffer, CudaBatch, CudaRows, Device, Pinned, Stream};

/// Alignment of arrays in pinned memory.
const ALIGNMENT: usize = 256;

/// The way of mini-batches from one device to another: by peer access, or through pinned host memory.
///
/// A copy is work of a stream of the device that it goes to. It comes after the mini-batch's `ready` event, and what the device
/// that it comes from does with the mini-batch's memory later comes after the copy: nothing waits on the host.
#[derive(Debug)]
pub struct DeviceLink {
    /// Of the device that mini-batches come from.
    source: Stream,
    /// Of the device that they go to.
    target: Stream,
    direct: bool,
}

impl DeviceLink {
    /// A link from one device to another: by peer access where `to` has access to the memory of `from` and `through_host` is not
    /// set.
    ///
    /// # Panics
    ///
    /// When both are the same device.
    pub fn new(from: &Device, to: &Device, through_host: bool) -> Result<Self> {
        assert!(!from.is(to), "a link has two ends, and both are {from:?}");
        let direct = !through_host && to.reaches(from)?;
        if direct {
            to.reach(from)?;
        }
        Ok(Self { source: Stream::new(from, true)?, target: Stream::new(to, true)?, direct })
    }

    /// Whether copies are by peer access.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// The device that mini-batches come from.
    pub fn source(&self) -> &Device {
        self.source.device()
    }

    /// The stream of the copies, of the device that mini-batches go to.
    pub fn stream(&self) -> &Stream {
        &self.target
    }

    /// Queues the copy of a mini-batch after its `ready` event; returns also the number of bytes. The mini-batch may be dropped at
    /// once.
    ///
    /// # Errors
    ///
    /// The memory of the device that it goes to, or pinned memory, is full.
    ///
    /// # Panics
    ///
    /// When the mini-batch is not on the link's first device.
    pub fn send(&self, batch: &CudaBatch) -> Result<(CudaBatch, u64)> {
        assert!(self.source().is(&batch.device), "a mini-batch on {:?} leaves {:?}", batch.device, self.source());
        self.target.wait(&batch.ready)?;
        let staged = match self.direct {
            true => None,
            false => {
                self.source.wait(&batch.ready)?;
                let capacity = batch.memory().map(|block| block.len().next_multiple_of(ALIGNMENT)).sum();
                Some(Pinned::new(self.source(), capacity)?)
            }
        };
        let mut copies = Copies { link: self, staged, used: 0, num_bytes: 0 };
        let sent = copy_batch(&mut copies, batch).and_then(|sent| {
            self.source.wait(&sent.ready)?;
            Ok(sent)
        });
        let sent = sent.inspect_err(|_| {
            // What was queued until then uses memory that is dropped now.
            [&self.source, &self.target].into_iter().for_each(|stream| drop(stream.synchronize()));
        })?;
        // The source's stream has waited for the copy: memory that it used is free after that.
        batch.memory().for_each(|block| block.users().mark(&self.source));
        let Copies { staged, num_bytes, .. } = copies;
        staged.iter().for_each(|staged| staged.users().mark(&self.source));
        Ok((sent, num_bytes))
    }
}

/// The copies of one mini-batch.
struct Copies<'a> {
    link: &'a DeviceLink,
    /// Pinned memory for all arrays, where they go through the host.
    staged: Option<Pinned<u8>>,
    used: usize,
    num_bytes: u64,
}

impl CopyArrays for Copies<'_> {
    fn stream(&self) -> &Stream {
        &self.link.target
    }

    fn rows(&mut self, id: BatchId, rows: &CudaRows) -> Result<CudaRows> {
        match rows {
            CudaRows::Packed(bytes) => Ok(CudaRows::Packed(self.array(bytes)?)),
            CudaRows::OfNodes(_) => {
                let message = "its features are rows of a table on the device; copy it before they are filled in";
                Err(Error::setting(id, message))
            }
        }
    }

    fn array<T: Pod>(&mut self, from: &Buffer<T>) -> Result<Buffer<T>> {
        let DeviceLink { source, target, .. } = self.link;
        let to = Buffer::new(target, from.len())?;
        let bytes = from.len() * size_of::<T>();
        if bytes == 0 {
            return Ok(to);
        }
        self.num_bytes += bytes as u64;
        let mut at = from.address();
        if let Some(staged) = &self.staged {
            at = staged.address() + self.used as u64;
            self.used += bytes.next_multiple_of(ALIGNMENT);
            // SAFETY: the pinned memory has room for every array, and both ranges return to their pools after the copy: see
            // `DeviceLink::send`.
            source.check(unsafe { source.device().driver().copy(source.id(), from.address(), at, bytes) })?;
            target.wait(&source.record(false)?)?;
        }
        // SAFETY: the buffer is as long, and both ranges return to their pools after the copy, as above; the target has access to the
        // source's memory where none is staged.
        target.check(unsafe { target.device().driver().copy(target.id(), at, to.address(), bytes) })?;
        Ok(to)
    }
}

#[cfg(all(test, feature = "emulate"))]
mod tests;
