//! Rows of the first layer's output that a mini-batch brings along, as the last input rows of the second layer.

use morphgl_cuda::{Buffer, CudaBatch, CudaGivenRows, Floats};
use morphgl_graph_store::Dtype;
use morphgl_model_core::DropoutSite;
use morphgl_registry::Result;

use crate::arena::Region;
use crate::edges::InputRows;
use crate::epilogue::{add, widen};
use crate::forward::Pass;
use crate::gpu::{Gpu, MaskNodes, Words};
use crate::norms::Matrix;

/// The given rows of a mini-batch, with the nodes that their dropout is keyed by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Given<'a> {
    given: &'a CudaGivenRows,
    nodes: MaskNodes<'a>,
}

impl<'a> Given<'a> {
    /// The given rows of a mini-batch, `None` where it has none; `keys` as in [`MaskNodes`].
    pub(crate) fn of(batch: &'a CudaBatch, keys: Option<&'a Buffer<u32>>) -> Option<Self> {
        let given = batch.given.as_ref().filter(|given| !given.nodes.is_empty())?;
        Some(Self { given, nodes: MaskNodes { nodes: &given.nodes, keys } })
    }

    /// Degrees of the second block's source nodes: those of the nodes whose rows are computed, then those of the given ones.
    pub(crate) fn degrees(&self, gpu: &mut Gpu, computed: Floats<'_>) -> Result<Region> {
        let given = Floats::from(&self.given.degrees);
        let all = gpu.take(computed.len() + given.len())?;
        add(gpu, computed, None, all.first(computed.len()))?;
        add(gpu, given, None, all.from(computed.len(), given.len()))?;
        Ok(all)
    }
}

impl Pass<'_, '_> {
    /// Copies the first layer's output, and the given rows with its dropout after it, to a new region.
    pub(crate) fn append(&mut self, computed: Matrix, Given { given, nodes }: Given<'_>) -> Result<Matrix> {
        let Matrix { region: first, columns } = computed;
        let rows = Floats::from(&given.rows);
        let region = self.gpu.take(first.len() + rows.len())?;
        add(self.gpu, first, None, region.first(first.len()))?;
        let last = region.from(first.len(), rows.len());
        let mask = self.mode.mask_of(nodes, 0, DropoutSite::Hidden, self.model.spec.dropout);
        if mask.drops() {
            // The kernel that drops writes four elements at a time, and the last rows need not begin at a multiple of four.
            let mark = self.gpu.mark();
            let stored = InputRows { words: Words::Floats(rows), dtype: Dtype::F32 };
            let dropped = widen(self.gpu, stored, [given.nodes.len(), columns], mask)?;
            add(self.gpu, dropped, None, last)?;
            self.gpu.release(mark);
        } else {
            add(self.gpu, rows, None, last)?;
        }
        Ok(Matrix { region, columns })
    }
}
