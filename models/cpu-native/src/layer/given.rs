//! Rows of a layer's output that are given, after those that are computed: their dropout, their part in the gradients, and what
//! these are computed from.

use morphgl_model_core::Dropout;
use morphgl_platform::SimdLevel;

use super::backward::{Lanes, Upstream, add_lanes};
use super::{Context, Layer, Order};
use crate::epilogue::{add_rows, apply_dropout};
use crate::gemm::{Left, Right, multiply_all};
use crate::parallel::{self, ROWS, row_blocks, with_scratch};

impl Layer {
    /// Makes room for the output of `num_dst` rows, and for those of [`Layer::append`].
    pub(crate) fn reserve(&mut self, num_dst: usize, given: &[f32]) {
        self.out.get(num_dst * self.shape.out_dim + given.len());
    }

    /// Appends given rows to the output of `num_dst` computed ones, with the dropout of their nodes.
    pub(crate) fn append(
        &mut self,
        level: SimdLevel,
        num_dst: usize,
        given: &[f32],
        dropout: Option<(Dropout, &[u32])>,
    ) {
        let width = self.shape.out_dim;
        let out = &mut self.out.get(num_dst * width + given.len())[num_dst * width..];
        row_blocks(given.len() / width, [(out, width)], &|rows, [out]| {
            out.copy_from_slice(&given[rows.start * width..rows.end * width]);
            if let Some((dropout, nodes)) = &dropout {
                apply_dropout(level, dropout, &nodes[rows], out);
            }
        });
    }

    /// Adds the gradients of weights and bias by given rows: the gradient of the rows, through the derivative at the rows
    /// themselves, times what each weight multiplies for them ([`GivenRows::inputs`](morphgl_registry::GivenRows::inputs)). `nodes` are
    /// those of the rows, read by dropout alone. Comes before [`Layer::backward`], which overwrites rows of the output.
    pub(crate) fn backward_given(
        &mut self,
        Context { level, num_dst, .. }: Context<'_>,
        upstream: Upstream<'_>,
        (inputs, nodes): (&[Vec<f32>], &[u32]),
        gradients: &mut [f32],
    ) {
        let (depth, width, epilogue) = (self.shape.in_dim, self.width, self.epilogue);
        let count = inputs[0].len() / depth;
        let (lanes, size) = (Lanes::new(count), width * depth);
        let lane_size = inputs.len() * size + width;
        let given = &self.out.read((num_dst + count) * width)[num_dst * width..];
        let outputs = [(self.back.lane_sums.get(lanes.count * lane_size), lane_size)];
        parallel::tasks(lanes.count, outputs, &|lane, [sums]| {
            let (weights, bias) = sums.split_at_mut(lane_size - width);
            bias.fill(0.0);
            with_scratch([ROWS * width, 0, 0], |[grad, _, _]| {
                for (rows, first) in lanes.blocks(lane) {
                    let grad = &mut grad[..rows.len() * width];
                    upstream.fill(level, num_dst + rows.start..num_dst + rows.end, width, grad);
                    let of_rows = nodes.get(rows.clone()).unwrap_or_default();
                    epilogue.backward(level, of_rows, &given[rows.start * width..rows.end * width], grad);
                    add_rows(level, grad, bias);
                    let mut weights = weights.chunks_exact_mut(size);
                    let mut target = |input: usize| {
                        let matrix = Right::rows(&inputs.get(input)?[rows.start * depth..], depth);
                        Some((matrix, weights.next()?, first > 0))
                    };
                    let left = Left::transposed(grad, width).with_zeros(epilogue.makes_zeros());
                    multiply_all(level, [width, depth, rows.len()], left, [target(0), target(1)]);
                }
            });
        });
        let ranges = self.ranges.weights().into_iter().flatten().chain([&self.ranges.bias]);
        add_lanes(level, self.back.lane_sums.read(lanes.count * lane_size), lane_size, ranges, gradients);
    }

    /// Appends to each of `inputs` a row per row of the output: what the weight multiplies, after [`Layer::forward`].
    pub(crate) fn append_inputs(&self, context: Context<'_>, inputs: &mut [Vec<f32>]) {
        let Context { x, num_dst, .. } = context;
        let depth = self.shape.in_dim;
        // The neighbours' weight comes first, then that of the node itself.
        for (input, of_neighbours) in inputs.iter_mut().zip([true, false]) {
            let start = input.len();
            input.resize(start + num_dst * depth, 0.0);
            let out = &mut input[start..];
            match (context.nonzeros, of_neighbours) {
                (Some(nonzeros), true) => {
                    let (block, adjacency) = context.graph();
                    nonzeros.densify(Some(&adjacency.csr(block, None)), num_dst, out);
                }
                (Some(nonzeros), false) => nonzeros.densify(None, num_dst, out),
                (None, true) => {
                    assert_eq!(self.order, Order::AggregateFirst, "aggregated rows are what the weight multiplies");
                    out.copy_from_slice(self.intermediate.read(num_dst * depth));
                }
                (None, false) => row_blocks(num_dst, [(out, depth)], &|rows, [out]| x.copy(rows, depth, out)),
            }
        }
    }
}
