//! All layers of a model: forward, loss and backward over one mini-batch.

use std::sync::Arc;
use std::time::Instant;

use morphgl_graph_store::{Dataset, FeatureMatrix, FeatureView};
use morphgl_model_core::{Dropout, DropoutSite, ModelSpec, Objective, ParameterSpec};
use morphgl_platform::SimdLevel;
use morphgl_registry::{BatchFeatures, Block, GradientReady, Pass, Score, Targets};

use crate::adjacency::{self, Adjacency};
use crate::buffer::{Buffer, resize};
use crate::epilogue::apply_dropout;
use crate::layer::{Context, Layer, Mode, Order, TypedInputs, Upstream};
use crate::loss::cross_entropy;
use crate::parallel::{self, row_blocks};
use crate::rows::{InputRows, NodeIds};
use crate::sparse::{Nonzeros, Side, SparseInput};
use crate::work::{LayerWork, Sizes, Work};

/// Edges whose sources a task looks up.
const EDGES: usize = 1 << 14;

/// The layers of a model with their buffers.
#[derive(Debug)]
pub(crate) struct Network {
    layers: Vec<Layer>,
    inputs: LayerInputs,
    /// Offset of each layer's first parameter among the elements of all parameters, and that of the decoder's.
    first_elements: Vec<usize>,
    loss_gradient: Buffer,
    scores: Vec<Score>,
    times: PassTimes,
}

/// Inputs of the layers, except for the outputs of the layers before them.
#[derive(Debug)]
struct LayerInputs {
    spec: ModelSpec,
    level: SimdLevel,
    adjacencies: Vec<Adjacency>,
    /// The nonzeros of the store, if its features are sparse, and those of the mini-batch.
    nonzeros: Option<(Nonzeros, SparseInput)>,
    /// The node of each edge's source in the first block, where aggregation reads the store.
    edge_nodes: Vec<u32>,
    /// What makes the input rows, of a model with inputs per node type.
    by_type: Option<TypedInputs>,
    /// The input features after dropout, or the input rows made per node type.
    dropped: Buffer,
    dataset: Arc<Dataset>,
}

/// Seconds that the passes over the last mini-batch took.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PassTimes {
    /// Coefficients and transposed edges of the blocks, dropout of the input.
    pub prepare: f64,
    /// Forward pass of each layer.
    pub forward: Vec<f64>,
    /// Loss and its gradient.
    pub loss: f64,
    /// Backward pass of each layer.
    pub backward: Vec<f64>,
}

/// The part of a mini-batch that a pass reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Input<'a> {
    /// A block per layer; empty for a model that reads no graph.
    pub(crate) blocks: &'a [Block],
    pub(crate) degrees: &'a [f32],
    /// The degrees of the second block's source nodes.
    pub(crate) second_degrees: &'a [f32],
    /// Rows of the first layer's output after those that are computed, before dropout.
    pub(crate) given: &'a [f32],
    /// What each of the first layer's weights multiplies for these rows; none where they have no part in its gradient.
    pub(crate) given_inputs: &'a [Vec<f32>],
    /// Nodes of these rows, which key the dropout masks; empty without dropout.
    pub(crate) given_nodes: &'a [u32],
    /// The features of the first `rows` input nodes, or of the whole store if there are `nodes`.
    pub(crate) features: FeatureView<'a>,
    pub(crate) rows: usize,
    /// Feature store, and the input nodes whose rows are read from it; all of them exist there.
    pub(crate) nodes: Option<(&'a FeatureMatrix, &'a [u32])>,
    /// Nodes of the input rows, which key the dropout masks; empty without dropout.
    pub(crate) mask_nodes: &'a [u32],
    /// The nodes of the input rows, whose types typed models read; each is in the graph.
    pub(crate) typed_nodes: &'a [u32],
    /// The features of the input nodes of each type, where the mini-batch has them.
    pub(crate) features_by_type: &'a [Option<BatchFeatures>],
    pub(crate) num_seeds: usize,
    pub(crate) targets: Targets<'a>,
}

impl<'a> Input<'a> {
    /// Input without rows.
    pub(crate) const NONE: Self = Self {
        blocks: &[],
        degrees: &[],
        second_degrees: &[],
        given: &[],
        given_inputs: &[],
        given_nodes: &[],
        features: FeatureView::F32(&[]),
        rows: 0,
        nodes: None,
        mask_nodes: &[],
        typed_nodes: &[],
        features_by_type: &[],
        num_seeds: 0,
        targets: Targets::Classes(&[]),
    };

