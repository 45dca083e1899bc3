//! Graph attention over a block, forward and backward.

use morphgl_cuda::{Argument, Floats, Kernel, Shape};
use morphgl_registry::Result;

use crate::arena::Region;
use crate::edges::Edges;
use crate::epilogue::{Factors, column_sums};
use crate::gpu::{Gpu, Mask, Words, arguments, each, number, rows_by_lanes, rows_by_units};
use crate::transpose::{Block, Transposed};

/// Negative slope of the leaky ReLU.
pub(crate) const SLOPE: f32 = 0.2;
/// Threads of a warp; a softmax row is one warp's work.
pub(crate) const WARP: usize = 32;

/// Attention heads, stored side by side, and the dropout of their coefficients.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Heads<'a> {
    pub(crate) heads: usize,
    /// Width of a head.
    pub(crate) width: usize,
    pub(crate) mask: Mask<'a>,
}

/// Number of adjacent lanes that divide the heads of a softmax: the largest power of two up to 32 that divides `heads`.
fn lanes(heads: usize) -> u32 {
    1 << heads.trailing_zeros().min(5)
}

/// Inputs of the scores, for which gradients are computed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Scorer<'a> {
    /// Values, and the attention vectors of sources and destinations.
    Gat { values: Region, att: [Floats<'a>; 2] },
    /// Left side (also the values), right side, and the attention vector.
    Gatv2 { left: Region, right: Region, att: Floats<'a> },
}

/// What backward of attention by edge type reads: per head, one after the other, scores and coefficients of edges, and sums of rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TypedAttended<'a> {
    /// The input rows as f32.
    pub(crate) x: Words<'a>,
    /// What rows are multiplied by for the terms of scores.
    pub(crate) vectors: Region,
    pub(crate) scores: Region,
    pub(crate) coefficients: Region,
    pub(crate) sums: Region,
}

/// Results of the forward pass that backward reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attended<'a> {
    pub(crate) output: Region,
    heads: Heads<'a>,
    scores: Region,
    coefficients: Region,
    /// Coefficients after dropout.
    messages: Region,
}

/// Launches a kernel of kernels/attention.cu.
pub(crate) fn run(gpu: &Gpu, kernel: &Kernel, shape: Shape, arguments: &mut [Argument<'_>]) -> Result<()> {
    // SAFETY: callers give the kernel's arguments; arrays of positions have edges + rows elements per head, those of
    // nodes one row of all heads per source or destination node, as the passes take them.
    unsafe { gpu.launch(kernel, shape, arguments) }
}

/// Launch shape with lanes of a warp over the columns of each head, for sums over them; `at_a_time` of these are read by a lane
/// at once if they divide the width.
pub(crate) fn dot_products(elements: usize, heads: usize, width: usize, at_a_time: usize) -> Shape {
    let columns = if width.is_multiple_of(at_a_time) { width / at_a_time } else { width };
    let shape = rows_by_lanes(elements, columns);
    Shape { grid: [shape.grid[0], number(heads), 1], ..shape }
}

impl Scorer<'_> {
    fn values(&self) -> Region {
        match self {
            Scorer::Gat { values, .. } => *values,
            Scorer::Gatv2 { left, .. } => *left,
        }
    }

    fn scores(&self, gpu: &mut Gpu, edges: &mut Edges<'_>, Heads { heads, width, .. }: Heads<'_>) -> Result<Region> {
        let row_of = edges.row_of(gpu)?;
        let Block { num_dst, num_src, num_edges, indices, .. } = edges.block;
        let positions = num_edges + num_dst;
        let scores = gpu.take(positions * heads)?;
        match *self {
            Scorer::Gat { values, att } => {
                let mut half = |nodes: usize, att: Floats<'_>| -> Result<Region> {
                    let out = gpu.take(nodes * heads)?;
                    let arguments = arguments![gpu, values, att, out, nodes, width];
                    run(gpu, &gpu.kernels.train_halves, dot_products(nodes, heads, width, 4), arguments)?;
                    Ok(out)
                };
                let (src, dst) = (half(num_src, att[0])?, half(num_dst, att[1])?);
                let arguments = arguments![gpu, indices, row_of, src, dst, scores, num_edges, num_dst, heads, SLOPE];
                run(gpu, &gpu.kernels.train_scores, each(positions * heads), arguments)?;
            }
            Scorer::Gatv2 { left, right, att } => {
                let shape = dot_products(positions, heads, width, 1);
                let arguments =
                    arguments![gpu, indices, row_of, left, right, att, scores, num_edges, num_dst, width, SLOPE];
                run(gpu, &gpu.kernels.train_scores_second, shape, arguments)?;
            }
        }
        Ok(scores)
    }
}

