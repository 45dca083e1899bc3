//! The gather kernel and its launch.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use morphgl_cuda::{Buffer, Kernel, Mapped, Order, PageOrder, Pinned, Shape, ShardedBuffer, Stream};
use morphgl_graph_store::{Dataset, FeatureMatrix};
use morphgl_platform::splitmix64;
use morphgl_registry::{CounterSpec, Key, Result};
use morphgl_row_cache::NodeMap;

use crate::KERNELS;
use crate::cache::{Cache, DeviceRows};
use crate::disk::{DiskRows, Tally};
use crate::options::{Access, Options};
use crate::replication::RowSeconds;

/// Rows that were gathered in the order of their addresses; it tells what `auto` has chosen.
pub const PAGE_ORDERED_ROWS: CounterSpec =
    CounterSpec::new("page_ordered_rows", "rows gathered in the order of their addresses in host memory");

/// Threads of a warp, and of a block; each looks up a row.
const WARP: usize = 32;
const THREADS: u32 = 128;
/// Rows that a group of lanes loads at a time, as the kernel has it.
const ROWS: usize = 4;
/// Bytes of a line, the unit of the bus.
const LINE: usize = 128;
/// Maximum bytes of a row copied by half a warp: two lines, three if unaligned.
const SHORT: usize = 256;
/// Maximum bytes that a lane of the naive gather loads: a value of PyTorch-Direct's.
const VALUE: usize = 4;
/// Sample by which the order is chosen, and the number of replicated rows: at most so many rows of so many bytes, gathered so many times
/// each way.
const SAMPLE_ROWS: usize = 1 << 18;
const SAMPLE_BYTES: usize = 32 << 20;
const SAMPLES: usize = 3;
/// Share of each device's unallocated memory for the sample by which the seconds of a row are measured: 1 / `SAMPLE_SHARE`.
const SAMPLE_SHARE: u64 = 16;

/// The dataset's feature rows, as the device reads those that are not cached.
#[derive(Debug)]
pub(crate) struct DatasetRows {
    dataset: Arc<Dataset>,
    source: Source,
    kernel: Kernel,
    blocks: Blocks,
    order: Option<Ordering>,
}

/// The order of pages, in which mini-batches are gathered with at least so many rows from the host.
#[derive(Debug)]
struct Ordering {
    pages: PageOrder,
    min_rows: usize,
}

#[derive(Debug)]
enum Source {
    /// All of them, in host memory mapped for the device.
    Mapped(Mapped<u8>),
    /// In the dataset's file: those of a mini-batch are staged in pinned memory.
    Disk(RefCell<DiskRows>),
}

/// The rows of a mini-batch that are not cached, in pinned memory.
#[derive(Debug)]
pub(crate) struct Staged {
    rows: Pinned<u8>,
    /// For each node its position among these rows; 0 where its row is cached.
    slots: Buffer<u32>,
    /// Where they came from.
    pub(crate) tally: Tally,
}

impl Staged {
    /// Bytes that cross the link besides the rows.
    pub(crate) fn table_bytes(&self) -> u64 {
        4 * self.slots.len() as u64
    }
}

#[derive(Debug, Clone, Copy)]
struct Blocks {
    /// Blocks that have as many lines in flight as wanted when every row is read from host memory.
    sharing: usize,
    /// Blocks that fill every multiprocessor.
    all: usize,
}

impl Blocks {
    /// Blocks for `lines` lines in flight, of which each block has `each`, on a device that runs `all` blocks.
    fn new(lines: usize, each: usize, all: usize) -> Self {
        Self { sharing: lines.div_ceil(each).clamp(1, all), all }
    }

    /// Blocks for a mini-batch whose rows are read from host memory with probability `host_share`. They grow as the share
    /// falls, so that the number of host reads in flight is constant; with none, the whole device gathers.
    fn of(self, host_share: f64) -> usize {
        // A division by 0 is infinity, which is clamped as well.
        ((self.sharing as f64 / host_share) as usize).clamp(self.sharing, self.all)
    }
}

/// Lines that a block has in flight while `lanes` lanes, of `unit` bytes each, load a row.
fn lines_in_flight(row_bytes: usize, lanes: usize, unit: usize) -> usize {
    let rows = ROWS * (WARP / lanes) * (THREADS as usize / WARP);
    rows * row_bytes.min(lanes * unit).div_ceil(LINE).max(1)
}

