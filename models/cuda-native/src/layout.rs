//! Layout of parameters in flat buffers, and a model's view of them.

use std::ops::Range;
use std::sync::Arc;

use morphgl_cuda::Floats;
use morphgl_graph_store::Types;
use morphgl_model_core::{LayerShape, ModelKind, ModelSpec, ParameterSpec};
use morphgl_registry::NamedTensor;
/// Alignment of parameters in elements: 128 bytes, a memory line.
const ALIGNMENT: usize = 32;

/// Offsets of all parameters: trainable ones first, those of the first layer leading, and tables of embeddings last.
#[derive(Debug)]
pub(crate) struct Layout {
    /// In the order of the model.
    pub(crate) specs: Vec<ParameterSpec>,
    /// Trainable parameters, in the order of the model.
    pub(crate) trainable: Vec<ParameterSpec>,
    // Invariant: parallel to `specs`, disjoint; gaps stay 0.
    ranges: Vec<Range<usize>>,
    pub(crate) len: usize,
    /// End of all but the tables.
    pub(crate) num_dense: usize,
    /// The tables, and the width of their rows.
    pub(crate) tables: Vec<(Range<usize>, usize)>,
    /// Ends of the trainable parameters and of those of the first layer.
    pub(crate) num_trainable: usize,
    pub(crate) num_first: usize,
    /// Start and name of each parameter, ascending.
    pub(crate) starts: Arc<[(usize, String)]>,
    /// The parameters of each layer of a typed model.
    pub(crate) typed: Vec<TypedParameters>,
}

impl Layout {
    pub(crate) fn new(model: &ModelSpec) -> Self {
        let specs = model.parameters();
        let trainable: Vec<_> = specs.iter().filter(|p| p.trainable).cloned().collect();
        let mut order: Vec<usize> = (0..specs.len()).collect();
        order.sort_by_key(|&i| (specs[i].table_row().is_some(), !specs[i].trainable, specs[i].layer > 0));
        let (mut ranges, mut len) = (vec![0..0; specs.len()], 0);
        let (mut num_trainable, mut num_first, mut num_dense, mut tables) = (0, 0, 0, Vec::new());
        for i in order {
            let p = &specs[i];
            ranges[i] = len..len + p.len();
            len = ranges[i].end.next_multiple_of(ALIGNMENT);
            if let Some(width) = p.table_row() {
                tables.push((ranges[i].clone(), width));
                continue;
            }
            num_dense = len;
            num_trainable = if p.trainable { len } else { num_trainable };
            num_first = if p.trainable && p.layer == 0 { len } else { num_first };
        }
        let mut starts: Vec<_> = ranges.iter().zip(&specs).map(|(r, p)| (r.start, p.name.clone())).collect();
        starts.sort();
        let (starts, typed) = (starts.into(), Vec::new());
        let mut layout =
            Self { specs, trainable, ranges, len, num_dense, tables, num_trainable, num_first, starts, typed };
        if let Some(types) = model.types.as_ref().filter(|_| model.kind.is_typed()) {
            let of_layer = |layer| TypedParameters::new(model, types, layer, |name| layout.range(name));
            layout.typed = (0..model.layers).map(of_layer).collect();
        }
        layout
    }

    /// Elements of a parameter.
    pub(crate) fn range(&self, name: &str) -> Range<usize> {
        let index = self.specs.iter().position(|p| p.name == name);
        self.ranges[index.unwrap_or_else(|| panic!("the model has no parameter {name}"))].clone()
    }

    /// Splits a flat array into the tensors of `specs`, either all or the trainable ones.
    pub(crate) fn tensors(&self, specs: &[ParameterSpec], values: &[f32]) -> Vec<NamedTensor> {
        let tensor = |p: &ParameterSpec| NamedTensor {
            name: p.name.clone(),
            shape: p.shape.clone(),
            values: values[self.range(&p.name)].to_vec(),
        };
        specs.iter().map(tensor).collect()
    }

    /// Flattens tensors given in any order; missing ones are 0.
    pub(crate) fn flat<'a>(&self, tensors: impl IntoIterator<Item = &'a NamedTensor>) -> Vec<f32> {
        let mut values = vec![0.0; self.len];
        tensors.into_iter().for_each(|t| values[self.range(&t.name)].copy_from_slice(&t.values));
        values
    }
}

