//! Fake operators with given durations and faults, on the host and on a device.

use std::any::Any;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::memory::{STEP, WORKER};
use morphgl_profile::{Profile, Progress, Selection, Settings, Watch, profile, select};
use morphgl_registry::{
    BatchId, Batching, BatchingWorker, Block, DeviceBatch, Error, Gradients, Handle, HostBatch, Key, Machine,
    MiniBatch, ModelState, NamedTensor, Operators, Phase, Place, Result, Route, RouteOperators, Score, Training,
    TrainingOperator, Transferring,
};

/// Milliseconds of the phases on one thread; batching and training with t threads take a t-th of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub(crate) batching: u64,
    pub(crate) transferring: u64,
    pub(crate) training: u64,
}

pub(crate) const QUICK: Times = Times { batching: 2, transferring: 1, training: 4 };

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Fault {
    Error,
    Panic,
}

fn run_for(millis: f64, fault: Option<Fault>) -> Result<Duration> {
    let start = Instant::now();
    thread::sleep(Duration::from_secs_f64(millis / 1e3));
    match fault {
        None => Ok(start.elapsed()),
        Some(Fault::Error) => Err(Error::failed("fake", "injected error")),
        Some(Fault::Panic) => panic!("injected panic"),
    }
}

/// The record of calls and of memory that the operators of a test share.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) prepared: AtomicUsize,
    pub(crate) transferred: AtomicUsize,
    pub(crate) trained: AtomicUsize,
    pub(crate) workers: AtomicUsize,
    /// Number of workers preparing a mini-batch now.
    pub(crate) preparing: AtomicUsize,
    /// Whether a step of training runs now.
    pub(crate) training: AtomicBool,
    pub(crate) indices: Mutex<Vec<u32>>,
    /// Number of mini-batches on the device now, and its peak.
    pub(crate) on_device: AtomicUsize,
    pub(crate) most_on_device: AtomicUsize,
    /// Bytes of host memory allocated now, and their peak since the last call of `take_peak`.
    pub(crate) allocated: AtomicU64,
    pub(crate) peak: AtomicU64,
}

fn host_batch(id: BatchId) -> HostBatch {
    let block =
        Block { num_dst: 1, num_src: 3, indptr: vec![0, 2], indices: vec![1, 2], weights: None, importance: false };
    HostBatch { id, num_seeds: 1, input_nodes: vec![0, 1, 2], blocks: vec![block], ..HostBatch::default() }
}

pub(crate) fn npu() -> Place {
    "npu:0".parse().expect("a place")
}

#[derive(Debug)]
pub(crate) struct NpuBatch(BatchId, Arc<Record>);

impl NpuBatch {
    fn make(id: BatchId, record: &Arc<Record>) -> MiniBatch {
        let now = record.on_device.fetch_add(1, Ordering::SeqCst) + 1;
        record.most_on_device.fetch_max(now, Ordering::SeqCst);
        MiniBatch::Device(Box::new(Self(id, Arc::clone(record))))
    }
}

impl Drop for NpuBatch {
    fn drop(&mut self) {
        self.1.on_device.fetch_sub(1, Ordering::SeqCst);
    }
}

impl DeviceBatch for NpuBatch {
    fn id(&self) -> BatchId {
        self.0
    }
    fn place(&self) -> Place {
        npu()
    }
    fn num_seeds(&self) -> usize {
        1
    }
    fn num_bytes(&self) -> Option<u64> {
        Some(40)
    }
    fn to_host(&self) -> Result<HostBatch> {
        Ok(host_batch(self.0))
    }
    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[derive(Debug, Clone)]
pub(crate) struct FakeBatching {
    pub(crate) num_batches: usize,
    pub(crate) times: Times,
    /// The number of a mini-batch, in the order of preparation, and its fault.
    pub(crate) fault: Option<(usize, Fault)>,
    /// Factor to its duration while a step of training runs.
    pub(crate) slowed: f64,
    /// Number of mini-batches that the device has memory for.
    pub(crate) room: usize,
    pub(crate) at: Place,
    pub(crate) record: Arc<Record>,
}

struct Worker {
    times: Times,
    threads: usize,
    fault: Option<(usize, Fault)>,
    slowed: f64,
    room: usize,
    at: Place,
    record: Arc<Record>,
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.record.workers.fetch_sub(1, Ordering::SeqCst);
        self.record.release(WORKER);
    }
}

