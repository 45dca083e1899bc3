//! The seeds in the order of an epoch, on the device.

use std::sync::{Arc, Mutex, PoisonError};

use morphgl_cuda::{Buffer, Event, Stream};
use morphgl_graph_store::Array;
use morphgl_registry::{Result, SeedSet};
use morphgl_sampler_core::permute;

/// Epochs whose order is kept: workers pass from one epoch to the next at different times.
const ORDERS: usize = 2;

/// An epoch's order, and the seeds' classes in it.
#[derive(Debug)]
pub(crate) struct Order {
    epoch: u32,
    pub(crate) nodes: Buffer<u32>,
    /// Empty where the graph has no labels.
    pub(crate) labels: Buffer<i32>,
    /// Happens when both are there.
    pub(crate) ready: Event,
}

/// The orders of the last epochs that were asked for.
#[derive(Debug)]
pub(crate) struct Orders {
    seeds: SeedSet,
    labels: Option<Array<i32>>,
    /// The seed of the permutations; `None` keeps the order given.
    shuffle: Option<u64>,
    orders: Mutex<Vec<Arc<Order>>>,
}

impl Orders {
    pub(crate) fn new(seeds: SeedSet, labels: Option<Array<i32>>, shuffle: Option<u64>) -> Self {
        Self { seeds, labels, shuffle, orders: Mutex::default() }
    }

    /// Number of seeds.
    pub(crate) fn len(&self) -> usize {
        self.seeds.nodes().len()
    }

    /// Bytes of device memory that as many orders take as are kept.
    pub(crate) fn num_bytes(&self) -> u64 {
        let orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = if self.shuffle.is_some() { ORDERS as u64 } else { 1 };
        let bytes = |order: &Order| order.nodes.num_bytes() + order.labels.num_bytes();
        kept * orders.iter().map(|order| bytes(order)).max().unwrap_or(0)
    }

    /// The order of `epoch`, made and sent by the worker that asks first, by its stream.
    pub(crate) fn get(&self, epoch: u32, stream: &Stream) -> Result<Arc<Order>> {
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(order) = orders.iter().find(|order| order.epoch == epoch || self.shuffle.is_none()) {
            return Ok(Arc::clone(order));
        }
        let mut nodes = self.seeds.nodes().to_vec();
        if let Some(seed) = self.shuffle {
            permute(seed, epoch, &mut nodes);
        }
        let labels: Vec<i32> = match &self.labels {
            Some(labels) => nodes.iter().map(|&v| labels[v as usize]).collect(),
            None => Vec::new(),
        };
        let (nodes, labels) = (Buffer::of(stream, &nodes)?, Buffer::of(stream, &labels)?);
        let order = Arc::new(Order { epoch, nodes, labels, ready: stream.record(false)? });
        if orders.len() == ORDERS {
            orders.remove(0);
        }
        orders.push(Arc::clone(&order));
        Ok(order)
    }
}
