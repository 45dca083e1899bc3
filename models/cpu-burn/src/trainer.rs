//! The operator: parameters, gradients, forward and backward of a mini-batch.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use burn_tensor::{Device, Tensor, TensorData};
use morphgl_graph_store::Dataset;
use morphgl_layers::{
    Adjacency, BatchStatistics, Features, Given, Mode, Parameters, Pass, TypedNodes, adjacency, score,
    submitted_losses, values,
};
use morphgl_model_core::{
    Objective, ParameterSpec, TrainingSpec, broken_parameter, check_context, check_features_by_type, check_first_layer,
    check_inputs, check_loss, check_targets, check_tensors, given_mask_nodes, infer, infer_bytes, initial_parameters,
    mask_nodes, nothing_accumulated, source_degrees, start_threads, targets_of,
};
use morphgl_registry::{
    BatchId, GatherRows, Gradients, Handle, HostBatch, MiniBatch, ModelState, NamedTensor, Result, Score,
    SingleProcess, Targets, Training, TrainingContext,
};
use rayon::prelude::*;

use crate::KEY;
use crate::infer::{Model, edge_bytes, limits};
use crate::optimizer::Optimizer;

/// Momentum of batch normalisation's running statistics, as in torch.
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
    objective: Objective,
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
    /// An invalid spec or one that does not fit the dataset, a place other than the host, or an option.
    pub fn new(context: &TrainingContext) -> Result<Self> {
        let spec = TrainingSpec::from_json(&context.spec)?;
        check_context(KEY, context, &spec)?;
        let specs = spec.model.parameters();
        let trainable: Vec<_> = specs.iter().filter(|p| p.trainable).cloned().collect();
        Ok(Self {
            dataset: Arc::clone(&context.dataset),
            seed: context.seed,
            pool: start_threads(KEY, context.threads)?,
            parameters: initial_parameters(&spec.model, context.seed),
            gradients: trainable.iter().map(|p| vec![0.0; p.len()]).collect(),
            count: 0,
            last: None,
            optimizer: Optimizer::new(spec.optimizer, &trainable),
            objective: Objective::new(&spec.model)?,
            specs,
            trainable,
            spec,
        })
    }

    /// Logits of the seeds.
    fn logits(
        &self,
        batch: &HostBatch,
        parameters: &Parameters,
        mode: Mode<'_>,
        device: &Device,
        statistics: &mut Vec<BatchStatistics>,
    ) -> Result<Tensor<2>> {
        let model = &self.spec.model;
        let pass = Pass { spec: model, parameters, mode };
        let (blocks, rows) = check_inputs(KEY, model, batch, batch.features.as_ref().map(|f| f.dim))?;
        let blocks: Vec<Option<Arc<Adjacency>>> = if model.reads_graph() {
            let degrees = [Cow::Borrowed(&batch.degrees[..]), source_degrees(batch, 1)];
            let nodes = self.typed_nodes(&batch.input_nodes);
            let of_layer =
                |(l, block)| adjacency(model, block, &degrees[usize::from(l == 1)], nodes, &self.dataset.edge_features);
            blocks.par_iter().enumerate().map(of_layer).collect()
        } else {
            vec![None; model.layers]
        };
        let features = match &batch.features {
            _ if !model.input_widths.is_empty() => {
                let types = self.dataset.topology.types().expect("checked with the model");
                check_features_by_type(KEY, model, types, batch)?;
                pass.read_inputs(KEY, &self.dataset, &batch.input_nodes[..rows], &batch.features_by_type)?
            }
            features => pass.read_features(features.as_ref().expect("checked above").view(), rows, device),
        };
        let nodes = given_mask_nodes(KEY, model, &self.dataset.topology, batch)?;
        let (rows, inputs) = batch.given.as_ref().map_or((&[][..], &[][..]), |given| (&given.rows, &given.inputs));
        Ok(pass.forward(features, &blocks, Given { rows, inputs, nodes: &nodes }, batch.num_seeds, statistics))
    }

    /// Nodes with the graph's types; `None` without.
    fn typed_nodes<'a>(&'a self, nodes: &'a [u32]) -> Option<TypedNodes<'a>> {
        self.dataset.topology.types().map(|types| TypedNodes { types, nodes })
    }

    fn forward_backward(&mut self, batch: &HostBatch) -> Result<Score> {
        let device = Device::flex().autodiff();
        let parameters = Parameters::new(&self.parameters, &device);
        let mut statistics = Vec::new();
        let model = &self.spec.model;
        let rows = batch.blocks.first().filter(|_| model.reads_graph()).map_or(batch.num_seeds, |b| b.num_src);
        let nodes = mask_nodes(KEY, model, &self.dataset.topology, batch, rows)?;
        let mode = Mode::Training { seed: self.seed, id: batch.id, nodes: &nodes.into() };
        let logits = self.logits(batch, &parameters, mode, &device, &mut statistics)?;
        check_targets(KEY, model, batch)?;
        let (width, targets) = (self.spec.model.num_classes, targets_of(&self.spec.model, batch));
        let out = values(logits.clone().inner());
        let losses = self.submitted(&logits, targets);
        let (mut gradient, mut of_decoder) = (vec![0.0; out.len()], vec![0.0; self.decoder().len()]);
        let score = match &losses {
            Some(losses) => score(&self.spec.model, &out, &batch.labels, Some(losses)),
            None => self.gradient(&out, targets, &mut gradient, &mut of_decoder),
        };
        check_loss(KEY, batch.id, &score)?;
        self.last = Some(batch.id);
        if score.count == 0 {
            return Ok(score);
        }
        let backward = || match losses {
            Some(losses) => losses.sum().backward(),
            // The loss enters the graph through its gradient: d(sum of outputs * g) = g d(outputs).
            None => {
                let gradient = TensorData::new(gradient, [batch.num_seeds, width]);
                (logits * Tensor::from_data(gradient, &device)).sum().backward()
            }
        };
        // Without layers, features of nodes have no gradient.
        let mut grads = self.trainable.iter().any(|p| p.layer < model.layers).then(backward);
        let of_decoder = self.gradients.iter_mut().rev().zip(split_last(&self.trainable, &of_decoder));
        of_decoder.for_each(|(sums, by_loss)| sums.iter_mut().zip(by_loss).for_each(|(sum, g)| *sum += g));
        for (p, sums) in self.trainable.iter().zip(&mut self.gradients) {
            // A parameter that no output depends on has no gradient: it is 0.
            let grad = grads.as_mut().and_then(|grads| parameters.get(&p.name).grad_remove(grads));
            if let Some(grad) = grad {
                sums.iter_mut().zip(values(grad)).for_each(|(sum, g)| *sum += g);
            }
        }
        self.count += score.count;
        statistics.iter().for_each(|s| self.update_running(s));
        Ok(score)
    }

    /// Updates the running statistics of batch normalisation by those of a mini-batch.
    fn update_running(&mut self, statistics: &BatchStatistics) {
        for (name, values) in [("running_mean", &statistics.mean), ("running_var", &statistics.variance)] {
            let name = format!("norms.{}.module.{name}", statistics.layer);
            let running = self.parameters.iter_mut().find(|p| p.name == name);
            let running = running.expect("a model with batch normalisation has running statistics");
            running.values.iter_mut().zip(values).for_each(|(r, &v)| *r += MOMENTUM * (v - *r));
        }
    }

    fn evaluate(&self, batch: &HostBatch) -> Result<Score> {
        let outputs = self.evaluated(batch)?;
        check_targets(KEY, &self.spec.model, batch)?;
        Ok(self.score_of(outputs, targets_of(&self.spec.model, batch)))
    }

    /// Outputs of a mini-batch's seeds in evaluation mode.
    fn evaluated(&self, batch: &HostBatch) -> Result<Tensor<2>> {
        let device = Device::flex();
        let parameters = Parameters::new(&self.parameters, &device);
        self.logits(batch, &parameters, Mode::Evaluation, &device, &mut Vec::new())
    }

    /// The losses of another crate's function; `None` of a loss of this workspace, or without a label.
    fn submitted(&self, logits: &Tensor<2>, targets: Targets<'_>) -> Option<Tensor<2>> {
        match targets {
            Targets::Classes(labels) if self.objective.is_submitted() => {
                submitted_losses(&self.spec.model, logits, labels)
            }
            _ => None,
        }
    }

    /// The score of outputs, by the model's loss.
    fn score_of(&self, outputs: Tensor<2>, targets: Targets<'_>) -> Score {
        match targets {
            Targets::Classes(labels) if self.objective.is_submitted() => {
                let losses = self.submitted(&outputs, targets);
                score(&self.spec.model, &values(outputs), labels, losses.as_ref())
            }
            _ => self.objective.score(&values(outputs), targets, &self.decoder()),
        }
    }

    /// The score of outputs, and the gradient of the summed loss by them and by the decoder's parameters.
    fn gradient(&self, out: &[f32], targets: Targets<'_>, gradient: &mut [f32], of_decoder: &mut [f32]) -> Score {
        // Without a label, a loss of another crate is not computed.
        match self.objective.is_submitted() {
            true => Score::default(),
            false => self.objective.gradient(out, targets, &self.decoder(), gradient, of_decoder),
        }
    }

    /// The elements of the decoder's parameters, which are the last.
    fn decoder(&self) -> Vec<f32> {
        let layers = self.spec.model.layers;
        let of_decoder = self.specs.iter().zip(&self.parameters).filter(|(p, _)| p.layer == layers);
        of_decoder.flat_map(|(_, tensor)| &tensor.values).copied().collect()
    }

    fn update(&mut self) -> Result<()> {
        let trainable = self.specs.iter().map(|p| p.trainable);
        let parameters = self.parameters.iter_mut().zip(trainable).filter(|(_, trainable)| *trainable);
        let parameters = parameters.map(|(p, _)| p.values.as_mut_slice());
        self.optimizer.step(&self.trainable, parameters, &self.gradients, self.count);
        self.gradients.iter_mut().for_each(|g| g.fill(0.0));
        self.count = 0;
        let broken = self.parameters.par_iter().find_first(|p| !p.values.iter().all(|v| v.is_finite()));
        broken.map_or(Ok(()), |p| Err(broken_parameter(KEY, &p.name, self.last)))
    }
}

