//! Buffers of a device: their growth, and the check of their capacity.

use bytemuck::Pod;
use morphgl_cuda::{Buffer, Stream};
use morphgl_registry::Result;

/// Asserts that a buffer has the capacity for what a kernel may write.
#[track_caller]
pub(crate) fn check_len<T: Pod>(buffer: &Buffer<T>, elements: u64) {
    assert!(buffer.len() as u64 >= elements, "{elements} elements in a buffer of {}", buffer.len());
}

/// Grows `buffer` to at least `len` elements, preserving the first `preserved`.
pub(crate) fn grow<T: Pod>(stream: &Stream, buffer: &mut Buffer<T>, len: u64, preserved: u64) -> Result<()> {
    if (buffer.len() as u64) < len {
        let mut grown = Buffer::new(stream, len as usize)?;
        stream.copy(buffer, 0..buffer.len().min(preserved as usize), &mut grown, 0)?;
        *buffer = grown;
    }
    Ok(())
}
