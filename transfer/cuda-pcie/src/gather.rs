//! The gather of feature rows, with its cache.

use std::time::Duration;

use morphgl_cuda::{Buffer, CudaBatch, CudaFeatures, Device, Stream};
use morphgl_dual_cache::{Kind, allocate};
use morphgl_hotness::{CachePolicy, PolicyKind};
use morphgl_registry::{
    CACHE_HITS, CACHE_REQUESTS, CacheCurve, Counters, DISK_BYTES, DISK_READS, Error, Key, LINK_BYTES, Place, Result,
    TransferringContext,
};
use morphgl_row_cache::NodeMap;

use crate::cache::Cache;
use crate::counting::AccessCounts;
use crate::disk::Tally;
use crate::options::Options;
use crate::ranking::{Ranking, rank};
use crate::rows::DatasetRows;
use crate::{HOST_ROWS, PAGE_ORDERED_ROWS};

/// Gathers feature rows by a CUDA device: cached ones from its memory and that of its peers, the others from host memory in
/// place.
#[derive(Debug)]
pub struct Gather {
    stream: Stream,
    /// Streams of other devices that cache rows.
    peers: Vec<Stream>,
    /// Rows to gather; `None` if there are none.
    rows: Option<DatasetRows>,
    cache: CacheState,
    options: Options,
}

/// How a gather read its rows.
#[derive(Debug)]
pub(crate) struct Gathered {
    /// Whether they were put in the order of their pages.
    by_page: bool,
    /// Of rows that were staged, the bytes of their table, and where they came from.
    staged: Option<(u64, Tally)>,
}