/// Cuts `elements`, those of the last parameters, into the elements of each, the last parameter first.
fn split_last<'a>(parameters: &'a [ParameterSpec], mut elements: &'a [f32]) -> impl Iterator<Item = &'a [f32]> {
    parameters.iter().rev().map_while(move |p| {
        let (before, own) = elements.split_at_checked(elements.len().checked_sub(p.len())?)?;
        (elements, _) = (before, own);
        (!own.is_empty()).then_some(own)
    })
}

impl ModelState for CpuBurn {
    fn gradients(&mut self) -> Result<Gradients> {
        let tensors = self.trainable.iter().zip(&self.gradients);
        let tensors =
            tensors.map(|(p, g)| NamedTensor { name: p.name.clone(), shape: p.shape.clone(), values: g.clone() });
        Ok(Gradients { tensors: tensors.collect(), count: self.count })
    }

    fn set_gradients(&mut self, gradients: &Gradients) -> Result<()> {
        let ordered = check_tensors("gradients", &self.trainable, &gradients.tensors)?;
        self.gradients.iter_mut().zip(ordered).for_each(|(own, t)| own.copy_from_slice(&t.values));
        self.count = gradients.count;
        Ok(())
    }

    fn parameters(&self) -> Result<Vec<NamedTensor>> {
        Ok(self.parameters.clone())
    }

