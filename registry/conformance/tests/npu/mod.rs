//! Operators of an invented accelerator, and counterparts on the host: they batch a ring and count the seeds that arrive.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use morphgl_graph_store::Dataset;
use morphgl_registry::{
    Accelerator, At, BatchFeatures, BatchId, Batching, BatchingContext, BatchingWorker, Block, Build, Description,
    DeviceBatch, Error, ErrorKind, Gradients, Handle, Hardware, HostBatch, Key, MiniBatch, ModelState, NamedTensor,
    Phase, Place, Resource, Result, Score, Training, TrainingContext, Transferring, TransferringContext,
};

const NPU: Resource = Resource::new("NPU");
const NPU_ONLY: Hardware = Hardware::new(&[NPU]);
const NPU_PCIE: Hardware = Hardware::new(&[NPU, Resource::PCIE]);
const PCIE: Hardware = Hardware::new(&[Resource::PCIE]);
const DEVICE: At = At::Device("npu");
const BATCHING: Build = Build::Batching(|c| Ok(Box::new(Ring { context: c.clone() })));
const TRANSFERRING: Build = Build::Transferring(|c| Ok(Box::new(Move { to: c.to.clone(), context: c.clone() })));
const TRAINING: Build = Build::Training(|c| Ok(Box::new(Count::new(c))));

pub(crate) fn host_operators() -> Vec<Description> {
    let key = |phase, name| Key::new(phase, Hardware::CPU, name);
    vec![
        Description::new(key(Phase::Batching, "Ring"), "batches a ring", At::Host, At::Host, BATCHING),
        Description::new(key(Phase::Transferring, "Keep"), "moves nothing", At::Host, At::Host, TRANSFERRING),
        Description::new(key(Phase::Training, "Count"), "counts seeds", At::Host, At::Host, TRAINING),
    ]
}

pub(crate) fn npu_operators() -> Vec<Description> {
    let keep = Key::new(Phase::Transferring, NPU_ONLY, "Keep");
    let count = Key::new(Phase::Training, NPU_ONLY, "Count");
    let ring = Key::new(Phase::Batching, NPU_PCIE, "Ring");
    let copy = Key::new(Phase::Transferring, PCIE, "Copy");
    vec![
        Description::new(ring, "batches a ring on the device", At::Host, DEVICE, BATCHING).with_accelerators(|_| {
            let place = |index| Place::Device { backend: "npu".into(), index };
            let npu = |i| Accelerator { place: place(i), name: "invented".into(), memory_bytes: 1 << 20 };
            vec![npu(0), npu(1)]
        }),
        Description::new(copy, "copies to the device", At::Host, DEVICE, TRANSFERRING),
        Description::new(keep, "leaves it on the device", DEVICE, DEVICE, TRANSFERRING),
        Description::new(count, "counts seeds on the device", DEVICE, DEVICE, TRAINING),
    ]
}

pub(crate) fn copy_back() -> Description {
    let back = Key::new(Phase::Transferring, NPU_PCIE, "Back");
    Description::new(back, "copies to the host", DEVICE, At::Host, TRANSFERRING)
}

/// A mini-batch in the invented device's memory.
#[derive(Debug)]
struct OnNpu {
    batch: HostBatch,
    place: Place,
}

