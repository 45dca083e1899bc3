//! Discovery of the CUDA driver and its devices, once per process.

use std::ffi::{CStr, c_int};
use std::sync::OnceLock;

use cudarc::driver::sys::{self, CUdevice_attribute_enum as Attribute};

use super::api::{self, Cuda};
use crate::compiler::PTX_DRIVER;
use crate::driver::{Failure, Outcome};
use crate::library::call;

/// Value of `cuDriverGetVersion` of the oldest of [`PTX_DRIVER`].
const OLDEST: c_int = 12_010;
const NO_DEVICE: &str = "the CUDA driver finds no device";
const CAPABILITY: c_int = 80;

/// A usable device.
#[derive(Debug, Clone)]
pub(crate) struct DeviceInfo {
    pub(crate) ordinal: u32,
    pub(crate) name: String,
    pub(crate) memory_bytes: u64,
    pub(crate) multiprocessors: u32,
    /// Compute capability, as in 90.
    pub(crate) capability: u32,
    /// Maximum bytes of shared memory per block.
    pub(crate) shared_bytes: c_int,
    /// Whether it can pin memory that the process maps read-only.
    pub(crate) pins_read_only: bool,
}

#[derive(Debug)]
pub(crate) struct Machine {
    pub(super) cuda: Cuda,
    pub(crate) devices: Vec<DeviceInfo>,
    /// Reasons why other devices are unusable.
    pub(crate) refused: Vec<String>,
}

/// The driver and its devices, or the reason why there are none. Never panics.
pub(crate) fn machine() -> Result<&'static Machine, String> {
    static MACHINE: OnceLock<Result<Machine, String>> = OnceLock::new();
    MACHINE.get_or_init(find).as_ref().map_err(Clone::clone)
}

fn find() -> Result<Machine, String> {
    // SAFETY: the library is NVIDIA's, and loading it does no more than any other library's start.
    if !unsafe { sys::is_culib_present() } {
        return Err("no CUDA driver found".to_string());
    }
    // SAFETY: as above; the library is present, without which this panics.
    let library = unsafe { sys::culib() };
    let too_old = |what: String| format!("the CUDA driver is too old: {what}; {PTX_DRIVER} is needed");
    let cuda = Cuda::load(library).map_err(|name| too_old(format!("it has no {name}")))?;
    // SAFETY: this is the first call, as required.
    let status = unsafe { (cuda.cuInit)(0) };
    if status == api::NO_DEVICE {
        return Err(NO_DEVICE.to_string());
    }
    let failed = |e: Failure| format!("the CUDA driver does not start: {e}");
    cuda.check("cuInit", status).map_err(failed)?;
    let mut version = 0;
    // SAFETY: it writes a number.
    unsafe { call!(cuda, cuDriverGetVersion(&mut version)) }.map_err(failed)?;
    if version < OLDEST {
        return Err(too_old(format!("it is for CUDA {}.{}", version / 1000, version % 1000 / 10)));
    }
    let mut count = 0;
    // SAFETY: as above.
    unsafe { call!(cuda, cuDeviceGetCount(&mut count)) }.map_err(failed)?;
    let (mut devices, mut refused) = (Vec::new(), Vec::new());
    for ordinal in 0..count {
        match device(&cuda, ordinal) {
            Ok(info) => devices.push(info),
            Err(reason) => refused.push(reason),
        }
    }
    match (devices.is_empty(), refused.is_empty()) {
        (false, _) => Ok(Machine { cuda, devices, refused }),
        (true, true) => Err(NO_DEVICE.to_string()),
        (true, false) => Err(refused.join("; ")),
    }
}

fn device(cuda: &Cuda, ordinal: c_int) -> Result<DeviceInfo, String> {
    let name = |device| -> Outcome<String> {
        let mut name = [0; 256];
        // SAFETY: it writes at most 255 bytes.
        unsafe { call!(cuda, cuDeviceGetName(name.as_mut_ptr(), 255, device)) }?;
        // SAFETY: the last byte is zero.
        Ok(unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned())
    };
    let mut device = 0;
    // SAFETY: it writes a number.
    let status = unsafe { call!(cuda, cuDeviceGet(&mut device, ordinal)) };
    let name = status.and_then(|()| name(device)).map_err(|e| format!("cuda:{ordinal}: {e}"))?;
    let at = |reason: String| format!("cuda:{ordinal} ({name}): {reason}");
    let attribute = |which| -> Result<c_int, String> {
        let mut value = 0;
        // SAFETY: it writes a number.
        unsafe { call!(cuda, cuDeviceGetAttribute(&mut value, which, device)) }.map_err(|e| at(e.to_string()))?;
        Ok(value)
    };
    let major = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    if major * 10 + minor < CAPABILITY {
        return Err(at(format!("compute capability {major}.{minor} is too old, {}.0 is needed", CAPABILITY / 10)));
    }
    for needed in [
        Attribute::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING,
        Attribute::CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY,
        Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
    ] {
        if attribute(needed)? == 0 {
            return Err(at("it does not share the host's addresses (UVA)".to_string()));
        }
    }
    let (mut memory_bytes, mut free, mut total) = (0, 0, 0);
    // SAFETY: it writes a number.
    unsafe { call!(cuda, cuDeviceTotalMem_v2(&mut memory_bytes, device)) }.map_err(|e| at(e.to_string()))?;
    // A context is the first allocation: without one the device is unusable.
    let mut context = std::ptr::null_mut();
    // SAFETY: it writes a handle, which is current for one query, and then released.
    let status = unsafe {
        call!(cuda, cuDevicePrimaryCtxRetain(&mut context, device)).and_then(|()| {
            let mut before = std::ptr::null_mut();
            let status = call!(cuda, cuCtxGetCurrent(&mut before))
                .and_then(|()| call!(cuda, cuCtxSetCurrent(context)))
                .and_then(|()| call!(cuda, cuMemGetInfo_v2(&mut free, &mut total)));
            let restored = call!(cuda, cuCtxSetCurrent(before));
            let released = call!(cuda, cuDevicePrimaryCtxRelease_v2(device));
            status.and(restored).and(released)
        })
    };
    match status {
        Err(failure) if failure.out_of_memory => {
            return Err(at("its memory is full: end what else uses it".to_string()));
        }
        other => other.map_err(|e| at(e.to_string()))?,
    }
    Ok(DeviceInfo {
        ordinal: ordinal as u32,
        memory_bytes: memory_bytes as u64,
        multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as u32,
        capability: (major * 10 + minor) as u32,
        shared_bytes: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        pins_read_only: attribute(Attribute::CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED)? != 0,
        name,
    })
}
