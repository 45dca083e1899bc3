//! A worker: makes one mini-batch after another in the same memory.

use std::sync::Arc;
use std::time::Instant;

use morphgl_registry::{
    BatchFeatures, BatchId, BatchingWorker, Block, Error, Expansion, Handle, HostBatch, MiniBatch, Result,
};
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::expand::{Hop, Span};
use crate::found::Found;
use crate::sampler::{Order, Shared};
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
        if threads == 0 {
            return Err(Error::setting(
                "threads of a batching worker",
                "0 threads make no mini-batch; give at least 1",
            ));
        }
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
        let num_batches = self.shared.num_batches();
        if id.index as usize >= num_batches {
            let what = format!("an epoch has {num_batches}; ask for an index below that");
            return Err(Error::setting(id, what));
        }
        let order = match self.order.take().filter(|order| order.epoch == id.epoch) {
            Some(order) => order,
            None => self.shared.order(id.epoch),
        };
        let size = self.shared.settings.batch_size;
        let first = id.index as usize * size;
        let seeds = &order.nodes[first..order.nodes.len().min(first.saturating_add(size))];
        let mut batch = match recycled {
            Some(MiniBatch::Host(batch)) => batch,
            _ => HostBatch::default(),
        };
        batch.id = id;
        let (shared, found, buffers) = (&*self.shared, &mut self.found, &mut self.buffers);
        match &self.pool {
            Some(pool) => pool.install(|| prepare(shared, found, buffers, seeds, &mut batch)),
            None => prepare(shared, found, buffers, seeds, &mut batch),
        }?;
        self.order = Some(order);
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
    let fanouts = &settings.fanouts.0;
    batch.blocks.resize_with(fanouts.len(), Block::default);
    let mut newest = 0;
    for (hop, &fanout) in fanouts.iter().enumerate() {
        let num_dst = found.len();
        let first = match settings.expansion {
            Expansion::All => 0,
            Expansion::New => newest,
        };
        newest = num_dst;
        let hop = Hop {
            indices: topology.indices(),
            weights: topology.weights().map(|w| &**w),
            pick: settings.pick,
            fanout,
            seed: settings.seed,
            batch: batch.id,
            hop: hop as u32,
        };
        // blocks[0] is the hop farthest from the seeds.
        let block = &mut batch.blocks[fanouts.len() - 1 - hop.hop as usize];
        block.num_dst = num_dst;
        offsets(&hop, first, found.spans(), block)?;
        let num_edges = block.indptr[num_dst] as usize;
        make_room(&mut block.indices, num_edges);
        block.indices.resize(num_edges, 0);
        if hop.weights.is_none() {
            block.weights = None;
        } else {
            let weights = block.weights.get_or_insert_default();
            make_room(weights, num_edges);
            weights.resize(num_edges, 0.0);
        }
        // Of the last hop's nodes no neighbours are picked.
        let locate = hop.hop as usize + 1 < fanouts.len() || !found.knows_degrees();
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

/// Makes room for `len` elements in a list whose content is not needed any more: an eighth more than that where there is too
/// little, so that mini-batches of about one size fit. To double it, as a list does by itself, would be twice the memory.
pub(crate) fn make_room<T>(list: &mut Vec<T>, len: usize) {
    if list.capacity() < len {
        list.clear();
        list.reserve_exact(len + len / 8);
    }
}

/// Fills in the row offsets of `block`; rows before `first` stay empty.
fn offsets(hop: &Hop<'_>, first: usize, spans: &[Span], block: &mut Block) -> Result<()> {
    block.indptr.clear();
    make_room(&mut block.indptr, spans.len() + 1);
    block.indptr.resize(first + 1, 0);
    let mut end = 0u64;
    block.indptr.extend(spans[first..].iter().map(|&span| {
        end += hop.count(span);
        end as u32
    }));
    if end > u64::from(u32::MAX) {
        let what = format!("hop {} has {end} edges, more than 2^32 - 1; give a smaller batch size or fanouts", hop.hop);
        return Err(Error::setting(hop.batch, what));
    }
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
