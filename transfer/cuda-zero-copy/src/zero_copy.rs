//! The operator.

use morphgl_cuda::{Buffer, CudaBatch, CudaFeatures, Device, Stream, pending};
use morphgl_registry::{Error, Handle, MiniBatch, Place, Result, Transferring, TransferringContext};

use crate::KEY;
use crate::hot::{Cache, Counts};
use crate::options::Options;
use crate::rows::Rows;

/// Phase Transferring on a CUDA device, `Transferring_CUDA+PCIe_ZeroCopy`.
#[derive(Debug)]
pub struct ZeroCopy {
    device: Device,
    stream: Stream,
    /// Other devices that hold rows.
    peers: Vec<Device>,
    /// Rows to gather; `None` if the dataset has no features or `gather` is off.
    rows: Option<Rows>,
    hot: Hot,
    options: Options,
}

/// State of the cache.
#[derive(Debug)]
enum Hot {
    /// Accesses are being counted.
    Counting(Counts),
    Cached(Box<Cache>),
    /// No rows are cached.
    Nothing,
}

impl ZeroCopy {
    /// Builds the operator. Options `cache_bytes`, `peers`, `presample` (0 for no cache) and `share` are described in the
    /// crate's documentation. If all rows fit `cache_bytes` (default half of the untaken memory), they are cached now.
    ///
    /// # Errors
    ///
    /// Places other than one CUDA device of this machine, a peer whose memory it cannot access, features that cannot be
    /// pinned, or an invalid option.
    pub fn new(context: &TransferringContext) -> Result<Self> {
        let TransferringContext { dataset, from, to, gather, options } = context;
        if from != to {
            let what = format!("it fills in mini-batches where they lie, and cannot go from {from} to {to}");
            return Err(Error::setting(KEY, what));
        }
        let options = Options::of(options)?;
        let device = Device::open(to, &KEY)?;
        let stream = Stream::new(&device, true)?;
        let peers = options.peers(&device)?;
        let wanted = *gather && dataset.features.is_some();
        let rows = wanted.then(|| Rows::new(&device, dataset, options.share)).transpose()?;
        let hot = match &rows {
            Some(rows) if options.presample > 0 && options.cache_bytes != Some(0) => {
                Hot::Counting(Counts::new(&stream, rows.matrix().num_rows(), options.presample)?)
            }
            _ => Hot::Nothing,
        };
        let mut operator = Self { device, stream, peers, rows, hot, options };
        operator.hold_all()?;
        Ok(operator)
    }

    /// Caches all rows if they fit, which makes counting unnecessary.
    fn hold_all(&mut self) -> Result<()> {
        let (Some(rows), Hot::Counting(_)) = (&self.rows, &self.hot) else { return Ok(()) };
        // Half: mini-batches have not allocated their memory yet.
        let budgets = self.budgets([1, 2])?;
        let streams = self.peer_streams()?;
        let num_rows = rows.matrix().num_rows();
        if Cache::holds_all(&self.with_budgets(&streams, &budgets), rows.matrix()) {
            self.fill(&vec![1.0; num_rows], &budgets)?;
        }
        Ok(())
    }

    /// Budget of each device: option `cache_bytes`, or the given fraction of its untaken memory. Idle blocks of the pool are
    /// left to mini-batches.
    fn budgets(&self, [part, of]: [u64; 2]) -> Result<Vec<u64>> {
        let budget = |device: &Device| match self.options.cache_bytes {
            Some(bytes) => Ok(bytes),
            None => Ok(device.untaken_bytes()? / of * part),
        };
        std::iter::once(&self.device).chain(&self.peers).map(budget).collect()
    }

    fn peer_streams(&self) -> Result<Vec<Stream>> {
        self.peers.iter().map(|peer| Stream::new(peer, false)).collect()
    }

    /// Streams of all caching devices, with their budgets.
    fn with_budgets<'a>(&'a self, peers: &'a [Stream], budgets: &[u64]) -> Vec<(&'a Stream, u64)> {
        std::iter::once(&self.stream).chain(peers).zip(budgets.iter().copied()).collect()
    }

    /// Caches the hottest rows from now on and ends counting. `hotness` is the number of accesses of each node, `budget` the
    /// bytes for rows on each device, on the gathering one including the lookup tables. Returns the number of cached rows.
    ///
    /// Rows are assigned to devices round-robin by rank, beginning with the gathering one; all hold equally many, as the
    /// smallest budget allows.
    ///
    /// # Errors
    ///
    /// A device's memory is full, or the driver fails.
    ///
    /// # Panics
    ///
    /// When `hotness` does not have one value per node.
    pub fn hold(&mut self, hotness: &[f32], budget: u64) -> Result<usize> {
        let budgets = vec![budget; 1 + self.peers.len()];
        self.fill(hotness, &budgets)
    }

    /// As [`ZeroCopy::hold`], with a budget for each device.
    fn fill(&mut self, hotness: &[f32], budgets: &[u64]) -> Result<usize> {
        // What was held gives its memory back first.
        self.hot = Hot::Nothing;
        let Some(rows) = &self.rows else { return Ok(0) };
        assert_eq!(hotness.len(), rows.matrix().num_rows(), "a hotness a node");
        let streams = self.peer_streams()?;
        if let Some(cache) = Cache::fill(&self.with_budgets(&streams, budgets), rows.matrix(), hotness)? {
            self.hot = Hot::Cached(Box::new(cache));
        }
        Ok(self.held())
    }

    /// Rows in the memory of devices.
    pub fn held(&self) -> usize {
        match &self.hot {
            Hot::Cached(cache) => cache.len(),
            _ => 0,
        }
    }

    /// Rows in the memory of each device, that of the one that gathers first; empty where none are held.
    pub fn held_by_device(&self) -> Vec<(Place, usize)> {
        match &self.hot {
            Hot::Cached(cache) => cache.held_by().map(|(device, rows)| (device.place().clone(), rows)).collect(),
            _ => Vec::new(),
        }
    }

    /// Counts the accesses of a mini-batch, and fills the cache after the last one that is counted.
    fn count(&mut self, batch: &CudaBatch) -> Result<()> {
        let Hot::Counting(counts) = &mut self.hot else { return Ok(()) };
        if counts.add(&self.stream, &batch.input_nodes, batch.input_nodes.len())? {
            let hotness = counts.hotness(&self.stream)?;
            let budgets = self.budgets([3, 4])?;
            self.fill(&hotness, &budgets)?;
        }
        Ok(())
    }
}

impl Transferring for ZeroCopy {
    fn transfer(&mut self, batch: MiniBatch) -> Result<Handle<MiniBatch>> {
        let mut batch = CudaBatch::into_on(&self.device, batch)?;
        self.stream.wait(&batch.ready)?;
        let start = self.stream.record(true)?;
        if batch.features.is_none() && self.rows.is_some() {
            self.count(&batch)?;
            let (rows, num_rows) = (self.rows.as_ref().expect("just looked"), batch.input_nodes.len());
            let matrix = rows.matrix();
            let mut bytes = Buffer::new(&self.stream, num_rows * matrix.row_bytes())?;
            let cache = match &self.hot {
                Hot::Cached(cache) => Some(&**cache),
                _ => None,
            };
            rows.gather(&self.stream, (&batch.input_nodes, num_rows), cache, &mut bytes)?;
            batch.features = Some(CudaFeatures { dim: matrix.dim(), dtype: matrix.dtype(), bytes });
            batch.ready = self.stream.record(false)?;
        }
        Ok(pending(start, self.stream.record(true)?, move || Ok(MiniBatch::Device(batch))))
    }
}
