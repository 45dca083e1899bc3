//! The forward pass: halves of the scores by node, then coefficients and weighted sums by destination row.

use std::ops::Range;

use super::factors::Factors;
use super::kernels::{self, WeightedRows, prefetch_row, rows_ahead};
use super::parts::{Parts, Share};
use super::{Attention, Inputs, WORK, for_heads};
use crate::simd::{Simd, dispatch};

/// Entries whose exponentials are taken together; their coefficients stay in the first cache.
const GROUP: usize = 512;

dispatch!(fn halves(a: &Attention<'_>, inputs: Inputs<'_>, rows: Range<usize>, halves: Halves<'_>) = halves_of::<S>);
dispatch!(fn rows(a: &Attention<'_>, known: RowInputs<'_>, rows: Range<usize>, outputs: Outputs<'_>) = rows_of::<S>);

/// The halves of the scores, `heads` numbers a node: a score is the sum of its source's and its destination's.
struct Halves<'a> {
    src: &'a mut [f32],
    dst: &'a mut [f32],
}

/// What the rows are computed from.
#[derive(Clone, Copy)]
struct RowInputs<'a> {
    values: &'a [f32],
    src: &'a [f32],
    dst: &'a [f32],
}

/// What a part of the rows writes.
struct Outputs<'a> {
    coefficients: &'a mut [f32],
    out: &'a mut [f32],
}

pub(super) fn run(a: &Attention<'_>, inputs: Inputs<'_>, kept: [&mut [f32]; 3], out: &mut [f32]) {
    let [coefficients, src, dst] = kept;
    let (heads, num_dst, level) = (a.options.heads, a.num_dst(), a.options.level);
    let shares = [Share::Row(heads), Share::Limited { limit: num_dst, each: heads }];
    let by_node = Parts::even(a.edges.num_src, WORK);
    by_node.run(shares, [&mut *src, &mut *dst], &|rows, [src, dst]| {
        halves(level, a, inputs, rows, Halves { src, dst });
    });
    let known = RowInputs { values: inputs.values, src, dst };
    let shares = [Share::Entry { own: a.options.self_loops, each: heads }, Share::Row(a.cols())];
    Parts::new(a.edges.indptr, WORK).run(shares, [coefficients, out], &|part, [coefficients, out]| {
        rows(level, a, known, part, Outputs { coefficients, out });
    });
}

#[inline(always)]
unsafe fn halves_of<S: Simd>(a: &Attention<'_>, inputs: Inputs<'_>, rows: Range<usize>, halves: Halves<'_>) {
    let (heads, width) = (a.options.heads, a.options.width);
    let values = &inputs.values[rows.start * a.cols()..rows.end * a.cols()];
    for (row, out) in values.chunks_exact(a.cols()).zip(halves.src.chunks_exact_mut(heads)) {
        // SAFETY: the caller promises the instructions.
        unsafe { half_of::<S>(row, inputs.att_src, width, out) };
    }
    // The rows that are destinations too come first. They are read again, from the cache.
    for (row, out) in values.chunks_exact(a.cols()).zip(halves.dst.chunks_exact_mut(heads)) {
        // SAFETY: the caller promises the instructions.
        unsafe { half_of::<S>(row, inputs.att_dst, width, out) };
    }
}

/// One side's half of a node's scores. No closure: that would be compiled without the instructions.
#[inline(always)]
unsafe fn half_of<S: Simd>(row: &[f32], att: &[f32], width: usize, out: &mut [f32]) {
    for ((x, att), out) in row.chunks_exact(width).zip(att.chunks_exact(width)).zip(out) {
        // SAFETY: the caller promises the instructions.
        *out = unsafe { kernels::dot::<S>(x, att) };
    }
}

#[inline(always)]
unsafe fn rows_of<S: Simd>(a: &Attention<'_>, known: RowInputs<'_>, rows: Range<usize>, outputs: Outputs<'_>) {
    let (heads, cols) = (a.options.heads, a.cols());
    let first_entry = a.entry(rows.start);
    let mut of_edges = a.options.dropout.map(|d| Factors::new(d, heads, a.edge(rows.end)));
    let mut of_loops = a.options.dropout.map(|d| Factors::new(d, heads, a.num_edges() + rows.end));
    let mut next = rows.start;
    while next < rows.end {
        let (first, start) = (next, a.entry(next));
        while next < rows.end && (next == first || a.entry(next + 1) - start <= GROUP) {
            next += 1;
        }
        let group = (start - first_entry) * heads..(a.entry(next) - first_entry) * heads;
        let group = &mut outputs.coefficients[group];
        let of_row = |row: usize| (a.entry(row) - start) * heads..(a.entry(row + 1) - start) * heads;
        for row in first..next {
            scores(a, known, row, &mut group[of_row(row)]);
        }
        // SAFETY: the caller promises the instructions.
        unsafe { kernels::exp::<S>(group) };
        for row in first..next {
            normalize(heads, &mut group[of_row(row)]);
        }
        for row in first..next {
            let coefficients = &group[of_row(row)];
            let out = &mut outputs.out[(row - rows.start) * cols..(row + 1 - rows.start) * cols];
            // SAFETY: the caller promises the instructions.
            unsafe { sum::<S>(a, known.values, row, coefficients, [&mut of_edges, &mut of_loops], out) };
        }
    }
}

/// The scores of a row's entries, less the largest of each head.
#[inline(always)]
fn scores(a: &Attention<'_>, known: RowInputs<'_>, row: usize, out: &mut [f32]) {
    for_heads!(a.options.heads, scores_of(a, known, row, out));
}

/// Of the `N` heads from `head` on; `stride` is the number of heads, known to the compiler where there are `N`.
#[inline(always)]
fn scores_of<const N: usize>(
    head: usize,
    stride: usize,
    a: &Attention<'_>,
    known: RowInputs<'_>,
    row: usize,
    out: &mut [f32],
) {
    let slope = a.options.slope;
    let of_dst: &[f32; N] = known.dst[row * stride + head..].first_chunk().expect("a half a head");
    let mut largest = [f32::NEG_INFINITY; N];
    let (sources, loops) = (a.sources(row), a.options.self_loops);
    for (&src, out) in sources.iter().zip(out.chunks_exact_mut(stride)) {
        let left_out = loops && src as usize == row;
        let of_src = known.src[src as usize * stride + head..].first_chunk().expect("a half a head");
        let out = out[head..].first_chunk_mut().expect("an element a head");
        score::<N>((of_src, of_dst), slope, left_out, &mut largest, out);
    }
    if loops {
        let of_src = known.src[row * stride + head..].first_chunk().expect("a half a head");
        let out = out[sources.len() * stride + head..].first_chunk_mut().expect("an element a head");
        score::<N>((of_src, of_dst), slope, false, &mut largest, out);
    }
    for out in out.chunks_exact_mut(stride) {
        for (x, largest) in out[head..head + N].iter_mut().zip(&largest) {
            *x -= largest;
        }
    }
}

/// The scores of an entry; an edge that is left out gets a coefficient of 0.
#[inline(always)]
fn score<const N: usize>(
    (of_src, of_dst): (&[f32; N], &[f32; N]),
    slope: f32,
    left_out: bool,
    largest: &mut [f32; N],
    out: &mut [f32; N],
) {
    for h in 0..N {
        let x = of_src[h] + of_dst[h];
        let x = if x > 0.0 { x } else { slope * x };
        let x = if left_out { f32::NEG_INFINITY } else { x };
        largest[h] = if x > largest[h] { x } else { largest[h] };
        out[h] = x;
    }
}

/// Divides each head's numbers by their sum.
#[inline(always)]
fn normalize(heads: usize, entries: &mut [f32]) {
    for_heads!(heads, normalize_of(entries));
}

#[inline(always)]
fn normalize_of<const N: usize>(head: usize, stride: usize, entries: &mut [f32]) {
    let mut sums = [0.0f32; N];
    for entry in entries.chunks_exact(stride) {
        for h in 0..N {
            sums[h] += entry[head + h];
        }
    }
    let inverse = sums.map(|sum| 1.0 / sum);
    for entry in entries.chunks_exact_mut(stride) {
        for h in 0..N {
            entry[head + h] *= inverse[h];
        }
    }
}

/// The rows of consecutive edges with their coefficients.
struct Sources<'a> {
    values: &'a [f32],
    cols: usize,
    heads: usize,
    /// All sources, and the first edge's place among them.
    all: &'a [u32],
    first: usize,
    len: usize,
    ahead: usize,
    coefficients: &'a [f32],
}

