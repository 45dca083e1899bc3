//! Arrays of numpy, read where they lie.

use std::ptr::NonNull;
use std::sync::Arc;

use morphgl_graph_store::{Array, Dtype, Element};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// How numpy writes an element type; bf16, which it lacks, is a view as uint16.
fn typestr(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::U8 => "|u1",
        Dtype::U16 => "<u2",
        Dtype::I64 => "<i8",
        Dtype::F16 => "<f2",
        Dtype::Bf16 => "<u2",
        Dtype::F32 => "<f4",
        Dtype::I32 => "<i4",
        Dtype::U32 => "<u4",
        Dtype::U64 => "<u8",
        _ => "another type",
    }
}

/// The elements of a contiguous numpy array of exactly the type `T`, which is kept alive and not copied. The package's Python
/// part has brought it into this form; `name` names it in errors.
pub(crate) fn borrowed<T: Element>(name: &str, array: &Bound<'_, PyAny>) -> PyResult<Array<T>> {
    let interface = array.getattr("__array_interface__")?.cast_into::<PyDict>()?;
    let field = |key: &str| {
        interface
            .get_item(key)?
            .ok_or_else(|| PyValueError::new_err(format!("{name}: no {key} in its array interface")))
    };
    let found: String = field("typestr")?.extract()?;
    let contiguous = interface.get_item("strides")?.is_none_or(|strides| strides.is_none());
    let shape: Vec<usize> = field("shape")?.extract()?;
    let (address, _): (usize, bool) = field("data")?.extract()?;
    if found != typestr(T::DTYPE) || !contiguous {
        let what = format!("{name}: a contiguous array of {} is needed, this is one of {found}", T::DTYPE);
        return Err(PyValueError::new_err(what));
    }
    let len = shape.iter().product();
    let Some(start) = NonNull::new(address as *mut T).filter(|_| len > 0) else { return Ok(Vec::new().into()) };
    let owner: Arc<Py<PyAny>> = Arc::new(array.clone().unbind());
    // SAFETY: numpy's interface describes `len` contiguous elements of this type, alive as long as the array, which is not
    // resized while it is referenced. `Graph`'s documentation forbids to write to it.
    let array = unsafe { Array::from_foreign(start, len, owner) };
    array.ok_or_else(|| PyValueError::new_err(format!("{name}: the elements are misaligned; pass a copy of the array")))
}
