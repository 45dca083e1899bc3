//! What a stream of elements has been so far, for the checks of a dataset before it is renamed to its target.

use half::{bf16, f16};

use crate::Dtype;

/// Facts about elements, gathered while they are hashed and written: each is looked at once, in cache.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Summary {
    dtype: Dtype,
    /// Number of elements.
    pub(crate) len: u64,
    /// First and last element, and whether none is below the one before: of u64.
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) ascending: bool,
    /// The lowest element: of i32 and f32; 0 where all are positive.
    pub(crate) lowest: f64,
    /// The highest element, and -1 where none is above: of u32 and i32.
    pub(crate) highest: i64,
    /// Whether all are finite: of floats but f64.
    pub(crate) finite: bool,
    /// Whether any is infinite: of f32.
    pub(crate) infinite: bool,
}

impl Summary {
    /// Of no elements yet.
    pub(crate) fn new(dtype: Dtype) -> Self {
        Self {
            dtype,
            len: 0,
            first: 0,
            last: 0,
            ascending: true,
            lowest: 0.0,
            highest: -1,
            finite: true,
            infinite: false,
        }
    }

    /// Adds elements, by their bytes, which are aligned to them.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        match self.dtype {
            Dtype::U64 => self.add_offsets(bytemuck::cast_slice(bytes)),
            Dtype::U32 => {
                let elements: &[u32] = bytemuck::cast_slice(bytes);
                if let Some(&first) = elements.first() {
                    self.highest = self.highest.max(elements.iter().fold(first, |high, &v| high.max(v)).into());
                }
            }
            Dtype::I32 => {
                let elements: &[i32] = bytemuck::cast_slice(bytes);
                let [low, high] = elements.iter().fold([0, -1], |[low, high], &v| [low.min(v), high.max(v)]);
                self.lowest = self.lowest.min(low.into());
                self.highest = self.highest.max(high.into());
            }
            Dtype::F32 => {
                let elements: &[f32] = bytemuck::cast_slice(bytes);
                let (low, finite) =
                    elements.iter().fold((0f32, true), |(low, all), v| (low.min(*v), all & v.is_finite()));
                self.lowest = self.lowest.min(low.into());
                // NaN, too, is not finite: what is infinite is looked for only where something is not.
                self.infinite |= !finite && elements.iter().any(|v| v.is_infinite());
                self.finite &= finite;
            }
            Dtype::F16 => self.finite &= all::<f16>(bytemuck::cast_slice(bytes), |v| v.is_finite()),
            Dtype::Bf16 => self.finite &= all::<bf16>(bytemuck::cast_slice(bytes), |v| v.is_finite()),
            Dtype::U8 | Dtype::U16 | Dtype::I64 | Dtype::F64 => {}
        }
        self.len += (bytes.len() / self.dtype.size()) as u64;
    }

    fn add_offsets(&mut self, offsets: &[u64]) {
        let (Some(&first), Some(&last)) = (offsets.first(), offsets.last()) else { return };
        if self.len == 0 {
            self.first = first;
        }
        let ascending = offsets.windows(2).fold(true, |all, pair| all & (pair[0] <= pair[1]));
        self.ascending &= ascending & (self.last <= first);
        self.last = last;
    }
}

/// Whether all elements are good, without a branch for each.
fn all<T>(elements: &[T], good: impl Fn(&T) -> bool) -> bool {
    elements.iter().fold(true, |all, v| all & good(v))
}

#[cfg(test)]
mod tests;
