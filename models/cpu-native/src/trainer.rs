//! The operator: parameters, gradients and optimizer of a model, and the checks of what it is given.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use morphgl_graph_store::Dataset;
use morphgl_model_spec::{ModelSpec, ParameterSpec, TrainingSpec, check_tensors, initial_parameters};
use morphgl_registry::{
    BatchId, Error, Gradients, Handle, HostBatch, MiniBatch, NamedTensor, Place, Result, Score, Training,
    TrainingContext,
};

use crate::infer::{Limits, infer};
use crate::layer::Mode;
use crate::level::Level;
use crate::network::{Input, Network, Times, Work, reads_graph};
use crate::optimizer::Optimizer;
use crate::sparse::sparsity;
use crate::{KEY, supports};

/// Trains on CPU threads.
pub struct CpuNative {
    spec: TrainingSpec,
    dataset: Arc<Dataset>,
    seed: u64,
    pool: Arc<rayon::ThreadPool>,
    level: Level,
    // All are trainable: batch normalisation is not supported.
    specs: Vec<ParameterSpec>,
    // Invariant: the elements of `specs`, one after the other; the first layer's stand first.
    parameters: Vec<f32>,
    gradients: Vec<f32>,
    first_layer: usize,
    count: u64,
    last: Option<BatchId>,
    optimizer: Optimizer,
    network: Network,
}

impl fmt::Debug for CpuNative {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, layers) = (self.spec.model.kind, self.spec.model.layers);
        write!(f, "CpuNative({layers}-layer {kind}, {} threads)", self.pool.current_num_threads())
    }
}

impl CpuNative {
    /// Builds the operator with initial parameters.
    ///
    /// # Errors
    ///
    /// A spec that cannot work, that does not fit the dataset or that [`supports`] refuses; another place than the
    /// host, an option, or features that are nearly all zeros.
    pub fn new(context: &TrainingContext) -> Result<Self> {
        let spec = TrainingSpec::from_json(&context.spec)?;
        supports(&spec).map_err(|what| Error::setting("model", what))?;
        if context.place != Place::Host {
            return Err(Error::setting(KEY, format!("it trains at host, not at {}", context.place)));
        }
        if context.options.as_object().map_or(!context.options.is_null(), |o| !o.is_empty()) {
            return Err(Error::setting(KEY, format!("it has no options; leave {} out", context.options)));
        }
        let dim = context.dataset.feature_dim();
        if dim != spec.model.in_dim {
            let what = format!("it is {}, the dataset's features have {dim} columns; give {dim}", spec.model.in_dim);
            return Err(Error::setting("model.in_dim", what));
        }
        if let Some(share) = context.dataset.features.as_ref().and_then(sparsity) {
            let what = format!(
                "{:.1}% of the features are not zero, and it multiplies all of them; use Training_CPU_Burn",
                100.0 * share
            );
            return Err(Error::setting(KEY, what));
        }
        let classes = context.dataset.num_classes;
        if classes > spec.model.num_classes {
            let what = format!("it is {}, the dataset has {classes}; give {classes}", spec.model.num_classes);
            return Err(Error::setting("model.num_classes", what));
        }
        let specs = spec.model.parameters();
        let parameters: Vec<f32> =
            initial_parameters(&spec.model, context.seed).into_iter().flat_map(|t| t.values).collect();
        let level = Level::best();
        Ok(Self {
            dataset: Arc::clone(&context.dataset),
            seed: context.seed,
            pool: pool(context.threads)?,
            level,
            gradients: vec![0.0; parameters.len()],
            first_layer: specs.iter().filter(|p| p.layer == 0).map(ParameterSpec::len).sum(),
            count: 0,
            last: None,
            optimizer: Optimizer::new(spec.optimizer, parameters.len()),
            network: Network::new(&spec.model, &specs, level),
            parameters,
            specs,
            spec,
        })
    }

    /// Seconds that the phases of the last mini-batch took.
    pub fn times(&self) -> &Times {
        self.network.times()
    }

    /// The least work of a mini-batch, in the orders that were chosen for the last.
    ///
    /// # Errors
    ///
    /// A mini-batch that the model cannot read.
    pub fn work(&self, batch: &HostBatch) -> Result<Work> {
        Ok(self.network.work(input(&self.dataset, &self.spec.model, batch)?))
    }

