//! All layers: forward, loss, backward over one mini-batch.

use std::time::Instant;

use morphgl_graph_store::{FeatureMatrix, FeatureView};
use morphgl_model_spec::{DropoutSite, ModelSpec, ParameterSpec};
use morphgl_registry::{Block, Score};

use crate::adjacency::{self, Adjacency};
use crate::backward::Upstream;
use crate::buffer::{Buffer, resize};
use crate::layer::{Context, Layer, Mode, Order, ROWS};
use crate::level::Level;
use crate::loss::cross_entropy;
use crate::parallel;
use crate::rows::{Nodes, Rows};

/// Edges a task looks up.
const EDGES: usize = 1 << 14;

/// The layers of a model with their memory.
#[derive(Debug)]
pub(crate) struct Network {
    spec: ModelSpec,
    level: Level,
    layers: Vec<Layer>,
    adjacencies: Vec<Adjacency>,
    /// The node of each edge's source in the first block, where features are read out of the store.
    sources: Vec<u32>,
    /// The input features after dropout.
    dropped: Buffer,
    loss_gradient: Buffer,
    scores: Vec<Score>,
    times: Times,
}

/// Seconds that the phases of the last mini-batch took.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Times {
    /// Coefficients of the blocks, their transposed lists, dropout of the input.
    pub prepare: f64,
    /// Forward, a number a layer.
    pub forward: Vec<f64>,
    /// The loss and its gradient.
    pub loss: f64,
    /// Backward, a number a layer.
    pub backward: Vec<f64>,
}

/// What the last mini-batch cost at least.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Work {
    /// Floating point operations of matrix products, forward and backward.
    pub flops: f64,
    /// Bytes of messages over edges, and of every matrix once for each product that it is in.
    pub bytes: f64,
}

/// What a pass reads of a mini-batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Input<'a> {
    /// A block a layer; none for a model that reads no graph.
    pub(crate) blocks: &'a [Block],
    pub(crate) degrees: &'a [f32],
    /// The features of the first `rows` input nodes, or, where there are `nodes`, of the whole store.
    pub(crate) features: FeatureView<'a>,
    pub(crate) rows: usize,
    /// The store and these input nodes, each of which it has.
    pub(crate) nodes: Option<(&'a FeatureMatrix, &'a [u32])>,
    pub(crate) labels: &'a [i32],
}

impl<'a> Input<'a> {
    /// The features that the first layer reads; `of_edges` are the nodes of its edges' sources.
    fn features(&self, of_edges: &'a [u32]) -> Rows<'a> {
        let nodes = self.nodes.map(|(store, of_rows)| Nodes { of_rows, of_edges, store });
        Rows { view: self.features, nodes }
    }

    fn num_dst(&self, layer: usize) -> usize {
        self.blocks.get(layer).map_or(self.labels.len(), |b| b.num_dst)
    }
}

impl Network {
    pub(crate) fn new(spec: &ModelSpec, specs: &[ParameterSpec], level: Level) -> Self {
        Self {
            spec: spec.clone(),
            level,
            layers: (0..spec.layers).map(|l| Layer::new(spec, l, specs)).collect(),
            adjacencies: (0..spec.layers).map(|_| Adjacency::default()).collect(),
            sources: Vec::new(),
            dropped: Buffer::default(),
            loss_gradient: Buffer::default(),
            scores: Vec::new(),
            times: Times { forward: vec![0.0; spec.layers], backward: vec![0.0; spec.layers], ..Times::default() },
        }
    }

    pub(crate) fn times(&self) -> &Times {
        &self.times
    }

