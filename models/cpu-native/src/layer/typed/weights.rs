//! The weights and biases of a typed layer, which its parameters make, and the gradients of these.

use std::ops::Range;

use morphgl_graph_store::Types;
use morphgl_model_core::{ModelKind, ModelSpec, ParameterSpec};
use morphgl_platform::SimdLevel;

use crate::epilogue::add_rows;
use crate::parallel;
use crate::vectors::{add_scaled, dot};

/// Elements that a task combines.
const TASK: usize = 1 << 12;

/// A weight, or what it is made of.
#[derive(Debug)]
enum Weight {
    Whole(Range<usize>),
    Sum(Vec<Term>),
    /// Blocks on the diagonal, row after row.
    Diagonal(Range<usize>),
}

/// A term of a sum: a matrix, times a parameter if it has a `factor`.
#[derive(Debug)]
struct Term {
    matrix: Range<usize>,
    factor: Option<usize>,
}

/// The parameters of a layer: those of each edge type, then those of the destinations' own parts.
#[derive(Debug)]
pub(crate) struct Weights {
    pub(crate) depth: usize,
    pub(crate) width: usize,
    /// Whether a weight is `[depth, width]`, not `[width, depth]`.
    pub(crate) by_depth: bool,
    weights: Vec<Weight>,
    /// The parameters whose sum is the bias of the destinations of each node type; the same for all if there is one element.
    biases: Vec<Vec<Range<usize>>>,
    /// The attention vectors of each edge type.
    attention: Vec<[Range<usize>; 2]>,
    /// The vector of the edges' scores and the weight of their features, of each edge type whose features are read.
    edges: Vec<Option<[Range<usize>; 2]>>,
}

impl Weights {
    /// Finds the parameters of a layer of a typed model.
    ///
    /// # Panics
    ///
    /// When one is missing.
    pub(crate) fn find(spec: &ModelSpec, layer: usize, specs: &[ParameterSpec]) -> Self {
        let types = spec.types.as_ref().expect("a typed model has types");
        let shape = spec.layer(layer);
        let [depth, width] = [shape.in_dim, shape.heads * shape.head_dim];
        let get = |name: &str| range_of(specs, &format!("convs.{layer}.{name}"));
        let of_type = |edge_type: usize, name: &str| {
            get(&format!("{}.{name}", ModelSpec::edge_type_key(&types.edge_types()[edge_type])))
        };
        let edge_types = 0..types.edge_types().len();
        let by_depth = spec.kind == ModelKind::Rgcn;
        let (mut attention, mut own) = (Vec::new(), Vec::new());
        let of_edges =
            |e| (spec.edge_width(e) > 0).then(|| ["att_edge", "lin_edge.weight"].map(|name| of_type(e, name)));
        let edges = edge_types.clone().map(of_edges).collect();
        let mut weights: Vec<Weight> = match spec.kind {
            ModelKind::Rgcn => {
                own.push(Weight::Whole(get("root")));
                edge_types.clone().map(|edge_type| decomposed(spec, [depth * width, edge_type], &get)).collect()
            }
            ModelKind::Rsage => edge_types.clone().map(|e| Weight::Whole(of_type(e, "lin_l.weight"))).collect(),
            _ => {
                attention = edge_types.clone().map(|e| ["att_src", "att_dst"].map(|name| of_type(e, name))).collect();
                edge_types.clone().map(|e| Weight::Whole(of_type(e, "lin.weight"))).collect()
            }
        };
        let leading = |node_type| edges_into(types, node_type);
        let node_types = 0..types.node_types().len();
        if spec.kind == ModelKind::Rsage {
            let term = |edge_type| Term { matrix: of_type(edge_type, "lin_r.weight"), factor: None };
            own.extend(node_types.clone().map(|node_type| Weight::Sum(leading(node_type).map(term).collect())));
        }
        let bias = if spec.kind == ModelKind::Rsage { "lin_l.bias" } else { "bias" };
        let biases = match spec.kind {
            ModelKind::Rgcn => vec![vec![get("bias")]],
            _ => node_types.map(|node_type| leading(node_type).map(|e| of_type(e, bias)).collect()).collect(),
        };
        weights.extend(own);
        Self { depth, width, by_depth, weights, biases, attention, edges }
    }

    pub(crate) fn size(&self) -> usize {
        self.depth * self.width
    }

    /// Number of biases: one for all nodes, or one per node type.
    pub(crate) fn num_biases(&self) -> usize {
        self.biases.len()
    }

    /// The attention vectors of an edge type, of a model that attends.
    pub(crate) fn attention(&self, edge_type: usize) -> &[Range<usize>; 2] {
        &self.attention[edge_type]
    }

    /// The attention vector of an edge type's edges, and the weight of their features, where these are read.
    pub(crate) fn edges(&self, edge_type: usize) -> Option<&[Range<usize>; 2]> {
        self.edges[edge_type].as_ref()
    }

