//! `Training_CPU_Torch` and `Training_CUDA_Torch`: a torch module and its optimizer behind the trait of training operators, which takes
//! mini-batches of the host, or of the device that the module lies on. What torch does is in `python/morphgl/module.py`; here mini-batches
//! and tensors change their form.

use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use morphgl_cuda::{BACKEND, CUDA, Device, Exporter, accelerators};
use morphgl_graph_store::{Dataset, FeatureView, Topology};
use morphgl_model_core::{ModelKind, ModelSpec, TrainingSpec};
use morphgl_registry::{
    At, BatchFeatures, BatchId, Block, Build, Description, Error, Gradients, Handle, Hardware, HostBatch, Key,
    MiniBatch, ModelState, NamedTensor, Phase, Place, Result, Score, Targets, Training, TrainingContext, Unavailable,
    submit,
};
use pyo3::call::PyCallArgs;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::array::borrowed;
use crate::batch::{Arrays, Form, Spares};
use crate::buffer::{Buffer, Kind};
use crate::device_batch::DeviceBatch;
use crate::loader::Made;

const KEY: Key = Key::new(Phase::Training, Hardware::CPU, "Torch");
const CUDA_KEY: Key = Key::new(Phase::Training, Hardware::new(&[CUDA]), "Torch");

submit! {
    Description::new(
        KEY,
        "trains the torch module that morphgl.train was given",
        At::Host,
        At::Host,
        Build::Training(|context| Ok(Box::new(Torch::new(KEY, context)?) as Box<dyn Training>)),
    )
    .with_probe(|_| has_module())
    .with_own_model()
    .taking_pairs()
}

submit! {
    Description::new(
        CUDA_KEY,
        "trains the torch module that morphgl.train was given on the CUDA device where it lies",
        At::Device(BACKEND),
        At::Device(BACKEND),
        Build::Training(|context| Ok(Box::new(Torch::new(CUDA_KEY, context)?) as Box<dyn Training>)),
    )
    .with_probe(|machine| has_module().and_then(|()| morphgl_cuda::probe(machine)))
    .with_accelerators(accelerators)
    .queueing()
    .with_own_model()
    .taking_pairs()
}

fn has_module() -> std::result::Result<(), Unavailable> {
    match &*slot(&TRAINER) {
        Some(_) => Ok(()),
        None => Err(Unavailable { reason: "give a torch module to morphgl.train".to_string() }),
    }
}

/// The `ModuleTrainer` of the command that runs.
static TRAINER: Mutex<Option<Py<PyAny>>> = Mutex::new(None);
/// What Python raised in it last.
static RAISED: Mutex<Option<PyErr>> = Mutex::new(None);

fn slot<T>(slot: &Mutex<Option<T>>) -> std::sync::MutexGuard<'_, Option<T>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes `trainer` the one that the operator trains, while the value lives.
pub(crate) struct TrainerGuard;

impl TrainerGuard {
    /// Refuses a second module beside one that a command trains.
    pub(crate) fn new(trainer: Py<PyAny>) -> PyResult<Self> {
        let mut current = slot(&TRAINER);
        if current.is_some() {
            let what = "another command trains a torch module in this process; wait for its end";
            return Err(PyRuntimeError::new_err(what));
        }
        *current = Some(trainer);
        *slot(&RAISED) = None;
        Ok(Self)
    }

    /// The exception that the module or its optimizer raised.
    pub(crate) fn raised(&self) -> Option<PyErr> {
        slot(&RAISED).take()
    }
}

impl Drop for TrainerGuard {
    fn drop(&mut self) {
        *slot(&TRAINER) = None;
    }
}

/// What is done where an error of evaluation is raised.
const OF_ALL: &str = "evaluation with all neighbours";

/// The operator.
#[derive(Debug)]
struct Torch {
    key: Key,
    /// Of mini-batches on a device.
    exporter: Option<Exporter>,
    trainer: Py<PyAny>,
    dataset: Arc<Dataset>,
    form: Form,
    layers: usize,
    seed: u64,
    /// Whether a mini-batch was accumulated since the last step.
    accumulated: bool,
    spares: Arc<Spares>,
}

/// A tensor on its way to Python: name, shape, elements.
type ToPython = (String, Vec<usize>, Buffer);
/// A tensor from Python: name, shape, elements as a numpy array.
type FromPython<'py> = (String, Vec<usize>, Bound<'py, PyAny>);

