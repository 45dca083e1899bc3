//! Fake operators on the host, and on a device whose mini-batches are counted.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use morphgl_registry::{
    BatchId, Batching, BatchingWorker, DeviceBatch, Gradients, Handle, HostBatch, Key, Measured, MiniBatch, ModelState,
    NamedTensor, Phase, Place, Result, Score, Training, Transferring, Wait,
};

use super::{FakeMachine, content};

/// The names of a key's resources.
fn resources(key: &Key) -> Vec<&'static str> {
    key.hardware.resources().iter().map(|r| r.name()).collect()
}

fn device() -> Place {
    "dev:0".parse().expect("a place")
}

/// A mini-batch in the fake device's memory.
struct OnDevice {
    machine: Arc<FakeMachine>,
    batch: HostBatch,
}

impl std::fmt::Debug for OnDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OnDevice({})", self.batch.id)
    }
}

impl OnDevice {
    fn boxed(machine: &Arc<FakeMachine>, batch: HostBatch) -> MiniBatch {
        machine.count_device_batch();
        MiniBatch::Device(Box::new(Self { machine: Arc::clone(machine), batch }))
    }
}

impl Drop for OnDevice {
    fn drop(&mut self) {
        self.machine.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

impl DeviceBatch for OnDevice {
    fn id(&self) -> BatchId {
        self.batch.id
    }
    fn place(&self) -> Place {
        device()
    }
    fn num_seeds(&self) -> usize {
        self.batch.num_seeds
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

/// The arrays of a mini-batch, on the host or on the fake device.
fn host_part(batch: &mut MiniBatch) -> &mut HostBatch {
    match batch {
        MiniBatch::Host(batch) => batch,
        MiniBatch::Device(batch) => {
            let any: &mut dyn Any = batch.as_mut();
            &mut any.downcast_mut::<OnDevice>().expect("a fake").batch
        }
    }
}

#[derive(Debug)]
pub(crate) struct FakeBatching {
    pub(crate) key: Key,
    pub(crate) machine: Arc<FakeMachine>,
    /// Whether batching and training are at the same place.
    pub(crate) in_place: bool,
    pub(crate) on_device: bool,
}

impl FakeBatching {
    /// Batching on the host, for a pool.
    pub(crate) fn host(machine: &Arc<FakeMachine>) -> Self {
        let key = "Batching_CPU_Fake".parse().expect("a key");
        Self { key, machine: Arc::clone(machine), in_place: true, on_device: false }
    }
}

struct Worker {
    resources: Vec<&'static str>,
    machine: Arc<FakeMachine>,
    in_place: bool,
    on_device: bool,
}

impl Batching for FakeBatching {
    fn num_batches(&self) -> usize {
        self.machine.num_batches
    }

    fn worker(&self, threads: usize) -> Result<Box<dyn BatchingWorker>> {
        self.machine.observed().worker_threads.push(threads);
        let Self { key, machine, in_place, on_device } = self;
        let (resources, machine) = (resources(key), Arc::clone(machine));
        Ok(Box::new(Worker { resources, machine, in_place: *in_place, on_device: *on_device }))
    }
}

impl BatchingWorker for Worker {
    fn prepare_share(
        &mut self,
        id: BatchId,
        _share: Range<usize>,
        recycled: Option<MiniBatch>,
    ) -> Result<Handle<MiniBatch>> {
        let start = Instant::now();
        let _guard = self.machine.acquire(&self.resources, id);
        let mut batch = recycled.unwrap_or_else(|| match self.on_device {
            true => OnDevice::boxed(&self.machine, HostBatch::default()),
            false => MiniBatch::Host(HostBatch::default()),
        });
        let host = host_part(&mut batch);
        {
            let mut observed = self.machine.observed();
            if host.labels.is_empty() {
                host.labels.push(observed.buffers);
                observed.buffers += 1;
            }
            assert!(observed.live.insert(host.labels[0]), "the buffer of {id} has another owner");
            observed.peak_live = observed.peak_live.max(observed.live.len());
            observed.prepared.push(id);
            if self.in_place {
                observed.ready += 1;
                observed.peak_ready = observed.peak_ready.max(observed.ready);
            } else {
                observed.batched += 1;
                observed.peak_batched = observed.peak_batched.max(observed.batched);
            }
        }
        host.input_nodes.clear();
        host.input_nodes.extend(content(id));
        (host.id, host.num_seeds) = (self.machine.delivered_id(Phase::Batching, id), 4);
        self.machine.act(Phase::Batching, id)?;
        Ok(self.machine.handle(Phase::Batching, id, batch, start.elapsed()))
    }
}

#[derive(Debug)]
pub(crate) struct FakeTransferring {
    pub(crate) key: Key,
    pub(crate) machine: Arc<FakeMachine>,
    pub(crate) in_place: bool,
}

impl Transferring for FakeTransferring {
    fn transfer(&mut self, mut batch: MiniBatch) -> Result<Handle<MiniBatch>> {
        let start = Instant::now();
        let id = batch.id();
        let _guard = self.machine.acquire(&resources(&self.key), id);
        if !self.in_place {
            let mut observed = self.machine.observed();
            observed.ready += 1;
            observed.peak_ready = observed.peak_ready.max(observed.ready);
        }
        host_part(&mut batch).id = self.machine.delivered_id(Phase::Transferring, id);
        if !self.in_place {
            batch = OnDevice::boxed(&self.machine, batch.into_host()?);
        }
        self.machine.act(Phase::Transferring, id)?;
        if !self.in_place {
            self.machine.observed().batched -= 1;
        }
        Ok(self.machine.handle(Phase::Transferring, id, batch, start.elapsed()))
    }
}

#[derive(Debug)]
pub(crate) struct FakeTraining {
    pub(crate) key: Key,
    pub(crate) machine: Arc<FakeMachine>,
}

impl FakeTraining {
    /// Trains on a mini-batch; checks its content.
    pub(crate) fn check_batch(machine: &FakeMachine, batch: &MiniBatch) -> Result<Score> {
        let batch = match batch {
            MiniBatch::Host(batch) => batch.clone(),
            MiniBatch::Device(batch) => batch.to_host()?,
        };
        assert_eq!(batch.input_nodes, content(batch.id), "content of {}", batch.id);
        machine.act(Phase::Training, batch.id)?;
        let mut observed = machine.observed();
        observed.trained.push(batch.id);
        assert!(observed.live.remove(&batch.labels[0]), "{} was not live", batch.id);
        observed.ready -= 1;
        Ok(Score { loss_sum: f64::from(batch.id.index), correct: 1, count: 4 })
    }
}

/// A step of training that runs when it is waited for.
struct Queued {
    machine: Arc<FakeMachine>,
    resources: Vec<&'static str>,
    batch: HostBatch,
}

impl Wait<Score> for Queued {
    fn is_ready(&self) -> bool {
        false
    }

    fn wait(self: Box<Self>) -> Result<(Score, Measured)> {
        let Self { machine, resources, batch } = *self;
        let (start, id) = (Instant::now(), batch.id);
        machine.observed().queued -= 1;
        let _guard = machine.acquire(&resources, id);
        let score = FakeTraining::check_batch(&machine, &MiniBatch::Host(batch))?;
        machine.handle(Phase::Training, id, score, start.elapsed()).measured()
    }
}

impl ModelState for FakeTraining {
    fn gradients(&mut self) -> Result<Gradients> {
        Ok(Gradients::default())
    }

    fn set_gradients(&mut self, _: &Gradients) -> Result<()> {
        Ok(())
    }

    /// The number of mini-batches trained.
    fn parameters(&self) -> Result<Vec<NamedTensor>> {
        let trained = self.machine.observed().trained.len() as f32;
        Ok(vec![NamedTensor { name: "trained".to_string(), shape: vec![1], values: vec![trained] }])
    }

    fn set_parameters(&mut self, _: &[NamedTensor]) -> Result<()> {
        Ok(())
    }

    fn optimizer_state(&self) -> Result<Vec<NamedTensor>> {
        Ok(Vec::new())
    }

    fn set_optimizer_state(&mut self, _: &[NamedTensor]) -> Result<()> {
        Ok(())
    }
}

impl Training for FakeTraining {
    fn set_threads(&mut self, threads: usize) -> Result<()> {
        self.machine.observed().training_threads = threads;
        Ok(())
    }

    fn accumulate(&mut self, batch: &MiniBatch) -> Result<Handle<Score>> {
        if self.machine.depth > 1 {
            let batch = match batch {
                MiniBatch::Host(batch) => batch.clone(),
                MiniBatch::Device(batch) => batch.to_host()?,
            };
            let mut observed = self.machine.observed();
            observed.queued += 1;
            observed.peak_queued = observed.peak_queued.max(observed.queued);
            let (machine, resources) = (Arc::clone(&self.machine), resources(&self.key));
            return Ok(Handle::pending(Queued { machine, resources, batch }));
        }
        let start = Instant::now();
        let _guard = self.machine.acquire(&resources(&self.key), batch.id());
        let score = FakeTraining::check_batch(&self.machine, batch)?;
        Ok(self.machine.handle(Phase::Training, batch.id(), score, start.elapsed()))
    }

    fn queue_depth(&self) -> usize {
        self.machine.depth.max(1)
    }

    fn step(&mut self) -> Result<Handle<()>> {
        self.machine.observed().steps += 1;
        Ok(Handle::ready((), Duration::ZERO))
    }

    fn score(&mut self, batch: &MiniBatch) -> Result<Handle<Score>> {
        self.accumulate(batch)
    }

    fn infer(&mut self, _: &[u32]) -> Result<Vec<f32>> {
        Ok(Vec::new())
    }
}
