//! Aggregation over a block's edges (SpMM), forward and backward, with the model's coefficients.

use morphgl_cuda::Kernel;
use morphgl_graph_store::Dtype;
use morphgl_model_core::{ModelKind, ModelSpec};
use morphgl_registry::Result;

use crate::arena::Region;
use crate::gpu::{Gpu, Words, arguments, each, rows_by_units};
use crate::groups::Groups;
use crate::kernels::Kernels;
use crate::transpose::{BLOCKS, Block, Transposed, rows_of_edges, transpose};

/// A block with its edge and row coefficients.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Edges<'a> {
    pub(crate) block: Block<'a>,
    of_edges: Option<Region>,
    /// Row coefficients; those of a mean are written by the forward sum for the backward one.
    of_rows: Option<Region>,
    mean: bool,
    loops: Option<Region>,
    row_of: Option<Words<'a>>,
    transposed: Option<Transposed>,
    /// Of a typed layer, whose rows are those of all groups: the block of the destinations, and the groups.
    pub(crate) groups: Option<(Block<'a>, &'a Groups<'a>)>,
}

/// Input rows of a sum: f32, or features in their stored type.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InputRows<'a> {
    pub(crate) words: Words<'a>,
    pub(crate) dtype: Dtype,
    /// Where they are rows of a table: their numbers there, and the first of these numbers.
    pub(crate) ids: Option<(Words<'a>, usize)>,
}

impl<'a> InputRows<'a> {
    /// Rows that lie one after the other.
    pub(crate) fn packed(words: impl Into<Words<'a>>, dtype: Dtype) -> Self {
        Self { words: words.into(), dtype, ids: None }
    }

    /// Whether there are so many, each of so many elements.
    pub(crate) fn has(&self, rows: usize, columns: usize) -> bool {
        match self.ids {
            Some((ids, first)) => ids.len() >= first + rows,
            None => 4 * self.words.len() + 3 >= rows * columns * self.dtype.size(),
        }
    }
}

impl<'a> Edges<'a> {
    /// Launches the kernels that compute a model's coefficients of edges and rows; those of a mean are written by [`Edges::sum`].
    /// `degrees` are the source nodes' in-degrees in the whole graph.
    pub(crate) fn new(gpu: &mut Gpu, model: &ModelSpec, block: Block<'a>, degrees: Words<'a>) -> Result<Self> {
        let kind = model.kind;
        let Block { num_dst, num_src, num_edges, indptr, indices, weights, importance, .. } = block;
        assert!(indptr.len() > num_dst && indices.len() >= num_edges, "a block's arrays");
        assert!(num_dst <= num_src, "{num_dst} destination of {num_src} source nodes");
        assert!(weights.is_none_or(|w| w.len() >= num_edges), "a weight per edge");
        assert!(!Self::reads_degrees(kind) || degrees.len() >= num_src, "a degree per source node");
        let mut edges = Self::plain(block);
        let shape = each(num_dst);
        match kind {
            ModelKind::Sage => match weights.filter(|_| importance) {
                Some(weights) => {
                    let out = gpu.take(num_edges)?;
                    edges.of_edges = Some(out);
                    shares(gpu, block, weights, num_edges, out)?;
                }
                None => (edges.of_rows, edges.mean) = (Some(gpu.take(num_dst)?), true),
            },
            ModelKind::Gin => {
                let out = gpu.take(num_dst)?;
                edges.of_rows = Some(out);
                let arguments = arguments![gpu, indptr, weights, degrees, out, num_dst];
                // SAFETY: the kernel's arguments; a row has an offset, a degree and an output, an edge a weight.
                unsafe { gpu.launch(&gpu.kernels.train_rescale, shape, arguments) }?;
            }
            ModelKind::Gcn => {
                let (out, loops) = (gpu.take(num_edges)?, gpu.take(num_dst)?);
                (edges.of_edges, edges.loops) = (Some(out), Some(loops));
                let added = if model.self_loops { 1f32 } else { 0.0 };
                let arguments = arguments![gpu, indptr, indices, weights, degrees, out, loops, num_dst, added];
                // SAFETY: as above; an edge has an output, a source a degree.
                unsafe { gpu.launch(&gpu.kernels.train_convolution, shape, arguments) }?;
            }
            ModelKind::Gat | ModelKind::Mlp | ModelKind::Embedding | ModelKind::Custom | ModelKind::Submitted(_) => {}
            ModelKind::Rgcn | ModelKind::Rsage | ModelKind::Rgat | ModelKind::Hgt => {
                unreachable!("the edges of typed models are grouped")
            }
        }
        Ok(edges)
    }

