//! Feature rows divided among the trainers of a group: each has its own, copies of the hottest, and reads the others' from their
//! owners.

use std::convert::Infallible;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use morphgl_graph_store::FeatureMatrix;
use morphgl_registry::{
    BatchFeatures, BatchId, Batching, BatchingWorker, CacheCurve, CounterSpec, Counters, Error, Handle, HostBatch,
    MiniBatch,
};
use morphgl_row_cache::{FeatureCache, NodeMap};

use crate::Result;

/// Rows of this trainer's own part.
pub(crate) const OWN_ROWS: CounterSpec = CounterSpec::new("shard_own_rows", "feature rows of this trainer's own part");
/// Rows of other parts of which this trainer has copies.
pub(crate) const REPLICATED_ROWS: CounterSpec =
    CounterSpec::new("shard_replicated_rows", "feature rows of other trainers' parts, from copies");
/// Rows read from their owners.
pub(crate) const READ_ROWS: CounterSpec =
    CounterSpec::new("shard_read_rows", "feature rows read from the trainers that own them");
/// Bytes read from owners.
pub(crate) const READ_BYTES: CounterSpec =
    CounterSpec::new("shard_read_bytes", "bytes of feature rows read from the trainers that own them");

/// Reads rows from the trainers that own them. Called by several threads at once.
pub trait ReadRows: fmt::Debug + Send + Sync {
    /// Copies rows of trainer `rank`'s part to `out`, one after the other, for each request: `(rank, rows, out)`. Rows count from
    /// the first of the part. All requests are under way at once.
    ///
    /// # Errors
    ///
    /// An owner does not answer in time, or has left.
    fn read(&self, requests: &mut [(usize, &[u32], &mut [u8])]) -> Result<()>;
}

/// Rows of a block.
const BLOCK: usize = 64;
/// Blocks copied between two releases of a mapped file's pages.
const RELEASED: usize = 16;

/// Which trainer owns which of `num_rows` rows: blocks of 64 rows are dealt out in turn. So trainers serve about as many reads
/// each, also where nodes are ordered by hotness, and the owner of a row is arithmetic on its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Number of rows.
    pub num_rows: usize,
    /// Number of trainers.
    pub size: usize,
}

impl Layout {
    /// The owner of a row, and the row's number within the owner's part.
    pub fn locate(self, row: u32) -> (usize, u32) {
        let (block, within) = (row as usize / BLOCK, row as usize % BLOCK);
        (block % self.size, (block / self.size * BLOCK + within) as u32)
    }

    /// The rows of a trainer's part, in their order within it.
    pub fn part(self, rank: usize) -> impl Iterator<Item = Range<usize>> {
        let blocks = (rank..self.num_rows.div_ceil(BLOCK)).step_by(self.size);
        blocks.map(move |block| block * BLOCK..((block + 1) * BLOCK).min(self.num_rows))
    }

    /// Copies a trainer's part of `matrix`; the pages of a mapped one are released.
    pub fn copy(self, matrix: &FeatureMatrix, rank: usize) -> Arc<Vec<u8>> {
        let num_rows: usize = self.part(rank).map(|rows| rows.len()).sum();
        let mut part = Vec::with_capacity(num_rows * matrix.row_bytes());
        for (i, rows) in self.part(rank).enumerate() {
            part.extend_from_slice(matrix.rows(rows).as_bytes());
            if i % RELEASED == RELEASED - 1 {
                matrix.release();
            }
        }
        matrix.release();
        Arc::new(part)
    }
}

/// A trainer's view of all feature rows, of which it holds a part.
#[derive(Debug)]
pub struct Shards {
    rank: usize,
    layout: Layout,
    row_bytes: usize,
    /// An empty matrix like those gathered.
    like: BatchFeatures,
    own: Arc<Vec<u8>>,
    copies: FeatureCache,
    owners: Box<dyn ReadRows>,
}

impl Shards {
    /// The view of trainer `rank` of `size`. `own` is its part of `matrix` ([`Layout::copy`]); those rows of `replicated` that are not
    /// its own are copied from `matrix`, which is not read after this call.
    ///
    /// # Panics
    ///
    /// When `own` is not as long as the part.
    pub fn new(
        matrix: &FeatureMatrix,
        (rank, size): (usize, usize),
        own: Arc<Vec<u8>>,
        replicated: &[u32],
        owners: Box<dyn ReadRows>,
    ) -> Self {
        let (num_rows, row_bytes) = (matrix.num_rows(), matrix.row_bytes());
        let layout = Layout { num_rows, size };
        assert_eq!(own.len(), layout.part(rank).map(|rows| rows.len()).sum::<usize>() * row_bytes, "bytes of the part");
        let mut copied: Vec<u32> = replicated.iter().copied().filter(|&row| layout.locate(row).0 != rank).collect();
        copied.sort_unstable();
        copied.dedup();
        let map = NodeMap::new(num_rows, |row| copied.binary_search(&row).is_ok());
        let fill = |_: &NodeMap, rows: &mut [u8]| -> std::result::Result<(), Infallible> {
            let chunk = BLOCK * RELEASED;
            for (nodes, rows) in copied.chunks(chunk).zip(rows.chunks_mut((chunk * row_bytes).max(1))) {
                matrix.gather_rows(nodes, rows);
                matrix.release();
            }
            Ok(())
        };
        let Ok(copies) = FeatureCache::new(map, row_bytes, fill);
        Self { rank, layout, row_bytes, like: BatchFeatures::like(matrix), own, copies, owners }
    }

