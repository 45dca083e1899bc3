//! What the features of edges add to the scores of attention.
//!
//! The term of an edge and a head is a_edge·(W e) = (Wᵀ a_edge)·e. So the weight is folded into one vector per head, and edges have
//! rows of `heads` elements, not of all heads' widths.

use std::ops::Range;

use super::Parts;
use crate::adjacency::groups::Relation;
use crate::attention::Attention;
use crate::buffer::{Buffer, resize};
use crate::gemm::{Left, Right, multiply};
use crate::layer::{Lanes, add_lanes};
use crate::parallel::{self, ROWS, row_blocks, with_scratch};
use crate::rows::{InputRows, NodeIds};

/// The terms of all edges whose type has features, and the buffers to compute them and their gradients.
#[derive(Debug, Default)]
pub(super) struct EdgeTerms {
    /// `[edges, heads]` of all relations, one after another.
    terms: Buffer,
    /// The vectors that the weight of a relation is folded into, `[features, heads]`, and their gradients.
    folded: Vec<f32>,
    folded_grad: Vec<f32>,
    lane_sums: Buffer,
}

/// The features of the edges of a relation, with the parameters that read them.
#[derive(Clone, Copy)]
struct Featured<'a> {
    /// Rows of features by edge.
    rows: InputRows<'a>,
    dim: usize,
    /// Where `att_edge` and `lin_edge.weight` stand in the flat array of all parameters.
    ranges: &'a [Range<usize>; 2],
}

impl<'a> Featured<'a> {
    /// None for edges of a type without features.
    fn of(parts: &Parts<'a>, relation: &Relation) -> Option<Self> {
        let ranges = parts.weights.edges(relation.edge_type)?;
        let (features, ids) = parts.edges;
        let store = features[relation.edge_type].as_ref().expect("features of the model's width");
        let nodes = Some(NodeIds { of_rows: &ids[relation.entries.clone()], of_edges: &[], store });
        Some(Self { rows: InputRows { view: store.view(), nodes }, dim: store.dim(), ranges })
    }
}

impl EdgeTerms {
    /// Computes what features add to the scores of their edges, of all edge types that have features.
    pub(super) fn forward(&mut self, parts: &Parts<'_>, heads: usize) {
        let edges = parts.relations.last().map_or(0, |relation| relation.entries.end);
        let reads = parts.relations.iter().any(|relation| parts.weights.edges(relation.edge_type).is_some());
        let terms = self.terms.get(if reads { edges * heads } else { 0 });
        for relation in parts.relations {
            let Some(Featured { rows, dim, ranges }) = Featured::of(parts, relation) else { continue };
            let [vectors, weight] = ranges.each_ref().map(|range| &parts.parameters[range.clone()]);
            resize(&mut self.folded, dim * heads);
            self.folded.fill(0.0);
            for ((column, row), vector) in weight.chunks_exact(dim).enumerate().zip(vectors) {
                let head = column * heads / vectors.len();
                row.iter().enumerate().for_each(|(k, w)| self.folded[k * heads + head] += vector * w);
            }
            let (folded, entries) = (&self.folded[..], relation.entries.clone());
            let terms = &mut terms[entries.start * heads..entries.end * heads];
            row_blocks(entries.len(), [(terms, heads)], &|block, [terms]| {
                with_scratch([block.len() * dim, 0, 0], |[x, _, _]| {
                    rows.copy(block.clone(), dim, x);
                    let factors = (Left::rows(x, dim), Right::rows(folded, heads));
                    multiply(parts.level, [block.len(), heads, dim], factors, terms, false);
                });
            });
        }
    }

    /// The terms of a relation's edges, `[edges, heads]`; none of a type without features.
    pub(super) fn of(&self, parts: &Parts<'_>, relation: &Relation, heads: usize) -> &[f32] {
        match parts.weights.edges(relation.edge_type) {
            Some(_) => &self.terms.read(relation.entries.end * heads)[relation.entries.start * heads..],
            None => &[],
        }
    }

    /// Adds the gradients of the parameters that read a relation's edges, after `attention`'s backward pass with this `scratch`.
    pub(super) fn backward(
        &mut self,
        (parts, relation): (&Parts<'_>, &Relation),
        (attention, scratch): (&Attention<'_>, &[f32]),
        heads: usize,
        gradients: &mut [f32],
    ) {
        let Some(Featured { rows, dim, ranges }) = Featured::of(parts, relation) else { return };
        let (lanes, size) = (Lanes::new(relation.entries.len()), dim * heads);
        let sums = (self.lane_sums.get(lanes.count * size), size);
        parallel::tasks(lanes.count, [sums], &|lane, [sums]| {
            with_scratch([ROWS * dim, ROWS * heads, 0], |[x, grads, _]| {
                for (block, first) in lanes.blocks(lane) {
                    rows.copy(block.clone(), dim, &mut x[..block.len() * dim]);
                    let of_block = attention.term_grads(scratch, block.clone());
                    grads.chunks_exact_mut(heads).zip(of_block).for_each(|(to, from)| to.copy_from_slice(from));
                    let factors = (Left::transposed(x, dim), Right::rows(grads, heads));
                    multiply(parts.level, [dim, heads, block.len()], factors, sums, first > 0);
                }
            });
        });
        resize(&mut self.folded_grad, size);
        self.folded_grad.fill(0.0);
        add_lanes(parts.level, self.lane_sums.read(lanes.count * size), size, [&(0..size)], &mut self.folded_grad);
        let [of_vectors, of_weight] = ranges;
        let (vectors, weight) = (&parts.parameters[of_vectors.clone()], &parts.parameters[of_weight.clone()]);
        for (column, (&vector, row)) in vectors.iter().zip(weight.chunks_exact(dim)).enumerate() {
            let head = column * heads / vectors.len();
            let of_head = || self.folded_grad[head..].iter().step_by(heads);
            gradients[of_vectors.start + column] += row.iter().zip(of_head()).map(|(w, g)| w * g).sum::<f32>();
            let of_row = &mut gradients[of_weight.start + column * dim..][..dim];
            of_row.iter_mut().zip(of_head()).for_each(|(to, g)| *to += vector * g);
        }
    }
}
