//! A block's coefficients, and its transposed edges. All memory is reused.

pub(crate) mod groups;

use morphgl_model_core::{ModelKind, ModelSpec};
use morphgl_registry::Block;

use crate::buffer::resize;
use crate::csr::{Sorted, sort_by_source};
use crate::parallel;
use crate::rows::NodeIds;
use crate::spmm::Csr;
use groups::Groups;

/// Coefficients and transposed edges of a block; vectors that a model does not use are empty.
#[derive(Debug, Default)]
pub(crate) struct Adjacency {
    /// Coefficient of each edge (GCN; GraphSAGE by importance).
    coefficients: Vec<f32>,
    /// One over the number of each row's edges (GraphSAGE without importance).
    scales: Vec<f32>,
    /// Coefficient of each row's self loop (GCN).
    loops: Vec<f32>,
    /// 1 / sqrt(degree) of each source, its self-loop counted (GCN).
    inverse_roots: Vec<f32>,
    transposed: TransposedEdges,
    /// The edges by type (typed models).
    pub(crate) groups: Groups,
}

/// Edges sorted by source node.
#[derive(Debug, Default)]
pub(crate) struct TransposedEdges {
    pub(crate) indptr: Vec<u32>,
    /// Destination row of each edge, ascending within a source.
    pub(crate) rows: Vec<u32>,
    /// Position of each edge in the block (GAT).
    pub(crate) edges: Vec<u32>,
    pub(crate) coefficients: Vec<f32>,
    /// Scratch of the sort.
    pub(crate) counts: Vec<u32>,
}

/// Rows of a task that computes coefficients.
const TASK: usize = 1 << 11;

impl Adjacency {
    /// Computes the coefficients of a block; `degrees` are those of its source nodes in the whole graph. The first of `nodes` are its
    /// destinations, of a typed model.
    pub(crate) fn prepare(&mut self, model: &ModelSpec, block: &Block, degrees: &[f32], nodes: &[u32]) {
        let kind = model.kind;
        if let Some(types) = model.types.as_ref().filter(|_| kind.is_typed()) {
            return groups::group(kind, types, block, nodes, &mut self.groups);
        }
        let (gcn, sage) = (kind == ModelKind::Gcn, kind == ModelKind::Sage);
        let importance = block.weights.as_ref().filter(|_| sage && block.importance);
        resize(&mut self.coefficients, if gcn || importance.is_some() { block.num_edges() } else { 0 });
        resize(&mut self.loops, if gcn { block.num_dst } else { 0 });
        resize(&mut self.scales, if sage && importance.is_none() { block.num_dst } else { 0 });
        if let Some(weights) = importance {
            self.prepare_weighted_mean(block, weights);
        }
        let ends = block.indptr.windows(2);
        self.scales.iter_mut().zip(ends).for_each(|(s, w)| *s = 1.0 / (w[1] - w[0]).max(1) as f32);
        if gcn {
            self.prepare_gcn(block, degrees, if model.self_loops { 1.0 } else { 0.0 });
        }
    }

    /// Shares of each row's edges in its importance.
    fn prepare_weighted_mean(&mut self, block: &Block, weights: &[f32]) {
        for row in block.indptr.windows(2).map(|w| w[0] as usize..w[1] as usize) {
            let weights = &weights[row.clone()];
            let sum = weights.iter().sum::<f32>();
            self.coefficients[row].iter_mut().zip(weights).for_each(|(share, w)| *share = w / sum);
        }
    }

    /// `added` is the weight of the self-loop that every node gets.
    fn prepare_gcn(&mut self, block: &Block, degrees: &[f32], added: f32) {
        resize(&mut self.inverse_roots, block.num_src);
        let inverse_root = |degree: &f32| if degree + added > 0.0 { 1.0 / (degree + added).sqrt() } else { 0.0 };
        self.inverse_roots.iter_mut().zip(degrees).for_each(|(r, d)| *r = inverse_root(d));
        let roots = &self.inverse_roots;
        self.loops.iter_mut().zip(roots).for_each(|(l, r)| *l = added * r * r);
        let starts = |task: usize| [block.indptr[(task * TASK).min(block.num_dst)] as usize];
        let tasks = 0..block.num_dst.div_ceil(TASK);
        parallel::split(tasks, &starts, [&mut self.coefficients], &|task, [coefficients]| {
            let mut rest = coefficients;
            for row in parallel::block(task, TASK, block.num_dst) {
                let own = rest.split_off_mut(..block.row(row).len()).expect("a coefficient per edge");
                let scale = rescale(block, row, degrees[row]) * roots[row];
                for (c, &src) in own.iter_mut().zip(block.row(row)) {
                    *c = scale * roots[src as usize];
                }
                if let Some(weights) = &block.weights {
                    own.iter_mut().zip(&weights[block.indptr[row] as usize..]).for_each(|(c, w)| *c *= w);
                }
            }
        });
    }

