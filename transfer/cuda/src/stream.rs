//! Streams of work, and events in them.

use std::ffi::c_void;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytemuck::Pod;
use morphgl_registry::{Handle, Result, Wait};

use crate::driver::{Address, Id, Outcome, Product};
use crate::memory::mark;
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
    users: &'a AtomicU64,
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

    fn check<T>(&self, outcome: Outcome<T>) -> Result<T> {
        outcome.map_err(|e| self.device.error(&e))
    }

    /// Runs a kernel.
    ///
    /// # Errors
    ///
    /// The driver refuses the launch; or work given earlier failed.
    ///
    /// # Safety
    ///
    /// `arguments` are those of the kernel, in number, order and type; the kernel stays inside of them, and no other
    /// stream or host thread writes to what it reads, or touches what it writes, until it is done.
    pub unsafe fn launch(&self, kernel: &Kernel, shape: Shape, arguments: &mut [Argument<'_>]) -> Result<()> {
        const MOST: usize = 32;
        assert!(arguments.len() <= MOST, "{} has more than {MOST} arguments", kernel.name);
        let mut pointers = [std::ptr::null_mut::<c_void>(); MOST];
        for (pointer, argument) in pointers.iter_mut().zip(arguments.iter_mut()) {
            if let Some(users) = argument.users {
                mark(users, self);
            }
            *pointer = argument.value.as_mut_ptr().cast();
        }
        let pointers = &mut pointers[..arguments.len()];
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
    /// When either has not so many elements.
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
        if range.is_empty() {
            return Ok(());
        }
        [from.users, to.users].into_iter().for_each(|users| mark(users, self));
        let size = size_of::<T>() as u64;
        let (mut source, mut target) = (from.address + range.start as u64 * size, to.address + at as u64 * size);
        let end = from.address + range.end as u64 * size;
        // Memory that is pinned in pieces is copied in pieces: a driver refuses a copy across them.
        let inside = from.cuts.iter().copied().filter(|cut| (source + 1..end).contains(cut));
        for upto in inside.chain([end]).collect::<Vec<_>>() {
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
        mark(buffer.users(), self);
        // SAFETY: the buffer goes back to its pool only after the stream's work.
        self.check(unsafe { self.device.driver().fill(self.id, buffer.address(), byte, buffer.len() * size_of::<T>()) })
    }

    /// Makes the stream ready for products, which its first one does else: needed before a product is captured.
    ///
    /// # Errors
    ///
    /// cuBLAS cannot be loaded (the error says how to get it), or memory is full.
    pub fn prepare_products(&self) -> Result<()> {
        self.check(self.device.driver().prepare_products(self.id))
    }

    /// `out = alpha · op(a) · op(b) + beta · out`, row-major in f32 (no TF32): `op(a)` is `m` x `k`, `op(b)` is `k` x `n`.
    /// Rows are packed: as they are stored, `a` has rows of `k` elements (of `m` if transposed), `b` of `n` (of `k`).
    ///
    /// # Errors
    ///
    /// cuBLAS cannot be loaded (the error says how to get it) or refuses the product.
    ///
    /// # Panics
    ///
    /// When a matrix is longer than its buffer.
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
            mark(out.users(), self);
            // SAFETY: the output lies in its buffer, which goes back to its pool only after the stream's work.
            return self
                .check(unsafe { self.device.driver().fill(self.id, out.address(), 0, m * n * size_of::<f32>()) });
        }
        [a.users(), b.users(), out.users()].into_iter().for_each(|users| mark(users, self));
        let transpose = [transpose_a == Transpose::Yes, transpose_b == Transpose::Yes];
        let strides = [if transpose[0] { m } else { k }, if transpose[1] { k } else { n }, n];
        let (a, b, out) = (a.address(), b.address(), out.address());
        let product = Product { m, n, k, a, b, out, strides, transpose, alpha, beta };
        // SAFETY: the matrices lie in their buffers, which go back to their pool only after the stream's work.
        self.check(unsafe { self.device.driver().multiply(self.id, &product) })
    }

    /// An event that happens when all work given so far is done; [`Event::elapsed`] needs it `timed`.
    ///
    /// # Errors
    ///
    /// The driver gives none; or work given earlier failed.
    pub fn record(&self, timed: bool) -> Result<Event> {
        let id = self.check(self.device.driver().new_event(timed))?;
        let event = Event { device: self.device.clone(), id };
        self.check(self.device.driver().record(id, self.id))?;
        Ok(event)
    }

    /// Work given from now on begins after the event.
    ///
    /// # Errors
    ///
    /// The driver refuses it.
    pub fn wait(&self, event: &Event) -> Result<()> {
        self.check(self.device.driver().wait(self.id, event.id))
    }

    /// Waits until all work given so far is done.
    ///
    /// # Errors
    ///
    /// Work failed.
    pub fn synchronize(&self) -> Result<()> {
        self.check(self.device.driver().synchronize(self.id))
    }

    /// Writes down the work that `work` gives to this stream, without doing it.
    ///
    /// # Errors
    ///
    /// What `work` fails with, or work that cannot be captured: taking memory for the stream, waiting for it or for
    /// events from outside of `work`, its first product (see [`Stream::prepare_products`]).
    pub fn capture(&self, work: impl FnOnce() -> Result<()>) -> Result<Graph> {
        self.check(self.device.driver().begin_capture(self.id))?;
        let capture = Capture(Some(self));
        self.device.inner().pools.begin_capture(self.bit());
        let given = work();
        let graph = capture.end();
        given?;
        graph
    }

    /// Does what was written down.
    ///
    /// # Errors
    ///
    /// The driver refuses it; or work given earlier failed.
    ///
    /// # Safety
    ///
    /// All memory that the work uses is still there, and what holds for [`Stream::launch`]. On another stream than the
    /// one that captured it, the memory stays until the work is done.
    pub unsafe fn replay(&self, graph: &Graph) -> Result<()> {
        // SAFETY: the caller's promise.
        self.check(unsafe { self.device.driver().replay(graph.id, self.id) })
    }
}