impl DatasetRows {
    /// Maps the features of `dataset`, or opens their file where the options leave them on disk; chooses the order in which rows are
    /// read, by a sample where the options leave it open.
    pub(crate) fn new(operator: &Key, stream: &Stream, dataset: &Arc<Dataset>, options: &Options) -> Result<Self> {
        let device = stream.device();
        let matrix = dataset.features.as_ref().expect("the caller has checked");
        let (source, address) = match options.host_bytes {
            // Pinned memory is aligned to any unit.
            Some(_) => (Source::Disk(RefCell::new(DiskRows::open(operator, dataset)?)), 0),
            None => {
                let bytes = matrix.view().as_bytes();
                // SAFETY: a dataset is immutable, and its arrays do not move while it lives.
                let table = unsafe { Mapped::new_or_copy(device, Arc::clone(dataset) as _, bytes)? };
                (Source::Mapped(table), bytes.as_ptr() as usize)
            }
        };
        // The largest unit a lane can move: cached rows are aligned to their length, too.
        let aligned = |unit: usize| address.is_multiple_of(unit) && matrix.row_bytes().is_multiple_of(unit);
        let unit = [16, 8, 4, 2].into_iter().find(|&unit| aligned(unit)).unwrap_or(1);
        let (kernel, lanes, unit) = match options.access {
            Access::Naive => ("gather_naive_rows", WARP, unit.min(VALUE)),
            Access::Aligned if unit >= 8 && matrix.row_bytes() <= SHORT => ("gather_short_rows", WARP / 2, unit),
            Access::Aligned => ("gather_rows", WARP, unit),
        };
        let kernel = KERNELS.kernel(device, &format!("{kernel}_{unit}"))?;
        let all = device.properties()?.multiprocessors as usize * kernel.occupancy(THREADS, 0)?.max(1) as usize;
        let blocks = Blocks::new(options.lines as usize, lines_in_flight(matrix.row_bytes(), lanes, unit), all);
        let mut rows = Self { dataset: Arc::clone(dataset), source, kernel, blocks, order: None };
        rows.choose_order(stream, options.order)?;
        Ok(rows)
    }

    /// Chooses the order in which rows are read from host memory. Rows on disk are staged in the order of the mini-batch, and so read
    /// front to back whatever is chosen.
    fn choose_order(&mut self, stream: &Stream, order: Order) -> Result<()> {
        let Source::Mapped(table) = &self.source else { return Ok(()) };
        let min_rows = match order {
            _ if table.is_empty() => return Ok(()),
            Order::Nodes => return Ok(()),
            Order::Auto if table.len() < Order::MIN_TABLE => return Ok(()),
            Order::Auto => Order::MIN_READS,
            Order::Pages => 0,
        };
        let kernels = ["gather_order_count", "gather_order_scan", "gather_order_place"]
            .map(|name| KERNELS.kernel(stream.device(), name));
        let [count, scan, place] = kernels;
        let pages = PageOrder::new([count?, scan?, place?], table.address(), table.len() as u64);
        if order == Order::Pages || self.is_faster_by(&pages, stream)? {
            self.order = Some(Ordering { pages, min_rows });
        }
        Ok(())
    }

    /// Whether a sample of the rows is gathered faster by pages than as it lists them, the order itself included: by the shortest of
    /// some gathers each way.
    fn is_faster_by(&self, pages: &PageOrder, stream: &Stream) -> Result<bool> {
        let (row_bytes, num_nodes) = (self.matrix().row_bytes(), self.matrix().num_rows() as u64);
        let num_rows = (SAMPLE_BYTES / row_bytes).clamp(1, SAMPLE_ROWS);
        let nodes: Vec<u32> = (0..num_rows as u64).map(|i| (splitmix64(i) % num_nodes) as u32).collect();
        let (nodes, mut out) = (Buffer::of(stream, &nodes)?, Buffer::new(stream, num_rows * row_bytes)?);
        let mut shortest = [Duration::MAX; 2];
        for round in 0..=SAMPLES {
            for (pages, shortest) in [None, Some(pages)].into_iter().zip(&mut shortest) {
                let start = stream.record(true)?;
                self.gather_by(pages, stream, (&nodes, num_rows), (None, 1.0, None), &mut out)?;
                let end = stream.record(true)?;
                end.synchronize()?;
                // The first round loads the kernels.
                if round > 0 {
                    *shortest = end.elapsed(&start)?.min(*shortest);
                }
            }
        }
        Ok(shortest[1] < shortest[0])
    }

