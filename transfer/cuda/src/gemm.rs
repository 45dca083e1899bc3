//! GEMM over matrices in device memory.

use std::ops::Range;
use std::sync::atomic::Ordering;

use morphgl_registry::Result;

use crate::driver::{Address, Gemm, Precision};
use crate::memory::{Buffer, Users};
use crate::{Argument, Stream};

/// A slice of floats in device memory.
#[derive(Debug, Clone, Copy)]
pub struct Floats<'a> {
    address: Address,
    len: usize,
    users: &'a Users,
}

impl<'a> Floats<'a> {
    /// A buffer of bytes as floats: buffers are aligned for every type.
    pub fn of_bytes(buffer: &'a Buffer<u8>) -> Self {
        Self { address: buffer.address(), len: buffer.len() / size_of::<f32>(), users: buffer.users() }
    }

    /// A subslice.
    ///
    /// # Panics
    ///
    /// When `range` is out of bounds.
    pub fn part(self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {} floats", self.len);
        Self { address: self.address + (range.start * size_of::<f32>()) as u64, len: range.len(), ..self }
    }

    /// Number of floats.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<'a> From<&'a Buffer<f32>> for Floats<'a> {
    fn from(buffer: &'a Buffer<f32>) -> Self {
        Self { address: buffer.address(), len: buffer.len(), users: buffer.users() }
    }
}

impl<'a> From<&'a mut Buffer<f32>> for Floats<'a> {
    fn from(buffer: &'a mut Buffer<f32>) -> Self {
        Self::from(&*buffer)
    }
}

impl<'a> From<Floats<'a>> for Argument<'a> {
    fn from(floats: Floats<'a>) -> Self {
        Argument::pointer(floats.address, floats.users)
    }
}

/// Whether a factor of a GEMM is read transposed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are self-explanatory")]
pub enum Transpose {
    No,
    Yes,
}

impl Stream {
    /// Creates the stream's cuBLAS handle, if there is none, and sets the precision of its GEMMs. Without this call the
    /// first GEMM creates it, in f32.
    ///
    /// # Errors
    ///
    /// cuBLAS cannot be loaded (the error says how to install it), or memory is full.
    pub fn prepare_products(&self, precision: Precision) -> Result<()> {
        self.check(self.device().driver().prepare_products(self.id(), precision))
    }

    /// GEMM: `out = alpha · op(a) · op(b) + beta · out`, row-major, in f32, or TF32 after [`Stream::prepare_products`];
    /// `op(a)` is `m` x `k`, `op(b)` is `k` x `n`. Rows are packed as stored: those of `a` have `k` elements (`m` if
    /// transposed), those of `b` have `n` (`k`). `out` overlaps neither factor.
    ///
    /// # Errors
    ///
    /// cuBLAS cannot be loaded (the error says how to install it) or refuses the GEMM.
    ///
    /// # Panics
    ///
    /// When a matrix is longer than its memory, or belongs to another device.
    pub fn multiply<'a>(
        &self,
        [m, n, k]: [usize; 3],
        (a, transpose_a): (impl Into<Floats<'a>>, Transpose),
        (b, transpose_b): (impl Into<Floats<'a>>, Transpose),
        out: impl Into<Floats<'a>>,
        (alpha, beta): (f32, f32),
    ) -> Result<()> {
        let (a, b, out) = (a.into(), b.into(), out.into());
        let fits = |rows: usize, columns: usize, len| rows.checked_mul(columns).is_some_and(|elements| elements <= len);
        let all = fits(m, k, a.len) && fits(k, n, b.len) && fits(m, n, out.len);
        assert!(all, "matrices of {m} x {k} x {n} elements");
        if m == 0 || n == 0 {
            return Ok(());
        }
        [a.users, b.users, out.users].into_iter().for_each(|users| users.mark(self));
        let driver = self.device().driver();
        if k == 0 {
            assert!(beta == 0.0, "a GEMM of depth 0 replaces its output");
            // SAFETY: the output lies in its buffer, which returns to its pool only after the stream's work.
            return self.check(unsafe { driver.fill(self.id(), out.address, 0, m * n * size_of::<f32>()) });
        }
        let transpose = [transpose_a == Transpose::Yes, transpose_b == Transpose::Yes];
        let strides = [if transpose[0] { m } else { k }, if transpose[1] { k } else { n }, n];
        let (a, b, out) = (a.address, b.address, out.address);
        let gemm = Gemm { m, n, k, a, b, out, strides, transpose, alpha, beta };
        self.device().inner().launches.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as above, for all three matrices.
        self.check(unsafe { driver.multiply(self.id(), &gemm) })
    }
}
