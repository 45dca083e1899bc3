//! Backward pass of a layer: gradients of its parameters and of its input.
//!
//! Rows are divided into lanes, whose number depends only on the number of rows. A lane sums the weights' gradients of its
//! rows in order, and the lanes' sums are added in order, so the bits do not depend on the number of threads.

use std::ops::Range;

use morphgl_graph_store::FeatureView;
use morphgl_model_core::ModelKind;
use morphgl_platform::SimdLevel;
use morphgl_registry::Block;

use super::{Context, Layer, Order, concatenate, packed_weight};
use crate::adjacency::Adjacency;
use crate::attention::{Grads, Inputs, Transposed};
use crate::buffer::{Buffer, resize};
use crate::epilogue::add_rows;
use crate::gemm::{Left, Right, multiply, multiply_all, pack, packed_len};
use crate::parallel::{self, ROWS, row_blocks, with_scratch};
use crate::rows::InputRows;
use crate::sparse::{Side, SparseInput};
use crate::spmm::{Csr, spmm};

/// Maximum number of lanes: enough to balance threads, few enough that adding their sums costs little.
pub(crate) const LANES: usize = 16;

/// Buffers of a layer's backward pass. The gradient of the aggregated rows overwrites those rows.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    pub(super) packed: [Buffer; 2],
    /// Gradient of the output before the epilogue.
    output_grad: Buffer,
    /// The same for every head, where the output is their mean.
    all_heads_grad: Buffer,
    /// Gradient of the whole input.
    pub(super) input_grad: Buffer,
    /// Gradient of the input that the root weight multiplies.
    root_grad: Buffer,
    /// Gradient of the transformed rows.
    transformed_grad: Buffer,
    pub(super) scratch: Buffer,
    pub(super) vectors: Vec<f32>,
    pub(super) lane_sums: Buffer,
}

