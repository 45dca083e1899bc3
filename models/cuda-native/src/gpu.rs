//! Execution context of the passes: stream, kernels, arena and GEMM.

use bytemuck::Pod;
use morphgl_cuda::{Argument, Buffer, Device, Floats, Kernel, Pinned, Precision, Shape, Stream, Transpose};
use morphgl_model_core::Dropout;
use morphgl_registry::Result;

use crate::arena::{Arena, Mark, Region};
use crate::gemm::{self, Gemm};
use crate::kernels::Kernels;

/// Maximum threads of a block, as in kernels/sums.cu.
pub(crate) const THREADS: usize = 256;

/// 4-byte words in device memory: in the arena or in a buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Words<'a> {
    Region(Region),
    Floats(Floats<'a>),
    Indices(&'a Buffer<u32>),
    /// Two edge types in each.
    Types(&'a Buffer<u16>),
    Bytes(&'a Buffer<u8>),
}

impl<'a> Words<'a> {
    /// The words from `start` on; bytes are taken as whole words.
    pub(crate) fn after(self, start: usize) -> Self {
        let floats = |floats: Floats<'a>| Words::Floats(floats.part(start..floats.len()));
        match self {
            Words::Region(region) => Words::Region(region.from(start, region.len() - start)),
            Words::Floats(of) => floats(of),
            Words::Bytes(buffer) => floats(Floats::of_bytes(buffer)),
            Words::Indices(_) | Words::Types(_) => unreachable!("arrays of a mini-batch are read from their start on"),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Words::Region(region) => region.len(),
            Words::Floats(floats) => floats.len(),
            Words::Indices(buffer) => buffer.len(),
            Words::Types(buffer) => buffer.len() / 2,
            Words::Bytes(buffer) => buffer.len() / 4,
        }
    }
}

impl From<Region> for Words<'_> {
    fn from(region: Region) -> Self {
        Words::Region(region)
    }
}

impl<'a> From<Floats<'a>> for Words<'a> {
    fn from(floats: Floats<'a>) -> Self {
        Words::Floats(floats)
    }
}

/// A dropout mask as kernel arguments, with the nodes of the rows that it drops elements of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mask<'a> {
    key: u64,
    threshold: u32,
    scale: f32,
    nodes: Option<MaskNodes<'a>>,
}

/// The nodes of rows, of which dropout reads the masks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MaskNodes<'a> {
    pub(crate) nodes: &'a Buffer<u32>,
    /// The number of each node before the graph was reordered, by which its masks are keyed; absent: its own.
    pub(crate) keys: Option<&'a Buffer<u32>>,
}

impl<'a> Mask<'a> {
    /// Drops nothing.
    pub(crate) const NONE: Self = Self { key: 0, threshold: 0, scale: 1.0, nodes: None };

    pub(crate) fn new(dropout: Option<Dropout>, nodes: MaskNodes<'a>) -> Self {
        dropout.map_or(Self::NONE, |dropout| {
            let [low, high] = dropout.key().map(u64::from);
            let threshold = dropout.threshold().into();
            Self { key: high << 32 | low, threshold, scale: dropout.scale(), nodes: Some(nodes) }
        })
    }

    /// Whether it drops anything.
    pub(crate) fn drops(&self) -> bool {
        self.threshold > 0
    }

    /// Groups of elements, at most eight each, of `len` elements in rows of `columns`: threads of a kernel that drops.
    pub(crate) fn groups(&self, len: usize, columns: usize) -> usize {
        if self.drops() { len / columns.max(1) * columns.div_ceil(8) } else { len.div_ceil(8) }
    }

    /// # Panics
    ///
    /// When it drops elements of more rows than there are nodes.
    pub(crate) fn arguments(self, rows: usize) -> [Argument<'a>; 6] {
        let nodes = self.nodes.map_or(rows, |of| of.nodes.len());
        assert!(nodes >= rows, "{nodes} nodes of {rows} rows");
        let keys = self.nodes.and_then(|of| of.keys);
        let [nodes, of_nodes] = [self.nodes.map(|of| of.nodes), keys].map(|b| b.map_or(Argument::NULL, Argument::from));
        let num_keys = keys.map_or(0, Buffer::len) as u64;
        [self.key.into(), self.threshold.into(), self.scale.into(), nodes, of_nodes, num_keys.into()]
    }
}

/// A value that a kernel takes: memory (null if absent), a size, or a number.
pub(crate) trait KernelArgument<'a> {
    fn resolve(self, gpu: &'a Gpu) -> Argument<'a>;
}

