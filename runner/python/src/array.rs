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
    let Interface { typestr: found, contiguous, shape, address } = Interface::of(name, array)?;
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

/// The bytes of a contiguous array of any type, with at least one dimension.
pub(crate) struct Rows {
    /// The elements, row after row.
    pub(crate) bytes: Array<u8>,
    pub(crate) shape: Vec<usize>,
}

/// The bytes of a contiguous numpy array of elements of so many bytes, which is kept alive and not copied.
pub(crate) fn rows_of(name: &str, array: &Bound<'_, PyAny>, element: usize) -> PyResult<Rows> {
    let Interface { typestr, contiguous, shape, address } = Interface::of(name, array)?;
    // A byte order, a kind, and the bytes of an element.
    let found = typestr.get(2..).and_then(|bytes| bytes.parse::<usize>().ok());
    if found != Some(element) || !contiguous || shape.is_empty() || typestr.starts_with('>') {
        let what =
            format!("{name}: a contiguous array of elements of {element} bytes is needed, this is one of {typestr}");
        return Err(PyValueError::new_err(what));
    }
    let len = element * shape.iter().product::<usize>();
    let Some(start) = NonNull::new(address as *mut u8).filter(|_| len > 0) else {
        return Ok(Rows { bytes: Vec::new().into(), shape });
    };
    let owner: Arc<Py<PyAny>> = Arc::new(array.clone().unbind());
    // SAFETY: numpy's interface describes `len` contiguous bytes, alive as long as the array, which is not resized while it is
    // referenced. They are read within one call, before the caller may write to them.
    let bytes = unsafe { Array::from_foreign(start, len, owner) }.expect("bytes are aligned everywhere");
    Ok(Rows { bytes, shape })
}

/// What numpy's array interface says of an array.
struct Interface {
    typestr: String,
    contiguous: bool,
    shape: Vec<usize>,
    address: usize,
}

impl Interface {
    fn of(name: &str, array: &Bound<'_, PyAny>) -> PyResult<Self> {
        let interface = array.getattr("__array_interface__")?.cast_into::<PyDict>()?;
        let field = |key: &str| {
            interface
                .get_item(key)?
                .ok_or_else(|| PyValueError::new_err(format!("{name}: no {key} in its array interface")))
        };
        let contiguous = interface.get_item("strides")?.is_none_or(|strides| strides.is_none());
        let (address, _): (usize, bool) = field("data")?.extract()?;
        Ok(Self { typestr: field("typestr")?.extract()?, contiguous, shape: field("shape")?.extract()?, address })
    }
}