/// A stream whose work is being written down; also when that panics, it ends.
struct Capture<'a>(Option<&'a Stream>);

impl Capture<'_> {
    fn end(mut self) -> Result<Graph> {
        let stream = self.0.take().expect("it ends once");
        let driver = stream.device.driver();
        let graph = driver.end_capture(stream.id);
        stream.device.inner().pools.end_capture(driver, stream.bit());
        Ok(Graph { id: stream.check(graph)?, device: stream.device.clone() })
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        if let Some(stream) = self.0.take() {
            // What was written down until a panic is of no use.
            let _ = Capture(Some(stream)).end();
        }
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

/// A moment in a stream's work.
pub struct Event {
    device: Device,
    id: Id,
}

impl Event {
    /// Whether it has happened. A failure counts as that: waiting says what it is.
    pub fn is_done(&self) -> bool {
        self.device.driver().is_done(self.id).unwrap_or(true)
    }

    /// Waits for it, asleep.
    ///
    /// # Errors
    ///
    /// Work before it failed.
    pub fn synchronize(&self) -> Result<()> {
        self.device.driver().wait_for(self.id).map_err(|e| self.device.error(&e))
    }

    /// The time from `start` to this event; both are timed and have happened.
    ///
    /// # Errors
    ///
    /// They are not, or have not.
    pub fn elapsed(&self, start: &Event) -> Result<Duration> {
        self.device.driver().elapsed(start.id, self.id).map_err(|e| self.device.error(&e))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        self.device.driver().free_event(self.id);
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event(of {:?}, done: {})", self.device, self.is_done())
    }
}

/// Work that was written down, to be done again and again.
pub struct Graph {
    device: Device,
    id: Id,
}

impl Drop for Graph {
    fn drop(&mut self) {
        self.device.driver().free_graph(self.id);
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Graph(of {:?})", self.device)
    }
}

/// The work between two timed events as an operator's handle; `finish` gives its result once it is done.
pub fn pending<T: 'static>(start: Event, end: Event, finish: impl FnOnce() -> Result<T> + Send + 'static) -> Handle<T> {
    Handle::pending(Pending { start, end, finish })
}

struct Pending<F> {
    start: Event,
    end: Event,
    finish: F,
}

impl<T, F: FnOnce() -> Result<T> + Send> Wait<T> for Pending<F> {
    fn is_ready(&self) -> bool {
        self.end.is_done()
    }

    fn wait(self: Box<Self>) -> Result<(T, Duration)> {
        self.end.synchronize()?;
        let took = self.end.elapsed(&self.start)?;
        Ok(((self.finish)()?, took))
    }
}
