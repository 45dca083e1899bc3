//! Sampling by random walks: the nodes that walks from a node visit most often.

mod visits;
mod walks;

use std::mem;
use std::sync::Arc;

use morphgl_graph_store::Topology;
use morphgl_platform::prefetch;
use morphgl_registry::{
    BatchId, Batching, BatchingContext, BatchingWorker, Block, Error, HostBatch, Result, WalkSettings,
};
use morphgl_sampler_core::{
    Excluded, HostBatching, HostWorker, NeighborCheck, Relabel, Row, SampleSeeds, Seeds, check_threads,
};
use rayon::prelude::*;

use walks::{Steps, Walked, Walks};

/// Prefetch distance of the degrees, in nodes.
const AHEAD: usize = 16;

/// Phase Batching by random walks on CPU threads, `Batching_CPU_Walk`.
#[derive(Debug, Clone)]
pub struct CpuWalk {
    host: Arc<HostBatching>,
    settings: WalkSettings,
}

impl CpuWalk {
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
        let settings = context.settings.walk()?.clone();
        crate::WALK.check_options(&context.options)?;
        let host = HostBatching::new(context)?;
        Ok(Self { host: Arc::new(host), settings })
    }
}

impl Batching for CpuWalk {
    fn num_batches(&self) -> usize {
        self.host.epochs.num_batches()
    }

    fn worker(&self, threads: usize) -> Result<Box<dyn BatchingWorker>> {
        check_threads(threads)?;
        let sampler = WalkSampler {
            settings: self.settings.clone(),
            relabel: Relabel::for_graph(self.host.dataset.num_nodes(), |_| 0),
            parts: (0..threads).map(|_| Walks::default()).collect(),
        };
        Ok(Box::new(HostWorker::new(Arc::clone(&self.host), threads, sampler)?))
    }
}

/// The sampling of one worker.
#[derive(Debug)]
struct WalkSampler {
    settings: WalkSettings,
    relabel: Relabel,
    /// One per thread.
    parts: Vec<Walks>,
}

impl SampleSeeds for WalkSampler {
    fn sample(
        &mut self,
        host: &HostBatching,
        seeds: Seeds<'_>,
        excluded: &Excluded,
        batch: &mut HostBatch,
    ) -> Result<()> {
        let seeds = seeds.nodes;
        let Self { settings, relabel, parts } = self;
        let topology = &host.dataset.topology;
        let check = NeighborCheck::new(topology);
        let excluded = Some(excluded).filter(|excluded| excluded.num_rows() > 0);
        let graph = Walked { topology, check: check.as_ref(), excluded };
        relabel.start(mem::take(&mut batch.input_nodes));
        relabel.add_seeds(seeds);
        batch.blocks.resize_with(settings.layers, Block::default);
        // blocks[0] is the hop farthest from the seeds.
        for (hop, block) in batch.blocks.iter_mut().rev().enumerate() {
            let row = Row { seed: host.settings.seed, batch: batch.id, hop: hop as u32, node: 0, edge_type: 0 };
            (block.num_dst, block.importance) = (relabel.nodes().len(), true);
            let used = walk(parts, graph, Steps::new(settings), &row, relabel.nodes());
            check.as_ref().map_or(Ok(()), |check| check.result(batch.id))?;
            collect(used, batch.id, block)?;
            relabel.locals(&mut block.indices);
            block.num_src = relabel.nodes().len();
        }
        batch.num_seeds = seeds.len();
        batch.input_nodes = relabel.finish();
        set_degrees(topology, &batch.input_nodes, &mut batch.degrees);
        Ok(())
    }
}

/// Walks from `nodes` on the threads of the current pool, one per part; returns the parts used, in the order of their
/// nodes.
fn walk<'p>(parts: &'p mut [Walks], graph: Walked<'_>, steps: Steps, row: &Row, nodes: &[u32]) -> &'p [Walks] {
    if let [part] = parts {
        part.run(graph, steps, row, nodes);
        return parts;
    }
    let share = nodes.len().div_ceil(parts.len()).max(1);
    let used = nodes.len().div_ceil(share);
    let run = |(part, nodes): (&mut Walks, &[u32])| part.run(graph, steps, row, nodes);
    parts[..used].par_iter_mut().zip(nodes.par_chunks(share)).for_each(run);
    &parts[..used]
}

/// Sets the edges of `block`, their sources still in the graph's ids.
fn collect(parts: &[Walks], id: BatchId, block: &mut Block) -> Result<()> {
    let Block { indptr, indices, weights, edge_ids, .. } = block;
    *edge_ids = None;
    let num_edges: usize = parts.iter().map(|part| part.neighbors.len()).sum();
    if num_edges > u32::MAX as usize {
        let what =
            format!("a hop has {num_edges} edges, more than 2^32 - 1; give a smaller batch size or fewer neighbours");
        return Err(Error::setting(id, what));
    }
    let weights = weights.get_or_insert_default();
    indptr.clear();
    indices.clear();
    weights.clear();
    indptr.push(0);
    for part in parts {
        let first = indices.len();
        indptr.extend(part.ends.iter().map(|end| (first + end) as u32));
        indices.extend_from_slice(&part.neighbors);
        weights.extend_from_slice(&part.visits);
    }
    Ok(())
}

/// In-degrees in the whole graph.
fn set_degrees(topology: &Topology, nodes: &[u32], degrees: &mut Vec<f32>) {
    let indptr: &[u64] = topology.indptr();
    degrees.clear();
    degrees.extend(nodes.iter().enumerate().map(|(i, &node)| {
        if let Some(&later) = nodes.get(i + AHEAD) {
            prefetch(indptr, later as usize);
        }
        (indptr[node as usize + 1] - indptr[node as usize]) as f32
    }));
}
