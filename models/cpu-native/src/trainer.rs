//! The operator: parameters, gradients and optimizer of a model, and the checks of mini-batches.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use morphgl_graph_store::{Dataset, FeatureMatrix, FeatureView};
use morphgl_model_core::{
    Limits, ModelKind, ModelSpec, Objective, ParameterSpec, TrainingSpec, broken_parameter, check_context,
    check_features_by_type, check_first_layer, check_inputs, check_loss, check_targets, check_tensors,
    given_mask_nodes, infer, initial_parameters, mask_nodes, nothing_accumulated, refuse_submitted, source_degrees,
    start_threads, targets_of,
};
use morphgl_platform::SimdLevel;
use morphgl_registry::{
    BatchFeatures, BatchId, Error, GatherRows, GradientReady, Gradients, Handle, HostBatch, Key, MiniBatch, ModelState,
    NamedTensor, Pass, Result, Roofline, Score, SingleProcess, Targets, Training, TrainingContext,
};

use crate::infer::{self as inference, InferenceModel};
use crate::layer::{Mode, TypedInputs};
use crate::network::{Input, Network, PassTimes};
use crate::optimizer::Optimizer;
use crate::simd::{has_tiles, vector_level};
use crate::sparse::Nonzeros;
use crate::support::supports_on_tiles;
use crate::{AMX_KEY, KEY, probe, supports};

/// Trains on CPU threads.
pub struct CpuNative {
    key: Key,
    spec: TrainingSpec,
    dataset: Arc<Dataset>,
    seed: u64,
    pool: Arc<rayon::ThreadPool>,
    level: SimdLevel,
    // All are trainable: batch normalisation is not supported.
    specs: Vec<ParameterSpec>,
    // Invariant: the elements of `specs` in order; the first layer's are the first.
    parameters: Vec<f32>,
    gradients: Vec<f32>,
    count: u64,
    last: Option<BatchId>,
    optimizer: Optimizer,
    /// Seconds of the optimizer's last step.
    step_seconds: f64,
    objective: Objective,
    network: Network,
    /// Peak FLOP per second and bytes per second, once they have been measured.
    peaks: Option<(f64, f64)>,
}

impl fmt::Debug for CpuNative {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, layers) = (self.spec.model.kind, self.spec.model.layers);
        let tiles = if has_tiles(self.level) { ", AMX tiles" } else { "" };
        write!(f, "CpuNative({layers}-layer {kind}, {} threads{tiles})", self.pool.current_num_threads())
    }
}

impl CpuNative {
    /// Builds the operator with initial parameters; its GEMMs run on vector registers.
    ///
    /// # Errors
    ///
    /// An invalid spec, a spec that does not fit the dataset or that [`supports`] refuses, a place other than the host, or
    /// an option.
    pub fn new(context: &TrainingContext) -> Result<Self> {
        Self::build(KEY, vector_level(SimdLevel::current()), context)
    }

    /// Builds the operator with initial parameters; its wide GEMMs run on AMX tiles.
    ///
    /// # Errors
    ///
    /// As [`CpuNative::new`]; a model without a wide layer, or a SIMD level without AMX.
    pub fn on_tiles(context: &TrainingContext) -> Result<Self> {
        let level = SimdLevel::current();
        if !has_tiles(level) {
            return Err(Error::setting("the SIMD level", format!("{level} has no AMX tiles; use {KEY}")));
        }
        Self::build(AMX_KEY, level, context)
    }