    fn set_parameters(&mut self, parameters: &[NamedTensor]) -> Result<()> {
        let ordered = check_tensors("parameters", &self.specs, parameters)?;
        self.parameters = ordered.into_iter().cloned().collect();
        Ok(())
    }

    fn optimizer_state(&self) -> Result<Vec<NamedTensor>> {
        Ok(self.optimizer.state(&self.trainable))
    }

    fn set_optimizer_state(&mut self, state: &[NamedTensor]) -> Result<()> {
        self.optimizer.set_state(&self.trainable, state)
    }
}

impl Training for CpuBurn {
    fn set_threads(&mut self, threads: usize) -> Result<()> {
        if threads != self.pool.current_num_threads() {
            self.pool = start_threads(KEY, threads)?;
        }
        Ok(())
    }

    fn accumulate(&mut self, batch: &MiniBatch) -> Result<Handle<Score>> {
        let (start, batch, pool) = (Instant::now(), batch.host()?, Arc::clone(&self.pool));
        let score = pool.install(|| self.forward_backward(batch))?;
        Ok(Handle::ready(score, start.elapsed()))
    }

    fn step(&mut self) -> Result<Handle<()>> {
        let (start, pool) = (Instant::now(), Arc::clone(&self.pool));
        if self.count == 0 {
            return Err(nothing_accumulated(KEY));
        }
        pool.install(|| self.update())?;
        Ok(Handle::ready((), start.elapsed()))
    }

