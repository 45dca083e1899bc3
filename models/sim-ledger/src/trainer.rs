//! The operator.

use morphgl_registry::{
    DeviceBatch, Error, Gradients, Handle, MiniBatch, ModelState, NamedTensor, Result, Score, Training, TrainingContext,
};
use morphgl_sim::{Device, SimBatch, Stream, Work};

use crate::{KEY, Ledger};

/// Phase Training on the simulated accelerator, `Training_SIM_Ledger`; learns nothing.
#[derive(Debug)]
pub struct SimLedger {
    device: Device,
    stream: Stream<State>,
    /// Whether mini-batches must have features.
    features: bool,
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
    /// Builds the operator on a device. The context's spec and options are ignored.
    ///
    /// # Errors
    ///
    /// A place other than the device's, or no thread can be started.
    pub fn new(context: &TrainingContext, device: &Device) -> Result<Self> {
        if context.place != *device.place() {
            let what = format!("it trains at {}, not at {}; give that place", device.place(), context.place);
            return Err(Error::setting(KEY, what));
        }
        let stream = Stream::new(device, &KEY, Work::Training, State::default())?;
        Ok(Self { device: device.clone(), stream, features: context.dataset.features.is_some() })
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

fn accumulate(state: &mut State, batch: &SimBatch, features: bool) -> Result<Score> {
    let content = batch.content()?;
    if features && content.features.is_none() {
        let what = "it has no features; let batching gather them, or transfer it with Transferring_PCIe+SIM_SimGather";
        return Err(Error::setting(format!("{KEY}, {}", batch.id()), what));
    }
    let count = content.labels.iter().filter(|l| **l >= 0).count() as u64;
    state.ledger.add(batch.id(), batch.expected_digest());
    state.count += count;
    state.accumulated = true;
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
    /// Ignored: no host threads are used.
    fn set_threads(&mut self, _threads: usize) -> Result<()> {
        Ok(())
    }

    /// Occupies the device, with given rows for a shorter time ([`SimBatch::training_part`]), verifies the mini-batch's content and
    /// records it. The score counts labelled seeds; its loss is 0.
    fn accumulate(&mut self, batch: &MiniBatch) -> Result<Handle<Score>> {
        let batch = SimBatch::on(&self.device, batch)?.clone();
        let features = self.features;
        let (id, part) = (batch.id(), batch.training_part());
        Ok(self.stream.submit_part(id, part, batch, move |state, batch| accumulate(state, batch, features)))
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
