//! Graph attention over a block (GAT, Veličković et al., ICLR 2018, §2.1), forward and backward, over slices.
//!
//! For every head, with z = W x as input: a score leaky_relu(a_src·z_u + a_dst·z_v) for every edge from u to v, coefficients
//! by softmax over the edges that end in v, and out_v = Σ coefficient · z_u. The heads of a row are contiguous. A score may have a
//! term of the edge within the leaky ReLU, which the caller computes, as PyG's GATConv has with `edge_dim`.
//! Within the crate, heads may also share their rows, which are then summed as they are and transformed afterwards (`shared`).
//! Nothing is allocated: the caller provides the outputs, the state that forward keeps for backward, and the scratch.
//!
//! Forward keeps the coefficients and both halves of the scores. Backward has a pass by destination row, which computes the
//! scores' gradients from the output's, and a pass by source node over the transposed block, which the caller builds
//! ([`Transposed`]). Every element is written by one task, so there are no atomics, and the bits do not depend on the number
//! of threads. They do depend on the [`SimdLevel`].
//!
//! Parallel in the calling pool. Time O(entries · heads · width + num_src · heads · width), where the entries are the edges
//! and the self loops.

mod backward;
mod factors;
mod forward;
mod kernels;
mod parts;
mod shared;

use std::ops::Range;

use morphgl_model_core::Dropout;
use morphgl_platform::SimdLevel;

use crate::csr::check_offsets;
pub(crate) use shared::{SharedGrads, SharedRows, SourceGrads};

/// Maximum number of heads with dropout of the coefficients.
pub const MAX_DROPPED_HEADS: usize = 1024;

/// Entries and rows of a task: about 100 µs.
const WORK: usize = 4096;

/// The edges of a block by destination row.
#[derive(Debug, Clone, Copy)]
pub struct Edges<'a> {
    /// Offsets of the rows' edges, one more than rows.
    pub indptr: &'a [u32],
    /// The source of each edge. The destination nodes are the first source nodes.
    pub indices: &'a [u32],
    /// Number of source nodes.
    pub num_src: usize,
}

/// The edges of a block by source node, in a deterministic order within a source.
#[derive(Debug, Clone, Copy)]
pub struct Transposed<'a> {
    /// Offsets of the source nodes' edges, one more than source nodes.
    pub indptr: &'a [u32],
    /// The destination row of each edge.
    pub dst: &'a [u32],
    /// The position of each edge in the block's `indices`.
    pub edge: &'a [u32],
}

/// Options of graph attention.
#[derive(Debug, Clone, Copy)]
pub struct Options<'a> {
    /// Number of heads.
    pub heads: usize,
    /// Width of a head.
    pub width: usize,
    /// Slope of the leaky relu for negative scores; 0.2 in the paper.
    pub slope: f32,
    /// Whether a self loop is added to every node, and its edges to itself are ignored (as in PyG's `GATConv`).
    pub self_loops: bool,
    /// Dropout of the coefficients, and the node of each row: element `entry * heads + head` of the node, whose entries are
    /// its edges, then its self loop.
    pub dropout: Option<(Dropout, &'a [u32])>,
    /// SIMD level.
    pub level: SimdLevel,
}

/// Transformed rows, and the attention vectors.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// `[num_src, heads * width]`.
    pub values: &'a [f32],
    /// `[heads * width]`.
    pub att_src: &'a [f32],
    /// `[heads * width]`.
    pub att_dst: &'a [f32],
    /// Terms of the entries' scores before the leaky ReLU, `[entries, heads]`; a row's entries are its edges, then its self loop.
    /// Empty for none.
    pub terms: &'a [f32],
}

/// Gradients of the inputs; overwritten.
#[derive(Debug)]
pub struct Grads<'a> {
    /// `[num_src, heads * width]`.
    pub values: &'a mut [f32],
    /// `[heads * width]`.
    pub att_src: &'a mut [f32],
    /// `[heads * width]`.
    pub att_dst: &'a mut [f32],
}

