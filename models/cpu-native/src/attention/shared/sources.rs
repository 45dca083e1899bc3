//! Gradients of shared rows: sums over a source's edges and over heads.

use std::ops::Range;

use super::super::parts::{Parts, Piece};
use super::super::{Attention, Transposed, WORK, for_heads};
use super::{SharedRows, head_rows};
use crate::prefetch::{prefetch, prefetch_line};
use crate::simd::{Simd, dispatch};

/// What the gradients of shared rows are computed from.
#[derive(Clone, Copy)]
pub(crate) struct SourceGrads<'a> {
    pub(crate) rows: SharedRows<'a>,
    pub(crate) transposed: Transposed<'a>,
    /// Gradients of the sums, as [`SharedGrads::sums`](super::SharedGrads::sums), block after block.
    pub(crate) grad: &'a [f32],
    pub(crate) pairs: &'a [f32],
    pub(crate) dst_grads: &'a [f32],
}

dispatch! {
    /// Writes the gradients of rows, and those of their halves of the scores.
    fn sources(a: &Attention<'_>, inputs: SourceGrads<'_>, nodes: Range<usize>, outputs: [&mut [f32]; 2]) = sources_of::<S>
}

/// Writes the gradients of all source nodes' rows to `out`; `src_grads` is scratch, an element per source node and
/// head.
pub(super) fn run(a: &Attention<'_>, inputs: SourceGrads<'_>, src_grads: &mut [f32], out: &mut [f32]) {
    let pieces = [Piece::Row(a.options.width), Piece::Row(a.options.heads)];
    Parts::new(inputs.transposed.indptr, WORK).run(pieces, [out, src_grads], &|part, outputs| {
        sources(a.options.level, a, inputs, part, outputs);
    });
}

/// A row for each head, `by_head` elements apart, with its coefficient.
#[derive(Clone, Copy)]
struct HeadRows<'a> {
    rows: &'a [f32],
    by_head: usize,
    coefficients: &'a [f32],
}

/// The edges of a source, as rows for each head: gradients of the sums of their destinations.
struct Edges<'a> {
    a: &'a Attention<'a>,
    inputs: SourceGrads<'a>,
    first: usize,
    len: usize,
}

impl<'a> Edges<'a> {
    /// The pair of the `k`-th edge: the gradients of its scores, and its coefficients.
    #[inline(always)]
    fn pair(&self, k: usize) -> (&'a [f32], &'a [f32]) {
        let (transposed, heads) = (self.inputs.transposed, self.a.options.heads);
        let loops = if self.a.options.self_loops { transposed.dst[self.first + k] as usize } else { 0 };
        let entry = transposed.edge[self.first + k] as usize + loops;
        self.inputs.pairs[entry * 2 * heads..(entry + 1) * 2 * heads].split_at(heads)
    }

    #[inline(always)]
    fn term(&self, k: usize) -> HeadRows<'a> {
        let row = self.inputs.transposed.dst[self.first + k] as usize;
        of_destination(self.a, self.inputs.grad, row, self.pair(k).1)
    }

    /// Prefetches what a later edge reads.
    #[inline(always)]
    fn prefetch(&self, k: usize) {
        const EDGES_AHEAD: usize = 2;
        let (transposed, Attention { options, .. }) = (self.inputs.transposed, self.a);
        if let Some(&row) = transposed.dst.get(self.first + k + EDGES_AHEAD) {
            let (start, by_head) = head_rows(self.a, row as usize);
            for h in 0..options.heads {
                let from = self.inputs.grad.as_ptr().wrapping_add(start + h * by_head);
                prefetch(from, options.width);
                prefetch_line(from.wrapping_add(options.width - 1));
            }
        }
        let at = self.first + k + 3 * EDGES_AHEAD;
        if let (Some(&edge), Some(&row)) = (transposed.edge.get(at), transposed.dst.get(at)) {
            let entry = edge as usize + if options.self_loops { row as usize } else { 0 };
            prefetch(self.inputs.pairs.as_ptr().wrapping_add(entry * 2 * options.heads), 2 * options.heads);
        }
    }
}

/// The gradients of a destination's sums.
#[inline(always)]
fn of_destination<'a>(a: &Attention<'_>, grad: &'a [f32], row: usize, coefficients: &'a [f32]) -> HeadRows<'a> {
    let (start, by_head) = head_rows(a, row);
    HeadRows { rows: &grad[start..], by_head, coefficients }
}

/// Writes the gradients of the source's half of the scores, for the `N` heads from `head` on.
#[inline(always)]
fn add_scores<const N: usize>(head: usize, _: usize, edges: &Edges<'_>, self_loop: Option<&[f32]>, out: &mut [f32]) {
    let mut sums = [0.0f32; N];
    let mut add = |grads: &[f32]| {
        let grads: &[f32; N] = grads[head..].first_chunk().expect("a gradient for each head");
        for h in 0..N {
            sums[h] += grads[h];
        }
    };
    (0..edges.len).for_each(|k| add(edges.pair(k).0));
    self_loop.into_iter().for_each(add);
    out[head..head + N].copy_from_slice(&sums);
}

