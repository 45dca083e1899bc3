//! GEMM by cuBLAS.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::{OsString, c_int};
use std::sync::{Mutex, OnceLock};

use cudarc::cublas::sys::{self, cublasMath_t, cublasOperation_t};
use cudarc::driver::sys::CUdeviceptr;

use super::api::{Cublas, Cuda};
use crate::driver::{Failure, Id, Outcome, Precision, Product};
use crate::library::{self, call};
use crate::lock::lock;

/// Bytes of the workspace of a handle, owned so that a captured GEMM allocates none. The size NVIDIA recommends for Hopper;
/// with less, small GEMMs of great depth are not split along the depth.
const WORKSPACE: usize = 32 << 20;

/// File names of cuBLAS, the latest version first; the functions called here are the same in both.
const NAMES: [&str; 2] =
    if cfg!(windows) { ["cublas64_13.dll", "cublas64_12.dll"] } else { ["libcublas.so.13", "libcublas.so.12"] };

/// The library that `MORPHGL_CUBLAS` names, else the one on the loader's path; loaded once.
fn library() -> Outcome<&'static Cublas> {
    static LIBRARY: OnceLock<Result<Cublas, String>> = OnceLock::new();
    let look = || {
        let asked = std::env::var_os("MORPHGL_CUBLAS");
        let names = asked.clone().map_or(NAMES.map(OsString::from).to_vec(), |path| vec![path]);
        // SAFETY: the library is NVIDIA's, and loading it does no more than any other library's start.
        let Some(library) = names.iter().find_map(|name| unsafe { library::load(name, "libcublasLt.so") }.ok()) else {
            return Err(match asked {
                Some(path) => format!("MORPHGL_CUBLAS names {}, which the loader does not load", path.display()),
                None => format!(
                    "matrix products need {}, which the loader does not find; install it (the CUDA toolkit, or pip \
                     install nvidia-cublas) and put its folder on LD_LIBRARY_PATH, or its path in MORPHGL_CUBLAS",
                    NAMES.join(" or ")
                ),
            });
        };
        // It stays loaded: handles live as long as the process.
        let library = Box::leak(Box::new(library));
        Cublas::load(library).map_err(|name| format!("libcublas is too old: it has no {name}"))
    };
    let failure = |what: &String| Failure { call: "cublasCreate_v2", what: what.clone(), memory: false };
    LIBRARY.get_or_init(look).as_ref().map_err(failure)
}

struct Handle {
    handle: sys::cublasHandle_t,
    workspace: CUdeviceptr,
}

// SAFETY: a handle may be used by one thread at a time: it is used under the lock only.
unsafe impl Send for Handle {}

/// cuBLAS handles by stream. The device's context is current in every call.
#[derive(Default)]
pub(super) struct Blas(Mutex<HashMap<Id, Handle>>);

impl std::fmt::Debug for Blas {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Blas")
    }
}

impl Blas {
    /// Creates the stream's cuBLAS handle, if there is none, and sets its math mode.
    pub(super) fn prepare(&self, cuda: &Cuda, stream: Id, precision: Precision) -> Outcome<()> {
        let mut handles = lock(&self.0);
        let handle = match handles.entry(stream) {
            Entry::Occupied(made) => made.into_mut(),
            Entry::Vacant(vacant) => vacant.insert(make(cuda, stream)?),
        };
        let mode = match precision {
            Precision::F32 => cublasMath_t::CUBLAS_DEFAULT_MATH,
            Precision::Tf32 => cublasMath_t::CUBLAS_TF32_TENSOR_OP_MATH,
        };
        // SAFETY: the handle was made above or before, and is used under the lock alone.
        unsafe { call!(library()?, cublasSetMathMode(handle.handle, mode)) }
    }

    /// Whether the stream has a handle.
    pub(super) fn is_prepared(&self, stream: Id) -> bool {
        lock(&self.0).contains_key(&stream)
    }

    /// Destroys the stream's handle; its work is done.
    pub(super) fn forget(&self, cuda: &Cuda, stream: Id) {
        let handle = lock(&self.0).remove(&stream);
        if let (Some(handle), Ok(blas)) = (handle, library()) {
            unmake(cuda, blas, &handle);
        }
    }

    /// # Safety
    ///
    /// The matrices are valid until the stream has done it.
    pub(super) unsafe fn multiply(&self, stream: Id, p: &Product) -> Outcome<()> {
        let int = |n: usize| {
            let what = || format!("a matrix of {n} rows or columns is beyond cuBLAS, which takes 2^31 - 1");
            c_int::try_from(n).map_err(|_| Failure { call: "cublasSgemm_v2", what: what(), memory: false })
        };
        let blas = library()?;
        let handles = lock(&self.0);
        let handle = handles.get(&stream).expect("it was prepared").handle;
        let operation =
            |transpose| if transpose { cublasOperation_t::CUBLAS_OP_T } else { cublasOperation_t::CUBLAS_OP_N };
        let [ta, tb] = p.transpose.map(operation);
        let [sa, sb, sout] = p.strides;
        // cuBLAS is column-major: row-major matrices appear transposed, and (ab)ᵀ = bᵀaᵀ.
        // SAFETY: the caller's promise; alpha and beta are read before the call returns.
        unsafe {
            call!(
                blas,
                cublasSgemm_v2(
                    handle,
                    tb,
                    ta,
                    int(p.n)?,
                    int(p.m)?,
                    int(p.k)?,
                    &p.alpha,
                    p.b as *const f32,
                    int(sb)?,
                    p.a as *const f32,
                    int(sa)?,
                    &p.beta,
                    p.out as *mut f32,
                    int(sout)?,
                )
            )
        }
    }
}

fn make(cuda: &Cuda, stream: Id) -> Outcome<Handle> {
    let blas = library()?;
    let mut made = Handle { handle: std::ptr::null_mut(), workspace: 0 };
    // SAFETY: it writes a handle.
    unsafe { call!(blas, cublasCreate_v2(&mut made.handle)) }?;
    // SAFETY: the stream belongs to this context; the workspace outlives the handle. Setting a stream resets the workspace,
    // so it comes first.
    let set = unsafe {
        call!(blas, cublasSetStream_v2(made.handle, stream as usize as sys::cudaStream_t))
            .and_then(|()| call!(cuda, cuMemAlloc_v2(&mut made.workspace, WORKSPACE)))
            .and_then(|()| {
                call!(blas, cublasSetWorkspace_v2(made.handle, made.workspace as usize as *mut _, WORKSPACE))
            })
    };
    if let Err(failure) = set {
        unmake(cuda, blas, &made);
        return Err(failure);
    }
    Ok(made)
}

fn unmake(cuda: &Cuda, blas: &Cublas, handle: &Handle) {
    // A failure means a lost device, whose memory is gone as well.
    // SAFETY: nothing uses the handle any more, nor its memory.
    let _ = unsafe { call!(blas, cublasDestroy_v2(handle.handle)) };
    if handle.workspace != 0 {
        // SAFETY: as above.
        let _ = unsafe { call!(cuda, cuMemFree_v2(handle.workspace)) };
    }
}
