//! The gather of feature rows, with its cache.

use morphgl_cuda::{Buffer, CudaBatch, CudaFeatures, Device, Stream};
use morphgl_hotness::CachePolicy;
use morphgl_registry::{
    CACHE_HITS, CACHE_REQUESTS, Counters, Error, Key, LINK_BYTES, Place, Result, TransferringContext,
};

use crate::cache::{AccessCounts, Cache};
use crate::options::Options;
use crate::ranking::{Ranking, rank};
use crate::rows::Rows;

/// Gathers feature rows by a CUDA device: cached ones from its memory and that of its peers, the others from host memory in
/// place.
#[derive(Debug)]
pub struct Gather {
    stream: Stream,
    /// Streams of other devices that cache rows.
    peers: Vec<Stream>,
    /// Rows to gather; `None` if there are none.
    rows: Option<Rows>,
    cache: CacheState,
    options: Options,
}

#[derive(Debug)]
enum CacheState {
    /// Accesses are being counted.
    Counting(AccessCounts),
    Filled(Box<Cache>),
    /// No rows are cached.
    Off,
}

impl Gather {
    /// The gather of the features of `context`'s dataset by `device`, if they are wanted and there are any. If all rows fit
    /// `cache_bytes` (default half of the unallocated memory), they are cached now; else by a policy that is named, if it needs
    /// no counts.
    pub(crate) fn new(
        operator: &Key,
        device: &Device,
        context: &TransferringContext,
        options: Options,
    ) -> Result<Self> {
        let stream = Stream::new(device, true)?;
        let peers = options.peers(operator, device)?;
        let peers = peers.iter().map(|peer| Stream::new(peer, false)).collect::<Result<_>>()?;
        let dataset = &context.dataset;
        let gathers = context.gather && dataset.features.is_some();
        let rows = gathers.then(|| Rows::new(device, dataset, &options)).transpose()?;
        let mut gather = Self { stream, peers, rows, cache: CacheState::Off, options };
        gather.start_cache(operator, context)?;
        Ok(gather)
    }

    /// The stream it works on.
    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Caches all rows if they fit, else the hottest by a policy that is named; else begins to count accesses.
    fn start_cache(&mut self, operator: &Key, context: &TransferringContext) -> Result<()> {
        let Some(rows) = &self.rows else { return Ok(()) };
        let Options { cache, cache_bytes, presample, .. } = self.options;
        if matches!(cache, CachePolicy::Lru | CachePolicy::Sieve) {
            let message =
                format!("options: cache {cache}: rows on a device stay as they were filled; name a hotness policy");
            return Err(Error::setting(operator, message));
        }
        let off = cache == CachePolicy::None || cache == CachePolicy::Auto && presample == 0;
        if off || cache_bytes == Some(0) {
            return Ok(());
        }
        // Half: mini-batches have not allocated their memory yet.
        let budgets = self.budgets([1, 2])?;
        let (devices, num_rows) = (self.with_budgets(&budgets), rows.matrix().num_rows());
        if Cache::fits_all(&devices, rows.matrix()) {
            return self.fill(&vec![1.0; num_rows], &budgets);
        }
        let count = match cache {
            CachePolicy::By(kind) => {
                if let Some(least) = Cache::needed_for_a_row(&devices, rows.matrix()) {
                    let message = format!(
                        "options: cache {kind}: {} bytes have no room for a row and its tables; give cache_bytes of at \
                         least {least} on each device, or cache none",
                        budgets[0]
                    );
                    return Err(Error::setting(operator, message));
                }
                match rank(operator, kind, context)? {
                    Ranking::Scores(scores) => return self.fill(&scores, &budgets),
                    Ranking::Count(batches) => batches,
                }
            }
            _ => presample,
        };
        self.cache = CacheState::Counting(AccessCounts::new(&self.stream, num_rows, count)?);
        Ok(())
    }

    /// Streams of all caching devices, the gathering one first.
    fn streams(&self) -> impl Iterator<Item = &Stream> {
        std::iter::once(&self.stream).chain(&self.peers)
    }

    /// Budget of each device: option `cache_bytes`, or the given fraction of its unallocated memory. Idle blocks of the pool
    /// are left to mini-batches.
    fn budgets(&self, [part, of]: [u64; 2]) -> Result<Vec<u64>> {
        let budget = |stream: &Stream| match self.options.cache_bytes {
            Some(bytes) => Ok(bytes),
            None => Ok(stream.device().unallocated_bytes()? / of * part),
        };
        self.streams().map(budget).collect()
    }

