//! Bindings to NVRTC, loaded on demand.

use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt;

use cudarc::nvrtc::sys;

use crate::library::{self, call, functions};

/// The header that kernels include.
pub(super) const HEADER: &str = include_str!("../../include/morphgl.cuh");
const HEADER_NAME: &CStr = c"morphgl.cuh";
/// File names of NVRTC, the latest version first.
const NAMES: [&str; 2] = ["libnvrtc.so.13", "libnvrtc.so.12"];

/// Target of a compilation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// PTX for an architecture such as 80 and all later ones; the driver compiles it further.
    Ptx(u32),
    /// Machine code for one architecture.
    Cubin(u32),
}

impl Target {
    pub(super) fn options(self) -> [String; 2] {
        let architecture = match self {
            Self::Ptx(architecture) => format!("--gpu-architecture=compute_{architecture}"),
            Self::Cubin(architecture) => format!("--gpu-architecture=sm_{architecture}"),
        };
        [architecture, "--std=c++17".to_string()]
    }
}

functions! {
    Functions of sys -> nvrtcResult, String by describe {
        fn nvrtcVersion(*mut c_int, *mut c_int);
        fn nvrtcGetNumSupportedArchs(*mut c_int);
        fn nvrtcGetSupportedArchs(*mut c_int);
        fn nvrtcCreateProgram(
            *mut sys::nvrtcProgram,
            *const c_char,
            *const c_char,
            c_int,
            *const *const c_char,
            *const *const c_char,
        );
        fn nvrtcCompileProgram(sys::nvrtcProgram, c_int, *const *const c_char);
        fn nvrtcGetProgramLogSize(sys::nvrtcProgram, *mut usize);
        fn nvrtcGetProgramLog(sys::nvrtcProgram, *mut c_char);
        fn nvrtcGetPTXSize(sys::nvrtcProgram, *mut usize);
        fn nvrtcGetPTX(sys::nvrtcProgram, *mut c_char);
        fn nvrtcGetCUBINSize(sys::nvrtcProgram, *mut usize);
        fn nvrtcGetCUBIN(sys::nvrtcProgram, *mut c_char);
        fn nvrtcDestroyProgram(*mut sys::nvrtcProgram);
    }
}

fn describe(call: &str, status: u32) -> String {
    format!("{call}: status {status}")
}

/// The NVRTC library.
pub struct Nvrtc {
    functions: Functions,
    /// Version, such as (12, 1).
    pub version: (u32, u32),
    /// Supported architectures, such as 90.
    pub architectures: Vec<u32>,
}

impl Nvrtc {
    /// Loads the library that `MORPHGL_NVRTC` names, else the one on the loader's path.
    ///
    /// # Errors
    ///
    /// The library is missing or too old: the error says how to install it.
    pub fn find() -> Result<Self, String> {
        // SAFETY: the library is NVIDIA's, or one that the user names to be run.
        let library = unsafe { library::find("MORPHGL_NVRTC", &NAMES, "libnvrtc-builtins.so", "nvidia-cuda-nvrtc") }?;
        let functions = Functions::load(library).map_err(|name| format!("NVRTC is too old: it has no {name}"))?;
        let (mut major, mut minor, mut count) = (0, 0, 0);
        // SAFETY: they write numbers.
        unsafe {
            call!(functions, nvrtcVersion(&mut major, &mut minor))?;
            call!(functions, nvrtcGetNumSupportedArchs(&mut count))?;
        }
        let mut architectures = vec![0; count.max(0) as usize];
        // SAFETY: it writes `count` numbers.
        unsafe { call!(functions, nvrtcGetSupportedArchs(architectures.as_mut_ptr())) }?;
        let architectures = architectures.into_iter().map(|a: c_int| a as u32).collect();
        Ok(Self { functions, version: (major as u32, minor as u32), architectures })
    }

    /// Compiles kernels that include `morphgl.cuh` only, with `options` besides those of the target. Returns PTX without a
    /// terminating zero, or machine code, and the compiler's log.
    ///
    /// # Errors
    ///
    /// The compiler rejects them: its log, in one line.
    pub fn compile(
        &self,
        name: &str,
        source: &str,
        target: Target,
        options: &[&str],
    ) -> Result<(Vec<u8>, String), String> {
        let text = |text: &str| CString::new(text).map_err(|_| format!("{name}: the source has a zero byte"));
        let (source, title, header) = (text(source)?, text(name)?, text(HEADER)?);
        let own = target.options();
        let options = own.iter().map(String::as_str).chain(options.iter().copied());
        let options: Vec<CString> = options.map(|o| CString::new(o).expect("options have no zero")).collect();
        let options: Vec<*const c_char> = options.iter().map(|o| o.as_ptr()).collect();
        let (headers, names) = ([header.as_ptr()], [HEADER_NAME.as_ptr()]);
        let f = &self.functions;
        let mut program = std::ptr::null_mut();
        // SAFETY: all texts end in a zero and live until the call returns.
        unsafe {
            call!(
                f,
                nvrtcCreateProgram(&mut program, source.as_ptr(), title.as_ptr(), 1, headers.as_ptr(), names.as_ptr())
            )?;
        }
        // SAFETY: as above.
        let compiled = unsafe { call!(f, nvrtcCompileProgram(program, options.len() as c_int, options.as_ptr())) };
        let log = read(program, f.nvrtcGetProgramLogSize, f.nvrtcGetProgramLog).unwrap_or_default();
        let log = String::from_utf8_lossy(&log).trim_end_matches('\0').trim().to_string();
        let result = compiled
            .and_then(|()| match target {
                Target::Ptx(_) => read(program, f.nvrtcGetPTXSize, f.nvrtcGetPTX),
                Target::Cubin(_) => read(program, f.nvrtcGetCUBINSize, f.nvrtcGetCUBIN),
            })
            .map_err(|why| format!("{name}: {why}: {}", log.replace('\n', " | ")));
        // SAFETY: the program exists, and is not used again.
        unsafe { call!(f, nvrtcDestroyProgram(&mut program)) }?;
        let mut bytes = result?;
        if matches!(target, Target::Ptx(_)) {
            bytes.truncate(bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len()));
        }
        Ok((bytes, log))
    }
}

type Size = unsafe extern "C" fn(sys::nvrtcProgram, *mut usize) -> u32;
type Read = unsafe extern "C" fn(sys::nvrtcProgram, *mut c_char) -> u32;

/// Reads one result of a program (log, PTX or machine code).
fn read(program: sys::nvrtcProgram, size: Size, read: Read) -> Result<Vec<u8>, String> {
    let mut len = 0;
    // SAFETY: the program exists; it writes a number.
    let status = unsafe { size(program, &mut len) };
    let mut bytes = vec![0u8; len];
    // SAFETY: it writes `len` bytes.
    if status != 0 || unsafe { read(program, bytes.as_mut_ptr().cast()) } != 0 {
        return Err("the compiler does not return its result".to_string());
    }
    Ok(bytes)
}

impl fmt::Debug for Nvrtc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Nvrtc({}.{})", self.version.0, self.version.1)
    }
}
