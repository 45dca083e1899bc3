//! ShaDow sampling: the subgraph that the nodes of a few hops induce.

pub(crate) mod induce;

use std::mem;
use std::sync::Arc;

use morphgl_graph_store::Topology;
use morphgl_registry::{BatchId, Batching, BatchingContext, BatchingWorker, Block, HostBatch, Result, ShadowSettings};
use morphgl_sampler_core::{
    EdgeArrays, Excluded, Expected, Hop, HopSampler, HostBatching, HostHopSampler, HostHops, HostWorker, SampleSeeds,
    Seeds, check_threads, sample_hops,
};

use induce::{Graph, Inducer};

/// Phase Batching by ShaDow sampling on CPU threads, `Batching_CPU_Shadow`.
#[derive(Debug, Clone)]
pub struct CpuShadow {
    host: Arc<HostBatching>,
    settings: ShadowSettings,
    expected: Arc<Expected>,
}

impl CpuShadow {
    /// Builds the operator.
    ///
    /// # Errors
    ///
    /// Settings of another kind of sampling, options, and as [`HostBatching::new`].
    ///
    /// # Complexity
    ///
    /// As [`HostBatching::new`].
    pub fn new(context: &BatchingContext) -> Result<Self> {
        let settings = context.settings.shadow()?.clone();
        crate::SHADOW.check_options(&context.options)?;
        let host = HostBatching::new(context)?;
        Ok(Self { host: Arc::new(host), settings, expected: Arc::default() })
    }
}

impl Batching for CpuShadow {
    fn num_batches(&self) -> usize {
        self.host.epochs.num_batches()
    }

    fn worker(&self, threads: usize) -> Result<Box<dyn BatchingWorker>> {
        check_threads(threads)?;
        let topology = &self.host.dataset.topology;
        let sampler = ShadowSampler {
            settings: self.settings.clone(),
            hops: HostHops::new(topology, threads, Arc::clone(&self.expected)),
            found: HostBatch::default(),
            inducer: Inducer::new(topology.num_nodes(), threads),
            induced: Block::default(),
        };
        Ok(Box::new(HostWorker::new(Arc::clone(&self.host), threads, sampler)?))
    }
}

/// The sampling of one worker.
#[derive(Debug)]
struct ShadowSampler {
    settings: ShadowSettings,
    hops: HostHops,
    /// Blocks of the hops, which find the nodes and are not kept.
    found: HostBatch,
    inducer: Inducer,
    /// The induced subgraph.
    induced: Block,
}

impl SampleSeeds for ShadowSampler {
    fn sample(
        &mut self,
        host: &HostBatching,
        seeds: Seeds<'_>,
        excluded: &Excluded,
        batch: &mut HostBatch,
    ) -> Result<()> {
        let seeds = seeds.nodes;
        let Self { settings, hops, found, inducer, induced } = self;
        let topology = &host.dataset.topology;
        found.id = batch.id;
        mem::swap(&mut found.input_nodes, &mut batch.input_nodes);
        mem::swap(&mut found.degrees, &mut batch.degrees);
        let hops = hops.sampler(topology).without(excluded);
        let mut sampler = Inducing { topology, excluded, id: batch.id, hops, inducer, induced };
        sample_hops(&mut sampler, &settings.hops, host.settings.seed, EdgeArrays::of(topology), seeds, None, found)?;
        batch.num_seeds = seeds.len();
        batch.input_nodes = mem::take(&mut found.input_nodes);
        batch.degrees = mem::take(&mut found.degrees);
        batch.blocks.resize_with(settings.layers, Block::default);
        let (last, inner) = batch.blocks.split_last_mut().expect("at least one layer, which settings are checked for");
        inner.iter_mut().for_each(|block| copy(induced, induced.num_dst, block));
        copy(induced, seeds.len(), last);
        Ok(())
    }
}

/// Samples hops, then induces the subgraph of their nodes, while these have local ids.
struct Inducing<'a> {
    topology: &'a Topology,
    excluded: &'a Excluded,
    id: BatchId,
    hops: HostHopSampler<'a>,
    inducer: &'a mut Inducer,
    induced: &'a mut Block,
}

impl HopSampler for Inducing<'_> {
    fn start(&mut self, seeds: &[u32], nodes: Vec<u32>, degrees: Vec<f32>) -> Result<()> {
        self.hops.start(seeds, nodes, degrees)
    }

    fn num_nodes(&self) -> usize {
        self.hops.num_nodes()
    }

    fn expand(&mut self, hop: Hop<'_>, block: &mut Block) -> Result<()> {
        self.hops.expand(hop, block)
    }

    fn finish(&mut self) -> Result<(Vec<u32>, Vec<f32>)> {
        // ShaDow's models read no types of edges.
        let graph = Graph { topology: self.topology, excluded: self.excluded, types: None };
        self.inducer.induce(graph, self.id, self.hops.nodes(), self.induced)?;
        self.hops.locals(&mut self.induced.indices);
        self.hops.finish()
    }
}

/// Copies the first `num_dst` rows of a block.
fn copy(from: &Block, num_dst: usize, to: &mut Block) {
    fn replace<T: Copy>(to: &mut Vec<T>, from: &[T]) {
        to.clear();
        to.extend_from_slice(from);
    }
    let num_edges = from.indptr[num_dst] as usize;
    (to.num_dst, to.num_src, to.importance) = (num_dst, from.num_src, false);
    replace(&mut to.indptr, &from.indptr[..=num_dst]);
    replace(&mut to.indices, &from.indices[..num_edges]);
    match &from.weights {
        Some(weights) => replace(to.weights.get_or_insert_default(), &weights[..num_edges]),
        None => to.weights = None,
    }
    match &from.edge_ids {
        Some(ids) => replace(to.edge_ids.get_or_insert_default(), &ids[..num_edges]),
        None => to.edge_ids = None,
    }
}
