//! Conversion of feature values from f32 to the stored type.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use morphgl_graph_store::Dtype;

/// A value that cannot be stored, and its index.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unstorable {
    pub(crate) index: usize,
    pub(crate) value: f32,
}

impl Unstorable {
    /// The same value after `values` others.
    pub(crate) fn after(self, values: usize) -> Self {
        Self { index: self.index + values, ..self }
    }
}

/// Encoder of f32 rows into bytes of the stored type.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Encode {
    pub(crate) dim: usize,
    pub(crate) dtype: Dtype,
    pub(crate) normalize: Option<Normalize>,
}

/// Scaling of rows.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Normalize {
    /// By the sum of absolute values.
    Sum,
    /// Less this value, the lowest of all rows; then by the sum, or by 1 where the sum is less.
    FromLowest(f32),
}

impl Normalize {
    /// What the values of `row` are divided by.
    fn divisor(self, row: &[f32]) -> f64 {
        match self {
            Self::Sum => {
                let sum: f64 = row.iter().map(|v| f64::from(v.abs())).sum();
                if sum > 0.0 { sum } else { 1.0 }
            }
            Self::FromLowest(lowest) => row.iter().map(|&v| f64::from(v) - f64::from(lowest)).sum::<f64>().max(1.0),
        }
    }
}

impl Encode {
    /// Fills `out` with whole rows in the stored type; returns the first value that cannot be stored.
    pub(crate) fn values(self, rows: &[f32], out: &mut [u8]) -> Option<Unstorable> {
        // The source's values are checked first: a row with a NaN must not be scaled into a row of NaNs.
        let fault = first(rows, f32::is_finite, |v| v);
        let Some(normalize) = self.normalize.filter(|_| fault.is_none()) else {
            return fault.or_else(|| self.narrow(rows, out));
        };
        let mut scaled = Vec::with_capacity(rows.len());
        for row in rows.chunks(self.dim) {
            let divisor = normalize.divisor(row);
            match normalize {
                Normalize::Sum => scaled.extend(row.iter().map(|&v| (f64::from(v) * (1.0 / divisor)) as f32)),
                Normalize::FromLowest(lowest) => {
                    scaled.extend(row.iter().map(|&v| ((f64::from(v) - f64::from(lowest)) / divisor) as f32));
                }
            }
        }
        self.narrow(&scaled, out)
    }

    /// What each row is divided by; none unless rows are normalised.
    pub(crate) fn sums(self, rows: &[f32]) -> Vec<f32> {
        let Some(normalize) = self.normalize else { return Vec::new() };
        rows.chunks(self.dim).map(|row| normalize.divisor(row) as f32).collect()
    }

    fn narrow(self, values: &[f32], out: &mut [u8]) -> Option<Unstorable> {
        match self.dtype {
            Dtype::F16 => {
                let out: &mut [f16] = bytemuck::cast_slice_mut(out);
                out.convert_from_f32_slice(values);
                infinite(values, out, f16::is_finite)
            }
            Dtype::Bf16 => {
                let out: &mut [bf16] = bytemuck::cast_slice_mut(out);
                out.convert_from_f32_slice(values);
                infinite(values, out, bf16::is_finite)
            }
            Dtype::U8 => {
                out.iter_mut().zip(values).for_each(|(out, &v)| *out = v as u8);
                first(values, |v| f32::from(v as u8) == v, |v| v)
            }
            _ => {
                out.copy_from_slice(bytemuck::cast_slice(values));
                None
            }
        }
    }

    /// The first value that is not finite, of rows that have the stored type already.
    pub(crate) fn stored_fault(self, bytes: &[u8]) -> Option<Unstorable> {
        match self.dtype {
            Dtype::F16 => first(bytemuck::cast_slice(bytes), f16::is_finite, f16::to_f32),
            Dtype::Bf16 => first(bytemuck::cast_slice(bytes), bf16::is_finite, bf16::to_f32),
            Dtype::U8 => None,
            _ => first(bytemuck::cast_slice(bytes), f32::is_finite, |v| v),
        }
    }
}

/// The first value that is not `good`; the search for its index begins only where there is one.
fn first<T: Copy>(values: &[T], good: impl Fn(T) -> bool, value: impl Fn(T) -> f32) -> Option<Unstorable> {
    if values.iter().fold(true, |all, &v| all & good(v)) {
        return None;
    }
    values.iter().position(|&v| !good(v)).map(|index| Unstorable { index, value: value(values[index]) })
}

/// The first finite value that is not finite once narrowed.
fn infinite<T: Copy>(values: &[f32], narrow: &[T], finite: impl Fn(T) -> bool) -> Option<Unstorable> {
    first(narrow, finite, |_| 0.0).map(|fault| Unstorable { value: values[fault.index], ..fault })
}
