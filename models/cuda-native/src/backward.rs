//! Backward pass of a layer.

use morphgl_cuda::Floats;
use morphgl_model_core::{LayerShape, ModelKind};
use morphgl_registry::Result;

use crate::arena::Region;
use crate::attention::{Scorer, ScorerGradients, mean_heads_backward};
use crate::edges::{Edges, zero};
use crate::epilogue::{Factors, add, column_sums, epilogue_backward, total};
use crate::forward::{Convolved, Layer, Pass, bias_name, parameter};
use crate::gpu::{Mask, Words};
use crate::input::Input;

impl<'a> Pass<'_, 'a> {
    pub(crate) fn gradient(&self, layer: usize, name: &str) -> Floats<'a> {
        self.model.gradient(&parameter(self.model.spec.kind, layer, name))
    }

    /// Computes the gradients of a layer's parameters from that of its output, which is overwritten; and, if `rows` is given,
    /// that of the first `rows` rows of its input, in a new region. Given rows, which come last, have one where it is of use.
    pub(crate) fn layer_backward(
        &mut self,
        mut layer: Layer<'a>,
        gradient: Region,
        rows: Option<usize>,
    ) -> Result<Option<Region>> {
        let out = rows.map(|rows| self.gpu.take(rows * layer.shape.in_dim)).transpose()?;
        let mark = self.gpu.mark();
        let residual = self.end_backward(&layer, gradient)?;
        let read = layer.edges.as_ref().map_or(layer.output.rows(), |edges| edges.block.num_src);
        let read = rows.map_or(read, |rows| read.min(rows));
        let input_gradient = out.map(|out| out.first(read * layer.shape.in_dim));
        if let (Some(out), Some(input_gradient)) = (out, input_gradient)
            && out.len() > input_gradient.len()
        {
            // Rows that no block reads have a gradient of 0.
            zero(self.gpu, out.from(input_gradient.len(), out.len() - input_gradient.len()))?;
        }
        self.convolve_backward(&mut layer, gradient, input_gradient)?;
        if let (Some(residual), Some(input_gradient)) = (residual, input_gradient) {
            let own = input_gradient.first(residual.len());
            add(self.gpu, own, Some(residual), own)?;
        }
        self.gpu.release(mark);
        Ok(out)
    }

    /// Backward of normalisation, residual connection and epilogue, in place; returns the residual's gradient.
    fn end_backward(&mut self, layer: &Layer<'a>, gradient: Region) -> Result<Option<Region>> {
        let (spec, columns, index) = (self.model.spec, layer.output.columns, layer.layer);
        let mut bias = bias_name(spec.kind).map(|name| self.gradient(index, name));
        let plain = layer.unit.is_none() && layer.normalized.is_none();
        let own_bias = if plain { bias.take() } else { None };
        let mut residual = None;
        if layer.shape.last {
            epilogue_backward(self.gpu, gradient, columns, own_bias, (layer.output.region, None, Mask::NONE))?;
        } else if let Some(activated) = layer.activated {
            epilogue_backward(self.gpu, gradient, columns, None, (layer.output.region, None, layer.mask))?;
            let copy = self.gpu.take(gradient.len())?;
            add(self.gpu, gradient, None, copy)?;
            residual = Some(copy);
            let end = (activated, Some(spec.activation), Mask::NONE);
            epilogue_backward(self.gpu, gradient, columns, own_bias, end)?;
        } else {
            let end = (layer.output.region, Some(spec.activation), layer.mask);
            epilogue_backward(self.gpu, gradient, columns, own_bias, end)?;
        }
        if let Some(normalized) = &layer.normalized {
            let affine = self.affine(index, |name| self.model.get(name));
            let affine_gradient = self.affine(index, |name| self.model.gradient(name));
            normalized.backward(self.gpu, gradient, affine, affine_gradient)?;
        }
        if let Some(unit) = &layer.unit {
            unit.backward(self.gpu, gradient)?;
        }
        if let Some(bias) = bias {
            column_sums(self.gpu, gradient, columns, Factors::default(), bias)?;
        }
        Ok(residual)
    }

    /// Backward of the convolution: gradients of its weights and, if wanted, of the first rows of its input, all destination
    /// nodes' among them.
    fn convolve_backward(
        &mut self,
        layer: &mut Layer<'a>,
        gradient: Region,
        input_gradient: Option<Region>,
    ) -> Result<()> {
        let (index, LayerShape { in_dim, out_dim, .. }) = (layer.layer, layer.shape);
        let rows = layer.output.rows();
        let sizes = [rows, out_dim, in_dim];
        let Some(edges) = &mut layer.edges else {
            layer.input.linear_weight(self.gpu, sizes, gradient, self.gradient(index, "weight"))?;
            return self.gpu.linear_input(sizes, gradient, self.parameter(index, "weight"), input_gradient, false);
        };
        match layer.convolved {
            Convolved::Gcn { aggregated } => self.sum_linear_backward(
                (index, "lin.weight"),
                edges,
                sizes,
                gradient,
                (aggregated, &layer.input),
                input_gradient,
            ),
            Convolved::Sage { aggregated } => {
                let of = (index, "lin_l.weight");
                self.sum_linear_backward(of, edges, sizes, gradient, (aggregated, &layer.input), input_gradient)?;
                layer.input.linear_weight(self.gpu, sizes, gradient, self.gradient(index, "lin_r.weight"))?;
                self.gpu.linear_input(sizes, gradient, self.parameter(index, "lin_r.weight"), input_gradient, true)
            }
            Convolved::Gin { .. } => self.gin_backward(layer, gradient, input_gradient),
            Convolved::Gat { .. } => self.gat_backward(layer, gradient, input_gradient),
            Convolved::Grouped { .. } => self.grouped_backward(layer, gradient, input_gradient),
            Convolved::TypedGat(_) => self.typed_gat_backward(layer, gradient, input_gradient),
            Convolved::Linear => unreachable!("a perceptron has no edges"),
        }
    }

    /// Backward of aggregation and linear layer, whose GEMM reads the aggregated rows if those came first, else the input.
    fn sum_linear_backward(
        &mut self,
        (index, name): (usize, &str),
        edges: &mut Edges<'a>,
        [rows, out_dim, in_dim]: [usize; 3],
        gradient: Region,
        (sums, input): (Option<Region>, &Input<'a>),
        input_gradient: Option<Region>,
    ) -> Result<()> {
        let (weight, weight_gradient) = (self.parameter(index, name), self.gradient(index, name));
        if let Some(sums) = sums {
            self.gpu.linear_weight([rows, out_dim, in_dim], gradient, sums, weight_gradient, false)?;
            let Some(input_gradient) = input_gradient else { return Ok(()) };
            let of_sums = self.gpu.take(rows * in_dim)?;
            self.gpu.linear_input([rows, out_dim, in_dim], gradient, weight, Some(of_sums), false)?;
            return edges.sum_backward(self.gpu, of_sums, input_gradient, in_dim, None);
        }
        let sizes = [edges.block.num_src, out_dim, in_dim];
        let of_products = self.gpu.take(edges.block.num_src * out_dim)?;
        edges.sum_backward(self.gpu, gradient, of_products, out_dim, None)?;
        input.linear_weight(self.gpu, sizes, of_products, weight_gradient)?;
        self.gpu.linear_input(first_rows(sizes, input_gradient), of_products, weight, input_gradient, false)
    }

    fn gin_backward(&mut self, layer: &mut Layer<'a>, gradient: Region, input_gradient: Option<Region>) -> Result<()> {
        let Convolved::Gin { aggregated, multiplied, hidden } = layer.convolved else { unreachable!("it is a GIN") };
        let (index, LayerShape { in_dim, out_dim, .. }) = (layer.layer, layer.shape);
        let edges = layer.edges.as_mut().expect("a GIN has edges");
        let (rows, num_src) = (edges.block.num_dst, edges.block.num_src);
        let eps = Some(Words::Floats(self.parameter(index, "eps")));
        let second = [rows, out_dim, out_dim];
        self.gpu.linear_weight(second, gradient, hidden, self.gradient(index, "nn.lins.1.weight"), false)?;
        let hidden_gradient = self.gpu.take(rows * out_dim)?;
        self.gpu.linear_input(
            second,
            gradient,
            self.parameter(index, "nn.lins.1.weight"),
            Some(hidden_gradient),
            false,
        )?;
        let bias = Some(self.gradient(index, "nn.lins.0.bias"));
        let relu = Some(morphgl_model_core::Activation::Relu);
        epilogue_backward(self.gpu, hidden_gradient, out_dim, bias, (hidden, relu, Mask::NONE))?;
        let (weight, weight_gradient) =
            (self.parameter(index, "nn.lins.0.weight"), self.gradient(index, "nn.lins.0.weight"));
        match (aggregated, multiplied) {
            (Some(sums), _) => {
                self.gpu.linear_weight([rows, out_dim, in_dim], hidden_gradient, sums, weight_gradient, false)?;
                let of_sums = self.gpu.take(rows * in_dim)?;
                self.gpu.linear_input([rows, out_dim, in_dim], hidden_gradient, weight, Some(of_sums), false)?;
                if self.model.spec.train_eps {
                    let own = layer.input.dense(self.gpu, rows)?;
                    self.eps_gradient(index, of_sums, own, in_dim)?;
                }
                match input_gradient {
                    Some(input_gradient) => edges.sum_backward(self.gpu, of_sums, input_gradient, in_dim, eps),
                    None => Ok(()),
                }
            }
            (None, Some(products)) => {
                if self.model.spec.train_eps {
                    self.eps_gradient(index, hidden_gradient, products.into(), out_dim)?;
                }
                let sizes = [num_src, out_dim, in_dim];
                let of_products = self.gpu.take(num_src * out_dim)?;
                edges.sum_backward(self.gpu, hidden_gradient, of_products, out_dim, eps)?;
                layer.input.linear_weight(self.gpu, sizes, of_products, weight_gradient)?;
                self.gpu.linear_input(first_rows(sizes, input_gradient), of_products, weight, input_gradient, false)
            }
            (None, None) => unreachable!("aggregation or GEMM came first"),
        }
    }

    /// Gradient of GIN's `eps`: inner product of the destination rows and their gradient.
    fn eps_gradient(&mut self, index: usize, gradient: Region, own: Words<'_>, columns: usize) -> Result<()> {
        let sums = self.gpu.take(columns)?;
        let factors = Factors { elements: Some(own), heads: None };
        column_sums(self.gpu, gradient, columns, factors, sums)?;
        total(self.gpu, sums, self.gradient(index, "eps"))
    }

    fn gat_backward(&mut self, layer: &mut Layer<'a>, gradient: Region, input_gradient: Option<Region>) -> Result<()> {
        let Convolved::Gat { scorer, attended } = layer.convolved else { unreachable!("it is a GAT") };
        let (index, LayerShape { in_dim, heads, head_dim, last, .. }) = (layer.layer, layer.shape);
        let edges = layer.edges.as_mut().expect("a GAT has edges");
        let (num_dst, num_src, columns) = (edges.block.num_dst, edges.block.num_src, heads * head_dim);
        let gradient = match last && heads > 1 {
            true => mean_heads_backward(self.gpu, gradient, heads, head_dim)?,
            false => gradient,
        };
        let of_values = self.gpu.take(num_src * columns)?;
        let (of_right, sides) = match scorer {
            Scorer::Gat { .. } => (None, vec![("lin", num_src, of_values)]),
            Scorer::Gatv2 { .. } => {
                let right = self.gpu.take(num_dst * columns)?;
                (Some(right), vec![("lin_l", num_src, of_values), ("lin_r", num_dst, right)])
            }
        };
        let att = match scorer {
            Scorer::Gat { .. } => ["att_src", "att_dst"].map(|name| Some(self.gradient(index, name))),
            Scorer::Gatv2 { .. } => [Some(self.gradient(index, "att")), None],
        };
        let gradients = ScorerGradients { values: of_values, right: of_right, att };
        attended.backward(self.gpu, edges, scorer, gradient, &gradients)?;
        for (name, rows, of_side) in sides {
            let (weight, bias) = (format!("{name}.weight"), format!("{name}.bias"));
            let sizes = [rows, columns, in_dim];
            layer.input.linear_weight(self.gpu, sizes, of_side, self.gradient(index, &weight))?;
            if self.model.spec.kind == ModelKind::Gat && name != "lin" {
                column_sums(self.gpu, of_side, columns, Factors::default(), self.gradient(index, &bias))?;
            }
            let (sizes, weight) = (first_rows(sizes, input_gradient), self.parameter(index, &weight));
            self.gpu.linear_input(sizes, of_side, weight, input_gradient, name == "lin_r")?;
        }
        Ok(())
    }
}

/// Sizes of the GEMM for a layer's input gradient, which has the first rows alone where others are given.
fn first_rows([rows, width, depth]: [usize; 3], input_gradient: Option<Region>) -> [usize; 3] {
    [input_gradient.map_or(rows, |gradient| rows.min(gradient.len() / depth.max(1))), width, depth]
}
