//! Graph attention over a block (GAT, Veličković et al., ICLR 2018, §2.1), forward and backward, over slices.
//!
//! For every head, with z = W x computed beforehand: a score leaky_relu(a_src·z_u + a_dst·z_v) for every edge from u
//! to v, coefficients by softmax over the edges that end in v, and out_v = Σ coefficient · z_u. Heads stand side by side.
//! Nothing is allocated: the caller gives the outputs, what is kept from forward to backward, and the scratch.
//!
//! Forward keeps the coefficients and both halves of the scores. Backward has a pass by destination row, which turns
//! the output's gradient into the scores', and a pass by source node over the transposed block, which the caller builds
//! ([`Transposed`]); every number is written by one task, so there are no atomics, and the bits do not depend on the
//! number of threads. They do depend on the [`SimdLevel`].
//!
//! Parallel over the pool that calls. Time O(entries · heads · width + num_src · heads · width).

mod backward;
mod factors;
mod forward;
mod kernels;
mod parts;

use morphgl_model_spec::Dropout;

use crate::csr::check_offsets;
use morphgl_platform::SimdLevel;

/// Heads whose coefficients can be dropped, at most.
pub const MAX_DROPPED_HEADS: usize = 1024;

/// Entries and rows a task works on: about 100 µs.
const WORK: usize = 4096;

/// The edges of a block by destination row.
#[derive(Debug, Clone, Copy)]
pub struct Edges<'a> {
    /// Where each row's edges start; one more than rows.
    pub indptr: &'a [u32],
    /// The source of each edge. The rows' own nodes are the first sources.
    pub indices: &'a [u32],
    /// Number of source nodes.
    pub num_src: usize,
}

/// The edges of a block by source node; within one, in any order that is always the same.
#[derive(Debug, Clone, Copy)]
pub struct Transposed<'a> {
    /// Where each source's edges start; one more than source nodes.
    pub indptr: &'a [u32],
    /// The destination row of each edge.
    pub dst: &'a [u32],
    /// Its position in the block's `indices`.
    pub edge: &'a [u32],
}

/// How edges are attended to.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Number of heads.
    pub heads: usize,
    /// Width of a head.
    pub width: usize,
    /// Slope of the leaky relu for negative scores; 0.2 in the paper.
    pub slope: f32,
    /// Whether every node attends to itself too; edges from a node to itself are left out then (as in PyG's `GATConv`).
    pub self_loops: bool,
    /// Dropout of the coefficients: element `edge * heads + head`, the self loop of row v being edge `num_edges + v`.
    pub dropout: Option<Dropout>,
    /// What to compute with.
    pub level: SimdLevel,
}

/// What is attended to, and the attention vectors.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// `[num_src, heads * width]`.
    pub values: &'a [f32],
    /// `[heads * width]`.
    pub att_src: &'a [f32],
    /// `[heads * width]`.
    pub att_dst: &'a [f32],
}

/// The gradients of the inputs; written over.
#[derive(Debug)]
pub struct Grads<'a> {
    /// `[num_src, heads * width]`.
    pub values: &'a mut [f32],
    /// `[heads * width]`.
    pub att_src: &'a mut [f32],
    /// `[heads * width]`.
    pub att_dst: &'a mut [f32],
}

/// Graph attention over one block.
#[derive(Debug, Clone, Copy)]
pub struct Attention<'a> {
    // Invariant: `indptr` begins with 0, ascends, and ends with the number of edges; there are as many source nodes as
    // rows at least. Heads and width are not 0, nor is their product too large for a number; with dropout, heads are at
    // most `MAX_DROPPED_HEADS`.
    edges: Edges<'a>,
    options: Options,
}