    /// The features that the first layer reads; `of_edges` are the nodes of its edges' sources.
    fn features(&self, of_edges: &'a [u32]) -> InputRows<'a> {
        let nodes = self.nodes.map(|(store, of_rows)| NodeIds { of_rows, of_edges, store });
        InputRows { view: self.features, nodes }
    }

    fn num_dst(&self, layer: usize) -> usize {
        self.blocks.get(layer).map_or(self.num_seeds, |b| b.num_dst)
    }
}

impl LayerInputs {
    fn input_dropout(&self, mode: Mode) -> Option<Dropout> {
        mode.dropout(0, DropoutSite::Input, self.spec.input_dropout)
    }

    /// Bytes of a row that a layer reads, and its elements that are multiplied: of the first layer's input as it is stored.
    fn row_size(&self, layer: &Layer, input: Input<'_>) -> (usize, usize) {
        let width = layer.shape.in_dim;
        match &self.nonzeros {
            _ if layer.index > 0 || self.by_type.is_some() => (4 * width, width),
            Some((store, _)) => (store.row_bytes(), store.row_bytes() / Nonzeros::BYTES),
            None => (width * (input.features.as_bytes().len() / input.features.len().max(1)), width),
        }
    }

    /// Reads the nonzeros of the input with dropout, and for training sorts them by column.
    fn read_nonzeros(&mut self, first: &Layer, input: Input<'_>, mode: Mode) {
        let dropout = self.input_dropout(mode).map(|dropout| (dropout, input.mask_nodes));
        let Some((store, sparse)) = &mut self.nonzeros else { return };
        let rows = input.rows;
        if let Some((_, nodes)) = input.nodes {
            sparse.read(store, Some(nodes), rows, dropout);
        } else {
            let dim = self.spec.in_dim;
            sparse.read(&Nonzeros::of(input.features.part(0, rows * dim), dim), None, rows, dropout);
        }
        let sides = [(Side::Sources, rows), (Side::Destinations, input.num_dst(0))];
        for ((side, rows), weight) in sides.into_iter().zip(first.ranges.weights()) {
            if mode.trains() && weight.is_some() {
                sparse.sort(side, rows);
            }
        }
    }

    /// Makes the input per node type, copies it with dropout, or looks up the nodes of the first block's edges where aggregation reads the store.
    fn read_dense(&mut self, first: &Layer, parameters: &[f32], input: Input<'_>, mode: Mode) {
        self.edge_nodes.clear();
        let dropout = self.input_dropout(mode).map(|dropout| (dropout, input.mask_nodes));
        if let Some(by_type) = &mut self.by_type {
            let (nodes, gathered) = (input.typed_nodes, input.features_by_type);
            return by_type.forward(self.level, parameters, nodes, gathered, dropout, &mut self.dropped);
        }
        if let Some(dropout) = self.input_dropout(mode) {
            let (dim, level) = (self.spec.in_dim, &self.level);
            return row_blocks(input.rows, [(self.dropped.get(input.rows * dim), dim)], &|rows, [out]| {
                input.features(&[]).copy(rows.clone(), dim, out);
                apply_dropout(*level, &dropout, &input.mask_nodes[rows], out);
            });
        }
        let by_type = first.order == Order::ByType;
        let aggregates = match first.order {
            Order::ByType | Order::AttendFirst => true,
            Order::AggregateFirst => first.ranges.neighbours.is_some(),
            Order::TransformFirst | Order::Attend => false,
        };
        if let (Some((_, nodes)), Some(block), true) = (input.nodes, input.blocks.first(), aggregates) {
            let columns = if by_type { self.adjacencies[0].groups.columns() } else { &block.indices };
            resize(&mut self.edge_nodes, columns.len());
            parallel::pieces(&mut self.edge_nodes, EDGES, &|task, edge_nodes| {
                let locals = &columns[task * EDGES..];
                edge_nodes.iter_mut().zip(locals).for_each(|(node, &local)| *node = nodes[local as usize]);
            });
        }
    }

    /// Adds the gradients of what makes the input rows, if they are made.
    fn backward(&mut self, first: &Layer, input: Input<'_>, mode: Mode, gradients: &mut [f32]) {
        let dropout = self.input_dropout(mode).map(|dropout| (dropout, input.mask_nodes));
        let graph = input.blocks.first().map(|block| (block, &self.adjacencies[0]));
        if let Some(by_type) = &mut self.by_type {
            let upstream = first.upstream(graph, input.num_dst(0));
            by_type.backward(self.level, upstream, input.features_by_type, dropout, gradients);
        }
    }

    fn graph<'a>(&'a self, input: Input<'a>, layer: usize) -> Option<(&'a Block, &'a Adjacency)> {
        input.blocks.get(layer).map(|block| (block, &self.adjacencies[layer]))
    }

