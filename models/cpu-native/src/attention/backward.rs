//! The backward pass: gradients of the scores by destination row, then gradients of the values by source node.
//!
//! The first pass writes a pair for each entry: the gradients of its scores, then its coefficients after dropout.

use std::array::from_fn;
use std::ops::Range;

use super::factors::Factors;
use super::kernels::{self, Scaled, WeightedRows, prefetch_row, rows_ahead};
use super::parts::{Parts, Piece};
use super::{Attention, Grads, Halves, Inputs, Transposed, WORK, for_heads};
use crate::prefetch::prefetch;
use crate::simd::{Simd, dispatch};

dispatch! {
    /// Writes the pairs of rows and the gradients of the destinations' halves.
    fn rows(a: &Attention<'_>, inputs: RowInputs<'_>, rows: Range<usize>, outputs: [&mut [f32]; 2]) = rows_of::<S>
}
dispatch! {
    /// Completes the pairs of a row.
    pub(super) fn row_scores(
        a: &Attention<'_>,
        halves: Halves<'_>,
        row: usize,
        factors: Option<&mut Factors<'_>>,
        coefficients: &[f32],
        outputs: [&mut [f32]; 2],
    ) = score_grads
}
dispatch! {
    /// Writes the gradients of the values and of the sources' halves, and a part's sums of both vectors' gradients.
    fn sources(a: &Attention<'_>, inputs: NodeInputs<'_>, nodes: Range<usize>, outputs: [&mut [f32]; 3]) = sources_of::<S>
}

/// Inputs of the pass by destination row.
#[derive(Clone, Copy)]
struct RowInputs<'a> {
    values: &'a [f32],
    grad: &'a [f32],
    coefficients: &'a [f32],
    halves: Halves<'a>,
}

/// Inputs of the pass by source node.
#[derive(Clone, Copy)]
struct NodeInputs<'a> {
    inputs: Inputs<'a>,
    transposed: Transposed<'a>,
    grad: &'a [f32],
    pairs: &'a [f32],
    dst_grads: &'a [f32],
}

