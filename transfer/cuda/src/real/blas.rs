//! GEMM by cuBLAS.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::c_int;
use std::sync::{Mutex, OnceLock};

use cudarc::cublas::sys::{self, cublasMath_t, cublasOperation_t};
use cudarc::driver::sys::CUdeviceptr;

use super::api::{Cublas, Cuda};
use crate::driver::{Failure, Gemm, Id, Outcome, Precision};
use crate::library::{self, call};
use crate::lock::lock;

/// Bytes of the workspace of a handle. The size NVIDIA recommends for Hopper; with less, small GEMMs of great depth are not split along the depth.
const WORKSPACE: usize = 32 << 20;

/// File names of cuBLAS, the latest version first; the functions called here are the same in both.
const NAMES: [&str; 2] = ["libcublas.so.13", "libcublas.so.12"];

/// The library that `MORPHGL_CUBLAS` names, else the one on the loader's path; loaded once.
fn library() -> Outcome<&'static Cublas> {
    static LIBRARY: OnceLock<Result<Cublas, String>> = OnceLock::new();
    let load = || {
        // SAFETY: the library is NVIDIA's, or one that the user names to be run.
        let library = unsafe { library::find("MORPHGL_CUBLAS", &NAMES, "libcublasLt.so", "nvidia-cublas") };
        let library = library.map_err(|why| format!("GEMM needs cuBLAS: {why}"))?;
        Cublas::load(library).map_err(|name| format!("libcublas is too old: it has no {name}"))
    };
    LIBRARY.get_or_init(load).as_ref().map_err(|message| Failure::new("cublasCreate_v2", message))
}

#[derive(Debug)]
struct Handle {
    handle: sys::cublasHandle_t,
    workspace: CUdeviceptr,
}

// SAFETY: a handle may be used by one thread at a time: it is used under the lock only.
unsafe impl Send for Handle {}

/// cuBLAS handles by stream. The device's context is current in every call.
#[derive(Debug, Default)]
pub(super) struct Blas(Mutex<HashMap<Id, Handle>>);

impl Blas {
    /// Creates the stream's cuBLAS handle, if there is none, and sets its math mode.
    pub(super) fn prepare(&self, cuda: &Cuda, stream: Id, precision: Precision) -> Outcome<()> {
        let mut handles = lock(&self.0);
        let handle = match handles.entry(stream) {
            Entry::Occupied(occupied) => occupied.into_mut(),
            Entry::Vacant(vacant) => vacant.insert(create(cuda, stream)?),
        };
        let mode = match precision {
            Precision::F32 => cublasMath_t::CUBLAS_DEFAULT_MATH,
            Precision::Tf32 => cublasMath_t::CUBLAS_TF32_TENSOR_OP_MATH,
        };
        // SAFETY: the handle exists, and is used under the lock alone.
        unsafe { call!(library()?, cublasSetMathMode(handle.handle, mode)) }
    }

    pub(super) fn is_prepared(&self, stream: Id) -> bool {
        lock(&self.0).contains_key(&stream)
    }

    /// Destroys the stream's handle; its work is done.
    pub(super) fn forget(&self, cuda: &Cuda, stream: Id) {
        let handle = lock(&self.0).remove(&stream);
        if let (Some(handle), Ok(blas)) = (handle, library()) {
            destroy(cuda, blas, &handle);
        }
    }

    /// # Safety
    ///
    /// The matrices are valid until the GEMM is done.
    pub(super) unsafe fn multiply(&self, stream: Id, gemm: &Gemm) -> Outcome<()> {
        let int = |n: usize| {
            let message = || format!("a matrix of {n} rows or columns is beyond cuBLAS, which takes 2^31 - 1");
            c_int::try_from(n).map_err(|_| Failure::new("cublasSgemm_v2", message()))
        };
        let blas = library()?;
        let handles = lock(&self.0);
        let handle = handles.get(&stream).expect("the stream was prepared").handle;
        let operation =
            |transpose| if transpose { cublasOperation_t::CUBLAS_OP_T } else { cublasOperation_t::CUBLAS_OP_N };
        let [ta, tb] = gemm.transpose.map(operation);
        let [lda, ldb, ldout] = gemm.strides;
        // cuBLAS is column-major: row-major matrices appear transposed, and (ab)ᵀ = bᵀaᵀ.
        // SAFETY: the caller's promise; alpha and beta are read before the call returns.
        unsafe {
            call!(
                blas,
                cublasSgemm_v2(
                    handle,
                    tb,
                    ta,
                    int(gemm.n)?,
                    int(gemm.m)?,
                    int(gemm.k)?,
                    &gemm.alpha,
                    gemm.b as *const f32,
                    int(ldb)?,
                    gemm.a as *const f32,
                    int(lda)?,
                    &gemm.beta,
                    gemm.out as *mut f32,
                    int(ldout)?,
                )
            )
        }
    }
}

fn create(cuda: &Cuda, stream: Id) -> Outcome<Handle> {
    let blas = library()?;
    let mut created = Handle { handle: std::ptr::null_mut(), workspace: 0 };
    // SAFETY: it writes a handle.
    unsafe { call!(blas, cublasCreate_v2(&mut created.handle)) }?;
    // SAFETY: the stream belongs to this context; the workspace outlives the handle. Setting a stream resets the workspace,
    // so it comes first.
    let set = unsafe {
        call!(blas, cublasSetStream_v2(created.handle, stream as usize as sys::cudaStream_t))
            .and_then(|()| call!(cuda, cuMemAlloc_v2(&mut created.workspace, WORKSPACE)))
            .and_then(|()| {
                call!(blas, cublasSetWorkspace_v2(created.handle, created.workspace as usize as *mut _, WORKSPACE))
            })
    };
    set.inspect_err(|_| destroy(cuda, blas, &created))?;
    Ok(created)
}

fn destroy(cuda: &Cuda, blas: &Cublas, handle: &Handle) {
    // A failure means a lost device, whose memory is gone as well.
    // SAFETY: nothing uses the handle any more, nor its memory.
    let _ = unsafe { call!(blas, cublasDestroy_v2(handle.handle)) };
    if handle.workspace != 0 {
        // SAFETY: as above.
        let _ = unsafe { call!(cuda, cuMemFree_v2(handle.workspace)) };
    }
}
