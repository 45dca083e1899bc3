//! The gather of feature rows, with its cache.

use std::time::{Duration, Instant};

use morphgl_cuda::{Buffer, CudaBatch, CudaFeatures, CudaRows, Device, Stream};
use morphgl_dual_cache::{Kind, allocate};
use morphgl_hotness::{CachePolicy, PolicyKind};
use morphgl_registry::{
    CACHE_HITS, CACHE_REQUESTS, CacheCurve, Counters, DISK_BYTES, DISK_READS, Error, Key, LINK_BYTES, Place, Result,
    TransferringContext,
};
use morphgl_row_cache::NodeMap;

use crate::cache::Cache;
use crate::counting::{AccessCounts, Counted};
use crate::disk::Tally;
use crate::options::{Options, Replicated};
use crate::ranking::{Ranking, rank};
use crate::replication::Replication;
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
    /// How many rows a pool has on every device.
    replication: Replication,
    cache: CacheState,
    /// Evaluated access counts, which rank the cached rows, until a plan has chosen the size.
    counted: Option<Box<Counted>>,
    /// Seconds of filling the cache.
    fill_seconds: f64,
    /// Whether a plan has chosen the size, with which the next mini-batch fills the cache where there is none.
    resized: bool,
    options: Options,
}

/// How a gather read its rows.
#[derive(Debug)]
pub(crate) struct Gathered {
    /// Whether they were put in the order of their pages.
    by_page: bool,
    timing: Timing,
    /// Of rows that were staged, the bytes of their table, and where they came from.
    staged: Option<(u64, Tally)>,
}

