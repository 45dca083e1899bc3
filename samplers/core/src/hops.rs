//! The loop over a mini-batch's hops, which all samplers on the host share.

use std::mem;

use morphgl_graph_store::{Dataset, FeatureMatrix};
use morphgl_platform::PagePool;
use morphgl_registry::{
    BatchFeatures, Block, Expansion, GivenNodes, GivenRows, HostBatch, MiniBatch, NeighborSettings, Result,
};

use crate::picks::{EdgeArrays, Picks};

/// The sampler-specific part: where rows are read from, and how a hop's edges are picked, loaded and relabelled.
pub trait HopSampler {
    /// Begins a mini-batch: the seeds get the first local ids. `nodes` and `degrees` are buffers to reuse.
    ///
    /// # Errors
    ///
    /// The graph cannot be read.
    fn start(&mut self, seeds: &[u32], nodes: Vec<u32>, degrees: Vec<f32>) -> Result<()>;

    /// Number of nodes with a local id.
    fn num_nodes(&self) -> usize;

    /// Expands the frontier: begins `block` by [`Picks::begin`], and fills in local ids of the neighbours, and weights and ids of the edges.
    ///
    /// # Errors
    ///
    /// Those of [`Picks::begin`]; the graph cannot be read.
    fn expand(&mut self, hop: Hop<'_>, block: &mut Block) -> Result<()>;

    /// Ends the mini-batch: its nodes by local id, and their degrees.
    ///
    /// # Errors
    ///
    /// The graph cannot be read.
    fn finish(&mut self) -> Result<(Vec<u32>, Vec<f32>)>;
}

/// One hop: how neighbours are picked, and of which nodes.
#[derive(Debug, Clone, Copy)]
pub struct Hop<'a> {
    /// How neighbours are picked.
    pub picks: Picks<'a>,
    /// Local id of the first node of the frontier, which ends with `num_dst`.
    pub first: usize,
    /// Number of destination nodes: of nodes with a local id.
    pub num_dst: usize,
    /// Whether this is the last hop.
    pub is_last: bool,
}

/// Samples all hops of `batch.id`, and sets blocks, input nodes, degrees and the number of seeds. The memory of `batch` is
/// reused, its content is not. `seed` is that of all randomness, `edges` is what the graph has of its edges. The last hop does not
/// expand the nodes that are `given`, and which no hop before the last but one has found.
///
/// # Errors
///
/// Those of the sampler, and of `given`.
#[inline]
pub fn sample_hops(
    sampler: &mut impl HopSampler,
    settings: &NeighborSettings,
    seed: u64,
    edges: EdgeArrays<'_>,
    seeds: &[u32],
    given: Option<&dyn GivenNodes>,
    batch: &mut HostBatch,
) -> Result<()> {
    sampler.start(seeds, mem::take(&mut batch.input_nodes), mem::take(&mut batch.degrees))?;
    let hops = settings.fanouts.0.len();
    batch.blocks.resize_with(hops, Block::default);
    let (mut newest, mut recycled) = (0, batch.given.take());
    for hop in 0..hops {
        if let Some(given) = given.filter(|_| hop > 0 && hop + 1 == hops) {
            leave_out(sampler, given, newest, *recycled.take().unwrap_or_default(), batch)?;
        }
        let num_dst = sampler.num_nodes();
        let first = match settings.expansion {
            Expansion::All => 0,
            Expansion::New => newest,
        };
        newest = num_dst;
        // blocks[0] is the hop farthest from the seeds.
        let block = &mut batch.blocks[hops - 1 - hop];
        let picks = Picks::new(settings, seed, edges, batch.id, hop);
        sampler.expand(Hop { picks, first, num_dst, is_last: hop + 1 == hops }, block)?;
        block.num_src = sampler.num_nodes();
    }
    batch.num_seeds = seeds.len();
    (batch.input_nodes, batch.degrees) = sampler.finish()?;
    Ok(())
}

/// Removes from the frontier those of the last hop's new nodes (local ids from `newest` on) whose rows are given: they become
/// the last source nodes of its block, and the next hop expands the others. The memory of `recycled` is used for them.
fn leave_out(
    sampler: &mut impl HopSampler,
    given: &dyn GivenNodes,
    newest: usize,
    recycled: GivenRows,
    batch: &mut HostBatch,
) -> Result<()> {
    let (mut nodes, degrees) = sampler.finish()?;
    let mut marks = Vec::new();
    given.mark(batch.id, &nodes[newest..], &mut marks)?;
    let num_computed = nodes.len() - marks.iter().filter(|is_given| **is_given).count();
    let mut left_out = GivenRows { version: 0, ..recycled };
    left_out.nodes.clear();
    left_out.degrees.clear();
    left_out.rows.clear();
    // The new local id of each node that the hop has found.
    let mut ids = Vec::with_capacity(marks.len());
    let mut kept = newest;
    for (local, is_given) in (newest..).zip(marks) {
        if is_given {
            ids.push((num_computed + left_out.nodes.len()) as u32);
            left_out.nodes.push(nodes[local]);
            left_out.degrees.push(degrees[local]);
        } else {
            ids.push(kept as u32);
            nodes[kept] = nodes[local];
            kept += 1;
        }
    }
    if !left_out.nodes.is_empty() {
        let found = batch.blocks[1].indices.iter_mut().filter(|local| **local >= newest as u32);
        found.for_each(|local| *local = ids[*local as usize - newest]);
        batch.given = Some(Box::new(left_out));
    }
    sampler.start(&nodes[..kept], Vec::new(), degrees)
}

/// The mini-batch whose memory per worker on the host reuses, or an empty one.
pub fn host_batch(recycled: Option<MiniBatch>) -> HostBatch {
    match recycled {
        Some(MiniBatch::Host(batch)) => batch,
        _ => HostBatch::default(),
    }
}

/// Sets the labels and the targets of the seeds, which are these nodes, or rows of the dataset's task, where it has any of them; those of
/// pairs were set with them.
pub fn set_targets(dataset: &Dataset, (examples, are_rows): (&[u32], bool), batch: &mut HostBatch) {
    let HostBatch { labels, targets, pairs, .. } = batch;
    if pairs.is_some() {
        return;
    }
    labels.clear();
    targets.values.clear();
    targets.width = 0;
    if dataset.task_rows.is_some() != are_rows {
        return;
    }
    if let Some(classes) = &dataset.labels {
        labels.extend(examples.iter().map(|&v| classes[v as usize]));
    }
    targets.width = dataset.target_dim();
    if let Some(matrix) = &dataset.targets {
        targets.values.reserve(examples.len() * matrix.dim());
        examples.iter().for_each(|&v| targets.values.extend_from_slice(matrix.row(v)));
    }
}

/// Gathers the features of the input nodes, on the threads of the current pool if `parallel`; none without a matrix. A
/// mini-batch without memory for them takes that of an earlier one from `pages`.
pub fn gather_features(matrix: Option<&FeatureMatrix>, pages: &PagePool, parallel: bool, batch: &mut HostBatch) {
    batch.features_by_type.clear();
    let Some(matrix) = matrix else {
        batch.features = None;
        return;
    };
    let features = batch.features.get_or_insert_with(|| BatchFeatures::inside(pages.take(), matrix));
    let out = features.resize(batch.input_nodes.len(), matrix.dim(), matrix.dtype());
    if parallel {
        matrix.par_gather_rows(&batch.input_nodes, out);
    } else {
        matrix.gather_rows(&batch.input_nodes, out);
    }
}