    /// A weight among the parameters, or made of them in `scratch`.
    pub(crate) fn get<'a>(
        &self,
        level: SimdLevel,
        parameters: &'a [f32],
        weight: usize,
        scratch: &'a mut [f32],
    ) -> &'a [f32] {
        match &self.weights[weight] {
            Weight::Whole(range) => &parameters[range.clone()],
            Weight::Sum(terms) => {
                parallel::pieces(scratch, TASK, &|task, out| {
                    out.fill(0.0);
                    for Term { matrix, factor } in terms {
                        let matrix = &parameters[matrix.clone()][task * TASK..][..out.len()];
                        add_scaled(level, factor.map_or(1.0, |at| parameters[at]), matrix, out);
                    }
                });
                scratch
            }
            Weight::Diagonal(range) => {
                scratch.fill(0.0);
                for (own, at) in self.diagonal(range.len()) {
                    scratch[at.clone()].copy_from_slice(&parameters[range.clone()][own..own + at.len()]);
                }
                scratch
            }
        }
    }

    /// Adds the gradient of a weight to those of the parameters that make it. `add` adds it to the elements of a range.
    pub(crate) fn add_gradient(
        &self,
        level: SimdLevel,
        (parameters, gradients): (&[f32], &mut [f32]),
        weight: usize,
        scratch: &mut [f32],
        add: &mut dyn FnMut(&Range<usize>, &mut [f32]),
    ) {
        let weight = &self.weights[weight];
        if let Weight::Whole(range) = weight {
            return add(range, gradients);
        }
        scratch.fill(0.0);
        add(&(0..scratch.len()), scratch);
        let gradient = &*scratch;
        match weight {
            Weight::Whole(_) => unreachable!("added above"),
            Weight::Sum(terms) => {
                for Term { matrix, factor } in terms {
                    parallel::pieces(&mut gradients[matrix.clone()], TASK, &|task, out| {
                        let gradient = &gradient[task * TASK..][..out.len()];
                        add_scaled(level, factor.map_or(1.0, |at| parameters[at]), gradient, out);
                    });
                    if let Some(at) = *factor {
                        gradients[at] += dot(level, gradient, &parameters[matrix.clone()]);
                    }
                }
            }
            Weight::Diagonal(range) => {
                for (own, at) in self.diagonal(range.len()) {
                    add_rows(level, &gradient[at.clone()], &mut gradients[range.clone()][own..own + at.len()]);
                }
            }
        }
    }

    /// The rows of all blocks on the diagonal, of `len` elements: where each is among these, and where in the whole weight.
    fn diagonal(&self, len: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
        // len = blocks · (depth / blocks) · (width / blocks)
        let (depth, width) = (self.depth, self.width);
        let blocks = depth * width / len;
        let [rows, columns] = [depth / blocks, width / blocks];
        (0..depth).map(move |row| {
            let at = row * width + row / rows * columns;
            (row * columns, at..at + columns)
        })
    }

    /// Writes the biases, one after another.
    pub(crate) fn sum_biases(&self, parameters: &[f32], width: usize, out: &mut [f32]) {
        out.fill(0.0);
        for (ranges, out) in self.biases.iter().zip(out.chunks_exact_mut(width)) {
            ranges.iter().for_each(|range| out.iter_mut().zip(&parameters[range.clone()]).for_each(|(o, b)| *o += b));
        }
    }

    /// Adds the gradients of the biases.
    pub(crate) fn add_bias_gradients(&self, level: SimdLevel, of_biases: &[f32], width: usize, gradients: &mut [f32]) {
        for (ranges, gradient) in self.biases.iter().zip(of_biases.chunks_exact(width)) {
            ranges.iter().for_each(|range| add_rows(level, gradient, &mut gradients[range.clone()]));
        }
    }
}

/// The weight of an edge type of an R-GCN, by its bases or blocks if it has any; `size` elements.
fn decomposed(spec: &ModelSpec, [size, edge_type]: [usize; 2], get: &impl Fn(&str) -> Range<usize>) -> Weight {
    let weight = get("weight");
    if spec.bases > 0 {
        let comp = get("comp").start + edge_type * spec.bases;
        let term = |basis: usize| {
            let start = weight.start + basis * size;
            Term { matrix: start..start + size, factor: Some(comp + basis) }
        };
        return Weight::Sum((0..spec.bases).map(term).collect());
    }
    let len = size / spec.diagonal_blocks.max(1);
    let own = weight.start + edge_type * len..weight.start + (edge_type + 1) * len;
    if spec.diagonal_blocks > 1 { Weight::Diagonal(own) } else { Weight::Whole(own) }
}

/// The edge types that lead to a node type.
fn edges_into(types: &Types, node_type: usize) -> impl Iterator<Item = usize> {
    (0..types.edge_types().len()).filter(move |&edge_type| types.ends(edge_type)[1] == node_type)
}

/// The range of a parameter among the elements of all.
pub(crate) fn range_of(specs: &[ParameterSpec], name: &str) -> Range<usize> {
    let mut start = 0;
    for p in specs {
        if p.name == name {
            return start..start + p.len();
        }
        start += p.len();
    }
    panic!("{name} is none of the model's parameters")
}
