//! One layer: its parameters' ranges, its buffers, and its forward pass.

use std::ops::Range;

use morphgl_graph_store::{FeatureMatrix, FeatureView};
use morphgl_model_core::{Activation, Dropout, DropoutSite, LayerShape, ModelKind, ModelSpec, ParameterSpec};
use morphgl_platform::SimdLevel;
use morphgl_registry::{BatchId, Block};

use crate::adjacency::{Adjacency, transform_is_cheaper};
use crate::attention::{Attention, Edges, Inputs, Options};
use crate::buffer::{Buffer, resize};
use crate::epilogue::Epilogue;
use crate::gemm::{Left, Right, multiply, pack, packed_len, tiles};
use crate::parallel::{ROWS, row_blocks, with_scratch};
use crate::rows::InputRows;
use crate::sparse::{SparseInput, transpose};
use crate::spmm::spmm;

mod attend_first;
mod backward;
mod given;
mod parameters;
mod typed;

pub(crate) use backward::{LANES, Lanes, Upstream, add_lanes};
use parameters::ParameterRanges;
pub(crate) use typed::TypedInputs;
use typed::TypedLayer;

/// Width from which rows of the store are read again in backward, instead of kept, where aggregation comes first: the GEMMs
/// of such a row take a hundred times as long as the read, and keeping the rows takes as much memory as the aggregated rows.
const WIDE: usize = 128;

/// Order of a layer's aggregation and GEMM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Aggregated rows are transformed; without neighbours, the rows themselves.
    AggregateFirst,
    /// Transformed rows are aggregated.
    TransformFirst,
    /// Transformed rows are aggregated by attention.
    Attend,
    /// Rows are aggregated by attention for each head, and these sums are transformed.
    AttendFirst,
    /// Rows are grouped by edge type.
    ByType,
}

/// Whether a pass trains, and the mini-batch that determines its dropout masks.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Mode {
    Evaluation,
    Training { seed: u64, id: BatchId },
}

impl Mode {
    pub(crate) fn trains(self) -> bool {
        matches!(self, Mode::Training { .. })
    }

    pub(crate) fn dropout(self, layer: usize, site: DropoutSite, probability: f32) -> Option<Dropout> {
        match self {
            Mode::Evaluation => None,
            Mode::Training { seed, id } => Dropout::new(seed, id.epoch, id.index, layer, site, probability),
        }
    }
}

/// A layer, and the buffers of everything it computes.
#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) index: usize,
    pub(crate) kind: ModelKind,
    pub(crate) shape: LayerShape,
    /// Width of the transformed rows: all heads.
    pub(crate) width: usize,
    pub(crate) ranges: ParameterRanges,
    activation: Option<Activation>,
    dropout: f32,
    attention_dropout: f32,
    pub(crate) order: Order,
    /// The epilogue of the last pass.
    epilogue: Epilogue,
    attention_mask: Option<Dropout>,
    /// Whether the layer attends first, where a test decides it.
    pub(crate) attends_first: Option<bool>,
    /// The attention vectors of the rows themselves, where the layer attends first.
    row_vectors: Vec<f32>,
    packed: [Buffer; 2],
    /// Both weights side by side: see [`Layer::concatenates`].
    weights: Vec<f32>,
    /// The aggregated rows if aggregation comes first, else the transformed rows.
    intermediate: Buffer,
    /// The rows of the store that were multiplied: see [`Context::keeps`].
    store_rows: Buffer,
    /// Attention's output before its heads are averaged.
    all_heads: Buffer,
    /// Attention's coefficients and scores for backward.
    attention_state: Buffer,
    /// The layer itself, if it has parameters per edge type.
    pub(crate) typed: Option<Box<TypedLayer>>,
    /// Whether the gradient of the input is computed.
    pub(crate) propagates: bool,
    pub(crate) out: Buffer,
    back: backward::Buffers,
}

/// Inputs of a pass over a layer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) level: SimdLevel,
    pub(crate) parameters: &'a [f32],
    /// The block and its coefficients; `None` for a model that reads no graph.
    pub(crate) graph: Option<(&'a Block, &'a Adjacency)>,
    /// The input, at least one row per source node; empty where `nonzeros` replace it.
    pub(crate) x: InputRows<'a>,
    pub(crate) nonzeros: Option<&'a SparseInput>,
    /// The features of edges by edge type, of which a typed model reads some.
    pub(crate) edge_features: &'a [Option<FeatureMatrix>],
    /// The node of each row of the input; read by dropout alone.
    pub(crate) nodes: &'a [u32],
    /// Rows of the output.
    pub(crate) num_dst: usize,
}

impl<'a> Context<'a> {
    pub(crate) fn graph(&self) -> (&'a Block, &'a Adjacency) {
        self.graph.expect("a layer with neighbours has a block")
    }

