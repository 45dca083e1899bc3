//! Streams of work.

use std::ffi::c_void;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::Ordering;

use bytemuck::Pod;
use morphgl_registry::Result;

use crate::driver::{Address, Id, Outcome, Precision, Product};
use crate::memory::Users;
use crate::{Argument, Buffer, Device, Kernel, Mapped, Pinned, Shape};

/// Work of a device that is done in order. Work of two streams has no order, but what events give it.
///
/// Every function returns before the work is done, unless it says otherwise.
pub struct Stream {
    device: Device,
    id: Id,
    number: u32,
}

/// Memory that a copy reads.
///
/// # Safety
///
/// The span is that of `len` elements which are valid until the work of the streams in `users` is done.
pub unsafe trait Readable<T: Pod> {
    /// Where it lies.
    fn span(&self) -> Span<'_>;
}

/// Memory that a copy writes.
///
/// # Safety
///
/// As [`Readable`], and whoever has it alone may write to it.
pub unsafe trait Writable<T: Pod>: Readable<T> {}

/// Where memory lies, and whose work uses it.
#[derive(Debug)]
pub struct Span<'a> {
    address: Address,
    len: usize,
    users: Users<'a>,
    /// Addresses inside that no single copy may cross.
    cuts: &'a [Address],
}

macro_rules! readable {
    ($type:ident, |$memory:ident| $cuts:expr) => {
        // SAFETY: a block goes back to its pool after the work of its users, and so is what is mapped let go.
        unsafe impl<T: Pod> Readable<T> for $type<T> {
            fn span(&self) -> Span<'_> {
                let $memory = self;
                Span { address: self.address(), len: self.len(), users: self.users(), cuts: $cuts }
            }
        }
    };
}
readable!(Buffer, |_buffer| &[]);
readable!(Pinned, |_pinned| &[]);
readable!(Mapped, |mapped| mapped.cuts());
// SAFETY: a block is its buffer's alone.
unsafe impl<T: Pod> Writable<T> for Buffer<T> {}
// SAFETY: as above.
unsafe impl<T: Pod> Writable<T> for Pinned<T> {}

/// Whether a factor of a product is read transposed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Transpose {
    No,
    Yes,
}

impl Stream {
    /// A new stream; one of high priority gets multiprocessors first.
    ///
    /// # Errors
    ///
    /// The driver gives none.
    pub fn new(device: &Device, high_priority: bool) -> Result<Self> {
        let id = device.driver().new_stream(high_priority).map_err(|e| device.error(&e))?;
        let number = device.inner().pools.add_stream(id).map_err(|e| {
            device.driver().free_stream(id);
            device.error(&e)
        })?;
        Ok(Self { device: device.clone(), id, number })
    }

