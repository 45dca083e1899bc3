//! The launch of a gather.

use std::sync::Arc;

use morphgl_cuda::{Buffer, Device, Kernel, Mapped, Shape, Stream};
use morphgl_graph_store::{Dataset, FeatureMatrix};
use morphgl_registry::Result;

use crate::KERNELS;
use crate::hot::Cache;

/// Threads of a block.
const THREADS: u32 = 512;

/// The dataset's rows, as the device reads them.
#[derive(Debug)]
pub(crate) struct Rows {
    dataset: Arc<Dataset>,
    table: Mapped<u8>,
    kernel: Kernel,
    /// Blocks that fill the multiprocessors that rows of the host are gathered by, and all of them.
    blocks: [usize; 2],
}

impl Rows {
    /// The rows of `dataset`, which has features; those of the host are gathered by `share` of the multiprocessors.
    pub(crate) fn new(device: &Device, dataset: &Arc<Dataset>, share: f64) -> Result<Self> {
        let matrix = dataset.features.as_ref().expect("the caller has looked");
        let bytes = matrix.view().as_bytes();
        // SAFETY: nobody writes to a dataset, and its arrays stay where they are for as long as it lives.
        let table = unsafe { Mapped::new_or_copy(device, Arc::clone(dataset) as _, bytes)? };
        // The most that a lane can move at a time: rows in the cache begin at multiples of their length, too.
        let aligned =
            |unit: usize| (bytes.as_ptr() as usize).is_multiple_of(unit) && matrix.row_bytes().is_multiple_of(unit);
        let (_, name) = [
            (16, "gather_rows_16"),
            (8, "gather_rows_8"),
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
        Ok(Self { dataset: Arc::clone(dataset), table, kernel, blocks: [sharing * each, multiprocessors * each] })
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
        // Rows that are all in the memory of devices need no restraint.
        let whole = cache.is_some_and(|c| c.len() == self.matrix().num_rows());
        // A warp of 32 threads has 4 rows on their way.
        let blocks = self.blocks[usize::from(whole)].min(num_rows.div_ceil(THREADS as usize / 32 * 4));
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
