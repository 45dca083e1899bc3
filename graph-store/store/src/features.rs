//! Node features: a dense row-major matrix that keeps the type it was stored with.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use crate::{Access, Array, Dtype};

/// A `[num_rows, dim]` matrix in one of the feature types.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "each variant is the type of its name")]
pub enum FeatureMatrix {
    F32 { data: Array<f32>, dim: usize },
    F16 { data: Array<f16>, dim: usize },
    Bf16 { data: Array<bf16>, dim: usize },
    U8 { data: Array<u8>, dim: usize },
}

/// Borrowed elements of a feature matrix.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs, reason = "each variant is the type of its name")]
pub enum FeatureView<'a> {
    F32(&'a [f32]),
    F16(&'a [f16]),
    Bf16(&'a [bf16]),
    U8(&'a [u8]),
}

impl FeatureMatrix {
    /// Values a row has.
    pub fn dim(&self) -> usize {
        match self {
            Self::F32 { dim, .. } | Self::F16 { dim, .. } | Self::Bf16 { dim, .. } | Self::U8 { dim, .. } => *dim,
        }
    }

    /// Number of rows.
    pub fn num_rows(&self) -> usize {
        self.view().len().checked_div(self.dim()).unwrap_or(0)
    }

    /// Stored type.
    pub fn dtype(&self) -> Dtype {
        match self {
            Self::F32 { .. } => Dtype::F32,
            Self::F16 { .. } => Dtype::F16,
            Self::Bf16 { .. } => Dtype::Bf16,
            Self::U8 { .. } => Dtype::U8,
        }
    }

    /// Bytes of one row.
    pub fn row_bytes(&self) -> usize {
        self.dim() * self.dtype().size()
    }

    /// All elements, row after row.
    pub fn view(&self) -> FeatureView<'_> {
        match self {
            Self::F32 { data, .. } => FeatureView::F32(data),
            Self::F16 { data, .. } => FeatureView::F16(data),
            Self::Bf16 { data, .. } => FeatureView::Bf16(data),
            Self::U8 { data, .. } => FeatureView::U8(data),
        }
    }

    /// Elements of `rows`, consecutive rows.
    pub fn rows(&self, rows: std::ops::Range<usize>) -> FeatureView<'_> {
        let range = rows.start * self.dim()..rows.end * self.dim();
        match self {
            Self::F32 { data, .. } => FeatureView::F32(&data[range]),
            Self::F16 { data, .. } => FeatureView::F16(&data[range]),
            Self::Bf16 { data, .. } => FeatureView::Bf16(&data[range]),
            Self::U8 { data, .. } => FeatureView::U8(&data[range]),
        }
    }

    /// Tells the system how the rows will be read, where they lie in a mapped file.
    pub fn advise(&self, access: Access) {
        match self {
            Self::F32 { data, .. } => data.advise(access),
            Self::F16 { data, .. } => data.advise(access),
            Self::Bf16 { data, .. } => data.advise(access),
            Self::U8 { data, .. } => data.advise(access),
        }
    }
}

impl<'a> FeatureView<'a> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::F32(d) => d.len(),
            Self::F16(d) => d.len(),
            Self::Bf16(d) => d.len(),
            Self::U8(d) => d.len(),
        }
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements as bytes, as they lie in memory.
    pub fn as_bytes(&self) -> &'a [u8] {
        match self {
            Self::F32(d) => bytemuck::cast_slice(d),
            Self::F16(d) => bytemuck::cast_slice(d),
            Self::Bf16(d) => bytemuck::cast_slice(d),
            Self::U8(d) => d,
        }
    }

    /// Widens every element into `out`, which has as many.
    ///
    /// # Panics
    ///
    /// When the lengths differ.
    pub fn to_f32(&self, out: &mut [f32]) {
        assert_eq!(self.len(), out.len(), "elements to widen and room for them");
        match self {
            Self::F32(d) => out.copy_from_slice(d),
            Self::F16(d) => d.convert_to_f32_slice(out),
            Self::Bf16(d) => d.convert_to_f32_slice(out),
            Self::U8(d) => out.iter_mut().zip(*d).for_each(|(o, &v)| *o = f32::from(v)),
        }
    }
}