    fn forward_backward(&mut self, batch: &HostBatch) -> Result<Score> {
        let input = input(&self.dataset, &self.spec.model, batch)?;
        let mode = Mode::Training { seed: self.seed, id: batch.id };
        let score = self.network.forward_backward(&self.parameters, input, mode, &mut self.gradients);
        if !score.loss_sum.is_finite() {
            let what = "the loss is not a number; lower the learning rate, or look for huge features";
            return Err(Error::failed(format!("{KEY}, {}", batch.id), what));
        }
        self.last = Some(batch.id);
        self.count += score.count;
        Ok(score)
    }

    fn update(&mut self) -> Result<()> {
        let scale = 1.0 / self.count as f32;
        let (first_layer, gradients) = (self.first_layer, &self.gradients);
        let finite = self.optimizer.step(self.level, &mut self.parameters, gradients, first_layer, scale);
        self.gradients.fill(0.0);
        self.count = 0;
        if finite {
            return Ok(());
        }
        let broken = self.tensors(&self.parameters).into_iter().find(|t| !t.values.iter().all(|v| v.is_finite()));
        let name = broken.map_or_else(|| "a parameter".to_string(), |t| t.name);
        let last = self.last.map_or_else(|| "gradients from outside".to_string(), |id| id.to_string());
        let what = format!("{name} is no longer a number; go back to a checkpoint and lower the learning rate");
        Err(Error::failed(format!("{KEY}, step after {last}"), what))
    }

    /// Flat numbers as tensors.
    fn tensors(&self, values: &[f32]) -> Vec<NamedTensor> {
        let mut rest = values;
        let tensors = self.specs.iter().map(|p| {
            let (own, behind) = rest.split_at(p.len());
            rest = behind;
            NamedTensor { name: p.name.clone(), shape: p.shape.clone(), values: own.to_vec() }
        });
        tensors.collect()
    }
}

/// What a model reads of a mini-batch and, where that has no features, of the dataset; checked.
fn input<'a>(dataset: &'a Dataset, model: &ModelSpec, batch: &'a HostBatch) -> Result<Input<'a>> {
    let wrong = |what: String| Err(Error::setting(format!("{KEY}, {}", batch.id), what));
    let blocks = if reads_graph(model) { &batch.blocks[..] } else { &[] };
    if reads_graph(model) && blocks.len() != model.layers {
        let (blocks, layers) = (blocks.len(), model.layers);
        return wrong(format!("it has {blocks} blocks for {layers} layers; give a fanout a layer"));
    }
    let rows = blocks.first().map_or(batch.num_seeds, |b| b.num_src);
    let (features, dim, num_rows) = match (&batch.features, &dataset.features) {
        (Some(own), _) => (own.view(), own.dim, own.num_rows()),
        (None, Some(store)) => (store.view(), store.dim(), store.num_rows()),
        (None, None) => {
            return wrong("it has no features; let batching gather them, or transfer it first".to_string());
        }
    };
    if dim != model.in_dim {
        return wrong(format!("its features have {dim} columns, the model reads {}", model.in_dim));
    }
    let nodes = match (&batch.features, &dataset.features, batch.input_nodes.get(..rows)) {
        (Some(_), _, _) if num_rows < rows => {
            return wrong(format!("it has features of {num_rows} nodes, its blocks read {rows}"));
        }
        (None, _, None) => {
            let found = batch.input_nodes.len();
            return wrong(format!("it has {found} input nodes, its blocks read {rows}; batch it again"));
        }
        (None, Some(store), Some(nodes)) => {
            // One pass without branches, so that rows of the store are read unchecked.
            let most = nodes.iter().fold(0, |most, &v| most.max(v));
            if most as usize >= num_rows && !nodes.is_empty() {
                let what = format!("the dataset has no features of node {most}, there are {num_rows} rows");
                return wrong(format!("{what}; batch it from the dataset that is trained on"));
            }
            Some((store, nodes))
        }
        _ => None,
    };
    if batch.labels.len() != batch.num_seeds {
        return wrong(format!("it has {} labels for {} seeds", batch.labels.len(), batch.num_seeds));
    }
    if let Some(label) = batch.labels.iter().find(|l| **l >= model.num_classes as i32) {
        return wrong(format!("it has a seed of class {label}, the model has {} classes", model.num_classes));
    }
    if blocks.first().is_some_and(|b| batch.degrees.len() < b.num_src) {
        return wrong(format!("it has degrees of {} nodes, its blocks read {rows}", batch.degrees.len()));
    }
    let chained = blocks.windows(2).all(|b| b[1].num_src <= b[0].num_dst);
    let ends = blocks.last().is_none_or(|b| b.num_dst >= batch.num_seeds);
    if !chained || !ends || blocks.iter().any(|b| b.num_dst > b.num_src || b.indptr.len() != b.num_dst + 1) {
        return wrong("its blocks do not feed one another; batch it again".to_string());
    }
    Ok(Input { blocks, degrees: &batch.degrees, features, rows, nodes, labels: &batch.labels })
}

