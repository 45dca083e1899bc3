//! Kernels compiled by NVRTC: for the device at hand when the program runs, and into the PTX that comes with them.

mod cache;
mod nvrtc;

use std::path::PathBuf;
use std::sync::OnceLock;

pub use nvrtc::{Nvrtc, Resources, Target};

use crate::module::Module;

/// The version of NVRTC that makes the PTX beside the kernels, as it writes it there. Later ones make PTX that older
/// drivers refuse.
pub const PTX_VERSION: (u32, u32) = (12, 1);
/// The architecture of that PTX, which every later one understands.
pub const PTX_ARCHITECTURE: u32 = 80;
/// The drivers that take it.
pub const PTX_DRIVER: &str = "driver 530 (CUDA 12.1) or later";

/// Machine code of a module's kernels for an architecture such as 90, out of the cache if it was made before.
///
/// # Errors
///
/// There is no NVRTC, it does not know the architecture, or it refuses the source: then its log.
pub fn for_device(module: &Module, architecture: u32) -> Result<Vec<u8>, String> {
    static NVRTC: OnceLock<Result<Nvrtc, String>> = OnceLock::new();
    let nvrtc = NVRTC.get_or_init(Nvrtc::find).as_ref().map_err(Clone::clone)?;
    for_device_with(nvrtc, directory().as_deref(), module, architecture)
}

/// As [`for_device`], by a given NVRTC and cached in a given directory.
///
/// # Errors
///
/// As [`for_device`].
pub fn for_device_with(
    nvrtc: &Nvrtc,
    cache: Option<&std::path::Path>,
    module: &Module,
    architecture: u32,
) -> Result<Vec<u8>, String> {
    let known = nvrtc.architectures();
    if !known.contains(&architecture) {
        let (major, minor) = nvrtc.version();
        return Err(format!("NVRTC {major}.{minor} knows no sm_{architecture}"));
    }
    let target = Target::Cubin(architecture);
    let compile = || nvrtc.compile(module.name, module.source, target);
    let Some(directory) = cache else { return compile() };
    let (major, minor) = nvrtc.version();
    let content = [module.source, nvrtc::HEADER, &format!("{major}.{minor} {:?}", target.options())];
    let name = module.name.rsplit('/').next().unwrap_or(module.name).trim_end_matches(".cu");
    cache::get_or(directory, &format!("{name}-sm_{architecture}"), &content, compile)
}

/// Where what was compiled is kept: `morphgl/kernels` in the user's cache; nowhere, if there is none.
fn directory() -> Option<PathBuf> {
    let of = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let cache = of("XDG_CACHE_HOME").or_else(|| Some(of("HOME")?.join(".cache")))?;
    Some(cache.join("morphgl").join("kernels"))
}
