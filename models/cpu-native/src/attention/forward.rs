//! The forward pass: halves of the scores by node, then coefficients and weighted sums by destination row.

use std::ops::Range;

use super::factors::Factors;
use super::kernels::{self, Scaled, WeightedRows, prefetch_row, rows_ahead};
use super::parts::{Parts, Piece};
use super::{Attention, Halves, Inputs, WORK, for_heads};
use crate::parallel;
use crate::simd::{Simd, dispatch};

/// Entries whose exponentials are computed in one loop; their coefficients stay in the first-level cache.
const GROUP: usize = 512;

dispatch! {
    /// Writes the halves of the scores by source and by destination, `heads` elements per node.
    fn halves(a: &Attention<'_>, inputs: Inputs<'_>, nodes: Range<usize>, halves: [&mut [f32]; 2]) = halves_of::<S>
}
dispatch! {
    /// Writes the weighted sum of a row's entries, whose values and coefficients are the inputs.
    fn sum(
        a: &Attention<'_>,
        inputs: (&[f32], &[f32]),
        row: usize,
        factors: Option<&mut Factors<'_>>,
        out: &mut [f32],
    ) = sum_of::<S>
}
dispatch! {
    /// Writes the coefficients of rows.
    pub(super) fn coefficients(
        a: &Attention<'_>,
        halves: Halves<'_>,
        rows: Range<usize>,
        out: &mut [f32],
    ) = coefficients_of::<S>
}

/// Inputs of the second pass.
#[derive(Clone, Copy)]
struct RowInputs<'a> {
    values: &'a [f32],
    halves: Halves<'a>,
}

pub(super) fn run(a: &Attention<'_>, inputs: Inputs<'_>, kept: [&mut [f32]; 3], out: &mut [f32]) {
    let [coefficients, src_halves, dst_halves] = kept;
    let (heads, num_src, level) = (a.options.heads, a.edges.num_src, a.options.level);
    // The destination nodes are the first source nodes, so the last tasks have no destination.
    let outputs = [(&mut *src_halves, WORK * heads), (&mut *dst_halves, WORK * heads)];
    parallel::tasks(num_src.div_ceil(WORK), outputs, &|task, outputs| {
        halves(level, a, inputs, parallel::block(task, WORK, num_src), outputs);
    });
    let halves = Halves { src: src_halves, dst: dst_halves, terms: inputs.terms };
    let inputs = RowInputs { values: inputs.values, halves };
    let pieces = [Piece::Entry { self_loops: a.options.self_loops, each: heads }, Piece::Row(a.cols())];
    Parts::new(a.edges.indptr, WORK).run(pieces, [coefficients, out], &|part, outputs| {
        rows(a, inputs, part, outputs);
    });
}

#[inline(always)]
unsafe fn halves_of<S: Simd>(
    a: &Attention<'_>,
    inputs: Inputs<'_>,
    nodes: Range<usize>,
    [src_halves, dst_halves]: [&mut [f32]; 2],
) {
    let (heads, width) = (a.options.heads, a.options.width);
    let values = &inputs.values[nodes.start * a.cols()..nodes.end * a.cols()];
    for (row, out) in values.chunks_exact(a.cols()).zip(src_halves.chunks_exact_mut(heads)) {
        // SAFETY: the caller promises the instructions.
        unsafe { kernels::dots::<S>(row, inputs.att_src, width, out) };
    }
    // The destinations' rows are read again, from the cache.
    for (row, out) in values.chunks_exact(a.cols()).zip(dst_halves.chunks_exact_mut(heads)) {
        // SAFETY: the caller promises the instructions.
        unsafe { kernels::dots::<S>(row, inputs.att_dst, width, out) };
    }
}

/// Writes the coefficients and the output of rows.
fn rows(a: &Attention<'_>, inputs: RowInputs<'_>, rows: Range<usize>, [all_coefficients, out]: [&mut [f32]; 2]) {
    let (heads, cols, level) = (a.options.heads, a.cols(), a.options.level);
    let first_entry = a.entry(rows.start);
    let mut factors = Factors::new(a, rows.end);
    let mut next = rows.start;
    while next < rows.end {
        let (first, start) = (next, a.entry(next));
        while next < rows.end && (next == first || a.entry(next + 1) - start <= GROUP) {
            next += 1;
        }
        let group = (start - first_entry) * heads..(a.entry(next) - first_entry) * heads;
        let group = &mut all_coefficients[group];
        let of_row = |row: usize| (a.entry(row) - start) * heads..(a.entry(row + 1) - start) * heads;
        coefficients(level, a, inputs.halves, first..next, group);
        for row in first..next {
            let coefficients = &group[of_row(row)];
            let out = &mut out[(row - rows.start) * cols..(row + 1 - rows.start) * cols];
            sum(level, a, (inputs.values, coefficients), row, factors.as_mut(), out);
        }
    }
}

#[inline(always)]
unsafe fn coefficients_of<S: Simd>(a: &Attention<'_>, halves: Halves<'_>, rows: Range<usize>, out: &mut [f32]) {
    let (heads, start) = (a.options.heads, a.entry(rows.start));
    let of_row = |row: usize| (a.entry(row) - start) * heads..(a.entry(row + 1) - start) * heads;
    for row in rows.clone() {
        let scores = &mut out[of_row(row)];
        for_heads!(heads, scores_of(a, halves, row, scores));
    }
    // SAFETY: the caller promises the instructions.
    unsafe { kernels::exp::<S>(out) };
    for row in rows {
        let entries = &mut out[of_row(row)];
        for_heads!(heads, normalize(entries));
    }
}

