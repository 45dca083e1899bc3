//! LABOR-0 (Layer-Neighbor Sampling; Balin & Çatalyürek, NeurIPS 2023, arXiv:2210.13339): one random number per source node and hop
//! decides on all its edges, so that the nodes of a mini-batch share neighbours, and fewer are read for the same fanouts.
//!
//! A batching operator with a kind of sampling of its own, whose settings change mini-batches, an option that does not, and counters.
//! All kept edges of a row had the same probability, min(1, fanout / degree): the paper's estimator is then the mean of the kept
//! neighbours, which is what models compute.

use std::mem;
use std::ops::Range;
use std::sync::Arc;

use morphgl_registry::{
    At, BatchId, Batching, BatchingContext, BatchingWorker, Block, Build, CounterSpec, Counters, Description, Error,
    Expansion, Fanout, Handle, Hardware, HostBatch, Key, MiniBatch, NeighborSettings, OptionSpec, OptionType, Phase,
    Pick, Result, SamplingSetting, SamplingSpec,
};
use morphgl_sampler_core::{
    Excluded, HostBatching, HostWorker, Relabel, Row, SampleSeeds, Seeds, Stream, check_threads,
};

/// The operator's key.
pub const KEY: Key = Key::new(Phase::Batching, Hardware::CPU, "Labor");

const LAYER_DEPENDENCY: OptionSpec =
    OptionSpec::new("layer_dependency", OptionType::Bool, "false", "draw the same random numbers at every hop");
const BATCH_DEPENDENCY: OptionSpec =
    OptionSpec::new("batch_dependency", OptionType::Count, "1", "successive mini-batches with the same random numbers")
        .such_as(&["3"])
        .in_unit("mini-batches");

/// The kind of sampling, `--sampler labor`.
pub const LABOR: SamplingSpec = SamplingSpec::new("labor", "neighbours that the nodes of a mini-batch share (LABOR-0)")
    .by_fanouts()
    .with_settings(&[LAYER_DEPENDENCY, BATCH_DEPENDENCY]);

const RESERVE: OptionSpec = OptionSpec::new("reserve", OptionType::Count, "0", "memory reserved for each block")
    .such_as(&["5000"])
    .in_unit("edges");

/// Number of input nodes.
pub const NODES: CounterSpec = CounterSpec::new("input_nodes", "input nodes of mini-batches");
/// Number of edges.
pub const EDGES: CounterSpec = CounterSpec::new("kept_edges", "edges of mini-batches");

/// The description that is registered.
pub const DESCRIPTION: Description = Description::new(
    KEY,
    "samples k hops of neighbours that the nodes of a mini-batch share (LABOR-0)",
    At::Host,
    At::Host,
    Build::Batching(|context| Ok(Box::new(Labor::new(context)?))),
)
.sampling(&[LABOR])
.interchangeable()
.with_options(&[RESERVE])
.with_counters(&[NODES, EDGES]);

morphgl_registry::submit! { DESCRIPTION }

/// Phase Batching, `Batching_CPU_Labor`.
#[derive(Debug)]
pub struct Labor {
    host: Arc<HostBatching>,
    settings: Settings,
}

/// Settings of the kind, and the option.
#[derive(Debug, Clone)]
struct Settings {
    hops: NeighborSettings,
    layer_dependency: bool,
    batch_dependency: u32,
    reserve: usize,
}

