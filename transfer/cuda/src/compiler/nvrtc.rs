//! Bindings to NVRTC, loaded on demand.

use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::fmt;

use cudarc::nvrtc::sys;
use libloading::Library;

use crate::library::{self, call, functions};

/// The header that kernels include.
pub(super) const HEADER: &str = include_str!("../../include/morphgl.cuh");
const HEADER_NAME: &CStr = c"morphgl.cuh";
/// File names of NVRTC, the latest version first.
const NAMES: [&str; 2] =
    if cfg!(windows) { ["nvrtc64_130_0.dll", "nvrtc64_120_0.dll"] } else { ["libnvrtc.so.13", "libnvrtc.so.12"] };

/// Target of a compilation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// PTX for an architecture such as 80 and all later ones; the driver compiles it further.
    Ptx(u32),
    /// Machine code for one architecture.
    Cubin(u32),
}

impl Target {
    /// Command-line options for NVRTC.
    pub fn options(self) -> [String; 2] {
        let architecture = match self {
            Self::Ptx(architecture) => format!("--gpu-architecture=compute_{architecture}"),
            Self::Cubin(architecture) => format!("--gpu-architecture=sm_{architecture}"),
        };
        [architecture, "--std=c++17".to_string()]
    }
}

functions! {
    /// libnvrtc.
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
    version: (u32, u32),
    architectures: Vec<u32>,
}

impl Nvrtc {
    /// Loads the library that `MORPHGL_NVRTC` names, else the one on the loader's path.
    ///
    /// # Errors
    ///
    /// The library is missing or too old.
    pub fn find() -> Result<Self, String> {
        if let Some(path) = std::env::var_os("MORPHGL_NVRTC") {
            return Self::open(&path);
        }
        // SAFETY: the library is NVIDIA's, and loading it does no more than any other library's start.
        let Some(library) = NAMES.iter().find_map(|name| unsafe { Library::new(*name) }.ok()) else {
            let names = NAMES.join(" or ");
            return Err(format!(
                "NVRTC was not found ({names}; pip install nvidia-cuda-nvrtc, or MORPHGL_NVRTC names it)"
            ));
        };
        Self::of(Box::leak(Box::new(library)))
    }

    /// Loads the library at `path`.
    ///
    /// # Errors
    ///
    /// It cannot be loaded, or is too old.
    pub fn open(path: &OsStr) -> Result<Self, String> {
        // SAFETY: whoever names a library here asks for it to be run.
        let library = unsafe { library::load(path, "libnvrtc-builtins.so") };
        let library = library.map_err(|e| format!("{}: cannot be loaded as NVRTC: {e}", path.display()))?;
        Self::of(Box::leak(Box::new(library)))
    }

    fn of(library: &'static Library) -> Result<Self, String> {
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

    /// Version, such as (12, 1).
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// Supported architectures, such as 90.
    pub fn architectures(&self) -> &[u32] {
        &self.architectures
    }

    /// Compiles kernels that include `morphgl.cuh` only. PTX is returned without a terminating zero.
    ///
    /// # Errors
    ///
    /// The compiler rejects them: its log, in one line.
    pub fn compile(&self, name: &str, source: &str, target: Target) -> Result<Vec<u8>, String> {
        self.build(name, source, target, &target.options()).map(|(bytes, _)| bytes)
    }

    /// Machine code for an architecture, and the resources of each kernel.
    ///
    /// # Errors
    ///
    /// As [`Nvrtc::compile`].
    pub fn assemble(&self, name: &str, source: &str, architecture: u32) -> Result<(Vec<u8>, Vec<Resources>), String> {
        let target = Target::Cubin(architecture);
        let options = [&target.options()[..], &["--ptxas-options=-v".to_string()]].concat();
        self.build(name, source, target, &options).map(|(cubin, log)| (cubin, resources(&log)))
    }

    /// The result and the compiler's log.
    fn build(&self, name: &str, source: &str, target: Target, options: &[String]) -> Result<(Vec<u8>, String), String> {
        let text = |text: &str| CString::new(text).map_err(|_| format!("{name}: there is a zero in the source"));
        let (source, title, header) = (text(source)?, text(name)?, text(HEADER)?);
        let options: Vec<CString> =
            options.iter().map(|o| CString::new(o.as_str()).expect("options have no zero")).collect();
        let options: Vec<*const c_char> = options.iter().map(|o| o.as_ptr()).collect();
        let (headers, names) = ([header.as_ptr()], [HEADER_NAME.as_ptr()]);
        let f = &self.functions;
        let mut program = std::ptr::null_mut();
        // SAFETY: all are texts that end in a zero and live until the call returns.
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
        // SAFETY: it was made above, and nobody has it any more.
        unsafe { call!(f, nvrtcDestroyProgram(&mut program)) }?;
        let mut bytes = result?;
        if matches!(target, Target::Ptx(_)) {
            bytes.truncate(bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len()));
        }
        Ok((bytes, log))
    }
}