    fn build(key: Key, level: SimdLevel, context: &TrainingContext) -> Result<Self> {
        let spec = TrainingSpec::from_json(&context.spec)?;
        refuse_submitted(&spec.model)?;
        let supported = if has_tiles(level) { supports_on_tiles(&spec) } else { supports(&spec) };
        supported.map_err(|message| Error::setting("model", message))?;
        check_context(key.clone(), context, &spec)?;
        let specs = spec.model.parameters();
        // The model's own types may count other nodes.
        let types = spec.model.types.as_ref().and(context.dataset.topology.types()).map(|types| types.as_ref().clone());
        let of_dataset = ModelSpec { types, ..spec.model.clone() };
        let parameters: Vec<f32> =
            initial_parameters(&spec.model, context.seed).into_iter().flat_map(|t| t.values).collect();
        let pool = start_threads(key.clone(), context.threads)?;
        let features = context.dataset.features.as_ref().map(|f| (f.view(), f.dim()));
        // Typed layers gather dense rows, and so does a model without layers.
        let dense = spec.model.kind.is_typed() || spec.model.kind == ModelKind::Embedding;
        let sparse = features.filter(|(view, dim)| !dense && view.is_sparse(*dim));
        let nonzeros = sparse.map(|(view, dim)| pool.install(|| Nonzeros::of(view, dim)));
        Ok(Self {
            key,
            dataset: Arc::clone(&context.dataset),
            seed: context.seed,
            pool,
            level,
            gradients: vec![0.0; parameters.len()],
            count: 0,
            last: None,
            optimizer: Optimizer::new(spec.optimizer, &specs),
            step_seconds: 0.0,
            objective: Objective::new(&spec.model)?,
            network: Network::new((&of_dataset, &specs), level, &context.dataset, nonzeros),
            peaks: None,
            parameters,
            specs,
            spec,
        })
    }

    /// Seconds that the passes over the last mini-batch took: preparation, forward, loss and backward.
    pub fn times(&self) -> &PassTimes {
        self.network.times()
    }

    /// The passes of the last step, which was over `batch`, with the least work in the orders of aggregation and GEMM chosen for it.
    ///
    /// # Errors
    ///
    /// A mini-batch that does not fit the model.
    pub fn passes(&self, batch: &HostBatch) -> Result<Vec<Pass>> {
        let second_degrees = source_degrees(batch, 1);
        let input = input(&self.key, &self.dataset, &self.spec.model, batch, &second_degrees)?;
        let mut passes = self.network.passes(input);
        let bytes = self.optimizer.step_bytes() as f64;
        passes.push(Pass { name: "optimizer".to_string(), seconds: self.step_seconds, flops: 0.0, bytes });
        Ok(passes)
    }

    /// For tests and benches: makes all layers of a GAT attend to their input rows and multiply the sums, or multiply the
    /// rows and attend to these; without a value each layer does what takes less work.
    #[doc(hidden)]
    pub fn attend_first(&mut self, first: Option<bool>) {
        self.network.attend_first(first);
    }

    fn forward_backward(&mut self, batch: &HostBatch, complete: GradientReady<'_>) -> Result<Score> {
        let model = &self.spec.model;
        let (topology, second_degrees) = (&self.dataset.topology, source_degrees(batch, 1));
        let input = input(&self.key, &self.dataset, model, batch, &second_degrees)?;
        check_targets(self.key.clone(), model, batch)?;
        let mask_nodes = mask_nodes(self.key.clone(), model, topology, batch, input.rows)?;
        let mode = Mode::Training { seed: self.seed, id: batch.id };
        let given_nodes = given_mask_nodes(self.key.clone(), model, topology, batch)?;
        let input = Input { mask_nodes: &mask_nodes, given_nodes: &given_nodes, ..input };
        let score = self.network.forward_backward(
            &self.parameters,
            (input, mode),
            &self.objective,
            &mut self.gradients,
            complete,
        );
        check_loss(self.key.clone(), batch.id, &score)?;
        self.last = Some(batch.id);
        self.count += score.count;
        Ok(score)
    }

    fn update(&mut self) -> Result<()> {
        let (gradients, mut by_type) = (&self.gradients, self.network.by_type());
        let rows = by_type.as_mut().map(|inputs| inputs.touched());
        let finite = self.optimizer.step(self.level, &mut self.parameters, gradients, rows, self.count);
        self.optimizer.clear(&mut self.gradients);
        by_type.into_iter().for_each(|inputs| inputs.forget(&mut self.gradients));
        self.count = 0;
        if finite {
            return Ok(());
        }
        let broken = self.tensors(&self.parameters).into_iter().find(|t| !t.values.iter().all(|v| v.is_finite()));
        Err(broken_parameter(self.key.clone(), broken.as_ref().map_or("a parameter", |t| &t.name), self.last))
    }