impl Batching for FakeBatching {
    fn num_batches(&self) -> usize {
        self.num_batches
    }

    fn worker(&self, threads: usize) -> Result<Box<dyn BatchingWorker>> {
        self.record.workers.fetch_add(1, Ordering::SeqCst);
        self.record.allocate(WORKER);
        let Self { times, fault, slowed, room, .. } = *self;
        let (at, record) = (self.at.clone(), Arc::clone(&self.record));
        Ok(Box::new(Worker { times, threads, fault, slowed, room, at, record }))
    }
}

impl BatchingWorker for Worker {
    fn prepare_share(
        &mut self,
        id: BatchId,
        _share: Range<usize>,
        recycled: Option<MiniBatch>,
    ) -> Result<Handle<MiniBatch>> {
        drop(recycled);
        if self.record.on_device.load(Ordering::SeqCst) >= self.room {
            return Err(Error::failed("fake", "the device has no memory left"));
        }
        let n = self.record.prepared.fetch_add(1, Ordering::SeqCst);
        self.record.indices.lock().expect("not poisoned").push(id.index);
        self.record.preparing.fetch_add(1, Ordering::SeqCst);
        let slowed = if self.record.training.load(Ordering::SeqCst) { self.slowed } else { 1.0 };
        let millis = slowed * self.times.batching as f64 / self.threads as f64;
        let outcome = run_for(millis, self.fault.filter(|f| f.0 == n).map(|f| f.1));
        self.record.preparing.fetch_sub(1, Ordering::SeqCst);
        let took = outcome?;
        let batch = match self.at {
            Place::Host => MiniBatch::Host(host_batch(id)),
            _ => NpuBatch::make(id, &self.record),
        };
        Ok(Handle::ready(batch, took))
    }

    /// On a device alone.
    fn num_bytes(&self) -> Option<u64> {
        (self.at != Place::Host).then_some(1000)
    }
}

#[derive(Debug, Clone)]
pub(crate) struct FakeTransferring {
    pub(crate) times: Times,
    pub(crate) fault: Option<Fault>,
    pub(crate) to: Place,
    pub(crate) record: Arc<Record>,
}

impl Transferring for FakeTransferring {
    fn transfer(&mut self, batch: MiniBatch) -> Result<Handle<MiniBatch>> {
        self.record.transferred.fetch_add(1, Ordering::SeqCst);
        let took = run_for(self.times.transferring as f64, self.fault)?;
        let moved = match self.to {
            Place::Device { .. } if batch.place() == Place::Host => NpuBatch::make(batch.id(), &self.record),
            _ => batch,
        };
        Ok(Handle::ready(moved, took))
    }
}

/// State of training: one parameter that every step raises by one; the optimizer counts the steps.
#[derive(Debug)]
pub(crate) struct FakeTraining {
    pub(crate) times: Times,
    pub(crate) fault: Option<(u64, Fault)>,
    /// Added factor to its duration for each worker that prepares a mini-batch when a step begins.
    pub(crate) slowed: f64,
    /// For so long after `set_threads`, several threads share a core: steps report a thousand seconds.
    pub(crate) share_core: Duration,
    pub(crate) threads_set: Instant,
    pub(crate) at: Place,
    pub(crate) threads: usize,
    pub(crate) parameter: f32,
    pub(crate) steps: u64,
    pub(crate) accumulated: u64,
    pub(crate) total_steps: u64,
    /// Number of workers that prepared a mini-batch at the beginning of each step.
    pub(crate) beside: Vec<usize>,
    pub(crate) record: Arc<Record>,
}

fn tensor(name: &str, value: f32) -> Vec<NamedTensor> {
    vec![NamedTensor { name: name.to_string(), shape: vec![1], values: vec![value] }]
}

/// Training whose state the test can read.
#[derive(Debug)]
struct SharedTraining(Arc<Mutex<FakeTraining>>);

