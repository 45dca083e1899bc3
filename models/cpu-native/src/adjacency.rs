//! A block made ready: coefficients, and the same edges by source node. All memory is used again.

use std::ops::Range;

use morphgl_model_spec::ModelKind;
use morphgl_registry::Block;

use crate::buffer::resize;
use crate::csr::{Sorted, sort_by_source};
use crate::gather::Lists;
use crate::parallel;
use crate::rows::Nodes;

/// What a model's layers need of a block.
#[derive(Debug, Default)]
pub(crate) struct Adjacency {
    /// Of each edge (GCN).
    coefficients: Vec<f32>,
    /// Of each row's sum (GraphSAGE, GIN).
    scales: Vec<f32>,
    /// Of each row's own node (GCN).
    loops: Vec<f32>,
    /// One over the root of each source's degree, itself counted (GCN).
    roots: Vec<f32>,
    by_source: BySource,
}

/// The edges by source node.
#[derive(Debug, Default)]
pub(crate) struct BySource {
    pub(crate) indptr: Vec<u32>,
    /// Destination row of each edge, ascending within a source.
    pub(crate) rows: Vec<u32>,
    /// Position of each edge in the block; for attention alone.
    pub(crate) edges: Vec<u32>,
    coefficients: Vec<f32>,
    next: Vec<u32>,
}

impl Adjacency {
    /// Computes the coefficients of a block; `degrees` are those of its source nodes in the whole graph.
    pub(crate) fn prepare(&mut self, kind: ModelKind, block: &Block, degrees: &[f32]) {
        let rows = if kind == ModelKind::Mlp { 0 } else { block.num_dst };
        let edges = if kind == ModelKind::Gcn { block.num_edges() } else { 0 };
        resize(&mut self.coefficients, edges);
        resize(&mut self.loops, if kind == ModelKind::Gcn { rows } else { 0 });
        resize(&mut self.scales, if matches!(kind, ModelKind::Sage | ModelKind::Gin) { rows } else { 0 });
        match kind {
            ModelKind::Gcn => self.prepare_gcn(block, degrees),
            ModelKind::Sage => {
                let ends = &block.indptr;
                self.scales.iter_mut().zip(ends.windows(2)).for_each(|(s, w)| *s = 1.0 / (w[1] - w[0]).max(1) as f32);
            }
            ModelKind::Gin => {
                self.scales.iter_mut().enumerate().for_each(|(row, s)| *s = rescale(block, row, degrees[row]));
            }
            ModelKind::Gat | ModelKind::Mlp => {}
        }
    }

    fn prepare_gcn(&mut self, block: &Block, degrees: &[f32]) {
        resize(&mut self.roots, block.num_src);
        self.roots
            .iter_mut()
            .zip(degrees)
            .for_each(|(r, d)| *r = if d + 1.0 > 0.0 { 1.0 / (d + 1.0).sqrt() } else { 0.0 });
        let roots = &self.roots;
        self.loops.iter_mut().zip(roots).for_each(|(l, r)| *l = r * r);
        of_rows(&block.indptr, 0..block.num_dst, &mut self.coefficients, &|row, coefficients| {
            let scale = rescale(block, row, degrees[row]) * roots[row];
            for (c, &src) in coefficients.iter_mut().zip(block.row(row)) {
                *c = scale * roots[src as usize];
            }
            if let Some(weights) = &block.weights {
                coefficients.iter_mut().zip(&weights[block.indptr[row] as usize..]).for_each(|(c, w)| *c *= w);
            }
        });
    }

    /// The sums of each row's sources, which are rows of the block's input, or of the store where they are `nodes`.
    pub(crate) fn lists<'a>(&'a self, block: &'a Block, nodes: Option<Nodes<'a>>) -> Lists<'a> {
        let (entries, count) = nodes.map_or((&block.indices[..], block.num_src), |n| (n.of_edges, n.store.num_rows()));
        let shape = (&block.indptr[..], entries, count);
        let lists = Lists::new(shape, some(&self.coefficients), some(&self.scales), some(&self.loops));
        nodes.map_or(lists, |n| lists.with_nodes(n.of_rows))
    }

    /// The sums of each source's rows: what takes the rows' gradients back.
    pub(crate) fn lists_by_source<'a>(&'a self, block: &Block) -> Lists<'a> {
        let by_source = &self.by_source;
        let shape = (&by_source.indptr[..], &by_source.rows[..], block.num_dst);
        Lists::new(shape, some(&by_source.coefficients), None, some(&self.loops))
    }

    pub(crate) fn by_source(&self) -> &BySource {
        &self.by_source
    }

    /// Sorts the edges by source, by counting.
    pub(crate) fn transpose(&mut self, block: &Block, positions: bool) {
        let Self { coefficients, scales, by_source: t, .. } = self;
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
        sort_by_source(edges, &mut t.indptr, &mut t.next, sorted, &coefficient);
    }
}