    /// The nodes of rows; none where there is no dropout.
    pub(crate) fn nodes(&self, rows: Range<usize>) -> &'a [u32] {
        self.nodes.get(rows).unwrap_or_default()
    }

    /// Whether multiplied rows of the store are kept for the weights' gradients, so that they are read once.
    fn keeps(&self, mode: Mode) -> bool {
        self.x.nodes.is_some() && mode.trains()
    }
}

impl Layer {
    pub(crate) fn new(spec: &ModelSpec, index: usize, specs: &[ParameterSpec]) -> Self {
        let shape = spec.layer(index);
        Self {
            index,
            kind: spec.kind,
            shape,
            width: shape.heads * shape.head_dim,
            ranges: ParameterRanges::find(spec, index, specs),
            activation: (!shape.last).then_some(spec.activation),
            dropout: if shape.last { 0.0 } else { spec.dropout },
            attention_dropout: spec.attention_dropout,
            order: Order::AggregateFirst,
            epilogue: Epilogue { activation: None, dropout: None },
            attention_mask: None,
            attends_first: None,
            row_vectors: Vec::new(),
            packed: Default::default(),
            weights: Vec::new(),
            intermediate: Buffer::default(),
            store_rows: Buffer::default(),
            all_heads: Buffer::default(),
            attention_state: Buffer::default(),
            typed: spec.kind.is_typed().then(|| Box::new(TypedLayer::new(spec, index, specs))),
            propagates: index > 0 || !spec.input_widths.is_empty(),
            out: Buffer::default(),
            back: Default::default(),
        }
    }

    /// Chooses the order for a block, of a pass that `trains` or does not. Sparse rows are transformed first, since
    /// aggregated rows are dense.
    pub(crate) fn choose_order(&mut self, level: SimdLevel, block: Option<&Block>, sparse: bool, trains: bool) {
        let shape = [self.shape.in_dim, self.shape.out_dim];
        self.order = if self.typed.is_some() {
            Order::ByType
        } else if self.kind == ModelKind::Gat {
            let sizes = [self.shape.in_dim, self.shape.heads, self.shape.head_dim];
            let passes = [trains, self.propagates, self.index > 0];
            let cheaper = |block| attend_first::is_cheaper(level, block, sizes, passes);
            let first = !sparse && self.attends_first.unwrap_or_else(|| block.is_some_and(cheaper));
            if first { Order::AttendFirst } else { Order::Attend }
        } else if sparse || block.is_some_and(|block| transform_is_cheaper(block, shape, self.index == 0)) {
            Order::TransformFirst
        } else {
            Order::AggregateFirst
        };
    }

    /// Computes the layer; its output is in `out`.
    pub(crate) fn forward(&mut self, context: Context<'_>, mode: Mode) {
        let dropout = mode.dropout(self.index, DropoutSite::Hidden, self.dropout);
        self.epilogue = Epilogue { activation: self.activation, dropout };
        self.attention_mask = mode.dropout(self.index, DropoutSite::Attention, self.attention_dropout);
        if let Some(typed) = &mut self.typed {
            return typed.forward(context, self.epilogue, &mut self.out);
        }
        if self.kind == ModelKind::Embedding {
            return self.copy_input(context);
        }
        if self.order == Order::AttendFirst {
            return self.attend_first(context, mode);
        }
        self.pack_weights(context);
        match self.order {
            Order::AttendFirst => unreachable!("computed above"),
            Order::ByType => unreachable!("a typed layer is computed above"),
            Order::AggregateFirst => self.aggregate_first(context, mode),
            Order::TransformFirst => self.transform_first(context, mode),
            Order::Attend => self.attend(context, mode),
        }
    }

    /// The output of a model without layers: its input.
    fn copy_input(&mut self, Context { x, num_dst, .. }: Context<'_>) {
        let width = self.shape.out_dim;
        row_blocks(num_dst, [(self.out.get(num_dst * width), width)], &|rows, [out]| x.copy(rows, width, out));
    }

    fn pack_weights(&mut self, Context { level, parameters, nonzeros, .. }: Context<'_>) {
        let (depth, columns) = (self.shape.in_dim, self.width);
        let weights = self.ranges.weights().map(|range| Some(&parameters[range?.clone()]));
        if let ([Some(neighbours), Some(root)], true) = (weights, self.concatenates(level)) {
            resize(&mut self.weights, 2 * depth * columns);
            concatenate([neighbours, root], depth, &mut self.weights);
            let packed = self.packed[0].get(packed_len(level, 2 * depth, columns));
            return pack(level, &self.weights, [2 * depth, columns], true, packed);
        }
        for (weight, packed) in weights.into_iter().zip(&mut self.packed) {
            match weight {
                Some(weight) if nonzeros.is_some() => {
                    transpose(weight, [columns, depth], packed.get(depth * columns), false);
                }
                Some(weight) => {
                    pack(level, weight, [depth, columns], true, packed.get(packed_len(level, depth, columns)));
                }
                None => {}
            }
        }
    }

