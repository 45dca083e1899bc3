//! Discovery of the CUDA driver and its devices, once per process.

use std::ffi::{CStr, c_int};
use std::sync::OnceLock;

use cudarc::driver::sys;
use cudarc::driver::sys::CUdevice_attribute_enum as Attribute;

use super::api::{self, Cuda};
use crate::driver::{Failure, Outcome};
use crate::library::call;

/// Oldest driver that loads the kernels' PTX: value of `cuDriverGetVersion`, and in words.
const OLDEST: (c_int, &str) = (12_010, "driver 530 (CUDA 12.1) or later is needed");
/// Oldest supported compute capability.
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

/// The driver and its devices.
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
    MACHINE.get_or_init(look).as_ref().map_err(Clone::clone)
}

fn look() -> Result<Machine, String> {
    // SAFETY: the library is NVIDIA's, and loading it does no more than any other library's start.
    if !unsafe { sys::is_culib_present() } {
        return Err("no CUDA driver found".to_string());
    }
    // SAFETY: as above; it is present, without which this panics.
    let library = unsafe { sys::culib() };
    let too_old = |what: String| format!("the CUDA driver is too old: {what}; {}", OLDEST.1);
    let cuda = Cuda::load(library).map_err(|name| too_old(format!("it has no {name}")))?;
    // SAFETY: this is the first call, as it has to be.
    let status = unsafe { (cuda.cuInit)(0) };
    if status == api::NO_DEVICE {
        return Err("the CUDA driver finds no device".to_string());
    }
    let say = |e: Failure| format!("the CUDA driver does not start: {e}");
    cuda.check("cuInit", status).map_err(say)?;
    let mut version = 0;
    // SAFETY: it writes a number.
    unsafe { call!(cuda, cuDriverGetVersion(&mut version)) }.map_err(say)?;
    if version < OLDEST.0 {
        return Err(too_old(format!("it is for CUDA {}.{}", version / 1000, version % 1000 / 10)));
    }
    let mut count = 0;
    // SAFETY: as above.
    unsafe { call!(cuda, cuDeviceGetCount(&mut count)) }.map_err(say)?;
    let looked: Vec<_> = (0..count).map(|ordinal| device(&cuda, ordinal)).collect();
    let refused: Vec<String> = looked.iter().filter_map(|d| d.as_ref().err().cloned()).collect();
    let devices: Vec<DeviceInfo> = looked.into_iter().flatten().collect();
    match (devices.is_empty(), refused.is_empty()) {
        (false, _) => Ok(Machine { cuda, devices, refused }),
        (true, true) => Err("the CUDA driver finds no device".to_string()),
        (true, false) => Err(refused.join("; ")),
    }
}

fn device(cuda: &Cuda, ordinal: c_int) -> Result<DeviceInfo, String> {
    let name = |device| -> Outcome<String> {
        let mut name = [0; 256];
        // SAFETY: it writes at most so many bytes.
        unsafe { call!(cuda, cuDeviceGetName(name.as_mut_ptr(), 255, device)) }?;
        // SAFETY: the last byte is zero.
        Ok(unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned())
    };
    let mut device = 0;
    // SAFETY: it writes a number.
    let got = unsafe { call!(cuda, cuDeviceGet(&mut device, ordinal)) };
    let name = got.and_then(|()| name(device)).map_err(|e| format!("cuda:{ordinal}: {e}"))?;
    let at = |what: String| format!("cuda:{ordinal} ({name}): {what}");
    let attribute = |which| -> Result<c_int, String> {
        let mut value = 0;
        // SAFETY: it writes a number.
        unsafe { call!(cuda, cuDeviceGetAttribute(&mut value, which, device)) }.map_err(|e| at(e.to_string()))?;
        Ok(value)
    };
    let major = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    if major * 10 + minor < CAPABILITY {
        let needed = format!("compute capability {major}.{minor} is too old, {}.0 is needed", CAPABILITY / 10);
        return Err(at(needed));
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
    // SAFETY: it writes a handle, which is released below, after it was made current and this was undone.
    let asked = unsafe {
        call!(cuda, cuDevicePrimaryCtxRetain(&mut context, device)).and_then(|()| {
            let mut before = std::ptr::null_mut();
            let asked = call!(cuda, cuCtxGetCurrent(&mut before))
                .and_then(|()| call!(cuda, cuCtxSetCurrent(context)))
                .and_then(|()| call!(cuda, cuMemGetInfo_v2(&mut free, &mut total)));
            let undone = call!(cuda, cuCtxSetCurrent(before));
            let released = call!(cuda, cuDevicePrimaryCtxRelease_v2(device));
            asked.and(undone).and(released)
        })
    };
    match asked {
        Err(failure) if failure.memory => return Err(at("its memory is full: end what else uses it".to_string())),
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
