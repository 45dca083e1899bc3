//! Neighbour sampling of a graph in host memory.

use std::sync::Arc;

use morphgl_graph_store::Topology;
use morphgl_registry::{HostBatch, NeighborSettings, Result};

use crate::{Expected, HostBatching, HostHops, SampleSeeds, sample_hops};

/// The neighbour sampling of one worker.
#[derive(Debug)]
pub struct NeighborSampler {
    hops: HostHops,
    settings: NeighborSettings,
}

impl NeighborSampler {
    /// A sampler of `topology` on so many threads; the arguments are those of [`HostHops::new`].
    pub fn new(topology: &Topology, settings: NeighborSettings, threads: usize, expected: &Arc<Expected>) -> Self {
        Self { hops: HostHops::new(topology, threads, Arc::clone(expected)), settings }
    }
}

impl SampleSeeds for NeighborSampler {
    fn sample(&mut self, host: &HostBatching, seeds: &[u32], batch: &mut HostBatch) -> Result<()> {
        let topology = &host.dataset.topology;
        let weights = topology.weights().map(|w| &**w);
        sample_hops(&mut self.hops.sampler(topology), &self.settings, host.settings.seed, weights, seeds, batch)
    }
}
