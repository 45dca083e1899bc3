//! A worker: makes one mini-batch after another in the same memory.

use std::sync::Arc;
use std::time::Instant;

use morphgl_platform::direct::{Reader, Want};
use morphgl_registry::{
    BatchFeatures, BatchId, BatchingWorker, Block, CACHE_HITS, CACHE_REQUESTS, Counters, DISK_BYTES, DISK_READS, Error,
    Expansion, Handle, HostBatch, MiniBatch, Result,
};
use morphgl_sampler_core::{Order, Picks, Relabel, check_threads};

use crate::caches::check_nodes;
use crate::expand::{Rows, Scratch, pick};
use crate::offsets::{self, Span};
use crate::sampler::Shared;
use crate::stats::What;

/// One worker, with buffers and reads of its own.
#[derive(Debug)]
pub(crate) struct Worker {
    shared: Arc<Shared>,
    order: Option<Order>,
    reader: Reader,
    buffers: Buffers,
}

#[derive(Debug, Default)]
struct Buffers {
    relabel: Relabel,
    /// Of each node found so far.
    spans: Vec<Span>,
    offsets: offsets::Scratch,
    picked: Scratch,
    /// Feature rows that have to be read.
    wants: Vec<Want>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shared({})", self.dataset.path.display())
    }
}

impl Worker {
    pub(crate) fn new(shared: Arc<Shared>, threads: usize) -> Result<Self> {
        check_threads(threads)?;
        let reader = shared.reader()?;
        Ok(Self { shared, order: None, reader, buffers: Buffers::default() })
    }
}

impl BatchingWorker for Worker {
    fn prepare(&mut self, id: BatchId, recycled: Option<MiniBatch>) -> Result<Handle<MiniBatch>> {
        let start = Instant::now();
        let seeds = self.shared.epochs.seeds(id, &mut self.order)?;
        let mut batch = match recycled {
            Some(MiniBatch::Host(batch)) => batch,
            _ => HostBatch::default(),
        };
        batch.id = id;
        let before = self.reader.stats();
        let made = prepare(&self.shared, &mut self.reader, &mut self.buffers, seeds, &mut batch);
        made.map_err(|e| Error { context: id.to_string(), ..e })?;
        self.shared.counters.batch();
        let read = self.reader.stats();
        let [rows, missed] = match &batch.features {
            Some(_) => [batch.input_nodes.len() as u64, self.buffers.wants.len() as u64],
            None => [0, 0],
        };
        let counted = Counters::NONE
            .with(&DISK_READS, read.reads - before.reads)
            .with(&DISK_BYTES, read.bytes - before.bytes)
            .with(&CACHE_REQUESTS, rows)
            .with(&CACHE_HITS, rows - missed);
        Ok(Handle::ready(MiniBatch::Host(batch), start.elapsed()).counting(counted))
    }
}

/// Makes the mini-batch `batch.id` of `seeds`; everything else in `batch` is old content, and only its memory is used.
fn prepare(
    shared: &Shared,
    reader: &mut Reader,
    buffers: &mut Buffers,
    seeds: &[u32],
    batch: &mut HostBatch,
) -> Result<()> {
    let settings = &shared.settings;
    let Buffers { relabel, spans: found, offsets: scratch, picked, wants } = buffers;
    relabel.start(std::mem::take(&mut batch.input_nodes));
    seeds.iter().for_each(|&seed| {
        relabel.local(seed);
    });
    found.clear();
    let weights = shared.dataset.topology.weights().map(|w| &**w);
    let hops = settings.fanouts.0.len();
    batch.blocks.resize_with(hops, Block::default);
    let mut newest = 0;
    for hop in 0..hops {
        let num_dst = relabel.nodes().len();
        spans(shared, reader, relabel.nodes(), scratch, found)?;
        let first = match settings.expansion {
            Expansion::All => 0,
            Expansion::New => newest,
        };
        newest = num_dst;
        // blocks[0] is the hop farthest from the seeds.
        let block = &mut batch.blocks[hops - 1 - hop];
        let picks = Picks::new(settings, weights, batch.id, hop);
        picks.begin(block, num_dst, found[first..].iter().map(|span| span.range()))?;
        let rows = Rows {
            nodes: &relabel.nodes()[first..],
            spans: &found[first..],
            indptr: &block.indptr[first..],
            picked: &mut block.indices,
            weights: block.weights.as_deref_mut().unwrap_or_default(),
        };
        let (hits, misses) = pick(&picks, rows, shared.caches.rows.as_ref(), picked);
        shared.counters.rows(hits, misses);
        let before = reader.stats();
        let indices = &shared.files.indices;
        indices.read(reader, &picked.wants, bytemuck::cast_slice_mut(&mut block.indices))?;
        shared.counters.read(What::Neighbors, before, reader.stats());
        check_nodes(indices, &block.indices, shared.num_nodes, |i| {
            picked.wants.iter().find(|w| w.to as usize == i).map_or(0, |w| w.element)
        })?;
        relabel.locals(&mut block.indices);
        block.num_src = relabel.nodes().len();
    }
    spans(shared, reader, relabel.nodes(), scratch, found)?;
    batch.num_seeds = seeds.len();
    batch.input_nodes = relabel.finish();
    batch.degrees.clear();
    match &shared.weight_sums {
        Some(sums) => batch.degrees.extend(batch.input_nodes.iter().map(|&v| sums[v as usize])),
        None => batch.degrees.extend(found.iter().map(|span| span.degree as f32)),
    }
    batch.labels.clear();
    batch.labels.extend(seeds.iter().filter_map(|&seed| shared.label(seed)));
    gather(shared, reader, wants, batch)
}

/// Adds the spans of the nodes that have none yet.
fn spans(
    shared: &Shared,
    reader: &mut Reader,
    nodes: &[u32],
    scratch: &mut offsets::Scratch,
    found: &mut Vec<Span>,
) -> Result<()> {
    let before = reader.stats();
    shared.offsets.spans(&shared.files.indptr, &nodes[found.len()..], reader, scratch, found)?;
    shared.counters.read(What::Offsets, before, reader.stats());
    Ok(())
}

/// Fills in the features of the input nodes, or leaves them to transferring.
fn gather(shared: &Shared, reader: &mut Reader, wants: &mut Vec<Want>, batch: &mut HostBatch) -> Result<()> {
    let (Some(on_disk), Some(matrix)) = (&shared.files.features, &shared.dataset.features) else {
        batch.features = None;
        return Ok(());
    };
    let features = batch.features.get_or_insert_with(|| BatchFeatures::like(matrix));
    let out = features.resize(batch.input_nodes.len(), matrix.dim(), matrix.dtype());
    wants.clear();
    let mut missing = |i: usize, node: u32| wants.push(Want { element: node.into(), to: i as u32 });
    match &shared.caches.features {
        Some(cache) => cache.gather(&batch.input_nodes, out, missing),
        None => batch.input_nodes.iter().enumerate().for_each(|(i, &node)| missing(i, node)),
    }
    wants.sort_unstable();
    let before = reader.stats();
    on_disk.read(reader, wants, out)?;
    shared.counters.read(What::Features, before, reader.stats());
    Ok(())
}
