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
    /// The rows to gather; `None` where there are none, or none are asked for.
    rows: Option<Rows>,
    hot: Hot,
    options: Options,
}

/// What is known of hot rows.
#[derive(Debug)]
enum Hot {
    /// Accesses are being counted.
    Counting(Counts),
    Cached(Box<Cache>),
    /// None are held.
    Nothing,
}

impl ZeroCopy {
    /// Builds the operator. Options, all with defaults:
    /// `cache_bytes`, memory of each device for hot rows, on the device that gathers also for the tables by which they are
    /// found (three quarters of what nobody has taken when it is filled); where all rows fit it (without it, half of what
    /// nobody has taken), they are sent now;
    /// `peers`, other devices whose memory holds hot rows too: `"none"`, `"all"` of the machine's, or a list of places
    /// such as `["cuda:1"]` (none);
    /// `presample`, the mini-batches whose accesses are counted before (64; 0 for no cache);
    /// `share`, that of the multiprocessors that read rows of the host (0.2).
    ///
    /// # Errors
    ///
    /// It is not to stay on one CUDA device of this machine, that device does not reach the memory of a peer, the host's
    /// rows cannot be pinned, or an option is not one.
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

    /// Holds all rows where they fit, so that nothing has to be counted.
    fn hold_all(&mut self) -> Result<()> {
        let (Some(rows), Hot::Counting(_)) = (&self.rows, &self.hot) else { return Ok(()) };
        // Mini-batches are still to take their memory.
        let budgets = self.budgets([1, 2])?;
        let streams = self.peer_streams()?;
        let num_rows = rows.matrix().num_rows();
        if Cache::holds_all(&self.with_budgets(&streams, &budgets), rows.matrix()) {
            self.fill(&vec![1.0; num_rows], &budgets)?;
        }
        Ok(())
    }

    /// What each device may spend: what the options say, or so much of what nobody has taken. What lies idle belongs to
    /// mini-batches that come and go.
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

    /// The streams of all devices that hold rows, each with its budget.
    fn with_budgets<'a>(&'a self, peers: &'a [Stream], budgets: &[u64]) -> Vec<(&'a Stream, u64)> {
        std::iter::once(&self.stream).chain(peers).zip(budgets.iter().copied()).collect()
    }

    /// Holds the hottest rows from now on: `hotness` is the accesses of each node, `budget` the bytes that rows may take on
    /// each device, those of the tables by which they are found included on the device that gathers. Counting ends.
    /// Returns how many rows are held.
    ///
    /// Rows go round the devices by rank, the hottest on the one that gathers: so all are asked for alike, and all hold as
    /// many, as the smallest budget allows.
    ///
    /// # Errors
    ///
    /// A device's memory is full, or the driver fails.
    ///
    /// # Panics
    ///
    /// When there is not one hotness a node.
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
