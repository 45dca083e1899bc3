//! The gather kernel and its launch.

use std::cell::RefCell;
use std::sync::Arc;

use morphgl_cuda::{Buffer, Device, Kernel, Mapped, Pinned, Shape, Stream};
use morphgl_graph_store::{Dataset, FeatureMatrix};
use morphgl_registry::{Key, Result};
use morphgl_row_cache::NodeMap;

use crate::KERNELS;
use crate::cache::Cache;
use crate::disk::{DiskRows, Tally};
use crate::options::{Access, Options};

/// Threads of a block; each looks up a row.
const THREADS: u32 = 512;
/// Maximum bytes of a row copied by half a warp: two lines, three if unaligned.
const SHORT: usize = 256;
/// Maximum bytes that a lane of the naive gather loads: a value of PyTorch-Direct's.
const VALUE: usize = 4;

/// The dataset's feature rows, as the device reads those that are not cached.
#[derive(Debug)]
pub(crate) struct DatasetRows {
    dataset: Arc<Dataset>,
    source: Source,
    kernel: Kernel,
    blocks: Blocks,
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
    /// Blocks that keep the bus busy when every row is read from host memory.
    sharing: usize,
    /// Blocks that fill every multiprocessor.
    all: usize,
}

impl Blocks {
    /// Blocks for a mini-batch whose rows are read from host memory with probability `host_share`. They grow as the share
    /// falls, so that the number of host reads in flight is constant; with none, the whole device gathers.
    fn of(self, host_share: f64) -> usize {
        // A division by 0 is infinity, which is clamped as well.
        ((self.sharing as f64 / host_share) as usize).clamp(self.sharing, self.all)
    }
}

impl DatasetRows {
    /// Maps the features of `dataset`, or opens their file where the options leave them on disk; rows of the host are gathered by
    /// the options' share of the multiprocessors.
    pub(crate) fn new(operator: &Key, device: &Device, dataset: &Arc<Dataset>, options: &Options) -> Result<Self> {
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
        let kernel = match options.access {
            Access::Naive => format!("gather_naive_rows_{}", unit.min(VALUE)),
            Access::Aligned if unit >= 8 && matrix.row_bytes() <= SHORT => format!("gather_short_rows_{unit}"),
            Access::Aligned => format!("gather_rows_{unit}"),
        };
        let kernel = KERNELS.kernel(device, &kernel)?;
        let multiprocessors = device.properties()?.multiprocessors as usize;
        let each = kernel.occupancy(THREADS, 0)?.max(1) as usize;
        let sharing = ((multiprocessors as f64 * options.share) as usize).max(1);
        let blocks = Blocks { sharing: sharing * each, all: multiprocessors * each };
        Ok(Self { dataset: Arc::clone(dataset), source, kernel, blocks })
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
            if cache.is_some_and(|cache| cache.map.get(node).is_some()) {
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

    /// Gathers the rows of the first `num_rows` of `nodes`; those on disk have to be staged.
    pub(crate) fn gather(
        &self,
        stream: &Stream,
        (nodes, num_rows): (&Buffer<u32>, usize),
        (cache, staged): (Option<&Cache>, Option<&Staged>),
        out: &mut Buffer<u8>,
    ) -> Result<()> {
        let row_bytes = self.matrix().row_bytes();
        assert!(num_rows <= nodes.len() && num_rows * row_bytes <= out.len(), "memory for {num_rows} rows");
        if num_rows * row_bytes == 0 {
            return Ok(());
        }
        let blocks =
            self.blocks.of(cache.map_or(1.0, |cache| cache.host_share)).min(num_rows.div_ceil(THREADS as usize));
        let host = match (&self.source, staged) {
            (Source::Mapped(table), _) => table.into(),
            (Source::Disk(_), staged) => (&staged.expect("rows on disk are staged").rows).into(),
        };
        let arguments = &mut [
            nodes.into(),
            staged.map_or(nodes, |staged| &staged.slots).into(),
            (num_rows as u32).into(),
            (row_bytes as u32).into(),
            host,
            cache.map(|c| &c.bitmap).into(),
            cache.map(|c| &c.prefix_counts).into(),
            cache.and_then(|c| c.ranks.as_ref()).into(),
            cache.map(|c| &c.rows).into(),
            (cache.map_or(0, |c| c.rows.parts().len()) as u32).into(),
            out.into(),
        ];
        // SAFETY: the arguments are the kernel's; nodes are those of the dataset, and `out` has `num_rows` rows.
        unsafe { stream.launch(&self.kernel, Shape::linear(blocks, THREADS), arguments) }
    }
}

#[cfg(test)]
mod tests;
