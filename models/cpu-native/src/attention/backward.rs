//! The backward pass: gradients of the scores by destination row, then gradients of the values by source node.

use std::array::from_fn;
use std::ops::Range;

use super::factors::Factors;
use super::kernels::{self, WeightedRows, prefetch_row, rows_ahead};
use super::parts::{Parts, Share};
use super::{Attention, Grads, Inputs, Transposed, WORK, for_heads};
use crate::prefetch::prefetch;
use crate::simd::{Simd, dispatch};

dispatch!(fn rows(a: &Attention<'_>, known: RowInputs<'_>, rows: Range<usize>, outputs: RowOutputs<'_>) = rows_of::<S>);
dispatch!(fn sources(a: &Attention<'_>, known: NodeInputs<'_>, nodes: Range<usize>, outputs: NodeOutputs<'_>) = sources_of::<S>);

/// What the gradients of scores are computed from.
#[derive(Clone, Copy)]
struct RowInputs<'a> {
    values: &'a [f32],
    grad: &'a [f32],
    coefficients: &'a [f32],
    src: &'a [f32],
    dst: &'a [f32],
}

/// What a part of the rows writes.
struct RowOutputs<'a> {
    /// Of each entry, the gradients of its scores, then its coefficients after dropout.
    pairs: &'a mut [f32],
    /// Gradients of the destinations' halves.
    dst: &'a mut [f32],
}

/// What the gradients of values are computed from.
#[derive(Clone, Copy)]
struct NodeInputs<'a> {
    inputs: Inputs<'a>,
    transposed: Transposed<'a>,
    grad: &'a [f32],
    pairs: &'a [f32],
    dst: &'a [f32],
}

/// What a part of the source nodes writes.
struct NodeOutputs<'a> {
    values: &'a mut [f32],
    /// Gradients of the sources' halves.
    src: &'a mut [f32],
    /// The part's share of the gradients of both attention vectors.
    sums: &'a mut [f32],
}

/// What was kept by the forward pass.
#[derive(Clone, Copy)]
pub(super) struct Kept<'a> {
    pub(super) coefficients: &'a [f32],
    pub(super) src: &'a [f32],
    pub(super) dst: &'a [f32],
}

/// Room for what goes from one pass to the next.
pub(super) struct Scratch<'a> {
    pub(super) pairs: &'a mut [f32],
    pub(super) src: &'a mut [f32],
    pub(super) dst: &'a mut [f32],
    pub(super) sums: &'a mut [f32],
}

/// The parts of the source nodes, each of which sums the attention vectors' gradients.
pub(super) fn node_parts<'a>(a: &Attention<'_>, indptr: &'a [u32]) -> Parts<'a> {
    debug_assert_eq!(indptr.len(), a.edges.num_src + 1, "offsets of source nodes");
    Parts::new(indptr, WORK)
}

pub(super) fn run(
    a: &Attention<'_>,
    (inputs, transposed, grad): (Inputs<'_>, Transposed<'_>, &[f32]),
    kept: Kept<'_>,
    scratch: Scratch<'_>,
    grads: Grads<'_>,
) {
    let (heads, cols, level) = (a.options.heads, a.cols(), a.options.level);
    let Scratch { pairs, src, dst, sums } = scratch;
    let Kept { coefficients, src: of_src, dst: of_dst } = kept;
    let known = RowInputs { values: inputs.values, grad, coefficients, src: of_src, dst: of_dst };
    let shares = [Share::Entry { own: a.options.self_loops, each: 2 * heads }, Share::Row(heads)];
    Parts::new(a.edges.indptr, WORK).run(shares, [&mut *pairs, &mut *dst], &|part, [pairs, dst]| {
        rows(level, a, known, part, RowOutputs { pairs, dst });
    });
    let found = NodeInputs { inputs, transposed, grad, pairs, dst };
    let shares = [Share::Row(cols), Share::Row(heads), Share::Part(2 * cols)];
    let parts = node_parts(a, transposed.indptr);
    parts.run(shares, [grads.values, src, &mut *sums], &|part, [values, src, sums]| {
        sources(level, a, found, part, NodeOutputs { values, src, sums });
    });
    grads.att_src.fill(0.0);
    grads.att_dst.fill(0.0);
    for sums in sums.chunks_exact(2 * cols) {
        let (of_src, of_dst) = sums.split_at(cols);
        grads.att_src.iter_mut().zip(of_src).for_each(|(grad, sum)| *grad += sum);
        grads.att_dst.iter_mut().zip(of_dst).for_each(|(grad, sum)| *grad += sum);
    }
}