    fn score(&mut self, batch: &MiniBatch) -> Result<Handle<Score>> {
        let (start, batch, pool) = (Instant::now(), batch.host()?, Arc::clone(&self.pool));
        let score = pool.install(|| self.evaluate(batch))?;
        Ok(Handle::ready(score, start.elapsed()))
    }

    fn outputs(&mut self, batch: &MiniBatch) -> Result<Handle<Vec<f32>>> {
        let (start, batch, pool) = (Instant::now(), batch.host()?, Arc::clone(&self.pool));
        let outputs = pool.install(|| self.evaluated(batch).map(values))?;
        Ok(Handle::ready(outputs, start.elapsed()))
    }

    fn score_logits(&mut self, logits: &[f32], targets: Targets<'_>, width: usize) -> Result<Score> {
        let rows = TensorData::new(logits.to_vec(), [logits.len() / width, width]);
        let pool = Arc::clone(&self.pool);
        Ok(pool.install(|| self.score_of(Tensor::from_data(rows, &Device::flex()), targets)))
    }

    fn first_layer(&mut self, batch: &HostBatch, rows: &mut Vec<f32>, inputs: &mut [Vec<f32>]) -> Option<Result<()>> {
        let (pool, spec) = (Arc::clone(&self.pool), &self.spec.model);
        Some(check_first_layer(KEY, spec, &self.dataset, batch).and_then(|(features, block)| {
            let (nodes, topology) = (&batch.input_nodes, &self.dataset.topology);
            let keys: Arc<[u32]> = mask_nodes(KEY, spec, topology, batch, nodes.len())?.into();
            pool.install(|| {
                let (device, parameters) = (Device::flex(), Parameters::new(&self.parameters, &Device::flex()));
                let reading = Mode::Training { seed: self.seed, id: batch.id, nodes: &keys };
                let dropout = Pass { spec, parameters: &parameters, mode: reading }.input_dropout();
                let pass = Pass { spec, parameters: &parameters, mode: Mode::Evaluation };
                let input = Features::gather(features.view(), features.dim(), nodes, dropout.as_ref(), &device);
                let edges = &self.dataset.edge_features;
                let block = adjacency(spec, block, &batch.degrees, self.typed_nodes(nodes), edges);
                rows.extend(values(pass.layer(0, &input, block.as_ref(), &mut Vec::new())));
                if let (Some(block), false) = (&block, inputs.is_empty()) {
                    let computed = pass.first_inputs(&input, block);
                    inputs.iter_mut().zip(computed).for_each(|(all, input)| all.extend(values(input)));
                }
            });
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
        pool.install(|| {
            let parameters = Parameters::new(&self.parameters, &Device::flex());
            let pass = Pass { spec: &self.spec.model, parameters: &parameters, mode: Mode::Evaluation };
            infer(
                (KEY, pass.spec),
                &mut Model { pass: &pass, dataset: &self.dataset },
                (&self.dataset, nodes),
                layers,
                limits(pass.spec),
                peers,
            )
        })
    }

    fn infer_bytes(&self) -> Option<u64> {
        let (model, limits) = (&self.spec.model, limits(&self.spec.model));
        let edges = self.dataset.topology.num_edges().min(limits.edges as u64);
        Some(infer_bytes(model, &self.dataset, limits) + edges * edge_bytes(model) as u64)
    }
}
