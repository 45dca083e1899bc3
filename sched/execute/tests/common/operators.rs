//! The operators: on the host, and on a device whose mini-batches are counted.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use morphgl_registry::{
    BatchId, Batching, BatchingWorker, DeviceBatch, Gradients, Handle, HostBatch, Key, MiniBatch, NamedTensor, Phase,
    Place, Result, Score, Training, Transferring, Wait,
};

use super::{World, content};

/// The names of a key's resources.
fn resources(key: &Key) -> Vec<&'static str> {
    key.hardware.resources().iter().map(|r| r.name()).collect()
}

fn device() -> Place {
    "dev:0".parse().expect("a place")
}

/// A mini-batch in the fake device's memory.
struct OnDevice {
    world: Arc<World>,
    batch: HostBatch,
}

impl std::fmt::Debug for OnDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OnDevice({})", self.batch.id)
    }
}

impl OnDevice {
    fn boxed(world: &Arc<World>, batch: HostBatch) -> MiniBatch {
        world.born();
        MiniBatch::Device(Box::new(Self { world: Arc::clone(world), batch }))
    }
}

impl Drop for OnDevice {
    fn drop(&mut self) {
        self.world.alive.fetch_sub(1, Ordering::SeqCst);
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

/// Its content, wherever it lies.
fn inside(batch: &mut MiniBatch) -> &mut HostBatch {
    match batch {
        MiniBatch::Host(batch) => batch,
        // Only tests look into a device's memory.
        MiniBatch::Device(batch) => {
            let any: &mut dyn Any = batch.as_mut();
            &mut any.downcast_mut::<OnDevice>().expect("a fake").batch
        }
    }
}

#[derive(Debug)]
pub(crate) struct FakeBatching {
    pub(crate) key: Key,
    pub(crate) world: Arc<World>,
    /// Whether it batches at the place where it trains.
    pub(crate) in_place: bool,
    pub(crate) on_device: bool,
}

impl FakeBatching {
    /// On the host, as a pool uses it.
    pub(crate) fn host(world: &Arc<World>) -> Self {
        let key = "Batching_CPU_Fake".parse().expect("a key");
        Self { key, world: Arc::clone(world), in_place: true, on_device: false }
    }
}

struct Worker {
    resources: Vec<&'static str>,
    world: Arc<World>,
    in_place: bool,
    on_device: bool,
}

impl Batching for FakeBatching {
    fn num_batches(&self) -> usize {
        self.world.num_batches
    }

    fn worker(&self, threads: usize) -> Result<Box<dyn BatchingWorker>> {
        self.world.seen().worker_threads.push(threads);
        let Self { key, world, in_place, on_device } = self;
        let (resources, world) = (resources(key), Arc::clone(world));
        Ok(Box::new(Worker { resources, world, in_place: *in_place, on_device: *on_device }))
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
        let _held = self.world.hold(&self.resources, id);
        let mut batch = recycled.unwrap_or_else(|| match self.on_device {
            true => OnDevice::boxed(&self.world, HostBatch::default()),
            false => MiniBatch::Host(HostBatch::default()),
        });
        let content_of = inside(&mut batch);
        {
            let mut seen = self.world.seen();
            if content_of.labels.is_empty() {
                content_of.labels.push(seen.buffers);
                seen.buffers += 1;
            }
            assert!(seen.live.insert(content_of.labels[0]), "the buffer of {id} has another owner");
            seen.peak_live = seen.peak_live.max(seen.live.len());
            seen.prepared.push(id);
            if self.in_place {
                seen.ready += 1;
                seen.peak_ready = seen.peak_ready.max(seen.ready);
            } else {
                seen.batched += 1;
                seen.peak_batched = seen.peak_batched.max(seen.batched);
            }
        }
        content_of.input_nodes.clear();
        content_of.input_nodes.extend(content(id));
        (content_of.id, content_of.num_seeds) = (self.world.deliver(Phase::Batching, id), 4);
        self.world.act(Phase::Batching, id)?;
        Ok(self.world.handle(Phase::Batching, id, batch, start.elapsed()))
    }
}

#[derive(Debug)]
pub(crate) struct FakeTransferring {
    pub(crate) key: Key,
    pub(crate) world: Arc<World>,
    pub(crate) in_place: bool,
}

impl Transferring for FakeTransferring {
    fn transfer(&mut self, mut batch: MiniBatch) -> Result<Handle<MiniBatch>> {
        let start = Instant::now();
        let id = batch.id();
        let _held = self.world.hold(&resources(&self.key), id);
        if !self.in_place {
            let mut seen = self.world.seen();
            seen.ready += 1;
            seen.peak_ready = seen.peak_ready.max(seen.ready);
        }
        inside(&mut batch).id = self.world.deliver(Phase::Transferring, id);
        if !self.in_place {
            batch = OnDevice::boxed(&self.world, batch.into_host()?);
        }
        self.world.act(Phase::Transferring, id)?;
        if !self.in_place {
            self.world.seen().batched -= 1;
        }
        Ok(self.world.handle(Phase::Transferring, id, batch, start.elapsed()))
    }
}

#[derive(Debug)]
pub(crate) struct FakeTraining {
    pub(crate) key: Key,
    pub(crate) world: Arc<World>,
}

impl FakeTraining {
    /// What training does with a mini-batch; checks that it arrived whole.
    pub(crate) fn look(world: &World, batch: &MiniBatch) -> Result<Score> {
        let batch = match batch {
            MiniBatch::Host(batch) => batch.clone(),
            MiniBatch::Device(batch) => batch.to_host()?,
        };
        assert_eq!(batch.input_nodes, content(batch.id), "content of {}", batch.id);
        world.act(Phase::Training, batch.id)?;
        let mut seen = world.seen();
        seen.trained.push(batch.id);
        assert!(seen.live.remove(&batch.labels[0]), "{} was not live", batch.id);
        seen.ready -= 1;
        Ok(Score { loss_sum: f64::from(batch.id.index), correct: 1, count: 4 })
    }
}

/// Training that is done when it is waited for.
struct Queued {
    world: Arc<World>,
    resources: Vec<&'static str>,
    batch: HostBatch,
}

impl Wait<Score> for Queued {
    fn is_ready(&self) -> bool {
        false
    }

    fn wait(self: Box<Self>) -> Result<(Score, Duration)> {
        let Self { world, resources, batch } = *self;
        let (start, id) = (Instant::now(), batch.id);
        world.seen().queued -= 1;
        let _held = world.hold(&resources, id);
        let score = FakeTraining::look(&world, &MiniBatch::Host(batch))?;
        world.handle(Phase::Training, id, score, start.elapsed()).wait()
    }
}

impl Training for FakeTraining {
    fn set_threads(&mut self, threads: usize) -> Result<()> {
        self.world.seen().training_threads = threads;
        Ok(())
    }

    fn accumulate(&mut self, batch: &MiniBatch) -> Result<Handle<Score>> {
        if self.world.depth > 1 {
            let batch = match batch {
                MiniBatch::Host(batch) => batch.clone(),
                MiniBatch::Device(batch) => batch.to_host()?,
            };
            let mut seen = self.world.seen();
            seen.queued += 1;
            seen.peak_queued = seen.peak_queued.max(seen.queued);
            let (world, resources) = (Arc::clone(&self.world), resources(&self.key));
            return Ok(Handle::pending(Queued { world, resources, batch }));
        }
        let start = Instant::now();
        let _held = self.world.hold(&resources(&self.key), batch.id());
        let score = FakeTraining::look(&self.world, batch)?;
        Ok(self.world.handle(Phase::Training, batch.id(), score, start.elapsed()))
    }

    fn queue_depth(&self) -> usize {
        self.world.depth.max(1)
    }

    fn step(&mut self) -> Result<Handle<()>> {
        self.world.seen().steps += 1;
        Ok(Handle::ready((), Duration::ZERO))
    }

    fn gradients(&mut self) -> Result<Gradients> {
        Ok(Gradients::default())
    }

    fn set_gradients(&mut self, _: &Gradients) -> Result<()> {
        Ok(())
    }

    fn parameters(&self) -> Result<Vec<NamedTensor>> {
        Ok(Vec::new())
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

    fn score(&mut self, batch: &MiniBatch) -> Result<Handle<Score>> {
        self.accumulate(batch)
    }

    fn infer(&mut self, _: &[u32]) -> Result<Vec<f32>> {
        Ok(Vec::new())
    }
}
