//! Arrays in parts on several devices, read by one of them.

use std::sync::Arc;

use bytemuck::Pod;
use morphgl_registry::Result;

use crate::driver::Address;
use crate::memory::{Buffer, Guarded, Users};
use crate::stream::Stream;

/// Read-only buffers on several devices, read in place by kernels of one device by peer access. As a kernel argument it is
/// an array of the parts' addresses.
///
/// Dropping it waits for the work of its readers. Each part returns to the memory of its device when nothing else shares the parts.
#[derive(Debug)]
pub struct ShardedBuffer<T: Pod>(Guarded<Shards<T>>);

#[derive(Debug)]
struct Shards<T: Pod> {
    addresses: Buffer<u64>,
    parts: Arc<[Buffer<T>]>,
}

impl<T: Pod> ShardedBuffer<T> {
    /// Makes `parts`, which several readers may share, readable by the stream's device. Blocks until pending work on the parts is done, so that readers need no
    /// event of it.
    ///
    /// # Errors
    ///
    /// The device has no access to a part ([`crate::Device::reaches`]), work on a part failed, or memory is full.
    pub fn new(stream: &Stream, parts: impl Into<Arc<[Buffer<T>]>>) -> Result<Self> {
        let (reader, parts) = (stream.device(), parts.into());
        for part in parts.iter() {
            reader.reach(part.device())?;
            part.users().wait()?;
        }
        let addresses = Buffer::of(stream, &parts.iter().map(Buffer::address).collect::<Vec<Address>>())?;
        addresses.users().wait()?;
        Ok(Self(Guarded::new(reader, Shards { addresses, parts })))
    }

    /// The parts.
    pub fn parts(&self) -> &[Buffer<T>] {
        &self.0.get().parts
    }

    /// Bytes of the reader's memory: its own part, and the addresses of all, unused capacity included.
    pub fn num_bytes(&self) -> u64 {
        let Shards { addresses, parts } = self.0.get();
        let own = parts.iter().filter(|part| part.device().is(addresses.device()));
        addresses.num_bytes() + own.map(Buffer::num_bytes).sum::<u64>()
    }

    pub(crate) fn address(&self) -> Address {
        self.0.get().addresses.address()
    }

    /// The streams that were given work on the addresses.
    pub(crate) fn users(&self) -> &Users {
        self.0.users()
    }
}

#[cfg(all(test, feature = "emulate"))]
mod tests;