    /// The work of a mini-batch of these blocks' sizes, if it was the last.
    pub(crate) fn work(&self, input: Input<'_>) -> Work {
        let mut work = Work::default();
        for (l, layer) in self.layers.iter().enumerate() {
            let dst = input.num_dst(l) as f64;
            let (src, edges) = input.blocks.get(l).map_or((dst, 0.0), |b| (b.num_src as f64, b.num_edges() as f64));
            let (depth, width) = (layer.shape.in_dim as f64, layer.width as f64);
            let own = if layer.places.own.is_some() { dst } else { 0.0 };
            let neighbours = if layer.places.neighbours.is_none() { 0.0 } else { dst };
            let (rows, message) = match layer.order {
                Order::SumFirst => (neighbours + own, depth),
                Order::ProductFirst | Order::Attend => (src + own, width),
            };
            let passes = if l > 0 { 3.0 } else { 2.0 };
            let summed = if layer.order == Order::SumFirst && l == 0 { 1.0 } else { 2.0 };
            work.flops += passes * 2.0 * rows * depth * width;
            work.bytes += 4.0 * (passes * rows * (depth + width) + summed * edges * message);
        }
        work
    }

    /// The logits, in the last layer's output, and what backward needs if the mode is training.
    fn forward(&mut self, parameters: &[f32], input: Input<'_>, mode: Mode) {
        let training = matches!(mode, Mode::Training { .. });
        let start = Instant::now();
        self.layers.iter_mut().enumerate().for_each(|(l, layer)| layer.decide(input.blocks.get(l)));
        if !input.blocks.is_empty() {
            let layers = &self.layers;
            let by_source = |l: usize| training && (l > 0 || layers[l].order != Order::SumFirst);
            adjacency::prepare(&mut self.adjacencies, self.spec.kind, input.blocks, input.degrees, &by_source);
        }
        self.find_sources(input, mode);
        self.drop_input(input, mode);
        self.times.prepare = start.elapsed().as_secs_f64();
        for l in 0..self.layers.len() {
            let start = Instant::now();
            let (before, rest) = self.layers.split_at_mut(l);
            let x = input_of(before.last(), (&self.dropped, &self.sources, &self.spec, mode), input, l);
            rest[0].forward(context(self.level, &self.adjacencies, parameters, input, x, l), mode);
            self.times.forward[l] = start.elapsed().as_secs_f64();
        }
    }

    /// Looks up the nodes of the first block's edges, where their features are summed out of the store.
    fn find_sources(&mut self, input: Input<'_>, mode: Mode) {
        let dropped = mode.dropout(0, DropoutSite::Input, self.spec.input_dropout).is_some();
        let summed = self.layers[0].order == Order::SumFirst && self.layers[0].places.neighbours.is_some();
        let (Some((_, nodes)), Some(block), true) = (input.nodes, input.blocks.first(), summed && !dropped) else {
            return self.sources.clear();
        };
        resize(&mut self.sources, block.num_edges());
        parallel::pieces(&mut self.sources, EDGES, &|task, sources| {
            let locals = &block.indices[task * EDGES..];
            sources.iter_mut().zip(locals).for_each(|(source, &local)| *source = nodes[local as usize]);
        });
    }

    fn drop_input(&mut self, input: Input<'_>, mode: Mode) {
        let Some(dropout) = mode.dropout(0, DropoutSite::Input, self.spec.input_dropout) else { return };
        let dim = self.spec.in_dim;
        let out = self.dropped.get(input.rows * dim);
        parallel::tasks(input.rows.div_ceil(ROWS), [(out, ROWS * dim)], &|task, [out]| {
            let first = task * ROWS;
            input.features(&[]).copy(first..(first + ROWS).min(input.rows), dim, out);
            dropout.apply((first * dim) as u64, out);
        });
    }

    fn logits(&self, input: Input<'_>) -> &[f32] {
        let last = self.layers.last().expect("a model has a layer");
        last.out.read(input.labels.len() * last.shape.out_dim)
    }

    /// Scores a mini-batch in evaluation mode.
    pub(crate) fn score(&mut self, parameters: &[f32], input: Input<'_>) -> Score {
        self.forward(parameters, input, Mode::Evaluation);
        Score::of(self.logits(input), input.labels, self.spec.num_classes)
    }

