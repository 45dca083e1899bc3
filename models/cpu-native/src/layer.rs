//! One layer: its parameters' places, its memory, and its forward pass.

use std::ops::Range;

use morphgl_graph_store::FeatureView;
use morphgl_model_spec::{Activation, Dropout, DropoutSite, LayerShape, ModelKind, ModelSpec, ParameterSpec};
use morphgl_registry::{BatchId, Block};

use crate::adjacency::{Adjacency, transform_is_cheaper};
use crate::attention::{Attention, Edges, Inputs, Options};
use crate::buffer::{Buffer, resize};
use crate::epilogue::{self, Epilogue, Part};
use crate::gather::sum_rows;
use crate::parallel::{self, with_scratch};
use morphgl_platform::SimdLevel;

use crate::gemm::{Left, Right, multiply, pack, packed_len, tiles};
use crate::rows::Rows;
use crate::sparse::{Sparse, transpose};

mod backward;
mod parameters;

pub(crate) use backward::Upstream;
use parameters::ParameterRanges;

/// Rows a task multiplies at once: they, the weights and the result stay in a core's cache.
pub(crate) const ROWS: usize = 96;

/// Width from which rows of the store that are summed and multiplied are read again for the gradient of the weights: four
/// products of such a row take so long that the read is some hundredth of it, and to keep a mini-batch's rows takes as much
/// memory as its sums.
const WIDE: usize = 128;

/// In which order a layer aggregates and multiplies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// The sums are multiplied; without neighbours, the rows themselves.
    AggregateFirst,
    /// The products are summed.
    TransformFirst,
    /// The products are attended to.
    Attend,
}

/// Whether a pass trains, and of which mini-batch its dropout masks are.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Mode {
    Evaluation,
    Training { seed: u64, id: BatchId },
}

impl Mode {
    pub(crate) fn dropout(self, layer: usize, site: DropoutSite, probability: f32) -> Option<Dropout> {
        match self {
            Mode::Evaluation => None,
            Mode::Training { seed, id } => Dropout::new(seed, id.epoch, id.index, layer, site, probability),
        }
    }
}

/// A layer: what it is, and memory for all it computes.
#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) index: usize,
    pub(crate) kind: ModelKind,
    pub(crate) shape: LayerShape,
    /// Width of the product: all heads.
    pub(crate) width: usize,
    pub(crate) ranges: ParameterRanges,
    activation: Option<Activation>,
    dropout: f32,
    attention_dropout: f32,
    pub(crate) order: Order,
    /// What the last pass ended the layer with.
    pub(crate) epilogue: Epilogue,
    pub(crate) attention_mask: Option<Dropout>,
    packed: [Buffer; 2],
    /// Both weights side by side: see [`Layer::joins`].
    weights: Vec<f32>,
    /// The sums, or the products, whichever come first.
    pub(crate) middle: Buffer,
    /// The rows of the store that were multiplied: see [`Context::keeps`].
    pub(crate) copied: Buffer,
    /// Attention's output where its heads are still to be averaged.
    pub(crate) wide: Buffer,
    /// What attention keeps for its backward.
    pub(crate) kept: Buffer,
    pub(crate) out: Buffer,
    pub(crate) back: backward::Memory,
}

/// What a pass over a layer reads beside the layer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) level: SimdLevel,
    pub(crate) parameters: &'a [f32],
    /// The block and what was prepared of it; `None` for a model that reads no graph.
    pub(crate) graph: Option<(&'a Block, &'a Adjacency)>,
    /// The input, at least a row a source node; empty where there are its nonzeros instead.
    pub(crate) x: Rows<'a>,
    pub(crate) nonzeros: Option<&'a Sparse>,
    /// Rows of the output.
    pub(crate) num_dst: usize,
}

impl<'a> Context<'a> {
    pub(crate) fn graph(&self) -> (&'a Block, &'a Adjacency) {
        self.graph.expect("a layer with neighbours has a block")
    }

