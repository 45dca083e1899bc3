//! All layers: forward, loss, backward over one mini-batch.

use std::time::Instant;

use morphgl_graph_store::{FeatureMatrix, FeatureView};
use morphgl_model_spec::{DropoutSite, ModelSpec, ParameterSpec};
use morphgl_registry::{Block, Score};

use crate::adjacency::{self, Adjacency};
use crate::buffer::{Buffer, resize};
use crate::layer::{Context, Layer, Mode, Order, ROWS, Upstream};
use crate::loss::cross_entropy;
use crate::parallel;
use crate::rows::{Nodes, Rows};
use crate::sparse::{Nonzeros, Side, Sparse};
use morphgl_platform::SimdLevel;

/// Edges a task looks up.
const EDGES: usize = 1 << 14;

/// The layers of a model with their memory.
#[derive(Debug)]
pub(crate) struct Network {
    spec: ModelSpec,
    level: SimdLevel,
    layers: Vec<Layer>,
    adjacencies: Vec<Adjacency>,
    /// Where the store's features are nearly all zeros: its nonzeros, and those of a mini-batch.
    nonzeros: Option<(Nonzeros, Sparse)>,
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
    pub(crate) fn new(spec: &ModelSpec, specs: &[ParameterSpec], level: SimdLevel, nonzeros: Option<Nonzeros>) -> Self {
        Self {
            spec: spec.clone(),
            level,
            nonzeros: nonzeros.map(|nonzeros| (nonzeros, Sparse::default())),
            layers: (0..spec.layers).map(|l| Layer::new(spec, l, specs)).collect(),
            adjacencies: (0..spec.layers).map(|_| Adjacency::default()).collect(),
            sources: Vec::new(),
            dropped: Buffer::default(),
            loss_gradient: Buffer::default(),
            scores: Vec::new(),
            times: Times { forward: vec![0.0; spec.layers], backward: vec![0.0; spec.layers], ..Times::default() },
        }
    }

