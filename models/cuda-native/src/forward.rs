//! Forward pass of a layer, and the results that backward reads.

use morphgl_cuda::Floats;
use morphgl_graph_store::Dtype;
use morphgl_model_core::{Attention, Dropout, DropoutSite, LayerShape, ModelKind, Normalization};
use morphgl_registry::{BatchId, Result};

use crate::arena::Region;
use crate::attention::{Attended, Heads, Scorer, TypedAttended, attend, mean_heads};
use crate::edges::{Edges, InputRows};
use crate::epilogue::{add, epilogue, widen};
use crate::gpu::{Gpu, Mask, MaskNodes, Words};
use crate::input::Input;
use crate::layout::Model;
use crate::norms::{Affine, Matrix, Normalized, Unit, by_running};

/// Whether a pass trains, and the mini-batch of its dropout masks.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Mode<'a> {
    Evaluation,
    /// With the input nodes, of which dropout reads the masks.
    Training {
        seed: u64,
        id: BatchId,
        nodes: MaskNodes<'a>,
    },
}

impl<'a> Mode<'a> {
    /// The mask of the input nodes' rows.
    pub(crate) fn mask(self, layer: usize, site: DropoutSite, probability: f32) -> Mask<'a> {
        let Mode::Training { nodes, .. } = self else { return Mask::NONE };
        self.mask_of(nodes, layer, site, probability)
    }

    /// The mask of the rows of `nodes`.
    pub(crate) fn mask_of<'b>(
        self,
        nodes: MaskNodes<'b>,
        layer: usize,
        site: DropoutSite,
        probability: f32,
    ) -> Mask<'b> {
        let Mode::Training { seed, id, .. } = self else { return Mask::NONE };
        Mask::new(Dropout::new(seed, id.epoch, id.index, layer, site, probability), nodes)
    }
}

/// Results of a convolution that backward reads. `aggregated` is the sum of the input rows, if it came first.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Convolved<'a> {
    Linear,
    Gcn {
        aggregated: Option<Region>,
    },
    Sage {
        aggregated: Option<Region>,
    },
    Gin {
        aggregated: Option<Region>,
        multiplied: Option<Region>,
        hidden: Region,
    },
    Gat {
        scorer: Scorer<'a>,
        attended: Attended<'a>,
    },
    Grouped {
        /// What the weights multiply.
        sums: Region,
        /// The weights of all edge types, where these are sums of bases.
        combined: Option<Region>,
    },
    TypedGat(TypedAttended<'a>),
}

/// Results of a layer's forward pass.
#[derive(Debug)]
pub(crate) struct Layer<'a> {
    pub(crate) layer: usize,
    pub(crate) shape: LayerShape,
    pub(crate) input: Input<'a>,
    pub(crate) edges: Option<Edges<'a>>,
    pub(crate) convolved: Convolved<'a>,
    pub(crate) unit: Option<Unit>,
    pub(crate) normalized: Option<Normalized>,
    /// Result of the activation, if it differs from the layer's output.
    pub(crate) activated: Option<Region>,
    pub(crate) mask: Mask<'a>,
    pub(crate) output: Matrix,
}

/// A forward or backward pass over a model.
#[derive(Debug)]
pub(crate) struct Pass<'p, 'a> {
    pub(crate) gpu: &'p mut Gpu,
    pub(crate) model: Model<'a>,
    pub(crate) mode: Mode<'a>,
}

