//! Function tables of libcuda and libcublas.

use std::ffi::{CStr, c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void};

use cudarc::cublas::sys as cublas;
use cudarc::driver::sys as cuda;

use crate::driver::Failure;
use crate::library::functions;

functions! {
    Cuda of cuda -> CUresult, Failure by describe_cuda {
        fn cuInit(c_uint);
        fn cuDriverGetVersion(*mut c_int);
        fn cuDeviceGetCount(*mut c_int);
        fn cuDeviceGet(*mut cuda::CUdevice, c_int);
        fn cuDeviceGetName(*mut c_char, c_int, cuda::CUdevice);
        fn cuDeviceGetAttribute(*mut c_int, cuda::CUdevice_attribute, cuda::CUdevice);
        fn cuDeviceCanAccessPeer(*mut c_int, cuda::CUdevice, cuda::CUdevice);
        fn cuDeviceTotalMem_v2(*mut usize, cuda::CUdevice);
        fn cuDevicePrimaryCtxRetain(*mut cuda::CUcontext, cuda::CUdevice);
        fn cuDevicePrimaryCtxRelease_v2(cuda::CUdevice);
        fn cuCtxGetCurrent(*mut cuda::CUcontext);
        fn cuCtxSetCurrent(cuda::CUcontext);
        fn cuCtxEnablePeerAccess(cuda::CUcontext, c_uint);
        fn cuCtxGetStreamPriorityRange(*mut c_int, *mut c_int);
        fn cuMemGetInfo_v2(*mut usize, *mut usize);
        fn cuMemAlloc_v2(*mut cuda::CUdeviceptr, usize);
        fn cuMemFree_v2(cuda::CUdeviceptr);
        fn cuMemHostAlloc(*mut *mut c_void, usize, c_uint);
        fn cuMemFreeHost(*mut c_void);
        fn cuMemHostRegister_v2(*mut c_void, usize, c_uint);
        fn cuMemHostUnregister(*mut c_void);
        fn cuMemHostGetDevicePointer_v2(*mut cuda::CUdeviceptr, *mut c_void, c_uint);
        fn cuMemGetAllocationGranularity(
            *mut usize,
            *const cuda::CUmemAllocationProp,
            cuda::CUmemAllocationGranularity_flags,
        );
        fn cuMemCreate(
            *mut cuda::CUmemGenericAllocationHandle,
            usize,
            *const cuda::CUmemAllocationProp,
            c_ulonglong,
        );
        fn cuMemRelease(cuda::CUmemGenericAllocationHandle);
        fn cuMemAddressReserve(*mut cuda::CUdeviceptr, usize, usize, cuda::CUdeviceptr, c_ulonglong);
        fn cuMemAddressFree(cuda::CUdeviceptr, usize);
        fn cuMemMap(cuda::CUdeviceptr, usize, usize, cuda::CUmemGenericAllocationHandle, c_ulonglong);
        fn cuMemUnmap(cuda::CUdeviceptr, usize);
        fn cuMemSetAccess(cuda::CUdeviceptr, usize, *const cuda::CUmemAccessDesc, usize);
        fn cuStreamCreateWithPriority(*mut cuda::CUstream, c_uint, c_int);
        fn cuStreamDestroy_v2(cuda::CUstream);
        fn cuStreamWaitEvent(cuda::CUstream, cuda::CUevent, c_uint);
        fn cuEventCreate(*mut cuda::CUevent, c_uint);
        fn cuEventDestroy_v2(cuda::CUevent);
        fn cuEventRecord(cuda::CUevent, cuda::CUstream);
        fn cuEventQuery(cuda::CUevent);
        fn cuEventSynchronize(cuda::CUevent);
        fn cuEventElapsedTime(*mut f32, cuda::CUevent, cuda::CUevent);
        fn cuMemcpyAsync(cuda::CUdeviceptr, cuda::CUdeviceptr, usize, cuda::CUstream);
        fn cuMemsetD8Async(cuda::CUdeviceptr, c_uchar, usize, cuda::CUstream);
        fn cuModuleLoadDataEx(
            *mut cuda::CUmodule,
            *const c_void,
            c_uint,
            *mut cuda::CUjit_option,
            *mut *mut c_void,
        );
        fn cuModuleUnload(cuda::CUmodule);
        fn cuModuleGetFunction(*mut cuda::CUfunction, cuda::CUmodule, *const c_char);
        fn cuFuncGetAttribute(*mut c_int, cuda::CUfunction_attribute, cuda::CUfunction);
        fn cuFuncSetAttribute(cuda::CUfunction, cuda::CUfunction_attribute, c_int);
        fn cuOccupancyMaxActiveBlocksPerMultiprocessor(*mut c_int, cuda::CUfunction, c_int, usize);
        fn cuLaunchKernel(
            cuda::CUfunction,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            cuda::CUstream,
            *mut *mut c_void,
            *mut *mut c_void,
        );
    }
}

