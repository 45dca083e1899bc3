//! Memory that suffices for a job, computed from its sizes before anything is measured.

use morphgl_model_core::{ModelKind, ModelSpec};
use morphgl_registry::{CustomSettings, Fanout, Fanouts, Sampling};
use morphgl_sampler_core::TYPED;

use crate::JobConfig;

/// Bytes of the program before it has opened a dataset: with less nothing can be done.
pub(crate) const START: u64 = 32 << 20;
/// Bytes of the program, its threads, a small model and its steps, which caches of a dataset on disk leave free.
pub(crate) const PROGRAM: u64 = 64 << 20;
/// Mini-batches that a plan holds at least: in the making, waiting, in training, and that evaluation's; and two of the profile.
const BATCHES: u64 = 6;
/// Values of a step for each weight of attention.
const STEP: u64 = 4;
/// Factor to the values of a step by the reference, which has tensors of its own for each operation.
const REFERENCE: u64 = 3;
/// Copies of a model's parameters: gradients, two moments, the best model, and what profiling restores.
const COPIES: u64 = 10;
/// Bytes of a worker's buffers for each node of a mini-batch, and of its table for each node of a graph.
const WORKER_NODE: u64 = 64;
const TABLE_NODE: u64 = 10;

/// Of the memory that --memory leaves for caches, buffers and workers, 1 / `RESERVE_PARTS` stays unplanned: plans count what
/// these use, not fragmentation of the heap or pages of the program loaded later. On a machine under load, forty runs of a plan that
/// fills 120 MiB peaked at 99 to 110 MiB; in huge pages, which `ProcessMemory::limited` keeps from little memory, forty runs of one that
/// fills 160 MiB at 148 to 161.
pub(crate) const RESERVE_PARTS: u64 = 16;

/// Bytes of which a plan may use `planned`: these and the reserve.
pub(crate) fn with_reserve(planned: u64) -> u64 {
    planned.saturating_add(planned.div_ceil(RESERVE_PARTS - 1))
}

/// The sizes of a dataset.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sizes {
    pub(crate) nodes: u64,
    pub(crate) edges: u64,
    pub(crate) weighted: bool,
    /// Number of edge types; 1 without types.
    pub(crate) edge_types: u64,
    /// Bytes of a row of features.
    pub(crate) row_bytes: u64,
    /// Bytes that the dataset takes in memory; 0 where it does not count.
    pub(crate) bytes: u64,
    /// Whether it is left on disk where it does not fit.
    pub(crate) on_disk: bool,
}

impl Sizes {
    /// Nodes found up to each hop, the seeds' own first, and the edges of each hop: no mini-batch has more.
    fn hops(&self, sampling: &Sampling, batch_size: u64) -> (Vec<u64>, Vec<u64>) {
        let fanouts = match sampling {
            Sampling::Neighbor(hops) => hops.fanouts.clone(),
            Sampling::Shadow(shadow) => shadow.hops.fanouts.clone(),
            Sampling::Walk(walk) => {
                let fanout = walk.neighbors.try_into().map_or(Fanout::All, Fanout::AtMost);
                Fanouts(vec![fanout; walk.layers])
            }
            // The fanouts of another crate's kind bound the mean.
            Sampling::Custom(CustomSettings { hops: Some(hops), .. }) => hops.fanouts.clone(),
            Sampling::Custom(custom) => Fanouts(vec![Fanout::All; custom.layers]),
        };
        let (mut nodes, mut edges) = (vec![batch_size.min(self.nodes)], Vec::new());
        let edge_types = if self.by_type(sampling) { self.edge_types } else { 1 };
        for fanout in fanouts.0 {
            let frontier = nodes[nodes.len() - 1];
            let of_node = fanout.take(self.edges).saturating_mul(edge_types);
            let found = of_node.saturating_mul(frontier).min(self.edges);
            edges.push(found);
            nodes.push(frontier.saturating_add(found).min(self.nodes));
        }
        if let Sampling::Shadow(shadow) = sampling {
            // Every block has the whole subgraph.
            let all = nodes[nodes.len() - 1];
            let among = self.edges.min(all.saturating_mul(all));
            return (vec![all; shadow.layers + 1], vec![among; shadow.layers]);
        }
        (nodes, edges)
    }

    /// Whether a fanout counts the neighbours of one edge type.
    fn by_type(&self, sampling: &Sampling) -> bool {
        self.edge_types > 1 && sampling.kind() == TYPED.name
    }