impl Labor {
    fn new(context: &BatchingContext) -> Result<Self> {
        let custom = context.settings.custom(&LABOR)?;
        let hops = custom.hops.clone().expect("a kind by fanouts has hops");
        if hops.pick == Pick::Weighted {
            return Err(Error::sampling(SamplingSetting::WeightedPick, "labor picks uniformly; leave it out"));
        }
        let layer_dependency = custom.value(&LAYER_DEPENDENCY) == true;
        let number = |value: Option<u64>| value.and_then(|value| u32::try_from(value).ok());
        let refused = |name: &str, cure: &str| Error::setting(KEY, format!("{name} is out of range; give {cure}"));
        let batch_dependency = number(custom.value(&BATCH_DEPENDENCY).as_u64()).filter(|&batches| batches > 0);
        let batch_dependency = batch_dependency.ok_or_else(|| refused(BATCH_DEPENDENCY.name, "1 to 2^32 - 1"))?;
        let reserve = number(context.options[RESERVE.name].as_u64().or(Some(0)));
        let reserve = reserve.ok_or_else(|| refused(RESERVE.name, "at most 2^32 - 1"))? as usize;
        let settings = Settings { hops, layer_dependency, batch_dependency, reserve };
        Ok(Self { host: Arc::new(HostBatching::new(context)?), settings })
    }
}

impl Batching for Labor {
    fn num_batches(&self) -> usize {
        self.host.epochs.num_batches()
    }

    fn worker(&self, threads: usize) -> Result<Box<dyn BatchingWorker>> {
        check_threads(threads)?;
        let relabel = Relabel::for_graph(self.host.dataset.num_nodes(), |_| 0);
        let sampler = Sampler { settings: self.settings.clone(), relabel };
        Ok(Box::new(Counting(HostWorker::new(Arc::clone(&self.host), threads, sampler)?)))
    }
}

/// The sampling of one worker, on one thread.
#[derive(Debug)]
struct Sampler {
    settings: Settings,
    relabel: Relabel,
}

impl SampleSeeds for Sampler {
    fn sample(&mut self, host: &HostBatching, seeds: Seeds<'_>, _: &Excluded, batch: &mut HostBatch) -> Result<()> {
        let seeds = seeds.nodes;
        let Self { settings: Settings { hops, layer_dependency, batch_dependency, reserve }, relabel } = self;
        let topology = &host.dataset.topology;
        let (id, weights) = (batch.id, topology.weights());
        let drawn = BatchId { index: id.index / *batch_dependency, ..id };
        relabel.start(mem::take(&mut batch.input_nodes));
        relabel.add_seeds(seeds);
        batch.num_seeds = seeds.len();
        batch.blocks.resize_with(hops.fanouts.0.len(), Block::default);
        let mut newest = 0;
        // blocks[0] is the hop farthest from the seeds.
        for (hop, (block, &fanout)) in batch.blocks.iter_mut().rev().zip(&hops.fanouts.0).enumerate() {
            let first = if hops.expansion == Expansion::New { newest } else { 0 };
            let hop = if *layer_dependency { 0 } else { hop as u32 };
            newest = relabel.nodes().len();
            *block =
                Block { num_dst: newest, indptr: vec![0], weights: weights.map(|_| Vec::new()), ..Block::default() };
            block.indices.reserve(*reserve);
            for (row, &node) in relabel.nodes().iter().enumerate() {
                // An edge is kept where its source's number is below fanout / degree, whatever node it leads to.
                let kept = match fanout {
                    _ if row < first => 0.0,
                    Fanout::All => 1.0,
                    Fanout::AtMost(k) => f64::from(k.get()) / topology.degree(node) as f64,
                };
                for edge in topology.edge_range(node) {
                    let source = topology.indices()[edge];
                    let node = topology.draw_key(source);
                    let row = Row { seed: host.settings.seed, batch: drawn, hop, node, edge_type: 0 };
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

/// A worker that counts.
struct Counting(HostWorker<Sampler>);

impl BatchingWorker for Counting {
    fn prepare_share(
        &mut self,
        id: BatchId,
        share: Range<usize>,
        recycled: Option<MiniBatch>,
    ) -> Result<Handle<MiniBatch>> {
        let (batch, took) = self.0.prepare_share(id, share, recycled)?.wait()?;
        let HostBatch { input_nodes, blocks, .. } = batch.host()?;
        let edges: usize = blocks.iter().map(Block::num_edges).sum();
        let counted = Counters::NONE.with(&NODES, input_nodes.len() as u64).with(&EDGES, edges as u64);
        Ok(Handle::ready(batch, took).counting(counted))
    }
}
