//! Fake operators, for the tests of what runs operators.
//!
//! A mini-batch depends on its id alone. The test says how long a call takes and how it fails ([`Fake::takes`],
//! [`Fake::fails`]), and reads what was called in the [`Log`] that its operators share.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use morphgl_registry::{
    BatchId, Batching, BatchingWorker, Block, DeviceBatch, Error, Gradients, Handle, HostBatch, Key, Measured,
    MiniBatch, ModelState, NamedTensor, Phase, Place, Resource, Result, Route, RouteOperators, Score, Training,
    TrainingOperator, Transferring, Wait,
};

/// Bytes that a worker on a device says it needs there.
pub const DEVICE_WORKER_BYTES: u64 = 1000;

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It returns an error with this text.
    Error(&'static str),
    /// It panics.
    Panic,
    /// The call blocks until [`Log::release`], and then succeeds. Only [`Fake::fails`] injects it.
    Hang,
    /// It succeeds, and its handle returns an error.
    LateError,
    /// It succeeds, and its handle panics.
    LatePanic,
    /// It delivers the mini-batch after the requested one.
    OtherBatch,
}

/// A call of a fake.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// The operator's key.
    pub key: &'a Key,
    /// The mini-batch.
    pub batch: &'a HostBatch,
    /// Where it was before.
    pub from: &'a Place,
    /// Number of the operator's earlier calls.
    pub nth: usize,
    /// Threads of the worker or of training.
    pub threads: usize,
    /// Running calls of each phase when this one began.
    pub running: [usize; 3],
}

/// What a call does.
pub type Act = Arc<dyn Fn(&Call<'_>) -> Outcome + Send + Sync>;

/// The duration that a call reports, or how it fails.
pub type Outcome = std::result::Result<Duration, Fault>;

/// A fake operator of any phase. Clones are the same operator.
#[derive(Clone)]
pub struct Fake {
    /// Its key.
    pub key: Key,
    /// Where its mini-batches lie: after batching, after transferring, or in training.
    pub place: Place,
    /// Mini-batches per epoch.
    pub num_batches: usize,
    /// Bytes of host memory: of a worker as long as it exists, of training during a call.
    pub bytes: usize,
    /// Queue depth of training. If it is above 1, a mini-batch is trained on when its handle is waited for.
    pub depth: usize,
    /// Fills in a mini-batch whose id is set; a recycled one has its old content.
    pub content: Arc<dyn Fn(&mut HostBatch) + Send + Sync>,
    /// What a call does.
    pub act: Act,
    /// Its state, which clones share.
    pub state: Arc<Mutex<State>>,
    /// The record that the operators of a test share.
    pub log: Arc<Log>,
}

/// State of an operator; all but its calls are those of training.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct State {
    /// Number of calls.
    pub calls: usize,
    /// The only parameter, which a step raises by 1.
    pub parameter: f32,
    /// Number of steps, the state of the optimizer.
    pub steps: u64,
    /// Mini-batches accumulated since the last step.
    pub accumulated: u64,
    /// Threads that were set.
    pub threads: usize,
}

/// A number that rises and falls, and its peak.
#[derive(Debug, Clone, Copy, Default)]
pub struct Gauge {
    /// The number now.
    pub now: usize,
    /// Its peak.
    pub peak: usize,
}

impl Fault {
    /// An error that says no more than that it was injected.
    pub const ERROR: Fault = Fault::Error("injected error");
}

impl Gauge {
    /// Adds `n`.
    pub fn add(&mut self, n: usize) {
        self.now += n;
        self.peak = self.peak.max(self.now);
    }

    /// Subtracts `n`.
    pub fn subtract(&mut self, n: usize) {
        self.now -= n;
    }
}

/// What the operators of a test have done.
#[derive(Debug, Default)]
pub struct Record {
    /// Mini-batches in the order in which their batching began.
    pub prepared: Vec<BatchId>,
    /// Mini-batches in the order in which their transfer began.
    pub transferred: Vec<BatchId>,
    /// Mini-batches in the order in which they were trained on.
    pub trained: Vec<BatchId>,
    /// Threads of every worker made.
    pub worker_threads: Vec<usize>,
    /// Workers.
    pub workers: Gauge,
    /// Running calls of each phase.
    pub running: [usize; 3],
    /// Running calls of all phases.
    pub active: Gauge,
    /// Mini-batches queued at training.
    pub queued: Gauge,
    /// Mini-batches in the memory of devices.
    pub on_device: Gauge,
    /// Bytes of host memory, by [`Fake::bytes`].
    pub bytes: Gauge,
    /// Whether calls that hang may go on.
    released: bool,
}

