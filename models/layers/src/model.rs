//! A model: the forward pass layer by layer.

mod hgt;
mod typed;

use std::sync::Arc;

use burn_tensor::{Device, Tensor, TensorData};
use morphgl_graph_store::{FeatureMatrix, FeatureView, Types};
use morphgl_model_core::{Activation, Attention, Dropout, DropoutSite, ModelKind, ModelSpec, Normalization};
use morphgl_registry::{BatchId, Block};

use crate::adjacency::{Adjacency, Degrees, FeaturedEdges, GcnNorm, HgtBlock, Typed, TypedBlock};
use crate::aggregate::aggregate;
use crate::attention::AttentionOptions;
use crate::convolution;
use crate::edge_layers::{EdgeMap, gat_of_edges, gatv2_of_edges, gine_sum};
use crate::epilogue::epilogue;
use crate::features::{Features, prefix};
use crate::mask::Mask;
use crate::normalization::{BatchStatistics, batch_norm, batch_norm_running, layer_norm};
use crate::parameters::Parameters;
use crate::submission::{LayerInput, layers_of};

/// Whether a forward pass trains, and the mini-batch of its dropout masks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode<'a> {
    /// No dropout, running statistics.
    Evaluation,
    /// Dropout, statistics of the mini-batch.
    Training {
        /// Seed of the masks.
        seed: u64,
        /// The mini-batch.
        id: BatchId,
        /// Its input nodes, of which dropout reads the masks.
        nodes: &'a Arc<[u32]>,
    },
}

impl Mode<'_> {
    fn dropout(self, layer: usize, site: DropoutSite, probability: f32) -> Option<Mask> {
        let Mode::Training { seed, id, nodes } = self else { return None };
        let dropout = Dropout::new(seed, id.epoch, id.index, layer, site, probability)?;
        Some(Mask { dropout, nodes: Arc::clone(nodes) })
    }
}

/// The source nodes of a block in a graph with types.
#[derive(Debug, Clone, Copy)]
pub struct TypedNodes<'a> {
    /// The graph's types.
    pub types: &'a Types,
    /// The nodes, at least those of the block.
    pub nodes: &'a [u32],
}

/// Builds the adjacency of a block for a model; `None` for a model that reads no graph.
/// `in_degrees` are those of the block's source nodes in the whole graph, `nodes` the nodes themselves, for typed models, and
/// `edge_features` those of the dataset.
///
/// # Panics
///
/// A typed model, and no `nodes`, or a block without edge types. A model that reads features of edges, and a block without edge ids, or
/// no features of the model's widths.
pub fn adjacency(
    spec: &ModelSpec,
    block: &Block,
    in_degrees: &[f32],
    nodes: Option<TypedNodes<'_>>,
    edge_features: &[Option<FeatureMatrix>],
) -> Option<Arc<Adjacency>> {
    let features = || edge_features[0].as_ref().expect("features of the model's width");
    Some(Arc::new(match spec.kind {
        ModelKind::Gat if spec.reads_edges() => {
            Adjacency::featured(block, FeaturedEdges::with_self_loops(block, features()))
        }
        ModelKind::Gin if spec.reads_edges() => {
            let edges = FeaturedEdges::new(block, Adjacency::sum(block, in_degrees), features());
            Adjacency::featured(block, edges)
        }
        ModelKind::Gcn => {
            let degrees = Degrees { incoming: in_degrees, outgoing: &[] };
            Adjacency::gcn(block, degrees, GcnNorm::InIn, spec.self_loops)
        }
        ModelKind::Sage => Adjacency::mean(block),
        ModelKind::Gin => Adjacency::sum(block, in_degrees),
        ModelKind::Gat => Adjacency::edges(block),
        ModelKind::Submitted(model) => (layers_of(model).adjacency)(spec, block, in_degrees),
        kind @ (ModelKind::Rgcn | ModelKind::Rsage | ModelKind::Rgat | ModelKind::Hgt) => {
            let TypedNodes { types, nodes } = nodes.expect("the nodes of a typed model's block");
            let typed = match kind {
                ModelKind::Hgt => Typed::Attention(HgtBlock::new(block, types, nodes)),
                _ => Typed::Relations(TypedBlock::new(spec, block, types, nodes, edge_features)),
            };
            Adjacency::typed(block, typed)
        }
        ModelKind::Mlp | ModelKind::Embedding | ModelKind::Custom => return None,
    }))
}