impl Torch {
    fn new(key: Key, context: &TrainingContext) -> Result<Self> {
        let spec = TrainingSpec::from_json(&context.spec)?;
        if spec.model.kind != ModelKind::Custom {
            let what = format!("it trains torch modules, and no {}; leave --training out", spec.model.kind);
            return Err(Error::setting(key, what));
        }
        let trainer = Python::attach(|py| slot(&TRAINER).as_ref().map(|trainer| trainer.clone_ref(py)));
        let trainer =
            trainer.ok_or_else(|| Error::setting(&key, "there is no torch module; give one to morphgl.train"))?;
        let exporter = match &context.place {
            Place::Host => None,
            place => {
                let lies_at: String = Python::attach(|py| trainer.bind(py).call_method0("place")?.extract::<String>())
                    .map_err(|error| Error::failed(&key, error.to_string()))?;
                if lies_at != place.to_string() {
                    let what = format!("the module lies at {lies_at}, not at {place}; give training=\"{KEY}\"");
                    return Err(Error::setting(key, what));
                }
                Some(Exporter::new(&Device::open(place, &key)?, &context.dataset)?)
            }
        };
        let mut operator = Self {
            key: key.clone(),
            exporter,
            trainer,
            dataset: Arc::clone(&context.dataset),
            form: Form::Edges,
            layers: spec.model.layers,
            seed: context.seed,
            accumulated: false,
            // Mini-batches themselves belong to the executor, which uses their memory again.
            spares: Spares::of_arrays(2),
        };
        let form: String = operator.ask(&key, "form", ())?;
        operator.form = Form::named(&form);
        let ModelSpec { task, loss, num_classes, edge_outputs, .. } = &spec.model;
        // Settings of the loss that are not given have their defaults.
        let values = loss.settings().iter().map(|s| (s.name.to_string(), spec.model.loss_settings().value(s.name)));
        let settings = serde_json::Value::Object(values.collect()).to_string();
        let own = ["loss", "decoder"].map(|setting| spec.model.settings().word(setting));
        let widths = [*num_classes, *edge_outputs];
        operator.tell("learn", (task.to_string(), loss.to_string(), settings, widths, own, context.seed))?;
        operator.set_threads(context.threads)?;
        Ok(operator)
    }

    /// Calls a method of the Python trainer and returns its value; `context` is what an error names.
    fn ask<T>(&self, context: &dyn Display, method: &str, arguments: impl for<'py> PyCallArgs<'py>) -> Result<T>
    where
        T: for<'a, 'py> FromPyObject<'a, 'py>,
    {
        Python::attach(|py| {
            let called = self.trainer.bind(py).call_method1(method, arguments);
            called
                .and_then(|value| value.extract::<T>().map_err(Into::into))
                .map_err(|error| raised(py, context, error))
        })
    }

    /// Calls a method of the Python trainer.
    fn tell(&self, method: &str, arguments: impl for<'py> PyCallArgs<'py>) -> Result<()> {
        Python::attach(|py| {
            let called = self.trainer.bind(py).call_method1(method, arguments);
            called.map(drop).map_err(|error| raised(py, &self.key, error))
        })
    }

    /// Calls a method of the Python trainer that gives an array of f32.
    fn floats(&self, method: &str, arguments: impl for<'py> PyCallArgs<'py>) -> Result<Vec<f32>> {
        Python::attach(|py| {
            let values = self.trainer.bind(py).call_method1(method, arguments);
            let values = values.and_then(|values| Ok(borrowed::<f32>(method, &values)?.to_vec()));
            values.map_err(|error| raised(py, &format!("{}, {OF_ALL}", self.key), error))
        })
    }

    fn score_of(&self, batch: &MiniBatch, method: &str) -> Result<Handle<Score>> {
        let start = Instant::now();
        let id = batch.id();
        let context = format!("{}, {id}", self.key);
        let lent = self.lend(batch)?;
        let id = (self.seed, id.epoch, id.index);
        let (loss_sum, correct, count): (f64, u64, u64) = self.ask(&context, method, (lent, id))?;
        if !loss_sum.is_finite() {
            let what = "the loss is not a number; lower the learning rate, or look for huge features";
            return Err(Error::failed(context, what));
        }
        Ok(Handle::ready(Score { loss_sum, correct, count }, start.elapsed()))
    }

    /// A copy of a mini-batch, which the module may keep.
    fn lend(&self, batch: &MiniBatch) -> Result<Made> {
        match &self.exporter {
            None => Ok(Made::Host(self.lend_host(batch.host()?.clone(), self.form))),
            Some(exporter) => {
                let exported = exporter.export_copy(batch, self.form.edge_list())?;
                Ok(Made::Device(DeviceBatch::new(exported, self.form)))
            }
        }
    }

    fn lend_host(&self, host: HostBatch, form: Form) -> crate::batch::Batch {
        let (mut arrays, _): (Arrays, _) = self.spares.take();
        arrays.fill(host, form, &self.dataset, None);
        arrays.lend(form, &self.spares)
    }

