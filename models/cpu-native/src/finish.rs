//! What ends a layer, over the rows of a task: bias, activation, dropout; and what begins its backward.

use morphgl_model_spec::{Activation, Dropout};

use crate::level::leveled;

/// What follows a layer's product.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Finish {
    pub(crate) activation: Option<Activation>,
    pub(crate) dropout: Option<Dropout>,
}

/// The rows of a task: their width, and the number of the first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub(crate) width: usize,
    pub(crate) first: usize,
}

leveled! {
    /// Adds the bias, applies the activation, drops.
    fn forward = forward_inner(finish: Finish, part: Part, bias: &[f32], values: &mut [f32])
}

#[inline(always)]
fn forward_inner<const FUSED: bool>(finish: Finish, part: Part, bias: &[f32], values: &mut [f32]) {
    if part.width == 0 {
        return;
    }
    for row in values.chunks_exact_mut(part.width) {
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
    drop(finish, part, values);
}

#[inline(always)]
fn drop(finish: Finish, part: Part, values: &mut [f32]) {
    if let Some(dropout) = &finish.dropout {
        dropout.apply(part.first as u64 * part.width as u64, values);
    }
}

leveled! {
    /// Turns the gradient of a finished layer's rows into that of the rows before activation and dropout.
    fn backward = backward_inner(finish: Finish, part: Part, output: &[f32], grad: &mut [f32])
}

#[inline(always)]
fn backward_inner<const FUSED: bool>(finish: Finish, part: Part, output: &[f32], grad: &mut [f32]) {
    let scale = finish.dropout.map_or(1.0, |d| d.scale());
    match finish.activation {
        // What was dropped is 0 as well, so the output tells all.
        Some(Activation::Relu) => {
            grad.iter_mut().zip(output).for_each(|(g, &y)| *g = if y > 0.0 { *g * scale } else { 0.0 });
        }
        Some(Activation::Elu) => {
            grad.iter_mut().zip(output).for_each(|(g, &y)| *g *= if y > 0.0 { 1.0 } else { y / scale + 1.0 });
            drop(finish, part, grad);
        }
        None => drop(finish, part, grad),
    }
}

leveled! {
    /// Adds the rows to `sums`.
    fn add_rows = add_rows_inner(rows: &[f32], sums: &mut [f32])
}

#[inline(always)]
fn add_rows_inner<const FUSED: bool>(rows: &[f32], sums: &mut [f32]) {
    if !sums.is_empty() {
        rows.chunks_exact(sums.len()).for_each(|row| sums.iter_mut().zip(row).for_each(|(s, x)| *s += x));
    }
}