    /// The elements of all parameters as tensors.
    fn tensors(&self, mut values: &[f32]) -> Vec<NamedTensor> {
        let tensors = self.specs.iter().map(|p| {
            let values = values.split_off(..p.len()).expect("the elements of every parameter").to_vec();
            NamedTensor { name: p.name.clone(), shape: p.shape.clone(), values }
        });
        tensors.collect()
    }
}

/// The checked input of a model: the mini-batch, and the dataset's features if the mini-batch has none.
fn input<'a>(
    key: &Key,
    dataset: &'a Dataset,
    model: &ModelSpec,
    batch: &'a HostBatch,
    second_degrees: &'a [f32],
) -> Result<Input<'a>> {
    let wrong = |message: String| Err(Error::setting(format!("{key}, {}", batch.id), message));
    // Inputs per node type are read from the dataset where the mini-batch has none.
    let by_type = !model.input_widths.is_empty();
    let store = dataset.features.as_ref().filter(|_| batch.features.is_none() && !by_type);
    let dim = batch.features.as_ref().map(|features| features.dim).or(store.map(FeatureMatrix::dim));
    let (blocks, rows) = check_inputs(key.clone(), model, batch, dim)?;
    let nodes = match (store, batch.input_nodes.get(..rows)) {
        (None, _) => None,
        (Some(_), None) => {
            let count = batch.input_nodes.len();
            return wrong(format!("it has {count} input nodes, its blocks read {rows}; batch it again"));
        }
        (Some(store), Some(nodes)) => {
            // Rows of the store are read unchecked, so all nodes are checked here, in one pass without branches.
            let largest = nodes.iter().fold(0, |largest, &v| largest.max(v));
            let num_rows = store.num_rows();
            if largest as usize >= num_rows && !nodes.is_empty() {
                let message = format!("the dataset has no features of node {largest}, there are {num_rows} rows");
                return wrong(format!("{message}; batch it from the dataset that is trained on"));
            }
            Some((store, nodes))
        }
    };
    let typed_nodes = check_types_of(key, dataset, model, batch, rows)?;
    let gathered = batch.features.as_ref().map(BatchFeatures::view);
    let features = match gathered.or(store.map(FeatureMatrix::view)) {
        _ if by_type => FeatureView::F32(&[]),
        features => features.expect("`check_inputs` refuses a mini-batch without them"),
    };
    let HostBatch { degrees, num_seeds, .. } = batch;
    let given = batch.given.as_ref().map_or(&[][..], |given| &given.rows);
    let given_inputs = batch.given.as_ref().filter(|given| !given.nodes.is_empty());
    let given_inputs = given_inputs.map_or(&[][..], |given| &given.inputs);
    Ok(Input {
        blocks,
        degrees,
        second_degrees,
        given,
        given_inputs,
        given_nodes: &[],
        features,
        rows,
        nodes,
        mask_nodes: &[],
        typed_nodes,
        features_by_type: if by_type { &batch.features_by_type } else { &[] },
        num_seeds: *num_seeds,
        targets: targets_of(model, batch),
    })
}

/// The nodes of the input rows of a typed model, whose types and whose edges' types are checked; none of another model.
fn check_types_of<'a>(
    key: &Key,
    dataset: &Dataset,
    model: &ModelSpec,
    batch: &'a HostBatch,
    rows: usize,
) -> Result<&'a [u32]> {
    let Some(types) = dataset.topology.types().filter(|_| model.types.is_some()) else { return Ok(&[]) };
    let wrong = |what: String| {
        let what = format!("{what}; batch it from the dataset that is trained on");
        Err(Error::setting(format!("{key}, {}", batch.id), what))
    };
    let Some(nodes) = batch.input_nodes.get(..rows) else {
        return wrong(format!("it has {} input nodes, its blocks read {rows}", batch.input_nodes.len()));
    };
    if let Some(node) = nodes.iter().copied().max().filter(|&node| node as usize >= types.num_nodes()) {
        return wrong(format!("node {node} is not in the graph, which has {}", types.num_nodes()));
    }
    check_features_by_type(key.clone(), model, types, batch)?;
    let blocks = || batch.blocks.iter().filter(|_| model.kind.is_typed());
    if blocks().any(|block| block.edge_types.as_ref().map(Vec::len) != Some(block.num_edges())) {
        return wrong("its edges have no types".to_string());
    }
    let largest = blocks().flat_map(|block| &block.edge_types).flatten().copied().max();
    if let Some(edge_type) = largest.filter(|&edge_type| usize::from(edge_type) >= types.edge_types().len()) {
        return wrong(format!("it has an edge of type {edge_type}, there are {}", types.edge_types().len()));
    }
    let rows_of = |edge_type: u16| {
        let features = dataset.edge_features.get(usize::from(edge_type)).and_then(Option::as_ref);
        features.map_or(usize::MAX, FeatureMatrix::num_rows)
    };
    let edges = blocks().filter(|_| model.reads_edges()).flat_map(|block| block.edge_types.iter().zip(&block.edge_ids));
    let mut edges = edges.flat_map(|(types, ids)| types.iter().zip(ids));
    if let Some((&edge_type, id)) = edges.find(|&(&edge_type, &id)| id as usize >= rows_of(edge_type)) {
        let (name, rows) = (&types.edge_types()[usize::from(edge_type)], rows_of(edge_type));
        return wrong(format!("an edge of type {name} has row {id} of their features, there are {rows}"));
    }
    Ok(nodes)
}

