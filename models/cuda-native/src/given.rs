//! Rows of the first layer's output that a mini-batch brings along, as the last input rows of the second layer.

use morphgl_cuda::{Buffer, CudaBatch, CudaGivenRows, Floats};
use morphgl_graph_store::Dtype;
use morphgl_model_core::{DropoutSite, LayerShape, ModelKind};
use morphgl_registry::Result;

use crate::arena::Region;
use crate::edges::InputRows;
use crate::epilogue::{Factors, add, column_sums, epilogue_backward, widen};
use crate::forward::{Pass, bias_name};
use crate::gpu::{Gpu, MaskNodes};
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

    /// Number of rows.
    pub(crate) fn count(&self) -> usize {
        self.given.nodes.len()
    }

    /// Whether what the first layer's weights multiply came along.
    pub(crate) fn has_inputs(&self) -> bool {
        !self.given.inputs.is_empty()
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

impl<'a> Pass<'_, 'a> {
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
            let stored = InputRows::packed(rows, Dtype::F32);
            let dropped = widen(self.gpu, stored, [given.nodes.len(), columns], mask)?;
            add(self.gpu, dropped, None, last)?;
            self.gpu.release(mark);
        } else {
            add(self.gpu, rows, None, last)?;
        }
        Ok(Matrix { region, columns })
    }

    /// Adds the gradients of the first layer's weights and bias by given rows, of which `output` and `gradient` are what the second
    /// layer has read and its gradient; after the first layer's own backward pass, which sets those gradients.
    pub(crate) fn given_backward(&mut self, given: Given<'a>, output: Region, gradient: Region) -> Result<()> {
        let spec = self.model.spec;
        let LayerShape { in_dim, out_dim, .. } = spec.layer(0);
        let mark = self.gpu.mark();
        // Copies, since given rows need not begin where kernels may read four elements at a time.
        let mut copy = |from: Region| -> Result<Region> {
            let to = self.gpu.take(from.len())?;
            add(self.gpu, from, None, to)?;
            Ok(to)
        };
        let (output, gradient) = (copy(output)?, copy(gradient)?);
        let mask = self.mode.mask_of(given.nodes, 0, DropoutSite::Hidden, spec.dropout);
        epilogue_backward(self.gpu, gradient, out_dim, None, (output, Some(spec.activation), mask))?;
        let name = bias_name(spec.kind).expect("a layer that is given rows has one bias");
        let (sums, bias) = (self.gpu.take(out_dim)?, self.gradient(0, name));
        column_sums(self.gpu, gradient, out_dim, Factors::default(), sums)?;
        add(self.gpu, bias, Some(sums), bias)?;
        let weights: &[&str] = match spec.kind {
            ModelKind::Gcn => &["lin.weight"],
            _ => &["lin_l.weight", "lin_r.weight"],
        };
        for (input, name) in given.given.inputs.iter().zip(weights) {
            let sizes = [given.count(), out_dim, in_dim];
            self.gpu.linear_weight(sizes, gradient, Floats::from(input), self.gradient(0, name), true)?;
        }
        self.gpu.release(mark);
        Ok(())
    }
}
