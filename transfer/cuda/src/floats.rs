//! Parts of device memory as matrices: what operators use that keep many in one buffer.

use std::ops::Range;

use morphgl_registry::Result;

use crate::driver::{Address, Product};
use crate::memory::Users;
use crate::{Argument, Buffer, Stream, Transpose};

/// Floats in device memory: a buffer's, or some of them.
#[derive(Debug, Clone, Copy)]
pub struct Floats<'a> {
    address: Address,
    len: usize,
    users: Users<'a>,
}

impl<'a> Floats<'a> {
    /// All of a buffer's.
    pub fn of(buffer: &'a Buffer<f32>) -> Self {
        Self { address: buffer.address(), len: buffer.len(), users: buffer.users() }
    }

    /// A buffer's bytes as floats: buffers are aligned for every type.
    pub fn of_bytes(buffer: &'a Buffer<u8>) -> Self {
        Self { address: buffer.address(), len: buffer.len() / size_of::<f32>(), users: buffer.users() }
    }

    /// Some of them.
    ///
    /// # Panics
    ///
    /// When there are not so many.
    pub fn part(self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {} floats", self.len);
        Self { address: self.address + (range.start * size_of::<f32>()) as u64, len: range.len(), ..self }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<'a> From<Floats<'a>> for Argument<'a> {
    fn from(floats: Floats<'a>) -> Self {
        crate::arguments::address(floats.address, Some(floats.users))
    }
}

impl Stream {
    /// [`Stream::multiply`] with matrices that are parts of buffers; `out` overlaps neither factor.
    ///
    /// # Errors
    ///
    /// As [`Stream::multiply`].
    ///
    /// # Panics
    ///
    /// When a matrix is longer than its part.
    pub fn multiply_parts(
        &self,
        [m, n, k]: [usize; 3],
        (a, transpose_a): (Floats<'_>, Transpose),
        (b, transpose_b): (Floats<'_>, Transpose),
        out: Floats<'_>,
        (alpha, beta): (f32, f32),
    ) -> Result<()> {
        assert!(m * k <= a.len && k * n <= b.len && m * n <= out.len, "matrices of {m} x {k} x {n} elements");
        if m == 0 || n == 0 {
            return Ok(());
        }
        [a.users, b.users, out.users].into_iter().for_each(|users| users.mark(self));
        let driver = self.device().driver();
        let done = if k == 0 {
            assert!(beta == 0.0, "a product of no depth replaces its output");
            // SAFETY: the output lies in its buffer, which goes back to its pool only after the stream's work.
            unsafe { driver.fill(self.id(), out.address, 0, m * n * size_of::<f32>()) }
        } else {
            let transpose = [transpose_a == Transpose::Yes, transpose_b == Transpose::Yes];
            let strides = [if transpose[0] { m } else { k }, if transpose[1] { k } else { n }, n];
            let (a, b, out) = (a.address, b.address, out.address);
            let product = Product { m, n, k, a, b, out, strides, transpose, alpha, beta };
            // SAFETY: as above, for all three matrices.
            unsafe { driver.multiply(self.id(), &product) }
        };
        done.map_err(|e| self.device().error(&e))
    }
}
