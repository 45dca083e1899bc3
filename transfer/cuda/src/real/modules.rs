//! Kernel loading: compiled for the device if NVRTC is available, else from the embedded PTX.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::{CString, c_void};
use std::sync::Mutex;

use cudarc::driver::sys::{CUfunction, CUfunction_attribute_enum as Attribute, CUjit_option, CUmodule};

use super::api::Cuda;
use super::probe::DeviceInfo;
use crate::compiler::{self, PTX_DRIVER};
use crate::driver::{Failure, Id, Outcome};
use crate::library::call;
use crate::lock::lock;
use crate::module::Module;

#[derive(Debug)]
struct Loaded(CUmodule);

// SAFETY: the driver's functions may be called from any thread.
unsafe impl Send for Loaded {}

/// Modules loaded on the device, by name.
#[derive(Debug, Default)]
pub(super) struct Modules(Mutex<HashMap<&'static str, Loaded>>);

impl Modules {
    /// Looks up a kernel; its module is loaded on first use. The device's context is current.
    pub(super) fn function(
        &self,
        cuda: &Cuda,
        info: &DeviceInfo,
        module: &'static Module,
        kernel: &'static str,
    ) -> Outcome<Id> {
        let mut modules = lock(&self.0);
        let loaded = match modules.entry(module.name) {
            Entry::Occupied(occupied) => occupied.get().0,
            Entry::Vacant(vacant) => vacant.insert(Loaded(load(cuda, info, module)?)).0,
        };
        let name = CString::new(kernel).expect("a kernel's name has no zero");
        let (mut function, mut fixed): (CUfunction, _) = (std::ptr::null_mut(), 0);
        // SAFETY: they write a handle and a number.
        let found = unsafe {
            let bytes = Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES;
            let dynamic = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // All shared memory left beside the kernel's static part is allowed.
            call!(cuda, cuModuleGetFunction(&mut function, loaded, name.as_ptr()))
                .and_then(|()| call!(cuda, cuFuncGetAttribute(&mut fixed, bytes, function)))
                .and_then(|()| call!(cuda, cuFuncSetAttribute(function, dynamic, info.shared_bytes - fixed)))
        };
        found.map_err(|failure| failure.about(format_args!("kernel {kernel} of {}", module.name)))?;
        Ok(function as usize as Id)
    }

    pub(super) fn unload(&self, cuda: &Cuda) {
        for (_, loaded) in lock(&self.0).drain() {
            // SAFETY: no kernel of it is in use. A failure means a lost device.
            let _ = unsafe { call!(cuda, cuModuleUnload(loaded.0)) };
        }
    }
}

/// Loads machine code compiled for this device, else the PTX.
fn load(cuda: &Cuda, info: &DeviceInfo, module: &'static Module) -> Outcome<CUmodule> {
    // An older driver may reject the output of a newer compiler.
    let compiled = compiler::for_device(module, info.capability)
        .and_then(|cubin| link(cuda, module, &cubin).map_err(|failure| failure.to_string()));
    let why = match compiled {
        Ok(loaded) => return Ok(loaded),
        Err(why) => why,
    };
    if module.ptx.is_empty() {
        let message = format!("{}: no PTX was built in, and {why}", module.name);
        return Err(Failure::new("cuModuleLoadDataEx", message));
    }
    // The driver expects zero-terminated PTX.
    let ptx = [module.ptx.as_bytes(), &[0]].concat();
    link(cuda, module, &ptx).map_err(|failure| {
        let message = format!("{}; PTX needs {PTX_DRIVER}; {why}", failure.message);
        Failure { message, ..failure }
    })
}

fn link(cuda: &Cuda, module: &Module, image: &[u8]) -> Outcome<CUmodule> {
    const LOG: usize = 8 << 10;
    let mut log = vec![0u8; LOG];
    let mut options = [CUjit_option::CU_JIT_ERROR_LOG_BUFFER, CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), LOG as *mut c_void];
    let mut loaded = std::ptr::null_mut();
    let count = options.len() as u32;
    // SAFETY: the image is a cubin, or zero-terminated PTX; options have the types that the driver requires.
    let status = unsafe {
        call!(
            cuda,
            cuModuleLoadDataEx(&mut loaded, image.as_ptr().cast(), count, options.as_mut_ptr(), values.as_mut_ptr())
        )
    };
    status.map_err(|failure| {
        let log = String::from_utf8_lossy(&log);
        let log = log.trim_end_matches('\0').trim().replace('\n', " | ");
        let separator = if log.is_empty() { "" } else { ": " };
        let message = format!("{}: {}{separator}{log}", module.name, failure.message);
        Failure { message, ..failure }
    })?;
    Ok(loaded)
}