/// Resources of a kernel, as reported by the assembler.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resources {
    /// Name of the kernel.
    pub kernel: String,
    /// Registers per thread.
    pub registers: u32,
    /// Bytes of static shared memory per block.
    pub shared: u32,
    /// Bytes of register spills per thread, stores plus loads.
    pub spills: u32,
    /// Bytes of stack per thread.
    pub stack: u32,
}

/// Parses the assembler's log: for each kernel its name, then stack and spills, then registers and shared memory.
fn resources(log: &str) -> Vec<Resources> {
    /// The number before each of the words, 0 if missing.
    fn before<const N: usize>(line: &str, words: [&str; N]) -> [u32; N] {
        words.map(|word| {
            let text = line.split_once(word).map_or("", |(before, _)| before.trim_end());
            text.rsplit(|c: char| !c.is_ascii_digit()).next().unwrap_or_default().parse().unwrap_or(0)
        })
    }
    let mut all: Vec<Resources> = Vec::new();
    for line in log.lines() {
        if let Some((_, name)) = line.split_once("Compiling entry function '") {
            let kernel = name.split('\'').next().unwrap_or_default().to_string();
            all.push(Resources { kernel, ..Resources::default() });
        }
        let Some(last) = all.last_mut() else { continue };
        if line.contains("bytes stack frame") {
            let [stack, stores, loads] =
                before(line, [" bytes stack frame", " bytes spill stores", " bytes spill loads"]);
            (last.stack, last.spills) = (stack, stores + loads);
        } else if line.contains("LastUse ") {
            [last.registers, last.shared] = before(line, [" registers", " bytes smem"]);
        }
    }
    all
}

type Size = unsafe extern "C" fn(sys::nvrtcProgram, *mut usize) -> u32;
type Read = unsafe extern "C" fn(sys::nvrtcProgram, *mut c_char) -> u32;

/// Reads one result of a program (log, PTX or machine code).
fn read(program: sys::nvrtcProgram, size: Size, read: Read) -> Result<Vec<u8>, String> {
    let mut len = 0;
    // SAFETY: the program exists; it writes a number.
    let asked = unsafe { size(program, &mut len) };
    let mut bytes = vec![0u8; len];
    // SAFETY: it writes `len` bytes.
    if asked != 0 || unsafe { read(program, bytes.as_mut_ptr().cast()) } != 0 {
        return Err("the compiler does not give its result".to_string());
    }
    Ok(bytes)
}

impl fmt::Debug for Nvrtc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Nvrtc({}.{})", self.version.0, self.version.1)
    }
}

#[cfg(test)]
mod tests {
    use super::{Resources, resources};

    #[test]
    fn the_assembler_s_log_is_read() {
        let log = "ptxas info    : 304 bytes gmem\n\
                   ptxas info    : Compiling entry function 'a' for 'sm_90'\n\
                   ptxas info    : Function properties for a\n\
                   ptxas         .     8 bytes stack frame, 16 bytes spill stores, 24 bytes spill loads\n\
                   ptxas info    : LastUse 53 registers, used 1 barriers, 8 bytes cumulative stack size, 2048 bytes smem\n\
                   ptxas info    : Compiling entry function 'b' for 'sm_90'\n\
                   ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
                   ptxas info    : LastUse 14 registers, 372 bytes cmem[0]\n";
        let kernel = |kernel: &str| kernel.to_string();
        let expected = [
            Resources { kernel: kernel("a"), registers: 53, shared: 2048, spills: 40, stack: 8 },
            Resources { kernel: kernel("b"), registers: 14, ..Resources::default() },
        ];
        assert_eq!(resources(log), expected);
    }
}
