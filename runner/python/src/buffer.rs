//! Memory that Python's libraries share: numpy by its array interface, torch by DLPack.

use std::any::Any;
use std::ffi::{CStr, c_void};
use std::sync::Arc;

use morphgl_cuda::ExportedArray;
use morphgl_graph_store::Dtype;
use morphgl_registry::Place;
use pyo3::exceptions::{PyBufferError, PyMemoryError, PyRuntimeError, PyTypeError, PyValueError};
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
        Self::U64,
        Self::F64,
        Self { code: 5, bits: 64, typestr: "<c8", name: "complex64" },
        Self { code: 5, bits: 128, typestr: "<c16", name: "complex128" },
        Self { code: 6, bits: 8, typestr: "|b1", name: "bool" },
    ];
    pub(crate) const I32: Self = Self { code: 0, bits: 32, typestr: "<i4", name: "int32" };
    pub(crate) const I64: Self = Self { code: 0, bits: 64, typestr: "<i8", name: "int64" };
    pub(crate) const U32: Self = Self { code: 1, bits: 32, typestr: "<u4", name: "uint32" };
    const U64: Self = Self { code: 1, bits: 64, typestr: "<u8", name: "uint64" };
    const F64: Self = Self { code: 2, bits: 64, typestr: "<f8", name: "float64" };
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

    /// The type of elements of a mini-batch.
    pub(crate) fn of(dtype: Dtype) -> Self {
        match dtype {
            Dtype::F16 => Self::F16,
            Dtype::Bf16 => Self::BF16,
            Dtype::F32 => Self::F32,
            Dtype::F64 => Self::F64,
            Dtype::U8 => Self::U8,
            Dtype::U16 => Self::U16,
            Dtype::U32 => Self::U32,
            Dtype::U64 => Self::U64,
            Dtype::I32 => Self::I32,
            Dtype::I64 => Self::I64,
        }
    }

    /// Bytes of an element.
    pub(crate) fn bytes(self) -> usize {
        usize::from(self.bits / 8)
    }
}

/// A dense array in MorphGL's memory. `torch.from_dlpack` views it without a copy, and `numpy.asarray` where it is in host memory; the
/// memory is kept until the last view is gone.
#[pyclass(frozen, module = "morphgl._morphgl")]
pub(crate) struct Buffer {
    // Invariant: in the memory lie as many elements of `kind` as `shape` says.
    memory: Memory,
    shape: Vec<usize>,
    kind: Kind,
}

#[derive(Clone)]
enum Memory {
    /// From `start` on, in memory of `owner` that does not move.
    Host {
        start: usize,
        read_only: bool,
        _owner: Arc<dyn Any + Send + Sync>,
    },
    Device(ExportedArray),
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
        Self { memory: Memory::Host { start: values.as_ptr() as usize, read_only, _owner: owner }, shape, kind }
    }

    /// An array of a mini-batch on a device.
    pub(crate) fn on_device(array: ExportedArray) -> Self {
        Self { shape: array.shape().to_vec(), kind: Kind::of(array.dtype()), memory: Memory::Device(array) }
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
        let (start, read_only) = match &self.memory {
            Memory::Host { start, read_only, .. } => (*start, *read_only),
            Memory::Device(array) => {
                let what =
                    format!("the array is at {}; give it to torch.from_dlpack, or copy it by to_host()", array.place());
                return Err(PyTypeError::new_err(what));
            }
        };
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("typestr", self.kind.typestr)?;
        interface.set_item("shape", self.shape(py)?)?;
        interface.set_item("data", (start, read_only))?;
        Ok(interface)
    }

    /// The same elements in host memory, copied where they are on a device.
    fn to_host(&self, py: Python<'_>) -> PyResult<Self> {
        let Memory::Device(array) = &self.memory else {
            return Ok(Self { memory: self.memory.clone(), shape: self.shape.clone(), kind: self.kind });
        };
        let bytes = py.detach(|| array.to_bytes()).map_err(|e| PyRuntimeError::new_err(e.to_string()))?;
        let owner = Arc::new(bytes);
        // SAFETY: the owner keeps the elements, which nothing else has.
        Ok(unsafe { Self::new(&owner, self.shape.clone(), self.kind, false, Arc::<Vec<u8>>::clone(&owner)) })
    }

    /// Type and number of the device, as DLPack numbers them.
    fn __dlpack_device__(&self) -> (i32, i32) {
        match &self.memory {
            Memory::Host { .. } => (CPU, 0),
            Memory::Device(array) => match array.place() {
                Place::Device { index, .. } => (CUDA, *index as i32),
                place => unreachable!("an array of a device is at {place}"),
            },
        }
    }

    /// Of an array on a device, work that `stream` is given later waits for the array, and its memory is used again after the work that
    /// the stream has been given when the last view is gone. `stream` is that of the array API's standard for CUDA: None or 1 for the
    /// default stream, 2 for that of the thread, -1 for none, else a stream's address.
    #[pyo3(signature = (*, stream=None, dl_device=None, copy=None, **_others))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<i64>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
        _others: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let device = self.__dlpack_device__();
        let start = match &self.memory {
            Memory::Host { start, .. } => *start as u64,
            Memory::Device(array) => {
                if dl_device.is_some_and(|wanted| wanted != device) || copy == Some(true) {
                    let what = format!(
                        "the array is at {}, where it is viewed without a copy; copy it by to_host()",
                        array.place()
                    );
                    return Err(PyBufferError::new_err(what));
                }
                read_by(array, stream.unwrap_or(DEFAULT_STREAM))?;
                array.address()
            }
        };
        let shape: Box<[i64]> = self.shape.iter().map(|&n| n as i64).collect();
        let tensor = DlTensor {
            data: start as *mut c_void,
            device,
            ndim: shape.len() as i32,
            dtype: (self.kind.code, self.kind.bits, 1),
            shape: shape.as_ptr().cast_mut(),
            // Row-major and contiguous.
            strides: std::ptr::null_mut(),
            byte_offset: 0,
        };
        let managed = DlManagedTensor { tensor, context: std::ptr::null_mut(), deleter: delete };
        let export = Box::into_raw(Box::new(Export { managed, _shape: shape, _memory: self.memory.clone() }));
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

/// Orders a consumer's stream after what made the array.
fn read_by(array: &ExportedArray, stream: i64) -> PyResult<()> {
    let handle = match u64::try_from(stream) {
        Ok(0) => return Err(PyValueError::new_err("stream: 0 may be either default stream; give 1 or 2")),
        Ok(handle) => handle,
        Err(_) if stream == NO_STREAM => return Ok(()),
        Err(_) => return Err(PyValueError::new_err(format!("stream: {stream} is no stream's address, nor -1"))),
    };
    // SAFETY: by DLPack's protocol it is a stream of the consumer's on this device, which outlives its tensors.
    unsafe { array.read_by(handle) }.map_err(|e| PyRuntimeError::new_err(e.to_string()))
}

/// `kDLCPU` and `kDLCUDA` of DLPack.
const CPU: i32 = 1;
const CUDA: i32 = 2;
/// The default stream, and none, as the array API numbers them for CUDA.
const DEFAULT_STREAM: i64 = 1;
const NO_STREAM: i64 = -1;
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
    _memory: Memory,
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