    /// Whether a node's aggregated row and its own row are multiplied as one row of twice the depth. On tiles, whose depth is
    /// a multiple of 32, this leaves less padding and adds nothing to the output.
    fn concatenates(&self, level: SimdLevel) -> bool {
        let both = self.ranges.neighbours.is_some() && self.ranges.root.is_some();
        both && self.order == Order::AggregateFirst && tiles(level, [self.width, self.shape.in_dim])
    }

    /// Whether backward reads rows of the store again where aggregation comes first.
    fn reads_again(&self) -> bool {
        self.width >= WIDE
    }

    fn aggregate_first(&mut self, context: Context<'_>, mode: Mode) {
        let Context { level, x, num_dst, .. } = context;
        let (depth, width, epilogue) = (self.shape.in_dim, self.width, self.epilogue);
        let csr = self.ranges.neighbours.is_some().then(|| {
            let (block, adjacency) = context.graph();
            adjacency.csr(block, x.nodes)
        });
        let (concatenates, has_root, zeros) = (self.concatenates(level), self.ranges.root.is_some(), self.index > 0);
        let [neighbours, root] = &self.packed;
        let bias = &context.parameters[self.ranges.bias.clone()];
        let keeps = has_root && context.keeps(mode) && !self.reads_again();
        let (sum_width, kept_width) = (if csr.is_some() { depth } else { 0 }, if keeps { depth } else { 0 });
        let outputs = [
            (self.out.get(num_dst * width), width),
            (self.intermediate.get(num_dst * sum_width), sum_width),
            (self.store_rows.get(num_dst * kept_width), kept_width),
        ];
        row_blocks(num_dst, outputs, &|rows, [out, sums, kept]| {
            let nodes = context.nodes(rows.clone());
            if let Some(csr) = &csr {
                spmm(level, csr, rows.clone(), x.view, depth, sums);
            }
            let sizes = [rows.len(), width, depth];
            let (x, root_rows) = if keeps { x.copied(rows, depth, kept) } else { (x, rows) };
            if concatenates {
                let weights = packed_weight(level, neighbours, [2 * depth, width]);
                with_scratch([x.scratch(ROWS * depth), ROWS * 2 * depth, 0], |[scratch, both, _]| {
                    concatenate([sums, x.dense(root_rows, depth, scratch)], depth, both);
                    multiply(level, [sizes[0], width, 2 * depth], (Left::rows(both, 2 * depth), weights), out, false);
                });
            } else {
                if csr.is_some() {
                    let weight = packed_weight(level, neighbours, [depth, width]);
                    multiply(level, sizes, (Left::rows(sums, depth), weight), out, false);
                }
                if has_root {
                    let weight = packed_weight(level, root, [depth, width]);
                    multiply_rows(level, (x, root_rows), sizes, weight, out, (csr.is_some(), zeros));
                }
            }
            epilogue.forward(level, nodes, bias, out);
        });
    }

    /// Writes the transformed rows of all source nodes to `intermediate`.
    fn transform(&mut self, context: Context<'_>, mode: Mode) {
        let Context { level, x, .. } = context;
        let (depth, width, num_src) = (self.shape.in_dim, self.width, context.graph().0.num_src);
        if let Some(nonzeros) = context.nonzeros {
            let (csr, weight) = (nonzeros.csr(), FeatureView::F32(self.packed[0].read(depth * width)));
            return row_blocks(num_src, [(self.intermediate.get(num_src * width), width)], &|rows, [out]| {
                spmm(level, &csr, rows, weight, width, out);
            });
        }
        let (weight, zeros) = (packed_weight(level, &self.packed[0], [depth, width]), self.index > 0);
        let keeps = context.keeps(mode);
        let kept_width = if keeps { depth } else { 0 };
        let outputs =
            [(self.intermediate.get(num_src * width), width), (self.store_rows.get(num_src * kept_width), kept_width)];
        row_blocks(num_src, outputs, &|rows, [out, kept]| {
            let sizes = [rows.len(), width, depth];
            let x = if keeps { x.copied(rows, depth, kept) } else { (x, rows) };
            multiply_rows(level, x, sizes, weight, out, (false, zeros));
        });
    }