/// Writes the scores of a row's entries, less the maximum of each head, for the `N` heads from `head` on; `stride` is the
/// number of heads.
#[inline(always)]
fn scores_of<const N: usize>(
    head: usize,
    stride: usize,
    a: &Attention<'_>,
    halves: Halves<'_>,
    row: usize,
    out: &mut [f32],
) {
    match halves.terms {
        // Adding -0.0 changes no number, and costs nothing.
        [] => scores_with([head, stride], a, halves, row, |_| [-0.0; N], out),
        terms => {
            let first = a.entry(row);
            let term =
                |k: usize| *terms[(first + k) * stride + head..].first_chunk::<N>().expect("a term for each head");
            scores_with([head, stride], a, halves, row, term, out);
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
    out: &mut [f32],
) {
    let slope = a.options.slope;
    let of_dst: &[f32; N] = halves.dst[row * stride + head..].first_chunk().expect("a half for each head");
    let mut largest = [f32::NEG_INFINITY; N];
    let (sources, loops) = (a.sources(row), a.options.self_loops);
    for ((k, &src), out) in sources.iter().enumerate().zip(out.chunks_exact_mut(stride)) {
        let ignored = loops && src as usize == row;
        let of_src = halves.src[src as usize * stride + head..].first_chunk().expect("a half for each head");
        let out = out[head..].first_chunk_mut().expect("an element for each head");
        score::<N>((of_src, of_dst, term(k)), slope, ignored, &mut largest, out);
    }
    if loops {
        let of_src = halves.src[row * stride + head..].first_chunk().expect("a half for each head");
        let out = out[sources.len() * stride + head..].first_chunk_mut().expect("an element for each head");
        score::<N>((of_src, of_dst, term(sources.len())), slope, false, &mut largest, out);
    }
    for out in out.chunks_exact_mut(stride) {
        for (x, largest) in out[head..head + N].iter_mut().zip(&largest) {
            *x -= largest;
        }
    }
}

/// Writes the scores of an entry; an ignored edge gets a coefficient of 0.
#[inline(always)]
fn score<const N: usize>(
    (of_src, of_dst, term): (&[f32; N], &[f32; N], [f32; N]),
    slope: f32,
    ignored: bool,
    largest: &mut [f32; N],
    out: &mut [f32; N],
) {
    for h in 0..N {
        let x = of_src[h] + of_dst[h] + term[h];
        let x = if x > 0.0 { x } else { slope * x };
        let x = if ignored { f32::NEG_INFINITY } else { x };
        largest[h] = if x > largest[h] { x } else { largest[h] };
        out[h] = x;
    }
}

/// Divides the elements of each of `N` heads by their sum.
#[inline(always)]
fn normalize<const N: usize>(head: usize, stride: usize, entries: &mut [f32]) {
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

/// The source rows of consecutive edges, with their coefficients.
struct SourceRows<'a> {
    values: &'a [f32],
    cols: usize,
    heads: usize,
    /// The sources of all edges, and the first of the consecutive edges.
    sources: &'a [u32],
    first: usize,
    len: usize,
    ahead: usize,
    coefficients: &'a [f32],
}

impl WeightedRows for SourceRows<'_> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    fn row(&self, k: usize) -> &[f32] {
        let src = self.sources[self.first + k] as usize;
        &self.values[src * self.cols..(src + 1) * self.cols]
    }

    #[inline(always)]
    fn coefficients(&self, k: usize) -> &[f32] {
        &self.coefficients[k * self.heads..(k + 1) * self.heads]
    }

    #[inline(always)]
    fn prefetch(&self, k: usize) {
        if let Some(&src) = self.sources.get(self.first + k + self.ahead) {
            prefetch_row(self.values, src, self.cols);
        }
    }
}

#[inline(always)]
unsafe fn sum_of<S: Simd>(
    a: &Attention<'_>,
    (values, coefficients): (&[f32], &[f32]),
    row: usize,
    mut factors: Option<&mut Factors<'_>>,
    out: &mut [f32],
) {
    let (heads, width, cols) = (a.options.heads, a.options.width, a.cols());
    let (first, end) = (a.edge(row), a.edge(row + 1));
    let (coefficients, loop_coefficients) = coefficients.split_at((end - first) * heads);
    if a.options.self_loops {
        let row_values = &values[row * cols..(row + 1) * cols];
        let entry = a.entry(row + 1) - 1;
        let mut term = Scaled { factors: loop_coefficients, row: row_values };
        if let Some(factors) = &mut factors {
            let factors = factors.of(row, entry, entry + 1);
            factors.iter_mut().zip(loop_coefficients).for_each(|(factor, coefficient)| *factor *= coefficient);
            term.factors = factors;
        }
        // SAFETY: the caller promises the instructions.
        unsafe { kernels::sum_scaled::<S, 1>([term], width, out) };
    } else {
        out.fill(0.0);
    }
    // All edges at once; with dropout, in windows of its factors.
    let (sources, ahead) = (a.edges.indices, rows_ahead(cols));
    let mut edge = first;
    while edge < end {
        let mut coefficients = &coefficients[(edge - first) * heads..];
        if let Some(factors) = &mut factors {
            let entry = |edge: usize| a.entry(row) + edge - first;
            let factors = factors.of(row, entry(edge), entry(end));
            factors.iter_mut().zip(coefficients).for_each(|(factor, coefficient)| *factor *= coefficient);
            coefficients = factors;
        }
        let len = coefficients.len() / heads;
        let terms = SourceRows { values, cols, heads, sources, first: edge, len, ahead, coefficients };
        // SAFETY: the caller promises the instructions.
        unsafe { kernels::add_rows::<S, _>(&terms, heads, width, out) };
        edge += len;
    }
}
