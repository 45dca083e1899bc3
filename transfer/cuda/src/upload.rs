//! Whole arrays between host slices and device memory, through small pinned pieces.

use std::collections::VecDeque;

use bytemuck::Pod;
use morphgl_registry::Result;

use crate::memory::{Buffer, Pinned};
use crate::{Event, Stream};

/// Bytes of a pinned piece, so that an array of any length pins little memory.
const PIECE: usize = 4 << 20;
/// Pieces of an upload: one is filled while the other is copied.
const PIECES: usize = 2;

/// An array under upload, piece by piece.
#[derive(Debug)]
pub struct Upload<'a, T: Pod> {
    stream: &'a Stream,
    to: Buffer<T>,
    /// Elements whose copy is queued.
    sent: usize,
    /// The piece being filled, and the elements in it.
    piece: Option<Pinned<T>>,
    filled: usize,
    /// Pieces being copied, the oldest first, each with the event after which it is free.
    in_flight: VecDeque<(Pinned<T>, Event)>,
}

impl<'a, T: Pod> Upload<'a, T> {
    /// Allocates device memory for `len` elements.
    ///
    /// # Errors
    ///
    /// The device's memory is full.
    pub fn new(stream: &'a Stream, len: usize) -> Result<Self> {
        let to = Buffer::new(stream, len)?;
        Ok(Self { stream, to, sent: 0, piece: None, filled: 0, in_flight: VecDeque::new() })
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
        while !values.is_empty() {
            let mut piece = match self.piece.take() {
                Some(piece) => piece,
                None => self.free_piece()?,
            };
            let taken = values.len().min(piece.len() - self.filled);
            piece[self.filled..self.filled + taken].copy_from_slice(&values[..taken]);
            self.filled += taken;
            values = &values[taken..];
            if self.filled == piece.len() {
                self.send(&piece)?;
                self.in_flight.push_back((piece, self.stream.record(false)?));
            } else {
                self.piece = Some(piece);
            }
        }
        Ok(())
    }

    fn free_piece(&mut self) -> Result<Pinned<T>> {
        if self.in_flight.len() < PIECES {
            return Pinned::new(self.stream.device(), self.to.len().min(PIECE / size_of::<T>()));
        }
        let (piece, copied) = self.in_flight.pop_front().expect("two pieces are in flight");
        copied.synchronize()?;
        Ok(piece)
    }

    fn send(&mut self, piece: &Pinned<T>) -> Result<()> {
        self.stream.copy(piece, 0..self.filled, &mut self.to, self.sent)?;
        self.sent += self.filled;
        self.filled = 0;
        Ok(())
    }

    /// The array, complete when the stream's work is done.
    ///
    /// # Errors
    ///
    /// The driver fails.
    ///
    /// # Panics
    ///
    /// When fewer elements were pushed than announced.
    pub fn finish(mut self) -> Result<Buffer<T>> {
        if let Some(last) = self.piece.take() {
            self.send(&last)?;
        }
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
