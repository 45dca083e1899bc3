//! Memory that Python's libraries share: numpy by its array interface, torch by DLPack.

use std::any::Any;
use std::ffi::{CStr, c_void};
use std::sync::Arc;

use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// Element types, as DLPack numbers them and numpy writes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind {
    code: u8,
    bits: u8,
    typestr: &'static str,
    name: &'static str,
}

impl Kind {
    /// Types of numbers by torch's names.
    const ALL: [Self; 15] = [
        Self::I32,
        Self::I64,
        Self::U32,
        Self::U8,
        Self::F16,
        Self::F32,
        Self::BF16,
        Self { code: 0, bits: 8, typestr: "|i1", name: "int8" },
        Self { code: 0, bits: 16, typestr: "<i2", name: "int16" },
        Self::U16,
        Self { code: 1, bits: 64, typestr: "<u8", name: "uint64" },
        Self { code: 2, bits: 64, typestr: "<f8", name: "float64" },
        Self { code: 5, bits: 64, typestr: "<c8", name: "complex64" },
        Self { code: 5, bits: 128, typestr: "<c16", name: "complex128" },
        Self { code: 6, bits: 8, typestr: "|b1", name: "bool" },
    ];
    pub(crate) const I32: Self = Self { code: 0, bits: 32, typestr: "<i4", name: "int32" };
    pub(crate) const I64: Self = Self { code: 0, bits: 64, typestr: "<i8", name: "int64" };
    pub(crate) const U32: Self = Self { code: 1, bits: 32, typestr: "<u4", name: "uint32" };
    pub(crate) const U16: Self = Self { code: 1, bits: 16, typestr: "<u2", name: "uint16" };
    pub(crate) const U8: Self = Self { code: 1, bits: 8, typestr: "|u1", name: "uint8" };
    pub(crate) const F16: Self = Self { code: 2, bits: 16, typestr: "<f2", name: "float16" };
    pub(crate) const F32: Self = Self { code: 2, bits: 32, typestr: "<f4", name: "float32" };
    /// numpy has no type for it and sees its bits.
    pub(crate) const BF16: Self = Self { code: 4, bits: 16, typestr: "<u2", name: "bfloat16" };

    /// The type of torch's name, if its rows can be copied by their bytes.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name == name)
    }

    /// Bytes of an element.
    pub(crate) fn bytes(self) -> usize {
        usize::from(self.bits / 8)
    }
}

/// A dense array in MorphGL's memory. `numpy.asarray` and `torch.from_dlpack` view it without a copy; the memory is kept until the
/// last view is gone.
#[pyclass(frozen, module = "morphgl._morphgl")]
pub(crate) struct Buffer {
    // Invariant: from `start` on lie as many elements of `kind` as `shape` says, in memory of `owner` that does not move.
    start: usize,
    shape: Vec<usize>,
    kind: Kind,
    read_only: bool,
    owner: Arc<dyn Any + Send + Sync>,
}

impl Buffer {
    /// The elements `values` within `owner`. Memory that others read, too, is `read_only`.
    ///
    /// # Safety
    ///
    /// `values` lies in memory that `owner` keeps and does not move, and is as many elements as `shape` says. Nothing in Rust reads
    /// or writes it while `owner` lives, unless it is `read_only`.
    pub(crate) unsafe fn new(
        values: &[u8],
        shape: Vec<usize>,
        kind: Kind,
        read_only: bool,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        assert_eq!(values.len(), shape.iter().product::<usize>() * usize::from(kind.bits / 8), "bytes of the shape");
        Self { start: values.as_ptr() as usize, shape, kind, read_only, owner }
    }
}

#[pymethods]
impl Buffer {
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    #[getter]
    fn dtype(&self) -> &'static str {
        self.kind.name
    }

    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("typestr", self.kind.typestr)?;
        interface.set_item("shape", self.shape(py)?)?;
        interface.set_item("data", (self.start, self.read_only))?;
        Ok(interface)
    }

    /// The CPU, device 0.
    fn __dlpack_device__(&self) -> (i32, i32) {
        (CPU, 0)
    }

    #[pyo3(signature = (**_options))]
    fn __dlpack__<'py>(&self, py: Python<'py>, _options: Option<&Bound<'py, PyDict>>) -> PyResult<Bound<'py, PyAny>> {
        let shape: Box<[i64]> = self.shape.iter().map(|&n| n as i64).collect();
        let tensor = DlTensor {
            data: self.start as *mut c_void,
            device: (CPU, 0),
            ndim: shape.len() as i32,
            dtype: (self.kind.code, self.kind.bits, 1),
            shape: shape.as_ptr().cast_mut(),
            // Row-major and contiguous.
            strides: std::ptr::null_mut(),
            byte_offset: 0,
        };
        let managed = DlManagedTensor { tensor, context: std::ptr::null_mut(), deleter: delete };
        let export = Box::into_raw(Box::new(Export { managed, _shape: shape, _owner: Arc::clone(&self.owner) }));
        // SAFETY: the name is static, and the capsule's destructor or the consumer frees the export, once.
        unsafe {
            let capsule = pyo3::ffi::PyCapsule_New(export.cast(), UNUSED.as_ptr(), Some(drop_capsule));
            if capsule.is_null() {
                drop(Box::from_raw(export));
                return Err(PyMemoryError::new_err("no memory for a DLPack capsule"));
            }
            Ok(Bound::from_owned_ptr(py, capsule))
        }
    }
}

/// `kDLCPU` of DLPack.
const CPU: i32 = 1;
/// The name of a capsule that no library has taken over.
const UNUSED: &CStr = c"dltensor";

/// `DLTensor` of DLPack's C interface, before version 1.0's read-only flag.
#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device: (i32, i32),
    ndim: i32,
    dtype: (u8, u8, u16),
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// `DLManagedTensor` of DLPack.
#[repr(C)]
struct DlManagedTensor {
    tensor: DlTensor,
    context: *mut c_void,
    deleter: unsafe extern "C" fn(*mut DlManagedTensor),
}

/// What a library that takes a tensor over keeps, until it calls the deleter with its address.
#[repr(C)]
struct Export {
    managed: DlManagedTensor,
    _shape: Box<[i64]>,
    _owner: Arc<dyn Any + Send + Sync>,
}

unsafe extern "C" fn delete(managed: *mut DlManagedTensor) {
    // SAFETY: it is the first field of an export, whose address `Box::into_raw` gave; libraries call this once.
    drop(unsafe { Box::from_raw(managed.cast::<Export>()) });
}

unsafe extern "C" fn drop_capsule(capsule: *mut pyo3::ffi::PyObject) {
    // SAFETY: called by Python with a capsule of ours; one that was taken over has another name.
    unsafe {
        if pyo3::ffi::PyCapsule_IsValid(capsule, UNUSED.as_ptr()) == 1 {
            delete(pyo3::ffi::PyCapsule_GetPointer(capsule, UNUSED.as_ptr()).cast());
        }
    }
}