    fn transform_first(&mut self, context: Context<'_>, mode: Mode) {
        let Context { level, x, num_dst, .. } = context;
        let (depth, width, epilogue, zeros) = (self.shape.in_dim, self.width, self.epilogue, self.index > 0);
        let has_neighbours = self.ranges.neighbours.is_some();
        if has_neighbours {
            self.transform(context, mode);
        }
        let aggregation = has_neighbours.then(|| {
            let (block, adjacency) = context.graph();
            (adjacency.csr(block, None), FeatureView::F32(self.intermediate.read(block.num_src * width)))
        });
        let root = self.ranges.root.is_some().then_some(&self.packed[1]);
        let nonzeros = context.nonzeros.map(SparseInput::csr);
        let bias = &context.parameters[self.ranges.bias.clone()];
        row_blocks(num_dst, [(self.out.get(num_dst * width), width)], &|rows, [out]| {
            let nodes = context.nodes(rows.clone());
            match &aggregation {
                Some((csr, transformed)) => spmm(level, csr, rows.clone(), *transformed, width, out),
                None => out.fill(0.0),
            }
            match (root, &nonzeros) {
                (Some(root), Some(csr)) => with_scratch([out.len(), 0, 0], |[product, _, _]| {
                    spmm(level, csr, rows, FeatureView::F32(root.read(depth * width)), width, product);
                    out.iter_mut().zip(product).for_each(|(o, p)| *o += *p);
                }),
                (Some(root), None) => {
                    let (sizes, weight) = ([rows.len(), width, depth], packed_weight(level, root, [depth, width]));
                    multiply_rows(level, (x, rows), sizes, weight, out, (true, zeros));
                }
                (None, _) => {}
            }
            epilogue.forward(level, nodes, bias, out);
        });
    }

    /// Attention over a block, with heads of this width.
    fn attention<'a>(&self, block: &'a Block, nodes: &'a [u32], width: usize) -> Attention<'a> {
        let edges = Edges { indptr: &block.indptr, indices: &block.indices, num_src: block.num_src };
        let options = Options {
            heads: self.shape.heads,
            width,
            slope: 0.2,
            self_loops: true,
            dropout: self.attention_mask.map(|mask| (mask, nodes)),
            level: SimdLevel::current(),
        };
        Attention::new(edges, options)
    }

    /// Whether the output is the mean of the heads.
    fn averages(&self) -> bool {
        self.width != self.shape.out_dim
    }

    fn attend(&mut self, context: Context<'_>, mode: Mode) {
        self.transform(context, mode);
        let Context { level, num_dst, .. } = context;
        let (block, _) = context.graph();
        let attention = self.attention(block, context.nodes, self.shape.head_dim);
        let (width, all, heads, averages) = (self.shape.out_dim, self.width, self.shape.heads, self.averages());
        let [att_src, att_dst] = self.ranges.attention_vectors(context.parameters);
        let inputs = Inputs { values: self.intermediate.read(block.num_src * all), att_src, att_dst, terms: &[] };
        let attended = if averages { &mut self.all_heads } else { &mut self.out };
        attention.forward(inputs, self.attention_state.get(attention.kept_len()), attended.get(num_dst * all));
        let all_heads = self.all_heads.read(if averages { num_dst * all } else { 0 });
        let (epilogue, bias) = (self.epilogue, &context.parameters[self.ranges.bias.clone()]);
        row_blocks(num_dst, [(self.out.get(num_dst * width), width)], &|rows, [out]| {
            if averages {
                for (out, row) in out.chunks_exact_mut(width).zip(all_heads[rows.start * all..].chunks_exact(all)) {
                    for (c, o) in out.iter_mut().enumerate() {
                        *o = (0..heads).map(|h| row[h * width + c]).sum::<f32>() / heads as f32;
                    }
                }
            }
            epilogue.forward(level, context.nodes(rows), bias, out);
        });
    }
}

/// Writes rows of `width` elements of two matrices side by side.
fn concatenate([left, right]: [&[f32]; 2], width: usize, out: &mut [f32]) {
    let rows = left.chunks_exact(width).zip(right.chunks_exact(width));
    for (out, (left, right)) in out.chunks_exact_mut(2 * width).zip(rows) {
        out[..width].copy_from_slice(left);
        out[width..].copy_from_slice(right);
    }
}

/// A weight that was packed as a `depth` x `columns` right factor.
fn packed_weight(level: SimdLevel, packed: &Buffer, [depth, columns]: [usize; 2]) -> Right<'_> {
    Right::packed(level, packed.read(packed_len(level, depth, columns)), depth)
}

/// Multiplies rows of the input by a weight; skips the zeros of the input if `zeros` and they are many.
fn multiply_rows(
    level: SimdLevel,
    (x, rows): (InputRows<'_>, Range<usize>),
    sizes: [usize; 3],
    weight: Right<'_>,
    out: &mut [f32],
    (add, zeros): (bool, bool),
) {
    let depth = sizes[2];
    with_scratch([x.scratch(ROWS * depth), 0, 0], |[scratch, _, _]| {
        let left = Left::rows(x.dense(rows, depth, scratch), depth).with_zeros(zeros);
        multiply(level, sizes, (left, weight), out, add);
    });
}
