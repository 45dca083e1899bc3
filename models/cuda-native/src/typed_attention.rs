//! Attention by edge type (R-GAT): a softmax of its own over the edges of each type that end in a destination, without self-loops.
//!
//! A score's terms are products of nodes' rows and vectors, the attention vectors times the type's weight: one GEMM computes those of
//! all nodes, types and heads. The input rows are summed by the coefficients before they are multiplied, a head at a time, so that
//! kernels of untyped sums and softmaxes do, and no source has a row per type.

use std::ops::Range;

use morphgl_cuda::Floats;
use morphgl_graph_store::Dtype;
use morphgl_model_core::LayerShape;
use morphgl_registry::Result;

use crate::arena::Region;
use crate::attention::{SLOPE, TypedAttended, WARP, dot_products, mean_heads, mean_heads_backward, run};
use crate::edges::{Edges, InputRows, zero};
use crate::epilogue::{add, widen};
use crate::forward::{Convolved, Layer, Pass};
use crate::gpu::{Mask, arguments, each, rows_by_units};
use crate::groups::Groups;
use crate::input::Input;
use crate::transpose::{Block, Transposed};
use crate::typed::{groups_of, sum_groups};

/// Numbers of a layer's edge types, heads, columns of a head and of the input, rows and edges.
#[derive(Clone, Copy)]
struct Sizes {
    types: usize,
    heads: usize,
    width: usize,
    depth: usize,
    rows: usize,
    edges: usize,
}

impl Sizes {
    fn of(shape: LayerShape, groups: &Groups<'_>, edges: usize) -> Self {
        let LayerShape { in_dim: depth, heads, head_dim: width, .. } = shape;
        Self { types: groups.num_types, heads, width, depth, rows: groups.num_edge_rows(), edges }
    }

    /// Terms of a node.
    fn terms(&self) -> usize {
        2 * self.types * self.heads
    }

    /// The elements of a weight's rows for one head.
    fn of_head(&self, weight: &Range<usize>, head: usize) -> Range<usize> {
        let start = weight.start + head * self.width * self.depth;
        start..start + self.width * self.depth
    }

    /// The elements of an attention vector for one head.
    fn of_vector(&self, vector: &Range<usize>, head: usize) -> Range<usize> {
        vector.start + head * self.width..vector.start + (head + 1) * self.width
    }

    /// The vector of a type, side and head among all.
    fn vector(&self, all: Region, edge_type: usize, side: usize, head: usize) -> Region {
        all.from(((edge_type * 2 + side) * self.heads + head) * self.depth, self.depth)
    }

    /// The part of one head of an array of edges.
    fn of_edges(&self, all: Region, head: usize) -> Region {
        all.from(head * self.edges, self.edges)
    }
}