    /// Bytes of a mini-batch, of a worker besides, and of a step on it.
    fn batch(&self, config: &JobConfig, batch_size: u64) -> (u64, u64, u64) {
        let model = &config.spec.model;
        let (nodes, edges) = self.hops(&config.sampler.sampling, batch_size);
        let inputs = nodes[nodes.len() - 1];
        let importance = matches!(config.sampler.sampling, Sampling::Walk(_) | Sampling::Custom(_));
        let weights = if self.weighted || importance { 2 } else { 1 };
        let blocks: u64 = edges.iter().map(|e| 4 * weights * e).sum::<u64>() + nodes.iter().map(|n| 4 * n).sum::<u64>();
        let batch = blocks + inputs * (8 + self.row_bytes);
        let worker = blocks + inputs * WORKER_NODE + self.nodes * TABLE_NODE;
        let mut step = 0;
        // The first layer reads what the last hop finds.
        for (layer, (source, edges)) in nodes.iter().rev().zip(edges.iter().rev()).enumerate().take(model.layers) {
            let (shape, target) = (model.layer(layer), nodes[nodes.len() - 2 - layer]);
            let (input, output) = (shape.in_dim as u64, (shape.heads * shape.head_dim) as u64);
            // GCN and GAT transform what they aggregate; attention has a value for each edge and head.
            let (transformed, attention) = match model.kind {
                ModelKind::Gcn => (source * output, 0),
                ModelKind::Gat => (source * output, edges * shape.heads as u64),
                // Sources and destinations of each edge type, copied and multiplied.
                ModelKind::Rgcn | ModelKind::Rsage => (2 * edges * (input + output), 0),
                ModelKind::Rgat => (2 * edges * (input + output), edges * shape.heads as u64),
                // Keys and values of sources, and rows per edge.
                ModelKind::Hgt => (2 * edges * (input + 3 * output), edges * (2 * output + shape.heads as u64)),
                // Layers of other crates may have a row for each edge.
                ModelKind::Submitted(_) => (source * output, edges * output),
                _ => (0, 0),
            };
            // Inputs per node type are made of features or embeddings, and put in the order of the nodes.
            let widest = model
                .input_widths
                .iter()
                .max()
                .filter(|_| layer == 0)
                .map_or(0, |&width| source * (width as u64 + 4 * input));
            let values =
                widest + 2 * source * input + 3 * transformed + target * (2 * input + 4 * output) + STEP * attention;
            step += 4 * (values * factor(model) + edges);
        }
        (batch, worker, step)
    }

    /// Bytes that suffice for the job with mini-batches of `batch_size` seeds: an upper bound, since nodes are counted as often as
    /// they are found.
    pub(crate) fn sufficient(&self, config: &JobConfig, batch_size: usize) -> u64 {
        let model = &config.spec.model;
        let parameters: u64 =
            model.parameters().iter().map(|p| 4 * p.shape.iter().map(|&n| n as u64).product::<u64>()).sum();
        let (batch, worker, step) = self.batch(config, batch_size as u64);
        // The sampler's table of the ends of sub-rows takes as much as the edges' types at most.
        let ends = if self.by_type(&config.sampler.sampling) { 2 * self.edges } else { 0 };
        self.beside(PROGRAM + ends + COPIES * parameters + with_reserve(BATCHES * batch + 2 * worker + step))
    }

    /// Bytes that suffice where the program takes so many besides the dataset and its caches.
    pub(crate) fn beside(&self, own: u64) -> u64 {
        // In memory where it takes three quarters at most.
        let in_memory = (own + self.bytes).max(self.bytes / 3 * 4 + 4);
        // Of a dataset on disk, half of what the program leaves is for caches, the offsets among them.
        let caching = PROGRAM + 2 * own.saturating_sub(PROGRAM).max(9 * self.nodes);
        if self.on_disk && caching < self.bytes / 3 * 4 { caching } else { in_memory }
    }

    /// The largest power of two of seeds per mini-batch, below that of the job, for which `memory` suffices, and half of the
    /// program's besides: with small mini-batches it is the most part.
    pub(crate) fn smaller_batch(&self, config: &JobConfig, memory: u64) -> Option<usize> {
        let sizes = (0..).map(|i| 1usize << i).take_while(|&size| size < config.sampler.batch_size);
        sizes.filter(|&size| self.sufficient(config, size) + PROGRAM / 2 <= memory).last()
    }
}

/// Factor of the reference, which alone trains some models.
fn factor(model: &ModelSpec) -> u64 {
    if model.kind == ModelKind::Gin || model.submitted().is_some() { REFERENCE } else { 1 }
}
