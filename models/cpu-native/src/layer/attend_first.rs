//! A GAT layer that sums its input rows by the coefficients of each head and multiplies the sums, of the destinations
//! alone.
//!
//! With W and the attention vectors a of a head, its scores are (Wᵀ a)·x, and its output is W Σ coefficient · x
//! ([`crate::attention`]). Backward, the gradient of a sum is Wᵀ times that of the output, and the gradients q of the
//! vectors Wᵀ a give those of a, W q, and a part of that of W, a qᵀ.

use morphgl_platform::SimdLevel;
use morphgl_registry::Block;

use super::backward::{Buffers, Lanes, Upstream, add_lanes};
use super::{Context, Layer, Mode};
use crate::attention::{SharedGrads, SharedRows, SourceGrads, Transposed};
use crate::buffer::{Buffer, resize};
use crate::epilogue::add_rows;
use crate::gemm::{Left, Right, multiply, pack, packed_len, tiles};
use crate::parallel::{self, ROWS, with_scratch};
use crate::vectors::{add_scaled, dot, scale};

/// Sizes of an attention layer.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    depth: usize,
    heads: usize,
    head_dim: usize,
    /// Width of the output: all heads, or their mean.
    width: usize,
    /// Elements of the sums of a row.
    cols: usize,
}

/// Whether a mini-batch is computed faster if the layer attends first: by the operations of both orders, each as
/// multiply-adds of a wide GEMM that take as long. It depends on these sizes and the SIMD level alone.
///
/// Transformed rows: a GEMM forward, one for the weight's gradient, one for the input's if it `propagates`; edges read
/// transformed rows forward, for the gradients of the coefficients, and gradients of the output for those of the rows.
/// Sums of input rows: a GEMM forward, one for the weight's gradient, one for the gradients of the sums; edges read
/// input rows forward and for the gradients of the coefficients, multiply them for all heads, then once more for the
/// gradients of the vectors, and read the gradients of all sums if the layer `propagates`. The input of a `hidden`
/// layer has zeros, which GEMMs skip.
pub(super) fn is_cheaper(
    level: SimdLevel,
    block: &Block,
    [depth, heads, head_dim]: [usize; 3],
    [trains, propagates, hidden]: [bool; 3],
) -> bool {
    let [src, dst, edges] = [block.num_src, block.num_dst, block.num_edges() + block.num_dst].map(|n| n as f64);
    let [all, sums] = [heads * head_dim, heads * depth].map(|n| n as f64);
    let (depth_f, both) = (depth as f64, READ + MULTIPLY);
    let [trains, propagates] = [trains, trains && propagates].map(|x| f64::from(u8::from(x)));
    let tiled = tiles(level, [heads * head_dim, depth]) && !tiles(level, [head_dim, depth]);
    let gemm = if tiled { TILES } else { 1.0 };
    let forward = if hidden { HIDDEN } else { 1.0 };
    let transform_first = gemm * (forward + trains + propagates) * src * depth_f * all
        + (1.0 + 2.0 * trains) * edges * all * both
        + (2.0 + 3.0 * trains) * src * all
        + trains * SORT * edges;
    // A GEMM of few columns waits for its rows.
    let gemm_rows = dst * depth_f * (heads * head_dim.max(NARROW)) as f64;
    let attend_first = (1.0 + 2.0 * trains) * gemm_rows
        + (1.0 + trains) * edges * (depth_f * READ + sums * MULTIPLY)
        + trains * edges * sums * MULTIPLY
        + propagates * edges * (sums * both + SORT)
        + src * (depth_f * READ + sums);
    attend_first < transform_first
}

