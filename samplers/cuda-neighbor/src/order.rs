//! Seed orders of epochs, in device memory.

use std::sync::{Arc, Mutex, PoisonError};

use morphgl_cuda::{Buffer, CudaTargets, Event, Stream};
use morphgl_graph_store::{Array, Dataset, TargetMatrix};
use morphgl_registry::{Result, SeedSet};
use morphgl_sampler_core::permute;

/// Number of epochs whose order is cached: workers change epochs at different times.
const CACHED_EPOCHS: usize = 2;

/// Seed order of an epoch, with the seeds' labels and targets.
#[derive(Debug)]
pub(crate) struct Order {
    epoch: u32,
    pub(crate) nodes: Buffer<u32>,
    /// Labels in that order; empty if the graph has none.
    pub(crate) labels: Buffer<i32>,
    /// Targets in that order, row after row; empty if the graph has none.
    pub(crate) targets: CudaTargets,
    /// Event after all uploads.
    pub(crate) ready: Event,
}

/// Seed orders of recent epochs.
#[derive(Debug)]
pub(crate) struct Orders {
    seeds: SeedSet,
    labels: Option<Array<i32>>,
    targets: Option<TargetMatrix>,
    /// Random seed of the permutations; `None` keeps the given order.
    shuffle: Option<u64>,
    orders: Mutex<Vec<Arc<Order>>>,
}

impl Orders {
    pub(crate) fn new(seeds: SeedSet, dataset: &Dataset, shuffle: Option<u64>) -> Self {
        let (labels, targets) = (dataset.node_labels().cloned(), dataset.node_targets().cloned());
        Self { seeds, labels, targets, shuffle, orders: Mutex::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.seeds.nodes().len()
    }

    /// Number of seeds of an epoch that repeat another one.
    pub(crate) fn num_repeats(&self) -> usize {
        self.seeds.num_repeats()
    }

    /// Bytes of device memory of all cached orders.
    pub(crate) fn num_bytes(&self) -> u64 {
        let orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        let num_orders = if self.shuffle.is_some() { CACHED_EPOCHS as u64 } else { 1 };
        let bytes =
            |order: &Order| order.nodes.num_bytes() + order.labels.num_bytes() + order.targets.values.num_bytes();
        num_orders * orders.iter().map(|order| bytes(order)).max().unwrap_or(0)
    }

    /// The order of `epoch`, computed and uploaded on the stream of the first worker that needs it.
    pub(crate) fn get(&self, epoch: u32, stream: &Stream) -> Result<Arc<Order>> {
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(order) = orders.iter().find(|order| order.epoch == epoch || self.shuffle.is_none()) {
            return Ok(Arc::clone(order));
        }
        let mut nodes = self.seeds.nodes().to_vec();
        if let Some(seed) = self.shuffle {
            permute(seed, epoch, &mut nodes);
        }
        let labels: Vec<i32> =
            self.labels.iter().flat_map(|labels| nodes.iter().map(|&v| labels[v as usize])).collect();
        let rows = self.targets.iter().flat_map(|rows| nodes.iter().flat_map(|&v| rows.row(v).iter().copied()));
        let targets: Vec<f32> = rows.collect();
        let width = self.targets.as_ref().map_or(0, TargetMatrix::dim);
        let targets = CudaTargets { width, values: Buffer::of(stream, &targets)? };
        let (nodes, labels) = (Buffer::of(stream, &nodes)?, Buffer::of(stream, &labels)?);
        let order = Arc::new(Order { epoch, nodes, labels, targets, ready: stream.record(false)? });
        if orders.len() == CACHED_EPOCHS {
            orders.remove(0);
        }
        orders.push(Arc::clone(&order));
        Ok(order)
    }
}
