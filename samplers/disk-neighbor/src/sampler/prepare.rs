//! A worker: samples one mini-batch after another in the same buffers.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use morphgl_platform::direct::{Fetch, Reader};
use morphgl_registry::{
    BatchFeatures, BatchId, BatchingWorker, Block, CACHE_HITS, CACHE_REQUESTS, Counters, DISK_BYTES, DISK_READS, Error,
    Handle, HostBatch, MiniBatch, Result,
};
use morphgl_sampler_core::{
    EdgeArrays, Excluded, Hop, HopSampler, Order, PairBatch, Relabel, SeedBatch, Seeds, Trees, check_threads,
    host_batch, sample_hops,
};

use super::Shared;
use crate::expand::{HopRows, Scratch, divide, pick};
use crate::graph::check_nodes;
use crate::located::Located;
use crate::stats::Hits;
use crate::trees::{DiskTrees, TreeBuffers};
use crate::whole_rows::{self, WholeRows};

/// One worker, with its own buffers and reader.
#[derive(Debug)]
pub(crate) struct Worker {
    shared: Arc<Shared>,
    order: Option<Order>,
    seeds: SeedBatch,
    reader: Reader,
    buffers: Buffers,
    pairs: PairBatch,
    rows: whole_rows::Scratch,
}

#[derive(Debug, Default)]
struct Buffers {
    relabel: Relabel,
    located: Located,
    picks: Scratch,
    trees: Trees,
    tree_rows: TreeBuffers,
    /// Feature rows to be read.
    fetches: Vec<Fetch>,
    /// Input nodes of one type.
    of_type: Vec<u32>,
    /// Hits of the last mini-batch's feature rows, where some are cached.
    features: Hits,
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
        let (seeds, buffers, pairs, rows) = Default::default();
        Ok(Self { shared, order: None, seeds, reader, buffers, pairs, rows })
    }
}

impl BatchingWorker for Worker {
    fn prepare_share(
        &mut self,
        id: BatchId,
        share: Range<usize>,
        recycled: Option<MiniBatch>,
    ) -> Result<Handle<MiniBatch>> {
        let start = Instant::now();
        let Self { shared, order, seeds, reader, buffers, pairs, rows } = self;
        let mut batch = HostBatch { id, ..host_batch(recycled) };
        let before = reader.stats();
        let in_batch = |e| Error { context: id.to_string(), ..e };
        let seeds = match &shared.pairs {
            None => {
                batch.pairs = None;
                seeds.of(shared.epochs.seed_set(), shared.epochs.seeds(id, share, order)?)
            }
            Some(drawn) => {
                let mut rows = WholeRows { shared, reader, scratch: rows };
                pairs.draw(drawn, &shared.epochs, share, order, &mut rows, &mut batch).map_err(in_batch)?;
                Seeds::of_nodes(pairs.seeds())
            }
        };
        let outcome = prepare(shared, reader, buffers, (seeds, pairs.excluded()), &mut batch);
        outcome.map_err(in_batch)?;
        let took = start.elapsed();
        shared.count(|counts| {
            counts.batches += 1;
            counts.preparing += took;
        });
        let read = reader.stats() - before;
        let Hits { hits, misses } = buffers.features;
        let counted = Counters::NONE
            .with(&DISK_READS, read.reads)
            .with(&DISK_BYTES, read.bytes)
            .with(&CACHE_REQUESTS, hits + misses)
            .with(&CACHE_HITS, hits);
        Ok(Handle::ready(MiniBatch::Host(batch), took).counting(counted))
    }
}

/// Samples the mini-batch `batch.id` of `seeds` from the graph without the edges `excluded`; reuses the memory of `batch`, not its content.
fn prepare(
    shared: &Shared,
    reader: &mut Reader,
    buffers: &mut Buffers,
    (seeds, excluded): (Seeds<'_>, &Excluded),
    batch: &mut HostBatch,
) -> Result<()> {
    let topology = &shared.dataset.topology;
    let weights = topology.weights().map(|w| &**w);
    // Blocks begin without ids, which are read from disk.
    let edges = EdgeArrays { weights, ids: None };
    let settings = shared.typed.as_ref().map(|typed| &typed.settings);
    settings.map_or(Ok(()), |settings| settings.check_epoch(batch.id))?;
    match settings.and_then(|settings| settings.trees.map(|by| (settings, by))) {
        Some(by) => {
            let Buffers { trees, tree_rows, .. } = buffers;
            let mut rows = DiskTrees { shared, reader, buffers: tree_rows, seed_times: seeds.times };
            trees.sample(&mut rows, (topology, excluded, edges), by, shared.seed, seeds.nodes, batch)?;
        }
        None => {
            batch.trees = None;
            let mut sampler = Sampler { shared, excluded, reader, buffers, degrees: Vec::new() };
            sample_hops(&mut sampler, &shared.hops, shared.seed, edges, seeds.nodes, None, batch)?;
        }
    }
    excluded.set_degrees(weights, &batch.input_nodes, batch.trees.is_some(), &mut batch.degrees);
    shared.known.set(seeds.examples, batch);
    gather(shared, reader, buffers, batch)
}

/// Hops of one mini-batch: offsets and neighbours are read from the dataset's files.
struct Sampler<'w> {
    shared: &'w Shared,
    excluded: &'w Excluded,
    reader: &'w mut Reader,
    buffers: &'w mut Buffers,
    degrees: Vec<f32>,
}

impl Sampler<'_> {
    /// Appends the CSR rows of new nodes.
    fn locate(&mut self) -> Result<()> {
        let Self { shared, reader, buffers: Buffers { relabel, located, .. }, .. } = self;
        located.append(shared, &relabel.nodes()[located.rows.len()..], reader)
    }
}