    /// Mean seconds of a row that a sample gathers from the stream's device, from each of the `peers` (their mean) and from host memory:
    /// by the shortest of some gathers each. `None` where host memory does not have the rows.
    pub(crate) fn seconds(&self, stream: &Stream, peers: &[Stream]) -> Result<Option<RowSeconds>> {
        let row_bytes = self.matrix().row_bytes();
        if self.are_on_disk() || row_bytes == 0 || self.matrix().num_rows() == 0 {
            return Ok(None);
        }
        let mut room = SAMPLE_BYTES as u64;
        for stream in peers.iter().chain([stream]) {
            room = room.min(stream.device().unallocated_bytes()? / SAMPLE_SHARE);
        }
        let num_rows = (room as usize / row_bytes).clamp(1, SAMPLE_ROWS.min(self.matrix().num_rows()));
        let mut out = Buffer::new(stream, num_rows * row_bytes)?;
        let random = |below: u64| (0..num_rows as u64).map(|i| (splitmix64(i) % below) as u32).collect::<Vec<u32>>();
        let nodes = Buffer::of(stream, &random(self.matrix().num_rows() as u64))?;
        let host = seconds_per_row(stream, num_rows, || {
            self.gather(stream, (&nodes, num_rows), (None, None), &mut out).map(drop)
        })?;
        let nodes = Buffer::of(stream, &random(num_rows as u64))?;
        let mut from = |holder: &Stream| {
            let mut rows = Buffer::<u8>::new(holder, num_rows * row_bytes)?;
            holder.fill(&mut rows, 0)?;
            let parts = ShardedBuffer::new(stream, vec![rows])?;
            let (tables, ranks, first_nodes) = (None, None, num_rows as u32);
            let cached = DeviceRows { tables, first_nodes, ranks, parts: &parts, own: 0, replicated: 0 };
            seconds_per_row(stream, num_rows, || {
                self.gather_by(None, stream, (&nodes, num_rows), (Some(cached), 0.0, None), &mut out)
            })
        };
        let own = from(stream)?;
        let peers = peers.iter().map(from).collect::<Result<Vec<f64>>>()?;
        Ok(Some(RowSeconds { own, peer: peers.iter().sum::<f64>() / peers.len().max(1) as f64, host }))
    }

    /// Whether they are read from the dataset's file.
    pub(crate) fn are_on_disk(&self) -> bool {
        matches!(self.source, Source::Disk(_))
    }

    /// Holds rows of these nodes in host memory, where they are on disk.
    pub(crate) fn hold(&self, map: NodeMap) -> Result<()> {
        match &self.source {
            Source::Mapped(_) => Ok(()),
            Source::Disk(rows) => rows.borrow_mut().hold(map),
        }
    }

    /// Number of rows of the file in host memory.
    pub(crate) fn num_on_host(&self) -> usize {
        match &self.source {
            Source::Mapped(_) => 0,
            Source::Disk(rows) => rows.borrow().num_on_host(),
        }
    }

    /// Copies the rows of `nodes` to `out`.
    pub(crate) fn read(&self, nodes: &[u32], out: &mut [u8]) -> Result<()> {
        match &self.source {
            Source::Mapped(_) => self.matrix().par_gather_rows(nodes, out),
            Source::Disk(rows) => drop(rows.borrow_mut().read(nodes, out)?),
        }
        Ok(())
    }

    /// Reads the rows of `nodes` that are not cached to pinned memory, where they are on disk; else there is nothing to do.
    pub(crate) fn stage(&self, stream: &Stream, nodes: &[u32], cache: Option<&Cache>) -> Result<Option<Staged>> {
        let Source::Disk(rows) = &self.source else { return Ok(None) };
        let mut missing = Vec::with_capacity(nodes.len());
        let slot = |&node: &u32| {
            if cache.is_some_and(|cache| cache.map().get(node).is_some()) {
                return 0;
            }
            missing.push(node);
            missing.len() as u32 - 1
        };
        let slots: Vec<u32> = nodes.iter().map(slot).collect();
        let mut staged = Pinned::new(stream.device(), missing.len() * self.matrix().row_bytes())?;
        let tally = rows.borrow_mut().read(&missing, &mut staged)?;
        Ok(Some(Staged { rows: staged, slots: Buffer::of(stream, &slots)?, tally }))
    }