/// A model's parameters in device memory, and the gradients of a mini-batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Model<'a> {
    pub(crate) spec: &'a ModelSpec,
    pub(crate) layout: &'a Layout,
    pub(crate) values: Floats<'a>,
    pub(crate) gradients: Floats<'a>,
}

impl<'a> Model<'a> {
    /// A parameter.
    pub(crate) fn get(&self, name: &str) -> Floats<'a> {
        self.values.part(self.layout.range(name))
    }

    /// The gradient of a parameter.
    pub(crate) fn gradient(&self, name: &str) -> Floats<'a> {
        self.gradients.part(self.layout.range(name))
    }
}

/// Where the parameters of a layer lie by weight: those of each edge type, then those of the destinations' own rows.
#[derive(Debug)]
pub(crate) struct TypedParameters {
    /// The parameters whose sum is the weight; none of a weight of zeros.
    pub(crate) weights: Vec<Vec<Range<usize>>>,
    /// Of the own rows: the parameters whose sum is the bias.
    pub(crate) biases: Vec<Vec<Range<usize>>>,
    /// The factors of each edge type, and the bases that they multiply.
    pub(crate) bases: Option<[Range<usize>; 2]>,
    /// Whether weights are `[in, out]`, not `[out, in]`.
    pub(crate) by_depth: bool,
    /// The attention vectors of each edge type, of sources and of destinations.
    pub(crate) attention: Vec<[Range<usize>; 2]>,
}

impl TypedParameters {
    /// The parameters of a layer of a typed model; `range` gives those of a name.
    pub(crate) fn new(model: &ModelSpec, types: &Types, layer: usize, range: impl Fn(&str) -> Range<usize>) -> Self {
        let LayerShape { in_dim, out_dim, .. } = model.layer(layer);
        let size = in_dim * out_dim;
        let get = |name: &str| range(&format!("convs.{layer}.{name}"));
        if model.kind == ModelKind::Rgcn {
            let weight = get("weight");
            let own = |edge_type: usize| {
                let start = weight.start + edge_type * size;
                std::iter::once(start..start + size).collect()
            };
            let has_bases = model.bases > 0;
            let of_type = |edge_type| if has_bases { Vec::new() } else { own(edge_type) };
            let weights = (0..types.edge_types().len()).map(of_type).chain([vec![get("root")]]);
            return Self {
                weights: weights.collect(),
                biases: vec![vec![get("bias")]],
                bases: has_bases.then(|| [get("comp"), weight.clone()]),
                by_depth: true,
                attention: Vec::new(),
            };
        }
        let of_type = |edge_type: usize, name: &str| {
            get(&format!("{}.{name}", ModelSpec::edge_type_key(&types.edge_types()[edge_type])))
        };
        let into = |node_type: usize, name: &str| -> Vec<Range<usize>> {
            let ends_there = |edge_type: &usize| types.ends(*edge_type)[1] == node_type;
            (0..types.edge_types().len()).filter(ends_there).map(|edge_type| of_type(edge_type, name)).collect()
        };
        let node_types = 0..types.node_types().len();
        if model.kind == ModelKind::Rgat {
            let edge_types = 0..types.edge_types().len();
            let vectors = |edge_type| ["att_src", "att_dst"].map(|name| of_type(edge_type, name));
            return Self {
                weights: edge_types.clone().map(|edge_type| vec![of_type(edge_type, "lin.weight")]).collect(),
                biases: node_types.map(|of| into(of, "bias")).collect(),
                bases: None,
                by_depth: false,
                attention: edge_types.map(vectors).collect(),
            };
        }
        let weights = (0..types.edge_types().len()).map(|edge_type| vec![of_type(edge_type, "lin_l.weight")]);
        Self {
            weights: weights.chain(node_types.clone().map(|of| into(of, "lin_r.weight"))).collect(),
            biases: node_types.map(|of| into(of, "lin_l.bias")).collect(),
            bases: None,
            by_depth: false,
            attention: Vec::new(),
        }
    }

    /// The weight of an edge type.
    pub(crate) fn of_type(&self, edge_type: usize) -> Range<usize> {
        self.weights[edge_type][0].clone()
    }
}