#[inline(always)]
unsafe fn sources_of<S: Simd>(
    a: &Attention<'_>,
    inputs: SourceGrads<'_>,
    nodes: Range<usize>,
    [out, src_grads]: [&mut [f32]; 2],
) {
    let (heads, width, self_loops) = (a.options.heads, a.options.width, a.options.self_loops);
    let SourceGrads { rows: SharedRows { att_src, att_dst, .. }, transposed, grad, pairs, dst_grads } = inputs;
    let rows = out.chunks_exact_mut(width).zip(src_grads.chunks_exact_mut(heads));
    for (src, (out, score)) in nodes.zip(rows) {
        let (first, end) = (transposed.indptr[src] as usize, transposed.indptr[src + 1] as usize);
        let edges = Edges { a, inputs, first, len: end - first };
        let is_dst = src < a.num_dst();
        let self_loop = (self_loops && is_dst).then(|| {
            let entry = a.entry(src + 1) - 1;
            pairs[entry * 2 * heads..(entry + 1) * 2 * heads].split_at(heads)
        });
        for_heads!(heads, add_scores(&edges, self_loop.map(|(grads, _)| grads), score));
        let of_scores = |rows, coefficients| HeadRows { rows, by_head: width, coefficients };
        let others = [
            Some(of_scores(att_src, &*score)),
            is_dst.then(|| of_scores(att_dst, &dst_grads[src * heads..(src + 1) * heads])),
            self_loop.map(|(_, coefficients)| of_destination(a, grad, src, coefficients)),
        ];
        // SAFETY: the caller promises the instructions.
        unsafe { sum::<S>(&edges, others, out) };
    }
}

/// Writes the sum of all rows of the edges and of other terms.
#[inline(always)]
unsafe fn sum<S: Simd>(edges: &Edges<'_>, others: [Option<HeadRows<'_>>; 3], out: &mut [f32]) {
    let (width, mut at) = (out.len(), 0);
    while at < width {
        // SAFETY: the caller promises the instructions, and the vectors begin before `width`.
        let vectors = unsafe {
            match (width - at).div_ceil(S::LANES) {
                16.. if S::REGISTERS > 16 => block::<S, 16>(edges, others, at, out),
                8.. => block::<S, 8>(edges, others, at, out),
                4.. => block::<S, 4>(edges, others, at, out),
                2.. => block::<S, 2>(edges, others, at, out),
                _ => block::<S, 1>(edges, others, at, out),
            }
        };
        at += vectors * S::LANES;
    }
}

/// Sums `V` vectors from element `at` on; returns their number.
#[inline(always)]
unsafe fn block<S: Simd, const V: usize>(
    edges: &Edges<'_>,
    others: [Option<HeadRows<'_>>; 3],
    at: usize,
    out: &mut [f32],
) -> usize {
    // SAFETY: the caller promises the instructions; all vectors are whole where `TAIL` is false.
    unsafe {
        if out.len() - at >= V * S::LANES {
            vectors::<S, V, false>(edges, others, at, out);
        } else {
            vectors::<S, V, true>(edges, others, at, out);
        }
    }
    V
}

#[inline(always)]
unsafe fn vectors<S: Simd, const V: usize, const TAIL: bool>(
    edges: &Edges<'_>,
    others: [Option<HeadRows<'_>>; 3],
    at: usize,
    out: &mut [f32],
) {
    let (width, heads) = (out.len(), edges.a.options.heads);
    assert!(at + (V - 1) * S::LANES < width, "vectors that begin in the row");
    let tail = if TAIL { width - at - (V - 1) * S::LANES } else { S::LANES };
    // SAFETY: the caller promises the instructions; `add` checks that rows have `width` elements, in which the vectors
    // are.
    unsafe {
        let mut sums = [S::splat(0.0); V];
        for term in others.into_iter().flatten() {
            add::<S, V, TAIL>(term, [heads, width, at, tail], &mut sums);
        }
        for k in 0..edges.len {
            if at == 0 {
                edges.prefetch(k);
            }
            add::<S, V, TAIL>(edges.term(k), [heads, width, at, tail], &mut sums);
        }
        for (v, &sum) in sums.iter().enumerate() {
            let to = out.as_mut_ptr().add(at + v * S::LANES);
            if TAIL && v + 1 == V { S::store_first(to, tail, sum) } else { S::store(to, sum) }
        }
    }
}

/// Adds vectors of the rows of all heads.
///
/// # Safety
///
/// The processor has the instructions of `S`, and `V` vectors from element `at` on end with a row of `width` elements,
/// the last of them after `tail` elements if `TAIL`.
#[inline(always)]
unsafe fn add<S: Simd, const V: usize, const TAIL: bool>(
    HeadRows { rows, by_head, coefficients }: HeadRows<'_>,
    [heads, width, at, tail]: [usize; 4],
    sums: &mut [S::V; V],
) {
    assert!((heads - 1) * by_head + width <= rows.len(), "a row of {width} elements for each of {heads} heads");
    for (h, &coefficient) in coefficients[..heads].iter().enumerate() {
        // SAFETY: the row of the head has `width` elements (asserted above); the caller promises the remainder.
        unsafe {
            let (from, coefficient) = (rows.as_ptr().add(h * by_head + at), S::splat(coefficient));
            for (v, sum) in sums.iter_mut().enumerate() {
                let from = from.add(v * S::LANES);
                let x = if TAIL && v + 1 == V { S::load_first(from, tail) } else { S::load(from) };
                *sum = S::fma(coefficient, x, *sum);
            }
        }
    }
}