/// The record that the operators of a test share.
#[derive(Debug, Default)]
pub struct Log {
    record: Mutex<Record>,
    released: Condvar,
}

impl Log {
    /// The record so far, also after a panic.
    pub fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets calls that hang go on, those to come included.
    pub fn release(&self) {
        self.record().released = true;
        self.released.notify_all();
    }
}

/// Fills in three nodes, the first two of them seeds with one neighbour each.
pub fn content(batch: &mut HostBatch) {
    let first = batch.id.epoch.wrapping_mul(1_000_003).wrapping_add(batch.id.index.wrapping_mul(101));
    batch.num_seeds = 2;
    batch.input_nodes.clear();
    batch.input_nodes.extend([0, 1, 2].map(|i| first.wrapping_add(i)));
    if batch.blocks.is_empty() {
        let (indptr, indices) = (vec![0, 1, 2], vec![2, 2]);
        batch.blocks.push(Block { num_dst: 2, num_src: 3, indptr, indices, ..Block::default() });
    }
}

impl Fake {
    /// An operator of this key whose calls take no time. It is on the host, or on device 0 of its hardware.
    ///
    /// # Panics
    ///
    /// When `key` is none.
    pub fn new(key: &str, log: &Arc<Log>) -> Self {
        let key: Key = key.parse().expect("a key");
        let device = key.hardware.resources().iter().find(|r| ![Resource::CPU, Resource::PCIE].contains(r));
        let on = |r: &Resource| Place::Device { backend: r.name().to_lowercase().into(), index: 0 };
        Self {
            place: device.map_or(Place::Host, on),
            key,
            num_batches: 0,
            bytes: 0,
            depth: 1,
            content: Arc::new(content),
            act: Arc::new(|_| Ok(Duration::ZERO)),
            state: Arc::default(),
            log: Arc::clone(log),
        }
    }

    /// Lets calls sleep for so many milliseconds on one thread, a t-th of them on t threads; earlier faults no longer apply.
    pub fn takes(&mut self, millis: impl Fn(&Call<'_>) -> f64 + Send + Sync + 'static) {
        self.act = Arc::new(move |call| {
            let start = Instant::now();
            thread::sleep(Duration::from_secs_f64(millis(call) / 1e3 / call.threads as f64));
            Ok(start.elapsed())
        });
    }

    /// Lets calls that `fault` chooses as they begin fail at their end.
    pub fn fails(&mut self, fault: impl Fn(&Call<'_>) -> Option<Fault> + Send + Sync + 'static) {
        let (act, log) = (Arc::clone(&self.act), Arc::clone(&self.log));
        self.act = Arc::new(move |call| {
            let fault = fault(call);
            let took = act(call)?;
            match fault {
                Some(Fault::Hang) => drop(log.released.wait_while(log.record(), |record| !record.released)),
                Some(fault) => return Err(fault),
                None => {}
            }
            Ok(took)
        });
    }

    /// The state, also after a panic.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The training operator with its key and place.
    pub fn trainer(&self) -> TrainingOperator {
        TrainingOperator { key: self.key.clone(), place: self.place.clone(), operator: Box::new(self.clone()) }
    }

    fn placed(&self, batch: HostBatch) -> MiniBatch {
        if self.place == Place::Host {
            return MiniBatch::Host(batch);
        }
        self.log.record().on_device.add(1);
        MiniBatch::Device(Box::new(OnDevice { batch, place: self.place.clone(), log: Arc::clone(&self.log) }))
    }

    /// A call, recorded. Of its faults, those that show later are returned beside its duration.
    fn call(&self, threads: usize, from: &Place, batch: &HostBatch) -> Result<Outcome> {
        let phase = self.key.phase;
        let nth = {
            let mut state = self.state();
            state.calls += 1;
            state.calls - 1
        };
        let bytes = if phase == Phase::Training { self.bytes } else { 0 };
        let running = {
            let mut record = self.log.record();
            match phase {
                Phase::Batching => record.prepared.push(batch.id),
                Phase::Transferring => record.transferred.push(batch.id),
                Phase::Training => {}
            }
            record.bytes.add(bytes);
            record.active.add(1);
            let running = record.running;
            record.running[phase as usize] += 1;
            running
        };
        let outcome = (self.act)(&Call { key: &self.key, batch, from, nth, threads, running });
        let mut record = self.log.record();
        record.running[phase as usize] -= 1;
        record.active.subtract(1);
        record.bytes.subtract(bytes);
        if phase == Phase::Training && outcome.is_ok() {
            record.trained.push(batch.id);
        }
        drop(record);
        match outcome {
            Err(Fault::Error(text)) => Err(Error::failed("fake", text)),
            Err(Fault::Panic) => panic!("injected panic"),
            outcome => Ok(outcome),
        }
    }

    fn train_on(&self, batch: &HostBatch) -> Result<Handle<Score>> {
        let threads = {
            let mut state = self.state();
            state.accumulated += 1;
            state.threads.max(1)
        };
        let outcome = self.call(threads, &self.place, batch)?;
        let score = Score { loss_sum: batch.id.index.into(), correct: 1, count: batch.num_seeds as u64 };
        Ok(handle(score, outcome))
    }
}

impl fmt::Debug for Fake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fake({})", self.key)
    }
}