    /// The rows of a typed layer, as its kind of model reads them.
    pub(crate) fn typed(gpu: &mut Gpu, kind: ModelKind, of: Block<'a>, groups: &'a Groups<'a>) -> Result<Self> {
        if kind == ModelKind::Rgat { Ok(Self::of_types(of, groups)) } else { Self::grouped(gpu, of, groups) }
    }

    /// The rows of all groups of a typed layer as means, or as sums weighted by the edges' importance.
    fn grouped(gpu: &mut Gpu, of: Block<'a>, groups: &'a Groups<'a>) -> Result<Self> {
        let block = groups.rows_of(of);
        let mut edges = Self { row_of: Some(groups.of_entries), groups: Some((of, groups)), ..Self::plain(block) };
        match block.weights.filter(|_| block.importance) {
            Some(weights) => {
                let out = gpu.take(block.num_edges)?;
                edges.of_edges = Some(out);
                shares(gpu, block, weights, of.num_edges, out)?;
            }
            None => (edges.of_rows, edges.mean) = (Some(gpu.take(block.num_dst)?), true),
        }
        Ok(edges)
    }

    /// The edges of all types, whose rows those of the groups are, to be weighted by attention.
    fn of_types(of: Block<'a>, groups: &'a Groups<'a>) -> Self {
        let block = Block { num_dst: groups.num_edge_rows(), num_edges: of.num_edges, ..groups.rows_of(of) };
        Self { row_of: Some(groups.of_entries), groups: Some((of, groups)), ..Self::plain(block) }
    }

    /// The same edges with other coefficients.
    pub(crate) fn weighted(&self, of_edges: Region) -> Self {
        Self { of_edges: Some(of_edges), ..*self }
    }

    fn plain(block: Block<'a>) -> Self {
        let (of_edges, of_rows, loops, row_of, transposed, groups) = Default::default();
        Self { block, of_edges, of_rows, mean: false, loops, row_of, transposed, groups }
    }

    /// Whether the coefficients of a model kind depend on degrees.
    pub(crate) fn reads_degrees(kind: ModelKind) -> bool {
        matches!(kind, ModelKind::Gcn | ModelKind::Gin)
    }

    /// Weighted sum of the sources of each row, plus `1 + eps` times the row itself if `eps` is given.
    pub(crate) fn sum(&self, gpu: &mut Gpu, x: InputRows<'a>, width: usize, eps: Option<Words<'_>>) -> Result<Region> {
        let Block { num_dst, num_src, indptr, ends, indices, .. } = self.block;
        assert!(x.has(num_src, width) && x.ids.is_none_or(|(_, first)| first == 0), "rows to sum and source nodes");
        let out = gpu.take(num_dst * width)?;
        let four = width.is_multiple_of(4);
        let kernel = sum_kernel(&gpu.kernels, x.dtype, four);
        let shape = rows_by_units(num_dst, if four { width / 4 } else { width });
        let (Self { of_edges, of_rows, loops, .. }, words, mean) = (*self, x.words, u32::from(self.mean));
        let ids = x.ids.map(|(ids, _)| ids);
        let arguments = arguments![
            gpu, indptr, ends, indices, of_edges, of_rows, loops, eps, words, ids, out, num_dst, width, mean
        ];
        // SAFETY: the kernel's arguments; indices are of source nodes, which have a row of `x` each, of a table by its number; four elements lie
        // at a multiple of their length, as rows do.
        unsafe { gpu.launch(kernel, shape, arguments) }?;
        Ok(out)
    }

