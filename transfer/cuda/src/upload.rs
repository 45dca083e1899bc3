//! Whole arrays between host slices and device memory, through small pinned pieces.

use bytemuck::Pod;
use morphgl_registry::Result;

use crate::memory::{Buffer, Pinned};
use crate::{Event, Stream};

/// Bytes of a pinned piece, so that an array of any length pins little memory.
const PIECE: usize = 4 << 20;

/// An array under upload, piece by piece.
#[derive(Debug)]
pub struct Upload<'a, T: Pod> {
    stream: &'a Stream,
    to: Buffer<T>,
    /// Elements whose copy is queued.
    sent: usize,
    /// The piece being filled, and the elements in it.
    piece: Pinned<T>,
    filled: usize,
    /// The other piece, with the event after its copy; none before the first one.
    copying: Option<(Pinned<T>, Event)>,
}

impl<'a, T: Pod> Upload<'a, T> {
    /// Allocates device memory for `len` elements, and a pinned piece.
    ///
    /// # Errors
    ///
    /// The device's memory or pinned memory is full.
    pub fn new(stream: &'a Stream, len: usize) -> Result<Self> {
        Self::to(stream, Buffer::new(stream, len)?)
    }

    /// As [`Upload::new`], to a whole buffer that exists.
    fn to(stream: &'a Stream, to: Buffer<T>) -> Result<Self> {
        let len = to.len();
        let piece = Pinned::new(stream.device(), len.min(PIECE / size_of::<T>()))?;
        Ok(Self { stream, to, sent: 0, piece, filled: 0, copying: None })
    }

    /// Appends elements; waits for the copy of earlier ones when both pieces are in use.
    ///
    /// # Errors
    ///
    /// Pinned memory is full, or the driver fails.
    ///
    /// # Panics
    ///
    /// When there are more elements than announced.
    pub fn push(&mut self, mut values: &[T]) -> Result<()> {
        let pushed = self.sent + self.filled + values.len();
        assert!(pushed <= self.to.len(), "{pushed} elements of {} announced", self.to.len());
        while !values.is_empty() {
            if self.filled == self.piece.len() {
                self.send()?;
                let copied = self.stream.record(false)?;
                let free = match self.copying.take() {
                    Some((piece, copied)) => copied.synchronize().map(|()| piece)?,
                    None => Pinned::new(self.stream.device(), self.piece.len())?,
                };
                self.copying = Some((std::mem::replace(&mut self.piece, free), copied));
            }
            let (head, rest) = values.split_at(values.len().min(self.piece.len() - self.filled));
            self.piece[self.filled..][..head.len()].copy_from_slice(head);
            self.filled += head.len();
            values = rest;
        }
        Ok(())
    }

    fn send(&mut self) -> Result<()> {
        self.stream.copy(&self.piece, 0..self.filled, &mut self.to, self.sent)?;
        self.sent += self.filled;
        self.filled = 0;
        Ok(())
    }

    /// The array, complete when the stream's work is done.
    ///
    /// # Panics
    ///
    /// When fewer elements were pushed than announced.
    pub fn finish(mut self) -> Result<Buffer<T>> {
        self.send()?;
        assert_eq!(self.sent, self.to.len(), "pushed elements and elements of the array");
        Ok(self.to)
    }
}

impl<T: Pod> Buffer<T> {
    /// Uploads `values` to a new buffer, complete when the stream's work is done.
    ///
    /// # Errors
    ///
    /// Memory is full, or the driver fails.
    pub fn of(stream: &Stream, values: &[T]) -> Result<Self> {
        let mut upload = Upload::new(stream, values.len())?;
        upload.push(values)?;
        upload.finish()
    }

    /// Replaces its content by `values`, after the stream's earlier work and complete when the stream's work is done; in other memory
    /// only where they exceed the capacity.
    ///
    /// # Errors
    ///
    /// As [`Buffer::of`]; the buffer is then empty.
    pub fn replace(&mut self, stream: &Stream, values: &[T]) -> Result<()> {
        let mut to = std::mem::replace(self, Self::new(stream, 0)?);
        if values.len() <= to.capacity() {
            to.set_len(values.len());
        } else {
            // The memory of the old content may serve for the new one.
            drop(to);
            to = Self::new(stream, values.len())?;
        }
        let mut upload = Upload::to(stream, to)?;
        upload.push(values)?;
        *self = upload.finish()?;
        Ok(())
    }

    /// Downloads the content after the stream's earlier work, and waits for it.
    ///
    /// # Errors
    ///
    /// Memory is full, or the stream's work failed.
    pub fn to_vec(&self, stream: &Stream) -> Result<Vec<T>> {
        let mut values = Vec::with_capacity(self.len());
        let mut piece = Pinned::new(stream.device(), self.len().min(PIECE / size_of::<T>()))?;
        while values.len() < self.len() {
            let end = self.len().min(values.len() + piece.len());
            let len = end - values.len();
            stream.copy(self, values.len()..end, &mut piece, 0)?;
            stream.synchronize()?;
            values.extend_from_slice(&piece[..len]);
        }
        Ok(values)
    }
}