    /// The context of layer `layer`; it reads the output of the layer `before`, or the features.
    fn context<'a>(
        &'a self,
        (layer, before): (usize, Option<&'a Layer>),
        parameters: &'a [f32],
        input: Input<'a>,
        mode: Mode,
    ) -> Context<'a> {
        let nonzeros = self.nonzeros.as_ref().filter(|_| layer == 0).map(|(_, sparse)| sparse);
        let x = match before {
            Some(before) => {
                let given = if layer == 1 { input.given.len() } else { 0 };
                InputRows::dense_f32(before.out.read(input.num_dst(layer - 1) * before.shape.out_dim + given))
            }
            None if nonzeros.is_some() => InputRows::dense_f32(&[]),
            None if self.by_type.is_some() || self.input_dropout(mode).is_some() => {
                InputRows::dense_f32(self.dropped.read(input.rows * self.spec.in_dim))
            }
            None => input.features(&self.edge_nodes),
        };
        let (graph, num_dst) = (self.graph(input, layer), input.num_dst(layer));
        let (edge_features, nodes) = (&self.dataset.edge_features[..], input.mask_nodes);
        Context { level: self.level, parameters, graph, x, nonzeros, edge_features, nodes, num_dst }
    }
}

impl Network {
    /// The network of a model with the types of the `dataset`.
    pub(crate) fn new(
        (spec, specs): (&ModelSpec, &[ParameterSpec]),
        level: SimdLevel,
        dataset: &Arc<Dataset>,
        nonzeros: Option<Nonzeros>,
    ) -> Self {
        Self {
            layers: (0..spec.layers).map(|l| Layer::new(spec, l, specs)).collect(),
            inputs: LayerInputs {
                spec: spec.clone(),
                level,
                adjacencies: (0..spec.layers).map(|_| Adjacency::default()).collect(),
                nonzeros: nonzeros.map(|nonzeros| (nonzeros, SparseInput::default())),
                edge_nodes: Vec::new(),
                by_type: TypedInputs::new(spec, specs, dataset),
                dropped: Buffer::default(),
                dataset: Arc::clone(dataset),
            },
            first_elements: (0..=spec.layers)
                .map(|l| specs.iter().filter(|p| p.layer < l).map(ParameterSpec::len).sum())
                .collect(),
            loss_gradient: Buffer::default(),
            scores: Vec::new(),
            times: PassTimes {
                forward: vec![0.0; spec.layers],
                backward: vec![0.0; spec.layers],
                ..PassTimes::default()
            },
        }
    }

    /// Offset of the decoder's first parameter among the elements of all parameters.
    pub(crate) fn decoder(&self) -> usize {
        self.first_elements[self.layers.len()]
    }

    pub(crate) fn times(&self) -> &PassTimes {
        &self.times
    }

    /// Makes all layers of a GAT attend first, or last; without a value, as is cheaper.
    pub(crate) fn attend_first(&mut self, first: Option<bool>) {
        self.layers.iter_mut().for_each(|layer| layer.attends_first = first);
    }

    /// The passes over the last mini-batch, which had this input.
    pub(crate) fn passes(&self, input: Input<'_>) -> Vec<Pass> {
        let Self { layers, inputs, times, .. } = self;
        let of_layer = |(l, layer): (usize, &Layer)| {
            let dst = input.num_dst(l);
            let (src, edges) = input.blocks.get(l).map_or((dst, 0), |b| (b.num_src, b.num_edges()));
            let grouped = if layer.order == Order::ByType { inputs.adjacencies[l].groups.num_rows() } else { 0 };
            let (row_bytes, row_elements) = inputs.row_size(layer, input);
            LayerWork::new(layer, Sizes { src, dst, edges, grouped, row_bytes, row_elements })
        };
        let mut works: Vec<LayerWork> = layers.iter().enumerate().map(of_layer).collect();
        for l in 1..works.len() {
            let bytes = works[l].summed_before;
            works[l - 1].backward.read(bytes);
        }
        let uncounted = |name: &str, seconds| Work::default().pass(name.to_string(), seconds);
        let forward = |(l, work): (usize, &LayerWork)| work.forward.pass(format!("forward {l}"), times.forward[l]);
        let backward = |(l, work): (usize, &LayerWork)| work.backward.pass(format!("backward {l}"), times.backward[l]);
        let mut passes = vec![uncounted("prepare", times.prepare)];
        passes.extend(works.iter().enumerate().map(forward));
        passes.push(uncounted("loss", times.loss));
        passes.extend(works.iter().enumerate().rev().map(backward));
        passes
    }