/// Halves of the scores, a number per node and head. The score of an edge is the sum of its source's and its destination's, and of
/// its own term where there are terms.
#[derive(Debug, Clone, Copy)]
struct Halves<'a> {
    src: &'a [f32],
    dst: &'a [f32],
    terms: &'a [f32],
}

/// Graph attention over one block.
#[derive(Debug, Clone, Copy)]
pub struct Attention<'a> {
    // Invariant: `indptr` begins with 0, ascends, and ends with the number of edges; there are at least as many source nodes
    // as rows. Heads and width are not 0, and their product does not overflow; with dropout, heads are at most
    // `MAX_DROPPED_HEADS`.
    edges: Edges<'a>,
    options: Options<'a>,
}

impl<'a> Attention<'a> {
    /// Attention over these edges.
    ///
    /// # Panics
    ///
    /// When the offsets do not fit `indices`, there are more rows than source nodes, heads or width are 0, or there is dropout
    /// of more than [`MAX_DROPPED_HEADS`] or of fewer nodes than rows.
    pub fn new(edges: Edges<'a>, options: Options<'a>) -> Self {
        check_offsets(edges.indptr, edges.indices.len());
        let rows = edges.indptr.len() - 1;
        assert!(rows <= edges.num_src, "{rows} destination nodes of {} source nodes", edges.num_src);
        let Options { heads, width, dropout, .. } = options;
        // The kernels rely on rows of this length.
        let elements = heads.checked_mul(width).unwrap_or(0);
        assert!(elements > 0, "{heads} heads of width {width}");
        assert!(
            dropout.is_none() || heads <= MAX_DROPPED_HEADS,
            "dropout of {heads} heads; at most {MAX_DROPPED_HEADS}"
        );
        let nodes = dropout.map_or(rows, |(_, nodes)| nodes.len());
        assert!(nodes >= rows, "{nodes} nodes of {rows} rows");
        Self { edges, options }
    }

    /// Elements of the state that forward keeps for backward: the coefficients, `num_edges * heads` (and `num_dst * heads`
    /// with self loops), and the halves of the scores, `(num_src + num_dst) * heads`.
    pub fn kept_len(&self) -> usize {
        self.kept_lens().iter().sum()
    }

