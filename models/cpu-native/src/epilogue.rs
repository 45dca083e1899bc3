//! Epilogue of a layer, over the rows of a task: bias, activation, dropout; and its derivative.

use morphgl_model_core::{Activation, Dropout};
use morphgl_platform::{SimdLevel, simd_dispatch};

use crate::simd::dispatch;

#[cfg(target_arch = "x86_64")]
mod mask;
#[cfg(target_arch = "x86_64")]
mod mask_avx2;

/// Activation and dropout after a layer's GEMM or aggregation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Epilogue {
    pub(crate) activation: Option<Activation>,
    pub(crate) dropout: Option<Dropout>,
}

/// Elements that are activated and then dropped while they are in the first-level cache.
const PIECE: usize = 2048;

impl Epilogue {
    /// Whether the output and its gradient may have many zeros.
    pub(crate) fn makes_zeros(self) -> bool {
        self.activation == Some(Activation::Relu) || self.dropout.is_some()
    }

    /// Adds the bias to rows, then applies activation and dropout; `nodes` are those of the rows, read by dropout alone.
    pub(crate) fn forward(self, level: SimdLevel, nodes: &[u32], bias: &[f32], values: &mut [f32]) {
        let width = bias.len();
        if width == 0 {
            return;
        }
        let rows = (PIECE / width).max(1);
        let mut nodes = nodes.chunks(rows);
        for values in values.chunks_mut(rows * width) {
            activate(level, self.activation, bias, values);
            self.drop(level, nodes.next().unwrap_or_default(), values);
        }
    }

    /// Replaces the gradient of the output by the gradient before activation and dropout; `nodes` are those of the rows, read
    /// by dropout alone.
    pub(crate) fn backward(self, level: SimdLevel, nodes: &[u32], output: &[f32], grad: &mut [f32]) {
        let scale = self.dropout.map_or(1.0, |d| d.scale());
        deactivate(level, self.activation, scale, output, grad);
        if self.activation != Some(Activation::Relu) {
            self.drop(level, nodes, grad);
        }
    }

    fn drop(self, level: SimdLevel, nodes: &[u32], values: &mut [f32]) {
        if let Some(dropout) = &self.dropout {
            apply_dropout(level, dropout, nodes, values);
        }
    }
}

simd_dispatch! {
    /// Applies dropout to the rows of nodes.
    pub(crate) fn apply_dropout(dropout: &Dropout, nodes: &[u32], values: &mut [f32]);
    avx512: mask::apply(dropout, nodes, values),
    avx2: mask_avx2::apply(dropout, nodes, values),
    portable: dropout.apply(nodes, values),
}

/// The blocks of random bits of rows of `width` elements, row after row.
#[cfg(target_arch = "x86_64")]
#[derive(Clone)]
struct Blocks<'a> {
    nodes: &'a [u32],
    width: usize,
    /// The next block: its row, and the first of its elements in the row.
    row: usize,
    column: usize,
}

/// Elements of a row, up to eight for each block of Philox.
#[cfg(target_arch = "x86_64")]
struct Block {
    node: u32,
    /// The first block among those of the row.
    index: u32,
    /// The first element among those of all rows.
    start: usize,
    len: usize,
}

#[cfg(target_arch = "x86_64")]
impl<'a> Blocks<'a> {
    /// # Panics
    ///
    /// When the elements are not those of rows of these nodes.
    #[inline(always)]
    fn new(nodes: &'a [u32], elements: usize) -> Self {
        let width = elements / nodes.len().max(1);
        assert_eq!(nodes.len() * width, elements, "elements of rows of {} nodes", nodes.len());
        Self { nodes: if width == 0 { &[] } else { nodes }, width, row: 0, column: 0 }
    }

    /// The next `N` blocks as one, if they are whole and of one row.
    #[inline(always)]
    fn of_one_row<const N: usize>(&mut self) -> Option<Block> {
        let len = N * Dropout::BLOCK;
        if self.width - self.column < len { None } else { self.take_elements(len) }
    }

    #[inline(always)]
    fn take_elements(&mut self, len: usize) -> Option<Block> {
        let (&node, column) = (self.nodes.get(self.row)?, self.column);
        let start = self.row * self.width + column;
        self.column += len;
        if self.column == self.width {
            (self.row, self.column) = (self.row + 1, 0);
        }
        Some(Block { node, index: (column / Dropout::BLOCK) as u32, start, len })
    }
}

#[cfg(target_arch = "x86_64")]
impl Iterator for Blocks<'_> {
    type Item = Block;

    #[inline(always)]
    fn next(&mut self) -> Option<Block> {
        self.take_elements(Dropout::BLOCK.min(self.width - self.column))
    }
}

dispatch! {
    /// Adds the bias to every row and applies the activation.
    fn activate(activation: Option<Activation>, bias: &[f32], values: &mut [f32]) = activate_inner
}

#[inline(always)]
fn activate_inner(activation: Option<Activation>, bias: &[f32], values: &mut [f32]) {
    for row in values.chunks_exact_mut(bias.len()) {
        match activation {
            Some(Activation::Relu) => row.iter_mut().zip(bias).for_each(|(o, &b)| {
                let x = *o + b;
                // Unlike `max`, this propagates NaN.
                *o = if x < 0.0 { 0.0 } else { x };
            }),
            Some(Activation::Elu) => row.iter_mut().zip(bias).for_each(|(o, &b)| {
                let x = *o + b;
                *o = if x > 0.0 { x } else { x.exp_m1() };
            }),
            None => row.iter_mut().zip(bias).for_each(|(o, &b)| *o += b),
        }
    }
}

dispatch! {
    /// Derivative of the activation, and for ReLU of the dropout with this scale too.
    fn deactivate(activation: Option<Activation>, scale: f32, output: &[f32], grad: &mut [f32]) = deactivate_inner
}

#[inline(always)]
fn deactivate_inner(activation: Option<Activation>, scale: f32, output: &[f32], grad: &mut [f32]) {
    match activation {
        // Dropped elements are 0 in the output too, so the mask is not needed.
        Some(Activation::Relu) => {
            grad.iter_mut().zip(output).for_each(|(g, &y)| *g = if y > 0.0 { *g * scale } else { 0.0 });
        }
        Some(Activation::Elu) => {
            grad.iter_mut().zip(output).for_each(|(g, &y)| *g *= if y > 0.0 { 1.0 } else { y / scale + 1.0 });
        }
        None => {}
    }
}

dispatch! {
    /// Adds rows to `sums`.
    pub(crate) fn add_rows(rows: &[f32], sums: &mut [f32]) = add_rows_inner
}

#[inline(always)]
fn add_rows_inner(rows: &[f32], sums: &mut [f32]) {
    if !sums.is_empty() {
        rows.chunks_exact(sums.len()).for_each(|row| sums.iter_mut().zip(row).for_each(|(s, x)| *s += x));
    }
}

#[cfg(test)]
mod tests;
