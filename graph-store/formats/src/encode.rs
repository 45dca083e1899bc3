//! Conversion of feature values from f32 to the stored type.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use morphgl_graph_store::Dtype;

/// A value that cannot be stored, and its index.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bad {
    pub(crate) at: usize,
    pub(crate) value: f32,
}

impl Bad {
    pub(crate) fn after(self, values: usize) -> Self {
        Self { at: self.at + values, ..self }
    }
}

/// Encoder of f32 rows into bytes of the stored type.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Encode {
    pub(crate) dim: usize,
    pub(crate) dtype: Dtype,
    pub(crate) normalize: bool,
}

impl Encode {
    /// Fills `out` with whole rows in the stored type; the first value that cannot be stored.
    pub(crate) fn values(self, rows: &[f32], out: &mut [u8]) -> Option<Bad> {
        // The source's values are checked first: a row with a NaN must not be scaled into a row of NaNs.
        if let Some(bad) = first(rows, |v| v.is_finite(), |v| v) {
            return Some(bad);
        }
        if !self.normalize {
            return self.narrow(rows, out);
        }
        let mut scaled = Vec::with_capacity(rows.len());
        for row in rows.chunks(self.dim) {
            let sum: f64 = row.iter().map(|v| f64::from(v.abs())).sum();
            let scale = if sum > 0.0 { 1.0 / sum } else { 1.0 };
            scaled.extend(row.iter().map(|&v| (f64::from(v) * scale) as f32));
        }
        self.narrow(&scaled, out)
    }

    fn narrow(self, values: &[f32], out: &mut [u8]) -> Option<Bad> {
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

    /// The first value of rows that are in the stored type already and that is not finite.
    pub(crate) fn bad_bytes(self, bytes: &[u8]) -> Option<Bad> {
        match self.dtype {
            Dtype::F16 => first(bytemuck::cast_slice(bytes), f16::is_finite, f16::to_f32),
            Dtype::Bf16 => first(bytemuck::cast_slice(bytes), bf16::is_finite, bf16::to_f32),
            Dtype::U8 => None,
            _ => first(bytemuck::cast_slice(bytes), f32::is_finite, |v| v),
        }
    }
}

/// The first value that is not `good`: looked for only where there is one.
fn first<T: Copy>(values: &[T], good: impl Fn(T) -> bool, value: impl Fn(T) -> f32) -> Option<Bad> {
    if values.iter().fold(true, |all, &v| all & good(v)) {
        return None;
    }
    values.iter().position(|&v| !good(v)).map(|at| Bad { at, value: value(values[at]) })
}

/// The first finite value that is none any more once narrowed.
fn infinite<T: Copy>(values: &[f32], narrow: &[T], finite: impl Fn(T) -> bool) -> Option<Bad> {
    first(narrow, finite, |_| 0.0).map(|bad| Bad { value: values[bad.at], ..bad })
}
