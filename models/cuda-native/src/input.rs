//! Input rows of a layer, in their stored type.

use std::ops::Range;

use morphgl_cuda::Floats;
use morphgl_graph_store::Dtype;
use morphgl_registry::Result;

use crate::arena::Region;
use crate::edges::InputRows;
use crate::epilogue::widen;
use crate::gpu::{Gpu, Mask, Words};
use crate::norms::Matrix;

/// Input of a layer: features in their stored type, or f32.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Input<'a> {
    pub(crate) rows: InputRows<'a>,
    pub(crate) columns: usize,
}

/// Bytes of features widened to f32 at a time for a GEMM, which then still finds them in the L2 cache (40 MiB or more since
/// the A100). Small on the emulated device, so that its tests have several chunks.
const CHUNK: usize = if cfg!(feature = "emulate") { 1 << 10 } else { 32 << 20 };

impl<'a> Input<'a> {
    /// Output of a layer.
    pub(crate) fn of(matrix: Matrix) -> Self {
        let rows = InputRows::packed(matrix.region, Dtype::F32);
        Self { rows, columns: matrix.columns }
    }

    /// The first rows as f32.
    pub(crate) fn dense(&self, gpu: &mut Gpu, rows: usize) -> Result<Words<'a>> {
        match self.rows {
            InputRows { words, dtype: Dtype::F32, ids: None } => Ok(words),
            _ => Ok(Words::Region(widen(gpu, self.rows, [rows, self.columns], Mask::NONE)?)),
        }
    }

    /// Calls `each` with the first rows as f32, in temporary chunks; with all rows at once if they are stored as f32, so that sums over
    /// rows have the same order wherever the rows lie.
    fn in_chunks(
        &self,
        gpu: &mut Gpu,
        rows: usize,
        mut each: impl FnMut(&mut Gpu, Range<usize>, Words<'_>) -> Result<()>,
    ) -> Result<()> {
        let InputRows { words, dtype, ids } = self.rows;
        if dtype == Dtype::F32 {
            let mark = gpu.mark();
            let x = self.dense(gpu, rows)?;
            each(gpu, 0..rows, x)?;
            gpu.release(mark);
            return Ok(());
        }
        // A multiple of eight rows, so that chunks begin at word boundaries.
        let step = (CHUNK / (size_of::<f32>() * self.columns).max(1)).max(1).next_multiple_of(8);
        for start in (0..rows).step_by(step) {
            let (mark, end) = (gpu.mark(), (start + step).min(rows));
            let part = match ids {
                Some((ids, first)) => InputRows { words, dtype, ids: Some((ids, first + start)) },
                None => InputRows::packed(words.after(start * self.columns * dtype.size() / size_of::<f32>()), dtype),
            };
            let x = widen(gpu, part, [end - start, self.columns], Mask::NONE)?;
            each(gpu, start..end, x.into())?;
            gpu.release(mark);
        }
        Ok(())
    }

    /// GEMM of the first rows and a weight: as [`Gpu::linear`].
    pub(crate) fn linear(
        &self,
        gpu: &mut Gpu,
        [rows, width, depth]: [usize; 3],
        weight: Floats<'_>,
        out: Region,
        add: bool,
    ) -> Result<()> {
        self.in_chunks(gpu, rows, |gpu, rows, x| {
            let (start, rows) = (rows.start, rows.len());
            gpu.linear([rows, width, depth], x, weight, out.from(start * width, rows * width), add)
        })
    }

    /// Gradient of that weight: as [`Gpu::linear_weight`].
    pub(crate) fn linear_weight(
        &self,
        gpu: &mut Gpu,
        [rows, width, depth]: [usize; 3],
        gradient: Region,
        out: Floats<'_>,
    ) -> Result<()> {
        self.in_chunks(gpu, rows, |gpu, rows, x| {
            let gradient = gradient.from(rows.start * width, rows.len() * width);
            gpu.linear_weight([rows.len(), width, depth], gradient, x, out, rows.start > 0)
        })
    }
}