fn pool(threads: usize) -> Result<Arc<rayon::ThreadPool>> {
    if threads == 0 {
        return Err(Error::setting(KEY, "it is given 0 threads; give it at least one"));
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).thread_name(|i| format!("train-{i}")).build();
    pool.map(Arc::new).map_err(|e| Error::failed(KEY, e))
}

/// Writes tensors over flat numbers, in their order.
fn flatten(found: &[&NamedTensor], values: &mut [f32]) {
    let mut rest = values;
    for tensor in found {
        let (own, behind) = rest.split_at_mut(tensor.values.len());
        own.copy_from_slice(&tensor.values);
        rest = behind;
    }
}

impl Training for CpuNative {
    fn set_threads(&mut self, threads: usize) -> Result<()> {
        if threads != self.pool.current_num_threads() {
            self.pool = pool(threads)?;
        }
        Ok(())
    }

    fn accumulate(&mut self, batch: &MiniBatch) -> Result<Handle<Score>> {
        let (start, batch, pool) = (Instant::now(), batch.host()?, Arc::clone(&self.pool));
        let score = pool.install(|| self.forward_backward(batch))?;
        Ok(Handle::ready(score, start.elapsed()))
    }

    fn gradients(&mut self) -> Result<Gradients> {
        Ok(Gradients { tensors: self.tensors(&self.gradients), count: self.count })
    }

    fn set_gradients(&mut self, gradients: &Gradients) -> Result<()> {
        let found = check_tensors("gradients", &self.specs, &gradients.tensors)?;
        flatten(&found, &mut self.gradients);
        self.count = gradients.count;
        Ok(())
    }

    fn step(&mut self) -> Result<Handle<()>> {
        let (start, pool) = (Instant::now(), Arc::clone(&self.pool));
        if self.count == 0 {
            return Err(Error::setting(
                KEY,
                "no gradient was accumulated since the last step; accumulate labelled seeds first",
            ));
        }
        pool.install(|| self.update())?;
        Ok(Handle::ready((), start.elapsed()))
    }

    fn parameters(&self) -> Result<Vec<NamedTensor>> {
        Ok(self.tensors(&self.parameters))
    }

    fn set_parameters(&mut self, parameters: &[NamedTensor]) -> Result<()> {
        let found = check_tensors("parameters", &self.specs, parameters)?;
        flatten(&found, &mut self.parameters);
        Ok(())
    }

    fn optimizer_state(&self) -> Result<Vec<NamedTensor>> {
        Ok(self.optimizer.state(&self.specs))
    }

    fn set_optimizer_state(&mut self, state: &[NamedTensor]) -> Result<()> {
        self.optimizer.set_state(&self.specs, state)
    }

    fn score(&mut self, batch: &MiniBatch) -> Result<Handle<Score>> {
        let (start, batch, pool) = (Instant::now(), batch.host()?, Arc::clone(&self.pool));
        let input = input(&self.dataset, &self.spec.model, batch)?;
        let score = pool.install(|| self.network.score(&self.parameters, input));
        Ok(Handle::ready(score, start.elapsed()))
    }

    fn infer(&mut self, nodes: &[u32]) -> Result<Vec<f32>> {
        let pool = Arc::clone(&self.pool);
        let model = (&mut self.network, &self.spec.model, &self.parameters[..]);
        pool.install(|| infer(model, &self.dataset, nodes, Limits::default()))
    }
}