    /// Backward of [`Edges::sum`], called after it: gradient of the first summed rows, as many as `out` has.
    pub(crate) fn sum_backward(
        &mut self,
        gpu: &mut Gpu,
        gradient: Region,
        out: Region,
        width: usize,
        eps: Option<Words<'_>>,
    ) -> Result<()> {
        let Block { num_dst, num_src, .. } = self.block;
        let wanted = out.len() / width.max(1);
        assert!(gradient.len() >= num_dst * width && out.len() == wanted * width, "gradients of rows and sources");
        let own_rows = if self.groups.is_some() { 0 } else { num_dst };
        assert!((own_rows..=num_src).contains(&wanted), "{wanted} of {num_src} sources, {own_rows} of them rows");
        let Transposed { indptr, rows, edges } = self.transposed(gpu)?;
        let four = width.is_multiple_of(4);
        let kernel = if four { &gpu.kernels.train_sum_sources } else { &gpu.kernels.train_sum_sources_single };
        let shape = rows_by_units(wanted, if four { width / 4 } else { width });
        let Self { of_edges, of_rows, loops, .. } = *self;
        let arguments =
            arguments![gpu, indptr, rows, edges, of_edges, of_rows, loops, eps, gradient, out, wanted, num_dst, width];
        // SAFETY: the kernel's arguments; rows of edges are destination nodes, and `out` has the rows of the first sources.
        unsafe { gpu.launch(kernel, shape, arguments) }
    }

    /// Destination row of each edge; computed once.
    pub(crate) fn row_of(&mut self, gpu: &mut Gpu) -> Result<Words<'a>> {
        let row_of = self.row_of.map_or_else(|| rows_of_edges(gpu, self.block).map(Words::from), Ok)?;
        Ok(*self.row_of.insert(row_of))
    }

    /// The transposed block; computed once, valid as long as the regions taken before it.
    pub(crate) fn transposed(&mut self, gpu: &mut Gpu) -> Result<Transposed> {
        let transposed = self.transposed.map_or_else(|| transpose(gpu, self.block, self.row_of, BLOCKS), Ok)?;
        Ok(*self.transposed.insert(transposed))
    }
}

/// The share of each edge in the weights of its row, of which the first `num_edges` entries have one.
fn shares(gpu: &Gpu, block: Block<'_>, weights: Words<'_>, num_edges: usize, out: Region) -> Result<()> {
    let Block { num_dst, indptr, ends, .. } = block;
    assert!(weights.len() >= num_edges && out.len() >= block.num_edges, "a weight per edge, and a share");
    let arguments = arguments![gpu, indptr, ends, weights, out, num_dst, num_edges];
    // SAFETY: the kernel's arguments; a row has an offset, an edge a weight and an entry an output.
    unsafe { gpu.launch(&gpu.kernels.train_shares, each(num_dst), arguments) }
}

/// Fills words with zeros.
pub(crate) fn zero<'a>(gpu: &Gpu, words: impl Into<Words<'a>>) -> Result<()> {
    let words = words.into();
    // SAFETY: the kernel's arguments, and as many words as there are.
    unsafe { gpu.launch(&gpu.kernels.train_zero, each(words.len()), arguments![gpu, words, words.len() as u64]) }
}

fn sum_kernel(kernels: &Kernels, dtype: Dtype, four: bool) -> &Kernel {
    match (dtype, four) {
        (Dtype::F32, true) => &kernels.train_sum_f32,
        (Dtype::F32, false) => &kernels.train_sum_f32_single,
        (Dtype::F16, true) => &kernels.train_sum_f16,
        (Dtype::F16, false) => &kernels.train_sum_f16_single,
        (Dtype::Bf16, true) => &kernels.train_sum_bf16,
        (Dtype::Bf16, false) => &kernels.train_sum_bf16_single,
        (Dtype::U8, true) => &kernels.train_sum_u8,
        (Dtype::U8, false) => &kernels.train_sum_u8_single,
        (other, _) => unreachable!("a feature matrix is never {other}"),
    }
}
