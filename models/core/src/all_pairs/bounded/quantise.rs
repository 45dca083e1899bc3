//! Rows as whole numbers of 8 or 16 bits, and what rounding takes from them.

use super::{Basis, FLOOR, INFLATION, MAX_ELEMENT, MAX_SCALE, SCALING};

/// Elements that are rounded together.
pub(super) const PART: usize = 16;
/// Added to a number of a magnitude below 2²², it leaves the nearest whole number in the lowest bits of the sum.
const ROUNDING: f32 = 12_582_912.0;
/// Size of a row's codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CodeWidth {
    /// 8 bits, at most plus or minus this many. Candidates are stored without signs, one more than this added.
    Byte(i8),
    /// 16 bits, and rows of a norm of at most 2¹⁵.
    Word,
}

impl CodeWidth {
    /// Codes in a lane of 32 bits.
    pub(super) fn per_lane(self) -> usize {
        match self {
            Self::Byte(_) => 4,
            Self::Word => 2,
        }
    }

    /// The scale of rows whose largest element and norm are these.
    #[inline(always)]
    fn scale(self, element: f32, norm: f32) -> f32 {
        match self {
            Self::Byte(largest) => f32::from(largest) / element,
            // Rounding adds at most 32 to the norm, half of the root of 4,096: a code is below 2¹⁵.
            Self::Word => 32_000.0 / (INFLATION * norm),
        }
    }

    /// More than the magnitude of the product of two rows' codes of so many elements, for [`Word`](Self::Word) by Cauchy and Schwarz.
    pub(super) fn max_product(self, elements: usize) -> f32 {
        match self {
            Self::Byte(_) => 128.0 * 128.0 * elements as f32,
            Self::Word => (1 << 30) as f32,
        }
    }
}

/// Two codes in a lane.
#[inline(always)]
pub(super) fn words([low, high]: [i16; 2]) -> i32 {
    i32::from(low as u16) | i32::from(high) << 16
}

/// What is known of rows that were rounded by one scale, in units of their codes: the largest of each norm, rounded up, and infinite where
/// a row has no bound.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Scaled {
    pub(super) scale: f32,
    /// The norm of a scaled row.
    pub(super) norm: f32,
    /// The norm of what rounding took from it, within the basis.
    pub(super) residual: f32,
    /// The norm of the scaled row's component outside of the basis; 0 without one.
    pub(super) outside: f32,
}

impl Scaled {
    const UNBOUNDED: Self = Self { scale: 1.0, norm: f32::INFINITY, residual: f32::INFINITY, outside: 0.0 };
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

/// Codes of a few rows at a time.
pub(super) struct Quantiser<'a> {
    basis: Option<&'a Basis>,
    width: CodeWidth,
    /// Number of a row's codes, a multiple of [`PART`].
    coded: usize,
    /// Of the last rows, what is rounded, `[rows, coded]`.
    elements: Vec<f32>,
    codes: Vec<i16>,
}

impl<'a> Quantiser<'a> {
    /// A quantiser of rows of `dim` elements.
    pub(super) fn new(basis: Option<&'a Basis>, width: CodeWidth, dim: usize) -> Self {
        let coded = basis.map_or(dim, Basis::kept).next_multiple_of(PART);
        Self { basis, width, coded, elements: Vec::new(), codes: Vec::new() }
    }

    /// The codes of each of the last rows; those beyond its elements are zeros.
    pub(super) fn codes(&self) -> impl Iterator<Item = &[i16]> {
        self.codes.chunks_exact(self.coded)
    }

    /// Scales rows alike and rounds them, or says that one of them has no bound.
    #[inline(always)]
    pub(super) fn quantise<'r>(&mut self, rows: impl ExactSizeIterator<Item = &'r [f32]>) -> Scaled {
        let elements = rows.len() * self.coded;
        self.elements.resize(elements, 0.0);
        self.codes.resize(elements, 0);
        // The largest squares, of whole rows and of what is outside of the basis.
        let (mut longest, mut outside) = (0f32, 0f32);
        let (mut element, mut bounded) = (0f32, true);
        for (row, elements) in rows.zip(self.elements.chunks_exact_mut(self.coded)) {
            let max = largest(row);
            bounded &= max <= MAX_ELEMENT;
            let all = squares(row);
            longest = longest.max(all);
            match self.basis {
                Some(basis) => {
                    basis.project(row, elements);
                    // What projecting takes from the squares of a vector within the basis is at most the basis's error times the square.
                    outside = outside.max((all - squares(elements)).max(0.0) + 2.0 * basis.error() * all);
                }
                None => elements[..row.len()].copy_from_slice(row),
            }
            element = element.max(largest(elements));
        }
        if !bounded {
            self.codes.fill(0);
            return Scaled::UNBOUNDED;
        }
        let scale = self.width.scale(element, longest.sqrt()).min(MAX_SCALE);
        let mut residual = 0f32;
        for (elements, codes) in self.elements.chunks_exact(self.coded).zip(self.codes.chunks_exact_mut(self.coded)) {
            residual = residual.max(round(elements, scale, codes));
        }
        let norm = INFLATION * scale * longest.sqrt() + FLOOR;
        let outside = if self.basis.is_some() { INFLATION * scale * outside.sqrt() + FLOOR } else { 0.0 };
        Scaled { scale, norm, residual: INFLATION * residual.sqrt() + SCALING * norm + FLOOR, outside }
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

/// Scales and rounds a row; the sum of the squares of what rounding took from it.
#[inline(always)]
fn round(row: &[f32], scale: f32, codes: &mut [i16]) -> f32 {
    let mut residuals = [0f32; PART];
    for (part, codes) in row.as_chunks::<PART>().0.iter().zip(codes.as_chunks_mut::<PART>().0) {
        for k in 0..PART {
            let scaled = part[k] * scale;
            let rounded = scaled + ROUNDING;
            codes[k] = rounded.to_bits() as i16;
            let left = scaled - (rounded - ROUNDING);
            residuals[k] = left.mul_add(left, residuals[k]);
        }
    }
    sum(residuals)
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
