//! A sampler that reads the dataset's files through the page cache: a plain batching operator that reads from disk.

use std::ops::Range;
use std::sync::Arc;

use morphgl_registry::{
    At, BatchId, Batching, BatchingContext, BatchingWorker, Build, CounterSpec, Counters, Description, Handle,
    Hardware, Key, MiniBatch, NeighborSettings, Phase, Resource, Result,
};
use morphgl_sampler_core::{Expected, HostBatching, HostWorker, NeighborSampler, check_threads};

/// The operator's key.
pub const KEY: Key = Key::new(Phase::Batching, Hardware::new(&[Resource::CPU, Resource::new("Disk")]), "Mapped");

/// Number of sampled edges.
pub const EDGES: CounterSpec = CounterSpec::new("sampled_edges", "edges sampled from the mapped topology");

/// The description that is registered.
pub const DESCRIPTION: Description = Description::new(
    KEY,
    "samples k hops of neighbours from the dataset's mapped files",
    At::Disk,
    At::Host,
    Build::Batching(|context| Ok(Box::new(Mapped::new(context)?))),
)
.interchangeable()
.with_counters(&[EDGES]);

morphgl_registry::submit! { DESCRIPTION }

/// Phase Batching, `Batching_CPU+Disk_Mapped`.
#[derive(Debug)]
pub struct Mapped {
    host: Arc<HostBatching>,
    settings: NeighborSettings,
    expected: Arc<Expected>,
}

impl Mapped {
    fn new(context: &BatchingContext) -> Result<Self> {
        let settings = context.settings.neighbor()?.clone();
        let host = HostBatching::new(context)?;
        Ok(Self { host: Arc::new(host), settings, expected: Arc::default() })
    }
}

impl Batching for Mapped {
    fn num_batches(&self) -> usize {
        self.host.epochs.num_batches()
    }

    fn worker(&self, threads: usize) -> Result<Box<dyn BatchingWorker>> {
        check_threads(threads)?;
        let topology = &self.host.dataset.topology;
        let sampler = NeighborSampler::new(topology, self.settings.clone(), threads, &self.expected);
        Ok(Box::new(Counting(HostWorker::new(Arc::clone(&self.host), threads, sampler)?)))
    }
}

/// A worker that counts the edges it samples.
struct Counting(HostWorker<NeighborSampler>);

impl BatchingWorker for Counting {
    fn prepare_share(
        &mut self,
        id: BatchId,
        share: Range<usize>,
        recycled: Option<MiniBatch>,
    ) -> Result<Handle<MiniBatch>> {
        let (batch, took) = self.0.prepare_share(id, share, recycled)?.wait()?;
        let counted = Counters::NONE.with(&EDGES, batch.host()?.num_edges() as u64);
        Ok(Handle::ready(batch, took).counting(counted))
    }
}