    pub(crate) fn matrix(&self) -> &FeatureMatrix {
        self.dataset.features.as_ref().expect("the dataset has features")
    }

    /// Gathers the rows of the first `num_rows` of `nodes`; those on disk have to be staged. Returns whether they were put in the order
    /// of their pages.
    pub(crate) fn gather(
        &self,
        stream: &Stream,
        nodes: (&Buffer<u32>, usize),
        (cache, staged): (Option<&Cache>, Option<&Staged>),
        out: &mut Buffer<u8>,
    ) -> Result<bool> {
        let from_host = (nodes.1 as f64 * host_share(cache)) as usize;
        let order = self.order.as_ref().filter(|order| from_host >= order.min_rows);
        let cached = (cache.map(Cache::device_rows), host_share(cache), staged);
        self.gather_by(order.map(|order| &order.pages), stream, nodes, cached, out)?;
        Ok(order.is_some())
    }

    /// As [`DatasetRows::gather`], in an order, with rows on devices and the expected share of the others. Cached rows are put in the
    /// order, too: spread over the mini-batch they leave as many reads of the host in flight as [`Blocks::of`] counts on.
    fn gather_by(
        &self,
        pages: Option<&PageOrder>,
        stream: &Stream,
        (nodes, num_rows): (&Buffer<u32>, usize),
        (cached, host_share, staged): (Option<DeviceRows<'_>>, f64, Option<&Staged>),
        out: &mut Buffer<u8>,
    ) -> Result<()> {
        let row_bytes = self.matrix().row_bytes();
        assert!(num_rows <= nodes.len() && num_rows * row_bytes <= out.len(), "memory for {num_rows} rows");
        if num_rows * row_bytes == 0 {
            return Ok(());
        }
        let blocks = self.blocks.of(host_share).min(num_rows.div_ceil(THREADS as usize));
        let order = match (&self.source, pages) {
            (Source::Mapped(table), Some(pages)) => {
                let mut counts = Buffer::new(stream, pages.num_buckets() as usize)?;
                let mut order = Buffer::new(stream, num_rows)?;
                let items = [nodes.into(), (num_rows as u32).into(), (row_bytes as u32).into(), table.into()];
                // SAFETY: the arguments are the kernels', and each node's row begins in the table.
                unsafe { pages.sort(stream, (num_rows, &items), &mut counts, &mut order)? };
                Some(order)
            }
            _ => None,
        };
        let host = match (&self.source, staged) {
            (Source::Mapped(table), _) => table.into(),
            (Source::Disk(_), staged) => (&staged.expect("rows on disk are staged").rows).into(),
        };
        let tables = cached.and_then(|rows| rows.tables);
        let arguments = &mut [
            nodes.into(),
            staged.map_or(nodes, |staged| &staged.slots).into(),
            order.as_ref().into(),
            (num_rows as u32).into(),
            (row_bytes as u32).into(),
            host,
            tables.map(|tables| &tables.bitmap).into(),
            tables.map(|tables| &tables.prefix_counts).into(),
            cached.map_or(0, |rows| rows.first_nodes).into(),
            cached.and_then(|rows| rows.ranks).into(),
            cached.map(|rows| rows.parts).into(),
            (cached.map_or(0, |rows| rows.parts.parts().len()) as u32).into(),
            cached.map_or(0, |rows| rows.own).into(),
            cached.map_or(0, |rows| rows.replicated).into(),
            out.into(),
        ];
        // SAFETY: the arguments are the kernel's; nodes are those of the dataset, the order has each of their numbers once, and `out` has
        // `num_rows` rows.
        unsafe { stream.launch(&self.kernel, Shape::linear(blocks, THREADS), arguments) }
    }
}

/// Seconds per row of work of a stream: of the shortest of some times, after one that loads the kernels.
fn seconds_per_row(stream: &Stream, num_rows: usize, mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut shortest = Duration::MAX;
    for round in 0..=SAMPLES {
        let start = stream.record(true)?;
        work()?;
        let end = stream.record(true)?;
        end.synchronize()?;
        if round > 0 {
            shortest = end.elapsed(&start)?.min(shortest);
        }
    }
    Ok(shortest.as_secs_f64() / num_rows as f64)
}

/// Expected share of the rows that are read from host memory.
fn host_share(cache: Option<&Cache>) -> f64 {
    cache.map_or(1.0, |cache| cache.pool.host_share)
}

#[cfg(test)]
mod tests;
