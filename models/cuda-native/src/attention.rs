//! Graph attention over a block, forward and backward.

use morphgl_cuda::{Argument, Floats, Kernel, Shape};
use morphgl_registry::Result;

use crate::arena::Part;
use crate::edges::Edges;
use crate::epilogue::{Factors, column_sums};
use crate::gpu::{Gpu, Mask, Words, each, number, rows_by_lanes, rows_by_units};
use crate::transpose::Transposed;

/// Negative slope of the leaky ReLU.
const SLOPE: f32 = 0.2;
/// Threads of a warp; a softmax row is one warp's work.
const WARP: usize = 32;

/// Attention heads, stored side by side, and the dropout of their coefficients.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Heads {
    pub(crate) heads: usize,
    /// Width of a head.
    pub(crate) width: usize,
    pub(crate) mask: Mask,
}

/// Adjacent lanes that process heads in a softmax: a power of two that divides their number.
fn together(heads: usize) -> u32 {
    1 << heads.trailing_zeros().min(5)
}

/// Inputs of the scores, for which gradients are computed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Scorer<'a> {
    /// GAT: values, and source and destination parts of the scores by two vectors.
    First { values: Part, att: [Floats<'a>; 2] },
    /// GATv2: left side (also the values), right side, and a vector.
    Second { left: Part, right: Part, att: Floats<'a> },
}

/// Results of the forward pass that backward reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attended {
    pub(crate) output: Part,
    heads: Heads,
    scores: Part,
    coefficients: Part,
    /// Coefficients after dropout.
    messages: Part,
}

/// Launches a kernel of kernels/attention.cu.
fn run(gpu: &Gpu, kernel: &Kernel, shape: Shape, arguments: &mut [Argument<'_>]) -> Result<()> {
    // SAFETY: callers give the kernel's arguments; arrays of positions have edges + rows elements a head, those of nodes
    // a row of all heads a source or destination node, as the passes take them.
    unsafe { gpu.launch(kernel, shape, arguments) }
}

/// Launch shape with lanes of a warp over the width of each head, for sums over it.
fn products(elements: usize, heads: usize, width: usize) -> Shape {
    let shape = rows_by_lanes(elements, width);
    Shape { grid: [shape.grid[0], number(heads), 1], ..shape }
}

impl Scorer<'_> {
    fn values(&self) -> Part {
        match self {
            Scorer::First { values, .. } => *values,
            Scorer::Second { left, .. } => *left,
        }
    }

    fn scores(&self, gpu: &mut Gpu, edges: &mut Edges<'_>, Heads { heads, width, .. }: Heads) -> Result<Part> {
        let (row_of, block) = (edges.row_of(gpu)?, edges.block);
        let positions = block.num_edges + block.num_dst;
        let scores = gpu.take(positions * heads)?;
        let sizes = [number(block.num_edges).into(), number(block.num_dst).into(), number(heads).into()];
        let [num_edges, num_dst, num_heads] = sizes;
        match *self {
            Scorer::First { values, att } => {
                let halves = [gpu.take(block.num_src * heads)?, gpu.take(block.num_dst * heads)?];
                for (half, att) in halves.into_iter().zip(att) {
                    let nodes = half.len() / heads;
                    let sizes = [number(nodes).into(), number(width).into()];
                    let [num_nodes, head_width] = sizes;
                    let arguments = &mut [gpu.at(values), gpu.at(att), gpu.at(half), num_nodes, head_width];
                    run(gpu, &gpu.kernels.train_halves, products(nodes, heads, width), arguments)?;
                }
                let [src, dst] = halves;
                let arguments = &mut [
                    gpu.at(block.indices),
                    gpu.at(row_of),
                    gpu.at(src),
                    gpu.at(dst),
                    gpu.at(scores),
                    num_edges,
                    num_dst,
                    num_heads,
                    SLOPE.into(),
                ];
                run(gpu, &gpu.kernels.train_scores, each(positions * heads), arguments)?;
            }
            Scorer::Second { left, right, att } => {
                let arguments = &mut [
                    gpu.at(block.indices),
                    gpu.at(row_of),
                    gpu.at(left),
                    gpu.at(right),
                    gpu.at(att),
                    gpu.at(scores),
                    num_edges,
                    num_dst,
                    number(width).into(),
                    SLOPE.into(),
                ];
                run(gpu, &gpu.kernels.train_scores_second, products(positions, heads, width), arguments)?;
            }
        }
        Ok(scores)
    }
}

/// Attention of each destination row over its sources and itself.
pub(crate) fn attend(gpu: &mut Gpu, edges: &mut Edges<'_>, scorer: Scorer<'_>, options: Heads) -> Result<Attended> {
    let Heads { heads, width, mask } = options;
    let block = edges.block;
    assert!(scorer.values().len() >= block.num_src * heads * width, "rows to attend to and source nodes");
    let scores = scorer.scores(gpu, edges, options)?;
    let coefficients = gpu.take(scores.len())?;
    let messages = if mask.drops() { gpu.take(scores.len())? } else { coefficients };
    let output = gpu.take(block.num_dst * heads * width)?;
    let sizes = || [number(block.num_edges).into(), number(block.num_dst).into(), number(heads).into()];
    let [key, site, batch, epoch, threshold, scale] = mask.arguments();
    let [num_edges, num_dst, num_heads] = sizes();
    let arguments = &mut [
        gpu.at(block.indptr),
        gpu.at(scores),
        gpu.at(coefficients),
        gpu.at(messages),
        num_edges,
        num_dst,
        num_heads,
        together(heads).into(),
        key,
        site,
        batch,
        epoch,
        threshold,
        scale,
    ];
    run(gpu, &gpu.kernels.train_softmax, each(block.num_dst * WARP), arguments)?;
    let [num_edges, num_dst, num_heads] = sizes();
    let arguments = &mut [
        gpu.at(block.indptr),
        gpu.at(block.indices),
        gpu.at(messages),
        gpu.at(scorer.values()),
        gpu.at(output),
        num_edges,
        num_dst,
        num_heads,
        number(width).into(),
    ];
    // Four columns per thread if the head width is a multiple of four.
    let (kernel, units) = match width.is_multiple_of(4) {
        true => (&gpu.kernels.train_attend, heads * width / 4),
        false => (&gpu.kernels.train_attend_single, heads * width),
    };
    run(gpu, kernel, rows_by_units(block.num_dst, units), arguments)?;
    Ok(Attended { output, heads: options, scores, coefficients, messages })
}

/// Gradients of a scorer's inputs: values or left side, right side, and vectors.
pub(crate) struct Found<'a> {
    /// Output, `[num_src, heads * width]`.
    pub(crate) values: Part,
    /// Output for GATv2, `[num_dst, heads * width]`.
    pub(crate) right: Option<Part>,
    /// One vector for GATv2; source and destination vectors for GAT.
    pub(crate) att: [Option<Floats<'a>>; 2],
}

impl Attended {
    /// Computes the gradients from that of the output.
    pub(crate) fn backward(
        &self,
        gpu: &mut Gpu,
        edges: &mut Edges<'_>,
        scorer: Scorer<'_>,
        gradient: Part,
        found: &Found<'_>,
    ) -> Result<()> {
        let Heads { heads, width, mask } = self.heads;
        let (transposed, row_of, block) = (edges.transposed(gpu)?, edges.row_of(gpu)?, edges.block);
        let columns = heads * width;
        assert!(gradient.len() >= block.num_dst * columns, "a gradient a row");
        assert!(found.values.len() >= block.num_src * columns, "a gradient a source");
        let sizes = || [number(block.num_edges).into(), number(block.num_dst).into(), number(heads).into()];
        let scores = gpu.take(self.scores.len())?;
        let of_rows = gpu.take(block.num_dst * heads)?;

        let [key, site, batch, epoch, threshold, scale] = mask.arguments();
        let [num_edges, num_dst, _] = sizes();
        let arguments = &mut [
            gpu.at(block.indices),
            gpu.at(row_of),
            gpu.at(scorer.values()),
            gpu.at(gradient),
            gpu.at(scores),
            num_edges,
            num_dst,
            number(width).into(),
            key,
            site,
            batch,
            epoch,
            threshold,
            scale,
        ];
        let shape = products(block.num_edges + block.num_dst, heads, width);
        run(gpu, &gpu.kernels.train_coefficients_backward, shape, arguments)?;

        let slope = if matches!(scorer, Scorer::First { .. }) { SLOPE } else { 1.0 };
        let [num_edges, num_dst, num_heads] = sizes();
        let arguments = &mut [
            gpu.at(block.indptr),
            gpu.at(self.scores),
            gpu.at(self.coefficients),
            gpu.at(scores),
            gpu.at(of_rows),
            num_edges,
            num_dst,
            num_heads,
            together(heads).into(),
            slope.into(),
        ];
        run(gpu, &gpu.kernels.train_softmax_backward, each(block.num_dst * WARP), arguments)?;
        match scorer {
            Scorer::First { values, att } => {
                self.first(gpu, (edges, transposed), (values, att), gradient, (scores, of_rows), found)
            }
            Scorer::Second { left, right, att } => {
                self.second(gpu, (edges, transposed), (left, right, att), gradient, scores, found)
            }
        }
    }

    fn first(
        &self,
        gpu: &mut Gpu,
        (edges, transposed): (&Edges<'_>, Transposed),
        (values, att): (Part, [Floats<'_>; 2]),
        gradient: Part,
        (scores, of_rows): (Part, Part),
        found: &Found<'_>,
    ) -> Result<()> {
        let (Heads { heads, width, .. }, block) = (self.heads, edges.block);
        let columns = heads * width;
        let of_src = gpu.take(block.num_src * heads)?;
        let arguments = &mut [
            gpu.at(transposed.indptr),
            gpu.at(transposed.rows),
            gpu.at(transposed.edges),
            gpu.at(self.messages),
            gpu.at(scores),
            gpu.at(of_rows),
            gpu.at(att[0]),
            gpu.at(att[1]),
            gpu.at(gradient),
            gpu.at(of_src),
            gpu.at(found.values),
            number(block.num_src).into(),
            number(block.num_dst).into(),
            number(block.num_edges).into(),
            number(heads).into(),
            number(width).into(),
        ];
        let (kernel, units) = match width.is_multiple_of(4) {
            true => (&gpu.kernels.train_attend_backward, columns / 4),
            false => (&gpu.kernels.train_attend_backward_single, columns),
        };
        run(gpu, kernel, rows_by_units(block.num_src, units), arguments)?;
        let sides = [(block.num_src, of_src), (block.num_dst, of_rows)];
        for (out, (rows, halves)) in found.att.into_iter().zip(sides) {
            let factors = Factors { elements: None, heads: Some((halves, width)) };
            let out = out.expect("GAT has two vectors");
            column_sums(gpu, values.first(rows * columns), columns, factors, Words::from(out))?;
        }
        Ok(())
    }

    fn second(
        &self,
        gpu: &mut Gpu,
        (edges, transposed): (&Edges<'_>, Transposed),
        (left, right, att): (Part, Part, Floats<'_>),
        gradient: Part,
        scores: Part,
        found: &Found<'_>,
    ) -> Result<()> {
        let (Heads { heads, width, .. }, block) = (self.heads, edges.block);
        let columns = heads * width;
        let of_right = found.right.expect("GATv2 has a right side");
        assert!(of_right.len() >= block.num_dst * columns, "a gradient a row");
        let of_att = gpu.take(block.num_dst * columns)?;
        let arguments = &mut [
            gpu.at(transposed.indptr),
            gpu.at(transposed.rows),
            gpu.at(transposed.edges),
            gpu.at(self.messages),
            gpu.at(scores),
            gpu.at(left),
            gpu.at(right),
            gpu.at(att),
            gpu.at(gradient),
            gpu.at(found.values),
            number(block.num_src).into(),
            number(block.num_dst).into(),
            number(block.num_edges).into(),
            number(heads).into(),
            number(width).into(),
            SLOPE.into(),
        ];
        run(gpu, &gpu.kernels.train_left_backward, rows_by_units(block.num_src, columns), arguments)?;
        let arguments = &mut [
            gpu.at(block.indptr),
            gpu.at(block.indices),
            gpu.at(scores),
            gpu.at(left),
            gpu.at(right),
            gpu.at(att),
            gpu.at(of_right),
            gpu.at(of_att),
            number(block.num_edges).into(),
            number(block.num_dst).into(),
            number(heads).into(),
            number(width).into(),
            SLOPE.into(),
        ];
        run(gpu, &gpu.kernels.train_right_backward, rows_by_units(block.num_dst, columns), arguments)?;
        let out = found.att[0].expect("GATv2 has a vector");
        column_sums(gpu, of_att, columns, Factors::default(), Words::from(out))
    }
}

/// Mean over heads.
pub(crate) fn mean_heads(gpu: &mut Gpu, x: Part, heads: usize, width: usize) -> Result<Part> {
    let out = gpu.take(x.len() / heads)?;
    let sizes = [(out.len() as u64).into(), number(heads).into(), number(width).into()];
    let [len, heads, width] = sizes;
    run(gpu, &gpu.kernels.train_mean_heads, each(out.len()), &mut [gpu.at(x), gpu.at(out), len, heads, width])?;
    Ok(out)
}

/// Gradient of the heads from that of their mean.
pub(crate) fn mean_heads_backward(gpu: &mut Gpu, gradient: Part, heads: usize, width: usize) -> Result<Part> {
    let out = gpu.take(gradient.len() * heads)?;
    let sizes = [(out.len() as u64).into(), number(heads).into(), number(width).into()];
    let [len, heads, width] = sizes;
    let arguments = &mut [gpu.at(gradient), gpu.at(out), len, heads, width];
    run(gpu, &gpu.kernels.train_mean_heads_backward, each(out.len()), arguments)?;
    Ok(out)
}
