//! Outputs of pairs by the embeddings of their ends, forward and backward.

use morphgl_cuda::{CudaPairs, Floats};
use morphgl_model_core::Decoder;
use morphgl_registry::Result;

use crate::arena::Region;
use crate::epilogue::{Factors, column_sums};
use crate::forward::Pass;
use crate::gpu::{Words, arguments, each, rows_by_lanes, rows_by_units};
use crate::transpose::{BLOCKS, sort_by_source};

/// The pairs of a mini-batch.
#[derive(Debug)]
pub(crate) struct Pairs {
    /// Number of pairs.
    pub(crate) count: usize,
    /// Outputs per pair: one for links; for edges as many as there are classes, labels or values.
    outputs: usize,
    /// `[pairs, outputs]`.
    pub(crate) scores: Region,
    /// Source and destination of each pair, all of them seeds.
    ends: Region,
    /// The ends as they are given, for the score to check.
    pub(crate) largest: Region,
    embeddings: Region,
    seeds: usize,
    /// Of the MLP decoder, `[seeds, width, 2]`: what each seed adds to every hidden unit as a source, and as a destination.
    parts: Option<Region>,
}

/// The parameters of a decoder with a hidden layer, or their gradients.
#[derive(Debug, Clone, Copy)]
struct Hidden<'a> {
    /// `[d, 2d]`, which is read as `[2d, d]`: a row of it is alternately of sources and of destinations.
    weight: Floats<'a>,
    bias: Floats<'a>,
    /// `[outputs, d]`.
    last: Floats<'a>,
    last_bias: Floats<'a>,
}

impl<'a> Hidden<'a> {
    fn of(get: impl Fn(&str) -> Floats<'a>) -> Self {
        Self {
            weight: get("decoder.lins.0.weight"),
            bias: get("decoder.lins.0.bias"),
            last: get("decoder.lins.1.weight"),
            last_bias: get("decoder.lins.1.bias"),
        }
    }
}

impl Pairs {
    /// Copies the ends, bounded to the mini-batch's seeds, whose embeddings are the first rows.
    pub(crate) fn new(
        pass: &mut Pass<'_, '_>,
        pairs: &CudaPairs,
        (embeddings, seeds): (Region, usize),
    ) -> Result<Self> {
        let (gpu, ends) = (&mut *pass.gpu, pairs.ends.len() / 2 * 2);
        assert!(ends == 0 || seeds > 0, "ends are seeds");
        let (checked, largest) = (gpu.take(ends)?, gpu.take(ends)?);
        let arguments = arguments![gpu, &pairs.ends, checked, largest, ends, seeds];
        // SAFETY: the kernel's arguments, each of so many words.
        unsafe { gpu.launch(&gpu.kernels.train_pair_ends, each(ends), arguments) }?;
        let (count, outputs) = (ends / 2, pass.model.spec.edge_outputs.max(1));
        let scores = gpu.take(count * outputs)?;
        Ok(Self { count, outputs, scores, ends: checked, largest, embeddings, seeds, parts: None })
    }

    /// Scores the pairs.
    pub(crate) fn score(&mut self, pass: &mut Pass<'_, '_>) -> Result<()> {
        let Self { count, outputs, scores, ends, embeddings, seeds, .. } = *self;
        let (gpu, model) = (&mut *pass.gpu, pass.model);
        let (width, shape) = (model.spec.num_classes, rows_by_lanes(count, model.spec.num_classes));
        if model.spec.decoder == Decoder::Mlp {
            let Hidden { weight, bias, last, last_bias } = Hidden::of(|name| model.get(name));
            let parts = gpu.take(seeds * 2 * width)?;
            self.parts = Some(parts);
            gpu.linear([seeds, 2 * width, width], embeddings, weight, parts, false)?;
            let arguments = arguments![gpu, parts, bias, last, last_bias, ends, scores, count, width, outputs];
            // SAFETY: the kernel's arguments; ends are seeds, each of which has its parts; a pair has its outputs; warps are whole.
            return unsafe { gpu.launch(&gpu.kernels.train_pair_scores_hidden, shape, arguments) };
        }
        assert!(outputs == 1, "a dot product is one output");
        let weights = self.relation(pass);
        let gpu = &mut *pass.gpu;
        let arguments = arguments![gpu, embeddings, weights, ends, scores, count, width];
        // SAFETY: the kernel's arguments; ends are seeds, each of which has an embedding; warps are whole.
        unsafe { gpu.launch(&gpu.kernels.train_pair_scores, shape, arguments) }
    }

