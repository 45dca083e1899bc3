//! Rows of a layer's output that are given, after those that are computed.

use morphgl_model_core::Dropout;
use morphgl_platform::SimdLevel;

use super::Layer;
use crate::epilogue::apply_dropout;
use crate::parallel::row_blocks;

impl Layer {
    /// Makes room for the output of `num_dst` rows, and for those of [`Layer::append`].
    pub(crate) fn reserve(&mut self, num_dst: usize, given: &[f32]) {
        self.out.get(num_dst * self.shape.out_dim + given.len());
    }

    /// Appends given rows to the output of `num_dst` computed ones, with the dropout of their nodes.
    pub(crate) fn append(
        &mut self,
        level: SimdLevel,
        num_dst: usize,
        given: &[f32],
        dropout: Option<(Dropout, &[u32])>,
    ) {
        let width = self.shape.out_dim;
        let out = &mut self.out.get(num_dst * width + given.len())[num_dst * width..];
        row_blocks(given.len() / width, [(out, width)], &|rows, [out]| {
            out.copy_from_slice(&given[rows.start * width..rows.end * width]);
            if let Some((dropout, nodes)) = &dropout {
                apply_dropout(level, dropout, &nodes[rows], out);
            }
        });
    }
}
