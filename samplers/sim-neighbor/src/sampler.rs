//! Plain neighbour sampling, with the same mini-batches as all batching operators.

use std::ops::Range;
use std::sync::Arc;

use morphgl_graph_store::{Dataset, Topology};
use morphgl_registry::{BatchId, BatchingContext, Block, Error, HostBatch, Key, Place, Result, SamplerSettings};
use morphgl_sampler_core::{
    Epochs, Hop, HopSampler, Order, PickScratch, Relabel, check_settings, gather_features, sample_hops, set_labels,
    weight_sum,
};

/// State that all workers read.
#[derive(Debug)]
pub(crate) struct Shared {
    dataset: Arc<Dataset>,
    settings: SamplerSettings,
    pub(crate) epochs: Epochs,
    gather: bool,
}

impl Shared {
    /// State of the operator `key` at `place`; `cure` is the cure for another place.
    pub(crate) fn new(context: &BatchingContext, gather: bool, key: Key, place: &Place, cure: &str) -> Result<Self> {
        let BatchingContext { dataset, seeds, settings, .. } = context;
        if context.place != *place {
            let what = format!("it makes mini-batches at {place}, not at {}; {cure}", context.place);
            return Err(Error::setting(key, what));
        }
        settings.neighbor()?;
        check_settings(&dataset.topology, seeds, settings)?;
        let epochs = Epochs::new(seeds, settings);
        Ok(Self { dataset: Arc::clone(dataset), settings: settings.clone(), epochs, gather })
    }
}

/// One worker's sampler, with its own buffers.
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

    /// Samples a share of the mini-batch `id`; reuses the memory of `batch`, not its content.
    pub(crate) fn sample(&mut self, id: BatchId, share: Range<usize>, batch: &mut HostBatch) -> Result<()> {
        let Self { shared, order, relabel, scratch } = self;
        let dataset = &*shared.dataset;
        batch.id = id;
        let seeds = shared.epochs.seeds(id, share, order)?;
        let weights = dataset.topology.weights().map(|w| &**w);
        let mut hops = Hops { topology: &dataset.topology, relabel, scratch, degrees: Vec::new() };
        sample_hops(&mut hops, shared.settings.neighbor()?, shared.settings.seed, weights, seeds, batch)?;
        set_labels(dataset.labels.as_deref(), batch);
        gather_features(dataset.features.as_ref().filter(|_| shared.gather), false, batch);
        Ok(())
    }
}

/// Hops of one mini-batch, row by row.
struct Hops<'w> {
    topology: &'w Topology,
    relabel: &'w mut Relabel,
    scratch: &'w mut PickScratch,
    degrees: Vec<f32>,
}

impl HopSampler for Hops<'_> {
    fn start(&mut self, seeds: &[u32], nodes: Vec<u32>, degrees: Vec<f32>) -> Result<()> {
        self.relabel.start(nodes);
        for &seed in seeds {
            self.relabel.local(seed);
        }
        self.degrees = degrees;
        Ok(())
    }

    fn num_nodes(&self) -> usize {
        self.relabel.nodes().len()
    }

    fn expand(&mut self, hop: Hop<'_>, block: &mut Block) -> Result<()> {
        let Self { topology, relabel, scratch, .. } = self;
        let Hop { picks, first, num_dst, .. } = hop;
        picks.begin(block, num_dst, relabel.nodes()[first..].iter().map(|&node| topology.edge_range(node)))?;
        for row in first..num_dst {
            let slots = block.indptr[row] as usize..block.indptr[row + 1] as usize;
            let node = relabel.nodes()[row];
            let edges = topology.edge_range(node);
            let picked = &mut block.indices[slots.clone()];
            picks.pick(topology.draw_key(node), edges.clone(), picked, scratch);
            if let (Some(all), Some(weights)) = (picks.weights, &mut block.weights) {
                let weights = weights[slots].iter_mut();
                weights.zip(&*picked).for_each(|(weight, &position)| *weight = all[edges.start + position as usize]);
            }
            for id in picked {
                *id = relabel.local(topology.indices()[edges.start + *id as usize]);
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(Vec<u32>, Vec<f32>)> {
        let (nodes, mut degrees) = (self.relabel.finish(), std::mem::take(&mut self.degrees));
        degrees.clear();
        degrees.extend(nodes.iter().map(|&node| degree(self.topology, node)));
        Ok((nodes, degrees))
    }
}

/// In-degree of a node, with edge weights their sum.
fn degree(topology: &Topology, node: u32) -> f32 {
    let edges = topology.edge_range(node);
    match topology.weights() {
        Some(weights) => weight_sum(&weights[edges]),
        None => edges.len() as f32,
    }
}