    /// Bytes of the rows that this trainer holds: its own and the copies.
    pub fn num_bytes(&self) -> u64 {
        self.own.len() as u64 + self.copies.num_bytes()
    }

    /// Copies the rows `nodes` to `out`, in that order.
    ///
    /// # Errors
    ///
    /// An owner does not answer in time, or has left.
    ///
    /// # Panics
    ///
    /// When a row does not exist, or `out` is not as long as the rows together.
    pub fn gather(&self, nodes: &[u32], out: &mut [u8]) -> Result<Counters> {
        let row_bytes = self.row_bytes;
        assert_eq!(out.len(), nodes.len() * row_bytes, "bytes of the output and of the gathered rows");
        assert!(nodes.iter().all(|&node| (node as usize) < self.layout.num_rows), "a row that does not exist");
        let (mut num_own, mut num_replicated) = (0, 0);
        // By owner, its rows and their places in the output.
        let mut others: Vec<(Vec<u32>, Vec<usize>)> = vec![Default::default(); self.layout.size];
        for (i, (&node, to)) in nodes.iter().zip(out.chunks_exact_mut(row_bytes.max(1))).enumerate() {
            let (owner, at) = self.layout.locate(node);
            if owner == self.rank {
                let at = at as usize;
                to.copy_from_slice(&self.own[at * row_bytes..(at + 1) * row_bytes]);
                num_own += 1;
            } else if let Some(row) = self.copies.get(node) {
                to.copy_from_slice(row);
                num_replicated += 1;
            } else {
                others[owner].0.push(at);
                others[owner].1.push(i);
            }
        }
        let mut read: Vec<Vec<u8>> = others.iter().map(|(rows, _)| vec![0; rows.len() * row_bytes]).collect();
        let requests = others.iter().zip(&mut read).enumerate().filter(|(_, ((rows, _), _))| !rows.is_empty());
        let mut requests: Vec<_> = requests.map(|(rank, ((rows, _), out))| (rank, &rows[..], &mut out[..])).collect();
        if !requests.is_empty() {
            self.owners.read(&mut requests)?;
        }
        for ((_, places), read) in others.iter().zip(&read) {
            for (&i, row) in places.iter().zip(read.chunks_exact(row_bytes.max(1))) {
                out[i * row_bytes..(i + 1) * row_bytes].copy_from_slice(row);
            }
        }
        let num_read: usize = others.iter().map(|(rows, _)| rows.len()).sum();
        Ok(Counters::NONE
            .with(&OWN_ROWS, num_own)
            .with(&REPLICATED_ROWS, num_replicated)
            .with(&READ_ROWS, num_read as u64)
            .with(&READ_BYTES, (num_read * row_bytes) as u64))
    }

    /// Fills the features of a mini-batch in.
    fn fill(&self, batch: &mut HostBatch) -> Result<Counters> {
        let features = batch.features.get_or_insert_with(|| self.like.clone());
        let out = features.resize(batch.input_nodes.len(), self.like.dim, self.like.dtype);
        self.gather(&batch.input_nodes, out)
    }
}

/// A batching operator whose mini-batches have their features filled in from shards.
#[derive(Debug)]
pub struct ShardedBatching {
    /// Makes mini-batches without features, in host memory.
    pub inner: Box<dyn Batching>,
    /// The features.
    pub shards: Arc<Shards>,
}

impl Batching for ShardedBatching {
    fn num_batches(&self) -> usize {
        self.inner.num_batches()
    }

    fn last_epoch(&self) -> u32 {
        self.inner.last_epoch()
    }

    fn worker(&self, threads: usize) -> morphgl_registry::Result<Box<dyn BatchingWorker>> {
        Ok(Box::new(ShardedWorker { inner: self.inner.worker(threads)?, shards: Arc::clone(&self.shards) }))
    }

    fn cache(&self) -> Option<CacheCurve> {
        self.inner.cache()
    }
}

struct ShardedWorker {
    inner: Box<dyn BatchingWorker>,
    shards: Arc<Shards>,
}

impl BatchingWorker for ShardedWorker {
    fn prepare_share(
        &mut self,
        id: BatchId,
        seeds: Range<usize>,
        recycled: Option<MiniBatch>,
    ) -> morphgl_registry::Result<Handle<MiniBatch>> {
        // The inner operator drops the features of a mini-batch that it uses again.
        let mut recycled = recycled;
        let kept = match &mut recycled {
            Some(MiniBatch::Host(batch)) => batch.features.take(),
            _ => None,
        };
        let (batch, batching) = self.inner.prepare_share(id, seeds, recycled)?.measured()?;
        let start = Instant::now();
        let place = batch.place();
        let MiniBatch::Host(mut batch) = batch else {
            let what = format!("features of shards are filled in in host memory, and this mini-batch lies at {place}");
            return Err(Error::setting("shards", what));
        };
        batch.features = kept;
        let counters = self.shards.fill(&mut batch).map_err(|e| Error::failed(id, e))?;
        let took = batching.busy + start.elapsed();
        Ok(Handle::ready(MiniBatch::Host(batch), took).counting(batching.counters).counting(counters))
    }

    fn num_bytes(&self) -> Option<u64> {
        self.inner.num_bytes()
    }
}
