//! The operator: parameters, gradients, forward and backward of a mini-batch.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use burn::tensor::{Device, Tensor, TensorData};
use morphgl_graph_store::Dataset;
use morphgl_layers::{Adjacency, BatchStatistics, Mode, Parameters, Pass, adjacency, values};
use morphgl_model_spec::{ModelKind, ParameterSpec, TrainingSpec, check_tensors, initial_parameters};
use morphgl_registry::{
    BatchFeatures, BatchId, Error, Gradients, Handle, HostBatch, MiniBatch, NamedTensor, Place, Result, Score,
    Training, TrainingContext,
};
use rayon::prelude::*;

use crate::KEY;
use crate::infer::{Limits, infer};
use crate::optimizer::Optimizer;

/// Share of a mini-batch's statistics in the running ones of batch normalisation, as in torch.
const MOMENTUM: f32 = 0.1;

/// Trains on CPU threads with burn's flex backend.
pub struct CpuBurn {
    spec: TrainingSpec,
    dataset: Arc<Dataset>,
    seed: u64,
    pool: Arc<rayon::ThreadPool>,
    specs: Vec<ParameterSpec>,
    trainable: Vec<ParameterSpec>,
    // Invariant: as `specs`, in the same order.
    parameters: Vec<NamedTensor>,
    // Invariant: as `trainable`, in the same order.
    gradients: Vec<Vec<f32>>,
    count: u64,
    last: Option<BatchId>,
    optimizer: Optimizer,
}

impl fmt::Debug for CpuBurn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, layers) = (self.spec.model.kind, self.spec.model.layers);
        write!(f, "CpuBurn({layers}-layer {kind}, {} threads)", self.pool.current_num_threads())
    }
}

impl CpuBurn {
    /// Builds the operator with initial parameters.
    ///
    /// # Errors
    ///
    /// A spec that cannot work, that does not fit the dataset, another place than the host, or an option.
    pub fn new(context: &TrainingContext) -> Result<Self> {
        let spec = TrainingSpec::from_json(&context.spec)?;
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
        let classes = context.dataset.num_classes;
        if classes > spec.model.num_classes {
            let what = format!("it is {}, the dataset has {classes}; give {classes}", spec.model.num_classes);
            return Err(Error::setting("model.num_classes", what));
        }
        let specs = spec.model.parameters();
        let trainable: Vec<_> = specs.iter().filter(|p| p.trainable).cloned().collect();
        Ok(Self {
            dataset: Arc::clone(&context.dataset),
            seed: context.seed,
            pool: pool(context.threads)?,
            parameters: initial_parameters(&spec.model, context.seed),
            gradients: trainable.iter().map(|p| vec![0.0; p.len()]).collect(),
            count: 0,
            last: None,
            optimizer: Optimizer::new(spec.optimizer, &trainable),
            specs,
            trainable,
            spec,
        })
    }

