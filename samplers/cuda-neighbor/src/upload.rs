//! Arrays of any length to the device and back, through two pieces of pinned memory.

use bytemuck::Pod;
use morphgl_cuda::{Buffer, Event, Pinned, Stream};
use morphgl_registry::Result;

/// Bytes of a piece.
const PIECE: usize = 4 << 20;

/// An array that is being copied to the device.
#[derive(Debug)]
pub(crate) struct Upload<'a, T: Pod> {
    stream: &'a Stream,
    to: Buffer<T>,
    /// Elements that are on their way.
    sent: usize,
    /// The pieces, the current one first, each with the event after which it is free.
    pieces: [(Pinned<T>, Option<Event>); 2],
    filled: usize,
}

impl<'a, T: Pod> Upload<'a, T> {
    /// Takes memory for `len` elements.
    pub(crate) fn new(stream: &'a Stream, len: usize) -> Result<Self> {
        let piece = || -> Result<_> { Ok((Pinned::new(stream.device(), len.min(PIECE / size_of::<T>()))?, None)) };
        Ok(Self { stream, to: Buffer::new(stream, len)?, sent: 0, pieces: [piece()?, piece()?], filled: 0 })
    }

    /// Appends elements.
    ///
    /// # Panics
    ///
    /// When there are more than it was made for.
    pub(crate) fn push(&mut self, mut values: &[T]) -> Result<()> {
        while !values.is_empty() {
            let piece = &mut self.pieces[0].0;
            let taken = values.len().min(piece.len() - self.filled);
            piece[self.filled..self.filled + taken].copy_from_slice(&values[..taken]);
            self.filled += taken;
            values = &values[taken..];
            if self.filled == self.pieces[0].0.len() {
                self.send()?;
            }
        }
        Ok(())
    }

    fn send(&mut self) -> Result<()> {
        let (piece, free) = &mut self.pieces[0];
        self.stream.copy(piece, 0..self.filled, &mut self.to, self.sent)?;
        *free = Some(self.stream.record(false)?);
        self.sent += self.filled;
        self.filled = 0;
        self.pieces.swap(0, 1);
        if let Some(free) = self.pieces[0].1.take() {
            free.synchronize()?;
        }
        Ok(())
    }

    /// The array, whole when the stream's work is done.
    pub(crate) fn finish(mut self) -> Result<Buffer<T>> {
        if self.filled > 0 {
            self.send()?;
        }
        assert_eq!(self.sent, self.to.len(), "elements that were given and elements of the array");
        Ok(self.to)
    }
}

/// Copies all of `values`.
pub(crate) fn upload<T: Pod>(stream: &Stream, values: &[T]) -> Result<Buffer<T>> {
    let mut upload = Upload::new(stream, values.len())?;
    upload.push(values)?;
    upload.finish()
}

/// Copies all of `buffer` back, and waits for it.
pub(crate) fn download<T: Pod>(stream: &Stream, buffer: &Buffer<T>) -> Result<Vec<T>> {
    let mut values = Vec::with_capacity(buffer.len());
    let mut piece = Pinned::new(stream.device(), buffer.len().min(PIECE / size_of::<T>()))?;
    while values.len() < buffer.len() {
        let end = buffer.len().min(values.len() + piece.len());
        let len = end - values.len();
        stream.copy(buffer, values.len()..end, &mut piece, 0)?;
        stream.synchronize()?;
        values.extend_from_slice(&piece[..len]);
    }
    Ok(values)
}
