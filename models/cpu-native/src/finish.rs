//! What ends a layer, over the rows of a task: bias, activation, dropout; and what begins its backward.

use morphgl_model_spec::{Activation, Dropout};
use morphgl_platform::SimdLevel;

use crate::level::{Level, leveled};

#[cfg(target_arch = "x86_64")]
mod mask;
#[cfg(target_arch = "x86_64")]
mod mask_avx2;

/// What follows a layer's product.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Finish {
    pub(crate) activation: Option<Activation>,
    pub(crate) dropout: Option<Dropout>,
}

impl Finish {
    /// Whether the output and its gradient may have many zeros.
    pub(crate) fn makes_zeros(&self) -> bool {
        self.activation == Some(Activation::Relu) || self.dropout.is_some()
    }
}

/// The rows of a task: their width, and the number of the first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub(crate) width: usize,
    pub(crate) first: usize,
}

/// Elements that are activated and then dropped while they are in the first-level cache.
const PIECE: usize = 2048;

/// Adds the bias, applies the activation, drops.
pub(crate) fn forward(level: Level, finish: Finish, part: Part, bias: &[f32], values: &mut [f32]) {
    if part.width == 0 {
        return;
    }
    let piece = (PIECE / part.width).max(1) * part.width;
    let mut first = part.first as u64 * part.width as u64;
    for values in values.chunks_mut(piece) {
        activate(level, finish, part.width, bias, values);
        drop(level, finish, first, values);
        first += values.len() as u64;
    }
}

leveled! {
    /// Adds the bias, applies the activation.
    fn activate = activate_inner(finish: Finish, width: usize, bias: &[f32], values: &mut [f32])
}

#[inline(always)]
fn activate_inner(finish: Finish, width: usize, bias: &[f32], values: &mut [f32]) {
    for row in values.chunks_exact_mut(width) {
        match finish.activation {
            Some(Activation::Relu) => row.iter_mut().zip(bias).for_each(|(o, &b)| {
                let x = *o + b;
                // Not `max`, which would hide what is not a number.
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

/// Drops elements `first`, `first + 1`, …
fn drop(level: Level, finish: Finish, first: u64, values: &mut [f32]) {
    let Some(dropout) = finish.dropout else { return };
    match level.simd() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level says that the processor has AVX-512.
        SimdLevel::Avx512 | SimdLevel::Amx => unsafe { mask::apply(&dropout, first, values) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level says that the processor has AVX2.
        SimdLevel::Avx2 => unsafe { mask_avx2::apply(&dropout, first, values) },
        SimdLevel::Portable => dropout.apply(first, values),
    }
}

/// Turns the gradient of a finished layer's rows into that of the rows before activation and dropout.
pub(crate) fn backward(level: Level, finish: Finish, part: Part, output: &[f32], grad: &mut [f32]) {
    deactivate(level, finish, output, grad);
    if finish.activation != Some(Activation::Relu) {
        drop(level, finish, part.first as u64 * part.width as u64, grad);
    }
}

leveled! {
    /// The gradient before the activation; with relu, before the dropout as well.
    fn deactivate = deactivate_inner(finish: Finish, output: &[f32], grad: &mut [f32])
}

#[inline(always)]
fn deactivate_inner(finish: Finish, output: &[f32], grad: &mut [f32]) {
    let scale = finish.dropout.map_or(1.0, |d| d.scale());
    match finish.activation {
        // What was dropped is 0 as well, so the output tells all.
        Some(Activation::Relu) => {
            grad.iter_mut().zip(output).for_each(|(g, &y)| *g = if y > 0.0 { *g * scale } else { 0.0 });
        }
        Some(Activation::Elu) => {
            grad.iter_mut().zip(output).for_each(|(g, &y)| *g *= if y > 0.0 { 1.0 } else { y / scale + 1.0 });
        }
        None => {}
    }
}

leveled! {
    /// Adds the rows to `sums`.
    fn add_rows = add_rows_inner(rows: &[f32], sums: &mut [f32])
}

#[inline(always)]
fn add_rows_inner(rows: &[f32], sums: &mut [f32]) {
    if !sums.is_empty() {
        rows.chunks_exact(sums.len()).for_each(|row| sums.iter_mut().zip(row).for_each(|(s, x)| *s += x));
    }
}

#[cfg(test)]
mod tests {
    use morphgl_model_spec::DropoutSite;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_level_drops_alike(first in 0u64..2_000, len in 0usize..600, p in 0.0f32..0.99, high: bool) {
            // Blocks beyond 2^32 have another counter.
            let first = if high { (1 << 35) - 1_000 + first } else { first };
            let dropout = Dropout::new(7, 2, 3, 1, DropoutSite::Hidden, p);
            let finish = Finish { activation: None, dropout };
            for level in Level::available() {
                let mut values: Vec<f32> = (0..len).map(|i| i as f32 - 40.5).collect();
                drop(level, finish, first, &mut values);
                for (i, x) in values.into_iter().enumerate() {
                    let factor = match dropout {
                        None => 1.0,
                        Some(d) => if d.keeps(first + i as u64) { d.scale() } else { 0.0 },
                    };
                    let expected = if factor == 0.0 { 0.0 } else { (i as f32 - 40.5) * factor };
                    prop_assert_eq!(x, expected, "{:?}, element {}", level, i);
                }
            }
        }
    }
}