impl<'a> KernelArgument<'a> for Words<'a> {
    fn resolve(self, gpu: &'a Gpu) -> Argument<'a> {
        match self {
            Words::Region(region) => gpu.arena.floats(region).into(),
            Words::Floats(floats) => floats.into(),
            Words::Indices(buffer) => buffer.into(),
            Words::Types(buffer) => buffer.into(),
            Words::Bytes(buffer) => buffer.into(),
        }
    }
}

impl<'a, T: KernelArgument<'a>> KernelArgument<'a> for Option<T> {
    fn resolve(self, gpu: &'a Gpu) -> Argument<'a> {
        self.map_or(Argument::NULL, |value| value.resolve(gpu))
    }
}

impl<'a, T: Pod> KernelArgument<'a> for &'a Buffer<T> {
    fn resolve(self, _: &'a Gpu) -> Argument<'a> {
        self.into()
    }
}

macro_rules! kernel_arguments {
    ($($type:ty: |$value:ident, $gpu:pat_param| $argument:expr;)+) => {
        $(impl<'a> KernelArgument<'a> for $type {
            fn resolve(self, $gpu: &'a Gpu) -> Argument<'a> {
                let $value = self;
                $argument
            }
        })+
    };
}

kernel_arguments! {
    Region: |region, gpu| gpu.arena.floats(region).into();
    Floats<'a>: |floats, _| floats.into();
    Argument<'a>: |argument, _| argument;
    usize: |size, _| number(size).into();
    u32: |value, _| value.into();
    u64: |value, _| value.into();
    f32: |value, _| value.into();
}

/// The arguments of a kernel, in its order; see [`KernelArgument`].
macro_rules! arguments {
    [$gpu:expr, $($value:expr),+ $(,)?] => {
        &mut [$($crate::gpu::KernelArgument::resolve($value, $gpu)),+]
    };
}
pub(crate) use arguments;

/// A stream with its kernels and memory.
#[derive(Debug)]
pub(crate) struct Gpu {
    pub(crate) stream: Stream,
    pub(crate) kernels: Kernels,
    arena: Arena,
    gemm: Gemm,
}

impl Gpu {
    /// With GEMMs by cuBLAS in a precision; for `None` by the kernel of ours, without cuBLAS.
    pub(crate) fn new(device: &Device, precision: Option<Precision>) -> Result<Self> {
        let stream = Stream::new(device, false)?;
        let gemm = match precision {
            // Loads cuBLAS now: if it is missing, building the operator fails, and the job falls back to another one.
            Some(precision) => stream.prepare_products(precision).map(|()| Gemm::Cublas)?,
            None => Gemm::Split { multiprocessors: device.properties()?.multiprocessors as usize },
        };
        Ok(Self { kernels: Kernels::new(device)?, arena: Arena::new(&stream)?, gemm, stream })
    }

    /// Resets the arena at the beginning of a mini-batch.
    pub(crate) fn begin(&mut self) -> Result<()> {
        self.arena.begin(&self.stream)
    }

    /// Takes `len` uninitialised words.
    pub(crate) fn take(&mut self, len: usize) -> Result<Region> {
        self.arena.take(&self.stream, len)
    }

    pub(crate) fn mark(&self) -> Mark {
        self.arena.mark()
    }

    pub(crate) fn release(&mut self, mark: Mark) {
        self.arena.release(mark);
    }

    /// Bytes of the arena.
    pub(crate) fn arena_bytes(&self) -> usize {
        4 * self.arena.words()
    }

    /// Uploads words of the host to a new region.
    pub(crate) fn upload(&mut self, words: &Pinned<f32>) -> Result<Region> {
        let region = self.take(words.len())?;
        let (block, at) = self.arena.locate(region);
        self.stream.copy(words, 0..words.len(), block, at)?;
        Ok(region)
    }

    /// Downloads a region; the caller waits.
    pub(crate) fn download(&mut self, region: Region, to: &mut Pinned<f32>) -> Result<()> {
        self.download_to(region, to, 0)
    }

    /// Downloads a region to the words from `start` on; the caller waits.
    pub(crate) fn download_to(&mut self, region: Region, to: &mut Pinned<f32>, start: usize) -> Result<()> {
        let (block, at) = self.arena.locate(region);
        self.stream.copy(&*block, at..at + region.len(), to, start)
    }

    /// A stream beside this one, with memory of its own, for work without GEMMs.
    pub(crate) fn beside(&self) -> Result<Self> {
        let stream = Stream::new(self.stream.device(), false)?;
        Ok(Self { kernels: self.kernels.clone(), arena: Arena::new(&stream)?, gemm: self.gemm, stream })
    }

    pub(crate) fn floats<'a>(&'a self, words: Words<'a>) -> Floats<'a> {
        match words {
            Words::Region(region) => self.arena.floats(region),
            Words::Floats(floats) => floats,
            Words::Bytes(buffer) => Floats::of_bytes(buffer),
            Words::Indices(_) | Words::Types(_) => unreachable!("a GEMM's factors are floats"),
        }
    }

    /// Launches a kernel.
    ///
    /// # Safety
    ///
    /// `arguments` match the kernel, which stays within their bounds.
    pub(crate) unsafe fn launch(&self, kernel: &Kernel, shape: Shape, arguments: &mut [Argument<'_>]) -> Result<()> {
        // SAFETY: the caller's promise; all work on the arena and the operator's state is this stream's, which waits for
        // the mini-batch's event before it reads one.
        unsafe { self.stream.launch(kernel, shape, arguments) }
    }

    /// `out = x · weightᵀ` (plus `out` if `add`): `x` is `[rows, depth]`, `weight` is `[width, depth]`.
    pub(crate) fn linear<'a>(
        &self,
        [rows, width, depth]: [usize; 3],
        x: impl Into<Words<'a>>,
        weight: Floats<'_>,
        out: impl Into<Words<'a>>,
        add: bool,
    ) -> Result<()> {
        let (x, weight) = ((self.floats(x.into()), Transpose::No), (weight, Transpose::Yes));
        self.multiply([rows, width, depth], x, weight, self.floats(out.into()), add)
    }

    /// Gradient of a linear layer with respect to its input: `out = gradient · weight` (plus `out` if `add`), if wanted.
    pub(crate) fn linear_input<'a>(
        &self,
        [rows, width, depth]: [usize; 3],
        gradient: impl Into<Words<'a>>,
        weight: Floats<'_>,
        out: Option<Region>,
        add: bool,
    ) -> Result<()> {
        let Some(out) = out else { return Ok(()) };
        let (gradient, weight) = ((self.floats(gradient.into()), Transpose::No), (weight, Transpose::No));
        self.multiply([rows, depth, width], gradient, weight, self.arena.floats(out), add)
    }

    /// Gradient of a linear layer with respect to its weight: `out = gradientᵀ · x` (plus `out` if `add`).
    pub(crate) fn linear_weight<'a, 'b>(
        &self,
        [rows, width, depth]: [usize; 3],
        gradient: impl Into<Words<'a>>,
        x: impl Into<Words<'b>>,
        out: Floats<'_>,
        add: bool,
    ) -> Result<()> {
        let factors = ((self.floats(gradient.into()), Transpose::Yes), (self.floats(x.into()), Transpose::No));
        self.multiply([width, depth, rows], factors.0, factors.1, out, add)
    }

    fn multiply(
        &self,
        sizes: [usize; 3],
        a: (Floats<'_>, Transpose),
        b: (Floats<'_>, Transpose),
        out: Floats<'_>,
        add: bool,
    ) -> Result<()> {
        match self.gemm {
            Gemm::Cublas => self.stream.multiply(sizes, a, b, out, (1.0, if add { 1.0 } else { 0.0 })),
            Gemm::Split { multiprocessors } => {
                gemm::multiply(&self.stream, &self.kernels, multiprocessors, sizes, a, b, (out, add))
            }
        }
    }
}

/// Launch shape with one thread per element.
pub(crate) fn each(elements: usize) -> Shape {
    Shape::covering(elements, elements.next_multiple_of(32).clamp(32, THREADS) as u32)
}

/// Launch shape over rows and units of columns; up to 32 adjacent threads per row.
pub(crate) fn rows_by_units(rows: usize, units: usize) -> Shape {
    let x = units.next_power_of_two().min(32);
    let y = (THREADS / x).min(rows.next_power_of_two());
    let blocks = Shape::linear(rows.div_ceil(y), 1).grid[0];
    Shape { grid: [blocks, number(units.div_ceil(x)).max(1), 1], block: [x as u32, y as u32, 1], shared: 0 }
}

/// Launch shape over rows with up to 32 adjacent lanes for the columns of each; all warps are full.
pub(crate) fn rows_by_lanes(rows: usize, columns: usize) -> Shape {
    let x = columns.next_power_of_two().min(32);
    let y = rows.next_power_of_two().clamp(32 / x, THREADS / x);
    let blocks = Shape::linear(rows.div_ceil(y), 1).grid[0];
    Shape { grid: [blocks, 1, 1], block: [x as u32, y as u32, 1], shared: 0 }
}

/// A size as a 32-bit kernel argument.
pub(crate) fn number(size: usize) -> u32 {
    u32::try_from(size).expect("a mini-batch has below 2^32 nodes, edges and columns")
}
