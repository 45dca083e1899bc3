//! LABOR-0 (Balin & Çatalyürek, NeurIPS 2023): neighbours are kept by random numbers of their own, so that the nodes of a
//! mini-batch share neighbours, and fewer are read for the same fanouts. A batching operator with an option and a counter.

use std::mem;
use std::ops::Range;
use std::sync::Arc;

use morphgl_registry::{
    At, BatchId, Batching, BatchingContext, BatchingWorker, Block, Build, CounterSpec, Counters, Description, Error,
    Expansion, Fanout, Handle, Hardware, HostBatch, Key, MiniBatch, NeighborSettings, OptionSpec, OptionType, Phase,
    Pick, Result,
};
use morphgl_sampler_core::{HostBatching, HostWorker, Relabel, Row, SampleSeeds, Stream, check_threads};

/// The operator's key.
pub const KEY: Key = Key::new(Phase::Batching, Hardware::CPU, "Labor");

const LAYER_DEPENDENCY: OptionSpec =
    OptionSpec::new("layer_dependency", OptionType::Bool, "false", "draw the same random numbers at every hop");

/// Number of input nodes.
pub const NODES: CounterSpec = CounterSpec::new("input_nodes", "input nodes of mini-batches");

/// The description that is registered. Its mini-batches are its own: it does not claim to be interchangeable with other samplers.
pub const DESCRIPTION: Description = Description::new(
    KEY,
    "samples k hops of neighbours that the nodes of a mini-batch share (LABOR-0)",
    At::Host,
    At::Host,
    Build::Batching(|context| Ok(Box::new(Labor::new(context)?))),
)
.with_options(&[LAYER_DEPENDENCY])
.with_counters(&[NODES]);

morphgl_registry::submit! { DESCRIPTION }

/// Phase Batching, `Batching_CPU_Labor`.
#[derive(Debug)]
pub struct Labor {
    host: Arc<HostBatching>,
    settings: NeighborSettings,
    layer_dependency: bool,
}

impl Labor {
    fn new(context: &BatchingContext) -> Result<Self> {
        let settings = context.settings.neighbor()?.clone();
        if settings.pick == Pick::Weighted {
            return Err(Error::setting(KEY, "it picks neighbours uniformly; leave --weighted out"));
        }
        let layer_dependency = context.options[LAYER_DEPENDENCY.name].as_bool().unwrap_or(false);
        Ok(Self { host: Arc::new(HostBatching::new(context)?), settings, layer_dependency })
    }
}

impl Batching for Labor {
    fn num_batches(&self) -> usize {
        self.host.epochs.num_batches()
    }

    fn worker(&self, threads: usize) -> Result<Box<dyn BatchingWorker>> {
        check_threads(threads)?;
        let relabel = Relabel::for_graph(self.host.dataset.num_nodes(), |_| 0);
        let Self { settings, layer_dependency, .. } = self;
        let sampler = Sampler { settings: settings.clone(), layer_dependency: *layer_dependency, relabel };
        Ok(Box::new(Counting(HostWorker::new(Arc::clone(&self.host), threads, sampler)?)))
    }
}

/// The sampling of one worker, on one thread.
#[derive(Debug)]
struct Sampler {
    settings: NeighborSettings,
    layer_dependency: bool,
    relabel: Relabel,
}

impl SampleSeeds for Sampler {
    fn sample(&mut self, host: &HostBatching, seeds: &[u32], batch: &mut HostBatch) -> Result<()> {
        let Self { settings, layer_dependency, relabel } = self;
        let topology = &host.dataset.topology;
        let (id, weights) = (batch.id, topology.weights());
        relabel.start(mem::take(&mut batch.input_nodes));
        relabel.add_seeds(seeds);
        batch.num_seeds = seeds.len();
        batch.blocks.resize_with(settings.fanouts.0.len(), Block::default);
        let mut newest = 0;
        // blocks[0] is the hop farthest from the seeds.
        for (hop, (block, &fanout)) in batch.blocks.iter_mut().rev().zip(&settings.fanouts.0).enumerate() {
            let first = if settings.expansion == Expansion::New { newest } else { 0 };
            let hop = if *layer_dependency { 0 } else { hop as u32 };
            newest = relabel.nodes().len();
            *block =
                Block { num_dst: newest, indptr: vec![0], weights: weights.map(|_| Vec::new()), ..Block::default() };
            for (row, &node) in relabel.nodes().iter().enumerate() {
                // An edge is kept where its source's number is below fanout / degree, whatever node it leads to.
                let kept = match fanout {
                    _ if row < first => 0.0,
                    Fanout::All => 1.0,
                    Fanout::AtMost(k) => f64::from(k.get()) / topology.degree(node) as f64,
                };
                for edge in topology.edge_range(node) {
                    let source = topology.indices()[edge];
                    let row = Row { seed: host.settings.seed, batch: id, hop, node: topology.draw_key(source) };
                    if f64::from(row.block(Stream::Sampling, 0)[0]) < kept * 2f64.powi(32) {
                        block.indices.push(source);
                        block.weights.iter_mut().zip(weights).for_each(|(kept, all)| kept.push(all[edge]));
                    }
                }
                let end = u32::try_from(block.indices.len());
                block.indptr.push(
                    end.map_err(|_| Error::setting(id, "a hop of more than 2^32 - 1 edges; give smaller fanouts"))?,
                );
            }
            relabel.locals(&mut block.indices);
            block.num_src = relabel.nodes().len();
        }
        batch.input_nodes = relabel.finish();
        batch.degrees.clear();
        batch.degrees.extend(batch.input_nodes.iter().map(|&node| topology.degree(node) as f32));
        Ok(())
    }
}

/// A worker that counts input nodes.
struct Counting(HostWorker<Sampler>);

impl BatchingWorker for Counting {
    fn prepare_share(
        &mut self,
        id: BatchId,
        share: Range<usize>,
        recycled: Option<MiniBatch>,
    ) -> Result<Handle<MiniBatch>> {
        let (batch, took) = self.0.prepare_share(id, share, recycled)?.wait()?;
        let counted = Counters::NONE.with(&NODES, batch.host()?.input_nodes.len() as u64);
        Ok(Handle::ready(batch, took).counting(counted))
    }
}