    fn take(&self, method: &str) -> Result<Vec<NamedTensor>> {
        Python::attach(|py| {
            let taken = self.trainer.bind(py).call_method0(method);
            let tensors = taken.and_then(|tensors| tensors_of(tensors.extract::<Vec<FromPython<'_>>>()?));
            tensors.map_err(|error| raised(py, &self.key, error))
        })
    }

    fn give(&self, method: &str, tensors: &[NamedTensor]) -> Result<()> {
        self.tell(method, (given(tensors),))
    }
}

/// A copy of elements, for Python alone.
fn copied<T: bytemuck::NoUninit + Send + Sync>(values: &[T], shape: Vec<usize>, kind: Kind) -> Buffer {
    let owner = Arc::new(values.to_vec());
    // SAFETY: the owner keeps the elements, which nothing else has.
    unsafe { Buffer::new(bytemuck::cast_slice(owner.as_slice()), shape, kind, false, Arc::clone(&owner) as _) }
}

/// Pairs as Python has them: `[pairs, 2]`.
fn copied_pairs(pairs: &[[u32; 2]]) -> Buffer {
    copied(pairs.as_flattened(), vec![pairs.len(), 2], Kind::I32)
}

/// Keeps what Python raised, and makes an error of it.
fn raised(py: Python<'_>, context: &dyn Display, error: PyErr) -> Error {
    let text = error.to_string();
    *slot(&RAISED) = Some(error.clone_ref(py));
    Error::failed(context, text)
}

fn tensors_of(taken: Vec<FromPython<'_>>) -> PyResult<Vec<NamedTensor>> {
    let tensor = |(name, shape, values): FromPython<'_>| {
        let values = borrowed::<f32>(&name, &values)?.to_vec();
        Ok(NamedTensor { name, shape, values })
    };
    taken.into_iter().map(tensor).collect()
}

fn given(tensors: &[NamedTensor]) -> Vec<ToPython> {
    let tensor = |tensor: &NamedTensor| {
        let buffer = copied(&tensor.values, tensor.shape.clone(), Kind::F32);
        (tensor.name.clone(), tensor.shape.clone(), buffer)
    };
    tensors.iter().map(tensor).collect()
}

impl ModelState for Torch {
    fn gradients(&mut self) -> Result<Gradients> {
        Ok(Gradients { tensors: self.take("gradients")?, count: self.ask(&self.key, "count", ())? })
    }

    fn set_gradients(&mut self, gradients: &Gradients) -> Result<()> {
        self.accumulated = true;
        self.tell("set_gradients", (given(&gradients.tensors), gradients.count))
    }

    fn parameters(&self) -> Result<Vec<NamedTensor>> {
        self.take("parameters")
    }

    fn set_parameters(&mut self, parameters: &[NamedTensor]) -> Result<()> {
        self.give("set_parameters", parameters)
    }

    fn optimizer_state(&self) -> Result<Vec<NamedTensor>> {
        self.take("optimizer_state")
    }

    fn set_optimizer_state(&mut self, state: &[NamedTensor]) -> Result<()> {
        self.give("set_optimizer_state", state)
    }
}

impl Training for Torch {
    fn set_threads(&mut self, threads: usize) -> Result<()> {
        self.tell("set_threads", (threads,))
    }

    fn accumulate(&mut self, batch: &MiniBatch) -> Result<Handle<Score>> {
        let score = self.score_of(batch, "accumulate")?;
        self.accumulated = true;
        Ok(score)
    }

    fn step(&mut self) -> Result<Handle<()>> {
        if !std::mem::take(&mut self.accumulated) {
            return Err(Error::setting(&self.key, "nothing was accumulated; accumulate a mini-batch before a step"));
        }
        let start = Instant::now();
        self.tell("step", ())?;
        Ok(Handle::ready((), start.elapsed()))
    }

    fn score(&mut self, batch: &MiniBatch) -> Result<Handle<Score>> {
        self.score_of(batch, "score")
    }

    fn outputs(&mut self, batch: &MiniBatch) -> Result<Handle<Vec<f32>>> {
        let start = Instant::now();
        let seeds: Vec<i64> = (0..batch.num_seeds() as i64).collect();
        let batch = self.lend(batch)?;
        let outputs = self.floats("infer", (batch, copied(&seeds, vec![seeds.len()], Kind::I64)))?;
        Ok(Handle::ready(outputs, start.elapsed()))
    }

