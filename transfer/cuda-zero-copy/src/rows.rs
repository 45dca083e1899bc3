//! The gather kernel and its launch.

use std::sync::Arc;

use morphgl_cuda::{Buffer, Device, Kernel, Mapped, Shape, Stream};
use morphgl_graph_store::{Dataset, FeatureMatrix};
use morphgl_registry::Result;

use crate::KERNELS;
use crate::hot::Cache;

/// Threads of a block; each looks up a row.
const THREADS: u32 = 512;
/// Maximum bytes of a row copied by half a warp: two lines, three if unaligned.
const SHORT: usize = 256;

/// The dataset's feature rows, mapped for the device.
#[derive(Debug)]
pub(crate) struct Rows {
    dataset: Arc<Dataset>,
    table: Mapped<u8>,
    kernel: Kernel,
    blocks: Blocks,
}

/// Numbers of blocks of a gather.
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
    /// Maps the features of `dataset`; rows of the host are gathered by `share` of the multiprocessors.
    pub(crate) fn new(device: &Device, dataset: &Arc<Dataset>, share: f64) -> Result<Self> {
        let matrix = dataset.features.as_ref().expect("the caller has looked");
        let bytes = matrix.view().as_bytes();
        // SAFETY: a dataset is immutable, and its arrays do not move while it lives.
        let table = unsafe { Mapped::new_or_copy(device, Arc::clone(dataset) as _, bytes)? };
        // The largest unit a lane can move: cached rows are aligned to their length, too.
        let aligned =
            |unit: usize| (bytes.as_ptr() as usize).is_multiple_of(unit) && matrix.row_bytes().is_multiple_of(unit);
        let short = matrix.row_bytes() <= SHORT;
        let (_, name) = [
            (16, if short { "gather_short_rows_16" } else { "gather_rows_16" }),
            (8, if short { "gather_short_rows_8" } else { "gather_rows_8" }),
            (4, "gather_rows_4"),
            (2, "gather_rows_2"),
            (1, "gather_rows_1"),
        ]
        .into_iter()
        .find(|(unit, _)| aligned(*unit))
        .expect("everything is aligned to bytes");
        let kernel = KERNELS.kernel(device, name)?;
        let multiprocessors = device.properties()?.multiprocessors as usize;
        let each = kernel.occupancy(THREADS, 0)?.max(1) as usize;
        let sharing = ((multiprocessors as f64 * share) as usize).max(1);
        let blocks = Blocks { sharing: sharing * each, all: multiprocessors * each };
        Ok(Self { dataset: Arc::clone(dataset), table, kernel, blocks })
    }

    pub(crate) fn matrix(&self) -> &FeatureMatrix {
        self.dataset.features.as_ref().expect("it was there when it was built")
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
        assert!(num_rows <= nodes.len() && num_rows * row_bytes <= out.len(), "room for {num_rows} rows");
        if num_rows * row_bytes == 0 {
            return Ok(());
        }
        let blocks = self.blocks.of(cache.map_or(1.0, Cache::host_share)).min(num_rows.div_ceil(THREADS as usize));
        let arguments = &mut [
            nodes.into(),
            (num_rows as u32).into(),
            (row_bytes as u32).into(),
            (&self.table).into(),
            cache.map(|c| &c.held).into(),
            cache.map(|c| &c.before).into(),
            cache.and_then(|c| c.ranks.as_ref()).into(),
            cache.map(|c| &c.rows).into(),
            (cache.map_or(0, |c| c.rows.parts().len()) as u32).into(),
            out.into(),
        ];
        // SAFETY: the arguments are the kernel's; nodes are those of the dataset, and rows of `out` are as many.
        unsafe { stream.launch(&self.kernel, Shape::linear(blocks, THREADS), arguments) }
    }
}

#[cfg(test)]
mod tests {
    use super::Blocks;

    #[test]
    fn rows_over_the_bus_are_as_many_whatever_is_cached() {
        let blocks = Blocks { sharing: 104, all: 528 };
        for (host_share, expected) in [(1.0, 104), (0.5, 208), (0.25, 416), (0.19, 528), (1e-9, 528), (0.0, 528)] {
            assert_eq!(blocks.of(host_share), expected, "{host_share} of the rows come over the bus");
        }
        // A single cache miss in a million rows does not limit the gather to a fifth of the multiprocessors.
        assert_eq!(blocks.of(1e-6), blocks.all);
    }
}