impl<'a> Pass<'_, 'a> {
    /// Input of the first layer, with its dropout.
    pub(crate) fn features(&mut self, stored: InputRows<'a>, rows: usize) -> Result<Input<'a>> {
        let spec = self.model.spec;
        let input = Input { rows: stored, columns: spec.in_dim };
        let mask = self.mode.mask(0, DropoutSite::Input, spec.input_dropout);
        if !mask.drops() {
            return Ok(input);
        }
        let region = widen(self.gpu, input.rows, [rows, spec.in_dim], mask)?;
        Ok(Input::of(Matrix { region, columns: spec.in_dim }))
    }

    /// Rows in their stored type, without dropout.
    pub(crate) fn stored(&self, words: Words<'a>, dtype: Dtype, columns: usize) -> Input<'a> {
        Input { rows: InputRows::packed(words, dtype), columns }
    }

    pub(crate) fn parameter(&self, layer: usize, name: &str) -> Floats<'a> {
        self.model.get(&parameter(self.model.spec.kind, layer, name))
    }

    /// Scale and shift of a layer's normalisation.
    pub(crate) fn affine(&self, layer: usize, of: impl Fn(&str) -> Floats<'a>) -> Affine<'a> {
        let prefix = match self.model.spec.normalization {
            Normalization::Batch => format!("norms.{layer}.module"),
            _ => format!("norms.{layer}"),
        };
        Affine { weight: of(&format!("{prefix}.weight")), bias: of(&format!("{prefix}.bias")) }
    }

    pub(crate) fn running(&self, layer: usize) -> [Floats<'a>; 2] {
        ["running_mean", "running_var"].map(|name| self.model.get(&format!("norms.{layer}.module.{name}")))
    }

    /// Forward of one layer, normalisation and epilogue included; its output has `rows` rows.
    pub(crate) fn layer(
        &mut self,
        layer: usize,
        input: Input<'a>,
        mut edges: Option<Edges<'a>>,
        rows: usize,
    ) -> Result<Layer<'a>> {
        let (spec, shape) = (self.model.spec, self.model.spec.layer(layer));
        let (convolved, region) = self.convolve(layer, &input, &mut edges, rows)?;
        let mut at = Matrix { region, columns: shape.out_dim };
        let mut bias = bias_name(spec.kind).map(|name| self.parameter(layer, name));
        let mask = match shape.last {
            true => Mask::NONE,
            false => self.mode.mask(layer, DropoutSite::Hidden, spec.dropout),
        };
        let activation = (!shape.last).then_some(spec.activation);
        let normalizes = !shape.last && spec.normalization != Normalization::None;
        let (mut unit, mut normalized) = (None, None);
        if spec.l2_normalize || normalizes {
            epilogue(self.gpu, at.region, at.columns, bias.take(), None, Mask::NONE)?;
        }
        if spec.l2_normalize {
            let scaled = Unit::new(self.gpu, at)?;
            (at, unit) = (scaled.output, Some(scaled));
        }
        if normalizes {
            (at, normalized) = self.normalize(layer, at)?;
        }
        // Later steps must not overwrite what backward reads.
        if unit.is_some() && !normalizes && activation.is_some() {
            let copy = self.gpu.take(at.region.len())?;
            add(self.gpu, at.region, None, copy)?;
            at.region = copy;
        }
        let mut activated = None;
        if spec.has_residual(layer) {
            epilogue(self.gpu, at.region, at.columns, bias, activation, Mask::NONE)?;
            let Words::Region(own) = input.rows.words else { unreachable!("a hidden layer reads a layer's output") };
            let sum = self.gpu.take(at.region.len())?;
            add(self.gpu, own, Some(at.region), sum)?;
            epilogue(self.gpu, sum, at.columns, None, None, mask)?;
            activated = Some(std::mem::replace(&mut at.region, sum));
        } else {
            epilogue(self.gpu, at.region, at.columns, bias, activation, mask)?;
        }
        Ok(Layer { layer, shape, input, edges, convolved, unit, normalized, activated, mask, output: at })
    }

    fn normalize(&mut self, layer: usize, x: Matrix) -> Result<(Matrix, Option<Normalized>)> {
        let affine = self.affine(layer, |name| self.model.get(name));
        let normalized = match (self.model.spec.normalization, self.mode) {
            (Normalization::Batch, Mode::Evaluation) => {
                let running = self.running(layer);
                return Ok((by_running(self.gpu, x, affine, running)?, None));
            }
            (Normalization::Batch, _) => Normalized::batch(self.gpu, x, affine)?,
            _ => Normalized::layer(self.gpu, x, affine)?,
        };
        Ok((normalized.output, Some(normalized)))
    }

    /// The convolution without its last bias, but with those of a typed layer.
    fn convolve(
        &mut self,
        layer: usize,
        input: &Input<'a>,
        edges: &mut Option<Edges<'a>>,
        rows: usize,
    ) -> Result<(Convolved<'a>, Region)> {
        let (spec, LayerShape { in_dim, out_dim, .. }) = (self.model.spec, self.model.spec.layer(layer));
        let Some(edges) = edges else {
            let (weight, out) = (self.parameter(layer, "weight"), self.gpu.take(rows * out_dim)?);
            input.linear(self.gpu, [rows, out_dim, in_dim], weight, out, false)?;
            return Ok((Convolved::Linear, out));
        };
        let first = multiplies_first(edges, [in_dim, out_dim], layer > 0);
        match spec.kind {
            ModelKind::Gcn => {
                let weight = self.parameter(layer, "lin.weight");
                let (aggregated, out) = self.aggregate_linear(input, edges, weight, [in_dim, out_dim], first)?;
                Ok((Convolved::Gcn { aggregated }, out))
            }
            ModelKind::Sage => {
                let weight = self.parameter(layer, "lin_l.weight");
                let (aggregated, out) = self.aggregate_linear(input, edges, weight, [in_dim, out_dim], first)?;
                let own = self.parameter(layer, "lin_r.weight");
                input.linear(self.gpu, [rows, out_dim, in_dim], own, out, true)?;
                Ok((Convolved::Sage { aggregated }, out))
            }
            ModelKind::Gin => self.gin(layer, input, edges, first),
            ModelKind::Gat => self.gat(layer, input, edges),
            ModelKind::Mlp | ModelKind::Custom | ModelKind::Submitted(_) => {
                unreachable!("a perceptron has no edges, and a custom model is refused")
            }
            ModelKind::Rgcn | ModelKind::Rsage => self.grouped(layer, input, edges),
            ModelKind::Rgat => self.typed_gat(layer, input, edges),
            ModelKind::Hgt | ModelKind::Embedding => unreachable!("it is refused"),
        }
    }

    /// Aggregation and GEMM, in the cheaper order; both are linear.
    fn aggregate_linear(
        &mut self,
        input: &Input<'a>,
        edges: &Edges<'a>,
        weight: Floats<'_>,
        [in_dim, out_dim]: [usize; 2],
        first: bool,
    ) -> Result<(Option<Region>, Region)> {
        let (num_src, num_dst) = (edges.block.num_src, edges.block.num_dst);
        if first {
            let products = self.gpu.take(num_src * out_dim)?;
            input.linear(self.gpu, [num_src, out_dim, in_dim], weight, products, false)?;
            let products = InputRows::packed(products, Dtype::F32);
            return Ok((None, edges.sum(self.gpu, products, out_dim, None)?));
        }
        let sums = edges.sum(self.gpu, input.rows, in_dim, None)?;
        let out = self.gpu.take(num_dst * out_dim)?;
        self.gpu.linear([num_dst, out_dim, in_dim], sums, weight, out, false)?;
        Ok((Some(sums), out))
    }

    fn gin(
        &mut self,
        layer: usize,
        input: &Input<'a>,
        edges: &Edges<'a>,
        first: bool,
    ) -> Result<(Convolved<'a>, Region)> {
        let LayerShape { in_dim, out_dim, .. } = self.model.spec.layer(layer);
        let (num_src, num_dst) = (edges.block.num_src, edges.block.num_dst);
        let eps = Some(Words::Floats(self.parameter(layer, "eps")));
        let weight = self.parameter(layer, "nn.lins.0.weight");
        let (aggregated, multiplied, hidden) = if first {
            let products = self.gpu.take(num_src * out_dim)?;
            input.linear(self.gpu, [num_src, out_dim, in_dim], weight, products, false)?;
            let rows = InputRows::packed(products, Dtype::F32);
            (None, Some(products), edges.sum(self.gpu, rows, out_dim, eps)?)
        } else {
            let sums = edges.sum(self.gpu, input.rows, in_dim, eps)?;
            let hidden = self.gpu.take(num_dst * out_dim)?;
            self.gpu.linear([num_dst, out_dim, in_dim], sums, weight, hidden, false)?;
            (Some(sums), None, hidden)
        };
        let bias = self.parameter(layer, "nn.lins.0.bias");
        let relu = Some(morphgl_model_core::Activation::Relu);
        epilogue(self.gpu, hidden, out_dim, Some(bias), relu, Mask::NONE)?;
        let out = self.gpu.take(num_dst * out_dim)?;
        let weight = self.parameter(layer, "nn.lins.1.weight");
        self.gpu.linear([num_dst, out_dim, out_dim], hidden, weight, out, false)?;
        Ok((Convolved::Gin { aggregated, multiplied, hidden }, out))
    }

    fn gat(&mut self, layer: usize, input: &Input<'a>, edges: &mut Edges<'a>) -> Result<(Convolved<'a>, Region)> {
        let (spec, shape) = (self.model.spec, self.model.spec.layer(layer));
        let (num_src, num_dst, columns) = (edges.block.num_src, edges.block.num_dst, shape.heads * shape.head_dim);
        let mut product = |rows: usize, name: &str| -> Result<Region> {
            let out = self.gpu.take(rows * columns)?;
            let weight = self.model.get(&parameter(spec.kind, layer, &format!("{name}.weight")));
            input.linear(self.gpu, [rows, columns, shape.in_dim], weight, out, false)?;
            if name != "lin" {
                let bias = self.model.get(&parameter(spec.kind, layer, &format!("{name}.bias")));
                epilogue(self.gpu, out, columns, Some(bias), None, Mask::NONE)?;
            }
            Ok(out)
        };
        let scorer = match spec.attention {
            Attention::Gat => {
                let values = product(num_src, "lin")?;
                Scorer::Gat { values, att: ["att_src", "att_dst"].map(|name| self.parameter(layer, name)) }
            }
            Attention::Gatv2 => {
                let (left, right) = (product(num_src, "lin_l")?, product(num_dst, "lin_r")?);
                Scorer::Gatv2 { left, right, att: self.parameter(layer, "att") }
            }
        };
        let mask = self.mode.mask(layer, DropoutSite::Attention, spec.attention_dropout);
        let heads = Heads { heads: shape.heads, width: shape.head_dim, mask };
        let attended = attend(self.gpu, edges, scorer, heads)?;
        let out = match shape.last && shape.heads > 1 {
            true => mean_heads(self.gpu, attended.output, shape.heads, shape.head_dim)?,
            false => attended.output,
        };
        Ok((Convolved::Gat { scorer, attended }, out))
    }
}