    fn score_logits(&mut self, logits: &[f32], targets: Targets<'_>, width: usize) -> Result<Score> {
        let rows = logits.len().checked_div(width).unwrap_or(0);
        let classes = |labels: &[i32]| Some(copied(labels, vec![labels.len()], Kind::I32));
        let of_rows = |values: &[f32], rows: usize| {
            let width = values.len().checked_div(rows).unwrap_or(0);
            Some(copied(values, vec![rows, width], Kind::F32))
        };
        let (targets, pairs) = match targets {
            Targets::Classes(labels) => (classes(labels), None),
            Targets::Values(values) => (of_rows(values, rows), None),
            Targets::Pairs(pairs) => (None, Some(pairs)),
            Targets::PairClasses(pairs, labels) => (classes(labels), Some(pairs)),
            Targets::PairValues(pairs, values) => (of_rows(values, pairs.ends.len()), Some(pairs)),
        };
        let num_positives = pairs.map_or(0, |pairs| pairs.num_positives);
        let pairs = pairs.map(|pairs| copied_pairs(&pairs.ends));
        let outputs = copied(logits, vec![rows, width], Kind::F32);
        let context = format!("{}, {OF_ALL}", self.key);
        let scored = self.ask(&context, "score_outputs", (outputs, targets, pairs, num_positives))?;
        let (loss_sum, correct, count): (f64, u64, u64) = scored;
        Ok(Score { loss_sum, correct, count })
    }

    fn pair_scores(&mut self, outputs: &[f32], pairs: &[[u32; 2]], width: usize) -> Option<Result<Vec<f32>>> {
        match self.ask::<bool>(&KEY, "has_decoder", ()) {
            Ok(false) => return None,
            Err(error) => return Some(Err(error)),
            Ok(true) if pairs.is_empty() => return Some(Ok(Vec::new())),
            Ok(true) => {}
        }
        let rows = outputs.len().checked_div(width).unwrap_or(0);
        let outputs = copied(outputs, vec![rows, width], Kind::F32);
        Some(self.floats("pair_scores", (outputs, copied_pairs(pairs))))
    }

    /// One forward pass over the whole graph, since a module's layers are its own.
    fn infer(&mut self, nodes: &[u32]) -> Result<Vec<f32>> {
        let (form, layers) = if self.form == Form::Blocks { (Form::Blocks, self.layers) } else { (Form::Induced, 1) };
        let batch = self.lend_host(whole_graph(&self.dataset, layers)?, form);
        let nodes: Vec<i64> = nodes.iter().map(|&v| v.into()).collect();
        self.floats("infer", (batch, copied(&nodes, vec![nodes.len()], Kind::I64)))
    }

    /// Features, the edges as pairs of i64, and twice a message per edge, of the features' width: what a layer of message passing
    /// takes. A module may take more.
    fn infer_bytes(&self) -> Option<u64> {
        let Dataset { topology, features, .. } = &*self.dataset;
        let (nodes, edges) = (topology.num_nodes() as u64, topology.num_edges());
        let dim = features.as_ref().map_or(0, |features| features.dim() as u64);
        Some(nodes * dim * 8 + edges * (16 + 8 * dim))
    }
}

/// All nodes as one mini-batch, whose blocks are the graph.
fn whole_graph(dataset: &Dataset, layers: usize) -> Result<HostBatch> {
    let Dataset { topology, features, .. } = dataset;
    let num_nodes = topology.num_nodes();
    let block = block(topology)?;
    Ok(HostBatch {
        id: BatchId::default(),
        num_seeds: num_nodes,
        input_nodes: (0..num_nodes as u32).collect(),
        blocks: vec![block; layers],
        features: features.as_ref().map(|matrix| {
            let mut all = BatchFeatures::like(matrix);
            let bytes: &[u8] = match matrix.view() {
                FeatureView::F32(values) => bytemuck::cast_slice(values),
                FeatureView::F16(values) => bytemuck::cast_slice(values),
                FeatureView::Bf16(values) => bytemuck::cast_slice(values),
                FeatureView::U8(values) => values,
            };
            all.resize(num_nodes, matrix.dim(), matrix.dtype()).copy_from_slice(bytes);
            all
        }),
        ..HostBatch::default()
    })
}

fn block(topology: &Topology) -> Result<Block> {
    let offset = |&offset: &u64| u32::try_from(offset);
    let indptr = topology.indptr().iter().map(offset).collect::<std::result::Result<Vec<_>, _>>();
    let indptr = indptr.map_err(|_| {
        Error::setting(KEY, "it evaluates with all neighbours up to 4,294,967,295 edges; give evaluation=\"sampled\"")
    })?;
    let num_nodes = topology.num_nodes();
    Ok(Block {
        num_dst: num_nodes,
        num_src: num_nodes,
        indptr,
        indices: topology.indices().to_vec(),
        weights: topology.weights().map(|weights| weights.to_vec()),
        ..Block::default()
    })
}