    /// Computes the logits, and in training what backward needs.
    fn forward(&mut self, parameters: &[f32], input: Input<'_>, mode: Mode) {
        let start = Instant::now();
        let Self { layers, inputs, times, .. } = self;
        let sparse = inputs.nonzeros.is_some();
        for (l, layer) in layers.iter_mut().enumerate() {
            layer.choose_order(inputs.level, input.blocks.get(l), sparse && l == 0, mode.trains());
        }
        if !input.blocks.is_empty() {
            let by_source = |layer: &Layer| match layer.order {
                Order::AggregateFirst | Order::AttendFirst => layer.propagates,
                // Attention reads the edges by source.
                Order::ByType => layer.propagates || layer.kind.has_attention(),
                Order::TransformFirst | Order::Attend => true,
            };
            let transposes = |l: usize| mode.trains() && by_source(&layers[l]);
            let degrees = |l| if l == 1 { input.second_degrees } else { input.degrees };
            let blocks = (input.blocks, input.typed_nodes);
            adjacency::prepare(&mut inputs.adjacencies, &inputs.spec, blocks, &degrees, &transposes);
        }
        if sparse {
            inputs.read_nonzeros(&layers[0], input, mode);
        } else {
            inputs.read_dense(&layers[0], parameters, input, mode);
        }
        times.prepare = start.elapsed().as_secs_f64();
        for l in 0..layers.len() {
            let start = Instant::now();
            let (before, rest) = layers.split_at_mut(l);
            let given = if l == 0 { input.given } else { &[] };
            rest[0].reserve(input.num_dst(l), given);
            rest[0].forward(inputs.context((l, before.last()), parameters, input, mode), mode);
            let dropout = mode.dropout(l, DropoutSite::Hidden, inputs.spec.dropout);
            let dropout = dropout.map(|dropout| (dropout, input.given_nodes));
            rest[0].append(inputs.level, input.num_dst(l), given, dropout);
            times.forward[l] = start.elapsed().as_secs_f64();
        }
    }

