//! The hot queue: the nodes of a super-batch that save most by being computed once.

use std::sync::Arc;

use morphgl_graph_store::Dataset;
use morphgl_registry::{
    BatchId, BatchingContext, BatchingWorker, Error, Fanouts, HostBatch, MiniBatch, NeighborSettings, Result,
    SamplerSettings, Sampling, SeedSet,
};
use morphgl_sampler_core::{Expected, HostBatching, HostWorker, NeighborSampler};

use crate::SuperBatches;

/// Samples all hops but the last of a super-batch's mini-batches, and counts the nodes whose neighbours the last hop would
/// sample. As mini-batches are a function of their number, these are the very nodes that training will meet: PreSC
/// (GNNLab, EuroSys'22) of the super-batch itself.
pub struct HotQueue {
    worker: HostWorker<NeighborSampler>,
    super_batches: SuperBatches,
    batch: Option<MiniBatch>,
}

impl std::fmt::Debug for HotQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HotQueue({:?})", self.super_batches)
    }
}

impl HotQueue {
    /// A queue of the mini-batches of `seeds`, on `threads` threads.
    ///
    /// # Errors
    ///
    /// Not neighbour sampling, fewer than two hops, or a graph that is not in host memory.
    pub fn new(
        dataset: &Arc<Dataset>,
        seeds: &SeedSet,
        settings: &SamplerSettings,
        super_batches: SuperBatches,
        threads: usize,
    ) -> Result<Self> {
        let hops = settings.neighbor()?;
        let [upper @ .., _] = &hops.fanouts.0[..] else { return Err(too_few_hops()) };
        if upper.is_empty() {
            return Err(too_few_hops());
        }
        let hops = NeighborSettings { fanouts: Fanouts(upper.to_vec()), ..hops.clone() };
        let settings = SamplerSettings { sampling: Sampling::Neighbor(hops.clone()), ..settings.clone() };
        let context =
            BatchingContext { gather: false, ..BatchingContext::new(Arc::clone(dataset), seeds.clone(), settings) };
        let host = Arc::new(HostBatching::new(&context)?);
        let sampler = NeighborSampler::new(&dataset.topology, hops, threads, &Arc::new(Expected::default()));
        Ok(Self { worker: HostWorker::new(host, threads, sampler)?, super_batches, batch: None })
    }

    /// Nodes of a super-batch whose first-layer rows may be given, each with the number of mini-batches that contain it: in descending
    /// order of that number, ties in ascending order of node ids.
    ///
    /// # Errors
    ///
    /// Those of the sampler.
    ///
    /// # Complexity
    ///
    /// That of sampling all hops but the last; O(nodes · log nodes) for the order.
    pub fn of(&mut self, super_batch: u64) -> Result<Vec<(u32, u32)>> {
        let mut found = Vec::new();
        for id in self.super_batches.ids(super_batch) {
            let batch = self.sample(id)?;
            found.extend_from_slice(&batch.input_nodes[batch.blocks[0].num_dst..]);
        }
        found.sort_unstable();
        let mut queue: Vec<(u32, u32)> =
            found.chunk_by(|a, b| a == b).map(|same| (same[0], same.len() as u32)).collect();
        queue.sort_unstable_by_key(|&(node, count)| (std::cmp::Reverse(count), node));
        Ok(queue)
    }

    fn sample(&mut self, id: BatchId) -> Result<&HostBatch> {
        let (batch, _) = self.worker.prepare(id, self.batch.take())?.wait()?;
        self.batch.insert(batch).host()
    }
}

fn too_few_hops() -> Error {
    Error::setting("layer split", "it gives rows to the second layer; sample two hops or more")
}
