//! The gather kernel and its launch.

use std::sync::Arc;

use morphgl_cuda::{Buffer, Device, Kernel, Mapped, Shape, Stream};
use morphgl_graph_store::{Dataset, FeatureMatrix};
use morphgl_registry::Result;

use crate::KERNELS;
use crate::cache::Cache;
use crate::options::{Access, Options};

/// Threads of a block; each looks up a row.
const THREADS: u32 = 512;
/// Maximum bytes of a row copied by half a warp: two lines, three if unaligned.
const SHORT: usize = 256;
/// Maximum bytes that a lane of the naive gather loads: a value of PyTorch-Direct's.
const VALUE: usize = 4;

/// The dataset's feature rows, mapped for the device.
#[derive(Debug)]
pub(crate) struct Rows {
    dataset: Arc<Dataset>,
    table: Mapped<u8>,
    kernel: Kernel,
    blocks: Blocks,
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

impl Rows {
    /// Maps the features of `dataset`; rows of the host are gathered by the options' share of the multiprocessors.
    pub(crate) fn new(device: &Device, dataset: &Arc<Dataset>, options: &Options) -> Result<Self> {
        let matrix = dataset.features.as_ref().expect("the caller has checked");
        let bytes = matrix.view().as_bytes();
        // SAFETY: a dataset is immutable, and its arrays do not move while it lives.
        let table = unsafe { Mapped::new_or_copy(device, Arc::clone(dataset) as _, bytes)? };
        // The largest unit a lane can move: cached rows are aligned to their length, too.
        let aligned =
            |unit: usize| (bytes.as_ptr() as usize).is_multiple_of(unit) && matrix.row_bytes().is_multiple_of(unit);
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
        Ok(Self { dataset: Arc::clone(dataset), table, kernel, blocks })
    }

    pub(crate) fn matrix(&self) -> &FeatureMatrix {
        self.dataset.features.as_ref().expect("the dataset has features")
    }

    /// Gathers the rows of the first `num_rows` of `nodes`.
    pub(crate) fn gather(
        &self,
        stream: &Stream,
        (nodes, num_rows): (&Buffer<u32>, usize),
        cache: Option<&Cache>,
        out: &mut Buffer<u8>,
    ) -> Result<()> {
        let row_bytes = self.matrix().row_bytes();
        assert!(num_rows <= nodes.len() && num_rows * row_bytes <= out.len(), "memory for {num_rows} rows");
        if num_rows * row_bytes == 0 {
            return Ok(());
        }
        let blocks =
            self.blocks.of(cache.map_or(1.0, |cache| cache.host_share)).min(num_rows.div_ceil(THREADS as usize));
        let arguments = &mut [
            nodes.into(),
            (num_rows as u32).into(),
            (row_bytes as u32).into(),
            (&self.table).into(),
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
