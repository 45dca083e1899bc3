//! Makes mini-batches, plainly: the same ones as every batching operator.

use std::sync::Arc;

use morphgl_graph_store::Dataset;
use morphgl_registry::{
    BatchFeatures, BatchId, BatchingContext, Error, Expansion, Fanout, HostBatch, Pick, Result, SamplerSettings,
};
use morphgl_sampler_core::{
    Epochs, Order, Relabel, Row, UniformScratch, WeightedScratch, check_settings, count_positive, pick_uniform,
    pick_weighted, weight_sum,
};

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
    uniform: UniformScratch,
    weighted: WeightedScratch,
    picked: Vec<u32>,
}

impl Sampler {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        Self {
            shared: Arc::clone(shared),
            order: None,
            relabel: Relabel::default(),
            uniform: UniformScratch::default(),
            weighted: WeightedScratch::default(),
            picked: Vec::new(),
        }
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
        let fanouts = &settings.fanouts.0;
        batch.id = id;
        batch.blocks.resize_with(fanouts.len(), Default::default);
        let mut newest = 0;
        for (hop, &fanout) in fanouts.iter().enumerate() {
            // The seeds' own hop is the last block.
            self.hop(hop, fanout, newest, batch)?;
            newest = batch.blocks[fanouts.len() - 1 - hop].num_dst;
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
    fn hop(&mut self, hop: usize, fanout: Fanout, newest: usize, batch: &mut HostBatch) -> Result<()> {
        let Shared { dataset, settings, .. } = &*self.shared;
        let topology = &dataset.topology;
        let last = batch.blocks.len() - 1;
        let block = &mut batch.blocks[last - hop];
        block.num_dst = self.relabel.nodes().len();
        block.indptr.clear();
        block.indptr.push(0);
        block.indices.clear();
        let mut weights = topology.weights().map(|_| block.weights.take().unwrap_or_default());
        weights.iter_mut().for_each(Vec::clear);
        for local in 0..block.num_dst {
            if settings.expansion == Expansion::All || local >= newest {
                let node = self.relabel.nodes()[local];
                let range = topology.edge_range(node);
                let row = Row { seed: settings.seed, batch: batch.id, hop: hop as u32, node };
                let take = fanout.take(range.len() as u64) as usize;
                let by_weight =
                    topology.weights().filter(|_| settings.pick == Pick::Weighted).map(|w| &w[range.clone()]);
                self.picked.resize(by_weight.map_or(take, |w| count_positive(w, take)), 0);
                match by_weight {
                    Some(weights) => pick_weighted(&row, weights, &mut self.picked, &mut self.weighted),
                    None => pick_uniform(&row, range.len() as u32, &mut self.picked, &mut self.uniform),
                }
                for edge in self.picked.iter().map(|p| range.start + *p as usize) {
                    block.indices.push(self.relabel.local(topology.indices()[edge]));
                    if let (Some(weights), Some(all)) = (&mut weights, topology.weights()) {
                        weights.push(all[edge]);
                    }
                }
            }
            let end = u32::try_from(block.indices.len()).map_err(|_| {
                let what = format!("hop {hop} has more than 2^32 - 1 edges; give a smaller batch size or fanouts");
                Error::setting(batch.id, what)
            })?;
            block.indptr.push(end);
        }
        block.weights = weights;
        block.num_src = self.relabel.nodes().len();
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