    /// Whether rows of the store that are multiplied are kept for the gradient of the weights: they are read once.
    fn keeps(&self, mode: Mode) -> bool {
        self.x.nodes.is_some() && matches!(mode, Mode::Training { .. })
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
            ranges: ParameterRanges::find(spec.kind, index, specs),
            activation: (!shape.last).then_some(spec.activation),
            dropout: if shape.last { 0.0 } else { spec.dropout },
            attention_dropout: spec.attention_dropout,
            order: Order::AggregateFirst,
            epilogue: Epilogue { activation: None, dropout: None },
            attention_mask: None,
            packed: Default::default(),
            weights: Vec::new(),
            middle: Buffer::default(),
            copied: Buffer::default(),
            wide: Buffer::default(),
            kept: Buffer::default(),
            out: Buffer::default(),
            back: Default::default(),
        }
    }

    /// Decides the order for a block. Nonzeros are multiplied before anything is summed, which would fill their rows.
    pub(crate) fn decide(&mut self, block: Option<&Block>, nonzeros: bool) {
        self.order = match (self.kind, block) {
            (ModelKind::Gat, _) => Order::Attend,
            _ if nonzeros => Order::TransformFirst,
            (_, Some(block))
                if transform_is_cheaper(block, [self.shape.in_dim, self.shape.out_dim], self.index == 0) =>
            {
                Order::TransformFirst
            }
            _ => Order::AggregateFirst,
        };
    }

    /// Computes the layer; its output is in `out`.
    pub(crate) fn forward(&mut self, context: Context<'_>, mode: Mode) {
        self.epilogue = Epilogue {
            activation: self.activation,
            dropout: mode.dropout(self.index, DropoutSite::Hidden, self.dropout),
        };
        self.attention_mask = mode.dropout(self.index, DropoutSite::Attention, self.attention_dropout);
        self.pack(context);
        match self.order {
            Order::AggregateFirst => self.aggregate_first(context, mode),
            Order::TransformFirst => self.transform_first(context, mode),
            Order::Attend => self.attend(context, mode),
        }
    }

    fn pack(&mut self, Context { level, parameters, nonzeros, .. }: Context<'_>) {
        let (depth, columns) = (self.shape.in_dim, self.width);
        let weights = [&self.ranges.neighbours, &self.ranges.own].map(|place| {
            let place = place.as_ref()?;
            Some(&parameters[place.clone()])
        });
        if nonzeros.is_some() {
            for (weight, transposed) in weights.into_iter().zip(&mut self.packed) {
                if let Some(weight) = weight {
                    transpose(weight, [columns, depth], transposed.get(depth * columns), false);
                }
            }
            return;
        }
        if let ([Some(of_sums), Some(of_own)], true) = (weights, self.joins(level)) {
            resize(&mut self.weights, 2 * depth * columns);
            join([of_sums, of_own], depth, &mut self.weights);
            let packed = self.packed[0].get(packed_len(level, 2 * depth, columns));
            return pack(level, &self.weights, [2 * depth, columns], true, packed);
        }
        for (weight, packed) in weights.into_iter().zip(&mut self.packed) {
            if let Some(weight) = weight {
                pack(level, weight, [depth, columns], true, packed.get(packed_len(level, depth, columns)));
            }
        }
    }

    /// Whether a sum and the node's own row are multiplied as one row of both: on tiles, whose depth is a multiple of 32,
    /// less is multiplied in vain then, and nothing is added to the output.
    pub(crate) fn joins(&self, level: SimdLevel) -> bool {
        let both = self.ranges.neighbours.is_some() && self.ranges.own.is_some();
        both && self.order == Order::AggregateFirst && tiles(level, [self.width, self.shape.in_dim])
    }

    /// Whether rows of the store are not kept from the forward to the backward pass of sums.
    pub(crate) fn reads_again(&self) -> bool {
        self.width >= WIDE
    }

    fn aggregate_first(&mut self, context: Context<'_>, mode: Mode) {
        let Context { level, x, num_dst, .. } = context;
        let (depth, width, epilogue) = (self.shape.in_dim, self.width, self.epilogue);
        let lists = self.ranges.neighbours.is_some().then(|| {
            let (block, adjacency) = context.graph();
            adjacency.lists(block, x.nodes)
        });
        let joins = self.joins(level);
        let [neighbours, own] = &self.packed;
        let own = self.ranges.own.is_some().then_some(own);
        let bias = &context.parameters[self.ranges.bias.clone()];
        let summed = if lists.is_some() { depth } else { 0 };
        let keep = own.is_some() && context.keeps(mode) && !self.reads_again();
        let copied = if keep { depth } else { 0 };
        let outputs = [
            (self.out.get(num_dst * width), ROWS * width),
            (self.middle.get(num_dst * summed), ROWS * summed),
            (self.copied.get(num_dst * copied), ROWS * copied),
        ];
        parallel::tasks(num_dst.div_ceil(ROWS), outputs, &|task, [out, sums, copied]| {
            let rows = task * ROWS..(task * ROWS + ROWS).min(num_dst);
            let sizes = [rows.len(), width, depth];
            if let Some(lists) = &lists {
                sum_rows(level, lists, rows.clone(), x.view, depth, sums);
            }
            let (x, own_rows) = if keep { x.copied(rows.clone(), depth, copied) } else { (x, rows.clone()) };
            if joins {
                let (sizes, packed) =
                    ([rows.len(), width, 2 * depth], neighbours.read(packed_len(level, 2 * depth, width)));
                with_scratch([x.scratch(ROWS * depth), ROWS * 2 * depth, 0], |[scratch, both, _]| {
                    join([sums, x.dense(own_rows, depth, scratch)], depth, both);
                    let factors = (Left::rows(both, 2 * depth), Right::packed(level, packed, 2 * depth));
                    multiply(level, sizes, factors, out, false);
                });
            } else {
                if lists.is_some() {
                    let packed = neighbours.read(packed_len(level, depth, width));
                    multiply(level, sizes, (Left::rows(sums, depth), Right::packed(level, packed, depth)), out, false);
                }
                if let Some(own) = own {
                    let packed = own.read(packed_len(level, depth, width));
                    times(level, (x, own_rows), sizes, packed, out, (lists.is_some(), self.index > 0));
                }
            }
            epilogue::forward(level, epilogue, Part { width, first: rows.start }, bias, out);
        });
    }

    /// The products of all source nodes, in `middle`.
    fn products(&mut self, context: Context<'_>, mode: Mode) {
        let Context { level, x, .. } = context;
        let (depth, width, num_src) = (self.shape.in_dim, self.width, context.graph().0.num_src);
        if let Some(nonzeros) = context.nonzeros {
            let (lists, weight) = (nonzeros.lists(), FeatureView::F32(self.packed[0].read(depth * width)));
            return parallel::pieces(self.middle.get(num_src * width), ROWS * width, &|task, out| {
                let rows = task * ROWS..(task * ROWS + ROWS).min(num_src);
                sum_rows(level, &lists, rows, weight, width, out);
            });
        }
        let packed = self.packed[0].read(packed_len(level, depth, width));
        let keep = context.keeps(mode);
        let copied = if keep { depth } else { 0 };
        let outputs =
            [(self.middle.get(num_src * width), ROWS * width), (self.copied.get(num_src * copied), ROWS * copied)];
        parallel::tasks(num_src.div_ceil(ROWS), outputs, &|task, [out, copied]| {
            let rows = task * ROWS..(task * ROWS + ROWS).min(num_src);
            let sizes = [rows.len(), width, depth];
            let x = if keep { x.copied(rows, depth, copied) } else { (x, rows) };
            times(level, x, sizes, packed, out, (false, self.index > 0));
        });
    }

    fn transform_first(&mut self, context: Context<'_>, mode: Mode) {
        let Context { level, x, num_dst, .. } = context;
        let (depth, width, epilogue) = (self.shape.in_dim, self.width, self.epilogue);
        let has_neighbours = self.ranges.neighbours.is_some();
        if has_neighbours {
            self.products(context, mode);
        }
        let summed = has_neighbours.then(|| {
            let (block, adjacency) = context.graph();
            (adjacency.lists(block, None), FeatureView::F32(self.middle.read(block.num_src * width)))
        });
        let own = self.ranges.own.is_some().then_some(&self.packed[1]);
        let of_nonzeros = context.nonzeros.map(Sparse::lists);
        let bias = &context.parameters[self.ranges.bias.clone()];
        let outputs = [(self.out.get(num_dst * width), ROWS * width)];
        parallel::tasks(num_dst.div_ceil(ROWS), outputs, &|task, [out]| {
            let rows = task * ROWS..(task * ROWS + ROWS).min(num_dst);
            match &summed {
                Some((lists, products)) => sum_rows(level, lists, rows.clone(), *products, width, out),
                None => out.fill(0.0),
            }
            match (own, &of_nonzeros) {
                (Some(own), Some(lists)) => with_scratch([out.len(), 0, 0], |[product, _, _]| {
                    sum_rows(level, lists, rows.clone(), FeatureView::F32(own.read(depth * width)), width, product);
                    out.iter_mut().zip(product).for_each(|(o, p)| *o += *p);
                }),
                (Some(own), None) => {
                    let own = own.read(packed_len(level, depth, width));
                    times(level, (x, rows.clone()), [rows.len(), width, depth], own, out, (true, self.index > 0));
                }
                (None, _) => {}
            }
            epilogue::forward(level, epilogue, Part { width, first: rows.start }, bias, out);
        });
    }

    /// Attention over a block.
    pub(crate) fn attention<'a>(&self, block: &'a Block) -> Attention<'a> {
        let edges = Edges { indptr: &block.indptr, indices: &block.indices, num_src: block.num_src };
        let options = Options {
            heads: self.shape.heads,
            width: self.shape.head_dim,
            slope: 0.2,
            self_loops: true,
            dropout: self.attention_mask,
            level: SimdLevel::current(),
        };
        Attention::new(edges, options)
    }

    /// Whether the output is the mean of the heads.
    pub(crate) fn averages(&self) -> bool {
        self.width != self.shape.out_dim
    }

    fn attend(&mut self, context: Context<'_>, mode: Mode) {
        self.products(context, mode);
        let Context { level, num_dst, .. } = context;
        let (block, _) = context.graph();
        let attention = self.attention(block);
        let values = self.middle.read(block.num_src * self.width);
        let inputs = inputs(&self.ranges, context.parameters, values);
        let kept = self.kept.get(attention.kept_len());
        let (width, heads, averages) = (self.shape.out_dim, self.shape.heads, self.width != self.shape.out_dim);
        let attended = if averages { &mut self.wide } else { &mut self.out };
        attention.forward(inputs, kept, attended.get(num_dst * self.width));
        let (wide, all) = (&self.wide, self.width);
        let (epilogue, bias) = (self.epilogue, &context.parameters[self.ranges.bias.clone()]);
        let outputs = [(self.out.get(num_dst * width), ROWS * width)];
        parallel::tasks(num_dst.div_ceil(ROWS), outputs, &|task, [out]| {
            if averages {
                let wide = &wide.read(num_dst * all)[task * ROWS * all..];
                for (out, wide) in out.chunks_exact_mut(width).zip(wide.chunks_exact(all)) {
                    for (c, o) in out.iter_mut().enumerate() {
                        *o = (0..heads).map(|h| wide[h * width + c]).sum::<f32>() / heads as f32;
                    }
                }
            }
            epilogue::forward(level, epilogue, Part { width, first: task * ROWS }, bias, out);
        });
    }
}