/// Rows of the first layer's output that a mini-batch brings along: fields as those of
/// [`GivenRows`](morphgl_registry::GivenRows).
#[derive(Debug, Clone, Copy)]
pub struct Given<'a> {
    /// The rows, before dropout.
    pub rows: &'a [f32],
    /// What each of the first layer's weights multiplies for them; none where they have no part in its gradient.
    pub inputs: &'a [Vec<f32>],
    /// Their nodes, for dropout.
    pub nodes: &'a [u32],
}

/// A forward pass: a model with its parameters, training or not.
#[derive(Debug, Clone, Copy)]
pub struct Pass<'a> {
    /// The model.
    pub spec: &'a ModelSpec,
    /// Its parameters.
    pub parameters: &'a Parameters,
    /// Whether it trains.
    pub mode: Mode<'a>,
}

impl Pass<'_> {
    /// The dropout of the features; none in evaluation.
    pub fn input_dropout(&self) -> Option<Mask> {
        self.mode.dropout(0, DropoutSite::Input, self.spec.input_dropout)
    }

    /// Reads the first `rows` rows of the input features, with their dropout.
    pub fn read_features(&self, view: FeatureView<'_>, rows: usize, device: &Device) -> Features {
        let dropout = self.input_dropout();
        Features::read(view.part(0, rows * self.spec.in_dim), self.spec.in_dim, dropout.as_ref(), device)
    }

    /// All layers over a mini-batch's blocks; returns the logits of its first `num_seeds` nodes. Rows that are `given` follow those of
    /// the first layer's output.
    /// Statistics of batch normalisation are pushed to `statistics`.
    ///
    /// # Panics
    ///
    /// When `blocks` has no entry per layer.
    pub fn forward(
        &self,
        features: Features,
        blocks: &[Option<Arc<Adjacency>>],
        given: Given<'_>,
        num_seeds: usize,
        statistics: &mut Vec<BatchStatistics>,
    ) -> Tensor<2> {
        assert_eq!(blocks.len(), self.spec.layers, "an entry per layer");
        let mut x = features;
        for (l, block) in blocks.iter().enumerate() {
            let mut out = self.layer(l, &x, block.as_ref(), statistics);
            if l == 0 && !given.rows.is_empty() {
                let rows = self.given_rows(given, &out);
                out = Tensor::cat(vec![out, rows], 0);
            }
            x = Features::Dense(out);
        }
        let Features::Dense(logits) = x else { unreachable!("a model has a layer") };
        prefix(logits, num_seeds)
    }

    /// Given rows with their dropout, as wide as the `computed` ones. Where their inputs came along, their gradient flows through the
    /// derivative at the rows themselves into the first layer's weights and bias.
    fn given_rows(&self, given: Given<'_>, computed: &Tensor<2>) -> Tensor<2> {
        let [_, width] = computed.dims();
        let tensor = |values: Vec<f32>, width: usize| {
            let count = values.len() / width;
            Tensor::from_data(TensorData::new(values, [count, width]), &computed.device())
        };
        let dropout = self.mode.dropout(0, DropoutSite::Hidden, self.spec.dropout);
        let dropout = dropout.map(|mask| Mask { nodes: given.nodes.into(), ..mask });
        let get = |name: &str| self.parameters.get(&format!("convs.0.{name}"));
        let (names, bias): (&[&str], _) = match self.spec.kind {
            ModelKind::Gcn => (&["lin.weight"], "bias"),
            _ => (&["lin_l.weight", "lin_r.weight"], "lin_l.bias"),
        };
        let products = given
            .inputs
            .iter()
            .zip(names)
            .map(|(input, name)| tensor(input.clone(), self.spec.in_dim).matmul(get(name).transpose()));
        let Some(sum) = products.reduce(|a, b| a + b) else {
            return epilogue(tensor(given.rows.to_vec(), width), None, None, dropout);
        };
        let linear = epilogue(sum, Some(get(bias)), None, None);
        // What the activation makes these rows of, and a term of value 0 that has the gradient.
        let before = |&row: &f32| match self.spec.activation {
            Activation::Elu if row < 0.0 => row.ln_1p(),
            Activation::Relu | Activation::Elu => row,
        };
        let rows = tensor(given.rows.iter().map(before).collect(), width) + (linear.clone() - linear.detach());
        epilogue(rows, None, Some(self.spec.activation), dropout)
    }

    /// What each of the first layer's weights multiplies for the destination nodes of `adjacency`
    /// ([`ModelSpec::given_input_widths`]), a matrix for each.
    pub fn first_inputs(&self, x: &Features, adjacency: &Arc<Adjacency>) -> Vec<Tensor<2>> {
        let rows = match x {
            Features::Dense(rows) => prefix(rows.clone(), adjacency.num_src),
            // The nonzeros times the identity.
            Features::Sparse(_) => x.linear(Tensor::eye(x.dim(), &self.parameters.device()), adjacency.num_src),
        };
        let inputs = [aggregate(rows.clone(), adjacency), prefix(rows, adjacency.num_dst)];
        inputs.into_iter().take(self.spec.given_input_widths().len()).collect()
    }

    /// One layer, with its normalisation, activation and dropout.
    ///
    /// The output has a row per destination node; without an adjacency, one per input row.
    pub fn layer(
        &self,
        layer: usize,
        x: &Features,
        adjacency: Option<&Arc<Adjacency>>,
        statistics: &mut Vec<BatchStatistics>,
    ) -> Tensor<2> {
        let spec = self.spec;
        let (out, bias) = self.convolve(layer, x, adjacency);
        let (last, num_rows) = (spec.layer(layer).last, out.dims()[0]);
        let (mut out, mut bias) = (out, bias);
        if last || spec.l2_normalize || spec.normalization != Normalization::None {
            out = epilogue(out, bias.take(), None, None);
        }
        if spec.l2_normalize {
            out = convolution::l2_normalize(out);
        }
        if last {
            return out;
        }
        let out = self.normalize(layer, out, statistics);
        let dropout = self.mode.dropout(layer, DropoutSite::Hidden, spec.dropout);
        match x {
            Features::Dense(x) if spec.has_residual(layer) => {
                let out = epilogue(out, bias, Some(spec.activation), None) + prefix(x.clone(), num_rows);
                epilogue(out, None, None, dropout)
            }
            _ => epilogue(out, bias, Some(spec.activation), dropout),
        }
    }

    /// The convolution without its last bias, and that bias; that of a submitted model is whole.
    fn convolve(
        &self,
        layer: usize,
        x: &Features,
        adjacency: Option<&Arc<Adjacency>>,
    ) -> (Tensor<2>, Option<Tensor<2>>) {
        let Self { spec, parameters, mode } = *self;
        let shape = spec.layer(layer);
        let get = |name: &str| parameters.get(&format!("convs.{layer}.{name}"));
        if spec.kind == ModelKind::Embedding {
            return (x.dense(x.num_rows(), &parameters.device()), None);
        }
        let Some(adjacency) = adjacency else {
            let get = |name: &str| parameters.get(&format!("lins.{layer}.{name}"));
            return (x.linear(get("weight"), x.num_rows()), Some(get("bias")));
        };
        let attention = || AttentionOptions {
            heads: shape.heads,
            slope: 0.2,
            self_loops: true,
            dropout: mode.dropout(layer, DropoutSite::Attention, spec.attention_dropout),
        };
        let heads = |out| if shape.last { convolution::mean_heads(out, shape.heads) } else { out };
        let (out, bias) = match spec.kind {
            ModelKind::Gcn => (convolution::gcn(x, adjacency, get("lin.weight")), get("bias")),
            ModelKind::Sage => {
                (convolution::sage(x, adjacency, get("lin_l.weight"), get("lin_r.weight")), get("lin_l.bias"))
            }
            ModelKind::Gin if adjacency.featured.is_some() => {
                let edges = adjacency.featured.as_ref().expect("checked above");
                let map = EdgeMap { weight: get("lin.weight"), bias: Some(get("lin.bias")) };
                let sum = gine_sum(x.dense(adjacency.num_src, &parameters.device()), get("eps"), edges, map);
                let hidden = sum.matmul(get("nn.lins.0.weight").transpose());
                let hidden = epilogue(hidden, Some(get("nn.lins.0.bias")), Some(Activation::Relu), None);
                (hidden.matmul(get("nn.lins.1.weight").transpose()), get("nn.lins.1.bias"))
            }
            ModelKind::Gin => {
                let first = (get("nn.lins.0.weight"), get("nn.lins.0.bias"));
                let out = convolution::gin(x, adjacency, get("eps"), first, get("nn.lins.1.weight"));
                (out, get("nn.lins.1.bias"))
            }
            ModelKind::Gat if adjacency.featured.is_some() => {
                let edges = adjacency.featured.as_ref().expect("checked above");
                (heads(self.attend_edges(x, edges, &get, &attention())), get("bias"))
            }
            ModelKind::Gat => {
                let out = match spec.attention {
                    Attention::Gat => {
                        let (weight, src, dst) = (get("lin.weight"), get("att_src"), get("att_dst"));
                        convolution::gat(x, adjacency, weight, src, dst, attention())
                    }
                    Attention::Gatv2 => {
                        let side = |name: &str| (get(&format!("{name}.weight")), Some(get(&format!("{name}.bias"))));
                        convolution::gatv2(x, adjacency, side("lin_l"), side("lin_r"), get("att"), attention())
                    }
                };
                (heads(out), get("bias"))
            }
            ModelKind::Submitted(model) => {
                let out = (layers_of(model).layer)(&LayerInput { spec, layer, shape, x, adjacency, parameters });
                assert_eq!(out.dims(), [adjacency.num_dst, shape.out_dim], "output of layer {layer} of {model:?}");
                return (out, None);
            }
            ModelKind::Rgcn | ModelKind::Rsage | ModelKind::Rgat | ModelKind::Hgt => {
                let out = match adjacency.typed.as_ref().expect("a typed model's adjacency") {
                    Typed::Relations(block) => self.convolve_typed(layer, x, block),
                    Typed::Attention(block) => self.transform(layer, x, block),
                };
                return (out, None);
            }
            ModelKind::Mlp | ModelKind::Embedding | ModelKind::Custom => {
                unreachable!("a perceptron has no adjacency, nor has a custom model")
            }
        };
        (out, Some(bias))
    }

    /// GAT or GATv2 over edges with features, heads side by side, without its last bias. `get` finds the layer's parameters.
    pub(crate) fn attend_edges(
        &self,
        x: &Features,
        edges: &FeaturedEdges,
        get: &dyn Fn(&str) -> Tensor<2>,
        options: &AttentionOptions,
    ) -> Tensor<2> {
        let (num_src, num_dst) = (edges.edges.num_src, edges.edges.num_dst);
        let map = EdgeMap { weight: get("lin_edge.weight"), bias: None };
        match self.spec.attention {
            Attention::Gat => {
                let vectors = ["att_src", "att_dst", "att_edge"].map(get);
                gat_of_edges(x.linear(get("lin.weight"), num_src), edges, map, vectors, options)
            }
            Attention::Gatv2 => {
                let side = |name: &str, rows: usize| {
                    let product = x.linear(get(&format!("{name}.weight")), rows);
                    epilogue(product, Some(get(&format!("{name}.bias"))), None, None)
                };
                let sides = [side("lin_l", num_src), side("lin_r", num_dst)];
                gatv2_of_edges(sides, edges, map, get("att"), options)
            }
        }
    }

    fn normalize(&self, layer: usize, x: Tensor<2>, statistics: &mut Vec<BatchStatistics>) -> Tensor<2> {
        let Self { spec, parameters, mode } = *self;
        let get = |name: &str| parameters.get(&format!("norms.{layer}.{name}"));
        match (spec.normalization, mode) {
            (Normalization::None, _) => x,
            (Normalization::Layer, _) => layer_norm(x, get("weight"), get("bias")),
            (Normalization::Batch, Mode::Training { .. }) => {
                let (out, batch_statistics) = batch_norm(x, get("module.weight"), get("module.bias"), layer);
                statistics.push(batch_statistics);
                out
            }
            (Normalization::Batch, Mode::Evaluation) => {
                let (mean, var) = (get("module.running_mean"), get("module.running_var"));
                batch_norm_running(x, get("module.weight"), get("module.bias"), mean, var)
            }
        }
    }
}