    /// The gradients of the terms of `entries`' scores, `heads` elements each, which [`backward`](Self::backward) leaves in its scratch.
    ///
    /// # Panics
    ///
    /// When there are fewer entries.
    pub fn term_grads<'s>(&self, scratch: &'s [f32], entries: Range<usize>) -> impl Iterator<Item = &'s [f32]> {
        let heads = self.options.heads;
        assert!(entries.end <= self.entry(self.num_dst()), "{entries:?} of {} entries", self.entry(self.num_dst()));
        scratch[entries.start * 2 * heads..entries.end * 2 * heads]
            .chunks_exact(2 * heads)
            .map(move |pair| &pair[..heads])
    }

    /// Elements of backward's scratch: two for each entry and head, `(num_src + num_dst) * heads`, and twice the columns for
    /// every 4096 edges and source nodes.
    pub fn scratch_len(&self) -> usize {
        self.scratch_lens().iter().sum()
    }

    /// Writes the output, `[num_dst, heads * width]`, and the state for backward. A row without entries is 0.
    ///
    /// # Panics
    ///
    /// When a length is wrong, or a source is not below `num_src`.
    pub fn forward(&self, inputs: Inputs<'_>, mut kept: &mut [f32], out: &mut [f32]) {
        self.check(inputs);
        assert_eq!(kept.len(), self.kept_len(), "elements kept for backward");
        assert_eq!(out.len(), self.num_dst() * self.cols(), "elements of the output");
        let kept = self.kept_lens().map(|len| kept.split_off_mut(..len).expect("the length was checked"));
        forward::run(self, inputs, kept, out);
    }

    /// Writes the gradients of the inputs from the gradient of the output; `kept` is the state that
    /// [`forward`](Self::forward) wrote.
    ///
    /// # Panics
    ///
    /// When a length is wrong, or an index of the transposed block is out of range.
    pub fn backward(
        &self,
        (inputs, transposed): (Inputs<'_>, Transposed<'_>),
        mut kept: &[f32],
        grad: &[f32],
        mut scratch: &mut [f32],
        grads: Grads<'_>,
    ) {
        self.check(inputs);
        let num_edges = self.num_edges();
        assert_eq!(transposed.indptr.len(), self.edges.num_src + 1, "offsets of the transposed block");
        check_offsets(transposed.indptr, num_edges);
        assert!(
            transposed.dst.len() == num_edges && transposed.edge.len() == num_edges,
            "edges of the transposed block"
        );
        assert_eq!(kept.len(), self.kept_len(), "elements kept by forward");
        assert_eq!(scratch.len(), self.scratch_len(), "elements of the scratch");
        assert_eq!(grad.len(), self.num_dst() * self.cols(), "elements of the output's gradient");
        assert!(
            grads.att_src.len() == self.cols() && grads.att_dst.len() == self.cols(),
            "lengths of the vectors' gradients"
        );
        let kept = self.kept_lens().map(|len| kept.split_off(..len).expect("the length was checked"));
        let scratch = self.scratch_lens().map(|len| scratch.split_off_mut(..len).expect("the length was checked"));
        backward::run(self, (inputs, transposed, grad), kept, scratch, grads);
    }

    fn check(&self, inputs: Inputs<'_>) {
        assert_eq!(inputs.values.len(), self.edges.num_src * self.cols(), "elements of the values");
        let (src, dst) = (inputs.att_src.len(), inputs.att_dst.len());
        assert!(src == self.cols() && dst == self.cols(), "attention vectors of {src} and {dst}, not {}", self.cols());
        let (terms, entries) = (inputs.terms.len(), self.kept_lens()[0]);
        assert!(terms == 0 || terms == entries, "{terms} terms of scores, not {entries}");
    }

    /// Lengths of the coefficients and of the halves of the scores by source and by destination.
    fn kept_lens(&self) -> [usize; 3] {
        let heads = self.options.heads;
        [self.entry(self.num_dst()) * heads, self.edges.num_src * heads, self.num_dst() * heads]
    }

    /// Lengths of the pairs of [`backward`], of the gradients of both halves, and of the parts' sums.
    fn scratch_lens(&self) -> [usize; 4] {
        let [coefficients, src, dst] = self.kept_lens();
        let parts = parts::Parts::count_of(self.num_edges() + self.edges.num_src, WORK);
        [2 * coefficients, src, dst, parts * 2 * self.cols()]
    }

    fn num_dst(&self) -> usize {
        self.edges.indptr.len() - 1
    }

    fn num_edges(&self) -> usize {
        self.edges.indices.len()
    }

    fn cols(&self) -> usize {
        self.options.heads * self.options.width
    }

    /// The first edge of a row.
    #[inline(always)]
    fn edge(&self, row: usize) -> usize {
        self.edges.indptr[row] as usize
    }

    /// The first entry of a row; its edges come before its self loop.
    #[inline(always)]
    fn entry(&self, row: usize) -> usize {
        self.edge(row) + if self.options.self_loops { row } else { 0 }
    }

    #[inline(always)]
    fn sources(&self, row: usize) -> &'a [u32] {
        &self.edges.indices[self.edge(row)..self.edge(row + 1)]
    }
}

/// Calls `f::<N>(head, stride, …)` for all heads, `N` at a time; for up to 8 heads, the stride is a constant.
macro_rules! for_heads {
    ($heads:expr, $f:ident($($arg:expr),+)) => {
        match $heads {
            1 => $f::<1>(0, 1, $($arg),+),
            2 => $f::<2>(0, 2, $($arg),+),
            4 => $f::<4>(0, 4, $($arg),+),
            8 => $f::<8>(0, 8, $($arg),+),
            heads => {
                let mut head = 0;
                while head + 4 <= heads {
                    $f::<4>(head, heads, $($arg),+);
                    head += 4;
                }
                while head < heads {
                    $f::<1>(head, heads, $($arg),+);
                    head += 1;
                }
            }
        }
    };
}
use for_heads;
