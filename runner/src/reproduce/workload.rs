//! Sizes of mini-batches, counted on a stand-in and multiplied by its scale; the seconds that a described machine takes for them.

use anyhow::Result;
use morphgl_model_core::{ModelKind, ModelSpec};
use morphgl_registry::{BatchId, Block};
use morphgl_sim::{MachineDescription, StepWork};

use super::stand_in::StandIn;
use crate::session::Sampled;

/// Mini-batches that are counted.
const COUNTED: usize = 48;

/// Sizes of a layer's block.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Layer {
    pub(crate) sources: f64,
    pub(crate) destinations: f64,
    pub(crate) edges: f64,
}

/// The mini-batches of an epoch at the paper's size.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Workload {
    pub(crate) stand_in: StandIn,
    /// Mini-batches of an epoch.
    pub(crate) batches: usize,
    /// Mean sizes, the first layer's first.
    pub(crate) layers: Vec<Layer>,
    /// Input nodes and edges of each counted mini-batch.
    pub(crate) sizes: Vec<[f64; 2]>,
    /// Seconds that one thread of this machine took to sample each mini-batch.
    pub(crate) seconds: Vec<f64>,
    seeds: f64,
}

impl Workload {
    /// Counts mini-batches spread over an epoch, or over several short ones.
    pub(crate) fn count(stand_in: &StandIn, sampled: &Sampled, seeds: usize) -> Result<Self> {
        let batching = sampled.batching();
        // The last mini-batch of an epoch may be smaller.
        let whole = batching.num_batches().saturating_sub(1).max(1);
        let stride = (whole / COUNTED).max(1);
        let mut worker = batching.worker(1)?;
        let mut layers: Vec<Layer> = Vec::new();
        let (mut sizes, mut seconds) = (Vec::new(), Vec::new());
        for i in 0..COUNTED {
            let position = i * stride;
            let id = BatchId { epoch: (position / whole) as u32, index: (position % whole) as u32 };
            let (batch, took) = worker.prepare(id, None)?.wait()?;
            let batch = batch.host()?;
            seconds.push(took.as_secs_f64());
            layers.resize(batch.blocks.len(), Layer::default());
            for (layer, block) in layers.iter_mut().zip(&batch.blocks) {
                let of = |n: usize| n as f64 * stand_in.scale / COUNTED as f64;
                layer.sources += of(block.num_src);
                layer.destinations += of(block.num_dst);
                layer.edges += of(block.num_edges());
            }
            sizes.push([batch.input_nodes.len(), batch.num_edges()].map(|n| n as f64 * stand_in.scale));
        }
        let batches = stand_in.batches(seeds);
        Ok(Self { stand_in: *stand_in, batches, layers, sizes, seconds, seeds: seeds as f64 })
    }

    /// Mean input nodes per mini-batch.
    pub(crate) fn inputs(&self) -> f64 {
        self.layers[0].sources
    }

    /// Mean edges per mini-batch.
    pub(crate) fn edges(&self) -> f64 {
        self.layers.iter().map(|layer| layer.edges).sum()
    }

    /// Mean bytes of the features of a mini-batch.
    pub(crate) fn feature_bytes(&self, value: f64) -> f64 {
        self.inputs() * self.stand_in.dim as f64 * value
    }

    /// Mean bytes of a mini-batch: features, 4 bytes per edge, 8 per destination.
    pub(crate) fn bytes(&self, value: f64) -> f64 {
        self.feature_bytes(value) + self.layers.iter().map(|l| 4.0 * l.edges + 8.0 * l.destinations).sum::<f64>()
    }

    /// Work of a step.
    pub(crate) fn step(&self, kind: ModelKind, hidden: usize) -> StepWork {
        let StandIn { dim, classes, .. } = self.stand_in;
        let spec = ModelSpec { hidden, layers: self.layers.len(), ..ModelSpec::new(kind, dim, classes) };
        // The work is linear in all sizes: it is computed for a hundredth of them, since blocks hold their edges.
        const PART: f64 = 0.01;
        let block = |layer: &Layer| {
            let [num_src, num_dst, edges] =
                [layer.sources, layer.destinations, layer.edges].map(|n| (n * PART).round() as usize);
            Block { num_src, num_dst, indices: vec![0; edges], ..Block::default() }
        };
        let blocks: Vec<Block> = self.layers.iter().map(block).collect();
        let work = spec.step_work(&blocks, (self.seeds * PART) as usize).expect("a model of this program");
        StepWork { flops: work.flops / PART, bytes: work.bytes / PART }
    }
}

/// Seconds of a mini-batch on a described machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Phases {
    /// Sampling by one core.
    pub(crate) host_sampling: f64,
    /// Collecting the features by all cores at once.
    pub(crate) collecting: f64,
    /// Copying the mini-batch to the device.
    pub(crate) copying: f64,
    /// Sampling by the device; infinite where it does not sample.
    pub(crate) device_sampling: f64,
    /// Gathering the features by the device from the host's memory.
    pub(crate) gathering: f64,
    /// Training on the device.
    pub(crate) training: f64,
}

/// What is trained, and what is cached.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Load {
    pub(crate) kind: ModelKind,
    pub(crate) hidden: usize,
    /// Bytes of a value of the features, and of a neighbour in the topology.
    pub(crate) value: f64,
    pub(crate) id: f64,
    /// Share of the accesses to rows, and to adjacency lists, that the device's memory serves.
    pub(crate) row_hits: f64,
    pub(crate) list_hits: f64,
}

impl Phases {
    /// The first device's, or the host's.
    pub(crate) fn of(workload: &Workload, machine: &MachineDescription, load: Load) -> Self {
        let device = machine.devices.first().expect("the papers' machines have devices");
        let host = &machine.host;
        let topology = (workload.stand_in.topology_bytes(load.id)) as u64;
        let (edges, features) = (workload.edges(), workload.feature_bytes(load.value));
        let row = (workload.stand_in.dim as f64 * load.value) as usize;
        // Lists that are cached are sampled as if the whole topology were there.
        let sampled = |topology| machine.device_batching(device, edges, topology);
        let (cached, read) = (sampled(0), sampled(topology));
        let mixed = |(cached, read): (f64, f64)| load.list_hits * cached + (1.0 - load.list_hits) * read;
        Self {
            host_sampling: machine.host_batching(edges, 0.0),
            collecting: 2.0 * features / (host.bandwidth_gb_per_s * 1e9),
            copying: machine.copying(device, workload.bytes(load.value)),
            device_sampling: cached.zip(read).map_or(f64::INFINITY, mixed),
            gathering: machine.gathering(device, (1.0 - load.row_hits) * workload.inputs(), row),
            training: machine.device_training(device, workload.step(load.kind, load.hidden)),
        }
    }
}