    fn with_budgets(&self, budgets: &[u64]) -> Vec<(&Stream, u64)> {
        self.streams().zip(budgets.iter().copied()).collect()
    }

    /// Caches the hottest rows from now on and ends counting. `hotness` is the number of accesses of each node, `budget` the
    /// bytes for rows on each device, on the gathering one including the lookup tables. Returns the number of cached rows.
    ///
    /// Rows are assigned to devices round-robin by rank, beginning with the gathering one; all cache equally many, as the
    /// smallest budget allows.
    ///
    /// # Errors
    ///
    /// A device's memory is full, or the driver fails.
    ///
    /// # Panics
    ///
    /// When `hotness` does not have one value per node.
    pub fn fill_cache(&mut self, hotness: &[f32], budget: u64) -> Result<usize> {
        let budgets = vec![budget; 1 + self.peers.len()];
        self.fill(hotness, &budgets)?;
        Ok(self.num_cached_rows())
    }

    /// As [`Gather::fill_cache`], with a budget for each device.
    fn fill(&mut self, hotness: &[f32], budgets: &[u64]) -> Result<()> {
        // The previous cache releases its memory first.
        self.cache = CacheState::Off;
        let Some(rows) = &self.rows else { return Ok(()) };
        assert_eq!(hotness.len(), rows.matrix().num_rows(), "hotness has one value per node");
        if let Some(cache) = Cache::fill(&self.with_budgets(budgets), rows.matrix(), hotness)? {
            self.cache = CacheState::Filled(Box::new(cache));
        }
        Ok(())
    }

    fn cache(&self) -> Option<&Cache> {
        match &self.cache {
            CacheState::Filled(cache) => Some(cache),
            _ => None,
        }
    }

    /// Number of cached rows.
    pub fn num_cached_rows(&self) -> usize {
        self.cache().map_or(0, |cache| cache.map.len())
    }

    /// Number of cached rows by device, the gathering one first; empty without a cache.
    pub fn cached_rows_by_device(&self) -> Vec<(Place, usize)> {
        let rows = self.cache().into_iter().flat_map(Cache::rows_by_device);
        rows.map(|(device, rows)| (device.place().clone(), rows)).collect()
    }

    /// Gathers the features that a mini-batch lacks, after the stream's earlier work, and replaces its `ready` event. Returns
    /// whether it lacked any.
    pub(crate) fn fill_in(&mut self, batch: &mut CudaBatch) -> Result<bool> {
        if batch.features.is_some() || self.rows.is_none() {
            return Ok(false);
        }
        self.count(batch)?;
        let rows = self.rows.as_ref().expect("checked above");
        let (matrix, num_rows) = (rows.matrix(), batch.input_nodes.len());
        let mut bytes = Buffer::new(&self.stream, num_rows * matrix.row_bytes())?;
        rows.gather(&self.stream, (&batch.input_nodes, num_rows), self.cache(), &mut bytes)?;
        batch.features = Some(CudaFeatures { dim: matrix.dim(), dtype: matrix.dtype(), bytes });
        batch.ready = self.stream.record(false)?;
        Ok(true)
    }

    /// Counters of a gather of the rows of `nodes`: bytes of those read from the host, and hits of the cache if there is one.
    ///
    /// O(nodes), on the host.
    pub(crate) fn counters(&self, nodes: &[u32]) -> Counters {
        let row_bytes = self.rows.as_ref().map_or(0, |rows| rows.matrix().row_bytes());
        let link_bytes = |rows: usize| Counters::NONE.with(&LINK_BYTES, (rows * row_bytes) as u64);
        let Some(cache) = self.cache() else { return link_bytes(nodes.len()) };
        let hits = cache.hits(nodes);
        link_bytes(nodes.len() - hits).with(&CACHE_REQUESTS, nodes.len() as u64).with(&CACHE_HITS, hits as u64)
    }

    /// Counts the accesses of a mini-batch, and fills the cache after the last one that is counted.
    fn count(&mut self, batch: &CudaBatch) -> Result<()> {
        let CacheState::Counting(counts) = &mut self.cache else { return Ok(()) };
        if counts.add(&self.stream, &batch.input_nodes, batch.input_nodes.len())? {
            let hotness = counts.hotness(&self.stream)?;
            let budgets = self.budgets([3, 4])?;
            self.fill(&hotness, &budgets)?;
        }
        Ok(())
    }
}
