//! A worker: makes one mini-batch after another in the same memory.

use std::sync::Arc;
use std::time::Instant;

use morphgl_registry::{
    BatchFeatures, BatchId, BatchingWorker, Block, Error, Expansion, Handle, HostBatch, MiniBatch, Result,
};
use morphgl_sampler_core::{Order, Picks, check_threads};
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::expand::Hop;
use crate::found::Found;
use crate::sampler::Shared;
use crate::stages::{Buffers, Stages};

/// One worker, with buffers of its own.
#[derive(Debug)]
pub(crate) struct Worker {
    shared: Arc<Shared>,
    /// The threads one mini-batch is spread over, where there are several.
    pool: Option<ThreadPool>,
    order: Option<Order>,
    found: Found,
    /// One a thread.
    buffers: Vec<Buffers>,
}

impl Worker {
    pub(crate) fn new(shared: Arc<Shared>, threads: usize) -> Result<Self> {
        check_threads(threads)?;
        let pool = (threads > 1).then(|| {
            let builder = ThreadPoolBuilder::new().num_threads(threads).thread_name(|i| format!("batching-{i}"));
            builder.build().map_err(|e| Error::failed("threads of a batching worker", e))
        });
        let found = Found::new(&shared.dataset.topology, Arc::clone(&shared.expected));
        let buffers = (0..threads).map(|_| Buffers::default()).collect();
        Ok(Self { shared, pool: pool.transpose()?, order: None, found, buffers })
    }
}

impl BatchingWorker for Worker {
    fn prepare(&mut self, id: BatchId, recycled: Option<MiniBatch>) -> Result<Handle<MiniBatch>> {
        let start = Instant::now();
        let Self { shared, pool, order, found, buffers } = self;
        let seeds = shared.epochs.seeds(id, order)?;
        let mut batch = match recycled {
            Some(MiniBatch::Host(batch)) => batch,
            _ => HostBatch::default(),
        };
        batch.id = id;
        match pool {
            Some(pool) => pool.install(|| prepare(shared, found, buffers, seeds, &mut batch)),
            None => prepare(shared, found, buffers, seeds, &mut batch),
        }?;
        Ok(Handle::ready(MiniBatch::Host(batch), start.elapsed()))
    }
}

/// Makes the mini-batch `batch.id` of `seeds`; everything else in `batch` is old content, and only its memory is used.
fn prepare(
    shared: &Shared,
    found: &mut Found,
    buffers: &mut [Buffers],
    seeds: &[u32],
    batch: &mut HostBatch,
) -> Result<()> {
    let (dataset, settings) = (&*shared.dataset, &shared.settings);
    let topology = &dataset.topology;
    found.start(std::mem::take(&mut batch.input_nodes), std::mem::take(&mut batch.degrees), seeds, topology);
    let hops = settings.fanouts.0.len();
    batch.blocks.resize_with(hops, Block::default);
    let mut newest = 0;
    for hop in 0..hops {
        let num_dst = found.len();
        let first = match settings.expansion {
            Expansion::All => 0,
            Expansion::New => newest,
        };
        newest = num_dst;
        // blocks[0] is the hop farthest from the seeds.
        let block = &mut batch.blocks[hops - 1 - hop];
        let picks = Picks::new(settings, topology.weights().map(|w| &**w), batch.id, hop);
        picks.begin(block, num_dst, found.spans()[first..].iter().map(|span| span.range()))?;
        // Of the last hop's nodes no neighbours are picked.
        let locate = hop + 1 < hops || !found.knows_degrees();
        let hop = Hop { indices: topology.indices(), picks };
        Stages { hop, topology, first, locate }.run(found, buffers, block);
        block.num_src = found.len();
    }
    batch.num_seeds = seeds.len();
    (batch.input_nodes, batch.degrees) = found.finish();
    if let Some(sums) = &shared.weight_sums {
        batch.degrees.iter_mut().zip(&batch.input_nodes).for_each(|(degree, &v)| *degree = sums[v as usize]);
    }
    batch.labels.clear();
    if let Some(labels) = &dataset.labels {
        let labels: &[i32] = labels;
        batch.labels.extend(seeds.iter().map(|&v| labels[v as usize]));
    }
    gather(shared, buffers.len() > 1, batch);
    Ok(())
}

/// Fills in the features of the input nodes, or leaves them to transferring.
fn gather(shared: &Shared, parallel: bool, batch: &mut HostBatch) {
    let Some(matrix) = shared.dataset.features.as_ref().filter(|_| shared.gather) else {
        batch.features = None;
        return;
    };
    let features = batch.features.get_or_insert_with(|| BatchFeatures::like(matrix));
    let out = features.resize(batch.input_nodes.len(), matrix.dim(), matrix.dtype());
    if parallel {
        matrix.par_gather_rows(&batch.input_nodes, out);
    } else {
        matrix.gather_rows(&batch.input_nodes, out);
    }
}