#[inline(always)]
unsafe fn rows_of<S: Simd>(a: &Attention<'_>, known: RowInputs<'_>, rows: Range<usize>, outputs: RowOutputs<'_>) {
    let (heads, width, cols) = (a.options.heads, a.options.width, a.cols());
    let first_entry = a.entry(rows.start);
    let ahead = rows_ahead(cols);
    let mut of_edges = a.options.dropout.map(|d| Factors::new(d, heads, a.edge(rows.end)));
    let mut of_loops = a.options.dropout.map(|d| Factors::new(d, heads, a.num_edges() + rows.end));
    for row in rows.clone() {
        let grad = &known.grad[row * cols..(row + 1) * cols];
        let entries = a.entry(row)..a.entry(row + 1);
        let pairs = (entries.start - first_entry) * 2 * heads..(entries.end - first_entry) * 2 * heads;
        let pairs = &mut outputs.pairs[pairs];
        let coefficients = &known.coefficients[entries.start * heads..entries.end * heads];
        // Gradients of the coefficients: what the row's gradient says to each source.
        let (first, end) = (a.edge(row), a.edge(row + 1));
        let sources = a.edges.indices[first..end].iter().map(|&src| src as usize);
        let sources = sources.chain(a.options.self_loops.then_some(row));
        for ((k, src), pair) in sources.enumerate().zip(pairs.chunks_exact_mut(2 * heads)) {
            if let Some(&src) = a.edges.indices.get(first + k + ahead) {
                prefetch_row(known.values, src, cols);
            }
            let values = &known.values[src * cols..(src + 1) * cols];
            for (h, out) in pair[..heads].iter_mut().enumerate() {
                let head = h * width..(h + 1) * width;
                // SAFETY: the caller promises the instructions.
                *out = unsafe { kernels::dot::<S>(&grad[head.clone()], &values[head]) };
            }
        }
        // Coefficients after dropout, and gradients before it.
        for (pair, coefficients) in pairs.chunks_exact_mut(2 * heads).zip(coefficients.chunks_exact(heads)) {
            pair[heads..].copy_from_slice(coefficients);
        }
        if let (Some(of_edges), Some(of_loops)) = (&mut of_edges, &mut of_loops) {
            let mut edge = first;
            while edge < end {
                let factors = of_edges.of(edge, end);
                let len = factors.len() / heads;
                drop_pairs(heads, &mut pairs[(edge - first) * 2 * heads..], factors);
                edge += len;
            }
            if a.options.self_loops {
                let own = a.num_edges() + row;
                drop_pairs(heads, &mut pairs[(end - first) * 2 * heads..], of_loops.of(own, own + 1));
            }
        }
        let dst = &mut outputs.dst[(row - rows.start) * heads..(row + 1 - rows.start) * heads];
        for_heads!(heads, scores_of(a, known, row, coefficients, pairs, dst));
    }
}

/// Multiplies both halves of the pairs by the factors.
#[inline(always)]
fn drop_pairs(heads: usize, pairs: &mut [f32], factors: &[f32]) {
    for (pair, factors) in pairs.chunks_exact_mut(2 * heads).zip(factors.chunks_exact(heads)) {
        let (grads, coefficients) = pair.split_at_mut(heads);
        for ((grad, coefficient), factor) in grads.iter_mut().zip(coefficients).zip(factors) {
            *grad *= factor;
            *coefficient *= factor;
        }
    }
}

/// Turns gradients of coefficients into those of scores, of the `N` heads from `head` on: backwards through the
/// softmax and the leaky relu.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "the first two are the loop's over heads")]
fn scores_of<const N: usize>(
    head: usize,
    stride: usize,
    a: &Attention<'_>,
    known: RowInputs<'_>,
    row: usize,
    coefficients: &[f32],
    pairs: &mut [f32],
    dst: &mut [f32],
) {
    let slope = a.options.slope;
    let mut means = [0.0f32; N];
    for (pair, coefficients) in pairs.chunks_exact(2 * stride).zip(coefficients.chunks_exact(stride)) {
        for h in 0..N {
            means[h] += coefficients[head + h] * pair[head + h];
        }
    }
    let of_dst: &[f32; N] = known.dst[row * stride + head..].first_chunk().expect("a half a head");
    let mut sums = [0.0f32; N];
    let sources = a.sources(row);
    let (of_edges, own) = pairs.split_at_mut(sources.len() * 2 * stride);
    let entries = of_edges.chunks_exact_mut(2 * stride).zip(coefficients.chunks_exact(stride));
    for ((pair, coefficients), &src) in entries.zip(sources) {
        let of_src: &[f32; N] = known.src[src as usize * stride + head..].first_chunk().expect("a half a head");
        let sides = from_fn(|h| if of_src[h] + of_dst[h] > 0.0 { 1.0 } else { slope });
        score::<N>(&sides, &means, &coefficients[head..], &mut pair[head..], &mut sums);
    }
    if a.options.self_loops {
        let of_src: &[f32; N] = known.src[row * stride + head..].first_chunk().expect("a half a head");
        let sides = from_fn(|h| if of_src[h] + of_dst[h] > 0.0 { 1.0 } else { slope });
        score::<N>(&sides, &means, &coefficients[sources.len() * stride + head..], &mut own[head..], &mut sums);
    }
    dst[head..head + N].copy_from_slice(&sums);
}