impl DeviceBatch for OnNpu {
    fn id(&self) -> BatchId {
        self.batch.id
    }
    fn place(&self) -> Place {
        self.place.clone()
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

fn at(place: &Place, batch: HostBatch) -> MiniBatch {
    match place {
        Place::Host => MiniBatch::Host(batch),
        Place::Disk => panic!("mini-batches never lie on disk"),
        Place::Device { .. } => MiniBatch::Device(Box::new(OnNpu { batch, place: place.clone() })),
    }
}

#[derive(Debug)]
struct Ring {
    context: BatchingContext,
}

impl Batching for Ring {
    fn num_batches(&self) -> usize {
        self.context.seeds.nodes().len().div_ceil(self.context.settings.batch_size)
    }
    fn worker(&self, _threads: usize) -> Result<Box<dyn BatchingWorker>> {
        Ok(Box::new(RingWorker { context: self.context.clone() }))
    }
}

struct RingWorker {
    context: BatchingContext,
}

impl BatchingWorker for RingWorker {
    fn prepare_share(
        &mut self,
        id: BatchId,
        share: Range<usize>,
        _recycled: Option<MiniBatch>,
    ) -> Result<Handle<MiniBatch>> {
        let size = self.context.settings.batch_size;
        let seeds = self.context.seeds.nodes().chunks(size).nth(id.index as usize);
        let seeds = seeds.and_then(|seeds| seeds.get(share.start..share.end.min(seeds.len())));
        let input_nodes = seeds.ok_or_else(|| Error::setting("ring", "no such mini-batch"))?.to_vec();
        let n = input_nodes.len();
        let block = Block { num_dst: n, num_src: n, indptr: vec![0; n + 1], ..Block::default() };
        let batch = HostBatch {
            id,
            num_seeds: n,
            degrees: vec![1.0; n],
            given: None,
            labels: vec![0; n],
            blocks: vec![block],
            features: Some(features(&self.context.dataset, &input_nodes)),
            input_nodes,
        };
        Ok(Handle::ready(at(&self.context.place, batch), Duration::from_micros(5)))
    }
}

fn features(dataset: &Dataset, nodes: &[u32]) -> BatchFeatures {
    let matrix = dataset.features.as_ref().expect("the ring has features");
    let mut features = BatchFeatures::like(matrix);
    matrix.gather_rows(nodes, features.resize(nodes.len(), matrix.dim(), matrix.dtype()));
    features
}

#[derive(Debug)]
struct Move {
    context: TransferringContext,
    to: Place,
}

impl Transferring for Move {
    fn transfer(&mut self, batch: MiniBatch) -> Result<Handle<MiniBatch>> {
        assert_eq!(batch.place(), self.context.from, "the place a mini-batch comes from");
        let batch = if batch.place() == self.to { batch } else { at(&self.to, batch.into_host()?) };
        Ok(Handle::ready(batch, Duration::from_micros(1)))
    }
}

/// Counts how often each node was a seed.
#[derive(Debug)]
struct Count {
    place: Place,
    dataset: Arc<Dataset>,
    seen: Vec<f32>,
}

impl Count {
    fn new(context: &TrainingContext) -> Self {
        let seen = vec![0.0; context.dataset.num_nodes()];
        Self { place: context.place.clone(), dataset: Arc::clone(&context.dataset), seen }
    }

    fn look<'a>(&self, batch: &'a MiniBatch) -> Result<&'a HostBatch> {
        if batch.place() != self.place {
            return Err(Error::new(batch.id(), ErrorKind::Misplaced(format!("not at {}", self.place))));
        }
        match batch {
            MiniBatch::Host(batch) => Ok(batch),
            MiniBatch::Device(device) => Ok(&device.as_any().downcast_ref::<OnNpu>().expect("ours").batch),
        }
    }
}

impl ModelState for Count {
    fn gradients(&mut self) -> Result<Gradients> {
        Ok(Gradients::default())
    }
    fn set_gradients(&mut self, _gradients: &Gradients) -> Result<()> {
        Ok(())
    }
    fn parameters(&self) -> Result<Vec<NamedTensor>> {
        Ok(vec![NamedTensor { name: "seen".into(), shape: vec![self.seen.len()], values: self.seen.clone() }])
    }
    fn set_parameters(&mut self, parameters: &[NamedTensor]) -> Result<()> {
        self.seen.clone_from(&parameters[0].values);
        Ok(())
    }
    fn optimizer_state(&self) -> Result<Vec<NamedTensor>> {
        Ok(Vec::new())
    }
    fn set_optimizer_state(&mut self, _state: &[NamedTensor]) -> Result<()> {
        Ok(())
    }
}

impl Training for Count {
    fn set_threads(&mut self, _threads: usize) -> Result<()> {
        Ok(())
    }
    fn accumulate(&mut self, batch: &MiniBatch) -> Result<Handle<Score>> {
        let batch = self.look(batch)?;
        assert_eq!(batch.features, Some(features(&self.dataset, batch.seeds())), "each seed's own features");
        batch.seeds().iter().for_each(|&v| self.seen[v as usize] += 1.0);
        let score = Score { count: batch.num_seeds as u64, ..Score::default() };
        Ok(Handle::ready(score, Duration::from_micros(9)))
    }
    fn step(&mut self) -> Result<Handle<()>> {
        Ok(Handle::ready((), Duration::from_micros(1)))
    }
    fn score(&mut self, batch: &MiniBatch) -> Result<Handle<Score>> {
        self.accumulate(batch)
    }
    fn infer(&mut self, nodes: &[u32]) -> Result<Vec<f32>> {
        Ok(vec![0.0; nodes.len()])
    }
}