    /// The aggregation over each row's sources, which are rows of the block's input, or of the store's `nodes`.
    pub(crate) fn csr<'a>(&'a self, block: &'a Block, nodes: Option<NodeIds<'a>>) -> Csr<'a> {
        let (columns, count) = nodes.map_or((&block.indices[..], block.num_src), |n| (n.of_edges, n.store.num_rows()));
        let (shape, loops) = ((&block.indptr[..], columns, count), nonempty(&self.loops));
        let csr = |loops| Csr::new(shape, nonempty(&self.coefficients), nonempty(&self.scales), loops);
        nodes.map_or_else(|| csr(loops), |n| csr(None).with_loops_of(loops, n.of_rows))
    }

    /// The aggregation over each source's rows, which propagates the rows' gradients to the sources.
    pub(crate) fn transposed_csr<'a>(&'a self, block: &Block) -> Csr<'a> {
        let TransposedEdges { indptr, rows, coefficients, .. } = &self.transposed;
        Csr::new((indptr, rows, block.num_dst), nonempty(coefficients), None, nonempty(&self.loops))
    }

    pub(crate) fn transposed(&self) -> &TransposedEdges {
        &self.transposed
    }

    /// Sorts the edges by source, with their positions if `positions`.
    pub(crate) fn transpose(&mut self, block: &Block, positions: bool) {
        let Self { coefficients, scales, transposed: t, .. } = self;
        let num_edges = block.num_edges();
        let weighted = !(coefficients.is_empty() && scales.is_empty());
        resize(&mut t.rows, num_edges);
        resize(&mut t.edges, if positions { num_edges } else { 0 });
        resize(&mut t.coefficients, if weighted { num_edges } else { 0 });
        let coefficient = |row: usize, edge: usize| {
            scales.get(row).copied().unwrap_or(1.0) * coefficients.get(edge).copied().unwrap_or(1.0)
        };
        let sorted = Sorted { rows: &mut t.rows, edges: &mut t.edges, coefficients: &mut t.coefficients };
        let edges = (&block.indptr[..=block.num_dst], &block.indices[..], block.num_src);
        sort_by_source(edges, &mut t.indptr, &mut t.counts, sorted, &coefficient);
    }
}

fn nonempty<T>(values: &[T]) -> Option<&[T]> {
    (!values.is_empty()).then_some(values)
}

/// Prepares the blocks of all layers in parallel; `degrees(layer)` are those of the block's source nodes, and `transposes(layer)`
/// says whether the layer reads its transposed edges.
pub(crate) fn prepare<'a>(
    all: &mut [Adjacency],
    model: &ModelSpec,
    (blocks, nodes): (&[Block], &[u32]),
    degrees: &(impl Fn(usize) -> &'a [f32] + Sync),
    transposes: &(impl Fn(usize) -> bool + Sync),
) {
    parallel::pieces(all, 1, &|layer, adjacency| {
        let adjacency = &mut adjacency[0];
        adjacency.prepare(model, &blocks[layer], degrees(layer), nodes);
        if transposes(layer) && model.kind.is_typed() {
            adjacency.groups.transpose();
        } else if transposes(layer) {
            adjacency.transpose(&blocks[layer], model.kind == ModelKind::Gat);
        }
    });
}

/// Scale that makes the weights of a row's sampled edges sum to its degree.
fn rescale(block: &Block, row: usize, degree: f32) -> f32 {
    let range = block.indptr[row] as usize..block.indptr[row + 1] as usize;
    let sampled: f32 = match &block.weights {
        Some(weights) => weights[range].iter().sum(),
        None => range.len() as f32,
    };
    // A row with all its neighbours sums to its degree up to rounding, and keeps its exact coefficients.
    if sampled > 0.0 && (degree - sampled).abs() > 1e-5 * degree { degree / sampled } else { 1.0 }
}

/// Whether a linear layer from `in_dim` to `out_dim` trains faster if it transforms before it aggregates; both are linear.
/// The `first` layer has no gradient of its input, so that aggregating first spares it the backward pass over its edges.
///
/// Costs are in multiply-adds of a wide GEMM, 60 of which take a nanosecond (AVX-512, one thread): a message waits for its
/// row, a GEMM of fewer than 30 columns for its input. Measured on a GCN from 128 to 16, 330,000 edges: 24 ms if it
/// aggregates first and 32 ms if it transforms first, where the formula gives 20 and 30.
pub(crate) fn transform_is_cheaper(block: &Block, [in_dim, out_dim]: [usize; 2], first: bool) -> bool {
    let (edges, src, dst) = (block.num_edges() as f64, block.num_src as f64, block.num_dst as f64);
    let row = in_dim as f64 * out_dim.max(30) as f64;
    let messages = |width: usize| edges * (600.0 + 12.0 * width as f64);
    let (passes, back, sort) = if first { (2.0, 0.0, 0.0) } else { (3.0, 1.0, 700.0 * edges) };
    let aggregate_first = passes * dst * row + (1.0 + back) * messages(in_dim) + sort;
    let transform_first = passes * src * row + 2.0 * messages(out_dim) + 700.0 * edges;
    transform_first < aggregate_first
}

#[cfg(test)]
mod tests;