/// Copies the elements of tensors, in order, to `values`.
fn flatten(tensors: &[&NamedTensor], values: &mut [f32]) {
    let elements = tensors.iter().flat_map(|tensor| &tensor.values);
    values.iter_mut().zip(elements).for_each(|(value, element)| *value = *element);
}

impl ModelState for CpuNative {
    fn gradients(&mut self) -> Result<Gradients> {
        Ok(Gradients { tensors: self.tensors(&self.gradients), count: self.count })
    }

    fn set_gradients(&mut self, gradients: &Gradients) -> Result<()> {
        flatten(&check_tensors("gradients", &self.specs, &gradients.tensors)?, &mut self.gradients);
        self.network.by_type().into_iter().for_each(TypedInputs::touch_all);
        self.count = gradients.count;
        Ok(())
    }

    fn parameters(&self) -> Result<Vec<NamedTensor>> {
        Ok(self.tensors(&self.parameters))
    }

    fn set_parameters(&mut self, parameters: &[NamedTensor]) -> Result<()> {
        flatten(&check_tensors("parameters", &self.specs, parameters)?, &mut self.parameters);
        Ok(())
    }

    fn optimizer_state(&self) -> Result<Vec<NamedTensor>> {
        Ok(self.optimizer.state(&self.specs))
    }

    fn set_optimizer_state(&mut self, state: &[NamedTensor]) -> Result<()> {
        self.optimizer.set_state(&self.specs, state)
    }
}

impl Training for CpuNative {
    fn set_threads(&mut self, threads: usize) -> Result<()> {
        if threads != self.pool.current_num_threads() {
            self.pool = start_threads(self.key.clone(), threads)?;
        }
        Ok(())
    }

    fn accumulate(&mut self, batch: &MiniBatch) -> Result<Handle<Score>> {
        self.accumulate_last(batch, &mut |_, _| {})
    }

    /// Backward goes from the last layer to the first; each layer's gradients are complete after its own.
    fn accumulate_last(&mut self, batch: &MiniBatch, complete: GradientReady<'_>) -> Result<Handle<Score>> {
        let (start, batch, pool) = (Instant::now(), batch.host()?, Arc::clone(&self.pool));
        let score = pool.install(|| self.forward_backward(batch, complete))?;
        Ok(Handle::ready(score, start.elapsed()))
    }

    fn step(&mut self) -> Result<Handle<()>> {
        let (start, pool) = (Instant::now(), Arc::clone(&self.pool));
        if self.count == 0 {
            return Err(nothing_accumulated(self.key.clone()));
        }
        pool.install(|| self.update())?;
        self.step_seconds = start.elapsed().as_secs_f64();
        Ok(Handle::ready((), start.elapsed()))
    }

    fn score(&mut self, batch: &MiniBatch) -> Result<Handle<Score>> {
        let (start, batch, pool) = (Instant::now(), batch.host()?, Arc::clone(&self.pool));
        let second_degrees = source_degrees(batch, 1);
        let input = input(&self.key, &self.dataset, &self.spec.model, batch, &second_degrees)?;
        check_targets(self.key.clone(), &self.spec.model, batch)?;
        let score = pool.install(|| self.network.score(&self.parameters, input, &self.objective));
        Ok(Handle::ready(score, start.elapsed()))
    }