    /// The batch's features and blocks, checked against the model.
    fn check<'a>(&self, batch: &'a HostBatch, rows: usize) -> Result<&'a BatchFeatures> {
        let wrong = |what: String| Err(Error::setting(format!("{KEY}, {}", batch.id), what));
        let model = &self.spec.model;
        let Some(features) = &batch.features else {
            return wrong("it has no features; let batching gather them, or transfer it first".to_string());
        };
        if features.dim != model.in_dim {
            return wrong(format!("its features have {} columns, the model reads {}", features.dim, model.in_dim));
        }
        if model.kind != ModelKind::Mlp && batch.blocks.len() != model.layers {
            let (blocks, layers) = (batch.blocks.len(), model.layers);
            return wrong(format!("it has {blocks} blocks for {layers} layers; give a fanout a layer"));
        }
        if features.num_rows() < rows {
            return wrong(format!("it has features of {} nodes, its blocks read {rows}", features.num_rows()));
        }
        if batch.labels.len() != batch.num_seeds {
            return wrong(format!("it has {} labels for {} seeds", batch.labels.len(), batch.num_seeds));
        }
        if let Some(label) = batch.labels.iter().find(|l| **l >= model.num_classes as i32) {
            return wrong(format!("it has a seed of class {label}, the model has {} classes", model.num_classes));
        }
        Ok(features)
    }

    /// Logits of the seeds.
    fn logits(
        &self,
        batch: &HostBatch,
        parameters: &Parameters,
        mode: Mode,
        device: &Device,
        statistics: &mut Vec<BatchStatistics>,
    ) -> Result<Tensor<2>> {
        let model = &self.spec.model;
        let pass = Pass { spec: model, parameters, mode };
        let (blocks, rows): (Vec<Option<Arc<Adjacency>>>, usize) = if model.kind == ModelKind::Mlp {
            (vec![None; model.layers], batch.num_seeds)
        } else {
            let blocks = batch.blocks.par_iter().map(|b| adjacency(model, b, &batch.degrees)).collect();
            (blocks, batch.blocks.first().map_or(0, |b| b.num_src))
        };
        let features = self.check(batch, rows)?;
        Ok(pass.forward(pass.read_features(features.view(), rows, device), &blocks, batch.num_seeds, statistics))
    }

    fn forward_backward(&mut self, batch: &HostBatch) -> Result<Score> {
        let device = Device::flex().autodiff();
        let parameters = Parameters::new(&self.parameters, &device);
        let mut statistics = Vec::new();
        let mode = Mode::Training { seed: self.seed, id: batch.id };
        let logits = self.logits(batch, &parameters, mode, &device, &mut statistics)?;
        let classes = self.spec.model.num_classes;
        let out = values(logits.clone().inner());
        let score = Score::of(&out, &batch.labels, classes);
        if !score.loss_sum.is_finite() {
            let what = "the loss is not a number; lower the learning rate, or look for huge features";
            return Err(Error::failed(format!("{KEY}, {}", batch.id), what));
        }
        self.last = Some(batch.id);
        if score.count == 0 {
            return Ok(score);
        }
        // The loss enters the graph through its gradient: d(sum of logits * g) = g d(logits).
        let gradient = TensorData::new(loss_gradient(&out, &batch.labels, classes), [batch.num_seeds, classes]);
        let mut grads = (logits * Tensor::from_data(gradient, &device)).sum().backward();
        for (p, sums) in self.trainable.iter().zip(&mut self.gradients) {
            // A parameter that no output depends on has no gradient, which is to say 0.
            if let Some(grad) = parameters.get(&p.name).grad_remove(&mut grads) {
                sums.iter_mut().zip(values(grad)).for_each(|(sum, g)| *sum += g);
            }
        }
        self.count += score.count;
        for found in statistics {
            self.blend(&found);
        }
        Ok(score)
    }

    /// Blends a mini-batch's statistics into the running ones.
    fn blend(&mut self, found: &BatchStatistics) {
        for (name, values) in [("running_mean", &found.mean), ("running_var", &found.variance)] {
            let name = format!("norms.{}.module.{name}", found.layer);
            let running = self.parameters.iter_mut().find(|p| p.name == name);
            let running = running.expect("a model with batch normalisation has running statistics");
            running.values.iter_mut().zip(values).for_each(|(r, &v)| *r += MOMENTUM * (v - *r));
        }
    }

    fn evaluate(&self, batch: &HostBatch) -> Result<Score> {
        let device = Device::flex();
        let parameters = Parameters::new(&self.parameters, &device);
        let logits = self.logits(batch, &parameters, Mode::Evaluation, &device, &mut Vec::new())?;
        Ok(Score::of(&values(logits), &batch.labels, self.spec.model.num_classes))
    }

    fn update(&mut self) -> Result<()> {
        let scale = 1.0 / self.count as f32;
        let trainable = self.specs.iter().map(|p| p.trainable);
        let parameters = self.parameters.iter_mut().zip(trainable).filter(|(_, trainable)| *trainable);
        let parameters = parameters.map(|(p, _)| p.values.as_mut_slice());
        self.optimizer.step(&self.trainable, parameters, &self.gradients, scale);
        self.clear();
        let broken = self.parameters.par_iter().find_first(|p| !p.values.iter().all(|v| v.is_finite()));
        match broken {
            None => Ok(()),
            Some(p) => {
                let last = self.last.map_or_else(|| "gradients from outside".to_string(), |id| id.to_string());
                let what =
                    format!("{} is no longer a number; go back to a checkpoint and lower the learning rate", p.name);
                Err(Error::failed(format!("{KEY}, step after {last}"), what))
            }
        }
    }

    fn clear(&mut self) {
        self.gradients.iter_mut().for_each(|g| g.fill(0.0));
        self.count = 0;
    }
}