/// Gradients of an entry's scores; `sides` are the slopes of the leaky relu.
#[inline(always)]
fn score<const N: usize>(
    sides: &[f32; N],
    means: &[f32; N],
    coefficients: &[f32],
    pair: &mut [f32],
    sums: &mut [f32; N],
) {
    let (coefficients, pair) = (&coefficients[..N], &mut pair[..N]);
    for h in 0..N {
        pair[h] = sides[h] * (coefficients[h] * (pair[h] - means[h]));
        sums[h] += pair[h];
    }
}

/// The gradients of the rows that a source node's edges end in.
struct Destinations<'a> {
    found: NodeInputs<'a>,
    cols: usize,
    heads: usize,
    self_loops: bool,
    first: usize,
    len: usize,
    ahead: usize,
}

impl<'a> Destinations<'a> {
    /// The entry of the `k`-th edge: the gradients of its scores, and its coefficients.
    #[inline(always)]
    fn pair(&self, k: usize) -> (&'a [f32], &'a [f32]) {
        let transposed = self.found.transposed;
        let own = if self.self_loops { transposed.dst[self.first + k] as usize } else { 0 };
        let entry = transposed.edge[self.first + k] as usize + own;
        self.found.pairs[entry * 2 * self.heads..(entry + 1) * 2 * self.heads].split_at(self.heads)
    }

    /// Asks for the pair of an edge some edges after the `k`-th.
    #[inline(always)]
    fn prefetch_pair(&self, k: usize) {
        let (transposed, at) = (self.found.transposed, self.first + k + 3 * self.ahead);
        if let (Some(&edge), Some(&row)) = (transposed.edge.get(at), transposed.dst.get(at)) {
            let entry = edge as usize + if self.self_loops { row as usize } else { 0 };
            prefetch(self.found.pairs.as_ptr().wrapping_add(entry * 2 * self.heads), 2 * self.heads);
        }
    }
}

impl WeightedRows for Destinations<'_> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    fn row(&self, k: usize) -> &[f32] {
        let row = self.found.transposed.dst[self.first + k] as usize;
        &self.found.grad[row * self.cols..(row + 1) * self.cols]
    }

    #[inline(always)]
    fn coefficients(&self, k: usize) -> &[f32] {
        self.pair(k).1
    }

    #[inline(always)]
    fn prefetch(&self, k: usize) {
        if let Some(&row) = self.found.transposed.dst.get(self.first + k + self.ahead) {
            prefetch_row(self.found.grad, row, self.cols);
        }
    }
}

#[inline(always)]
unsafe fn sources_of<S: Simd>(a: &Attention<'_>, found: NodeInputs<'_>, nodes: Range<usize>, outputs: NodeOutputs<'_>) {
    let (heads, width, cols, self_loops) = (a.options.heads, a.options.width, a.cols(), a.options.self_loops);
    let NodeInputs { inputs, transposed, grad, pairs, dst } = found;
    let (of_src, of_dst) = outputs.sums.split_at_mut(cols);
    of_src.fill(0.0);
    of_dst.fill(0.0);
    let rows = outputs.values.chunks_exact_mut(cols).zip(outputs.src.chunks_exact_mut(heads));
    for (src, (out, score)) in nodes.zip(rows) {
        let (first, end) = (transposed.indptr[src] as usize, transposed.indptr[src + 1] as usize);
        let terms = Destinations { found, cols, heads, self_loops, first, len: end - first, ahead: rows_ahead(cols) };
        score.fill(0.0);
        for k in 0..terms.len {
            terms.prefetch_pair(k);
            score.iter_mut().zip(terms.pair(k).0).for_each(|(sum, grad)| *sum += grad);
        }
        out.fill(0.0);
        let is_row = src < a.num_dst();
        let mut own_coefficients = None;
        if self_loops && is_row {
            let entry = a.entry(src + 1) - 1;
            let (own, coefficients) = pairs[entry * 2 * heads..(entry + 1) * 2 * heads].split_at(heads);
            score.iter_mut().zip(own).for_each(|(sum, grad)| *sum += grad);
            own_coefficients = Some(coefficients);
        }
        let values = &inputs.values[src * cols..(src + 1) * cols];
        for h in 0..heads {
            let head = h * width..(h + 1) * width;
            let (out, values) = (&mut out[head.clone()], &values[head.clone()]);
            // SAFETY: the caller promises the instructions.
            unsafe {
                kernels::axpy::<S>(out, score[h], &inputs.att_src[head.clone()]);
                kernels::axpy::<S>(&mut of_src[head.clone()], score[h], values);
                if is_row {
                    let of_row = dst[src * heads + h];
                    kernels::axpy::<S>(out, of_row, &inputs.att_dst[head.clone()]);
                    kernels::axpy::<S>(&mut of_dst[head.clone()], of_row, values);
                }
                if let Some(coefficients) = own_coefficients {
                    kernels::axpy::<S>(out, coefficients[h], &grad[src * cols..(src + 1) * cols][head]);
                }
            }
        }
        // SAFETY: the caller promises the instructions.
        unsafe { kernels::add_rows::<S, _>(&terms, heads, width, out) };
    }
}
