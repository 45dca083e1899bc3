//! A sampler that reads the dataset's files through the page cache: a plain batching operator that reads from disk.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use morphgl_graph_store::{Dataset, Topology};
use morphgl_registry::{
    At, BatchId, Batching, BatchingContext, BatchingWorker, Block, Build, CounterSpec, Counters, Description, Handle,
    Hardware, HostBatch, Key, MiniBatch, Phase, Resource, Result, SamplerSettings,
};
use morphgl_sampler_core::{
    Epochs, Hop, HopSampler, Order, PickScratch, Relabel, check_settings, check_threads, gather_features, host_batch,
    sample_hops, set_labels, weight_sum,
};

/// The operator's key.
pub const KEY: Key = Key::new(Phase::Batching, Hardware::new(&[Resource::CPU, Resource::new("Disk")]), "Mapped");

/// Number of CSR rows read.
pub const ROWS: CounterSpec = CounterSpec::new("csr_rows", "CSR rows read from the mapped topology");

/// The description that is registered.
pub const DESCRIPTION: Description = Description::new(
    KEY,
    "samples k hops of neighbours from the dataset's mapped files",
    At::Disk,
    At::Host,
    Build::Batching(|context| Ok(Box::new(Mapped::new(context)?))),
)
.with_counters(&[ROWS]);

morphgl_registry::submit! { DESCRIPTION }

/// Data shared by all workers.
#[derive(Debug)]
struct Shared {
    dataset: Arc<Dataset>,
    settings: SamplerSettings,
    epochs: Epochs,
    gather: bool,
}

/// Phase Batching, `Batching_CPU+Disk_Mapped`.
#[derive(Debug)]
pub struct Mapped(Arc<Shared>);

impl Mapped {
    fn new(context: &BatchingContext) -> Result<Self> {
        let BatchingContext { dataset, seeds, settings, gather, .. } = context.clone();
        settings.neighbor()?;
        check_settings(&dataset.topology, &seeds, &settings)?;
        let epochs = Epochs::new(&seeds, &settings);
        Ok(Self(Arc::new(Shared { dataset, settings, epochs, gather })))
    }
}

impl Batching for Mapped {
    fn num_batches(&self) -> usize {
        self.0.epochs.num_batches()
    }

    fn worker(&self, threads: usize) -> Result<Box<dyn BatchingWorker>> {
        check_threads(threads)?;
        let (shared, relabel, scratch) = (Arc::clone(&self.0), Relabel::default(), PickScratch::default());
        Ok(Box::new(Worker { shared, order: None, relabel, scratch }))
    }
}

struct Worker {
    shared: Arc<Shared>,
    order: Option<Order>,
    relabel: Relabel,
    scratch: PickScratch,
}

impl BatchingWorker for Worker {
    fn prepare_share(
        &mut self,
        id: BatchId,
        share: Range<usize>,
        recycled: Option<MiniBatch>,
    ) -> Result<Handle<MiniBatch>> {
        let start = Instant::now();
        let Self { shared, order, relabel, scratch } = self;
        let Shared { dataset, settings, epochs, gather } = &**shared;
        let seeds = epochs.seeds(id, share, order)?;
        let mut batch = HostBatch { id, ..host_batch(recycled) };
        let weights = dataset.topology.weights().map(|w| &**w);
        let mut hops = Hops { topology: &dataset.topology, relabel, scratch, degrees: Vec::new(), rows: 0 };
        sample_hops(&mut hops, settings.neighbor()?, settings.seed, weights, seeds, &mut batch)?;
        let counted = Counters::NONE.with(&ROWS, hops.rows);
        set_labels(dataset.labels.as_deref(), &mut batch);
        gather_features(dataset.features.as_ref().filter(|_| *gather), false, &mut batch);
        Ok(Handle::ready(MiniBatch::Host(batch), start.elapsed()).counting(counted))
    }
}

/// The hops of one mini-batch, row by row.
struct Hops<'w> {
    topology: &'w Topology,
    relabel: &'w mut Relabel,
    scratch: &'w mut PickScratch,
    degrees: Vec<f32>,
    rows: u64,
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

    fn expand(&mut self, Hop { picks, first, num_dst, .. }: Hop<'_>, block: &mut Block) -> Result<()> {
        let Self { topology, relabel, scratch, rows, .. } = self;
        picks.begin(block, num_dst, relabel.nodes()[first..].iter().map(|&node| topology.edge_range(node)))?;
        for row in first..num_dst {
            let picked = block.indptr[row] as usize..block.indptr[row + 1] as usize;
            let node = relabel.nodes()[row];
            let edges = topology.edge_range(node);
            let positions = &mut block.indices[picked.clone()];
            picks.pick(topology.draw_key(node), edges.clone(), positions, scratch);
            if let (Some(all), Some(weights)) = (picks.weights, &mut block.weights) {
                for (weight, &position) in weights[picked].iter_mut().zip(&*positions) {
                    *weight = all[edges.start + position as usize];
                }
            }
            for index in positions {
                *index = relabel.local(topology.indices()[edges.start + *index as usize]);
            }
        }
        *rows += (num_dst - first) as u64;
        Ok(())
    }

    fn finish(&mut self) -> Result<(Vec<u32>, Vec<f32>)> {
        let (nodes, mut degrees) = (self.relabel.finish(), std::mem::take(&mut self.degrees));
        degrees.clear();
        degrees.extend(nodes.iter().map(|&node| {
            let edges = self.topology.edge_range(node);
            self.topology.weights().map_or(edges.len() as f32, |weights| weight_sum(&weights[edges]))
        }));
        Ok((nodes, degrees))
    }
}