/// Writes rows of `width` elements of two matrices beside each other.
pub(crate) fn join([left, right]: [&[f32]; 2], width: usize, out: &mut [f32]) {
    let rows = left.chunks_exact(width).zip(right.chunks_exact(width));
    for (out, (left, right)) in out.chunks_exact_mut(2 * width).zip(rows) {
        out[..width].copy_from_slice(left);
        out[width..].copy_from_slice(right);
    }
}

/// What attention reads.
pub(crate) fn inputs<'a>(ranges: &ParameterRanges, parameters: &'a [f32], values: &'a [f32]) -> Inputs<'a> {
    let [src, dst] = ranges.attention.as_ref().expect("a layer that attends has attention vectors");
    Inputs { values, att_src: &parameters[src.clone()], att_dst: &parameters[dst.clone()] }
}

/// Rows of the input times a packed weight.
fn times(
    level: SimdLevel,
    (x, rows): (Rows<'_>, Range<usize>),
    sizes: [usize; 3],
    packed: &[f32],
    out: &mut [f32],
    (add, zeros): (bool, bool),
) {
    let depth = sizes[2];
    with_scratch([x.scratch(ROWS * depth), 0, 0], |[scratch, _, _]| {
        let x = x.dense(rows, depth, scratch);
        let left = Left::rows(x, depth).with_zeros(zeros);
        multiply(level, sizes, (left, Right::packed(level, packed, depth)), out, add);
    });
}