/// Name of a layer's parameter.
pub(crate) fn parameter(kind: ModelKind, layer: usize, name: &str) -> String {
    format!("{}.{layer}.{name}", if kind == ModelKind::Mlp { "lins" } else { "convs" })
}

/// Name of a layer's last bias; a typed layer has one per type.
pub(crate) fn bias_name(kind: ModelKind) -> Option<&'static str> {
    match kind {
        ModelKind::Gcn | ModelKind::Gat | ModelKind::Mlp | ModelKind::Custom | ModelKind::Submitted(_) => Some("bias"),
        ModelKind::Sage => Some("lin_l.bias"),
        ModelKind::Gin => Some("nn.lins.1.bias"),
        ModelKind::Rgcn | ModelKind::Rsage | ModelKind::Rgat | ModelKind::Hgt | ModelKind::Embedding => None,
    }
}

/// Whether multiplying before aggregating is cheaper, backward included; `hidden`: the layer's input has a gradient.
///
/// Aggregation is bound by memory and GEMM by arithmetic: an element of a message counts as 32 multiply-adds, from an H100's
/// data sheet (3.35 TB/s, 67 TFLOP/s in f32: 40; GEMM stays below its peak).
fn multiplies_first(edges: &Edges<'_>, [in_dim, out_dim]: [usize; 2], hidden: bool) -> bool {
    const MESSAGE: f64 = 32.0;
    let (edges, src, dst) = (edges.block.num_edges as f64, edges.block.num_src as f64, edges.block.num_dst as f64);
    let (i, o, hidden) = (in_dim as f64, out_dim as f64, f64::from(u8::from(hidden)));
    // Forward, the weight's gradient, the input's gradient.
    let first = (2.0 + hidden) * src * i * o + 2.0 * MESSAGE * edges * o;
    let last = (2.0 + hidden) * dst * i * o + (1.0 + hidden) * MESSAGE * edges * i;
    first < last
}
