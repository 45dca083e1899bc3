//! Attention whose heads all read the same rows: a head's sum is that of the rows themselves, and is transformed
//! afterwards.
//!
//! A score is linear in its row: a·(W x) = (Wᵀ a)·x. So with Wᵀ a for each head as its attention vector, coefficients
//! are those of the transformed rows, and W Σ coefficient · x = Σ coefficient · W x. The options' width is that of a
//! row.
//!
//! Rows are attended to in blocks of [`ROWS`], by the caller's tasks, which multiply the sums of a block while they are
//! in the cache. The sums of a block are `[heads, rows of the block, width]`: a GEMM reads those of a head as
//! consecutive rows.

mod kernels;
mod sources;

use std::ops::Range;

use morphgl_graph_store::FeatureView;

use super::backward::row_scores;
use super::factors::Factors;
use super::forward::coefficients;
use super::{Attention, Halves, Options, WORK};
use crate::parallel::{self, ROWS};
use crate::simd::{Element, by_type};
use kernels::{RowRange, Rows, Terms};
pub(crate) use sources::SourceGrads;

/// Bytes of rows that are prefetched.
const BYTES_AHEAD: usize = 4096;

/// Rows that all heads read, of any element type, and the attention vectors.
#[derive(Clone, Copy)]
pub(crate) struct SharedRows<'a> {
    pub(crate) view: FeatureView<'a>,
    /// The row of the view of each source node; `None` where they are the same.
    pub(crate) of_nodes: Option<&'a [u32]>,
    /// The row of the view of each edge's source.
    pub(crate) of_edges: &'a [u32],
    /// `[heads, width]`.
    pub(crate) att_src: &'a [f32],
    /// `[heads, width]`.
    pub(crate) att_dst: &'a [f32],
}

/// Outputs of the backward pass over a block of rows.
pub(crate) struct SharedGrads<'a> {
    /// Gradients of the block's sums, in their layout.
    pub(crate) sums: &'a [f32],
    /// For each entry the gradients of its scores, then its coefficients after dropout; overwritten.
    pub(crate) pairs: &'a mut [f32],
    /// Gradients of the destinations' halves of the scores; overwritten.
    pub(crate) dst: &'a mut [f32],
    /// Gradients of both vectors, `[2, heads, width]`; added to.
    pub(crate) vectors: &'a mut [f32],
}

/// Where the sums of a destination's first head begin among those of all blocks, and how far its heads are apart.
#[inline(always)]
fn head_rows(a: &Attention<'_>, row: usize) -> (usize, usize) {
    let first = row / ROWS * ROWS;
    let by_head = ROWS.min(a.num_dst() - first) * a.options.width;
    (first * a.cols() + (row - first) * a.options.width, by_head)
}

