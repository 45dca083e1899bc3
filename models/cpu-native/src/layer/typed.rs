//! Layers with parameters per edge type, and inputs per node type.
//!
//! Rows are grouped by the weight that multiplies them ([`crate::adjacency::groups`]). A task gathers up to 96 rows of a group and multiplies them; then
//! the products are summed by destination. Backward reads the gradients of a destination's output for all its rows, and the gradient of
//! the input is a sum over the transposed entries. Every row is written by one task, and the gradients of weights are summed by lanes
//! of a group's rows, whose number depends on the rows alone: there are no atomics, and the bits do not depend on the number of
//! threads.

use morphgl_graph_store::FeatureView;
use morphgl_model_core::{ModelSpec, ParameterSpec};
use morphgl_platform::SimdLevel;

use super::Context;
use crate::buffer::{Buffer, resize};
use crate::epilogue::{Epilogue, add_rows};
use crate::gemm::{Left, Right, multiply, pack, packed_len};
use crate::parallel::{self, ROWS, row_blocks, with_scratch};
use crate::spmm::spmm;

mod attend;
mod backward;
mod inputs;
mod weights;

use crate::adjacency::groups::{Group, Task, divide};
use attend::{Attend, Parts};
pub(crate) use inputs::TypedInputs;
use weights::Weights;

/// A layer with parameters per edge type, and the buffers of what it computes.
#[derive(Debug)]
pub(crate) struct TypedLayer {
    weights: Weights,
    /// Width of the output.
    width: usize,
    tasks: Vec<Task>,
    packed: Buffer,
    /// A weight that its parameters make.
    combined: Vec<f32>,
    biases: Vec<f32>,
    /// A bias of zeros: biases per node type are added before the epilogue.
    zeros: Vec<f32>,
    /// What the weights multiply; in backward, its gradient.
    inputs: Buffer,
    products: Buffer,
    /// Attention over the products (R-GAT).
    attend: Option<Attend>,
    back: backward::Buffers,
}

impl TypedLayer {
    pub(crate) fn new(spec: &ModelSpec, layer: usize, specs: &[ParameterSpec]) -> Self {
        let (weights, width) = (Weights::find(spec, layer, specs), spec.layer(layer).out_dim);
        Self {
            combined: Vec::new(),
            biases: vec![0.0; weights.num_biases() * width],
            zeros: vec![0.0; width],
            weights,
            width,
            tasks: Vec::new(),
            packed: Buffer::default(),
            inputs: Buffer::default(),
            products: Buffer::default(),
            attend: spec.kind.has_attention().then(|| Attend::new(spec.layer(layer))),
            back: backward::Buffers::default(),
        }
    }

    /// Computes the layer.
    pub(crate) fn forward(&mut self, context: Context<'_>, epilogue: Epilogue, out: &mut Buffer) {
        let Context { level, parameters, x, num_dst, .. } = context;
        let groups = &context.graph().1.groups;
        let [depth, columns, width] = [self.weights.depth, self.weights.width, self.width];
        divide(&groups.list, ROWS, &mut self.tasks);
        resize(&mut self.combined, self.weights.size());
        let packing = Packing { weights: &self.weights, sizes: [depth, columns], transposed: !self.weights.by_depth };
        packing.run(level, parameters, &groups.list, &mut self.combined, &mut self.packed);
        let (packed, packed_len) = (&self.packed, packed_len(level, depth, columns));
        let (csr, tasks, rows) = (groups.csr(x.nodes), &self.tasks, groups.num_rows());
        let starts = |task: usize| [depth, columns].map(|width| width * tasks[task].rows.start);
        let outputs = [self.inputs.get(rows * depth), self.products.get(rows * columns)];
        parallel::split(0..tasks.len(), &starts, outputs, &|task, [inputs, products]| {
            let Task { group, rows } = tasks[task].clone();
            spmm(level, &csr, rows.clone(), x.view, depth, inputs);
            let packed = &packed.read((group + 1) * packed_len)[group * packed_len..];
            let factors = (Left::rows(inputs, depth), Right::packed(level, packed, depth));
            multiply(level, [rows.len(), columns, depth], factors, products, false);
        });
        let products = self.products.read(rows * columns);
        if let Some(attend) = &mut self.attend {
            let relations = groups.relations.list();
            let edges = (context.edge_features, &groups.edge_ids[..]);
            attend.forward(Parts { level, relations, weights: &self.weights, parameters, products, edges });
        }
        let terms = self.attend.as_ref().map_or(products, |a| a.attended.read(groups.ends.len() * columns));
        let (sum, terms) = (groups.sum(), FeatureView::F32(terms));
        self.weights.sum_biases(parameters, width, &mut self.biases);
        let (biases, zeros) = (&self.biases, &self.zeros);
        row_blocks(num_dst, [(out.get(num_dst * width), width)], &|rows, [out]| {
            if width == columns {
                spmm(level, &sum, rows.clone(), terms, width, out);
            } else {
                with_scratch([rows.len() * columns, 0, 0], |[all_heads, _, _]| {
                    spmm(level, &sum, rows.clone(), terms, columns, all_heads);
                    average(all_heads, columns, width, out);
                });
            }
            let nodes = context.nodes(rows.clone());
            if biases.len() == width {
                return epilogue.forward(level, nodes, biases, out);
            }
            for (out, &node_type) in out.chunks_exact_mut(width).zip(&groups.node_types[rows]) {
                add_rows(level, &biases[node_type as usize * width..][..width], out);
            }
            epilogue.forward(level, nodes, zeros, out);
        });
    }
}

/// Writes the means of rows of heads of this `width`.
fn average(all_heads: &[f32], columns: usize, width: usize, out: &mut [f32]) {
    let heads = columns / width;
    for (out, row) in out.chunks_exact_mut(width).zip(all_heads.chunks_exact(columns)) {
        for (c, o) in out.iter_mut().enumerate() {
            *o = (0..heads).map(|h| row[h * width + c]).sum::<f32>() / heads as f32;
        }
    }
}

/// How the weights of all groups are packed, as right factors of these sizes.
struct Packing<'a> {
    weights: &'a Weights,
    sizes: [usize; 2],
    transposed: bool,
}

impl Packing<'_> {
    /// Packs the weights one after another.
    fn run(&self, level: SimdLevel, parameters: &[f32], list: &[Group], combined: &mut [f32], packed: &mut Buffer) {
        let [depth, columns] = self.sizes;
        let len = packed_len(level, depth, columns);
        for (group, packed) in list.iter().zip(packed.get(list.len() * len).chunks_exact_mut(len)) {
            let weight = self.weights.get(level, parameters, group.weight, combined);
            pack(level, weight, self.sizes, self.transposed, packed);
        }
    }
}