    /// The weights of the dot product, where it has any.
    fn relation<'a>(&self, pass: &Pass<'_, 'a>) -> Option<Floats<'a>> {
        (pass.model.spec.decoder == Decoder::DistMult).then(|| pass.model.get("decoder.relation"))
    }

    /// Writes the gradients of the seeds' embeddings and of the decoder's parameters; `slopes` are the derivatives of the loss by the
    /// scores.
    pub(crate) fn backward(&self, pass: &mut Pass<'_, '_>, slopes: Region, out: Region) -> Result<()> {
        let Self { count, ends, embeddings, seeds, .. } = *self;
        let width = pass.model.spec.num_classes;
        let mark = pass.gpu.mark();
        let (indptr, sorted) = sort_by_source(pass.gpu, ends.into(), [seeds, 2 * count], None, BLOCKS)?;
        if let Some(parts) = self.parts {
            self.hidden_backward(pass, parts, (indptr, sorted), slopes, out)?;
        } else {
            let weights = self.relation(pass);
            let gpu = &mut *pass.gpu;
            let arguments = arguments![gpu, embeddings, weights, ends, slopes, indptr, sorted, out, seeds, width];
            // SAFETY: the kernel's arguments; a seed has an embedding, a gradient, and the ends between its offsets.
            unsafe { gpu.launch(&gpu.kernels.train_pair_gradient, rows_by_units(seeds, width), arguments) }?;
            if weights.is_some() {
                let products = gpu.take(count * width)?;
                let arguments = arguments![gpu, embeddings, ends, slopes, products, count, width];
                // SAFETY: the kernel's arguments; a pair has a row of products.
                unsafe { gpu.launch(&gpu.kernels.train_pair_products, rows_by_units(count, width), arguments) }?;
                column_sums(gpu, products, width, Factors::default(), pass.model.gradient("decoder.relation"))?;
            }
        }
        pass.gpu.release(mark);
        Ok(())
    }

    fn hidden_backward(
        &self,
        pass: &mut Pass<'_, '_>,
        parts: Region,
        (indptr, sorted): (Region, Region),
        slopes: Region,
        out: Region,
    ) -> Result<()> {
        let Self { count, outputs, ends, embeddings, seeds, .. } = *self;
        let (gpu, model) = (&mut *pass.gpu, pass.model);
        let width = model.spec.num_classes;
        let Hidden { weight, bias, last, .. } = Hidden::of(|name| model.get(name));
        let gradients = Hidden::of(|name| model.gradient(name));
        let (by_parts, hidden, sums) = (gpu.take(parts.len())?, gpu.take(count * width)?, gpu.take(2 * width)?);
        let arguments =
            arguments![gpu, parts, bias, last, ends, slopes, indptr, sorted, by_parts, seeds, width, outputs];
        // SAFETY: the kernel's arguments; a seed has its parts, their gradient, and the ends between its offsets; a pair has its slopes.
        unsafe { gpu.launch(&gpu.kernels.train_pair_hidden_gradient, rows_by_units(seeds, width), arguments) }?;
        let arguments = arguments![gpu, parts, bias, ends, hidden, count, width];
        // SAFETY: the kernel's arguments; a pair has a row of the hidden layer.
        unsafe { gpu.launch(&gpu.kernels.train_pair_hidden, rows_by_units(count, width), arguments) }?;
        gpu.linear_weight([count, outputs, width], slopes, hidden, gradients.last, false)?;
        column_sums(gpu, slopes, outputs, Factors::default(), gradients.last_bias)?;
        // Each pair adds to the bias what it adds to its source's part.
        column_sums(gpu, by_parts, 2 * width, Factors::default(), sums)?;
        let arguments = arguments![gpu, sums, gradients.bias, width];
        // SAFETY: the kernel's arguments; twice as many sums as elements of the bias.
        unsafe { gpu.launch(&gpu.kernels.train_every_second, each(width), arguments) }?;
        let sizes = [seeds, 2 * width, width];
        gpu.linear_weight(sizes, by_parts, Words::Region(embeddings), gradients.weight, false)?;
        gpu.linear_input(sizes, by_parts, weight, Some(out), false)
    }
}
