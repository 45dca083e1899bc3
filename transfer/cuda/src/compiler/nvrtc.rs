//! The compiler's library, which is loaded when it is needed.

use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::fmt;

use cudarc::nvrtc::sys;
use libloading::Library;

/// The header that kernels include.
pub(super) const HEADER: &str = include_str!("../../include/morphgl.cuh");
const HEADER_NAME: &CStr = c"morphgl.cuh";

/// What to compile for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// PTX for an architecture, such as 80, and all later ones: a driver compiles it on.
    Ptx(u32),
    /// Machine code for one architecture.
    Cubin(u32),
}

impl Target {
    /// The compiler's options.
    pub fn options(self) -> [String; 2] {
        let architecture = match self {
            Self::Ptx(architecture) => format!("--gpu-architecture=compute_{architecture}"),
            Self::Cubin(architecture) => format!("--gpu-architecture=sm_{architecture}"),
        };
        [architecture, "--std=c++17".to_string()]
    }
}

macro_rules! functions {
    ($(fn $function:ident($($argument:ty),* $(,)?);)*) => {
        #[allow(non_snake_case, reason = "the names are the library's")]
        struct Functions {
            $($function: unsafe extern "C" fn($($argument),*) -> u32,)*
        }

        // The signatures are those of cudarc's bindings, but for the status: a number instead of an enum that a later
        // library's values are not all in.
        $(const _: unsafe fn($($argument),*) -> sys::nvrtcResult = sys::$function;)*

        impl Functions {
            fn load(library: &'static Library) -> Result<Self, String> {
                Ok(Self {
                    $($function: {
                        type F = unsafe extern "C" fn($($argument),*) -> u32;
                        // SAFETY: the signature is the library's, as above.
                        *unsafe { library.get::<F>(stringify!($function)) }
                            .map_err(|_| format!("NVRTC is too old: it has no {}", stringify!($function)))?
                    },)*
                })
            }
        }
    };
}

functions! {
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

/// NVRTC.
pub struct Nvrtc {
    functions: Functions,
    version: (u32, u32),
    architectures: Vec<u32>,
}

macro_rules! call {
    ($functions:expr, $function:ident($($argument:expr),*)) => {
        match ($functions.$function)($($argument),*) {
            0 => Ok(()),
            status => Err(format!("{}: status {status}", stringify!($function))),
        }
    };
}

impl Nvrtc {
    /// The library that `MORPHGL_NVRTC` names, else the one that the loader finds.
    ///
    /// # Errors
    ///
    /// There is none, or it is too old.
    pub fn find() -> Result<Self, String> {
        if let Some(path) = std::env::var_os("MORPHGL_NVRTC") {
            return Self::open(&path);
        }
        // SAFETY: the library is NVIDIA's, and loading it does no more than any other library's start.
        if !unsafe { sys::is_culib_present() } {
            return Err(
                "NVRTC was not found (libnvrtc.so.12; pip install nvidia-cuda-nvrtc-cu12, or MORPHGL_NVRTC names it)"
                    .to_string(),
            );
        }
        // SAFETY: as above; it is present, without which this panics.
        Self::of(unsafe { sys::culib() })
    }

    /// The library at `path`.
    ///
    /// # Errors
    ///
    /// It cannot be loaded, or is too old.
    pub fn open(path: &OsStr) -> Result<Self, String> {
        // SAFETY: whoever names a library here asks for it to be run.
        let library = unsafe { Library::new(path) };
        let library = library.map_err(|e| format!("{}: cannot be loaded as NVRTC: {e}", path.display()))?;
        Self::of(Box::leak(Box::new(library)))
    }

    fn of(library: &'static Library) -> Result<Self, String> {
        let functions = Functions::load(library)?;
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

    /// Its version, as in (12, 1).
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// Architectures it compiles for, as in 90.
    pub fn architectures(&self) -> &[u32] {
        &self.architectures
    }

    /// Compiles kernels that include `morphgl.cuh` and nothing else. PTX comes without a zero at its end.
    ///
    /// # Errors
    ///
    /// The compiler refuses them: its log, in one line.
    pub fn compile(&self, name: &str, source: &str, target: Target) -> Result<Vec<u8>, String> {
        let text = |text: &str| CString::new(text).map_err(|_| format!("{name}: there is a zero in the source"));
        let (source, title, header) = (text(source)?, text(name)?, text(HEADER)?);
        let options = target.options().map(|o| CString::new(o).expect("options have no zero"));
        let options = options.each_ref().map(|o| o.as_ptr());
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
        let result = compiled
            .and_then(|()| match target {
                Target::Ptx(_) => read(program, f.nvrtcGetPTXSize, f.nvrtcGetPTX),
                Target::Cubin(_) => read(program, f.nvrtcGetCUBINSize, f.nvrtcGetCUBIN),
            })
            .map_err(|why| {
                let log = read(program, f.nvrtcGetProgramLogSize, f.nvrtcGetProgramLog).unwrap_or_default();
                let log = String::from_utf8_lossy(&log);
                format!("{name}: {why}: {}", log.trim_end_matches('\0').trim().replace('\n', " | "))
            });
        // SAFETY: it was made above, and nobody has it any more.
        unsafe { call!(f, nvrtcDestroyProgram(&mut program)) }?;
        let mut bytes = result?;
        if matches!(target, Target::Ptx(_)) {
            bytes.truncate(bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len()));
        }
        Ok(bytes)
    }
}

type Size = unsafe extern "C" fn(sys::nvrtcProgram, *mut usize) -> u32;
type Read = unsafe extern "C" fn(sys::nvrtcProgram, *mut c_char) -> u32;

/// Something that a program has come to.
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