    /// Adds the gradients of a mini-batch, unless its loss is not a number.
    pub(crate) fn forward_backward(
        &mut self,
        parameters: &[f32],
        input: Input<'_>,
        mode: Mode,
        gradients: &mut [f32],
    ) -> Score {
        self.forward(parameters, input, mode);
        let (classes, start) = (self.spec.num_classes, Instant::now());
        let last = self.layers.last().expect("a model has a layer");
        let logits = last.out.read(input.labels.len() * classes);
        let loss_gradient = self.loss_gradient.get(logits.len());
        let score = cross_entropy(logits, input.labels, classes, &mut self.scores, loss_gradient);
        self.times.loss = start.elapsed().as_secs_f64();
        if !score.loss_sum.is_finite() || score.count == 0 {
            return score;
        }
        let loss_gradient = self.loss_gradient.read(input.labels.len() * classes);
        for l in (0..self.layers.len()).rev() {
            let start = Instant::now();
            let (before, rest) = self.layers.split_at_mut(l);
            let (layer, after) = rest.split_first_mut().expect("a layer is there");
            let x = input_of(before.last(), (&self.dropped, &self.sources, &self.spec, mode), input, l);
            let of = |x, l| context(self.level, &self.adjacencies, parameters, input, x, l);
            let upstream = match after.first() {
                None => Upstream::Rows(loss_gradient),
                Some(next) => next.upstream(of(Rows::local(FeatureView::F32(&[])), l + 1)),
            };
            layer.backward(of(x, l), upstream, gradients);
            self.times.backward[l] = start.elapsed().as_secs_f64();
        }
        score
    }

    /// Computes one layer over one block in evaluation mode, or over `num_dst` rows without a block; returns the output.
    pub(crate) fn evaluate_layer(
        &mut self,
        layer: usize,
        parameters: &[f32],
        (block, degrees, num_dst): (Option<&Block>, &[f32], usize),
        x: &[f32],
    ) -> &[f32] {
        let own = &mut self.layers[layer];
        own.decide(block);
        let adjacency = &mut self.adjacencies[layer];
        if let Some(block) = block {
            adjacency.prepare(self.spec.kind, block, degrees);
        }
        let graph = block.map(|b| (b, &*adjacency));
        let x = Rows::local(FeatureView::F32(x));
        let context = Context { level: self.level, parameters, graph, x, num_dst };
        own.forward(context, Mode::Evaluation);
        own.out.read(num_dst * own.shape.out_dim)
    }
}

/// The input of layer `l`: the features, dropped or as they are, or the output of the layer before.
fn input_of<'a>(
    before: Option<&'a Layer>,
    (dropped, sources, spec, mode): (&'a Buffer, &'a [u32], &ModelSpec, Mode),
    input: Input<'a>,
    l: usize,
) -> Rows<'a> {
    match before {
        Some(before) => Rows::local(FeatureView::F32(before.out.read(input.num_dst(l - 1) * before.shape.out_dim))),
        None if mode.dropout(0, DropoutSite::Input, spec.input_dropout).is_some() => {
            Rows::local(FeatureView::F32(dropped.read(input.rows * spec.in_dim)))
        }
        None => input.features(sources),
    }
}

fn context<'a>(
    level: Level,
    adjacencies: &'a [Adjacency],
    parameters: &'a [f32],
    input: Input<'a>,
    x: Rows<'a>,
    layer: usize,
) -> Context<'a> {
    let graph = input.blocks.get(layer).map(|block| (block, &adjacencies[layer]));
    Context { level, parameters, graph, x, num_dst: input.num_dst(layer) }
}

/// `len` elements from element `start` on.
pub(crate) fn part(view: FeatureView<'_>, start: usize, len: usize) -> FeatureView<'_> {
    match view {
        FeatureView::F32(d) => FeatureView::F32(&d[start..start + len]),
        FeatureView::F16(d) => FeatureView::F16(&d[start..start + len]),
        FeatureView::Bf16(d) => FeatureView::Bf16(&d[start..start + len]),
        FeatureView::U8(d) => FeatureView::U8(&d[start..start + len]),
    }
}
