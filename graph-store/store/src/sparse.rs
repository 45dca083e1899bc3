//! Features that are nearly all zeros, as bags of words are: their density, and their nonzeros.

use half::{bf16, f16};

use crate::FeatureView;

/// Share of nonzeros below which rows are sparse: a nonzero in a list costs about as much as eight elements of a dense
/// product.
const SPARSE_BELOW: f64 = 0.12;

/// Rows narrower than this are dense whatever they hold.
const SPARSE_FROM_DIM: usize = 64;

/// Rows looked at to measure the density, spread over all of them.
const PROBED_ROWS: usize = 128;

impl<'a> FeatureView<'a> {
    /// `len` elements from element `start` on.
    ///
    /// # Panics
    ///
    /// When there are not as many.
    pub fn part(self, start: usize, len: usize) -> FeatureView<'a> {
        match self {
            FeatureView::F32(d) => FeatureView::F32(&d[start..start + len]),
            FeatureView::F16(d) => FeatureView::F16(&d[start..start + len]),
            FeatureView::Bf16(d) => FeatureView::Bf16(&d[start..start + len]),
            FeatureView::U8(d) => FeatureView::U8(&d[start..start + len]),
        }
    }

    /// Whether rows of `dim` elements are worth being multiplied by their nonzeros alone: at least 64 elements, of which less
    /// than 12% are not zero. Depends on the elements alone.
    pub fn is_sparse(self, dim: usize) -> bool {
        dim >= SPARSE_FROM_DIM && !self.is_empty() && self.density(dim) < SPARSE_BELOW
    }

    /// Share of nonzeros in rows of `dim` elements; of 128 rows spread over all of them.
    pub fn density(self, dim: usize) -> f64 {
        let num_rows = self.len().checked_div(dim).unwrap_or(0);
        let probed = num_rows.min(PROBED_ROWS);
        let mut nonzeros = 0usize;
        for i in 0..probed {
            self.part(i * num_rows / probed * dim, dim).for_nonzeros(|_, _| nonzeros += 1);
        }
        nonzeros as f64 / (probed * dim).max(1) as f64
    }

    /// Calls `each(position, value)` for every element that is not zero, in order.
    pub fn for_nonzeros(self, each: impl FnMut(usize, f32)) {
        match self {
            FeatureView::F32(d) => scan(d, each),
            FeatureView::F16(d) => scan(d, each),
            FeatureView::Bf16(d) => scan(d, each),
            FeatureView::U8(d) => scan(d, each),
        }
    }
}

/// A stored element whose bits tell whether it is zero.
trait Stored: Copy {
    fn bits(self) -> u32;
    fn widen(self) -> f32;
}

macro_rules! stored {
    ($($t:ty, |$x:ident| $bits:expr, $widen:expr;)*) => { $(impl Stored for $t {
        #[inline(always)]
        fn bits(self) -> u32 { let $x = self; $bits }
        #[inline(always)]
        fn widen(self) -> f32 { let $x = self; $widen }
    })* };
}
stored! {
    f32, |x| x.to_bits() << 1, x;
    f16, |x| u32::from(x.to_bits() << 1), x.to_f32();
    bf16, |x| u32::from(x.to_bits() << 1), x.to_f32();
    u8, |x| u32::from(x), f32::from(x);
}

/// Sixteen zeros at a time are passed over.
fn scan<T: Stored>(elements: &[T], mut each: impl FnMut(usize, f32)) {
    let (chunks, rest) = elements.as_chunks::<16>();
    for (c, chunk) in chunks.iter().enumerate() {
        if chunk.iter().fold(0, |any, x| any | x.bits()) != 0 {
            for (i, &x) in chunk.iter().enumerate().filter(|(_, x)| x.bits() != 0) {
                each(16 * c + i, x.widen());
            }
        }
    }
    for (i, &x) in rest.iter().enumerate().filter(|(_, x)| x.bits() != 0) {
        each(16 * chunks.len() + i, x.widen());
    }
}

#[cfg(test)]
mod tests;
