//! Layers with parameters per edge type: R-SAGE and R-GCN, and what R-GAT ([`crate::typed_attention`]) shares with them.
//!
//! The rows that a weight multiplies lie together ([`crate::groups`]): they are aggregated at once, multiplied by a GEMM per weight, and
//! the products summed by destination. Backward reads the gradient of a destination's output for all its rows.

use std::ops::Range;

use morphgl_cuda::Floats;
use morphgl_graph_store::Dtype;
use morphgl_model_core::LayerShape;
use morphgl_registry::Result;

use crate::arena::Region;
use crate::edges::{Edges, InputRows, zero};
use crate::epilogue::{Factors, add, column_sums, widen};
use crate::forward::{Convolved, Layer, Pass};
use crate::gpu::{Gpu, Mask, Words, arguments, rows_by_units};
use crate::groups::Groups;
use crate::input::Input;
use crate::layout::TypedParameters;
use crate::transpose::Block;

impl<'a> Pass<'_, 'a> {
    pub(crate) fn typed(&self, layer: usize) -> &'a TypedParameters {
        &self.model.layout.typed[layer]
    }

    /// A typed layer, with its biases.
    pub(crate) fn grouped(
        &mut self,
        layer: usize,
        input: &Input<'a>,
        edges: &Edges<'a>,
    ) -> Result<(Convolved<'a>, Region)> {
        let LayerShape { in_dim, out_dim, .. } = self.model.spec.layer(layer);
        let ((block, groups), parameters) = (groups_of(edges), self.typed(layer));
        let sums = edges.sum(self.gpu, input.rows, in_dim, None)?;
        let combined = self.combine(layer)?;
        let out = self.gpu.take(block.num_dst * out_dim)?;
        let mark = self.gpu.mark();
        let products = self.gpu.take(groups.num_rows() * out_dim)?;
        for weight in 0..parameters.weights.len() {
            let [start, rows] = groups.rows(weight);
            let [x, product] =
                [(sums, in_dim), (products, out_dim)].map(|(of, width)| of.from(start * width, rows * width));
            let mark = self.gpu.mark();
            match self.weight(layer, weight, combined)? {
                _ if rows == 0 => {}
                None => zero(self.gpu, product)?,
                Some(weight) if parameters.by_depth => {
                    let weight = self.gpu.floats(weight);
                    self.gpu.linear_input([rows, in_dim, out_dim], x, weight, Some(product), false)?;
                }
                Some(weight) => {
                    self.gpu.linear([rows, out_dim, in_dim], x, self.gpu.floats(weight), product, false)?;
                }
            }
            self.gpu.release(mark);
        }
        sum_groups(self.gpu, (block, groups), (products, true), out_dim, (out, out_dim))?;
        self.add_biases(layer, (block, groups), out, out_dim)?;
        self.gpu.release(mark);
        Ok((Convolved::Grouped { sums, combined }, out))
    }

    /// The weights of all edge types as sums of bases, if the layer has them.
    fn combine(&mut self, layer: usize) -> Result<Option<Region>> {
        let Some(bases) = &self.typed(layer).bases else { return Ok(None) };
        let [comp, bases] = bases.each_ref().map(|range| self.model.values.part(range.clone()));
        let sizes = self.base_sizes(layer, comp);
        let out = self.gpu.take(sizes[0] * sizes[2])?;
        self.gpu.linear_input(sizes, comp, bases, Some(out), false)?;
        Ok(Some(out))
    }

    /// Number of edge types, of bases, and of the elements of a weight.
    fn base_sizes(&self, layer: usize, comp: Floats<'_>) -> [usize; 3] {
        let (LayerShape { in_dim, out_dim, .. }, bases) = (self.model.spec.layer(layer), self.model.spec.bases);
        [comp.len() / bases, bases, in_dim * out_dim]
    }

    /// The elements of a weight, `None` for zeros; a sum of parameters in new memory.
    fn weight(&mut self, layer: usize, weight: usize, combined: Option<Region>) -> Result<Option<Words<'a>>> {
        let parameters = self.typed(layer);
        if let Some(combined) = combined.filter(|_| parameters.weights[weight].is_empty()) {
            let LayerShape { in_dim, out_dim, .. } = self.model.spec.layer(layer);
            let size = in_dim * out_dim;
            return Ok(Some(combined.from(weight * size, size).into()));
        }
        self.total(&parameters.weights[weight])
    }

    /// The sum of parameters, of which the first is not copied where it is alone.
    fn total(&mut self, ranges: &[Range<usize>]) -> Result<Option<Words<'a>>> {
        let values = |range: &Range<usize>| self.model.values.part(range.clone());
        let [first, rest @ ..] = ranges else { return Ok(None) };
        if rest.is_empty() {
            return Ok(Some(values(first).into()));
        }
        let sum = self.gpu.take(first.len())?;
        add(self.gpu, values(first), None, sum)?;
        rest.iter().try_for_each(|range| add(self.gpu, values(range), Some(sum), sum))?;
        Ok(Some(sum.into()))
    }

    /// Adds the bias of each destination's own row.
    pub(crate) fn add_biases(
        &mut self,
        layer: usize,
        (block, groups): (Block<'a>, &Groups<'a>),
        out: Region,
        width: usize,
    ) -> Result<()> {
        let own = groups.num_own();
        let biases = self.gpu.take(own * width)?;
        for (at, ranges) in self.typed(layer).biases.iter().enumerate() {
            let (mark, to) = (self.gpu.mark(), biases.from(at * width, width));
            match self.total(ranges)? {
                Some(bias) => add(self.gpu, bias, None, to)?,
                None => zero(self.gpu, to)?,
            }
            self.gpu.release(mark);
        }
        groups.add_biases(self.gpu, (groups.of_entries.after(block.num_edges), block.num_dst), biases, out, width)
    }

    /// Backward of [`Pass::grouped`]: gradients of its weights and biases and, if wanted, of the first rows of its input.
    pub(crate) fn grouped_backward(
        &mut self,
        layer: &mut Layer<'a>,
        gradient: Region,
        input_gradient: Option<Region>,
    ) -> Result<()> {
        let Convolved::Grouped { sums, combined } = layer.convolved else { unreachable!("it is typed") };
        let (index, LayerShape { in_dim, out_dim, .. }) = (layer.layer, layer.shape);
        let edges = layer.edges.as_mut().expect("a typed layer has edges");
        let ((_, groups), parameters) = (groups_of(edges), self.typed(index));
        let of_sums = input_gradient.map(|_| self.gpu.take(groups.num_rows() * in_dim)).transpose()?;
        let of_rows = InputRows { ids: Some((groups.destinations, 0)), ..InputRows::packed(gradient, Dtype::F32) };
        let of_products = widen(self.gpu, of_rows, [groups.num_rows(), out_dim], Mask::NONE)?;
        let size = in_dim * out_dim;
        let of_combined = combined.map(|combined| self.gpu.take(combined.len())).transpose()?;
        for weight in 0..parameters.weights.len() {
            let [start, rows] = groups.rows(weight);
            let part = |of: Region, width: usize| of.from(start * width, rows * width);
            let (x, product) = (part(sums, in_dim), part(of_products, out_dim));
            let mark = self.gpu.mark();
            let gradients: Vec<Words<'a>> = match of_combined {
                Some(all) if parameters.weights[weight].is_empty() => vec![all.from(weight * size, size).into()],
                _ => self.gradients_of(&parameters.weights[weight]),
            };
            if rows == 0 {
                gradients.iter().try_for_each(|out| zero(self.gpu, *out))?;
                continue;
            }
            if let [first, rest @ ..] = &gradients[..] {
                let out = self.gpu.floats(*first);
                match parameters.by_depth {
                    true => self.gpu.linear_weight([rows, in_dim, out_dim], x, product, out, false)?,
                    false => self.gpu.linear_weight([rows, out_dim, in_dim], product, x, out, false)?,
                }
                rest.iter().try_for_each(|out| add(self.gpu, *first, None, *out))?;
            }
            if let Some(of_x) = of_sums.map(|of| part(of, in_dim)) {
                match self.weight(index, weight, combined)? {
                    None => zero(self.gpu, of_x)?,
                    Some(weight) if parameters.by_depth => {
                        let weight = self.gpu.floats(weight);
                        self.gpu.linear([rows, in_dim, out_dim], product, weight, of_x, false)?;
                    }
                    Some(weight) => {
                        let weight = self.gpu.floats(weight);
                        self.gpu.linear_input([rows, out_dim, in_dim], product, weight, Some(of_x), false)?;
                    }
                }
            }
            self.gpu.release(mark);
        }
        let own = groups.num_edge_rows() * out_dim;
        self.bias_gradients(index, groups, of_products.from(own, of_products.len() - own), out_dim)?;
        if let (Some(bases), Some(of_combined)) = (&parameters.bases, of_combined) {
            let [comp, of_bases] = bases.each_ref().map(|range| self.model.values.part(range.clone()));
            let [of_comp, of_each] = bases.each_ref().map(|range| self.model.gradients.part(range.clone()));
            let sizes = self.base_sizes(index, comp);
            self.gpu.linear_weight(sizes, comp, of_combined, of_each, false)?;
            self.gpu.linear(sizes, of_combined, of_bases, of_comp, false)?;
        }
        match (of_sums, input_gradient) {
            (Some(of_sums), Some(out)) => edges.sum_backward(self.gpu, of_sums, out, in_dim, None),
            _ => Ok(()),
        }
    }

    fn gradients_of(&self, ranges: &[Range<usize>]) -> Vec<Words<'a>> {
        ranges.iter().map(|range| self.model.gradients.part(range.clone()).into()).collect()
    }

    /// The gradients of all biases from those of the own rows.
    pub(crate) fn bias_gradients(
        &mut self,
        layer: usize,
        groups: &Groups<'a>,
        own: Region,
        width: usize,
    ) -> Result<()> {
        for (at, ranges) in self.typed(layer).biases.iter().enumerate() {
            let [start, rows] = groups.rows(groups.num_types + at);
            self.bias_gradient(ranges, own.from((start - groups.num_edge_rows()) * width, rows * width), width)?;
        }
        Ok(())
    }

    /// The gradients of parameters whose sum is a bias, from those of the rows that it was added to.
    fn bias_gradient(&mut self, ranges: &[Range<usize>], rows: Region, width: usize) -> Result<()> {
        let gradients = self.gradients_of(ranges);
        let [first, rest @ ..] = &gradients[..] else { return Ok(()) };
        if rows.len() == 0 {
            return gradients.iter().try_for_each(|out| zero(self.gpu, *out));
        }
        column_sums(self.gpu, rows, width, Factors::default(), *first)?;
        rest.iter().try_for_each(|out| add(self.gpu, *first, None, *out))
    }
}

