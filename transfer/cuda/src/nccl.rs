//! Function table of libnccl, loaded on first use.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use cudarc::nccl::sys::{self, ncclComm_t, ncclDataType_t, ncclResult_t};
use libloading::Library;

use crate::driver::{Failure, Outcome};
use crate::library::{self, call, functions};

functions! {
    /// The functions that a [`crate::Communicator`] calls.
    Nccl of sys -> ncclResult_t, Failure by describe {
        fn ncclGetVersion(*mut c_int);
        fn ncclCommInitAll(*mut ncclComm_t, c_int, *const c_int);
        fn ncclCommDestroy(ncclComm_t);
        fn ncclCommAbort(ncclComm_t);
        fn ncclCommGetAsyncError(ncclComm_t, *mut ncclResult_t);
        fn ncclGroupStart();
        fn ncclGroupEnd();
        fn ncclSend(*const c_void, usize, ncclDataType_t, c_int, ncclComm_t, sys::cudaStream_t);
        fn ncclRecv(*mut c_void, usize, ncclDataType_t, c_int, ncclComm_t, sys::cudaStream_t);
        fn ncclAllGather(*const c_void, *mut c_void, usize, ncclDataType_t, ncclComm_t, sys::cudaStream_t);
    }
}

static LIBRARY: OnceLock<Result<(&'static Library, Nccl), String>> = OnceLock::new();

/// The library that `MORPHGL_NCCL` names, else the one on the loader's path; loaded once.
pub(crate) fn nccl() -> Outcome<&'static Nccl> {
    let load = || {
        // SAFETY: the library is NVIDIA's, or one that the user names to be run.
        let library = unsafe { library::find("MORPHGL_NCCL", &["libnccl.so.2"], "libcudart.so", "nvidia-nccl-cu12") }?;
        let nccl = Nccl::load(library).map_err(|name| format!("libnccl is too old: it has no {name}"))?;
        Ok((library, nccl))
    };
    let loaded = LIBRARY.get_or_init(load).as_ref();
    loaded.map(|(_, nccl)| nccl).map_err(|message| Failure::new("ncclGetVersion", message))
}

impl Nccl {
    /// Its version, as in 2.21.5.
    pub(crate) fn version(&self) -> Outcome<String> {
        let mut version = 0;
        // SAFETY: it writes a number.
        unsafe { call!(self, ncclGetVersion(&mut version)) }?;
        Ok(format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100))
    }
}

/// Describes a status by NCCL's text for it, and by its last error message, where there is one.
fn describe(call: &'static str, status: u32) -> Failure {
    let Some(Ok((library, _))) = LIBRARY.get() else { return Failure::new(call, format!("status {status}")) };
    let text = |pointer: *const c_char| {
        // SAFETY: the library returns a string that ends with zero, or null.
        (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned())
    };
    // SAFETY: the signature is that of its header, the enum as a number.
    let named = unsafe { library.get::<unsafe extern "C" fn(u32) -> *const c_char>("ncclGetErrorString") };
    // SAFETY: it takes any number.
    let named = named.ok().and_then(|function| text(unsafe { function(status) }));
    // SAFETY: the signature is that of its header.
    let last = unsafe { library.get::<unsafe extern "C" fn(ncclComm_t) -> *const c_char>("ncclGetLastError") };
    // SAFETY: the argument is reserved, and null.
    let last = last.ok().and_then(|function| text(unsafe { function(std::ptr::null_mut()) }));
    let last = last.map(|text| text.split_whitespace().collect::<Vec<_>>().join(" ")).filter(|text| !text.is_empty());
    let message = match (named, last) {
        (Some(named), Some(last)) => format!("{named} ({last})"),
        (Some(named), None) => named,
        (None, _) => format!("status {status}"),
    };
    Failure::new(call, message)
}