#[derive(Debug)]
enum CacheState {
    /// Accesses are being counted.
    Counting(Box<AccessCounts>),
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
        let rows = gathers.then(|| DatasetRows::new(operator, &stream, dataset, &options)).transpose()?;
        let mut gather = Self { stream, peers, rows, cache: CacheState::Off, options };
        gather.start_cache(operator, context)?;
        Ok(gather)
    }

    /// The stream it works on.
    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Caches all rows if they fit, else the hottest by a policy that is named; else begins to count accesses. Rows on disk are
    /// ranked now.
    fn start_cache(&mut self, operator: &Key, context: &TransferringContext) -> Result<()> {
        let Some(rows) = &self.rows else { return Ok(()) };
        let Options { cache, cache_bytes, presample, .. } = self.options;
        if matches!(cache, CachePolicy::Lru | CachePolicy::Sieve) {
            let message =
                format!("options: cache {cache}: rows on a device stay as they were filled; name a hotness policy");
            return Err(Error::setting(operator, message));
        }
        if cache == CachePolicy::None {
            return Ok(());
        }
        // Half: mini-batches have not allocated their memory yet.
        let budgets = self.budgets([1, 2])?;
        if rows.are_on_disk() {
            return self.fill_tiers(operator, context, &budgets);
        }
        if cache == CachePolicy::Auto && presample == 0 || cache_bytes == Some(0) {
            return Ok(());
        }
        let (devices, num_rows) = (self.with_budgets(&budgets), rows.matrix().num_rows());
        if Cache::fits_all(&devices, rows.matrix(), self.options.replicated) {
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
                match rank(operator, kind, context, false)? {
                    Ranking::Scores(scores) => return self.fill(&scores, &budgets),
                    Ranking::Count(batches) => batches,
                }
            }
            _ => presample,
        };
        self.cache = CacheState::Counting(Box::new(AccessCounts::new(&self.stream, num_rows, count)?));
        Ok(())
    }

    /// Caches rows of a dataset on disk: the hottest on the devices, the next ones in host memory. They are ranked by the policy
    /// that is named, or by inclusion probability; by nothing where the mini-batches' seeds are not known and `cache` is auto.
    fn fill_tiers(&mut self, operator: &Key, context: &TransferringContext, budgets: &[u64]) -> Result<()> {
        let (kind, named) = match self.options.cache {
            CachePolicy::By(kind) => (kind, true),
            _ => (PolicyKind::Inclusion, false),
        };
        if !named && context.sampled.is_none() {
            return Ok(());
        }
        let Ranking::Scores(scores) = rank(operator, kind, context, true)? else {
            let what = format!(
                "options: cache {kind}: rows on disk are ranked before the first mini-batch; name another policy"
            );
            return Err(Error::setting(operator, what));
        };
        self.fill(&scores, budgets)?;
        let (Some(rows), Some(host_bytes)) = (&self.rows, self.options.host_bytes) else { return Ok(()) };
        let (num_rows, row_bytes) = (rows.matrix().num_rows(), rows.matrix().row_bytes() as u64);
        let is_on_device = |node: u32| self.cache().is_some_and(|cache| cache.map().get(node).is_some());
        let saving = |node: u32| if is_on_device(node) { 0.0 } else { scores[node as usize] };
        let kind = Kind { saving: &saving, bytes: &|_| row_bytes, tables: NodeMap::num_bytes_of(num_rows) };
        let [share] = allocate(num_rows as u32, [kind], host_bytes);
        share.map_or(Ok(()), |share| rows.hold(share.map))
    }

    /// Number of rows in host memory, of a dataset on disk.
    pub fn num_host_rows(&self) -> usize {
        self.rows.as_ref().map_or(0, DatasetRows::num_on_host)
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
    /// smallest budget allows. Where another gather of this process has cached rows of the same features on the same devices, it is
    /// these that are read, whatever `hotness` is: all gathers share one pool (Data Tiering, §4).
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
        if let Some(cache) = Cache::fill(
            &self.with_budgets(budgets),
            (rows.matrix(), &|nodes, out| rows.read(nodes, out)),
            (hotness, self.options.replicated),
        )? {
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
        self.cache().map_or(0, |cache| cache.map().len())
    }

    /// Number of cached rows by device, first the one whose gather filled the pool; empty without a cache.
    pub fn cached_rows_by_device(&self) -> Vec<(Place, usize)> {
        let rows = self.cache().into_iter().flat_map(Cache::rows_by_device);
        rows.map(|(device, rows)| (device.place().clone(), rows)).collect()
    }

    /// What caches of other sizes would save, while accesses are counted and two mini-batches were: their counts, and the
    /// durations of their gathers, tell. `None` once rows are cached, and where none are to be.
    pub(crate) fn curve(&self) -> Result<Option<CacheCurve>> {
        let (CacheState::Counting(counts), Some(rows)) = (&self.cache, &self.rows) else { return Ok(None) };
        let Some(savings) = counts.savings(&self.stream)? else { return Ok(None) };
        let num_devices = 1 + self.peers.len();
        let points =
            savings.points(num_devices as u64, Cache::bytes(num_devices, rows.matrix()), self.options.replicated);
        let free_bytes = Some(self.stream.device().free_bytes()?);
        Ok(Some(CacheCurve { bytes: 0, free_bytes, build_seconds: 0.0, batch_seconds: savings.batch_seconds, points }))
    }

    /// The rows to be cached take at most `bytes` of each device, on the gathering one including the lookup tables: none where
    /// these have no room. Rows that are cached already stay.
    pub(crate) fn resize(&mut self, bytes: u64) {
        let CacheState::Counting(_) = &self.cache else { return };
        self.options.cache_bytes = Some(bytes);
        let budgets = vec![bytes; 1 + self.peers.len()];
        let devices = self.with_budgets(&budgets);
        if self.rows.as_ref().is_some_and(|rows| Cache::needed_for_a_row(&devices, rows.matrix()).is_some()) {
            self.cache = CacheState::Off;
        }
    }

    /// Notes how long a whole transfer took that this gather is a part of.
    pub(crate) fn transferred(&mut self, took: Duration) {
        if let CacheState::Counting(counts) = &mut self.cache {
            counts.transferred(took);
        }
    }

    /// Gathers the features that a mini-batch lacks, after the stream's earlier work, and replaces its `ready` event. `nodes` are its
    /// input nodes in host memory, for rows that are on disk. `None` where it lacks no features.
    pub(crate) fn fill_in(&mut self, batch: &mut CudaBatch, nodes: Option<&[u32]>) -> Result<Option<Gathered>> {
        if batch.features.is_some() || self.rows.is_none() {
            return Ok(None);
        }
        self.count(batch)?;
        let rows = self.rows.as_ref().expect("checked above");
        let staged = nodes.map_or(Ok(None), |nodes| rows.stage(&self.stream, nodes, self.cache()))?;
        let (matrix, num_rows) = (rows.matrix(), batch.input_nodes.len());
        let mut bytes = Buffer::new(&self.stream, num_rows * matrix.row_bytes())?;
        let start = matches!(self.cache, CacheState::Counting(_)).then(|| self.stream.record(true)).transpose()?;
        let nodes = (&batch.input_nodes, num_rows);
        let by_page = rows.gather(&self.stream, nodes, (self.cache(), staged.as_ref()), &mut bytes)?;
        if let (CacheState::Counting(counts), Some(start)) = (&mut self.cache, start) {
            counts.gathered(start, self.stream.record(true)?);
        }
        batch.features = Some(CudaFeatures { dim: matrix.dim(), dtype: matrix.dtype(), bytes });
        batch.ready = self.stream.record(false)?;
        Ok(Some(Gathered { by_page, staged: staged.map(|staged| (staged.table_bytes(), staged.tally)) }))
    }

    /// Counters of a gather whose `nodes` are in host memory: bytes over the link, cache hits if there is a cache, and reads from
    /// disk.
    ///
    /// O(nodes), on the host.
    pub(crate) fn counters(&self, nodes: &[u32], gathered: &Gathered) -> Counters {
        let hits = self.cache().map(|cache| cache.hits(nodes));
        let counted = counters((nodes.len(), self.row_bytes()), hits, gathered.by_page);
        let Some((table_bytes, Tally { host_rows, disk })) = gathered.staged else { return counted };
        let counted = counted.with(&LINK_BYTES, table_bytes).with(&HOST_ROWS, host_rows);
        counted.with(&DISK_READS, disk.reads).with(&DISK_BYTES, disk.bytes)
    }

    /// As [`Gather::counters`], of a mini-batch whose nodes the device has: hits are counted there, unless all rows are cached, and are
    /// read once the stream's work is done.
    pub(crate) fn queue_counters(
        &self,
        batch: &CudaBatch,
        gathered: &Gathered,
    ) -> Result<impl FnOnce() -> Counters + Send + use<>> {
        let (num_rows, row_bytes, by_page) = (batch.input_nodes.len(), self.row_bytes(), gathered.by_page);
        let holds_all =
            |cache: &&Cache| self.rows.as_ref().is_some_and(|rows| cache.map().len() == rows.matrix().num_rows());
        let all = self.cache().filter(holds_all).map(|_| num_rows);
        let counted = self.cache().filter(|_| all.is_none());
        let counted = counted.map(|cache| cache.queue_hits(&self.stream, &batch.input_nodes, num_rows)).transpose()?;
        Ok(move || counters((num_rows, row_bytes), all.or_else(|| counted.map(|hits| hits[0] as usize)), by_page))
    }

    fn row_bytes(&self) -> usize {
        self.rows.as_ref().map_or(0, |rows| rows.matrix().row_bytes())
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

/// Counters of a gather of so many rows, each of so many bytes, of which so many were cached (`None` without a cache).
fn counters((num_rows, row_bytes): (usize, usize), hits: Option<usize>, by_page: bool) -> Counters {
    let link_bytes = (num_rows - hits.unwrap_or(0)) * row_bytes;
    let mut counted = Counters::NONE.with(&LINK_BYTES, link_bytes as u64);
    if let Some(hits) = hits {
        counted = counted.with(&CACHE_REQUESTS, num_rows as u64).with(&CACHE_HITS, hits as u64);
    }
    match by_page {
        true => counted.with(&PAGE_ORDERED_ROWS, num_rows as u64),
        false => counted,
    }
}