/// Multiply-adds of a GEMM in the time in which a loop over edges reads an element of a random row. This one and
/// [`MULTIPLY`] fit the ratios of both orders' times best, of 13 and 11 layers by the bench `orders` on one thread of a
/// Zen 4: with mean errors of 1.26 times at AVX-512 and 1.19 at AVX2, where ratios go from 0.1 to 2.5
/// (docs/benchmarks/2026-11-29-zen4).
const READ: f64 = 12.0;
/// The same of a multiply-add of such a loop.
const MULTIPLY: f64 = 3.0;
/// The same of sorting an edge by source, as [`crate::adjacency::transform_is_cheaper`] counts it.
const SORT: f64 = 700.0;
/// Columns below which a GEMM takes as long as with these.
const NARROW: usize = 16;
/// Share of the input rows' GEMM that is left where zeros of an activation and of dropout are skipped.
const HIDDEN: f64 = 0.5;
/// Time of a GEMM on AMX tiles beside that on vectors: that of a step of GraphSAGE-256. GAT was not measured on tiles.
const TILES: f64 = 0.7;

impl Layer {
    fn sizes(&self) -> Sizes {
        let [depth, heads, head_dim] = [self.shape.in_dim, self.shape.heads, self.shape.head_dim];
        Sizes { depth, heads, head_dim, width: self.shape.out_dim, cols: heads * depth }
    }

    /// Packs the weight of each head, as a factor of `sizes`; transposed in forward.
    fn pack_heads(&self, context: Context<'_>, sizes: [usize; 2], transposed: bool, packed: &mut Buffer) {
        let Sizes { depth, heads, head_dim, .. } = self.sizes();
        let len = packed_len(context.level, sizes[0], sizes[1]);
        let range = self.ranges.neighbours.clone().expect("a layer that attends has a weight");
        let weights = context.parameters[range].chunks_exact(head_dim * depth);
        for (weight, packed) in weights.zip(packed.get(heads * len).chunks_exact_mut(len)) {
            pack(context.level, weight, sizes, transposed, packed);
        }
    }

    /// Writes the attention vectors of the rows themselves, Wᵀ a for each head: the sources', then the destinations'.
    fn project_vectors(&mut self, Context { level, parameters, .. }: Context<'_>) {
        let Sizes { depth, head_dim, cols, .. } = self.sizes();
        let weight = &parameters[self.ranges.neighbours.clone().expect("a layer that attends has a weight")];
        let vectors = self.ranges.attention_vectors(parameters);
        resize(&mut self.row_vectors, 2 * cols);
        self.row_vectors.fill(0.0);
        for (vector, out) in vectors.into_iter().zip(self.row_vectors.chunks_exact_mut(cols)) {
            for (row, (weight, &factor)) in weight.chunks_exact(depth).zip(vector).enumerate() {
                add_scaled(level, factor, weight, &mut out[row / head_dim * depth..][..depth]);
            }
        }
    }

    pub(super) fn attend_first(&mut self, context: Context<'_>, mode: Mode) {
        let Context { level, num_dst, .. } = context;
        let (block, _) = context.graph();
        let Sizes { depth, heads, head_dim, width, cols } = self.sizes();
        let (averages, keeps) = (self.averages(), mode.trains());
        let mut packed = std::mem::take(&mut self.packed[0]);
        self.pack_heads(context, [depth, head_dim], true, &mut packed);
        self.packed[0] = packed;
        self.project_vectors(context);
        let attention = self.attention(block, context.nodes, depth);
        let inputs = shared_rows(context, block, &self.row_vectors);
        let kept = self.attention_state.get(attention.kept_len());
        attention.shared_halves(inputs, kept);
        let (coefficients, halves) = attention.split_kept(kept);
        let packed_len = packed_len(level, depth, head_dim);
        let weights = self.packed[0].read(heads * packed_len);
        let (epilogue, bias) = (self.epilogue, &context.parameters[self.ranges.bias.clone()]);
        let sum_width = if keeps { cols } else { 0 };
        let outputs = [self.out.get(num_dst * width), self.intermediate.get(num_dst * sum_width), coefficients];
        let starts = |task: usize| {
            let row = (task * ROWS).min(num_dst);
            [row * width, row * sum_width, attention.coefficients_len(0..row)]
        };
        let scratch_len = |rows: usize| {
            let product = if heads == 1 || averages { 0 } else { rows * head_dim };
            [if keeps { 0 } else { rows * cols }, product, 0]
        };
        parallel::split(0..num_dst.div_ceil(ROWS), &starts, outputs, &|task, [out, sums, coefficients]| {
            let rows = parallel::block(task, ROWS, num_dst);
            let count = rows.len();
            with_scratch(scratch_len(count), |[own_sums, product, _]| {
                let sums = if keeps { sums } else { own_sums };
                attention.shared_rows((inputs, halves), rows.clone(), coefficients, sums);
                for head in 0..heads {
                    let left = Left::rows(&sums[head * count * depth..], depth);
                    let weight = Right::packed(level, &weights[head * packed_len..][..packed_len], depth);
                    let sizes = [count, head_dim, depth];
                    if product.is_empty() {
                        multiply(level, sizes, (left, weight), out, head > 0);
                    } else {
                        multiply(level, sizes, (left, weight), product, false);
                        for (out, row) in out.chunks_exact_mut(width).zip(product.chunks_exact(head_dim)) {
                            out[head * head_dim..(head + 1) * head_dim].copy_from_slice(row);
                        }
                    }
                }
            });
            if averages {
                scale(level, 1.0 / heads as f32, out);
            }
            epilogue.forward(level, context.nodes(rows), bias, out);
        });
    }

