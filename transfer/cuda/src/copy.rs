//! Copies between host and device, and fills.

use std::ops::Range;

use bytemuck::Pod;
use morphgl_registry::Result;

use crate::driver::Address;
use crate::memory::{Buffer, Pinned, Users};
use crate::{Mapped, Stream};

/// Memory that a copy can read.
///
/// # Safety
///
/// The span covers bytes that stay valid until the work of the streams in `users` is done.
pub unsafe trait Readable<T: Pod> {
    /// Its address range.
    fn span(&self) -> Span<'_>;
}

/// Memory that a copy can write.
///
/// # Safety
///
/// As [`Readable`], and a unique borrow permits writing to it.
pub unsafe trait Writable<T: Pod>: Readable<T> {}

/// Address range of memory, with the streams that use it.
#[derive(Debug)]
pub struct Span<'a> {
    address: Address,
    bytes: usize,
    users: &'a Users,
    /// Interior addresses that no single copy may cross.
    cuts: &'a [Address],
}

macro_rules! readable {
    ($type:ident, |$memory:ident| $cuts:expr) => {
        // SAFETY: pooled blocks are reused, and mapped pages unpinned, only after the work of their users.
        unsafe impl<T: Pod> Readable<T> for $type<T> {
            fn span(&self) -> Span<'_> {
                let $memory = self;
                let bytes = self.len() * size_of::<T>();
                Span { address: self.address(), bytes, users: self.users(), cuts: $cuts }
            }
        }
    };
}
readable!(Buffer, |_buffer| &[]);
readable!(Pinned, |_pinned| &[]);
readable!(Mapped, |mapped| mapped.cuts());
// SAFETY: a buffer owns its block.
unsafe impl<T: Pod> Writable<T> for Buffer<T> {}
// SAFETY: as above.
unsafe impl<T: Pod> Writable<T> for Pinned<T> {}

impl Stream {
    /// Copies elements `range` of `from` to `to`, beginning at its element `at`.
    ///
    /// # Panics
    ///
    /// When either range is out of bounds, or memory belongs to another device.
    pub fn copy<T: Pod>(
        &self,
        from: &impl Readable<T>,
        range: Range<usize>,
        to: &mut impl Writable<T>,
        at: usize,
    ) -> Result<()> {
        let bytes = |elements: usize| elements.saturating_mul(size_of::<T>());
        self.copy_spans(from.span(), bytes(range.start)..bytes(range.end), to.span(), bytes(at))
    }

    /// Copies bytes `range` of `from` to the beginning of `to`, whatever its element type.
    ///
    /// # Panics
    ///
    /// As [`Stream::copy`].
    pub fn copy_bytes<T: Pod>(
        &self,
        from: &impl Readable<u8>,
        range: Range<usize>,
        to: &mut impl Writable<T>,
    ) -> Result<()> {
        self.copy_spans(from.span(), range, to.span(), 0)
    }

    /// Copies bytes `range` of a span to byte `at` of another one.
    fn copy_spans(&self, from: Span<'_>, range: Range<usize>, to: Span<'_>, at: usize) -> Result<()> {
        assert!(range.start <= range.end && range.end <= from.bytes, "bytes {range:?} of {}", from.bytes);
        assert!(range.len() <= to.bytes.saturating_sub(at), "{} bytes from {at} on of {}", range.len(), to.bytes);
        if range.is_empty() {
            return Ok(());
        }
        [from.users, to.users].into_iter().for_each(|users| users.mark(self));
        let (mut source, mut target) = (from.address + range.start as u64, to.address + at as u64);
        let end = source + range.len() as u64;
        // Drivers refuse a copy across separately registered pieces of host memory.
        let first = from.cuts.partition_point(|cut| *cut <= source);
        for upto in from.cuts[first..].iter().copied().take_while(|cut| *cut < end).chain([end]) {
            let bytes = upto - source;
            // SAFETY: both ranges lie in memory that returns to its pool, or is unpinned, after the stream's work.
            self.check(unsafe { self.device().driver().copy(self.id(), source, target, bytes as usize) })?;
            (source, target) = (upto, target + bytes);
        }
        Ok(())
    }

    /// Fills a buffer with a byte.
    pub fn fill<T: Pod>(&self, buffer: &mut Buffer<T>, byte: u8) -> Result<()> {
        if buffer.is_empty() {
            return Ok(());
        }
        buffer.users().mark(self);
        let bytes = buffer.len() * size_of::<T>();
        // SAFETY: the buffer returns to its pool only after the stream's work.
        self.check(unsafe { self.device().driver().fill(self.id(), buffer.address(), byte, bytes) })
    }
}
