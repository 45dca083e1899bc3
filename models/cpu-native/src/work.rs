//! The least work of a step's passes, by the sizes of the mini-batch's blocks and the orders chosen for it.

use morphgl_registry::Pass;

use crate::layer::{Layer, Order};

/// Bytes of an f32.
const F32: f64 = 4.0;

/// Floating point operations and bytes of a pass, as [`Pass`] counts them.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Work {
    flops: f64,
    bytes: f64,
}

impl Work {
    /// The pass that did it.
    pub(crate) fn pass(self, name: String, seconds: f64) -> Pass {
        Pass { name, seconds, flops: self.flops, bytes: self.bytes }
    }

    /// Counts bytes that the pass reads besides.
    pub(crate) fn read(&mut self, bytes: f64) {
        self.bytes += bytes;
    }
}

/// Sizes that determine the work of a layer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) src: usize,
    pub(crate) dst: usize,
    pub(crate) edges: usize,
    /// Rows that are grouped by edge type.
    pub(crate) grouped: usize,
    /// Bytes of an input row as it is stored.
    pub(crate) row_bytes: usize,
    /// Elements of an input row that are multiplied: all, or its nonzeros.
    pub(crate) row_elements: usize,
}

/// The work of a layer's passes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LayerWork {
    pub(crate) forward: Work,
    pub(crate) backward: Work,
    /// Bytes of the sums of gradients over the layer's edges, where the layer before takes them in its backward pass.
    pub(crate) summed_before: f64,
}

impl LayerWork {
    pub(crate) fn new(layer: &Layer, sizes: Sizes) -> Self {
        let Sizes { src, dst, edges, grouped, row_bytes, row_elements } = sizes;
        let [src, dst, edges, grouped, stored, elements] =
            [src, dst, edges, grouped, row_bytes, row_elements].map(|n| n as f64);
        let [depth, width, heads] = [layer.shape.in_dim, layer.width, layer.shape.heads].map(|n| n as f64);
        let [neighbours, root] = layer.ranges.weights().map(|range| if range.is_some() { dst } else { 0.0 });
        // Rows that GEMMs multiply, in f32 and as they are stored, and the columns of each; with the sums of heads, each head has its own.
        let (sums, rows, columns) = match layer.order {
            Order::ByType => (grouped, 0.0, width),
            Order::AggregateFirst => (neighbours, root, width),
            Order::TransformFirst | Order::Attend => (0.0, src + root, width),
            Order::AttendFirst => (heads * dst, 0.0, width / heads),
        };
        let flops = 2.0 * (sums * depth + rows * elements) * columns;
        let read = F32 * (sums * depth + (sums + rows) * columns) + rows * stored;
        let input_gradient = Work { flops, bytes: F32 * (sums + rows) * (depth + columns) };
        let factor = if layer.propagates { 1.0 } else { 0.0 };
        // A layer that attends first computes the gradient of its sums, the first layer too.
        let computed = if layer.order == Order::AttendFirst { 1.0 } else { factor };
        let (messages, messages_back, summed_before) = match layer.order {
            Order::ByType | Order::AggregateFirst => (stored, 0.0, factor * F32 * depth),
            Order::TransformFirst | Order::Attend => (F32 * width, F32 * width, 0.0),
            Order::AttendFirst => (stored, stored + factor * heads * F32 * depth, 0.0),
        };
        Self {
            forward: Work { flops, bytes: read + edges * messages },
            backward: Work {
                flops: flops + computed * input_gradient.flops,
                bytes: read + computed * input_gradient.bytes + edges * messages_back,
            },
            summed_before: edges * summed_before,
        }
    }
}