/// A route of three fakes; transferring ends at the place of training.
pub fn route(batching: &Fake, transferring: &Fake, training: &Fake) -> RouteOperators {
    let transferring = Fake { place: training.place.clone(), ..transferring.clone() };
    let keys = [batching, &transferring, training].map(|fake| fake.key.clone());
    RouteOperators {
        route: Route::new(keys, batching.place.clone(), training.place.clone()),
        batching: Arc::new(batching.clone()),
        transferring: Box::new(transferring),
    }
}

/// A mini-batch in a device's memory.
#[derive(Debug)]
struct OnDevice {
    batch: HostBatch,
    place: Place,
    log: Arc<Log>,
}

impl Drop for OnDevice {
    fn drop(&mut self) {
        self.log.record().on_device.subtract(1);
    }
}

impl DeviceBatch for OnDevice {
    fn id(&self) -> BatchId {
        self.batch.id
    }
    fn place(&self) -> Place {
        self.place.clone()
    }
    fn num_seeds(&self) -> usize {
        self.batch.num_seeds
    }
    /// Twice as many as on the host.
    fn num_bytes(&self) -> Option<u64> {
        Some(2 * self.batch.num_bytes() as u64)
    }
    fn to_host(&self) -> Result<HostBatch> {
        Ok(self.batch.clone())
    }
    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The arrays of a fake's mini-batch, wherever it lies.
fn arrays(batch: &mut MiniBatch) -> &mut HostBatch {
    match batch {
        MiniBatch::Host(batch) => batch,
        MiniBatch::Device(batch) => {
            let any: &mut dyn Any = batch.as_mut();
            &mut any.downcast_mut::<OnDevice>().expect("a fake's mini-batch").batch
        }
    }
}

/// The handle of a mini-batch, or of the one after it.
fn deliver(mut batch: MiniBatch, outcome: Outcome) -> Result<Handle<MiniBatch>> {
    arrays(&mut batch).id.index += u32::from(outcome == Err(Fault::OtherBatch));
    Ok(handle(batch, outcome))
}

/// The handle of work that has ended, and fails if its fault shows late.
fn handle<T: Send + 'static>(value: T, outcome: Outcome) -> Handle<T> {
    match outcome {
        Err(fault @ (Fault::LateError | Fault::LatePanic)) => Handle::pending(Late(fault)),
        outcome => Handle::ready(value, outcome.unwrap_or_default()),
    }
}

/// Work that fails when it is waited for.
struct Late(Fault);

impl<T> Wait<T> for Late {
    fn is_ready(&self) -> bool {
        false
    }

    fn wait(self: Box<Self>) -> Result<(T, Measured)> {
        assert!(self.0 != Fault::LatePanic, "injected panic");
        Err(Error::failed("fake", "injected error"))
    }
}

struct Worker {
    fake: Fake,
    threads: usize,
}

impl Drop for Worker {
    fn drop(&mut self) {
        let mut record = self.fake.log.record();
        record.workers.subtract(1);
        record.bytes.subtract(self.fake.bytes);
    }
}