pub(crate) fn groups_of<'a>(edges: &Edges<'a>) -> (Block<'a>, &'a Groups<'a>) {
    edges.groups.expect("a typed layer's edges are grouped")
}

/// Writes the sums of the products of each destination's rows, its own among them if it has `own` products, to rows of `stride` columns.
pub(crate) fn sum_groups(
    gpu: &Gpu,
    (block, groups): (Block<'_>, &Groups<'_>),
    (products, own): (Region, bool),
    width: usize,
    (out, stride): (Region, usize),
) -> Result<()> {
    let (Groups { of_entries, ends, .. }, Block { num_dst, num_edges, indptr, .. }) = (groups, block);
    let rows = if own { groups.num_rows() } else { groups.num_edge_rows() };
    assert!(products.len() >= rows * width, "a product per row");
    assert!(num_dst == 0 || out.len() >= (num_dst - 1) * stride + width, "a sum per destination");
    let (own, four) = (u32::from(own), width.is_multiple_of(4));
    let kernel = if four { &gpu.kernels.train_sum_groups } else { &gpu.kernels.train_sum_groups_single };
    let shape = rows_by_units(num_dst, if four { width / 4 } else { width });
    let arguments = arguments![gpu, indptr, *of_entries, *ends, products, out, num_edges, num_dst, width, stride, own];
    // SAFETY: the kernel's arguments, as long as asserted; an entry's row is one of the groups', which ends after it.
    unsafe { gpu.launch(kernel, shape, arguments) }
}