    /// Appends the first layer's output over the only block to `rows`, with dropout of the features alone, and what its weights
    /// multiply to `weight_inputs`, if there are any.
    pub(crate) fn first_layer(
        &mut self,
        parameters: &[f32],
        (input, mode): (Input<'_>, Mode),
        rows: &mut Vec<f32>,
        weight_inputs: &mut [Vec<f32>],
    ) {
        let Self { layers, inputs, .. } = self;
        let (first, sparse) = (&mut layers[0], inputs.nonzeros.is_some());
        first.choose_order(inputs.level, input.blocks.first(), sparse, false);
        if !weight_inputs.is_empty() && !sparse {
            first.order = Order::AggregateFirst;
        }
        inputs.adjacencies[0].prepare(&inputs.spec, &input.blocks[0], input.degrees, input.typed_nodes);
        if sparse {
            inputs.read_nonzeros(first, input, mode);
        } else {
            inputs.read_dense(first, parameters, input, mode);
        }
        let context = inputs.context((0, None), parameters, input, mode);
        first.forward(context, Mode::Evaluation);
        rows.extend_from_slice(first.out.read(input.num_dst(0) * first.shape.out_dim));
        first.append_inputs(context, weight_inputs);
    }

    /// Scores a mini-batch in evaluation mode.
    pub(crate) fn score(&mut self, parameters: &[f32], input: Input<'_>, objective: &Objective) -> Score {
        let decoder = self.decoder();
        objective.score(self.outputs(parameters, input), input.targets, &parameters[decoder..])
    }

    /// Outputs of a mini-batch's seeds in evaluation mode.
    pub(crate) fn outputs(&mut self, parameters: &[f32], input: Input<'_>) -> &[f32] {
        self.forward(parameters, input, Mode::Evaluation);
        let width = self.inputs.spec.num_classes;
        self.layers.last().expect("a model has a layer").out.read(input.num_seeds * width)
    }

    /// Adds the gradients of a mini-batch, unless its loss is not finite. Calls the gradient-ready hook `complete` with
    /// those of each layer after its backward pass.
    pub(crate) fn forward_backward(
        &mut self,
        parameters: &[f32],
        (input, mode): (Input<'_>, Mode),
        objective: &Objective,
        gradients: &mut [f32],
        complete: GradientReady<'_>,
    ) -> Score {
        self.forward(parameters, input, mode);
        let (classes, start) = (self.inputs.spec.num_classes, Instant::now());
        let Self { layers, inputs, first_elements, loss_gradient, scores, times } = self;
        let logits = layers.last().expect("a model has a layer").out.read(input.num_seeds * classes);
        let loss_gradient = loss_gradient.get(logits.len());
        let score = match input.targets {
            Targets::Classes(labels) if objective.is_plain() => {
                cross_entropy(logits, labels, classes, scores, loss_gradient)
            }
            targets => {
                let decoder = first_elements[layers.len()];
                let (decoder, gradients) = (&parameters[decoder..], &mut gradients[decoder..]);
                objective.gradient(logits, targets, decoder, loss_gradient, gradients)
            }
        };
        times.loss = start.elapsed().as_secs_f64();
        if score.count == 0 {
            complete(0, gradients);
        }
        if !score.loss_sum.is_finite() || score.count == 0 {
            return score;
        }
        let mut end = gradients.len();
        for l in (0..layers.len()).rev() {
            let start = Instant::now();
            let (before, rest) = layers.split_at_mut(l);
            let (layer, after) = rest.split_first_mut().expect("layer l");
            let upstream = match after.first() {
                None => Upstream::Rows(loss_gradient),
                Some(next) => next.upstream(inputs.graph(input, l + 1), input.num_dst(l + 1)),
            };
            let context = inputs.context((l, before.last()), parameters, input, mode);
            if l == 0 && !input.given_inputs.is_empty() {
                layer.backward_given(context, upstream, (input.given_inputs, input.given_nodes), gradients);
            }
            layer.backward(context, upstream, gradients);
            if l == 0 {
                inputs.backward(layer, input, mode, gradients);
            }
            times.backward[l] = start.elapsed().as_secs_f64();
            let first = first_elements[l];
            complete(first, &gradients[first..end]);
            end = first;
        }
        score
    }

    /// What makes the input rows, of a model with inputs per node type.
    pub(crate) fn by_type(&mut self) -> Option<&mut TypedInputs> {
        self.inputs.by_type.as_mut()
    }

    /// The input rows of nodes in evaluation mode, of a model with inputs per node type.
    ///
    /// # Panics
    ///
    /// When the model has none.
    pub(crate) fn input_rows(&mut self, parameters: &[f32], nodes: &[u32]) -> &[f32] {
        let LayerInputs { spec, level, by_type, dropped, .. } = &mut self.inputs;
        let by_type = by_type.as_mut().expect("a model with inputs per node type");
        by_type.forward(*level, parameters, nodes, &[], None, dropped);
        dropped.read(nodes.len() * spec.in_dim)
    }

    /// Average bytes of a store row's nonzeros, if features are sparse.
    pub(crate) fn nonzeros_bytes(&self) -> Option<usize> {
        self.inputs.nonzeros.as_ref().map(|(store, _)| store.row_bytes())
    }

    /// Computes one layer over one block in evaluation mode, or over `num_dst` rows without a block; returns the output. `degrees` are
    /// those of the `nodes` of the rows.
    pub(crate) fn evaluate_layer(
        &mut self,
        layer: usize,
        parameters: &[f32],
        (block, num_dst): (Option<&Block>, usize),
        (degrees, nodes): (&[f32], &[u32]),
        input: EvaluationInput<'_>,
    ) -> &[f32] {
        let LayerInputs { spec, level, adjacencies, nonzeros, dataset, .. } = &mut self.inputs;
        let (x, nonzeros) = match input {
            EvaluationInput::Rows(x) => (x, None),
            EvaluationInput::Nonzeros(nodes) => {
                let (store, sparse) = nonzeros.as_mut().expect("the store is sparse");
                sparse.read(store, Some(nodes), nodes.len(), None);
                (&[][..], Some(&*sparse))
            }
        };
        let (adjacency, layer) = (&mut adjacencies[layer], &mut self.layers[layer]);
        layer.choose_order(*level, block, nonzeros.is_some(), false);
        if let Some(block) = block {
            adjacency.prepare(spec, block, degrees, nodes);
        }
        let graph = block.map(|b| (b, &*adjacency));
        let x = InputRows::dense_f32(x);
        let edge_features = &dataset.edge_features[..];
        let context = Context { level: *level, parameters, graph, x, nonzeros, edge_features, nodes: &[], num_dst };
        layer.forward(context, Mode::Evaluation);
        layer.out.read(num_dst * layer.shape.out_dim)
    }
}

/// Input of a layer that is evaluated alone.
#[derive(Debug, Clone, Copy)]
pub(crate) enum EvaluationInput<'a> {
    /// A row per source node.
    Rows(&'a [f32]),
    /// Nodes whose nonzeros are read from the store.
    Nonzeros(&'a [u32]),
}