impl WeightedRows for Sources<'_> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    fn row(&self, k: usize) -> &[f32] {
        let src = self.all[self.first + k] as usize;
        &self.values[src * self.cols..(src + 1) * self.cols]
    }

    #[inline(always)]
    fn coefficients(&self, k: usize) -> &[f32] {
        &self.coefficients[k * self.heads..(k + 1) * self.heads]
    }

    #[inline(always)]
    fn prefetch(&self, k: usize) {
        if let Some(&src) = self.all.get(self.first + k + self.ahead) {
            prefetch_row(self.values, src, self.cols);
        }
    }
}

/// The weighted sum of a row's sources.
#[inline(always)]
unsafe fn sum<S: Simd>(
    a: &Attention<'_>,
    values: &[f32],
    row: usize,
    coefficients: &[f32],
    [of_edges, of_loops]: [&mut Option<Factors>; 2],
    out: &mut [f32],
) {
    let (heads, width, cols) = (a.options.heads, a.options.width, a.cols());
    let (first, end) = (a.edge(row), a.edge(row + 1));
    let (of_row, own) = coefficients.split_at((end - first) * heads);
    out.fill(0.0);
    if a.options.self_loops {
        let values = &values[row * cols..(row + 1) * cols];
        let factors = of_loops.as_mut().map(|f| &*f.of(a.num_edges() + row, a.num_edges() + row + 1));
        for h in 0..heads {
            let (coefficient, head) = (own[h] * factors.map_or(1.0, |f| f[h]), h * width..(h + 1) * width);
            // SAFETY: the caller promises the instructions.
            unsafe { kernels::axpy::<S>(&mut out[head.clone()], coefficient, &values[head]) };
        }
    }
    let (all, ahead) = (a.edges.indices, rows_ahead(cols));
    let Some(factors) = of_edges else {
        let terms = Sources { values, cols, heads, all, first, len: end - first, ahead, coefficients: of_row };
        // SAFETY: the caller promises the instructions.
        return unsafe { kernels::add_rows::<S, _>(&terms, heads, width, out) };
    };
    let mut edge = first;
    while edge < end {
        let factors = factors.of(edge, end);
        let len = factors.len() / heads;
        for (factor, coefficient) in factors.iter_mut().zip(&of_row[(edge - first) * heads..]) {
            *factor *= coefficient;
        }
        let terms = Sources { values, cols, heads, all, first: edge, len, ahead, coefficients: factors };
        // SAFETY: the caller promises the instructions.
        unsafe { kernels::add_rows::<S, _>(&terms, heads, width, out) };
        edge += len;
    }
}
