//! Kernel compilation by NVRTC: at run time for the machine's device, and ahead of time into the PTX beside the sources.

mod cache;
mod nvrtc;

use std::path::PathBuf;
use std::sync::OnceLock;

pub use nvrtc::{Nvrtc, Target};

use crate::module::Module;

/// Version of NVRTC that makes the PTX beside the kernels. Later versions make PTX that older drivers refuse.
pub const PTX_VERSION: (u32, u32) = (12, 1);
/// Architecture of that PTX; every later one runs it.
pub const PTX_ARCHITECTURE: u32 = 80;
/// Drivers that load that PTX.
pub const PTX_DRIVER: &str = "driver 530 (CUDA 12.1) or later";

/// Machine code of a module's kernels for an architecture such as 90, from the cache if compiled before.
///
/// # Errors
///
/// NVRTC is missing, does not support the architecture, or rejects the source: then its log.
pub fn for_device(module: &Module, architecture: u32) -> Result<Vec<u8>, String> {
    static NVRTC: OnceLock<Result<Nvrtc, String>> = OnceLock::new();
    let nvrtc = NVRTC.get_or_init(Nvrtc::find).as_ref().map_err(Clone::clone)?;
    let (major, minor) = nvrtc.version;
    if !nvrtc.architectures.contains(&architecture) {
        return Err(format!("NVRTC {major}.{minor} does not support sm_{architecture}"));
    }
    let target = Target::Cubin(architecture);
    let compile = || nvrtc.compile(module.name, module.source, target, &[]).map(|(cubin, _)| cubin);
    let Some(directory) = directory() else { return compile() };
    let content = [module.source, nvrtc::HEADER, &format!("{major}.{minor} {:?}", target.options())];
    let name = module.name.rsplit('/').next().unwrap_or(module.name).trim_end_matches(".cu");
    cache::get_or(&directory, &format!("{name}-sm_{architecture}"), &content, compile)
}

/// Cache directory, `morphgl/kernels` in the user's cache, if there is one.
fn directory() -> Option<PathBuf> {
    let of = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let cache = of("XDG_CACHE_HOME").or_else(|| Some(of("HOME")?.join(".cache")))?;
    Some(cache.join("morphgl").join("kernels"))
}
