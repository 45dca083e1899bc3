//! State that all workers share.

use std::ops::Range;
use std::sync::Arc;

use morphgl_cuda::Device;
use morphgl_registry::{BatchId, BatchingContext, Error, Pick, Result, SamplerSettings};
use morphgl_sampler_core::seed_positions;

use crate::bounds::{Degrees, Hop, MOST};
use crate::graph::Graph;
use crate::kernels::Kernels;
use crate::order::Orders;
use crate::{KEY, Options};

/// Minimum default of `hop_bytes`.
const LEAST_HOP_BYTES: u64 = 64 << 20;

/// State shared by all workers.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) device: Device,
    pub(crate) graph: Arc<Graph>,
    pub(crate) degrees: Arc<Degrees>,
    pub(crate) kernels: Kernels,
    pub(crate) settings: SamplerSettings,
    pub(crate) orders: Orders,
    pub(crate) hop_bytes: u64,
}

impl Shared {
    pub(crate) fn new(
        context: &BatchingContext,
        device: &Device,
        options: &Options,
        graph: Arc<Graph>,
        degrees: &Arc<Degrees>,
    ) -> Result<Self> {
        let settings = context.settings.clone();
        let shuffle = settings.shuffle.then_some(settings.seed);
        let hop_bytes = match options.hop_bytes {
            Some(bytes) => bytes,
            None => (device.properties()?.memory_bytes / 256).max(LEAST_HOP_BYTES),
        };
        Ok(Self {
            device: device.clone(),
            graph,
            degrees: Arc::clone(degrees),
            kernels: Kernels::load(device)?,
            settings,
            orders: Orders::new(context.seeds.clone(), context.dataset.labels.clone(), shuffle),
            hop_bytes,
        })
    }

    pub(crate) fn num_batches(&self) -> usize {
        self.orders.len().div_ceil(self.settings.batch_size)
    }

    /// Positions of a share's seeds in the epoch's order.
    pub(crate) fn seeds(&self, id: BatchId, share: Range<usize>) -> Result<Range<usize>> {
        seed_positions(self.orders.len(), self.settings.batch_size, id, share)
    }

    /// Refuses mini-batches whose upper bounds exceed the free device memory.
    pub(crate) fn check_memory(&self, options: &Options) -> Result<()> {
        let weights = self.graph.weights.is_some();
        let (mut bytes, mut bound) = (0u64, self.first_hop());
        for at in 0..self.settings.fanouts.0.len() {
            if at > 0 {
                bound = self.degrees.after(&bound, &self.settings, self.settings.fanouts.0[at]);
            }
            if !self.fits(&bound) {
                break;
            }
            bytes += bound.bytes(weights, false);
        }
        let (all, free) = (bytes.saturating_mul(options.in_flight as u64), self.device.free_bytes()?);
        if all > free {
            let what = format!(
                "{} mini-batches under way take up to {all} bytes of device memory, and {free} are free; give a smaller \
                 batch size or fanouts, or a smaller in_flight or topology_bytes",
                options.in_flight
            );
            return Err(Error::setting(&KEY, what));
        }
        Ok(())
    }

    /// Upper bounds of the first hop.
    pub(crate) fn first_hop(&self) -> Hop {
        let seeds = self.settings.batch_size.min(self.orders.len()) as u64;
        self.degrees.hop(seeds, seeds, self.settings.fanouts.0[0])
    }

    /// Whether a hop is allocated by its upper bounds.
    pub(crate) fn fits(&self, bound: &Hop) -> bool {
        let weights = self.graph.weights.is_some();
        bound.bytes(weights, self.settings.pick == Pick::Weighted) <= self.hop_bytes && bound.edges <= MOST / 2
    }

    /// Reach from hop `hop` on; with `known`, that hop's sizes are exact and it is always included.
    pub(crate) fn reach(&self, hop: usize, mut bound: Hop, known: bool) -> Reach {
        let mut reach = Reach { nodes: bound.rows, values: bound.rows };
        for at in hop..self.settings.fanouts.0.len() {
            if at > hop {
                bound = self.degrees.after(&bound, &self.settings, self.settings.fanouts.0[at]);
            }
            if !(self.fits(&bound) || (known && at == hop)) {
                return Reach { nodes: reach.nodes.max(bound.rows), ..reach };
            }
            reach.nodes = bound.nodes;
            reach.values = reach.values.max(bound.rows + bound.edges);
        }
        reach
    }
}

/// Sizes reachable without a query by the host: up to the last hop, or to the first one with too large a bound.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reach {
    /// Maximum number of nodes then.
    pub(crate) nodes: u64,
    /// Maximum hash-table value.
    pub(crate) values: u64,
}

impl Reach {
    pub(crate) fn checked(self, id: BatchId) -> Result<Self> {
        if self.values > MOST {
            let what = "a hop may have more than 2^31 - 1 edges; give a smaller batch size or fanouts";
            return Err(Error::setting(id, what));
        }
        Ok(self)
    }
}
