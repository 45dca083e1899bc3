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

/// Evaluates `$result` with `$data` and `$dim` of a matrix of any element type.
macro_rules! with_data {
    ($matrix:expr, |$data:ident, $dim:ident| $result:expr) => {
        match $matrix {
            FeatureMatrix::F32 { data: $data, dim: $dim } => $result,
            FeatureMatrix::F16 { data: $data, dim: $dim } => $result,
            FeatureMatrix::Bf16 { data: $data, dim: $dim } => $result,
            FeatureMatrix::U8 { data: $data, dim: $dim } => $result,
        }
    };
}

/// Evaluates `$result` with the elements of a view of any element type.
macro_rules! with_elements {
    ($view:expr, |$elements:ident| $result:expr) => {
        match $view {
            FeatureView::F32($elements) => $result,
            FeatureView::F16($elements) => $result,
            FeatureView::Bf16($elements) => $result,
            FeatureView::U8($elements) => $result,
        }
    };
}

impl FeatureMatrix {
    /// Number of columns.
    pub fn dim(&self) -> usize {
        with_data!(self, |_data, dim| *dim)
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

    /// Elements of consecutive rows.
    pub fn rows(&self, rows: std::ops::Range<usize>) -> FeatureView<'_> {
        self.view().part(rows.start * self.dim(), rows.len() * self.dim())
    }

    /// Gives the pages of a mapped file back, as [`Array::release`] does.
    pub fn release(&self) {
        with_data!(self, |data, _dim| data.release());
    }

    /// Advises the system how the rows of a mapped file will be read.
    pub fn advise(&self, access: Access) {
        with_data!(self, |data, _dim| data.advise(access));
    }
}

impl<'a> FeatureView<'a> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        with_elements!(self, |elements| elements.len())
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of the elements in memory.
    pub fn as_bytes(&self) -> &'a [u8] {
        with_elements!(self, |elements| bytemuck::cast_slice(elements))
    }

    /// Widens every element into `out`, of the same length.
    ///
    /// # Panics
    ///
    /// When the lengths differ.
    pub fn to_f32(&self, out: &mut [f32]) {
        assert_eq!(self.len(), out.len(), "length of the input and of the output");
        match self {
            Self::F32(d) => out.copy_from_slice(d),
            Self::F16(d) => d.convert_to_f32_slice(out),
            Self::Bf16(d) => d.convert_to_f32_slice(out),
            Self::U8(d) => out.iter_mut().zip(*d).for_each(|(o, &v)| *o = f32::from(v)),
        }
    }
}