impl SharedTraining {
    fn state(&self) -> MutexGuard<'_, FakeTraining> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ModelState for SharedTraining {
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

impl Training for SharedTraining {
    fn set_threads(&mut self, threads: usize) -> Result<()> {
        let mut fake = self.state();
        (fake.threads, fake.threads_set) = (threads, Instant::now());
        Ok(())
    }
    fn accumulate(&mut self, batch: &MiniBatch) -> Result<Handle<Score>> {
        let mut fake = self.state();
        assert_eq!(batch.place(), fake.at);
        fake.accumulated += 1;
        fake.total_steps += 1;
        let record = Arc::clone(&fake.record);
        record.trained.fetch_add(1, Ordering::SeqCst);
        let beside = record.preparing.load(Ordering::SeqCst);
        fake.beside.push(beside);
        record.training.store(true, Ordering::SeqCst);
        record.allocate(STEP);
        let millis = (1.0 + fake.slowed * beside as f64) * fake.times.training as f64 / fake.threads as f64;
        let fault = fake.fault.filter(|f| f.0 == fake.total_steps).map(|f| f.1);
        let outcome = run_for(millis, fault);
        record.release(STEP);
        record.training.store(false, Ordering::SeqCst);
        let sharing = fake.threads > 1 && fake.threads_set.elapsed() < fake.share_core;
        let took = if sharing { Duration::from_secs(1000) } else { outcome? };
        Ok(Handle::ready(Score::default(), took))
    }
    fn step(&mut self) -> Result<Handle<()>> {
        let mut fake = self.state();
        fake.parameter += 1.0;
        fake.steps += 1;
        fake.accumulated = 0;
        Ok(Handle::ready((), Duration::ZERO))
    }
    fn score(&mut self, _: &MiniBatch) -> Result<Handle<Score>> {
        Ok(Handle::ready(Score::default(), Duration::ZERO))
    }
    fn infer(&mut self, _: &[u32]) -> Result<Vec<f32>> {
        Ok(Vec::new())
    }
}

/// The fake operators of a test.
pub(crate) struct Fakes {
    pub(crate) routes: Vec<(Route, FakeBatching, FakeTransferring)>,
    pub(crate) trainers: Vec<(Key, Arc<Mutex<FakeTraining>>)>,
    pub(crate) selections: Vec<Selection>,
    pub(crate) record: Arc<Record>,
}

fn key(s: &str) -> Key {
    s.parse().expect("a valid key")
}

impl Fakes {
    /// One route, all on the CPU.
    pub(crate) fn new(num_batches: usize, times: Times) -> Self {
        let mut fakes =
            Self { routes: Vec::new(), trainers: Vec::new(), selections: Vec::new(), record: Arc::default() };
        fakes.add_trainer("Training_CPU_Fake", Place::Host, times);
        fakes.add_route(num_batches, times, ["Batching_CPU_Fake", "Transferring_CPU_Fake"], "Training_CPU_Fake");
        fakes
    }

    /// The same, and the routes of a device: batched by the host or the device, trained by the device.
    pub(crate) fn with_device(num_batches: usize, times: Times) -> Self {
        let mut fakes = Self::new(num_batches, times);
        fakes.add_trainer("Training_NPU_Fake", npu(), times);
        fakes.add_route(num_batches, times, ["Batching_CPU_Fake", "Transferring_PCIe_Fake"], "Training_NPU_Fake");
        fakes.add_route(num_batches, times, ["Batching_NPU+PCIe_Fake", "Transferring_NPU_Fake"], "Training_NPU_Fake");
        fakes
    }

    pub(crate) fn add_trainer(&mut self, name: &str, at: Place, times: Times) {
        let record = Arc::clone(&self.record);
        let training = FakeTraining {
            times,
            fault: None,
            slowed: 0.0,
            share_core: Duration::ZERO,
            threads_set: Instant::now(),
            at,
            threads: 1,
            parameter: 0.5,
            steps: 7,
            accumulated: 0,
            total_steps: 0,
            beside: Vec::new(),
            record,
        };
        self.trainers.push((key(name), Arc::new(Mutex::new(training))));
    }