/// What the duration of a gather tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Timing {
    /// All rows were read from host memory, while accesses were counted.
    Uncached,
    Cached,
    /// Nothing: the cache was filled before.
    Filling,
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
        // Its blocks wait for the link: training gets the multiprocessors first.
        let stream = Stream::of_low_priority(device)?;
        let peers = options.peers(operator, device)?;
        let peers: Vec<Stream> = peers.iter().map(|peer| Stream::new(peer, false)).collect::<Result<_>>()?;
        let dataset = &context.dataset;
        let gathers = context.gather && dataset.features.is_some();
        let rows = gathers.then(|| DatasetRows::new(operator, &stream, dataset, &options)).transpose()?;
        let replication = match (options.replicated, &rows) {
            (Replicated::Rows(rows), _) => Replication::Rows(rows),
            (Replicated::Auto, Some(rows)) if !peers.is_empty() => {
                rows.seconds(&stream, &peers)?.map_or(Replication::Rows(0), Replication::Fastest)
            }
            (Replicated::Auto, _) => Replication::Rows(0),
        };
        let (cache, counted, fill_seconds, resized) = (CacheState::Off, None, 0.0, false);
        let mut gather = Self { stream, peers, rows, replication, cache, counted, fill_seconds, resized, options };
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
        let budgets = self.budgets()?;
        if rows.are_on_disk() {
            return self.fill_tiers(operator, context, &budgets);
        }
        if cache == CachePolicy::Auto && presample == 0 || cache_bytes == Some(0) {
            return Ok(());
        }
        let num_rows = rows.matrix().num_rows();
        if Cache::fits_all(&budgets, rows.matrix(), self.replication) {
            return self.fill(&vec![1.0; num_rows], &budgets);
        }
        let count = match cache {
            CachePolicy::By(kind) => {
                if let Some(least) = Cache::needed_for_a_row(&budgets, rows.matrix()) {
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

    /// Budget of each device: option `cache_bytes`, or half of its unallocated memory, until a plan chooses. Idle blocks of the
    /// pool are left to mini-batches.
    fn budgets(&self) -> Result<Vec<u64>> {
        let budget = |stream: &Stream| match self.options.cache_bytes {
            Some(bytes) => Ok(bytes),
            None => Ok(stream.device().unallocated_bytes()? / 2),
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
        (self.counted, self.resized) = (None, false);
        let budgets = vec![budget; 1 + self.peers.len()];
        self.fill(hotness, &budgets)?;
        Ok(self.num_cached_rows())
    }

    /// As [`Gather::fill_cache`], with a budget for each device.
    fn fill(&mut self, hotness: &[f32], budgets: &[u64]) -> Result<()> {
        // The previous cache releases its memory first.
        self.cache = CacheState::Off;
        let start = Instant::now();
        let Some(rows) = &self.rows else { return Ok(()) };
        assert_eq!(hotness.len(), rows.matrix().num_rows(), "hotness has one value per node");
        if let Some(cache) = Cache::fill(
            &self.with_budgets(budgets),
            (rows.matrix(), &|nodes, out| rows.read(nodes, out)),
            (hotness, self.replication),
        )? {
            self.cache = CacheState::Filled(Box::new(cache));
        }
        self.fill_seconds = start.elapsed().as_secs_f64();
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

    /// What caches of other sizes would save, estimated from access counts and durations of gathers, once two mini-batches were
    /// counted. `None` where no accesses are counted, and once a plan has chosen a size and it is filled.
    pub(crate) fn curve(&self) -> Result<Option<CacheCurve>> {
        let Some(rows) = &self.rows else { return Ok(None) };
        let savings = match (&self.cache, &self.counted) {
            (CacheState::Counting(counts), _) => counts.savings(&self.stream)?,
            (_, Some(counted)) => counted.savings()?,
            _ => None,
        };
        let Some(savings) = savings else { return Ok(None) };
        let (num_devices, matrix) = (1 + self.peers.len(), rows.matrix());
        let row_bytes = Cache::bytes(num_devices, matrix);
        let points = match self.replication {
            Replication::Rows(replicated) => savings.points(num_devices as u64, row_bytes, replicated),
            Replication::Fastest(seconds) => {
                let room = |bytes, replicated| Cache::room(num_devices, matrix, bytes, replicated);
                savings.points_of_fastest(num_devices as u64, row_bytes, room, seconds)
            }
        };
        let batch_seconds = match &self.counted {
            Some(counted) => counted.batch_seconds(&savings, self.num_cached_rows() as u64),
            None => savings.batch_seconds,
        };
        let free_bytes = Some(self.stream.device().free_bytes()?);
        let build_seconds = self.fill_seconds;
        Ok(Some(CacheCurve { bytes: self.num_cached_bytes(), free_bytes, build_seconds, batch_seconds, points }))
    }

    /// Bytes of the device that the cache takes, lookup tables included.
    fn num_cached_bytes(&self) -> u64 {
        let (rows, cache) = (self.rows.as_ref(), self.cache());
        rows.zip(cache).map_or(0, |(rows, cache)| cache.num_bytes(rows.matrix()))
    }

    /// The rows cached by counted accesses take at most `bytes` of each device, on the gathering one including the lookup tables: none
    /// where these have no room. A cache of another size gives its memory back now, so that every gather of a shared pool does before
    /// one of them fills the next; the next mini-batch fills it. Rows that were cached by anything else stay.
    pub(crate) fn resize(&mut self, bytes: u64) {
        let is_counting = matches!(self.cache, CacheState::Counting(_));
        if !is_counting && self.counted.is_none() {
            return;
        }
        (self.options.cache_bytes, self.resized) = (Some(bytes), true);
        let budgets = vec![bytes; 1 + self.peers.len()];
        let has_room =
            self.rows.as_ref().is_some_and(|rows| Cache::needed_for_a_row(&budgets, rows.matrix()).is_none());
        let stays = if is_counting { has_room } else { bytes == self.num_cached_bytes() };
        if !stays {
            self.cache = CacheState::Off;
        }
    }

    /// Notes how long a whole transfer took that this gather is a part of.
    pub(crate) fn transferred(&mut self, took: Duration, gathered: &Gathered) {
        if gathered.timing == Timing::Filling {
            return;
        }
        match (&mut self.cache, &mut self.counted) {
            (CacheState::Counting(counts), _) => counts.transferred(took),
            (_, Some(counted)) => counted.transferred(took, gathered.timing == Timing::Uncached),
            _ => {}
        }
    }

    /// Gathers the features that a mini-batch lacks, after the stream's earlier work, and replaces its `ready` event. `nodes` are its
    /// input nodes in host memory, for rows that are on disk. `None` where it lacks no features.
    pub(crate) fn fill_in(&mut self, batch: &mut CudaBatch, nodes: Option<&[u32]>) -> Result<Option<Gathered>> {
        if batch.features.is_some() || self.rows.is_none() {
            return Ok(None);
        }
        let fills = self.fill_resized()? || self.count(batch)?;
        let rows = self.rows.as_ref().expect("checked above");
        let staged = nodes.map_or(Ok(None), |nodes| rows.stage(&self.stream, nodes, self.cache()))?;
        let (matrix, num_rows) = (rows.matrix(), batch.input_nodes.len());
        let timing = match self.cache {
            _ if fills => Timing::Filling,
            CacheState::Counting(_) => Timing::Uncached,
            _ => Timing::Cached,
        };
        if let Some(table) = self.cache().and_then(|cache| cache.table_of_all(matrix.num_rows())) {
            // Training reads the rows where they are.
            batch.features =
                Some(CudaFeatures { dim: matrix.dim(), dtype: matrix.dtype(), rows: CudaRows::OfNodes(table) });
            return Ok(Some(Gathered { by_page: false, timing, staged: None }));
        }
        let mut bytes = Buffer::new(&self.stream, num_rows * matrix.row_bytes())?;
        let start = (timing == Timing::Uncached).then(|| self.stream.record(true)).transpose()?;
        let nodes = (&batch.input_nodes, num_rows);
        let by_page = rows.gather(&self.stream, nodes, (self.cache(), staged.as_ref()), &mut bytes)?;
        if let (CacheState::Counting(counts), Some(start)) = (&mut self.cache, start) {
            counts.gathered(start, self.stream.record(true)?);
        }
        let rows = CudaRows::Packed(bytes);
        batch.features = Some(CudaFeatures { dim: matrix.dim(), dtype: matrix.dtype(), rows });
        batch.ready = self.stream.record(false)?;
        Ok(Some(Gathered { by_page, timing, staged: staged.map(|staged| (staged.table_bytes(), staged.tally)) }))
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

    /// Fills the cache of the size that a plan has chosen, after counting; returns whether it did.
    fn fill_resized(&mut self) -> Result<bool> {
        if !self.resized || matches!(self.cache, CacheState::Counting(_)) {
            return Ok(false);
        }
        self.resized = false;
        let counted = self.counted.take().filter(|_| self.cache().is_none());
        counted.map_or(Ok(false), |counted| self.fill(&counted.hotness, &self.budgets()?).map(|()| true))
    }

    /// Counts the accesses of a mini-batch, and fills the cache after the last one that is counted; returns whether it did.
    fn count(&mut self, batch: &CudaBatch) -> Result<bool> {
        let CacheState::Counting(counts) = &mut self.cache else { return Ok(false) };
        if !counts.add(&self.stream, &batch.input_nodes, batch.input_nodes.len())? {
            return Ok(false);
        }
        let counted = counts.finish(&self.stream)?;
        self.fill(&counted.hotness, &self.budgets()?)?;
        // A plan may still choose the size.
        self.counted = (!std::mem::take(&mut self.resized)).then(|| Box::new(counted));
        Ok(true)
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
