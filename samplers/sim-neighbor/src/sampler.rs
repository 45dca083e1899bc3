//! Makes mini-batches, plainly: the same ones as every batching operator.

use std::sync::Arc;

use morphgl_graph_store::Dataset;
use morphgl_registry::{BatchFeatures, BatchId, BatchingContext, Expansion, HostBatch, Result, SamplerSettings};
use morphgl_sampler_core::{Epochs, Order, PickScratch, Picks, Relabel, check_settings, weight_sum};

/// What all workers read.
#[derive(Debug)]
pub(crate) struct Shared {
    dataset: Arc<Dataset>,
    settings: SamplerSettings,
    epochs: Epochs,
    gather: bool,
}

impl Shared {
    pub(crate) fn new(context: &BatchingContext) -> Result<Self> {
        let BatchingContext { dataset, seeds, settings, gather, .. } = context;
        check_settings(&dataset.topology, seeds, settings)?;
        let epochs = Epochs::new(seeds, settings);
        Ok(Self { dataset: Arc::clone(dataset), settings: settings.clone(), epochs, gather: *gather })
    }

    pub(crate) fn num_batches(&self) -> usize {
        self.epochs.num_batches()
    }

    pub(crate) fn check(&self, id: BatchId) -> Result<()> {
        self.epochs.check(id)
    }
}

/// One worker's sampler, with buffers of its own.
#[derive(Debug)]
pub(crate) struct Sampler {
    shared: Arc<Shared>,
    order: Option<Order>,
    relabel: Relabel,
    scratch: PickScratch,
}

impl Sampler {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        Self { shared: Arc::clone(shared), order: None, relabel: Relabel::default(), scratch: PickScratch::default() }
    }

    /// Makes the mini-batch `id`, one of the epoch; all that is in `batch` is old content.
    pub(crate) fn make(&mut self, id: BatchId, batch: &mut HostBatch) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let (dataset, settings) = (&*shared.dataset, &shared.settings);
        self.relabel.start(std::mem::take(&mut batch.input_nodes));
        let seeds = shared.epochs.seeds(id, &mut self.order)?;
        batch.num_seeds = seeds.len();
        for &seed in seeds {
            self.relabel.local(seed);
        }
        let hops = settings.fanouts.0.len();
        batch.id = id;
        batch.blocks.resize_with(hops, Default::default);
        let mut newest = 0;
        for hop in 0..hops {
            let num_dst = self.relabel.nodes().len();
            self.hop(hop, newest, batch)?;
            newest = num_dst;
        }
        batch.input_nodes = self.relabel.finish();
        let nodes = &batch.input_nodes;
        batch.degrees.clear();
        batch.degrees.extend(nodes.iter().map(|&v| degree(dataset, v)));
        batch.labels.clear();
        if let Some(labels) = &dataset.labels {
            batch.labels.extend(nodes[..batch.num_seeds].iter().map(|&v| labels[v as usize]));
        }
        match dataset.features.as_ref().filter(|_| shared.gather) {
            None => batch.features = None,
            Some(matrix) => {
                let features = batch.features.get_or_insert_with(|| BatchFeatures::like(matrix));
                matrix.gather_rows(nodes, features.resize(nodes.len(), matrix.dim(), matrix.dtype()));
            }
        }
        Ok(())
    }

    /// Expands the nodes found so far, with [`Expansion::New`] those from `newest` on.
    fn hop(&mut self, hop: usize, newest: usize, batch: &mut HostBatch) -> Result<()> {
        let Self { shared, relabel, scratch, .. } = self;
        let Shared { dataset, settings, .. } = &**shared;
        let topology = &dataset.topology;
        let weights = topology.weights().map(|w| &**w);
        let first = if settings.expansion == Expansion::All { 0 } else { newest };
        // The seeds' own hop is the last block.
        let last = batch.blocks.len() - 1;
        let block = &mut batch.blocks[last - hop];
        let picks = Picks::new(settings, weights, batch.id, hop);
        let nodes = &relabel.nodes()[first..];
        picks.begin(block, relabel.nodes().len(), nodes.iter().map(|&node| topology.edge_range(node)))?;
        for row in first..block.num_dst {
            let place = block.indptr[row] as usize..block.indptr[row + 1] as usize;
            let node = relabel.nodes()[row];
            let edges = topology.edge_range(node);
            let picked = &mut block.indices[place.clone()];
            picks.pick(node, edges.clone(), picked, scratch);
            if let (Some(all), Some(weights)) = (weights, &mut block.weights) {
                let weights = weights[place].iter_mut();
                weights.zip(&*picked).for_each(|(weight, &position)| *weight = all[edges.start + position as usize]);
            }
            for id in picked {
                *id = relabel.local(topology.indices()[edges.start + *id as usize]);
            }
        }
        block.num_src = relabel.nodes().len();
        Ok(())
    }
}

/// In-degree of a node, with edge weights their sum.
fn degree(dataset: &Dataset, node: u32) -> f32 {
    let range = dataset.topology.edge_range(node);
    match dataset.topology.weights() {
        Some(weights) => weight_sum(&weights[range]),
        None => range.len() as f32,
    }
}