impl<'a> Pass<'_, 'a> {
    /// An R-GAT layer, with its biases.
    pub(crate) fn typed_gat(
        &mut self,
        layer: usize,
        input: &Input<'a>,
        edges: &Edges<'a>,
    ) -> Result<(Convolved<'a>, Region)> {
        let shape = self.model.spec.layer(layer);
        let ((block, groups), parameters, values) = (groups_of(edges), self.typed(layer), self.model.values);
        let sizes = Sizes::of(shape, groups, block.num_edges);
        let Sizes { types, heads, width, depth, rows, edges: num_edges } = sizes;
        let x = input.dense(self.gpu, block.num_src)?;
        let vectors = self.gpu.take(sizes.terms() * depth)?;
        for (edge_type, sides) in parameters.attention.iter().enumerate() {
            for (side, vector) in sides.iter().enumerate() {
                for head in 0..heads {
                    let weight = values.part(sizes.of_head(&parameters.of_type(edge_type), head));
                    let (from, out) =
                        (values.part(sizes.of_vector(vector, head)), sizes.vector(vectors, edge_type, side, head));
                    self.gpu.linear_input([1, width, depth], from, weight, Some(out), false)?;
                }
            }
        }
        let (scores, coefficients) = (self.gpu.take(heads * num_edges)?, self.gpu.take(heads * num_edges)?);
        let sums = self.gpu.take(heads * rows * depth)?;
        let out = self.gpu.take(block.num_dst * shape.out_dim)?;
        let mark = self.gpu.mark();
        let terms = self.gpu.take(block.num_src * sizes.terms())?;
        let by = self.gpu.floats(vectors.into());
        self.gpu.linear([block.num_src, sizes.terms(), depth], x, by, terms, false)?;
        let Block { indices, indptr: begins, ends, .. } = edges.block;
        let arguments = arguments![
            self.gpu,
            indices,
            groups.of_entries,
            groups.destinations,
            groups.device_starts,
            terms,
            scores,
            num_edges,
            types,
            heads,
            SLOPE
        ];
        run(self.gpu, &self.gpu.kernels.train_type_scores, each(heads * num_edges), arguments)?;
        let (all_heads, products) = (self.gpu.take(block.num_dst * heads * width)?, self.gpu.take(rows * width)?);
        for head in 0..heads {
            let (of_scores, of_edges) = (sizes.of_edges(scores, head), sizes.of_edges(coefficients, head));
            let [key, threshold, scale, nodes, keys, num_keys] = Mask::NONE.arguments(rows);
            let arguments = arguments![
                self.gpu, begins, ends, of_scores, of_edges, of_edges, num_edges, rows, 1usize, 1usize, key, threshold,
                scale, nodes, keys, num_keys
            ];
            run(self.gpu, &self.gpu.kernels.train_softmax, each(rows * WARP), arguments)?;
            let of_rows = edges.weighted(of_edges).sum(self.gpu, InputRows::packed(x, Dtype::F32), depth, None)?;
            let own = sums.from(head * rows * depth, rows * depth);
            add(self.gpu, of_rows, None, own)?;
            self.each_type(groups, |pass, edge_type, [start, count]| {
                let weight = values.part(sizes.of_head(&parameters.of_type(edge_type), head));
                let x = own.from(start * depth, count * depth);
                pass.gpu.linear([count, width, depth], x, weight, products.from(start * width, count * width), false)
            })?;
            let to = all_heads.from(head * width, all_heads.len().saturating_sub(head * width));
            sum_groups(self.gpu, (block, groups), (products, false), width, (to, heads * width))?;
        }
        let found = if shape.last && heads > 1 { mean_heads(self.gpu, all_heads, heads, width)? } else { all_heads };
        add(self.gpu, found, None, out)?;
        self.add_biases(layer, (block, groups), out, shape.out_dim)?;
        self.gpu.release(mark);
        Ok((Convolved::TypedGat(TypedAttended { x, vectors, scores, coefficients, sums }), out))
    }

    /// Calls `each` for the edge types that have rows: their first, and their number.
    fn each_type(
        &mut self,
        groups: &Groups<'_>,
        mut each: impl FnMut(&mut Self, usize, [usize; 2]) -> Result<()>,
    ) -> Result<()> {
        (0..groups.num_types).filter(|of| groups.rows(*of)[1] > 0).try_for_each(|of| each(self, of, groups.rows(of)))
    }

    /// Backward of [`Pass::typed_gat`].
    pub(crate) fn typed_gat_backward(
        &mut self,
        layer: &mut Layer<'a>,
        gradient: Region,
        input_gradient: Option<Region>,
    ) -> Result<()> {
        let Convolved::TypedGat(attended) = layer.convolved else { unreachable!("it is an R-GAT") };
        let TypedAttended { x, vectors, scores, coefficients, sums } = attended;
        let (index, shape) = (layer.layer, layer.shape);
        let edges = layer.edges.as_mut().expect("a typed layer has edges");
        let ((of, groups), parameters) = (groups_of(edges), self.typed(index));
        let sizes = Sizes::of(shape, groups, of.num_edges);
        let Sizes { types, heads, width, depth, rows, edges: num_edges } = sizes;
        let own = InputRows { ids: Some((groups.destinations, rows)), ..InputRows::packed(gradient, Dtype::F32) };
        let own = widen(self.gpu, own, [of.num_dst, shape.out_dim], Mask::NONE)?;
        self.bias_gradients(index, groups, own, shape.out_dim)?;
        let gradient = match shape.last && heads > 1 {
            true => mean_heads_backward(self.gpu, gradient, heads, width)?,
            false => gradient,
        };
        // The transposed edges are those of all heads.
        let Transposed { indptr, rows: sorted_rows, edges: sorted_edges } = edges.transposed(self.gpu)?;
        let terms = self.gpu.take(of.num_src * sizes.terms())?;
        zero(self.gpu, terms)?;
        let (of_products, of_sums) = (self.gpu.take(rows * width)?, self.gpu.take(rows * depth)?);
        let (of_scores, of_rows) = (self.gpu.take(num_edges)?, self.gpu.take(rows)?);
        let partial = input_gradient.map(|all| self.gpu.take(all.len())).transpose()?;
        let Block { indices, indptr: begins, ends, .. } = edges.block;
        let starts = groups.device_starts;
        let (values, gradients) = (self.model.values, self.model.gradients);
        for edge_type in (0..types).filter(|of| groups.rows(*of)[1] == 0) {
            zero(self.gpu, gradients.part(parameters.of_type(edge_type)))?;
        }
        for head in 0..heads {
            let columns = gradient.from(head * width, gradient.len().saturating_sub(head * width));
            let arguments = arguments![self.gpu, columns, groups.destinations, of_products, rows, width, heads * width];
            run(self.gpu, &self.gpu.kernels.train_head_rows, rows_by_units(rows, width), arguments)?;
            let own = sums.from(head * rows * depth, rows * depth);
            self.each_type(groups, |pass, edge_type, [start, count]| {
                let part = |of: Region, width: usize| of.from(start * width, count * width);
                let range = sizes.of_head(&parameters.of_type(edge_type), head);
                let (product, sizes) = (part(of_products, width), [count, width, depth]);
                let of_weight = gradients.part(range.clone());
                pass.gpu.linear_weight(sizes, product, part(own, depth), of_weight, false)?;
                pass.gpu.linear_input(sizes, product, values.part(range), Some(part(of_sums, depth)), false)
            })?;
            let (of_edges, scores) = (sizes.of_edges(coefficients, head), sizes.of_edges(scores, head));
            let [key, threshold, scale, nodes, keys, num_keys] = Mask::NONE.arguments(rows);
            let arguments = arguments![
                self.gpu,
                begins,
                indices,
                groups.of_entries,
                x,
                of_sums,
                of_scores,
                num_edges,
                0usize,
                depth,
                key,
                threshold,
                scale,
                nodes,
                keys,
                num_keys
            ];
            let kernels = &self.gpu.kernels;
            run(self.gpu, &kernels.train_coefficients_backward, dot_products(num_edges, 1, depth, 4), arguments)?;
            let arguments = arguments![
                self.gpu, begins, ends, scores, of_edges, of_scores, of_rows, num_edges, rows, 1usize, 1usize, SLOPE
            ];
            run(self.gpu, &kernels.train_softmax_backward, each(rows * WARP), arguments)?;
            let arguments = arguments![self.gpu, groups.destinations, starts, of_rows, terms, rows, types, heads, head];
            run(self.gpu, &kernels.train_type_terms_rows, each(rows), arguments)?;
            let arguments = arguments![
                self.gpu,
                indptr,
                sorted_rows,
                sorted_edges,
                starts,
                of_scores,
                terms,
                of.num_src,
                types,
                heads,
                head
            ];
            run(self.gpu, &kernels.train_type_terms_sources, each(of.num_src), arguments)?;
            if let (Some(all), Some(partial)) = (input_gradient, partial) {
                let to = if head == 0 { all } else { partial };
                edges.weighted(of_edges).sum_backward(self.gpu, of_sums, to, depth, None)?;
                if head > 0 {
                    add(self.gpu, all, Some(partial), all)?;
                }
            }
        }
        if let Some(all) = input_gradient {
            let (count, by) = (all.len() / depth.max(1), self.gpu.floats(vectors.into()));
            self.gpu.linear_input([count, sizes.terms(), depth], terms, by, Some(all), true)?;
        }
        let of_vectors = self.gpu.take(vectors.len())?;
        let to = self.gpu.floats(of_vectors.into());
        self.gpu.linear_weight([of.num_src, sizes.terms(), depth], terms, x, to, false)?;
        self.vector_gradients(index, sizes, of_vectors)
    }

    /// The gradients of the attention vectors and, added, of the weights by the vectors of the terms.
    fn vector_gradients(&mut self, layer: usize, sizes: Sizes, of_vectors: Region) -> Result<()> {
        let (parameters, values, gradients) = (self.typed(layer), self.model.values, self.model.gradients);
        let shape = [1, sizes.width, sizes.depth];
        for (edge_type, sides) in parameters.attention.iter().enumerate() {
            for (side, vector) in sides.iter().enumerate() {
                for head in 0..sizes.heads {
                    let weight = sizes.of_head(&parameters.of_type(edge_type), head);
                    let own = sizes.of_vector(vector, head);
                    let of_vector = sizes.vector(of_vectors, edge_type, side, head);
                    let out: Floats<'_> = gradients.part(own.clone());
                    self.gpu.linear(shape, of_vector, values.part(weight.clone()), out, false)?;
                    self.gpu.linear_weight(shape, values.part(own), of_vector, gradients.part(weight), true)?;
                }
            }
        }
        Ok(())
    }
}
