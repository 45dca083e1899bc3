//! Neighbour sampling of a graph in host memory.

use std::sync::Arc;

use morphgl_graph_store::Topology;
use morphgl_registry::{GivenNodes, HostBatch, NeighborSettings, Result};

use crate::{EdgeArrays, Excluded, Expected, HostBatching, HostHops, SampleSeeds, Seeds, sample_hops};

/// The neighbour sampling of one worker.
#[derive(Debug)]
pub struct NeighborSampler {
    hops: HostHops,
    settings: NeighborSettings,
    given: Option<Arc<dyn GivenNodes>>,
}

impl NeighborSampler {
    /// A sampler of `topology` on so many threads; the arguments are those of [`HostHops::new`].
    pub fn new(topology: &Topology, settings: NeighborSettings, threads: usize, expected: &Arc<Expected>) -> Self {
        Self { hops: HostHops::new(topology, threads, Arc::clone(expected)), settings, given: None }
    }

    /// The sampler, which leaves `given` nodes unexpanded.
    pub fn with_given(self, given: &Arc<dyn GivenNodes>) -> Self {
        Self { given: Some(Arc::clone(given)), ..self }
    }
}

impl SampleSeeds for NeighborSampler {
    fn sample(
        &mut self,
        host: &HostBatching,
        seeds: Seeds<'_>,
        excluded: &Excluded,
        batch: &mut HostBatch,
    ) -> Result<()> {
        let topology = &host.dataset.topology;
        let Self { hops, settings, given } = self;
        let mut sampler = hops.sampler(topology).without(excluded);
        sample_hops(
            &mut sampler,
            settings,
            host.settings.seed,
            EdgeArrays::of(topology),
            seeds.nodes,
            given.as_deref(),
            batch,
        )
    }
}
