//! The operator.

use std::time::Duration;

use morphgl_model_core::{ModelSpec, TrainingSpec};
use morphgl_registry::{
    BatchId, DeviceBatch, Error, Gradients, Handle, HostBatch, Key, MiniBatch, ModelState, NamedTensor, Place, Result,
    Score, Training, TrainingContext,
};
use morphgl_sim::{Device, SimBatch, StepWork, Stream, Work, digest};

use crate::{HOST_KEY, KEY, Ledger};

/// Phase Training on the simulated accelerator, `Training_SIM_Ledger`, and on the host of a described machine,
/// `Training_CPU_SimLedger`; learns nothing.
#[derive(Debug)]
pub struct SimLedger {
    device: Device,
    stream: Stream<State>,
    /// Whether mini-batches must have features.
    features: bool,
    /// The model, on a described machine: its work takes time.
    model: Option<ModelSpec>,
    /// Threads on the host.
    threads: usize,
}

/// State of the stream's thread.
#[derive(Debug, Default)]
struct State {
    ledger: Ledger,
    /// Labelled seeds since the last step.
    count: u64,
    /// Whether a mini-batch was accumulated since the last step.
    accumulated: bool,
}

impl SimLedger {
    /// Builds the operator on a device, or on the host of a described machine. The context's options are ignored, and so is its spec
    /// but on a described machine.
    ///
    /// # Errors
    ///
    /// A place other than the device's; on a described machine a model whose work is not known; or no thread can be started.
    pub fn new(context: &TrainingContext, device: &Device) -> Result<Self> {
        if context.place != *device.place() {
            let what = format!("it trains at {}, not at {}; give that place", device.place(), context.place);
            return Err(Error::setting(KEY, what));
        }
        let model = device.machine().map(|_| model(context)).transpose()?;
        let stream = Stream::new(device, &KEY, Work::Training, State::default())?;
        let (features, threads) = (context.dataset.features.is_some(), context.threads);
        Ok(Self { device: device.clone(), stream, features, model, threads })
    }

    /// Trains a mini-batch of the host of a described machine, at once.
    fn accumulate_on_host(&mut self, batch: &HostBatch) -> Result<Handle<Score>> {
        if self.features && batch.features.is_none() {
            return Err(lacks_features(&HOST_KEY, batch));
        }
        let (id, threads, digest) = (batch.id, self.threads, digest(batch));
        let count = labelled(batch);
        self.update(move |state| state.record(id, digest, count))?;
        let seconds = self.device.host_seconds(|machine| machine.host_training(threads, work(&self.model, batch)));
        let took = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        Ok(Handle::ready(Score { loss_sum: 0.0, correct: 0, count }, took))
    }

    /// The ledger, after all queued work.
    ///
    /// # Errors
    ///
    /// The stream has ended.
    pub fn ledger(&self) -> Result<Ledger> {
        Ok(self.stream.after(|state| Ok(state.ledger.clone())).wait()?.0)
    }

    /// Changes the state, after all queued work.
    fn update(&self, change: impl FnOnce(&mut State) + Send + 'static) -> Result<()> {
        let done = self.stream.after(move |state| {
            change(state);
            Ok(())
        });
        done.wait().map(|((), _)| ())
    }
}

impl State {
    fn record(&mut self, id: BatchId, digest: u64, count: u64) {
        self.ledger.add(id, digest);
        self.count += count;
        self.accumulated = true;
    }
}

/// The model of a context, if the work of its steps is known.
fn model(context: &TrainingContext) -> Result<ModelSpec> {
    let model = TrainingSpec::from_json(&context.spec)?.model;
    if model.step_work(&[], 0).is_none() {
        let what = format!("the operations of {} are not known; simulate one of gcn, sage, gat, gin, mlp", model.kind);
        return Err(Error::setting(KEY, what));
    }
    Ok(model)
}

/// The work of a step; none where durations are configured.
fn work(model: &Option<ModelSpec>, batch: &HostBatch) -> StepWork {
    let work = model.as_ref().and_then(|model| model.step_work(&batch.blocks, batch.num_seeds));
    work.map_or(StepWork::default(), |work| StepWork { flops: work.flops, bytes: work.bytes })
}

/// Number of seeds with a label; of a graph without labels, with a known target.
fn labelled(batch: &HostBatch) -> u64 {
    let is_known = |row: &&[f32]| row.iter().any(|value| !value.is_nan());
    let count = match batch.labels.is_empty() {
        true => batch.targets.values.chunks(batch.targets.width.max(1)).filter(is_known).count(),
        false => batch.labels.iter().filter(|l| **l >= 0).count(),
    };
    count as u64
}