    pub(super) fn backward_attend_first(
        &mut self,
        context: Context<'_>,
        upstream: Upstream<'_>,
        gradients: &mut [f32],
    ) {
        let Context { level, num_dst, .. } = context;
        let (block, adjacency) = context.graph();
        let Sizes { depth, heads, head_dim, width, cols } = self.sizes();
        let (averages, deeper, epilogue) = (self.averages(), self.propagates, self.epilogue);
        let mut packed = std::mem::take(&mut self.back.packed[0]);
        self.pack_heads(context, [head_dim, depth], false, &mut packed);
        self.back.packed[0] = packed;
        let attention = self.attention(block, context.nodes, depth);
        let inputs = shared_rows(context, block, &self.row_vectors);
        let kept = self.attention_state.read(attention.kept_len());
        let packed_len = packed_len(level, head_dim, depth);
        let lanes = Lanes::new(num_dst);
        let size = self.width * depth;
        let lane_size = size + width + 2 * cols;
        // Of a layer without a gradient of its input, pairs are not read again.
        let [of_entry, of_node] = if deeper { [2, heads] } else { [0; 2] };
        let pairs_len = of_entry * attention.coefficients_len(0..num_dst);
        let Buffers { packed, scratch, input_grad, lane_sums, vectors: of_vectors, .. } = &mut self.back;
        let weights = packed[0].read(heads * packed_len);
        let scratch = scratch.get(pairs_len + (num_dst + block.num_src) * of_node);
        let (pairs, scratch) = scratch.split_at_mut(pairs_len);
        let (dst_grads, src_grads) = scratch.split_at_mut(num_dst * of_node);
        let output = self.out.read(num_dst * width);
        let outputs = [
            lane_sums.get(lanes.count * lane_size),
            // The sums of each block are read before their gradients overwrite them.
            self.intermediate.get(num_dst * cols),
            &mut *pairs,
            &mut *dst_grads,
        ];
        let starts = |lane: usize| {
            let row = (lane * lanes.rows_per_lane).min(num_dst);
            [lane * lane_size, row * cols, of_entry * attention.coefficients_len(0..row), row * of_node]
        };
        parallel::split(0..lanes.count, &starts, outputs, &|lane, [lane_sums, sums, mut pairs, mut dst_grads]| {
            let (weight_sums, others) = lane_sums.split_at_mut(size);
            others.fill(0.0);
            let (bias, vectors) = others.split_at_mut(width);
            for (rows, first) in lanes.blocks(lane) {
                let (count, entries) = (rows.len(), 2 * attention.coefficients_len(rows.clone()));
                let sums = &mut sums[first * cols..(first + count) * cols];
                let own = if deeper { [0; 2] } else { [entries, count * heads] };
                with_scratch([count * width, own[0], own[1]], |[grad, own_pairs, own_dst]| {
                    upstream.fill(level, rows.clone(), width, grad);
                    let output = &output[rows.start * width..rows.end * width];
                    epilogue.backward(level, context.nodes(rows.clone()), output, grad);
                    add_rows(level, grad, bias);
                    if averages {
                        scale(level, 1.0 / heads as f32, grad);
                    }
                    for (head, sums) in sums.chunks_exact_mut(count * depth).enumerate() {
                        let values = if averages { &*grad } else { &grad[head * head_dim..] };
                        let left = Left { values, by_row: 1, by_depth: width, zeros: epilogue.makes_zeros() };
                        let weight_sum = &mut weight_sums[head * head_dim * depth..(head + 1) * head_dim * depth];
                        let factors = (left, Right::rows(sums, depth));
                        multiply(level, [head_dim, depth, count], factors, weight_sum, first > 0);
                        let left = Left { by_row: width, by_depth: 1, ..left };
                        let weight = Right::packed(level, &weights[head * packed_len..][..packed_len], head_dim);
                        multiply(level, [count, depth, head_dim], (left, weight), sums, false);
                    }
                    let (pairs, dst) = match deeper {
                        true => (
                            pairs.split_off_mut(..entries).expect("a pair per entry"),
                            dst_grads.split_off_mut(..count * heads).expect("a row's gradients of halves"),
                        ),
                        false => (own_pairs, own_dst),
                    };
                    attention.shared_grads((inputs, kept), rows.clone(), SharedGrads { sums, pairs, dst, vectors });
                });
            }
        });
        let lane_sums = lane_sums.read(lanes.count * lane_size);
        let ranges = self.ranges.weights().into_iter().flatten().chain([&self.ranges.bias]);
        add_lanes(level, lane_sums, lane_size, ranges, gradients);
        if deeper {
            let edges = adjacency.transposed();
            let transposed = Transposed { indptr: &edges.indptr, dst: &edges.rows, edge: &edges.edges };
            let grad = self.intermediate.read(num_dst * cols);
            let inputs = SourceGrads { rows: inputs, transposed, grad, pairs, dst_grads };
            attention.shared_sources(inputs, src_grads, input_grad.get(block.num_src * depth));
        }
        resize(of_vectors, 2 * cols);
        of_vectors.fill(0.0);
        for lane in lane_sums.chunks_exact(lane_size) {
            add_rows(level, &lane[size + width..], of_vectors);
        }
        self.add_vector_gradients(context, gradients);
    }

