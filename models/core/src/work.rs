//! Minimum work of a step of training, by the sizes of a mini-batch's blocks.

use morphgl_registry::Block;

use crate::{Attention, ModelKind, ModelSpec};

/// Minimum work of a step.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StepWork {
    /// Floating point operations of GEMMs and of the sums over edges, forward and backward.
    pub flops: f64,
    /// Bytes of messages over edges, and of every matrix once for each GEMM that reads or writes it, in f32.
    pub bytes: f64,
}

impl ModelSpec {
    /// The work of a step on a mini-batch with these blocks, the first layer's first, and so many seeds. `None` of a typed
    /// model, whose work depends on the types of the edges, and of one whose layers this crate does not know.
    ///
    /// A GEMM is done once forward and twice backward, but for the first layer, whose input has no gradient. GCN, GraphSAGE and GIN
    /// aggregate their input, GAT its transformed rows: operators that aggregate its input where that is less work count their own.
    ///
    /// # Complexity
    ///
    /// O(layers).
    pub fn step_work(&self, blocks: &[Block], num_seeds: usize) -> Option<StepWork> {
        let mut work = StepWork::default();
        for l in 0..self.layers {
            let shape = self.layer(l);
            let of_seeds = (num_seeds, num_seeds, 0);
            let (src, dst, edges) = blocks.get(l).map_or(of_seeds, |b| (b.num_src, b.num_dst, b.num_edges()));
            let [src, dst, edges] = [src, dst, edges].map(|n| n as f64);
            let [depth, width] = [shape.in_dim, shape.heads * shape.head_dim].map(|n| n as f64);
            // Rows of each GEMM with its depth and width, and the width of a message.
            let (gemms, message) = match (self.kind, self.attention) {
                (ModelKind::Gcn, _) => (vec![(dst, depth, width)], depth),
                (ModelKind::Sage, _) => (vec![(dst, depth, width); 2], depth),
                (ModelKind::Gin, _) => (vec![(dst, depth, width), (dst, width, width)], depth),
                (ModelKind::Gat, Attention::Gat) => (vec![(src, depth, width)], width),
                (ModelKind::Gat, Attention::Gatv2) => (vec![(src, depth, width), (dst, depth, width)], width),
                (ModelKind::Mlp, _) => (vec![(dst, depth, width)], 0.0),
                (ModelKind::Embedding, _) => (Vec::new(), 0.0),
                (ModelKind::Rgcn | ModelKind::Rsage | ModelKind::Rgat | ModelKind::Hgt, _) => return None,
                (ModelKind::Custom | ModelKind::Submitted(_), _) => return None,
            };
            let first = l == 0;
            for (i, (rows, depth, width)) in gemms.into_iter().enumerate() {
                // The second GEMM of a GIN's layer reads the first one's output, which has a gradient.
                let passes = if first && !(self.kind == ModelKind::Gin && i == 1) { 2.0 } else { 3.0 };
                work.flops += passes * 2.0 * rows * depth * width;
                work.bytes += 4.0 * passes * rows * (depth + width);
            }
            let sums = if first && self.kind != ModelKind::Gat { 1.0 } else { 2.0 };
            work.flops += sums * edges * message;
            work.bytes += 4.0 * sums * edges * message;
        }
        Some(work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(num_src: usize, num_dst: usize, edges: usize) -> Block {
        Block { num_src, num_dst, indices: vec![0; edges], ..Block::default() }
    }

    #[test]
    fn work_of_two_layers_by_hand() {
        let blocks = [block(100, 20, 150), block(20, 5, 30)];
        let spec = |kind| ModelSpec { hidden: 8, layers: 2, ..ModelSpec::new(kind, 16, 4) };
        let work = |kind| spec(kind).step_work(&blocks, 5).expect("known");
        // Layer 0: 20 rows, 16 to 8; layer 1: 5 rows, 8 to 4. Messages of 16 and 8 values.
        let gemms = 2.0 * 2.0 * 20.0 * 128.0 + 3.0 * 2.0 * 5.0 * 32.0;
        let sums = 150.0 * 16.0 + 2.0 * 30.0 * 8.0;
        assert_eq!(work(ModelKind::Gcn).flops, gemms + sums);
        assert_eq!(work(ModelKind::Sage).flops, 2.0 * gemms + sums);
        let bytes = 4.0 * (2.0 * 20.0 * 24.0 + 3.0 * 5.0 * 12.0 + sums);
        assert_eq!(work(ModelKind::Gcn).bytes, bytes);
        // An MLP reads no graph: five rows in both layers where it is given no blocks.
        let mlp = spec(ModelKind::Mlp).step_work(&[], 5).expect("known");
        assert_eq!(mlp.flops, 2.0 * 2.0 * 5.0 * 128.0 + 3.0 * 2.0 * 5.0 * 32.0);
        assert_eq!(spec(ModelKind::Custom).step_work(&blocks, 5), None);
    }

    #[test]
    fn work_grows_with_every_size() {
        let sizes = [block(100, 20, 150), block(20, 5, 30)];
        let larger = [block(200, 40, 300), block(40, 10, 60)];
        for kind in ModelKind::UNTYPED {
            let spec = ModelSpec { hidden: 8, layers: 2, ..ModelSpec::new(kind, 16, 4) };
            let [small, large] = [&sizes, &larger].map(|blocks| spec.step_work(blocks, 5).expect("known"));
            assert_eq!((large.flops, large.bytes), (2.0 * small.flops, 2.0 * small.bytes), "{kind}");
        }
    }
}
