//! Loading of shared libraries from a given path, such as those of Python wheels.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use libloading::{Error, Library};

/// Loads the library at `path`, after the libraries in its folder whose names begin with `companion`: it depends on them by
/// name, and the loader does not search its folder.
///
/// # Safety
///
/// The initialisers of the libraries are sound.
pub(crate) unsafe fn load(path: &OsStr, companion: &str) -> Result<Library, Error> {
    let folder = Path::new(path).parent().filter(|folder| !folder.as_os_str().is_empty());
    for entry in folder.and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(companion) {
            // SAFETY: the caller's promise. If a companion fails to load, the error of the library itself names it.
            if let Ok(library) = unsafe { Library::new(entry.path()) } {
                std::mem::forget(library);
            }
        }
    }
    // SAFETY: the caller's promise.
    unsafe { Library::new(path) }
}