    pub(crate) fn add_route(&mut self, num_batches: usize, times: Times, before: [&str; 2], training: &str) {
        let place = |name: &str| if name.contains("_NPU") { npu() } else { Place::Host };
        let route = Route {
            batching: key(before[0]),
            transferring: key(before[1]),
            training: key(training),
            read_at: Place::Host,
            batched_at: place(before[0]),
            trained_at: place(training),
            gathering: Phase::Batching,
            queueing: Vec::new(),
        };
        let (at, to, record) = (route.batched_at.clone(), route.trained_at.clone(), &self.record);
        let batching = FakeBatching {
            num_batches,
            times,
            fault: None,
            slowed: 1.0,
            room: usize::MAX,
            at,
            record: Arc::clone(record),
        };
        let transferring = FakeTransferring { times, fault: None, to, record: Arc::clone(record) };
        self.routes.push((route, batching, transferring));
    }

    pub(crate) fn profile_until(
        &mut self,
        settings: &Settings,
        stop: &(dyn Fn() -> bool + Sync),
        progress: &mut dyn FnMut(&Progress),
    ) -> morphgl_profile::Result<Profile> {
        self.profile_watched(settings, &Watch { stop, memory: None }, progress)
    }

    pub(crate) fn profile_watched(
        &mut self,
        settings: &Settings,
        watch: &Watch<'_>,
        progress: &mut dyn FnMut(&Progress),
    ) -> morphgl_profile::Result<Profile> {
        profile(&mut self.operators(), &self.selections, &Machine::probe(), settings, watch, progress)
    }

    /// The state of a trainer.
    pub(crate) fn training(&self, trainer: usize) -> MutexGuard<'_, FakeTraining> {
        self.trainers[trainer].1.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn operators(&self) -> Operators {
        let route = |(route, batching, transferring): &(Route, FakeBatching, FakeTransferring)| RouteOperators {
            route: route.clone(),
            batching: Arc::new(batching.clone()),
            transferring: Box::new(transferring.clone()),
        };
        let trainer = |i: usize| {
            let (key, fake) = &self.trainers[i];
            let operator = Box::new(SharedTraining(Arc::clone(fake)));
            TrainingOperator { key: key.clone(), place: self.training(i).at.clone(), operator }
        };
        Operators {
            routes: self.routes.iter().map(route).collect(),
            trainers: (0..self.trainers.len()).map(trainer).collect(),
        }
    }

    /// Adds a trainer on the CPU, with a route of its own and its own times.
    pub(crate) fn rival(&mut self, name: &str, times: Times) {
        let num_batches = self.routes[0].1.num_batches;
        let training = format!("Training_CPU_{name}");
        self.add_trainer(&training, Place::Host, times);
        self.add_route(num_batches, times, ["Batching_CPU_Fake", "Transferring_CPU_Fake"], &training);
    }

    /// Chooses among all trainers; a later profile gets the selection, and measures the routes of the chosen trainer.
    pub(crate) fn select(&mut self, settings: &Settings, watch: &Watch<'_>) -> morphgl_profile::Result<Selection> {
        let mut operators = self.operators();
        let routes = operators.routes_to(&Place::Host);
        let selection = select(&mut operators, &routes, settings, watch, &mut |_| {})?;
        self.routes.retain(|(route, ..)| route.training == selection.chosen);
        self.selections.push(selection.clone());
        Ok(selection)
    }

    pub(crate) fn profile(&mut self, settings: &Settings) -> morphgl_profile::Result<Profile> {
        self.profile_until(settings, &|| false, &mut |_| {})
    }

    /// Checks that the models are unchanged, and no worker or device mini-batch is left.
    #[track_caller]
    pub(crate) fn check_unchanged(&self) {
        for (i, (key, _)) in self.trainers.iter().enumerate() {
            let t = self.training(i);
            assert_eq!((t.parameter, t.steps, t.accumulated), (0.5, 7, 0), "the model of {key} is unchanged");
        }
        assert_eq!(self.record.workers.load(Ordering::SeqCst), 0, "no worker is left");
        assert_eq!(self.record.on_device.load(Ordering::SeqCst), 0, "the device's memory is free");
    }
}

/// Settings with time for every point.
pub(crate) fn unlimited(cores: usize) -> Settings {
    Settings { budget: Duration::from_secs(600), epochs: None, batches: 3, ..Settings::new(cores) }
}

/// A temporary file, removed at the end of the test.
pub(crate) struct File(pub(crate) PathBuf);

impl File {
    pub(crate) fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("morphgl-profile-{}-{name}", std::process::id())))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).ok();
    }
}