pub(super) fn run(
    a: &Attention<'_>,
    (inputs, transposed, grad): (Inputs<'_>, Transposed<'_>, &[f32]),
    [coefficients, src_halves, dst_halves]: [&[f32]; 3],
    [pairs, src_grads, dst_grads, sums]: [&mut [f32]; 4],
    grads: Grads<'_>,
) {
    let (heads, cols, level) = (a.options.heads, a.cols(), a.options.level);
    let halves = Halves { src: src_halves, dst: dst_halves, terms: inputs.terms };
    let row_inputs = RowInputs { values: inputs.values, grad, coefficients, halves };
    let pieces = [Piece::Entry { self_loops: a.options.self_loops, each: 2 * heads }, Piece::Row(heads)];
    Parts::new(a.edges.indptr, WORK).run(pieces, [&mut *pairs, &mut *dst_grads], &|part, outputs| {
        rows(level, a, row_inputs, part, outputs);
    });
    let node_inputs = NodeInputs { inputs, transposed, grad, pairs, dst_grads };
    let pieces = [Piece::Row(cols), Piece::Row(heads), Piece::Part(2 * cols)];
    Parts::new(transposed.indptr, WORK).run(pieces, [grads.values, src_grads, &mut *sums], &|part, outputs| {
        sources(level, a, node_inputs, part, outputs);
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
unsafe fn rows_of<S: Simd>(
    a: &Attention<'_>,
    inputs: RowInputs<'_>,
    rows: Range<usize>,
    [all_pairs, dst_grads]: [&mut [f32]; 2],
) {
    let (heads, width, cols) = (a.options.heads, a.options.width, a.cols());
    let first_entry = a.entry(rows.start);
    let ahead = rows_ahead(cols);
    let mut factors = Factors::new(a, rows.end);
    for row in rows.clone() {
        let grad = &inputs.grad[row * cols..(row + 1) * cols];
        let entries = a.entry(row)..a.entry(row + 1);
        let pairs = (entries.start - first_entry) * 2 * heads..(entries.end - first_entry) * 2 * heads;
        let pairs = &mut all_pairs[pairs];
        let coefficients = &inputs.coefficients[entries.start * heads..entries.end * heads];
        // Gradients of the coefficients: dot products of the row's gradient and the sources' values.
        let (first, end) = (a.edge(row), a.edge(row + 1));
        let sources = a.edges.indices[first..end].iter().map(|&src| src as usize);
        let sources = sources.chain(a.options.self_loops.then_some(row));
        for ((k, src), pair) in sources.enumerate().zip(pairs.chunks_exact_mut(2 * heads)) {
            if let Some(&src) = a.edges.indices.get(first + k + ahead) {
                prefetch_row(inputs.values, src, cols);
            }
            let values = &inputs.values[src * cols..(src + 1) * cols];
            // SAFETY: the caller promises the instructions.
            unsafe { kernels::dots::<S>(grad, values, width, &mut pair[..heads]) };
        }
        let dst_grads = &mut dst_grads[(row - rows.start) * heads..(row + 1 - rows.start) * heads];
        row_scores(a.options.level, a, inputs.halves, row, factors.as_mut(), coefficients, [pairs, dst_grads]);
    }
}

/// Completes the pairs of a row from the gradients of its coefficients, which their first halves are: dropout and its
/// derivative, then the gradients of scores; and writes the gradients of the destination's halves.
#[inline(always)]
fn score_grads(
    a: &Attention<'_>,
    halves: Halves<'_>,
    row: usize,
    factors: Option<&mut Factors<'_>>,
    coefficients: &[f32],
    [pairs, dst_grads]: [&mut [f32]; 2],
) {
    let (heads, entries) = (a.options.heads, a.entry(row)..a.entry(row + 1));
    for_heads!(heads, copy_coefficients(coefficients, pairs));
    if let Some(factors) = factors {
        let mut entry = entries.start;
        while entry < entries.end {
            let factors = factors.of(row, entry, entries.end);
            drop_pairs(heads, &mut pairs[(entry - entries.start) * 2 * heads..], factors);
            entry += factors.len() / heads;
        }
    }
    for_heads!(heads, scores_of(a, halves, row, coefficients, pairs, dst_grads));
}

/// Copies the coefficients of entries to the second half of their pairs, for the `N` heads from `head` on.
#[inline(always)]
fn copy_coefficients<const N: usize>(head: usize, stride: usize, coefficients: &[f32], pairs: &mut [f32]) {
    for (pair, coefficients) in pairs.chunks_exact_mut(2 * stride).zip(coefficients.chunks_exact(stride)) {
        pair[stride + head..][..N].copy_from_slice(&coefficients[head..][..N]);
    }
}

/// Multiplies gradients and coefficients of pairs by dropout factors.
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

/// Replaces the gradients of coefficients by those of scores, for the `N` heads from `head` on: the derivatives of the softmax
/// and the leaky ReLU.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "`for_heads` adds the first two")]
fn scores_of<const N: usize>(
    head: usize,
    stride: usize,
    a: &Attention<'_>,
    halves: Halves<'_>,
    row: usize,
    coefficients: &[f32],
    pairs: &mut [f32],
    dst_grads: &mut [f32],
) {
    let outputs = [pairs, dst_grads];
    match halves.terms {
        // As in the forward pass.
        [] => scores_with([head, stride], a, halves, row, |_| [-0.0; N], coefficients, outputs),
        terms => {
            let first = a.entry(row);
            let term =
                |k: usize| *terms[(first + k) * stride + head..].first_chunk::<N>().expect("a term for each head");
            scores_with([head, stride], a, halves, row, term, coefficients, outputs);
        }
    }
}

/// As [`scores_of`], with the terms of the scores of the row's entries.
#[inline(always)]
fn scores_with<const N: usize>(
    [head, stride]: [usize; 2],
    a: &Attention<'_>,
    halves: Halves<'_>,
    row: usize,
    term: impl Fn(usize) -> [f32; N],
    coefficients: &[f32],
    [pairs, dst_grads]: [&mut [f32]; 2],
) {
    let slope = a.options.slope;
    let mut means = [0.0f32; N];
    for (pair, coefficients) in pairs.chunks_exact(2 * stride).zip(coefficients.chunks_exact(stride)) {
        for h in 0..N {
            means[h] += coefficients[head + h] * pair[head + h];
        }
    }
    let of_dst: &[f32; N] = halves.dst[row * stride + head..].first_chunk().expect("a half for each head");
    let mut sums = [0.0f32; N];
    let sources = a.sources(row);
    let (edge_pairs, loop_pair) = pairs.split_at_mut(sources.len() * 2 * stride);
    let entries = edge_pairs.chunks_exact_mut(2 * stride).zip(coefficients.chunks_exact(stride));
    let slopes = |of_src: &[f32; N], term: [f32; N]| {
        from_fn(|h| if of_src[h] + of_dst[h] + term[h] > 0.0 { 1.0 } else { slope })
    };
    for ((k, (pair, coefficients)), &src) in entries.enumerate().zip(sources) {
        let of_src: &[f32; N] = halves.src[src as usize * stride + head..].first_chunk().expect("a half for each head");
        let slopes = slopes(of_src, term(k));
        score::<N>(&slopes, &means, &coefficients[head..], &mut pair[head..], &mut sums);
    }
    if a.options.self_loops {
        let of_src: &[f32; N] = halves.src[row * stride + head..].first_chunk().expect("a half for each head");
        let slopes = slopes(of_src, term(sources.len()));
        score::<N>(&slopes, &means, &coefficients[sources.len() * stride + head..], &mut loop_pair[head..], &mut sums);
    }
    dst_grads[head..head + N].copy_from_slice(&sums);
}

/// Replaces the gradients of an entry's coefficients by those of its scores, and adds them to `sums`.
#[inline(always)]
fn score<const N: usize>(
    slopes: &[f32; N],
    means: &[f32; N],
    coefficients: &[f32],
    pair: &mut [f32],
    sums: &mut [f32; N],
) {
    let (coefficients, pair) = (&coefficients[..N], &mut pair[..N]);
    for h in 0..N {
        pair[h] = slopes[h] * (coefficients[h] * (pair[h] - means[h]));
        sums[h] += pair[h];
    }
}

/// The output's gradients of the destination rows of a source node's edges.
struct DestinationRows<'a> {
    inputs: NodeInputs<'a>,
    cols: usize,
    heads: usize,
    self_loops: bool,
    first: usize,
    len: usize,
    ahead: usize,
}

impl<'a> DestinationRows<'a> {
    /// The entry of the `k`-th edge: the gradients of its scores, and its coefficients.
    #[inline(always)]
    fn pair(&self, k: usize) -> (&'a [f32], &'a [f32]) {
        let transposed = self.inputs.transposed;
        let self_loops = if self.self_loops { transposed.dst[self.first + k] as usize } else { 0 };
        let entry = transposed.edge[self.first + k] as usize + self_loops;
        self.inputs.pairs[entry * 2 * self.heads..(entry + 1) * 2 * self.heads].split_at(self.heads)
    }

    /// Prefetches the pair of an edge some edges after the `k`-th.
    #[inline(always)]
    fn prefetch_pair(&self, k: usize) {
        let (transposed, at) = (self.inputs.transposed, self.first + k + 3 * self.ahead);
        if let (Some(&edge), Some(&row)) = (transposed.edge.get(at), transposed.dst.get(at)) {
            let entry = edge as usize + if self.self_loops { row as usize } else { 0 };
            prefetch(self.inputs.pairs.as_ptr().wrapping_add(entry * 2 * self.heads), 2 * self.heads);
        }
    }
}

impl WeightedRows for DestinationRows<'_> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    fn row(&self, k: usize) -> &[f32] {
        let row = self.inputs.transposed.dst[self.first + k] as usize;
        &self.inputs.grad[row * self.cols..(row + 1) * self.cols]
    }

    #[inline(always)]
    fn coefficients(&self, k: usize) -> &[f32] {
        self.pair(k).1
    }

    #[inline(always)]
    fn prefetch(&self, k: usize) {
        if let Some(&row) = self.inputs.transposed.dst.get(self.first + k + self.ahead) {
            prefetch_row(self.inputs.grad, row, self.cols);
        }
    }
}