fn lacks_features(key: &Key, batch: &HostBatch) -> Error {
    let what = "it has no features; let batching gather them, or transfer it with Transferring_PCIe+SIM_SimGather";
    Error::setting(format!("{key}, {}", batch.id), what)
}

fn accumulate(state: &mut State, batch: &SimBatch, features: bool) -> Result<Score> {
    let content = batch.content()?;
    if features && content.features.is_none() {
        return Err(lacks_features(&KEY, content));
    }
    let count = labelled(content);
    state.record(batch.id(), batch.expected_digest(), count);
    Ok(Score { loss_sum: 0.0, correct: 0, count })
}

fn learns_nothing<T>() -> Result<T> {
    Err(Error::setting(KEY, "the simulated accelerator learns nothing; evaluate with --evaluate none"))
}

impl ModelState for SimLedger {
    /// No tensors, and the number of labelled seeds since the last step.
    fn gradients(&mut self) -> Result<Gradients> {
        let count = self.stream.after(|state| Ok(state.count)).wait()?.0;
        Ok(Gradients { tensors: Vec::new(), count })
    }

    fn set_gradients(&mut self, gradients: &Gradients) -> Result<()> {
        check_empty("gradients", &gradients.tensors)?;
        let count = gradients.count;
        self.update(move |state| (state.count, state.accumulated) = (count, count > 0))
    }

    /// The ledger, see [`Ledger::from_tensors`].
    fn parameters(&self) -> Result<Vec<NamedTensor>> {
        Ok(self.ledger()?.tensors())
    }

    /// Replaces the ledger.
    fn set_parameters(&mut self, parameters: &[NamedTensor]) -> Result<()> {
        let ledger = Ledger::from_tensors(parameters)?;
        self.update(move |state| state.ledger = ledger)
    }

    /// Always empty: the ledger has no optimizer.
    fn optimizer_state(&self) -> Result<Vec<NamedTensor>> {
        Ok(Vec::new())
    }

    fn set_optimizer_state(&mut self, state: &[NamedTensor]) -> Result<()> {
        check_empty("the optimizer's state", state)
    }
}

impl Training for SimLedger {
    /// Threads of the host of a described machine; no threads of this process are used.
    fn set_threads(&mut self, threads: usize) -> Result<()> {
        self.threads = threads;
        Ok(())
    }

    /// Occupies the device, with given rows for a shorter time ([`SimBatch::training_part`]), verifies the mini-batch's content and
    /// records it. The score counts labelled seeds; its loss is 0.
    fn accumulate(&mut self, batch: &MiniBatch) -> Result<Handle<Score>> {
        if let (Place::Host, MiniBatch::Host(batch)) = (self.device.place(), batch) {
            return self.accumulate_on_host(batch);
        }
        let batch = SimBatch::on(&self.device, batch)?.clone();
        let features = self.features;
        let (id, part) = (batch.id(), batch.training_part());
        let (device, model) = (self.device.clone(), self.model.clone());
        Ok(self.stream.submit_part_costing(id, part, batch, move |state, batch| {
            let score = accumulate(state, batch, features)?;
            let content = batch.content()?;
            Ok((score, device.seconds(|machine, own| machine.device_training(own, work(&model, content)))))
        }))
    }

    /// One step runs while the next is queued; the simulated stream keeps their order.
    fn queue_depth(&self) -> usize {
        2
    }

    /// Takes no time.
    fn step(&mut self) -> Result<Handle<()>> {
        Ok(self.stream.after(|state| {
            if !state.accumulated {
                let what = "nothing was accumulated since the last step; accumulate a mini-batch first";
                return Err(Error::setting(KEY, what));
            }
            (state.count, state.accumulated) = (0, false);
            Ok(())
        }))
    }

    /// Always an error: nothing was learned.
    fn score(&mut self, _batch: &MiniBatch) -> Result<Handle<Score>> {
        learns_nothing()
    }

    /// Always an error: nothing was learned.
    fn infer(&mut self, _nodes: &[u32]) -> Result<Vec<f32>> {
        learns_nothing()
    }
}

/// Checks that gradients or optimizer state have no tensors.
fn check_empty(what: &str, tensors: &[NamedTensor]) -> Result<()> {
    tensors.first().map_or(Ok(()), |tensor| {
        let what = format!("{what} of a ledger hold no tensor, not {:?}; give those of a ledger", tensor.name);
        Err(Error::setting(KEY, what))
    })
}