/// Attention of each destination row over its sources and itself.
pub(crate) fn attend<'a>(
    gpu: &mut Gpu,
    edges: &mut Edges<'_>,
    scorer: Scorer<'_>,
    options: Heads<'a>,
) -> Result<Attended<'a>> {
    let Heads { heads, width, mask } = options;
    let Block { num_dst, num_src, num_edges, indptr, ends, indices, .. } = edges.block;
    let values = scorer.values();
    assert!(values.len() >= num_src * heads * width, "rows to attend to and source nodes");
    let scores = scorer.scores(gpu, edges, options)?;
    let alpha = gpu.take(scores.len())?;
    let messages = if mask.drops() { gpu.take(scores.len())? } else { alpha };
    let output = gpu.take(num_dst * heads * width)?;
    let [key, threshold, scale, nodes, keys, num_keys] = mask.arguments(num_dst);
    let lanes = lanes(heads);
    let arguments = arguments![
        gpu, indptr, ends, scores, alpha, messages, num_edges, num_dst, heads, lanes, key, threshold, scale, nodes,
        keys, num_keys
    ];
    run(gpu, &gpu.kernels.train_softmax, each(num_dst * WARP), arguments)?;
    let arguments = arguments![gpu, indptr, indices, messages, values, output, num_edges, num_dst, heads, width];
    // Four columns per thread if the head width is a multiple of four.
    let (kernel, units) = match width.is_multiple_of(4) {
        true => (&gpu.kernels.train_attend, heads * width / 4),
        false => (&gpu.kernels.train_attend_single, heads * width),
    };
    run(gpu, kernel, rows_by_units(num_dst, units), arguments)?;
    Ok(Attended { output, heads: options, scores, coefficients: alpha, messages })
}

/// Outputs of the backward pass: gradients of a scorer's inputs.
pub(crate) struct ScorerGradients<'a> {
    /// Gradient of GAT's values or GATv2's left side, `[num_src, heads * width]`.
    pub(crate) values: Region,
    /// Gradient of GATv2's right side, `[num_dst, heads * width]`; `None` for GAT.
    pub(crate) right: Option<Region>,
    /// Gradients of the attention vectors: GAT's of sources and destinations, or GATv2's single one.
    pub(crate) att: [Option<Floats<'a>>; 2],
}

