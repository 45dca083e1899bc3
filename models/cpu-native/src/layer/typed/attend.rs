//! Attention over the edges of each type, between the products of a typed layer and their sum by destination.

use std::ops::Range;

use morphgl_graph_store::FeatureMatrix;
use morphgl_model_core::LayerShape;
use morphgl_platform::SimdLevel;

use super::weights::Weights;
use crate::adjacency::groups::Relation;
use crate::attention::{Attention, Grads, Inputs, Options};
use crate::buffer::{Buffer, resize};
use crate::epilogue::add_rows;
use crate::parallel::{self, row_blocks};

mod edges;

use edges::EdgeTerms;

/// Attention's heads, and the buffers of all relations, one after another.
#[derive(Debug, Default)]
pub(super) struct Attend {
    heads: usize,
    head_dim: usize,
    /// Whether the output is the mean of the heads.
    pub(super) averages: bool,
    /// Where the state and the scratch of each relation begin.
    starts: Vec<[usize; 2]>,
    kept: Buffer,
    pub(super) attended: Buffer,
    attended_grad: Buffer,
    scratch: Buffer,
    pub(super) product_grads: Buffer,
    vector_grads: Vec<f32>,
    edges: EdgeTerms,
}

/// A layer's relations, its weights and the values of all parameters.
#[derive(Clone, Copy)]
pub(super) struct Parts<'a> {
    pub(super) level: SimdLevel,
    pub(super) relations: &'a [Relation],
    pub(super) weights: &'a Weights,
    pub(super) parameters: &'a [f32],
    /// The transformed rows of all sources.
    pub(super) products: &'a [f32],
    /// The features of edges by edge type, and the row of each edge in those of its type.
    pub(super) edges: (&'a [Option<FeatureMatrix>], &'a [u32]),
}

impl<'a> Parts<'a> {
    fn options(&self, heads: usize, width: usize) -> Options<'a> {
        Options { heads, width, slope: 0.2, self_loops: false, dropout: None, level: SimdLevel::current() }
    }

    fn inputs(&self, relation: &Relation, all: usize, terms: &'a [f32]) -> Inputs<'a> {
        let [att_src, att_dst] =
            self.weights.attention(relation.edge_type).each_ref().map(|r| &self.parameters[r.clone()]);
        let values = &self.products[relation.sources.start * all..relation.sources.end * all];
        Inputs { values, att_src, att_dst, terms }
    }

    fn num_ends(&self) -> usize {
        self.relations.last().map_or(0, |relation| relation.ends.end)
    }

    fn num_sources(&self) -> usize {
        self.relations.last().map_or(0, |relation| relation.sources.end)
    }
}

impl Attend {
    pub(super) fn new(LayerShape { heads, head_dim, out_dim, .. }: LayerShape) -> Self {
        Self { heads, head_dim, averages: heads * head_dim != out_dim, ..Self::default() }
    }

    /// Finds where the buffers of each relation begin; returns the lengths of state and scratch.
    fn place(&mut self, parts: &Parts<'_>) -> [usize; 2] {
        let options = parts.options(self.heads, self.head_dim);
        let mut ends = [0; 2];
        self.starts.clear();
        for relation in parts.relations {
            let attention = relation.attention(options);
            self.starts.push(ends);
            ends = [ends[0] + attention.kept_len(), ends[1] + attention.scratch_len()];
        }
        ends
    }

    /// Computes the output of every relation's destinations.
    pub(super) fn forward(&mut self, parts: Parts<'_>) {
        let all = self.heads * self.head_dim;
        let [kept_len, _] = self.place(&parts);
        self.edges.forward(&parts, self.heads);
        let (heads, edges) = (self.heads, &self.edges);
        let (options, relations, starts) = (parts.options(self.heads, self.head_dim), parts.relations, &self.starts);
        let outputs = [self.kept.get(kept_len), self.attended.get(parts.num_ends() * all)];
        let starts = |at: usize| [starts[at][0], relations[at].ends.start * all];
        parallel::split(0..relations.len(), &starts, outputs, &|at, [kept, out]| {
            let relation = &relations[at];
            let inputs = parts.inputs(relation, all, edges.of(&parts, relation, heads));
            relation.attention(options).forward(inputs, kept, out);
        });
    }

    /// Writes the gradients of the products to `product_grads` and adds those of the attention vectors, and of the parameters that
    /// read features of edges, to `gradients`, from the gradients of the destinations that `ends` names.
    pub(super) fn backward(&mut self, parts: Parts<'_>, (grads, ends): (&[f32], &[u32]), gradients: &mut [f32]) {
        let (heads, width, all) = (self.heads, self.head_dim, self.heads * self.head_dim);
        let averages = self.averages;
        let [kept_len, scratch_len] = self.place(&parts);
        let (options, relations, starts) = (parts.options(heads, width), parts.relations, &self.starts);
        row_blocks(ends.len(), [(self.attended_grad.get(ends.len() * all), all)], &|rows, [out]| {
            for (out, &end) in out.chunks_exact_mut(all).zip(&ends[rows]) {
                if averages {
                    let grad = &grads[end as usize * width..][..width];
                    for out in out.chunks_exact_mut(width) {
                        out.iter_mut().zip(grad).for_each(|(o, g)| *o = g / heads as f32);
                    }
                } else {
                    out.copy_from_slice(&grads[end as usize * all..][..all]);
                }
            }
        });
        let (kept, grad) = (self.kept.read(kept_len), self.attended_grad.read(ends.len() * all));
        resize(&mut self.vector_grads, 2 * all * relations.len());
        let outputs = [
            self.scratch.get(scratch_len),
            self.product_grads.get(parts.num_sources() * all),
            &mut self.vector_grads[..],
        ];
        let edges = &self.edges;
        let begin = |at: usize| [starts[at][1], relations[at].sources.start * all, 2 * all * at];
        parallel::split(0..relations.len(), &begin, outputs, &|at, [scratch, values, vectors]| {
            let (relation, (att_src, att_dst)) = (&relations[at], vectors.split_at_mut(all));
            let attention: Attention<'_> = relation.attention(options);
            let inputs = parts.inputs(relation, all, edges.of(&parts, relation, heads));
            let kept = &kept[starts[at][0]..][..attention.kept_len()];
            let grad = &grad[relation.ends.start * all..relation.ends.end * all];
            let grads = Grads { values, att_src, att_dst };
            attention.backward((inputs, relation.transposed()), kept, grad, scratch, grads);
        });
        for (relation, vectors) in relations.iter().zip(self.vector_grads.chunks_exact(2 * all)) {
            let ranges: &[Range<usize>; 2] = parts.weights.attention(relation.edge_type);
            for (range, grad) in ranges.iter().zip(vectors.chunks_exact(all)) {
                add_rows(parts.level, grad, &mut gradients[range.clone()]);
            }
        }
        for (relation, [_, start]) in relations.iter().zip(starts) {
            let attention = relation.attention(options);
            let scratch = &self.scratch.read(scratch_len)[*start..];
            self.edges.backward((&parts, relation), (&attention, scratch), heads, gradients);
        }
    }
}
