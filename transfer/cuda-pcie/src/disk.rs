//! Feature rows of a dataset that stays on disk: hot ones in host memory, the others read when they are needed.

use morphgl_graph_store::{Dataset, Error as StoreError};
use morphgl_platform::direct::{self, DirectFile, Fetch, Reader, Settings, Stats};
use morphgl_registry::{CounterSpec, Error, Key, Result};
use morphgl_row_cache::{FeatureCache, NodeMap};

/// Rows of a dataset on disk that no device holds, and host memory does.
pub const HOST_ROWS: CounterSpec = CounterSpec::new("host_rows", "rows in host memory, of a dataset left on disk");

/// Alignment of reads in bytes: a row is seldom longer.
const BLOCK: usize = 512;
/// Reads in flight.
const DEPTH: usize = 128;
/// Maximum bytes of a read, unless a row is longer, and of the unwanted bytes between two rows of one read.
const MOST: usize = 16 << 10;
const GAP: usize = 4096;
/// Rows read at a time while host memory is filled.
const FILL: usize = 1 << 13;

/// The rows of the dataset's file, some of which host memory holds.
#[derive(Debug)]
pub(crate) struct DiskRows {
    file: DirectFile,
    /// Byte of the first row.
    base: u64,
    row_bytes: usize,
    reader: Reader,
    on_host: Option<FeatureCache>,
    fetches: Vec<Fetch>,
}

/// Where rows were read from.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    /// Rows from host memory.
    pub(crate) host_rows: u64,
    /// Reads of the file.
    pub(crate) disk: Stats,
}

impl DiskRows {
    /// Opens the features of `dataset`, none of which host memory holds.
    ///
    /// # Errors
    ///
    /// A dataset without files, or whose file cannot be read.
    pub(crate) fn open(operator: &Key, dataset: &Dataset) -> Result<Self> {
        let failed = |e: StoreError| Error::failed("opening the dataset", e);
        if dataset.path.as_os_str().is_empty() {
            let cure =
                "write it to a directory first, with `morphgl generate` or `morphgl import`, or give no host_bytes";
            return Err(Error::setting(
                operator,
                format!("{} was made in memory and has no files; {cure}", dataset.name),
            ));
        }
        let found = dataset.path.array("features").map_err(failed)?;
        let array = found.ok_or_else(|| Error::setting(operator, "the dataset has no features; import it again"))?;
        let row_bytes = array.shape[1..].iter().product::<u64>() as usize * array.dtype.size();
        let file = DirectFile::of(&array.file, &array.path, BLOCK).map_err(|e| failed(e.into()))?;
        // Long enough for a row that begins at the end of a block.
        let most = MOST.max(row_bytes.next_multiple_of(4096) + 8192);
        let reader = Reader::new(Settings { depth: DEPTH, most, gap: GAP, method: None });
        let reader = reader.map_err(|e| Error::failed("starting reads", e))?;
        Ok(Self { file, base: array.offset, row_bytes, reader, on_host: None, fetches: Vec::new() })
    }

    /// Holds the rows of these nodes in host memory.
    pub(crate) fn hold(&mut self, map: NodeMap) -> Result<()> {
        self.on_host = None;
        let row_bytes = self.row_bytes;
        let held = FeatureCache::new(map, row_bytes, |map, rows| {
            let mut nodes = map.nodes();
            rows.chunks_mut(FILL * row_bytes.max(1)).try_for_each(|part| {
                let nodes: Vec<u32> = nodes.by_ref().take(part.len() / row_bytes.max(1)).collect();
                self.read(&nodes, part).map(drop)
            })
        })?;
        self.on_host = Some(held);
        Ok(())
    }

    /// Number of rows in host memory.
    pub(crate) fn num_on_host(&self) -> usize {
        self.on_host.as_ref().map_or(0, |held| held.map().len())
    }

    /// Copies the rows of `nodes` to `out`, from host memory or from disk.
    pub(crate) fn read(&mut self, nodes: &[u32], out: &mut [u8]) -> Result<Tally> {
        let Self { on_host, fetches, reader, .. } = self;
        fetches.clear();
        let mut missing = |i: usize, node: u32| fetches.push(Fetch { element: node.into(), to: i as u32 });
        let host_rows = match on_host {
            Some(held) => held.gather(nodes, out, missing) as u64,
            None => {
                nodes.iter().enumerate().for_each(|(i, &node)| missing(i, node));
                0
            }
        };
        fetches.sort_unstable();
        let before = reader.stats();
        let failed = |e: direct::Error| Error::failed("reading the dataset", StoreError::from(e));
        reader.read(&self.file, self.base, self.row_bytes, fetches, out).map_err(failed)?;
        Ok(Tally { host_rows, disk: reader.stats() - before })
    }
}