/// Writes the gradient of the source's half of the scores, for the `N` heads from `head` on: the sum over the node's edges and
/// its self loop.
#[inline(always)]
fn add_scores<const N: usize>(
    head: usize,
    _: usize,
    terms: &DestinationRows<'_>,
    self_loop: Option<&[f32]>,
    out: &mut [f32],
) {
    let mut sums = [0.0f32; N];
    let mut add = |grads: &[f32]| {
        let grads: &[f32; N] = grads[head..].first_chunk().expect("a gradient for each head");
        for h in 0..N {
            sums[h] += grads[h];
        }
    };
    for k in 0..terms.len {
        terms.prefetch_pair(k);
        add(terms.pair(k).0);
    }
    self_loop.into_iter().for_each(add);
    out[head..head + N].copy_from_slice(&sums);
}

#[inline(always)]
unsafe fn sources_of<S: Simd>(
    a: &Attention<'_>,
    inputs: NodeInputs<'_>,
    nodes: Range<usize>,
    [value_grads, src_grads, sums]: [&mut [f32]; 3],
) {
    let (heads, width, cols, self_loops) = (a.options.heads, a.options.width, a.cols(), a.options.self_loops);
    let NodeInputs { inputs: Inputs { values, att_src, att_dst, .. }, transposed, grad, pairs, dst_grads } = inputs;
    let (of_src, of_dst) = sums.split_at_mut(cols);
    of_src.fill(0.0);
    of_dst.fill(0.0);
    let rows = value_grads.chunks_exact_mut(cols).zip(src_grads.chunks_exact_mut(heads));
    for (src, (out, score)) in nodes.zip(rows) {
        let (first, end) = (transposed.indptr[src] as usize, transposed.indptr[src + 1] as usize);
        let ahead = rows_ahead(cols);
        let terms = DestinationRows { inputs, cols, heads, self_loops, first, len: end - first, ahead };
        let self_loop = (self_loops && src < a.num_dst()).then(|| {
            let entry = a.entry(src + 1) - 1;
            pairs[entry * 2 * heads..(entry + 1) * 2 * heads].split_at(heads)
        });
        for_heads!(heads, add_scores(&terms, self_loop.map(|(grads, _)| grads), score));
        let values = &values[src * cols..(src + 1) * cols];
        let of_source = Scaled { factors: score, row: att_src };
        // SAFETY: the caller promises the instructions.
        unsafe {
            kernels::add_scaled::<S>(Scaled { factors: score, row: values }, width, of_src);
            if src >= a.num_dst() {
                kernels::sum_scaled::<S, 1>([of_source], width, out);
            } else {
                let factors = &dst_grads[src * heads..(src + 1) * heads];
                kernels::add_scaled::<S>(Scaled { factors, row: values }, width, of_dst);
                let of_destination = Scaled { factors, row: att_dst };
                match self_loop {
                    None => kernels::sum_scaled::<S, 2>([of_source, of_destination], width, out),
                    Some((_, factors)) => {
                        let of_loop = Scaled { factors, row: &grad[src * cols..(src + 1) * cols] };
                        kernels::sum_scaled::<S, 3>([of_source, of_destination, of_loop], width, out);
                    }
                }
            }
        }
        // SAFETY: the caller promises the instructions.
        unsafe { kernels::add_rows::<S, _>(&terms, heads, width, out) };
    }
}
