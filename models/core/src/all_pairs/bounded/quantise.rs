//! Rows as whole numbers of 8 bits, and what rounding takes from them.

use super::{Basis, FLOOR, INFLATION, MAX_ELEMENT, MAX_SCALE, QUAD, SCALING};

/// Elements that are rounded together.
pub(super) const PART: usize = 16;
/// Added to a number of a magnitude below 2²², it leaves the nearest whole number in the lowest bits of the sum.
const ROUNDING: f32 = 12_582_912.0;

/// What is known of a row that was rounded, in units of its codes; norms are rounded up, and infinite where a row has no bound.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Scaled {
    pub(super) scale: f32,
    /// The norm of the scaled row.
    pub(super) norm: f32,
    /// The norm of what rounding took from it, within the basis.
    pub(super) residual: f32,
    /// The norm of the scaled row's component outside of the basis; 0 without one.
    pub(super) outside: f32,
}

impl Scaled {
    const UNBOUNDED: Self = Self { scale: 1.0, norm: f32::INFINITY, residual: f32::INFINITY, outside: 0.0 };
}

/// Limits of the codes of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Limits {
    /// Largest magnitude of a code.
    pub(super) code: f32,
    /// What is added to the codes of candidates, which are stored as unsigned bytes.
    pub(super) bias: u8,
    /// Quads of a block, and the largest norm of the codes of a block whose products are added in the same lane of 16 bits.
    pub(super) block: Option<(usize, f32)>,
}

/// The largest magnitude of a row's elements, or NaN.
#[inline(always)]
pub(super) fn largest(row: &[f32]) -> f32 {
    // Bits of magnitudes have their order, and those of NaN are the largest.
    let mut max = 0u32;
    for x in row {
        max = max.max(x.abs().to_bits());
    }
    f32::from_bits(max)
}

/// Codes of rows, one after another.
pub(super) struct Quantiser<'a> {
    basis: Option<&'a Basis>,
    limits: Limits,
    projected: Vec<f32>,
    /// The codes of the last row.
    pub(super) codes: Vec<i8>,
}

impl<'a> Quantiser<'a> {
    /// A quantiser of rows of `dim` elements.
    pub(super) fn new(basis: Option<&'a Basis>, limits: Limits, dim: usize) -> Self {
        let [projected, codes] = [basis.map_or(0, Basis::kept), basis.map_or(dim, Basis::kept)];
        let [projected, codes] = [projected, codes].map(|elements| elements.next_multiple_of(PART));
        Self { basis, limits, projected: vec![0.0; projected], codes: vec![0; codes] }
    }

    /// Scales and rounds a row, or says that it has no bound.
    #[inline(always)]
    pub(super) fn quantise(&mut self, row: &[f32]) -> Scaled {
        let max = largest(row);
        if max.is_nan() || max > MAX_ELEMENT {
            self.codes.fill(0);
            return Scaled::UNBOUNDED;
        }
        let Some(basis) = self.basis else { return quantise(row, self.limits, &mut self.codes) };
        basis.project(row, &mut self.projected);
        let scaled = quantise(&self.projected[..basis.kept()], self.limits, &mut self.codes);
        let (all, within) = (squares(row), squares(&self.projected));
        // What projecting takes from the squares of a vector within the basis is at most the basis's error times the square.
        let outside = (all - within).max(0.0) + 2.0 * basis.error() * all;
        let [norm, outside] = [all, outside].map(|square| INFLATION * scaled.scale * square.sqrt() + FLOOR);
        Scaled { norm, residual: scaled.residual + SCALING * norm, outside, ..scaled }
    }
}

/// The sum of the squares of a row's elements.
#[inline(always)]
fn squares(row: &[f32]) -> f32 {
    let (parts, rest) = row.as_chunks::<PART>();
    let mut sums = [0f32; PART];
    sums[..rest.len()].copy_from_slice(rest);
    for x in &mut sums {
        *x *= *x;
    }
    for part in parts {
        for k in 0..PART {
            sums[k] = part[k].mul_add(part[k], sums[k]);
        }
    }
    sum(sums)
}

/// Scales and rounds a row of bounded elements; `codes` has its length, rounded up to a multiple of [`PART`].
#[inline(always)]
fn quantise(row: &[f32], limits: Limits, codes: &mut [i8]) -> Scaled {
    let max = largest(row);
    let mut scale = (limits.code / max).min(MAX_SCALE);
    if let Some((quads, largest)) = limits.block {
        let mut square = 0f32;
        for block in row.chunks(QUAD * quads) {
            let (quads, rest) = block.as_chunks::<QUAD>();
            let mut sums = [0f32; QUAD];
            sums[..rest.len()].copy_from_slice(rest);
            for sum in &mut sums {
                *sum *= scale;
                *sum *= *sum;
            }
            for quad in quads {
                for k in 0..QUAD {
                    let scaled = quad[k] * scale;
                    sums[k] = scaled.mul_add(scaled, sums[k]);
                }
            }
            // A lane of 16 bits has the products of two neighbours of each quad.
            square = square.max((sums[0] + sums[1]).max(sums[2] + sums[3]));
        }
        if square > largest * largest {
            scale *= largest / square.sqrt();
        }
    }
    let (mut norms, mut residuals) = ([0f32; PART], [0f32; PART]);
    let (parts, rest) = row.as_chunks::<PART>();
    let (codes, _) = codes.as_chunks_mut::<PART>();
    for (part, codes) in parts.iter().zip(&mut *codes) {
        round(part, scale, codes, &mut norms, &mut residuals);
    }
    if let Some(codes) = codes.get_mut(parts.len()) {
        let mut last = [0f32; PART];
        last[..rest.len()].copy_from_slice(rest);
        round(&last, scale, codes, &mut norms, &mut residuals);
    }
    let norm = INFLATION * sum(norms).sqrt() + FLOOR;
    Scaled { scale, norm, residual: INFLATION * sum(residuals).sqrt() + SCALING * norm + FLOOR, outside: 0.0 }
}

/// Scales and rounds a part of a row; adds the squares of its elements, and of what rounding took from them.
#[inline(always)]
fn round(part: &[f32; PART], scale: f32, codes: &mut [i8; PART], norms: &mut [f32; PART], residuals: &mut [f32; PART]) {
    for k in 0..PART {
        let scaled = part[k] * scale;
        let rounded = scaled + ROUNDING;
        codes[k] = rounded.to_bits() as i8;
        let left = scaled - (rounded - ROUNDING);
        norms[k] = scaled.mul_add(scaled, norms[k]);
        residuals[k] = left.mul_add(left, residuals[k]);
    }
}

#[inline(always)]
fn sum(lanes: [f32; PART]) -> f32 {
    let (mut eight, mut four) = ([0f32; 8], [0f32; 4]);
    for i in 0..8 {
        eight[i] = lanes[i] + lanes[i + 8];
    }
    for i in 0..4 {
        four[i] = eight[i] + eight[i + 4];
    }
    (four[0] + four[2]) + (four[1] + four[3])
}