impl Attention<'_> {
    /// Elements of the coefficients of rows.
    pub(crate) fn coefficients_len(&self, rows: Range<usize>) -> usize {
        (self.entry(rows.end) - self.entry(rows.start)) * self.options.heads
    }

    /// Writes the halves of the scores of shared rows to `kept`, after the coefficients.
    ///
    /// # Panics
    ///
    /// When a length is wrong.
    pub(crate) fn shared_halves(&self, inputs: SharedRows<'_>, mut kept: &mut [f32]) {
        let (heads, num_src) = (self.options.heads, self.edges.num_src);
        assert!(inputs.att_src.len() == self.cols() && inputs.att_dst.len() == self.cols(), "attention vectors");
        let [_, src, dst] = self.kept_lens().map(|len| kept.split_off_mut(..len).expect("elements kept for backward"));
        // The destination nodes are the first source nodes, so the last tasks have no destination.
        let outputs = [(src, WORK * heads), (dst, WORK * heads)];
        parallel::tasks(num_src.div_ceil(WORK), outputs, &|task, outputs| {
            by_type!(inputs.view, |values| halves_of(
                self,
                (inputs, values),
                parallel::block(task, WORK, num_src),
                outputs
            ));
        });
    }

    /// Divides what is kept for backward into the coefficients and the halves of the scores.
    pub(crate) fn split_kept<'a>(&self, kept: &'a mut [f32]) -> (&'a mut [f32], &'a [f32]) {
        let (coefficients, halves) = kept.split_at_mut(self.kept_lens()[0]);
        (coefficients, halves)
    }

    fn halves<'a>(&self, halves: &'a [f32]) -> Halves<'a> {
        let (src, dst) = halves.split_at(self.kept_lens()[1]);
        Halves { src, dst, terms: &[] }
    }

    /// Writes the coefficients and the sums of a block of rows.
    ///
    /// # Panics
    ///
    /// When a length is wrong.
    pub(crate) fn shared_rows(
        &self,
        (inputs, halves): (SharedRows<'_>, &[f32]),
        block: Range<usize>,
        of_block: &mut [f32],
        sums: &mut [f32],
    ) {
        assert_eq!(sums.len(), block.len() * self.cols(), "sums of {block:?}");
        assert_eq!(inputs.of_edges.len(), self.num_edges(), "a row per edge");
        assert_eq!(of_block.len(), self.coefficients_len(block.clone()), "coefficients of {block:?}");
        coefficients(self.options.level, self, self.halves(halves), block.clone(), of_block);
        by_type!(inputs.view, |values| rows_of(self, (inputs, values), of_block, block, sums));
    }

    /// Computes the gradients of scores and vectors of a block of rows.
    ///
    /// # Panics
    ///
    /// When a length is wrong.
    pub(crate) fn shared_grads(
        &self,
        (inputs, kept): (SharedRows<'_>, &[f32]),
        block: Range<usize>,
        outputs: SharedGrads<'_>,
    ) {
        let (coefficients, halves) = kept.split_at(self.kept_lens()[0]);
        assert_eq!(outputs.sums.len(), block.len() * self.cols(), "gradients of the sums of {block:?}");
        assert_eq!(outputs.pairs.len(), 2 * self.coefficients_len(block.clone()), "pairs of {block:?}");
        assert_eq!(outputs.dst.len(), block.len() * self.options.heads, "gradients of halves of {block:?}");
        assert_eq!(outputs.vectors.len(), 2 * self.cols(), "gradients of the vectors");
        let kept = (self.halves(halves), coefficients);
        by_type!(inputs.view, |values| grads_of(self, (inputs, values), kept, block, outputs));
    }

    /// Writes the gradients of all rows, `[num_src, width]`; `src_grads` is scratch of an element per source node and
    /// head.
    ///
    /// # Panics
    ///
    /// When a length is wrong, or an index of the transposed block is out of range.
    pub(crate) fn shared_sources(&self, inputs: SourceGrads<'_>, src_grads: &mut [f32], out: &mut [f32]) {
        assert_eq!(inputs.transposed.indptr.len(), self.edges.num_src + 1, "offsets of the transposed block");
        assert_eq!(inputs.grad.len(), self.num_dst() * self.cols(), "gradients of all sums");
        sources::run(self, inputs, src_grads, out);
    }
}

/// The rows of the nodes and of the edges' sources.
fn matrices<'a, T>((inputs, values): (SharedRows<'a>, &'a [T]), width: usize) -> [Rows<'a, T>; 2] {
    let ahead = (BYTES_AHEAD / (width * size_of::<T>())).clamp(2, 24);
    [inputs.of_nodes, Some(inputs.of_edges)].map(|indices| Rows { values, width, indices, ahead })
}