    fn outputs(&mut self, batch: &MiniBatch) -> Result<Handle<Vec<f32>>> {
        let (start, batch, pool) = (Instant::now(), batch.host()?, Arc::clone(&self.pool));
        let second_degrees = source_degrees(batch, 1);
        let input = input(&self.key, &self.dataset, &self.spec.model, batch, &second_degrees)?;
        let outputs = pool.install(|| self.network.outputs(&self.parameters, input).to_vec());
        Ok(Handle::ready(outputs, start.elapsed()))
    }

    fn score_logits(&mut self, logits: &[f32], targets: Targets<'_>, _width: usize) -> Result<Score> {
        let (pool, decoder) = (Arc::clone(&self.pool), &self.parameters[self.network.decoder()..]);
        Ok(pool.install(|| self.objective.score(logits, targets, decoder)))
    }

    fn first_layer(&mut self, batch: &HostBatch, rows: &mut Vec<f32>, inputs: &mut [Vec<f32>]) -> Option<Result<()>> {
        let (pool, dataset) = (Arc::clone(&self.pool), Arc::clone(&self.dataset));
        let (key, model) = (self.key.clone(), &self.spec.model);
        let mode = match model.input_dropout > 0.0 {
            true => Mode::Training { seed: self.seed, id: batch.id },
            false => Mode::Evaluation,
        };
        if !model.input_widths.is_empty() {
            return None;
        }
        Some(check_first_layer(key.clone(), model, &dataset, batch).and_then(|(store, _)| {
            let HostBatch { blocks, degrees, input_nodes, .. } = batch;
            let (rows_read, nodes) = (input_nodes.len(), Some((store, &input_nodes[..])));
            let typed_nodes = check_types_of(&key, &dataset, model, batch, rows_read)?;
            let mask_nodes = mask_nodes(key, model, &dataset.topology, batch, rows_read)?;
            let features = store.view();
            let input = Input {
                blocks,
                degrees,
                features,
                rows: rows_read,
                nodes,
                mask_nodes: &mask_nodes,
                typed_nodes,
                ..Input::NONE
            };
            pool.install(|| self.network.first_layer(&self.parameters, (input, mode), rows, inputs));
            Ok(())
        }))
    }

    fn infer(&mut self, nodes: &[u32]) -> Result<Vec<f32>> {
        self.infer_together(nodes, &mut SingleProcess)
    }

    fn infer_together(&mut self, nodes: &[u32], peers: &mut dyn GatherRows) -> Result<Vec<f32>> {
        self.embed(nodes, self.spec.model.layers, peers)
    }

    fn embed(&mut self, nodes: &[u32], layers: usize, peers: &mut dyn GatherRows) -> Result<Vec<f32>> {
        let pool = Arc::clone(&self.pool);
        let spec = &self.spec.model;
        let (network, parameters) = (&mut self.network, &self.parameters[..]);
        let mut model = InferenceModel { network, spec, parameters, input: Vec::new() };
        let (key, of, limits) = (self.key.clone(), (&*self.dataset, nodes), Limits::default());
        pool.install(|| infer((key, spec), &mut model, of, layers, limits, peers))
    }

    fn roofline(&mut self, batch: &MiniBatch) -> Option<Result<Roofline>> {
        let tiles = has_tiles(self.level);
        let measure = || {
            let peaks = probe::peak_flops();
            (peaks.tiles.filter(|_| tiles).unwrap_or(peaks.vectors), probe::read_bandwidth())
        };
        let (flops_per_s, bytes_per_s) = *self.peaks.get_or_insert_with(|| self.pool.install(measure));
        let passes = batch.host().and_then(|batch| self.passes(batch));
        Some(passes.map(|passes| Roofline { flops_per_s, bytes_per_s, passes }))
    }

    fn infer_bytes(&self) -> Option<u64> {
        Some(inference::bytes(&self.spec.model, &self.dataset, Limits::default()))
    }
}
