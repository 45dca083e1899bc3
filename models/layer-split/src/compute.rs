//! The first layer of hot nodes: one hop of neighbours, and the layer over it.

use std::mem::take;
use std::sync::Arc;

use morphgl_graph_store::Dataset;
use morphgl_registry::{
    BatchId, BatchingContext, Block, Error, HostBatch, NamedTensor, NeighborSettings, Result, SamplerSettings, SeedSet,
    Training,
};
use morphgl_sampler_core::{EdgeArrays, Expected, Hop, HopSampler, HostBatching, HostHops, Picks};
use rayon::{ThreadPool, ThreadPoolBuilder};

/// Nodes that are computed at once.
const CHUNK: usize = 1 << 13;

/// Computes rows of the first layer by a training operator of its own.
#[derive(Debug)]
pub(crate) struct FirstLayer {
    host: HostBatching,
    hops: HostHops,
    /// The threads that sample, if there are several.
    pool: Option<ThreadPool>,
    settings: NeighborSettings,
    trainer: Box<dyn Training>,
    /// The last nodes and their neighbours.
    batch: HostBatch,
}

impl FirstLayer {
    /// Computes on so many threads.
    pub(crate) fn new(
        (dataset, seeds, settings): (&Arc<Dataset>, &SeedSet, &SamplerSettings),
        mut trainer: Box<dyn Training>,
        threads: usize,
    ) -> Result<Self> {
        trainer.set_threads(threads)?;
        let pool = (threads > 1).then(|| {
            let builder = ThreadPoolBuilder::new().num_threads(threads).thread_name(|i| format!("first-layer-{i}"));
            builder.build().map_err(|e| Error::failed("threads of layer split", e))
        });
        let context = BatchingContext {
            gather: false,
            ..BatchingContext::new(Arc::clone(dataset), seeds.clone(), settings.clone())
        };
        let host = HostBatching::new(&context)?;
        let hops = HostHops::new(&dataset.topology, threads, Arc::new(Expected::default()));
        let (pool, settings) = (pool.transpose()?, settings.neighbor()?.clone());
        Ok(Self { host, hops, pool, settings, trainer, batch: HostBatch::default() })
    }

    /// Writes the rows of `nodes` by these parameters to the first of `matrices`, with the neighbours that the last hop of mini-batch
    /// `id` draws, and to the others what the first layer's weights multiply, as far as the operator hands it out.
    pub(crate) fn compute(
        &mut self,
        id: BatchId,
        nodes: &[u32],
        parameters: &[NamedTensor],
        matrices: &mut [Vec<f32>],
    ) -> Result<()> {
        self.trainer.set_parameters(parameters)?;
        matrices.iter_mut().for_each(Vec::clear);
        let (rows, inputs) = matrices.split_first_mut().expect("a matrix of rows");
        for nodes in nodes.chunks(CHUNK) {
            self.sample(id, nodes)?;
            self.trainer.first_layer(&self.batch, rows, inputs).unwrap_or_else(|| {
                Err(Error::setting("layer split", "this training operator does not compute its first layer alone"))
            })?;
        }
        Ok(())
    }

    /// The training operator, for another number of threads.
    pub(crate) fn into_trainer(self) -> Box<dyn Training> {
        self.trainer
    }

    /// Samples the neighbours of `nodes` into the same memory.
    fn sample(&mut self, id: BatchId, nodes: &[u32]) -> Result<()> {
        let Self { host, hops, pool, settings, batch, .. } = self;
        match pool {
            Some(pool) => pool.install(|| sample((host, hops, settings), id, nodes, batch)),
            None => sample((host, hops, settings), id, nodes, batch),
        }
    }
}

/// Samples the neighbours of `nodes` by the last hop of mini-batch `id` into `batch`, on the threads of the current pool.
fn sample(
    (host, hops, settings): (&HostBatching, &mut HostHops, &NeighborSettings),
    id: BatchId,
    nodes: &[u32],
    batch: &mut HostBatch,
) -> Result<()> {
    let topology = &host.dataset.topology;
    let mut sampler = hops.sampler(topology);
    sampler.start(nodes, take(&mut batch.input_nodes), take(&mut batch.degrees))?;
    let picks = Picks::new(settings, host.settings.seed, EdgeArrays::of(topology), id, settings.fanouts.0.len() - 1);
    batch.blocks.resize_with(1, Block::default);
    let block = &mut batch.blocks[0];
    sampler.expand(Hop { picks, first: 0, num_dst: nodes.len(), is_last: true }, block)?;
    block.num_src = sampler.num_nodes();
    (batch.input_nodes, batch.degrees) = sampler.finish()?;
    host.weigh(&mut batch.degrees, &batch.input_nodes);
    (batch.id, batch.num_seeds) = (id, nodes.len());
    Ok(())
}