impl Batching for Fake {
    fn num_batches(&self) -> usize {
        self.num_batches
    }

    fn worker(&self, threads: usize) -> Result<Box<dyn BatchingWorker>> {
        let mut record = self.log.record();
        record.worker_threads.push(threads);
        record.workers.add(1);
        record.bytes.add(self.bytes);
        Ok(Box::new(Worker { fake: self.clone(), threads }))
    }
}

impl BatchingWorker for Worker {
    fn prepare_share(
        &mut self,
        id: BatchId,
        _share: Range<usize>,
        recycled: Option<MiniBatch>,
    ) -> Result<Handle<MiniBatch>> {
        let mut batch = recycled.unwrap_or_else(|| self.fake.placed(HostBatch::default()));
        let host = arrays(&mut batch);
        host.id = id;
        (self.fake.content)(host);
        let outcome = self.fake.call(self.threads, &self.fake.place, host)?;
        deliver(batch, outcome)
    }

    /// On a device alone.
    fn num_bytes(&self) -> Option<u64> {
        (self.fake.place != Place::Host).then_some(DEVICE_WORKER_BYTES)
    }
}

impl Transferring for Fake {
    fn transfer(&mut self, mut batch: MiniBatch) -> Result<Handle<MiniBatch>> {
        let from = batch.place();
        if from != self.place {
            batch = self.placed(std::mem::take(arrays(&mut batch)));
        }
        let outcome = self.call(1, &from, arrays(&mut batch))?;
        deliver(batch, outcome)
    }
}

/// A mini-batch that is trained on when it is waited for.
struct Queued {
    fake: Fake,
    batch: HostBatch,
}

impl Wait<Score> for Queued {
    fn is_ready(&self) -> bool {
        false
    }

    fn wait(self: Box<Self>) -> Result<(Score, Measured)> {
        self.fake.log.record().queued.subtract(1);
        self.fake.train_on(&self.batch)?.measured()
    }
}

impl ModelState for Fake {
    fn gradients(&mut self) -> Result<Gradients> {
        Ok(Gradients { tensors: Vec::new(), count: self.state().accumulated })
    }
    fn set_gradients(&mut self, gradients: &Gradients) -> Result<()> {
        self.state().accumulated = gradients.count;
        Ok(())
    }
    fn parameters(&self) -> Result<Vec<NamedTensor>> {
        Ok(tensor("weight", self.state().parameter))
    }
    fn set_parameters(&mut self, parameters: &[NamedTensor]) -> Result<()> {
        self.state().parameter = parameters[0].values[0];
        Ok(())
    }
    fn optimizer_state(&self) -> Result<Vec<NamedTensor>> {
        Ok(tensor("steps", self.state().steps as f32))
    }
    fn set_optimizer_state(&mut self, state: &[NamedTensor]) -> Result<()> {
        self.state().steps = state[0].values[0] as u64;
        Ok(())
    }
}

impl Training for Fake {
    fn set_threads(&mut self, threads: usize) -> Result<()> {
        self.state().threads = threads;
        Ok(())
    }
    fn accumulate(&mut self, batch: &MiniBatch) -> Result<Handle<Score>> {
        assert_eq!(batch.place(), self.place, "{}: the place of {}", self.key, batch.id());
        let batch = batch.to_host()?;
        if self.depth < 2 {
            return self.train_on(&batch);
        }
        self.log.record().queued.add(1);
        Ok(Handle::pending(Queued { fake: self.clone(), batch: batch.into_owned() }))
    }
    fn queue_depth(&self) -> usize {
        self.depth
    }
    fn step(&mut self) -> Result<Handle<()>> {
        let mut state = self.state();
        (state.parameter, state.steps, state.accumulated) = (state.parameter + 1.0, state.steps + 1, 0);
        Ok(Handle::ready((), Duration::ZERO))
    }
    fn score(&mut self, _: &MiniBatch) -> Result<Handle<Score>> {
        Ok(Handle::ready(Score::default(), Duration::ZERO))
    }
    fn infer(&mut self, _: &[u32]) -> Result<Vec<f32>> {
        Ok(Vec::new())
    }
}

fn tensor(name: &str, value: f32) -> Vec<NamedTensor> {
    vec![NamedTensor { name: name.to_string(), shape: vec![1], values: vec![value] }]
}