    /// The same at another level.
    pub(crate) fn at(self, level: SimdLevel) -> Self {
        Self { level, ..self }
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
            let own = if layer.ranges.own.is_some() { dst } else { 0.0 };
            let neighbours = if layer.ranges.neighbours.is_none() { 0.0 } else { dst };
            let (rows, message) = match layer.order {
                Order::AggregateFirst => (neighbours + own, depth),
                Order::TransformFirst | Order::Attend => (src + own, width),
            };
            let passes = if l > 0 { 3.0 } else { 2.0 };
            let summed = if layer.order == Order::AggregateFirst && l == 0 { 1.0 } else { 2.0 };
            work.flops += passes * 2.0 * rows * depth * width;
            work.bytes += 4.0 * (passes * rows * (depth + width) + summed * edges * message);
        }
        work
    }

    /// The logits, in the last layer's output, and what backward needs if the mode is training.
    fn forward(&mut self, parameters: &[f32], input: Input<'_>, mode: Mode) {
        let training = matches!(mode, Mode::Training { .. });
        let start = Instant::now();
        let sparse = self.nonzeros.is_some();
        self.layers.iter_mut().enumerate().for_each(|(l, layer)| layer.decide(input.blocks.get(l), sparse && l == 0));
        if !input.blocks.is_empty() {
            let layers = &self.layers;
            let by_source = |l: usize| training && (l > 0 || layers[l].order != Order::AggregateFirst);
            adjacency::prepare(&mut self.adjacencies, self.spec.kind, input.blocks, input.degrees, &by_source);
        }
        if sparse {
            self.read_nonzeros(input, mode);
        } else {
            self.find_sources(input, mode);
            self.drop_input(input, mode);
        }
        self.times.prepare = start.elapsed().as_secs_f64();
        for l in 0..self.layers.len() {
            let start = Instant::now();
            let (before, rest) = self.layers.split_at_mut(l);
            let x = input_of(before.last(), (&self.dropped, &self.sources, &self.spec, mode), input, (l, sparse));
            rest[0].forward(context(self.level, (&self.adjacencies, &self.nonzeros), parameters, input, x, l), mode);
            self.times.forward[l] = start.elapsed().as_secs_f64();
        }
    }

    /// Looks up the nodes of the first block's edges, where their features are summed out of the store.
    fn find_sources(&mut self, input: Input<'_>, mode: Mode) {
        let dropped = mode.dropout(0, DropoutSite::Input, self.spec.input_dropout).is_some();
        let summed = self.layers[0].order == Order::AggregateFirst && self.layers[0].ranges.neighbours.is_some();
        let (Some((_, nodes)), Some(block), true) = (input.nodes, input.blocks.first(), summed && !dropped) else {
            return self.sources.clear();
        };
        resize(&mut self.sources, block.num_edges());
        parallel::pieces(&mut self.sources, EDGES, &|task, sources| {
            let locals = &block.indices[task * EDGES..];
            sources.iter_mut().zip(locals).for_each(|(source, &local)| *source = nodes[local as usize]);
        });
    }

    /// Reads the nonzeros of the input, dropped, and in training sorts them by column.
    fn read_nonzeros(&mut self, input: Input<'_>, mode: Mode) {
        let Some((store, sparse)) = &mut self.nonzeros else { return };
        let dropout = mode.dropout(0, DropoutSite::Input, self.spec.input_dropout);
        let rows = input.rows;
        match input.nodes {
            Some((_, nodes)) => sparse.read(store, Some(nodes), rows, dropout.as_ref()),
            None => {
                let dim = self.spec.in_dim;
                sparse.read(&Nonzeros::of(input.features.part(0, rows * dim), dim), None, rows, dropout.as_ref());
            }
        }
        if let Mode::Training { .. } = mode {
            let places = &self.layers[0].ranges;
            if places.neighbours.is_some() {
                sparse.sort(Side::All, rows);
            }
            if places.own.is_some() {
                sparse.sort(Side::First, input.num_dst(0));
            }
        }
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
            let sparse = self.nonzeros.is_some();
            let x = input_of(before.last(), (&self.dropped, &self.sources, &self.spec, mode), input, (l, sparse));
            let of = |x, l| context(self.level, (&self.adjacencies, &self.nonzeros), parameters, input, x, l);
            let upstream = match after.first() {
                None => Upstream::Rows(loss_gradient),
                Some(next) => next.upstream(of(Rows::local(FeatureView::F32(&[])), l + 1)),
            };
            layer.backward(of(x, l), upstream, gradients);
            self.times.backward[l] = start.elapsed().as_secs_f64();
        }
        score
    }

    /// Bytes that the nonzeros of a row of the store take, where they are read instead of it.
    pub(crate) fn nonzeros_bytes(&self) -> Option<usize> {
        self.nonzeros.as_ref().map(|(store, _)| store.row_bytes())
    }

    /// Computes one layer over one block in evaluation mode, or over `num_dst` rows without a block; returns the output.
    pub(crate) fn evaluate_layer(
        &mut self,
        layer: usize,
        parameters: &[f32],
        (block, degrees, num_dst): (Option<&Block>, &[f32], usize),
        input: LayerInput<'_>,
    ) -> &[f32] {
        let mut nonzeros = None;
        let x = match (input, &mut self.nonzeros) {
            (LayerInput::Nonzeros(nodes), Some((store, sparse))) => {
                sparse.read(store, Some(nodes), nodes.len(), None);
                nonzeros = Some(&*sparse);
                &[]
            }
            (LayerInput::Nonzeros(_), None) => unreachable!("nonzeros are asked for where there are any"),
            (LayerInput::Rows(x), _) => x,
        };
        let own = &mut self.layers[layer];
        own.decide(block, nonzeros.is_some());
        let adjacency = &mut self.adjacencies[layer];
        if let Some(block) = block {
            adjacency.prepare(self.spec.kind, block, degrees);
        }
        let graph = block.map(|b| (b, &*adjacency));
        let x = Rows::local(FeatureView::F32(x));
        let context = Context { level: self.level, parameters, graph, x, nonzeros, num_dst };
        own.forward(context, Mode::Evaluation);
        own.out.read(num_dst * own.shape.out_dim)
    }
}

/// What a layer that is evaluated by itself reads.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LayerInput<'a> {
    /// A row a source node.
    Rows(&'a [f32]),
    /// The store's nonzeros of these nodes.
    Nonzeros(&'a [u32]),
}

/// The input of layer `l`: the features, dropped or as they are, or the output of the layer before.
fn input_of<'a>(
    before: Option<&'a Layer>,
    (dropped, sources, spec, mode): (&'a Buffer, &'a [u32], &ModelSpec, Mode),
    input: Input<'a>,
    (l, sparse): (usize, bool),
) -> Rows<'a> {
    match before {
        None if sparse => Rows::local(FeatureView::F32(&[])),
        Some(before) => Rows::local(FeatureView::F32(before.out.read(input.num_dst(l - 1) * before.shape.out_dim))),
        None if mode.dropout(0, DropoutSite::Input, spec.input_dropout).is_some() => {
            Rows::local(FeatureView::F32(dropped.read(input.rows * spec.in_dim)))
        }
        None => input.features(sources),
    }
}

fn context<'a>(
    level: SimdLevel,
    (adjacencies, nonzeros): (&'a [Adjacency], &'a Option<(Nonzeros, Sparse)>),
    parameters: &'a [f32],
    input: Input<'a>,
    x: Rows<'a>,
    layer: usize,
) -> Context<'a> {
    let graph = input.blocks.get(layer).map(|block| (block, &adjacencies[layer]));
    let nonzeros = nonzeros.as_ref().filter(|_| layer == 0).map(|(_, sparse)| sparse);
    Context { level, parameters, graph, x, nonzeros, num_dst: input.num_dst(layer) }
}
