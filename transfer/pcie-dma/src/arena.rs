//! Bump allocator for a mini-batch's arrays in pinned memory.

use bytemuck::Pod;
use morphgl_cuda::{Buffer, Device, Pinned, Stream};
use morphgl_registry::Result;

/// Alignment of arrays: the copy engine is fastest from aligned lines.
const ALIGNMENT: usize = 256;

/// Pinned memory, filled from the beginning.
pub(crate) struct Arena {
    bytes: Pinned<u8>,
    used: usize,
}

impl Arena {
    /// Allocates memory for arrays of the given sizes in bytes.
    pub(crate) fn new(device: &Device, sizes: impl Iterator<Item = usize>) -> Result<Self> {
        let capacity = sizes.map(|size| size.next_multiple_of(ALIGNMENT)).sum();
        Ok(Self { bytes: Pinned::new(device, capacity)?, used: 0 })
    }

    /// Stages `values` and queues their copy to the device.
    pub(crate) fn send<T: Pod>(&mut self, stream: &Stream, values: &[T]) -> Result<Buffer<T>> {
        self.send_with(stream, values.len(), |staged| staged.copy_from_slice(values))
    }

    /// [`Arena::send`] of `len` elements written by `write`.
    pub(crate) fn send_with<T: Pod>(
        &mut self,
        stream: &Stream,
        len: usize,
        write: impl FnOnce(&mut [T]),
    ) -> Result<Buffer<T>> {
        let range = self.used..self.used + len * size_of::<T>();
        self.used = range.end.next_multiple_of(ALIGNMENT);
        write(bytemuck::cast_slice_mut(&mut self.bytes[range.clone()]));
        let mut buffer = Buffer::new(stream, len)?;
        stream.copy_bytes(&self.bytes, range, &mut buffer)?;
        Ok(buffer)
    }
}