functions! {
    Cublas of cublas -> cublasStatus_t, Failure by describe_cublas {
        fn cublasCreate_v2(*mut cublas::cublasHandle_t);
        fn cublasDestroy_v2(cublas::cublasHandle_t);
        fn cublasSetStream_v2(cublas::cublasHandle_t, cublas::cudaStream_t);
        fn cublasSetMathMode(cublas::cublasHandle_t, cublas::cublasMath_t);
        fn cublasSetWorkspace_v2(cublas::cublasHandle_t, *mut c_void, usize);
        fn cublasSgemm_v2(
            cublas::cublasHandle_t,
            cublas::cublasOperation_t,
            cublas::cublasOperation_t,
            c_int,
            c_int,
            c_int,
            *const f32,
            *const f32,
            c_int,
            *const f32,
            c_int,
            *const f32,
            *mut f32,
            c_int,
        );
    }
}

pub(super) const OUT_OF_MEMORY: u32 = cuda::CUresult::CUDA_ERROR_OUT_OF_MEMORY as u32;
pub(super) const NOT_READY: u32 = cuda::CUresult::CUDA_ERROR_NOT_READY as u32;
pub(super) const ALREADY_ENABLED: u32 = cuda::CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED as u32;
pub(super) const NO_DEVICE: u32 = cuda::CUresult::CUDA_ERROR_NO_DEVICE as u32;

/// Describes a driver status by its name and description in the driver.
fn describe_cuda(call: &'static str, status: u32) -> Failure {
    let text = |symbol: &str| -> Option<String> {
        type Describe = unsafe extern "C" fn(u32, *mut *const c_char) -> u32;
        // SAFETY: a status comes from the library, so it is loaded; the signature is that of its header, the enum as a
        // number.
        let function = unsafe { cuda::culib().get::<Describe>(symbol) }.ok()?;
        let mut text = std::ptr::null();
        // SAFETY: the library writes the address of a constant string, or null.
        if unsafe { function(status, &mut text) } != 0 || text.is_null() {
            return None;
        }
        // SAFETY: as above.
        Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    };
    let message = match (text("cuGetErrorName"), text("cuGetErrorString")) {
        (Some(name), Some(description)) => format!("{name} ({description})"),
        _ => format!("status {status}"),
    };
    Failure { call, message, out_of_memory: status == OUT_OF_MEMORY }
}

fn describe_cublas(call: &'static str, status: u32) -> Failure {
    let name = match status {
        1 => "CUBLAS_STATUS_NOT_INITIALIZED",
        3 => "CUBLAS_STATUS_ALLOC_FAILED",
        7 => "CUBLAS_STATUS_INVALID_VALUE",
        8 => "CUBLAS_STATUS_ARCH_MISMATCH",
        11 => "CUBLAS_STATUS_MAPPING_ERROR",
        13 => "CUBLAS_STATUS_EXECUTION_FAILED",
        14 => "CUBLAS_STATUS_INTERNAL_ERROR",
        15 => "CUBLAS_STATUS_NOT_SUPPORTED",
        _ => return Failure::new(call, format!("status {status}")),
    };
    Failure { call, message: name.to_string(), out_of_memory: status == 3 }
}