    /// Adds to the gradients of the weight and of the attention vectors what the gradients of Wᵀ a give.
    fn add_vector_gradients(&self, Context { level, parameters, .. }: Context<'_>, gradients: &mut [f32]) {
        let Sizes { depth, head_dim, cols, .. } = self.sizes();
        let (Some(weight), Some(attention)) = (&self.ranges.neighbours, &self.ranges.attention) else {
            unreachable!("a layer that attends has a weight and attention vectors")
        };
        let weights = parameters[weight.clone()].chunks_exact(depth);
        for (vector, of_heads) in attention.iter().zip(self.back.vectors.chunks_exact(cols)) {
            for (row, weight_row) in weights.clone().enumerate() {
                let of_head = &of_heads[row / head_dim * depth..][..depth];
                gradients[vector.start + row] += dot(level, weight_row, of_head);
                let gradient = &mut gradients[weight.start + row * depth..][..depth];
                add_scaled(level, parameters[vector.start + row], of_head, gradient);
            }
        }
    }
}

/// The input rows of a block with the attention vectors of its rows, the sources' and the destinations'.
fn shared_rows<'a>(context: Context<'a>, block: &'a Block, vectors: &'a [f32]) -> SharedRows<'a> {
    let (att_src, att_dst) = vectors.split_at(vectors.len() / 2);
    let nodes = context.x.nodes;
    SharedRows {
        view: context.x.view,
        of_nodes: nodes.map(|nodes| nodes.of_rows),
        of_edges: nodes.map_or(&block.indices, |nodes| nodes.of_edges),
        att_src,
        att_dst,
    }
}