/// Rows a task works on.
const TASK: usize = 1 << 11;

/// Calls `each(row, its edges' values)` for all rows, in parallel.
fn of_rows(indptr: &[u32], rows: Range<usize>, values: &mut [f32], each: &(impl Fn(usize, &mut [f32]) + Sync)) {
    if rows.len() > TASK {
        let middle = rows.start.midpoint(rows.end);
        let (left, right) = values.split_at_mut((indptr[middle] - indptr[rows.start]) as usize);
        rayon::join(
            || of_rows(indptr, rows.start..middle, left, each),
            || of_rows(indptr, middle..rows.end, right, each),
        );
        return;
    }
    let mut rest = values;
    for row in rows {
        let (own, behind) = rest.split_at_mut((indptr[row + 1] - indptr[row]) as usize);
        each(row, own);
        rest = behind;
    }
}

fn some<T>(values: &[T]) -> Option<&[T]> {
    (!values.is_empty()).then_some(values)
}

/// Prepares the blocks of all layers side by side; `by_source` says for each whether its transposed lists are wanted.
pub(crate) fn prepare(
    all: &mut [Adjacency],
    kind: ModelKind,
    blocks: &[Block],
    degrees: &[f32],
    by_source: &(impl Fn(usize) -> bool + Sync),
) {
    parallel::pieces(all, 1, &|layer, adjacency| {
        let adjacency = &mut adjacency[0];
        adjacency.prepare(kind, &blocks[layer], degrees);
        if by_source(layer) {
            adjacency.transpose(&blocks[layer], kind == ModelKind::Gat);
        }
    });
}

/// What a sampled row is multiplied by so that its sampled edges stand for all of its edges.
fn rescale(block: &Block, row: usize, degree: f32) -> f32 {
    let range = block.indptr[row] as usize..block.indptr[row + 1] as usize;
    let sampled: f32 = match &block.weights {
        Some(weights) => weights[range].iter().sum(),
        None => range.len() as f32,
    };
    // A row with all its neighbours sums to its degree but for rounding, and is left exactly as it is.
    if sampled > 0.0 && (degree - sampled).abs() > 1e-5 * degree { degree / sampled } else { 1.0 }
}

/// Whether training a linear layer from `in_dim` to `out_dim` is cheaper before the aggregation than after it; both are
/// linear. The `first` layer has no gradient of its input: if its sums are multiplied, nothing goes back over its edges.
///
/// Costs are in multiply-adds of a wide product, 60 of which take a nanosecond (AVX-512, one thread): a message waits for
/// its row, a product of fewer than 30 columns for its input. Measured on a GCN from 128 to 16, 330,000 edges: 24 ms
/// for sums first and 32 for products first, where the formula gives 20 and 30.
pub(crate) fn transform_is_cheaper(block: &Block, [in_dim, out_dim]: [usize; 2], first: bool) -> bool {
    let (edges, src, dst) = (block.num_edges() as f64, block.num_src as f64, block.num_dst as f64);
    let row = in_dim as f64 * out_dim.max(30) as f64;
    let messages = |width: usize| edges * (600.0 + 12.0 * width as f64);
    let (passes, back, sort) = if first { (2.0, 0.0, 0.0) } else { (3.0, 1.0, 700.0 * edges) };
    let sums_first = passes * dst * row + (1.0 + back) * messages(in_dim) + sort;
    let products_first = passes * src * row + 2.0 * messages(out_dim) + 700.0 * edges;
    products_first < sums_first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_follows_the_cost() {
        let block = |num_src, num_dst, num_edges: usize| Block {
            num_src,
            num_dst,
            indptr: vec![0; num_dst + 1],
            indices: vec![0; num_edges],
            weights: None,
        };
        let sampled = block(1_000, 400, 3_000);
        assert!(!transform_is_cheaper(&sampled, [128, 256], true) && !transform_is_cheaper(&sampled, [128, 16], true));
        // Over a whole graph, rows are as many before as after, and edges many.
        let whole = block(1_000, 1_000, 20_000);
        assert!(transform_is_cheaper(&whole, [256, 16], true) && transform_is_cheaper(&whole, [256, 16], false));
        assert!(!transform_is_cheaper(&whole, [16, 256], false));
    }
}
