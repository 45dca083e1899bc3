//! What ends a layer, over the rows of a task: bias, activation, dropout; and what begins its backward.

use morphgl_model_spec::{Activation, Dropout};
use morphgl_platform::{SimdLevel, simd_dispatch};

use crate::simd::dispatch;

#[cfg(target_arch = "x86_64")]
mod mask;
#[cfg(target_arch = "x86_64")]
mod mask_avx2;

/// What follows a layer's product.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Epilogue {
    pub(crate) activation: Option<Activation>,
    pub(crate) dropout: Option<Dropout>,
}

impl Epilogue {
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
pub(crate) fn forward(level: SimdLevel, epilogue: Epilogue, part: Part, bias: &[f32], values: &mut [f32]) {
    if part.width == 0 {
        return;
    }
    let piece = (PIECE / part.width).max(1) * part.width;
    let mut first = part.first as u64 * part.width as u64;
    for values in values.chunks_mut(piece) {
        activate(level, epilogue, part.width, bias, values);
        drop(level, epilogue, first, values);
        first += values.len() as u64;
    }
}

dispatch! {
    /// Adds the bias, applies the activation.
    fn activate(epilogue: Epilogue, width: usize, bias: &[f32], values: &mut [f32]) = activate_inner
}

#[inline(always)]
fn activate_inner(epilogue: Epilogue, width: usize, bias: &[f32], values: &mut [f32]) {
    for row in values.chunks_exact_mut(width) {
        match epilogue.activation {
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
fn drop(level: SimdLevel, epilogue: Epilogue, first: u64, values: &mut [f32]) {
    if let Some(dropout) = epilogue.dropout {
        apply_dropout(level, &dropout, first, values);
    }
}

simd_dispatch! {
    fn apply_dropout(dropout: &Dropout, first: u64, values: &mut [f32]);
    avx512: mask::apply(dropout, first, values),
    avx2: mask_avx2::apply(dropout, first, values),
    portable: dropout.apply(first, values),
}

/// Turns the gradient of a finished layer's rows into that of the rows before activation and dropout.
pub(crate) fn backward(level: SimdLevel, epilogue: Epilogue, part: Part, output: &[f32], grad: &mut [f32]) {
    deactivate(level, epilogue, output, grad);
    if epilogue.activation != Some(Activation::Relu) {
        drop(level, epilogue, part.first as u64 * part.width as u64, grad);
    }
}

dispatch! {
    /// The gradient before the activation; with relu, before the dropout as well.
    fn deactivate(epilogue: Epilogue, output: &[f32], grad: &mut [f32]) = deactivate_inner
}

#[inline(always)]
fn deactivate_inner(epilogue: Epilogue, output: &[f32], grad: &mut [f32]) {
    let scale = epilogue.dropout.map_or(1.0, |d| d.scale());
    match epilogue.activation {
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

dispatch! {
    /// Adds the rows to `sums`.
    pub(crate) fn add_rows(rows: &[f32], sums: &mut [f32]) = add_rows_inner
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
            let epilogue = Epilogue { activation: None, dropout };
            for level in SimdLevel::available().rev() {
                let mut values: Vec<f32> = (0..len).map(|i| i as f32 - 40.5).collect();
                drop(level, epilogue, first, &mut values);
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
