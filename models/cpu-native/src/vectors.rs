//! Sums, products and dot products of vectors.

use crate::simd::dispatch;

dispatch! {
    /// Adds `factor` times `x`.
    pub(crate) fn add_scaled(factor: f32, x: &[f32], sums: &mut [f32]) = add_scaled_inner
}

#[inline(always)]
fn add_scaled_inner(factor: f32, x: &[f32], sums: &mut [f32]) {
    sums.iter_mut().zip(x).for_each(|(sum, x)| *sum += factor * x);
}

dispatch! {
    /// Multiplies all elements by `factor`.
    pub(crate) fn scale(factor: f32, values: &mut [f32]) = scale_inner
}

#[inline(always)]
fn scale_inner(factor: f32, values: &mut [f32]) {
    values.iter_mut().for_each(|x| *x *= factor);
}

dispatch! {
    /// The sum of the products of elements.
    pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 = dot_inner
}

#[inline(always)]
fn dot_inner(a: &[f32], b: &[f32]) -> f32 {
    const LANES: usize = 32;
    let mut sums = [0.0f32; LANES];
    let (a, b) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in a.0.iter().zip(b.0) {
        sums.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (x, y))| *sum += x * y);
    }
    sums.iter().sum::<f32>() + a.1.iter().zip(b.1).map(|(x, y)| x * y).sum::<f32>()
}