impl HopSampler for Sampler<'_> {
    fn start(&mut self, seeds: &[u32], nodes: Vec<u32>, degrees: Vec<f32>) -> Result<()> {
        let Buffers { relabel, located, .. } = &mut *self.buffers;
        relabel.start(nodes);
        relabel.add_seeds(seeds);
        located.clear();
        self.degrees = degrees;
        Ok(())
    }

    fn num_nodes(&self) -> usize {
        self.buffers.relabel.nodes().len()
    }

    fn expand(&mut self, hop: Hop<'_>, block: &mut Block) -> Result<()> {
        self.locate()?;
        let Self { shared, excluded, reader, buffers: Buffers { relabel, located, picks: scratch, .. }, .. } = self;
        let Hop { picks, first, num_dst, .. } = hop;
        let topology = &shared.dataset.topology;
        let typed = shared.typed.as_ref().map(|typed| &typed.settings);
        let nodes = &relabel.nodes()[first..];
        let counts = divide(&picks, typed, (nodes, located, first), excluded, scratch);
        let (edge_types, ids) = (block.edge_types.take(), block.edge_ids.take());
        picks.begin(block, num_dst, counts.iter().copied())?;
        if typed.is_some() && topology.types().is_some() {
            scratch.edge_types(block.edge_types.insert(edge_types.unwrap_or_default()));
        }
        let rows = HopRows {
            nodes,
            keys: topology.draw_keys().map(|keys| &**keys),
            csr: &located.rows[first..],
            excluded,
            picked: &mut block.indices,
            weights: block.weights.as_deref_mut().unwrap_or_default(),
            lists_edges: shared.files.edge_ids.is_some(),
        };
        let Hits { hits, misses } = pick(&picks, typed, rows, shared.caches.lists.as_ref(), scratch);
        shared.count(|counts| {
            counts.row_hits.hits += hits;
            counts.row_hits.misses += misses;
        });
        let indices = &shared.files.indices;
        let out = bytemuck::cast_slice_mut(&mut block.indices);
        shared.counted(reader, |counts| &mut counts.neighbors, |reader| indices.read(reader, &scratch.fetches, out))?;
        check_nodes(indices, &block.indices, shared.num_nodes, |i| {
            scratch.fetches.iter().find(|w| w.to as usize == i).map_or(0, |w| w.element)
        })?;
        relabel.locals(&mut block.indices);
        block.edge_ids = ids;
        shared.read_edge_ids(reader, &mut scratch.edges, block)
    }

    fn finish(&mut self) -> Result<(Vec<u32>, Vec<f32>)> {
        self.locate()?;
        let (nodes, mut degrees) = (self.buffers.relabel.finish(), std::mem::take(&mut self.degrees));
        degrees.clear();
        match &self.shared.weight_sums {
            Some(sums) => degrees.extend(nodes.iter().map(|&v| sums[v as usize])),
            None => degrees.extend(self.buffers.located.rows.iter().map(|row| row.degree as f32)),
        }
        Ok((nodes, degrees))
    }
}

/// Gathers the features of the input nodes, of all or by type, or leaves them to transferring.
fn gather(shared: &Shared, reader: &mut Reader, buffers: &mut Buffers, batch: &mut HostBatch) -> Result<()> {
    let Buffers { fetches, of_type, features: hits, .. } = buffers;
    let HostBatch { input_nodes, features, features_by_type, .. } = batch;
    let (dataset, matrices) = (&*shared.dataset, &shared.files.features);
    *hits = Hits::default();
    if matrices.iter().all(|matrix| matrix.node_type.is_some()) {
        *features = None;
    }
    let num_types = matrices.iter().any(|matrix| matrix.node_type.is_some()).then_some(dataset.features_by_type.len());
    features_by_type.resize_with(num_types.unwrap_or(0), || None);
    for (number, features) in features_by_type.iter_mut().enumerate() {
        if dataset.features_by_type[number].is_none() {
            *features = None;
        }
    }
    for (index, on_disk) in matrices.iter().enumerate() {
        let (matrix, features, nodes) = match on_disk.node_type {
            None => (dataset.features.as_ref(), &mut *features, &input_nodes[..]),
            Some(number) => {
                of_type.clear();
                of_type.extend(input_nodes.iter().filter(|node| on_disk.nodes.contains(node)));
                (dataset.features_by_type[number].as_ref(), &mut features_by_type[number], &of_type[..])
            }
        };
        let matrix = matrix.expect("its file is open");
        let features = features.get_or_insert_with(|| BatchFeatures::like(matrix));
        let out = features.resize(nodes.len(), matrix.dim(), matrix.dtype());
        fetches.clear();
        let mut missing = |i: usize, node: u32| fetches.push(on_disk.fetch(node, i as u32));
        match &shared.caches.features {
            Some(cache) => hits.hits += cache.gather(index, nodes, out, missing) as u64,
            None => nodes.iter().enumerate().for_each(|(i, &node)| missing(i, node)),
        }
        fetches.sort_unstable();
        shared.counted(reader, |counts| &mut counts.features, |reader| on_disk.rows.read(reader, fetches, out))?;
        if let Some(cache) = &shared.caches.features {
            hits.misses += fetches.len() as u64;
            cache.insert(fetches, out, on_disk.nodes.start, on_disk.rows.unit);
        }
    }
    shared.count(|counts| {
        counts.feature_hits.hits += hits.hits;
        counts.feature_hits.misses += hits.misses;
    });
    Ok(())
}