fn halves_of<T: Element>(
    a: &Attention<'_>,
    inputs: (SharedRows<'_>, &[T]),
    nodes: Range<usize>,
    [src, dst]: [&mut [f32]; 2],
) {
    let Options { heads, width, level, .. } = a.options;
    let [rows, _] = matrices(inputs, width);
    let mut halves = [(inputs.0.att_src, src), (inputs.0.att_dst, dst)];
    // Both halves of the scores for a few nodes at a time, so that the second finds the rows in the cache.
    const AT_ONCE: usize = 16;
    for first in nodes.clone().step_by(AT_ONCE) {
        for (vectors, out) in &mut halves {
            let len = AT_ONCE.min(nodes.end - first).min((out.len() / heads).saturating_sub(first - nodes.start));
            let begin = out.len().min((first - nodes.start) * heads);
            let range = RowRange { rows, first, len };
            kernels::dots(level, range, vectors, [heads, width], &mut out[begin..], heads);
        }
    }
}

fn rows_of<T: Element>(
    a: &Attention<'_>,
    inputs: (SharedRows<'_>, &[T]),
    coefficients: &[f32],
    block: Range<usize>,
    out: &mut [f32],
) {
    let (Options { heads, width, level, .. }, first_entry) = (a.options, a.entry(block.start));
    let by_head = block.len() * width;
    let mut factors = Factors::new(a, block.end);
    let [of_nodes, of_edges] = matrices(inputs, width);
    for row in block.clone() {
        let out = &mut out[(row - block.start) * width..];
        let (first, end, start) = (a.edge(row), a.edge(row + 1), a.entry(row));
        let of_row = &coefficients[(start - first_entry) * heads..(a.entry(row + 1) - first_entry) * heads];
        let (of_row, of_loop) = of_row.split_at((end - first) * heads);
        let own = a.options.self_loops.then(|| of_nodes.get(row));
        let mut done = 0;
        // All edges with the self loop at once; with dropout, the edges in windows of its factors, then the self loop.
        loop {
            let (at, add) = (first + done, done > 0);
            let (len, coefficients, own_term, last) = match factors.as_mut() {
                None => (end - first, of_row, own.map(|own| (own, of_loop)), true),
                Some(factors) if at < end => {
                    let factors = factors.of(row, start + done, start + end - first);
                    factors.iter_mut().zip(&of_row[done * heads..]).for_each(|(factor, c)| *factor *= c);
                    done += factors.len() / heads;
                    (factors.len() / heads, &*factors, None, first + done == end && own.is_none())
                }
                Some(factors) => {
                    let own = own.map(|own| {
                        let factors = factors.of(row, start + done, start + done + 1);
                        factors.iter_mut().zip(of_loop).for_each(|(factor, c)| *factor *= c);
                        (own, &*factors)
                    });
                    (0, of_row, own, true)
                }
            };
            let terms = Terms { rows: of_edges, first: at, len, coefficients, stride: heads, own: own_term };
            kernels::sum(level, &terms, [heads, by_head], add, out);
            if last {
                break;
            }
        }
    }
}

fn grads_of<T: Element>(
    a: &Attention<'_>,
    inputs: (SharedRows<'_>, &[T]),
    (halves, coefficients): (Halves<'_>, &[f32]),
    block: Range<usize>,
    SharedGrads { sums, pairs: all_pairs, dst, vectors }: SharedGrads<'_>,
) {
    let (Options { heads, width, level, .. }, first_entry) = (a.options, a.entry(block.start));
    let by_head = block.len() * width;
    let (of_src, of_dst) = vectors.split_at_mut(a.cols());
    let mut factors = Factors::new(a, block.end);
    let [of_nodes, of_edges] = matrices(inputs, width);
    for (row, dst_grads) in block.clone().zip(dst.chunks_exact_mut(heads)) {
        let grad = &sums[(row - block.start) * width..];
        let (first, len, entries) = (a.edge(row), a.sources(row).len(), a.entry(row)..a.entry(row + 1));
        let pairs = &mut all_pairs[(entries.start - first_entry) * 2 * heads..(entries.end - first_entry) * 2 * heads];
        // Gradients of the coefficients.
        let sources = RowRange { rows: of_edges, first, len };
        kernels::dots(level, sources, grad, [heads, by_head], pairs, 2 * heads);
        if a.options.self_loops {
            let own = RowRange { rows: of_nodes, first: row, len: 1 };
            kernels::dots(level, own, grad, [heads, by_head], &mut pairs[len * 2 * heads..], 2 * heads);
        }
        let coefficients = &coefficients[entries.start * heads..entries.end * heads];
        row_scores(level, a, halves, row, factors.as_mut(), coefficients, [&mut *pairs, &mut *dst_grads]);
        // The gradient of an attention vector is the sum of the rows, each times the gradient of its score. The rows are in the cache.
        let rows = Rows { indices: of_edges.indices.map(|indices| &indices[first..first + len]), ..of_edges };
        let own = of_nodes.get(row);
        let own_pair = a.options.self_loops.then(|| (own, &pairs[len * 2 * heads..][..heads]));
        let terms = Terms { rows, first: 0, len, coefficients: pairs, stride: 2 * heads, own: own_pair };
        let of_own = Terms { len: 0, own: Some((own, &*dst_grads)), ..terms };
        for (terms, out) in [(terms, &mut *of_src), (of_own, &mut *of_dst)] {
            kernels::sum(level, &terms, [heads, width], true, out);
        }
    }
}

#[cfg(test)]
mod tests;