    /// Its device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) fn id(&self) -> Id {
        self.id
    }

    pub(crate) fn bit(&self) -> u64 {
        1 << self.number
    }

    pub(crate) fn check<T>(&self, outcome: Outcome<T>) -> Result<T> {
        outcome.map_err(|e| self.device.error(&e))
    }

    /// Runs a kernel.
    ///
    /// # Errors
    ///
    /// The driver refuses the launch; or work given earlier failed.
    ///
    /// # Panics
    ///
    /// When the kernel, or memory that is an argument, is another device's.
    ///
    /// # Safety
    ///
    /// `arguments` are those of the kernel, in number, order and type; the kernel stays inside of them, and no other
    /// stream or host thread writes to what it reads, or touches what it writes, until it is done.
    pub unsafe fn launch(&self, kernel: &Kernel, shape: Shape, arguments: &mut [Argument<'_>]) -> Result<()> {
        const MOST: usize = 32;
        assert!(arguments.len() <= MOST, "{} has more than {MOST} arguments", kernel.name);
        assert!(kernel.device.is(&self.device), "{} was loaded for {:?}", kernel.name, kernel.device);
        let mut pointers = [std::ptr::null_mut::<c_void>(); MOST];
        for (pointer, argument) in pointers.iter_mut().zip(arguments.iter_mut()) {
            if let Some(users) = argument.users {
                users.mark(self);
            }
            *pointer = argument.value.as_mut_ptr().cast();
        }
        let pointers = &mut pointers[..arguments.len()];
        self.device.inner().launches.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise; drivers copy arguments before they return.
        let launched = unsafe { self.device.driver().launch(self.id, kernel.function, shape, pointers) };
        launched.map_err(|mut failure| {
            failure.what = format!("kernel {}: {}", kernel.name, failure.what);
            self.device.error(&failure)
        })
    }

    /// Copies elements `range` of `from` to those of `to` from `at` on.
    ///
    /// # Errors
    ///
    /// The driver refuses it; or work given earlier failed.
    ///
    /// # Panics
    ///
    /// When either has not so many elements, or is another device's.
    pub fn copy<T: Pod>(
        &self,
        from: &impl Readable<T>,
        range: Range<usize>,
        to: &mut impl Writable<T>,
        at: usize,
    ) -> Result<()> {
        let (from, to) = (from.span(), to.span());
        assert!(range.start <= range.end && range.end <= from.len, "{range:?} of {}", from.len);
        assert!(at + range.len() <= to.len, "{} elements from {at} on of {}", range.len(), to.len);
        let size = size_of::<T>();
        self.copy_spans((from, range.start * size), (to, at * size), range.len() * size)
    }

    /// Copies bytes `range` of `from` to the beginning of `to`, whatever its elements are.
    ///
    /// # Errors
    ///
    /// The driver refuses it; or work given earlier failed.
    ///
    /// # Panics
    ///
    /// When either has not so many bytes, or is another device's.
    pub fn copy_bytes<T: Pod>(
        &self,
        from: &impl Readable<u8>,
        range: Range<usize>,
        to: &mut impl Writable<T>,
    ) -> Result<()> {
        let (from, to) = (from.span(), to.span());
        assert!(range.start <= range.end && range.end <= from.len, "{range:?} of {}", from.len);
        assert!(range.len() <= to.len * size_of::<T>(), "{} bytes to {} elements", range.len(), to.len);
        self.copy_spans((from, range.start), (to, 0), range.len())
    }

    /// Copies `bytes` bytes from one place to another, which they lie in.
    fn copy_spans(&self, (from, skip): (Span<'_>, usize), (to, at): (Span<'_>, usize), bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        [from.users, to.users].into_iter().for_each(|users| users.mark(self));
        let (mut source, mut target) = (from.address + skip as u64, to.address + at as u64);
        let end = source + bytes as u64;
        // Memory that is pinned in pieces is copied in pieces: a driver refuses a copy across them.
        let first = from.cuts.partition_point(|cut| *cut <= source);
        for upto in from.cuts[first..].iter().copied().take_while(|cut| *cut < end).chain([end]) {
            let bytes = upto - source;
            // SAFETY: both ranges lie in memory that goes back to its pool, or is unpinned, after the stream's work.
            self.check(unsafe { self.device.driver().copy(self.id, source, target, bytes as usize) })?;
            (source, target) = (upto, target + bytes);
        }
        Ok(())
    }

    /// Fills a buffer with a byte.
    ///
    /// # Errors
    ///
    /// As [`Stream::copy`].
    pub fn fill<T: Pod>(&self, buffer: &mut Buffer<T>, byte: u8) -> Result<()> {
        if buffer.is_empty() {
            return Ok(());
        }
        buffer.users().mark(self);
        // SAFETY: the buffer goes back to its pool only after the stream's work.
        self.check(unsafe { self.device.driver().fill(self.id, buffer.address(), byte, buffer.len() * size_of::<T>()) })
    }

    /// Creates the stream's cuBLAS handle, if there is none, and sets the precision of its products. Without this call the
    /// first product creates it, in f32; a product that is captured needs it beforehand.
    ///
    /// # Errors
    ///
    /// cuBLAS cannot be loaded (the error says how to get it), or memory is full.
    pub fn prepare_products(&self, precision: Precision) -> Result<()> {
        self.check(self.device.driver().prepare_products(self.id, precision))
    }

    /// `out = alpha · op(a) · op(b) + beta · out`, row-major, in f32 unless [`Stream::prepare_products`] said TF32: `op(a)` is `m` x `k`, `op(b)` is `k` x `n`.
    /// Rows are packed: as they are stored, `a` has rows of `k` elements (of `m` if transposed), `b` of `n` (of `k`).
    ///
    /// # Errors
    ///
    /// cuBLAS cannot be loaded (the error says how to get it) or refuses the product.
    ///
    /// # Panics
    ///
    /// When a matrix is longer than its buffer, or another device's.
    pub fn multiply(
        &self,
        [m, n, k]: [usize; 3],
        (a, transpose_a): (&Buffer<f32>, Transpose),
        (b, transpose_b): (&Buffer<f32>, Transpose),
        out: &mut Buffer<f32>,
        (alpha, beta): (f32, f32),
    ) -> Result<()> {
        let fits = |rows: usize, columns: usize, len| rows.checked_mul(columns).is_some_and(|elements| elements <= len);
        let all = fits(m, k, a.len()) && fits(k, n, b.len()) && fits(m, n, out.len());
        assert!(all, "matrices of {m} x {k} x {n} elements");
        if m == 0 || n == 0 {
            return Ok(());
        }
        if k == 0 {
            assert!(beta == 0.0, "a product of no depth replaces its output");
            out.users().mark(self);
            // SAFETY: the output lies in its buffer, which goes back to its pool only after the stream's work.
            return self
                .check(unsafe { self.device.driver().fill(self.id, out.address(), 0, m * n * size_of::<f32>()) });
        }
        [a.users(), b.users(), out.users()].into_iter().for_each(|users| users.mark(self));
        let transpose = [transpose_a == Transpose::Yes, transpose_b == Transpose::Yes];
        let strides = [if transpose[0] { m } else { k }, if transpose[1] { k } else { n }, n];
        let (a, b, out) = (a.address(), b.address(), out.address());
        let product = Product { m, n, k, a, b, out, strides, transpose, alpha, beta };
        self.device.inner().launches.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the matrices lie in their buffers, which go back to their pool only after the stream's work.
        self.check(unsafe { self.device.driver().multiply(self.id, &product) })
    }

    /// Waits until all work given so far is done.
    ///
    /// # Errors
    ///
    /// Work failed.
    pub fn synchronize(&self) -> Result<()> {
        self.device.inner().waits.fetch_add(1, Ordering::Relaxed);
        self.check(self.device.driver().synchronize(self.id))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // What failed was said, or is said by the next call of the device.
        let _ = self.device.driver().synchronize(self.id);
        self.device.inner().pools.remove_stream(self.number);
        self.device.driver().free_stream(self.id);
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({} of {:?})", self.number, self.device)
    }
}
