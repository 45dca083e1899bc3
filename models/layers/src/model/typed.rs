//! Layers with parameters per edge type.
//!
//! The edges of each type are a block of their own, on which an untyped layer runs. A destination's output is the sum of what its types
//! give, and of a part of its own by node type.

use burn_tensor::Tensor;
use morphgl_model_core::{Attention, ModelKind, ModelSpec};

use super::Pass;
use crate::adjacency::{Relation, TypedBlock};
use crate::aggregate::aggregate;
use crate::attention::AttentionOptions;
use crate::convolution;
use crate::epilogue::epilogue;
use crate::features::{Features, select};

impl Pass<'_> {
    /// A layer with parameters per edge type, its biases included.
    pub(crate) fn convolve_typed(&self, layer: usize, x: &Features, block: &TypedBlock) -> Tensor<2> {
        let device = self.parameters.device();
        let x = x.dense(block.num_src, &device);
        let width = self.spec.layer(layer).out_dim;
        let mut parts: Vec<Tensor<2>> = Vec::new();
        let of_relations = self.relation_weights(layer);
        for relation in &block.relations {
            let sources = select(x.clone(), &relation.sources);
            parts.push(self.of_relation(layer, sources, relation, of_relations.as_ref()));
        }
        for (node_type, rows) in &block.destinations {
            parts.push(match self.own_parameters(layer, *node_type) {
                Own { weight: Some(weight), bias } => {
                    epilogue(select(x.clone(), rows).matmul(weight), bias, None, None)
                }
                Own { weight: None, bias } => epilogue(Tensor::zeros([rows.len(), width], &device), bias, None, None),
            });
        }
        if parts.is_empty() {
            return Tensor::zeros([0, width], &device);
        }
        aggregate(Tensor::cat(parts, 0), &block.sum)
    }

    /// What the edges of one type give to their destinations.
    fn of_relation(
        &self,
        layer: usize,
        sources: Tensor<2>,
        relation: &Relation,
        weights: Option<&RelationWeights>,
    ) -> Tensor<2> {
        let (spec, shape, adjacency) = (self.spec, self.spec.layer(layer), &relation.adjacency);
        let get = |name: &str| self.of_edge_type(layer, relation.edge_type, name);
        let options = AttentionOptions { heads: shape.heads, slope: 0.2, self_loops: false, dropout: None };
        let x = Features::Dense(sources.clone());
        match spec.kind {
            ModelKind::Rsage => aggregate(sources, adjacency).matmul(get("lin_l.weight").transpose()),
            ModelKind::Rgat => {
                let out = match spec.attention {
                    _ if relation.featured.is_some() => {
                        let edges = relation.featured.as_ref().expect("checked above");
                        self.attend_edges(&x, edges, &get, &options)
                    }
                    Attention::Gat => {
                        let (weight, src, dst) = (get("lin.weight"), get("att_src"), get("att_dst"));
                        convolution::gat(&x, adjacency, weight, src, dst, options)
                    }
                    Attention::Gatv2 => {
                        let side = |name: &str| (get(&format!("{name}.weight")), Some(get(&format!("{name}.bias"))));
                        convolution::gatv2(&x, adjacency, side("lin_l"), side("lin_r"), get("att"), options)
                    }
                };
                if shape.last { convolution::mean_heads(out, shape.heads) } else { out }
            }
            _ => weights.expect("weights of an R-GCN").multiply(relation.edge_type, aggregate(sources, adjacency)),
        }
    }

    /// Parameter `name` of an edge type.
    fn of_edge_type(&self, layer: usize, edge_type: usize, name: &str) -> Tensor<2> {
        let key = ModelSpec::edge_type_key(&self.spec.edge_types()[edge_type]);
        self.parameters.get(&format!("convs.{layer}.{key}.{name}"))
    }

    /// The weights of an R-GCN's layer.
    fn relation_weights(&self, layer: usize) -> Option<RelationWeights> {
        let spec = self.spec;
        (spec.kind == ModelKind::Rgcn).then(|| {
            let get = |name: &str| self.parameters.get(&format!("convs.{layer}.{name}"));
            let (shape, count) = (spec.layer(layer), spec.edge_types().len());
            let (weight, size) = (get("weight"), shape.in_dim * shape.out_dim);
            match (spec.bases, spec.diagonal_blocks.max(1)) {
                (0, blocks) => {
                    let [rows, columns] = [shape.in_dim, shape.out_dim].map(|width| width / blocks);
                    RelationWeights { weights: weight.reshape([count, blocks * rows * columns]), rows, columns }
                }
                (bases, _) => {
                    let weights = get("comp").matmul(weight.reshape([bases, size]));
                    RelationWeights { weights, rows: shape.in_dim, columns: shape.out_dim }
                }
            }
        })
    }

    /// What the destinations of a node type add of their own, by the parameters of all edge types that lead there.
    fn own_parameters(&self, layer: usize, node_type: usize) -> Own {
        let get = |name: &str| self.parameters.get(&format!("convs.{layer}.{name}"));
        if self.spec.kind == ModelKind::Rgcn {
            return Own { weight: Some(get("root")), bias: Some(get("bias")) };
        }
        let types = self.spec.types.as_ref().expect("a typed model has types");
        let sum = |name: &str| {
            let leading = (0..types.edge_types().len()).filter(|&edge_type| types.ends(edge_type)[1] == node_type);
            leading.map(|edge_type| self.of_edge_type(layer, edge_type, name)).reduce(|a, b| a + b)
        };
        let (weight, bias) = match self.spec.kind {
            ModelKind::Rsage => (sum("lin_r.weight").map(Tensor::transpose), "lin_l.bias"),
            _ => (None, "bias"),
        };
        // Where no edge type leads: 0, by which the outputs of any mini-batch have a gradient.
        let none = || self.of_edge_type(layer, 0, bias).mul_scalar(0.0);
        Own { weight, bias: Some(sum(bias).unwrap_or_else(none)) }
    }
}

/// The weight, `[in, out]`, and the bias of a destination's own row.
struct Own {
    weight: Option<Tensor<2>>,
    bias: Option<Tensor<2>>,
}

/// The weights of all edge types, a row for each: diagonal blocks of `[rows, columns]`.
struct RelationWeights {
    weights: Tensor<2>,
    rows: usize,
    columns: usize,
}

impl RelationWeights {
    fn multiply(&self, edge_type: usize, x: Tensor<2>) -> Tensor<2> {
        let (blocks, size) = (x.dims()[1] / self.rows, self.rows * self.columns);
        let of_type = self.weights.clone().narrow(0, edge_type, 1);
        let product = |block: usize| {
            let weight = of_type.clone().narrow(1, block * size, size).reshape([self.rows, self.columns]);
            x.clone().narrow(1, block * self.rows, self.rows).matmul(weight)
        };
        Tensor::cat((0..blocks).map(product).collect(), 1)
    }
}