impl<'a> Attention<'a> {
    /// Attention over these edges.
    ///
    /// # Panics
    ///
    /// When the offsets are not those of `indices`, there are more rows than source nodes, a width is 0, or there is dropout
    /// of more than [`MAX_DROPPED_HEADS`].
    pub fn new(edges: Edges<'a>, options: Options) -> Self {
        check_offsets(edges.indptr, edges.indices.len());
        let rows = edges.indptr.len() - 1;
        assert!(rows <= edges.num_src, "{rows} destination of {} source nodes", edges.num_src);
        let Options { heads, width, dropout, .. } = options;
        // The kernels rely on a row of so many elements.
        let elements = heads.checked_mul(width).unwrap_or(0);
        assert!(elements > 0, "{heads} heads of width {width}");
        assert!(
            dropout.is_none() || heads <= MAX_DROPPED_HEADS,
            "dropout of {heads} heads; at most {MAX_DROPPED_HEADS}"
        );
        Self { edges, options }
    }

    /// Elements that forward keeps for backward: the coefficients, `num_edges * heads` (and `num_dst * heads` with self
    /// loops), and the halves of the scores, `(num_src + num_dst) * heads`.
    pub fn kept_len(&self) -> usize {
        self.kept_lens().iter().sum()
    }

    /// Elements of backward's scratch: two an entry and head, `(num_src + num_dst) * heads`, and twice the columns for
    /// every 4096 edges and source nodes.
    pub fn scratch_len(&self) -> usize {
        self.scratch_lens().iter().sum()
    }

    /// Writes the output, `[num_dst, heads * width]`, and what backward needs. A row without entries is 0.
    ///
    /// # Panics
    ///
    /// When a length is wrong, or a source is not below `num_src`.
    pub fn forward(&self, inputs: Inputs<'_>, kept: &mut [f32], out: &mut [f32]) {
        self.check(inputs);
        assert_eq!(kept.len(), self.kept_len(), "elements kept for backward");
        assert_eq!(out.len(), self.num_dst() * self.cols(), "elements of the output");
        let [coefficients, src, _] = self.kept_lens();
        let (coefficients, halves) = kept.split_at_mut(coefficients);
        let (src, dst) = halves.split_at_mut(src);
        forward::run(self, inputs, [coefficients, src, dst], out);
    }

    /// Writes the gradients of the inputs from that of the output; `kept` is what [`forward`](Self::forward) wrote.
    ///
    /// # Panics
    ///
    /// When a length is wrong, or a number of the transposed block is out of range.
    pub fn backward(
        &self,
        (inputs, transposed): (Inputs<'_>, Transposed<'_>),
        kept: &[f32],
        grad: &[f32],
        scratch: &mut [f32],
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
            "widths of vectors' gradients"
        );
        let [coefficients, src, _] = self.kept_lens();
        let (coefficients, halves) = kept.split_at(coefficients);
        let (src, dst) = halves.split_at(src);
        let kept = backward::Kept { coefficients, src, dst };
        let [pairs, src, dst, _] = self.scratch_lens();
        let (pairs, rest) = scratch.split_at_mut(pairs);
        let (src, rest) = rest.split_at_mut(src);
        let (dst, sums) = rest.split_at_mut(dst);
        backward::run(self, (inputs, transposed, grad), kept, backward::Scratch { pairs, src, dst, sums }, grads);
    }

    fn check(&self, inputs: Inputs<'_>) {
        assert_eq!(inputs.values.len(), self.edges.num_src * self.cols(), "elements to attend to");
        let (src, dst) = (inputs.att_src.len(), inputs.att_dst.len());
        assert!(src == self.cols() && dst == self.cols(), "attention vectors of {src} and {dst}, not {}", self.cols());
    }

    fn kept_lens(&self) -> [usize; 3] {
        let heads = self.options.heads;
        [self.entry(self.num_dst()) * heads, self.edges.num_src * heads, self.num_dst() * heads]
    }

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

    /// A row's first edge.
    #[inline(always)]
    fn edge(&self, row: usize) -> usize {
        self.edges.indptr[row] as usize
    }

    /// A row's first entry: its edges, then its self loop.
    #[inline(always)]
    fn entry(&self, row: usize) -> usize {
        self.edge(row) + if self.options.self_loops { row } else { 0 }
    }

    #[inline(always)]
    fn sources(&self, row: usize) -> &'a [u32] {
        &self.edges.indices[self.edge(row)..self.edge(row + 1)]
    }
}

/// Calls `f::<N>(head, stride, …)` for all heads, several at once; with all of them the stride is a constant.
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
