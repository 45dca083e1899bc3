//! Sparse features, such as bags of words: their density, and their nonzeros.

use half::{bf16, f16};

use crate::FeatureView;

/// Density below which rows are sparse: a nonzero in a list costs about as much as eight elements of a dense GEMM.
const SPARSE_BELOW: f64 = 0.12;

/// Narrower rows are always treated as dense.
const SPARSE_FROM_DIM: usize = 64;

/// Number of rows that the density is measured on, spread over the matrix.
const PROBED_ROWS: usize = 128;

impl<'a> FeatureView<'a> {
    /// `len` elements from element `start` on.
    ///
    /// # Panics
    ///
    /// When the range is out of bounds.
    pub fn part(self, start: usize, len: usize) -> FeatureView<'a> {
        match self {
            FeatureView::F32(d) => FeatureView::F32(&d[start..start + len]),
            FeatureView::F16(d) => FeatureView::F16(&d[start..start + len]),
            FeatureView::Bf16(d) => FeatureView::Bf16(&d[start..start + len]),
            FeatureView::U8(d) => FeatureView::U8(&d[start..start + len]),
        }
    }

    /// Whether rows of `dim` elements are multiplied faster by their nonzeros alone: at least 64 elements, and a density below
    /// 12%. Depends only on the elements.
    pub fn is_sparse(self, dim: usize) -> bool {
        dim >= SPARSE_FROM_DIM && !self.is_empty() && self.density(dim) < SPARSE_BELOW
    }

    /// Fraction of nonzeros in rows of `dim` elements, measured on 128 rows spread over the matrix.
    pub fn density(self, dim: usize) -> f64 {
        let num_rows = self.len().checked_div(dim).unwrap_or(0);
        let probed = num_rows.min(PROBED_ROWS);
        let mut nonzeros = 0usize;
        for i in 0..probed {
            self.part(i * num_rows / probed * dim, dim).for_nonzeros(|_, _| nonzeros += 1);
        }
        nonzeros as f64 / (probed * dim).max(1) as f64
    }

    /// Calls `each(position, value)` for every element that is not zero, in ascending order.
    pub fn for_nonzeros(self, each: impl FnMut(usize, f32)) {
        match self {
            FeatureView::F32(d) => scan(d, |x| x.to_bits() << 1, |x| x, each),
            FeatureView::F16(d) => scan(d, |x| u32::from(x.to_bits() << 1), f16::to_f32, each),
            FeatureView::Bf16(d) => scan(d, |x| u32::from(x.to_bits() << 1), bf16::to_f32, each),
            FeatureView::U8(d) => scan(d, u32::from, f32::from, each),
        }
    }
}

/// Calls `each` with index and value of the nonzeros; `bits` of an element are 0 for zeros. Chunks of 16 zeros are skipped.
#[inline(always)]
fn scan<T: Copy>(elements: &[T], bits: impl Fn(T) -> u32, widen: impl Fn(T) -> f32, mut each: impl FnMut(usize, f32)) {
    let (chunks, rest) = elements.as_chunks::<16>();
    for (c, chunk) in chunks.iter().enumerate() {
        if chunk.iter().fold(0, |any, &x| any | bits(x)) != 0 {
            for (i, &x) in chunk.iter().enumerate().filter(|(_, x)| bits(**x) != 0) {
                each(16 * c + i, widen(x));
            }
        }
    }
    for (i, &x) in rest.iter().enumerate().filter(|(_, x)| bits(**x) != 0) {
        each(16 * chunks.len() + i, widen(x));
    }
}

#[cfg(test)]
mod tests;
