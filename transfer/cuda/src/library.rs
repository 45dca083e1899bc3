//! Libraries at a path that somebody names, such as those of Python's wheels.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use libloading::{Error, Library};

/// Loads the library at `path`, after those in its folder whose names begin with `companion`: it asks for them by name, and
/// the loader does not look for them there.
///
/// # Safety
///
/// What the libraries do when they are loaded is sound.
pub(crate) unsafe fn load(path: &OsStr, companion: &str) -> Result<Library, Error> {
    let folder = Path::new(path).parent().filter(|folder| !folder.as_os_str().is_empty());
    for entry in folder.and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(companion) {
            // SAFETY: the caller's promise. Where it cannot be loaded, the library itself says what it lacks.
            if let Ok(library) = unsafe { Library::new(entry.path()) } {
                std::mem::forget(library);
            }
        }
    }
    // SAFETY: the caller's promise.
    unsafe { Library::new(path) }
}