impl Attended<'_> {
    /// Computes the gradients from that of the output.
    pub(crate) fn backward(
        &self,
        gpu: &mut Gpu,
        edges: &mut Edges<'_>,
        scorer: Scorer<'_>,
        gradient: Region,
        out: &ScorerGradients<'_>,
    ) -> Result<()> {
        let Self { heads: Heads { heads, width, mask }, scores, coefficients: alpha, messages, .. } = *self;
        let (transposed, row_of) = (edges.transposed(gpu)?, edges.row_of(gpu)?);
        let Block { num_dst, num_src, num_edges, indptr, ends, indices, .. } = edges.block;
        let columns = heads * width;
        assert!(gradient.len() >= num_dst * columns, "a gradient per row");
        assert!(out.values.len() >= num_src * columns, "a gradient per source");
        let of_scores = gpu.take(scores.len())?;
        let of_rows = gpu.take(num_dst * heads)?;

        let [key, threshold, scale, nodes, keys, num_keys] = mask.arguments(num_dst);
        let values = scorer.values();
        let arguments = arguments![
            gpu, indptr, indices, row_of, values, gradient, of_scores, num_edges, num_dst, width, key, threshold,
            scale, nodes, keys, num_keys
        ];
        let shape = dot_products(num_edges + num_dst, heads, width, 4);
        run(gpu, &gpu.kernels.train_coefficients_backward, shape, arguments)?;

        let slope = if matches!(scorer, Scorer::Gat { .. }) { SLOPE } else { 1.0 };
        let lanes = lanes(heads);
        let arguments =
            arguments![gpu, indptr, ends, scores, alpha, of_scores, of_rows, num_edges, num_dst, heads, lanes, slope];
        run(gpu, &gpu.kernels.train_softmax_backward, each(num_dst * WARP), arguments)?;

        let Transposed { indptr: starts, rows, edges } = transposed;
        match scorer {
            Scorer::Gat { values, att: [att_src, att_dst] } => {
                let (of_src, of_values) = (gpu.take(num_src * heads)?, out.values);
                let arguments = arguments![
                    gpu, starts, rows, edges, messages, of_scores, of_rows, att_src, att_dst, gradient, of_src,
                    of_values, num_src, num_dst, num_edges, heads, width
                ];
                let (kernel, units) = match width.is_multiple_of(4) {
                    true => (&gpu.kernels.train_attend_backward, columns / 4),
                    false => (&gpu.kernels.train_attend_backward_single, columns),
                };
                run(gpu, kernel, rows_by_units(num_src, units), arguments)?;
                for (out, (rows, halves)) in out.att.into_iter().zip([(num_src, of_src), (num_dst, of_rows)]) {
                    let factors = Factors { elements: None, heads: Some((halves, width)) };
                    let out = out.expect("GAT has two vectors");
                    column_sums(gpu, values.first(rows * columns), columns, factors, Words::from(out))?;
                }
                Ok(())
            }
            Scorer::Gatv2 { left, right, att } => {
                let (of_left, of_right) = (out.values, out.right.expect("GATv2 has a right side"));
                assert!(of_right.len() >= num_dst * columns, "a gradient per row");
                let of_att = gpu.take(num_dst * columns)?;
                let arguments = arguments![
                    gpu, starts, rows, edges, messages, of_scores, left, right, att, gradient, of_left, num_src,
                    num_dst, num_edges, heads, width, SLOPE
                ];
                run(gpu, &gpu.kernels.train_left_backward, rows_by_units(num_src, columns), arguments)?;
                let arguments = arguments![
                    gpu, indptr, indices, of_scores, left, right, att, of_right, of_att, num_edges, num_dst, heads,
                    width, SLOPE
                ];
                run(gpu, &gpu.kernels.train_right_backward, rows_by_units(num_dst, columns), arguments)?;
                let out = out.att[0].expect("GATv2 has a vector");
                column_sums(gpu, of_att, columns, Factors::default(), Words::from(out))
            }
        }
    }
}

/// Mean over heads.
pub(crate) fn mean_heads(gpu: &mut Gpu, x: Region, heads: usize, width: usize) -> Result<Region> {
    let out = gpu.take(x.len() / heads)?;
    let arguments = arguments![gpu, x, out, out.len() as u64, heads, width];
    run(gpu, &gpu.kernels.train_mean_heads, each(out.len()), arguments)?;
    Ok(out)
}

/// Gradient of the heads from that of their mean.
pub(crate) fn mean_heads_backward(gpu: &mut Gpu, gradient: Region, heads: usize, width: usize) -> Result<Region> {
    let out = gpu.take(gradient.len() * heads)?;
    let arguments = arguments![gpu, gradient, out, out.len() as u64, heads, width];
    run(gpu, &gpu.kernels.train_mean_heads_backward, each(out.len()), arguments)?;
    Ok(out)
}