/// Gradient of a layer's output, as the next layer or the loss provides it.
#[derive(Clone, Copy)]
pub(crate) enum Upstream<'a> {
    /// The gradient of the first rows; the others are 0.
    Rows(&'a [f32]),
    /// Gradients of the next layer's aggregated rows, to be aggregated over the transposed edges of the first source nodes,
    /// and of its first rows' own input.
    Aggregated { csr: Option<(Csr<'a>, usize)>, sums: &'a [f32], root: &'a [f32] },
}

impl Upstream<'_> {
    /// Writes the gradient of rows `rows` of the output.
    pub(crate) fn fill(&self, level: SimdLevel, rows: Range<usize>, width: usize, out: &mut [f32]) {
        let (direct, aggregated) = match *self {
            Upstream::Rows(direct) => (direct, None),
            Upstream::Aggregated { csr, sums, root } => (root, csr.map(|csr| (csr, sums))),
        };
        if let Some(((csr, num_src), sums)) = &aggregated {
            let inside = rows.start.min(*num_src)..rows.end.min(*num_src);
            let (first, rest) = out.split_at_mut(inside.len() * width);
            spmm(level, csr, inside, FeatureView::F32(sums), width, first);
            rest.fill(0.0);
        }
        let start = (rows.start * width).min(direct.len());
        let direct = &direct[start..(rows.end * width).min(direct.len())];
        let (first, rest) = out.split_at_mut(direct.len());
        if aggregated.is_some() {
            add_rows(level, direct, first);
        } else {
            first.copy_from_slice(direct);
            rest.fill(0.0);
        }
    }
}

/// Division of rows into lanes of whole blocks.
#[derive(Clone, Copy)]
pub(crate) struct Lanes {
    rows: usize,
    pub(crate) rows_per_lane: usize,
    pub(crate) count: usize,
}

impl Lanes {
    pub(crate) fn new(rows: usize) -> Self {
        let rows_per_lane = rows.div_ceil(LANES).next_multiple_of(ROWS).max(ROWS);
        Self { rows, rows_per_lane, count: rows.div_ceil(rows_per_lane) }
    }

    /// The blocks of a lane, each with its first row inside of the lane.
    pub(crate) fn blocks(self, lane: usize) -> impl Iterator<Item = (Range<usize>, usize)> {
        let lane = parallel::block(lane, self.rows_per_lane, self.rows);
        lane.clone().step_by(ROWS).map(move |start| (start..(start + ROWS).min(lane.end), start - lane.start))
    }
}

impl Layer {
    /// The gradient of the input, after [`Layer::backward`]: the upstream gradient of the layer before.
    pub(crate) fn upstream<'a>(&'a self, graph: Option<(&'a Block, &'a Adjacency)>, num_dst: usize) -> Upstream<'a> {
        let width = self.shape.in_dim;
        if let Some(typed) = &self.typed {
            return typed.upstream(&graph.expect("a typed layer has a block").1.groups);
        }
        if self.kind == ModelKind::Embedding {
            return Upstream::Rows(self.back.input_grad.read(num_dst * width));
        }
        let graph = || graph.expect("a layer with neighbours has a block");
        if self.order != Order::AggregateFirst {
            return Upstream::Rows(self.back.input_grad.read(graph().0.num_src * width));
        }
        let csr = self.ranges.neighbours.is_some().then(|| {
            let (block, adjacency) = graph();
            (adjacency.transposed_csr(block), block.num_src)
        });
        let sums = if csr.is_some() { self.intermediate.read(num_dst * width) } else { &[] };
        let root = if self.overwrites_output() { &self.out } else { &self.back.root_grad };
        let root = if self.ranges.root.is_some() { root.read(num_dst * width) } else { &[] };
        Upstream::Aggregated { csr, sums, root }
    }

    /// Whether the gradient of the rows' own input overwrites the output, which is as wide.
    fn overwrites_output(&self) -> bool {
        self.shape.in_dim == self.width
    }

    /// Adds the gradients of the parameters to `gradients`; computes the input's gradient if the layer propagates it.
    pub(crate) fn backward(&mut self, context: Context<'_>, upstream: Upstream<'_>, gradients: &mut [f32]) {
        if let Some(typed) = &mut self.typed {
            let output = self.out.read(context.num_dst * self.shape.out_dim);
            return typed.backward(context, (upstream, output), (self.epilogue, self.propagates), gradients);
        }
        if self.kind == ModelKind::Embedding {
            let (rows, width) = (context.num_dst, self.shape.in_dim);
            return row_blocks(rows, [(self.back.input_grad.get(rows * width), width)], &|rows, [grad]| {
                upstream.fill(context.level, rows, width, grad);
            });
        }
        if self.order == Order::AttendFirst {
            return self.backward_attend_first(context, upstream, gradients);
        }
        if self.propagates {
            let sizes @ [depth, columns] = [self.width, self.shape.in_dim];
            for (range, packed) in self.ranges.weights().into_iter().zip(&mut self.back.packed) {
                let Some(range) = range else { continue };
                let packed = packed.get(packed_len(context.level, depth, columns));
                pack(context.level, &context.parameters[range.clone()], sizes, false, packed);
            }
        }
        if self.order == Order::AggregateFirst {
            return self.backward_aggregate_first(context, upstream, gradients);
        }
        self.backward_epilogue(context, upstream, gradients);
        if self.order == Order::Attend {
            self.backward_attention(context, gradients);
        }
        match context.nonzeros {
            Some(nonzeros) => self.backward_sparse(context, nonzeros, gradients),
            None => self.backward_transform(context, gradients),
        }
    }

    /// Gradients of weights that multiply sparse features, which are the first layer's.
    fn backward_sparse(&mut self, context: Context<'_>, nonzeros: &SparseInput, gradients: &mut [f32]) {
        let Context { level, num_dst, .. } = context;
        let width = self.width;
        let Buffers { output_grad, transformed_grad, scratch, .. } = &mut self.back;
        if let Some(range) = &self.ranges.neighbours {
            let (block, adjacency) = context.graph();
            let len = block.num_src * width;
            if self.order != Order::Attend {
                let (csr, grad) =
                    (adjacency.transposed_csr(block), FeatureView::F32(output_grad.read(num_dst * width)));
                row_blocks(block.num_src, [(transformed_grad.get(len), width)], &|rows, [out]| {
                    spmm(level, &csr, rows, grad, width, out);
                });
            }
            let grad = (transformed_grad.read(len), width);
            nonzeros.gradient(level, Side::Sources, grad, scratch, &mut gradients[range.clone()]);
        }
        if let Some(range) = &self.ranges.root {
            let grad = (output_grad.read(num_dst * width), width);
            nonzeros.gradient(level, Side::Destinations, grad, scratch, &mut gradients[range.clone()]);
        }
    }

    fn backward_aggregate_first(&mut self, context: Context<'_>, upstream: Upstream<'_>, gradients: &mut [f32]) {
        let Context { level, x, num_dst, .. } = context;
        let (depth, width, epilogue) = (self.shape.in_dim, self.width, self.epilogue);
        let [has_neighbours, has_root] = self.ranges.weights().map(|range| range.is_some());
        let (deeper, size) = (self.propagates, width * depth);
        let (in_output, concatenates) = (self.overwrites_output(), self.concatenates(level));
        // Rows of the store were kept, or are read again.
        let kept = has_root && x.nodes.is_some() && !self.reads_again();
        let x = if kept { InputRows::dense_f32(self.store_rows.read(num_dst * depth)) } else { x };
        let lanes = Lanes::new(num_dst);
        let Buffers { packed: [packed_neighbours, packed_root], root_grad, lane_sums, vectors, .. } = &mut self.back;
        let neighbours_size = if has_neighbours { size } else { 0 };
        let lane_size = neighbours_size + if has_root { size } else { 0 } + width;
        let sum_width = if has_neighbours { depth } else { 0 };
        let root_width = if deeper && has_root && !in_output { depth } else { 0 };
        let outputs = [
            (lane_sums.get(lanes.count * lane_size), lane_size),
            // Each block of aggregated rows and of the output is read before its gradient overwrites it.
            (self.intermediate.get(num_dst * sum_width), lanes.rows_per_lane * sum_width),
            (self.out.get(num_dst * width), lanes.rows_per_lane * width),
            (root_grad.get(num_dst * root_width), lanes.rows_per_lane * root_width),
        ];
        parallel::tasks(lanes.count, outputs, &|lane, [lane_sums, sums, output, root_grad]| {
            let (weights, bias) = lane_sums.split_at_mut(lane_size - width);
            bias.fill(0.0);
            let both_len = if concatenates { ROWS * 2 * depth } else { 0 };
            with_scratch([ROWS * width, x.scratch(ROWS * depth), both_len], |[grad, scratch, both]| {
                for (rows, first) in lanes.blocks(lane) {
                    let (count, add) = (rows.len(), first > 0);
                    let grad = &mut grad[..count * width];
                    upstream.fill(level, rows.clone(), width, grad);
                    let nodes = context.nodes(rows.clone());
                    epilogue.backward(level, nodes, &output[first * width..][..count * width], grad);
                    add_rows(level, grad, bias);
                    let inside = first * depth..(first + count) * depth;
                    let zeros = epilogue.makes_zeros();
                    let left = Left::transposed(grad, width).with_zeros(zeros);
                    if concatenates {
                        concatenate([&sums[inside.clone()], x.dense(rows, depth, scratch)], depth, both);
                        multiply(level, [width, 2 * depth, count], (left, Right::rows(both, 2 * depth)), weights, add);
                    } else {
                        let (of_neighbours, of_root) = weights.split_at_mut(neighbours_size);
                        let targets = [
                            has_neighbours.then(|| (Right::rows(&sums[inside.start..], depth), of_neighbours, add)),
                            has_root.then(|| (Right::rows(x.dense(rows, depth, scratch), depth), of_root, add)),
                        ];
                        multiply_all(level, [width, depth, count], left, targets);
                    }
                    if deeper {
                        let root_grad = if in_output { &mut *output } else { &mut *root_grad };
                        let weight = |packed| packed_weight(level, packed, [width, depth]);
                        let targets = [
                            has_neighbours.then(|| (weight(packed_neighbours), &mut sums[inside.clone()], false)),
                            has_root.then(|| (weight(packed_root), &mut root_grad[inside.clone()], false)),
                        ];
                        multiply_all(level, [count, depth, width], Left::rows(grad, width).with_zeros(zeros), targets);
                    }
                }
            });
        });
        let lane_sums = lane_sums.read(lanes.count * lane_size);
        let weights = self.ranges.weights().into_iter().flatten();
        if concatenates {
            resize(vectors, lane_size);
            vectors.fill(0.0);
            add_lanes(level, lane_sums, lane_size, [&(0..lane_size)], vectors);
            let (both, bias) = vectors.split_at(lane_size - width);
            for (side, range) in weights.enumerate() {
                let grads = gradients[range.clone()].chunks_exact_mut(depth);
                for (both, grad) in both.chunks_exact(2 * depth).zip(grads) {
                    add_rows(level, &both[side * depth..(side + 1) * depth], grad);
                }
            }
            add_rows(level, bias, &mut gradients[self.ranges.bias.clone()]);
        } else {
            add_lanes(level, lane_sums, lane_size, weights.chain([&self.ranges.bias]), gradients);
        }
    }

    /// Computes the gradient of the output before the epilogue, and of the bias.
    fn backward_epilogue(&mut self, context: Context<'_>, upstream: Upstream<'_>, gradients: &mut [f32]) {
        let Context { level, num_dst, .. } = context;
        let (width, epilogue) = (self.shape.out_dim, self.epilogue);
        let output = self.out.read(num_dst * width);
        let lanes = Lanes::new(num_dst);
        let Buffers { output_grad, lane_sums, .. } = &mut self.back;
        let outputs = [
            (lane_sums.get(lanes.count * width), width),
            (output_grad.get(num_dst * width), lanes.rows_per_lane * width),
        ];
        parallel::tasks(lanes.count, outputs, &|lane, [bias, grad]| {
            bias.fill(0.0);
            for ((rows, _), grad) in lanes.blocks(lane).zip(grad.chunks_mut(ROWS * width)) {
                upstream.fill(level, rows.clone(), width, grad);
                let output = &output[rows.start * width..rows.end * width];
                epilogue.backward(level, context.nodes(rows), output, grad);
                add_rows(level, grad, bias);
            }
        });
        add_lanes(level, lane_sums.read(lanes.count * width), width, [&self.ranges.bias], gradients);
    }

    fn backward_attention(&mut self, context: Context<'_>, gradients: &mut [f32]) {
        let (block, adjacency) = context.graph();
        let (width, heads, all, num_dst) = (self.shape.out_dim, self.shape.heads, self.width, context.num_dst);
        let (attention, averages) = (self.attention(block, context.nodes, self.shape.head_dim), self.averages());
        let Buffers { output_grad, all_heads_grad, transformed_grad, scratch, vectors, .. } = &mut self.back;
        let mut grad = output_grad.read(num_dst * width);
        if averages {
            row_blocks(num_dst, [(all_heads_grad.get(num_dst * all), all)], &|rows, [out]| {
                let grads = grad[rows.start * width..].chunks_exact(width);
                for (out, grad) in out.chunks_exact_mut(all).zip(grads) {
                    for out in out.chunks_exact_mut(width) {
                        out.iter_mut().zip(grad).for_each(|(o, g)| *o = g / heads as f32);
                    }
                }
            });
            grad = all_heads_grad.read(num_dst * all);
        }
        let [att_src, att_dst] = self.ranges.attention_vectors(context.parameters);
        let inputs = Inputs { values: self.intermediate.read(block.num_src * all), att_src, att_dst, terms: &[] };
        let edges = adjacency.transposed();
        let transposed = Transposed { indptr: &edges.indptr, dst: &edges.rows, edge: &edges.edges };
        resize(vectors, 2 * all);
        let (att_src, att_dst) = vectors.split_at_mut(all);
        attention.backward(
            (inputs, transposed),
            self.attention_state.read(attention.kept_len()),
            grad,
            scratch.get(attention.scratch_len()),
            Grads { values: transformed_grad.get(block.num_src * all), att_src, att_dst },
        );
        for (range, grad) in self.ranges.attention.iter().flatten().zip(vectors.chunks_exact(all)) {
            add_rows(context.level, grad, &mut gradients[range.clone()]);
        }
    }

    /// Gradients of the weights and of the input, from the gradients of the transformed rows and of the output.
    fn backward_transform(&mut self, context: Context<'_>, gradients: &mut [f32]) {
        let Context { level, x, num_dst, .. } = context;
        let (block, adjacency) = context.graph();
        let (depth, width, num_src) = (self.shape.in_dim, self.width, block.num_src);
        let (has_root, deeper, size) = (self.ranges.root.is_some(), self.propagates, width * depth);
        let attends = self.order == Order::Attend;
        // Rows of the store were kept.
        let kept = x.nodes.is_some();
        let x = if kept { InputRows::dense_f32(self.store_rows.read(num_src * depth)) } else { x };
        let csr = (!attends).then(|| adjacency.transposed_csr(block));
        let Buffers { packed, output_grad, transformed_grad, input_grad, lane_sums, .. } = &mut self.back;
        let output_grad = output_grad.read(if attends { 0 } else { num_dst * width });
        let transformed_grad = transformed_grad.read(if attends { num_src * width } else { 0 });
        let weight = |index: usize| packed_weight(level, &packed[index], [width, depth]);
        let lanes = Lanes::new(num_src);
        let lane_size = if has_root { 2 * size } else { size };
        let input_width = if deeper { depth } else { 0 };
        let outputs = [
            (lane_sums.get(lanes.count * lane_size), lane_size),
            (input_grad.get(num_src * input_width), lanes.rows_per_lane * input_width),
        ];
        parallel::tasks(lanes.count, outputs, &|lane, [weights, input_grad]| {
            let (of_neighbours, of_root) = weights.split_at_mut(size);
            of_root.fill(0.0);
            with_scratch([ROWS * width, x.scratch(ROWS * depth), 0], |[aggregated, scratch, _]| {
                for (rows, first) in lanes.blocks(lane) {
                    let count = rows.len();
                    let grad = match &csr {
                        Some(csr) => {
                            let out = &mut aggregated[..count * width];
                            spmm(level, csr, rows.clone(), FeatureView::F32(output_grad), width, out);
                            &*out
                        }
                        None => &transformed_grad[rows.start * width..],
                    };
                    let x = x.dense(rows.clone(), depth, scratch);
                    let factors = (Left::transposed(grad, width), Right::rows(x, depth));
                    multiply(level, [width, depth, count], factors, of_neighbours, first > 0);
                    let input_grad = &mut input_grad[first * input_width..(first + count) * input_width];
                    if deeper {
                        multiply(level, [count, depth, width], (Left::rows(grad, width), weight(0)), input_grad, false);
                    }
                    let rows = rows.start.min(num_dst)..rows.end.min(num_dst);
                    if has_root && !rows.is_empty() {
                        let (grad, count) = (&output_grad[rows.start * width..], rows.len());
                        let factors = (Left::transposed(grad, width), Right::rows(&x[..count * depth], depth));
                        multiply(level, [width, depth, count], factors, of_root, true);
                        if deeper {
                            let factors = (Left::rows(grad, width), weight(1));
                            multiply(level, [count, depth, width], factors, input_grad, true);
                        }
                    }
                }
            });
        });
        let weights = self.ranges.weights().into_iter().flatten();
        add_lanes(level, lane_sums.read(lanes.count * lane_size), lane_size, weights, gradients);
    }
}

/// Elements that a task adds up.
const TASK: usize = 1 << 12;

/// Adds the sums of all lanes, `lane_size` elements each, to the gradients; `ranges` are those of a lane's parts, in order.
pub(crate) fn add_lanes<'a>(
    level: SimdLevel,
    lanes: &[f32],
    lane_size: usize,
    ranges: impl IntoIterator<Item = &'a Range<usize>>,
    gradients: &mut [f32],
) {
    let mut start = 0;
    for range in ranges {
        parallel::pieces(&mut gradients[range.clone()], TASK, &|task, sums| {
            let first = start + task * TASK;
            for lane in lanes.chunks_exact(lane_size) {
                add_rows(level, &lane[first..first + sums.len()], sums);
            }
        });
        start += range.len();
    }
}
