//! Backward pass of a layer with parameters per edge type.

use std::ops::Range;

use super::{Packing, Parts, TypedLayer};
use crate::adjacency::groups::{Groups, Task, divide};
use crate::buffer::{Buffer, resize};
use crate::epilogue::{Epilogue, add_rows};
use crate::gemm::{Left, Right, multiply, packed_len};
use crate::layer::{Context, LANES, Lanes, Upstream, add_lanes};
use crate::parallel::{self, ROWS, with_scratch};
use crate::sparse::transpose;

/// Buffers of the backward pass.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    packed: Buffer,
    /// Gradient of the output before the epilogue.
    output_grad: Buffer,
    lanes: Vec<Task>,
    lane_sums: Buffer,
    bias_grads: Vec<f32>,
    /// The gradient of a weight that its parameters make.
    combined_grad: Vec<f32>,
    /// The gradient of a weight, with a row for each of its columns.
    by_width: Vec<f32>,
}

impl TypedLayer {
    /// The gradient of the input, after [`TypedLayer::backward`] with one.
    pub(crate) fn upstream<'a>(&'a self, groups: &'a Groups) -> Upstream<'a> {
        let sums = self.inputs.read(groups.num_rows() * self.weights.depth);
        Upstream::Aggregated { csr: Some(groups.transposed()), sums, root: &[] }
    }

    /// Adds the gradients of the parameters to `gradients`; computes the input's gradient if the layer `propagates` it. `output` is the
    /// layer's.
    pub(crate) fn backward(
        &mut self,
        context: Context<'_>,
        (upstream, output): (Upstream<'_>, &[f32]),
        (epilogue, propagates): (Epilogue, bool),
        gradients: &mut [f32],
    ) {
        self.backward_epilogue(context, (upstream, output), epilogue, gradients);
        let Context { level, parameters, .. } = context;
        let groups = &context.graph().1.groups;
        let [depth, columns, size] = [self.weights.depth, self.weights.width, self.weights.size()];
        let packed_len = packed_len(level, columns, depth);
        if propagates {
            let packing =
                Packing { weights: &self.weights, sizes: [columns, depth], transposed: self.weights.by_depth };
            packing.run(level, parameters, &groups.list, &mut self.combined, &mut self.back.packed);
        }
        let rows_per_lane = groups.num_rows().div_ceil(LANES).next_multiple_of(ROWS);
        let Buffers { packed, output_grad, lanes, lane_sums, combined_grad, by_width, .. } = &mut self.back;
        divide(&groups.list, rows_per_lane.max(ROWS), lanes);
        let (lanes, packed) = (&*lanes, &*packed);
        // Gradients of the products, or of the destinations of the rows.
        let (of_ends, ends) = (output_grad.read(context.num_dst * self.width), &groups.ends[..]);
        let products = self.products.read(groups.num_rows() * columns);
        if let Some(attend) = &mut self.attend {
            let relations = groups.relations.list();
            let edges = (context.edge_features, &groups.edge_ids[..]);
            let parts = Parts { level, relations, weights: &self.weights, parameters, products, edges };
            attend.backward(parts, (of_ends, ends), gradients);
        }
        let of_products = self.attend.as_ref().map(|a| a.product_grads.read(groups.num_rows() * columns));
        let starts = |lane: usize| [lane * size, lanes[lane].rows.start * depth];
        let outputs = [lane_sums.get(lanes.len() * size), self.inputs.get(groups.num_rows() * depth)];
        let zeros = of_products.is_none() && epilogue.makes_zeros();
        parallel::split(0..lanes.len(), &starts, outputs, &|lane, [sums, inputs]| {
            let Task { group, rows } = &lanes[lane];
            with_scratch([ROWS * columns, 0, 0], |[scratch, _, _]| {
                for (start, inputs) in rows.clone().step_by(ROWS).zip(inputs.chunks_mut(ROWS * depth)) {
                    let (block, add) = (start..(start + ROWS).min(rows.end), start > rows.start);
                    let count = block.len();
                    let grad = match of_products {
                        Some(grads) => &grads[start * columns..block.end * columns],
                        None => {
                            let grad = &mut scratch[..count * columns];
                            for (grad, &end) in grad.chunks_exact_mut(columns).zip(&ends[block]) {
                                grad.copy_from_slice(&of_ends[end as usize * columns..][..columns]);
                            }
                            &*grad
                        }
                    };
                    let left = Left::transposed(grad, columns).with_zeros(zeros);
                    multiply(level, [columns, depth, count], (left, Right::rows(inputs, depth)), sums, add);
                    if propagates {
                        let packed = &packed.read((group + 1) * packed_len)[group * packed_len..];
                        let left = Left::rows(grad, columns).with_zeros(zeros);
                        let factors = (left, Right::packed(level, packed, columns));
                        multiply(level, [count, depth, columns], factors, inputs, false);
                    }
                }
            });
        });
        let mut sums = lane_sums.read(lanes.len() * size);
        resize(combined_grad, size);
        resize(by_width, if self.weights.by_depth { size } else { 0 });
        for of_group in lanes.chunk_by(|a, b| a.group == b.group) {
            let of_lanes = sums.split_off(..of_group.len() * size).expect("the sums of every lane");
            let mut add = |range: &Range<usize>, gradients: &mut [f32]| {
                if !self.weights.by_depth {
                    return add_lanes(level, of_lanes, size, [range], gradients);
                }
                by_width.fill(0.0);
                add_lanes(level, of_lanes, size, [&(0..size)], by_width);
                transpose(by_width, [columns, depth], &mut gradients[range.clone()], true);
            };
            let weight = groups.list[of_group[0].group].weight;
            self.weights.add_gradient(level, (parameters, gradients), weight, combined_grad, &mut add);
        }
    }

    /// Computes the gradient of the output before the epilogue, and those of the biases.
    fn backward_epilogue(
        &mut self,
        context: Context<'_>,
        (upstream, output): (Upstream<'_>, &[f32]),
        epilogue: Epilogue,
        gradients: &mut [f32],
    ) {
        let Context { level, num_dst, .. } = context;
        let groups = &context.graph().1.groups;
        let (width, len) = (self.width, self.biases.len());
        let lanes = Lanes::new(num_dst);
        let Buffers { output_grad, lane_sums, bias_grads, .. } = &mut self.back;
        let outputs =
            [(lane_sums.get(lanes.count * len), len), (output_grad.get(num_dst * width), lanes.rows_per_lane * width)];
        parallel::tasks(lanes.count, outputs, &|lane, [biases, grad]| {
            biases.fill(0.0);
            for ((rows, _), grad) in lanes.blocks(lane).zip(grad.chunks_mut(ROWS * width)) {
                upstream.fill(level, rows.clone(), width, grad);
                let output = &output[rows.start * width..rows.end * width];
                epilogue.backward(level, context.nodes(rows.clone()), output, grad);
                if len == width {
                    add_rows(level, grad, biases);
                    continue;
                }
                for (grad, &node_type) in grad.chunks_exact(width).zip(&groups.node_types[rows]) {
                    add_rows(level, grad, &mut biases[node_type as usize * width..][..width]);
                }
            }
        });
        resize(bias_grads, len);
        bias_grads.fill(0.0);
        add_lanes(level, lane_sums.read(lanes.count * len), len, [&(0..len)], bias_grads);
        self.weights.add_bias_gradients(level, bias_grads, width, gradients);
    }
}