/// The gradient of the seeds' summed cross-entropy by their logits: softmax less one at the label, 0 without a label.
fn loss_gradient(logits: &[f32], labels: &[i32], num_classes: usize) -> Vec<f32> {
    let mut gradient = vec![0.0; logits.len()];
    for ((row, out), &label) in logits.chunks_exact(num_classes).zip(gradient.chunks_exact_mut(num_classes)).zip(labels)
    {
        if label < 0 {
            continue;
        }
        let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f32 = row.iter().map(|x| (x - max).exp()).sum();
        out.iter_mut().zip(row).for_each(|(o, x)| *o = (x - max).exp() / sum);
        out[label as usize] -= 1.0;
    }
    gradient
}

fn pool(threads: usize) -> Result<Arc<rayon::ThreadPool>> {
    if threads == 0 {
        return Err(Error::setting(KEY, "it is given 0 threads; give it at least one"));
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).thread_name(|i| format!("train-{i}")).build();
    pool.map(Arc::new).map_err(|e| Error::failed(KEY, e))
}

impl Training for CpuBurn {
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
        let tensors = self.trainable.iter().zip(&self.gradients);
        let tensors =
            tensors.map(|(p, g)| NamedTensor { name: p.name.clone(), shape: p.shape.clone(), values: g.clone() });
        Ok(Gradients { tensors: tensors.collect(), count: self.count })
    }

    fn set_gradients(&mut self, gradients: &Gradients) -> Result<()> {
        let found = check_tensors("gradients", &self.trainable, &gradients.tensors)?;
        self.gradients.iter_mut().zip(found).for_each(|(own, found)| own.copy_from_slice(&found.values));
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
        Ok(self.parameters.clone())
    }

    fn set_parameters(&mut self, parameters: &[NamedTensor]) -> Result<()> {
        let found = check_tensors("parameters", &self.specs, parameters)?;
        self.parameters = found.into_iter().cloned().collect();
        Ok(())
    }

    fn optimizer_state(&self) -> Result<Vec<NamedTensor>> {
        Ok(self.optimizer.state(&self.trainable))
    }

    fn set_optimizer_state(&mut self, state: &[NamedTensor]) -> Result<()> {
        self.optimizer.set_state(&self.trainable, state)
    }

    fn score(&mut self, batch: &MiniBatch) -> Result<Handle<Score>> {
        let (start, batch, pool) = (Instant::now(), batch.host()?, Arc::clone(&self.pool));
        let score = pool.install(|| self.evaluate(batch))?;
        Ok(Handle::ready(score, start.elapsed()))
    }

    fn infer(&mut self, nodes: &[u32]) -> Result<Vec<f32>> {
        let pool = Arc::clone(&self.pool);
        pool.install(|| {
            let parameters = Parameters::new(&self.parameters, &Device::flex());
            let pass = Pass { spec: &self.spec.model, parameters: &parameters, mode: Mode::Evaluation };
            infer(&pass, &self.dataset, nodes, Limits::default())
        })
    }
}
