//! Loading of shared libraries, and tables of their functions.
//!
//! cudarc supplies library names and signatures, which are checked against the tables at compile time. Its own bindings panic
//! on a missing function, and an unknown status is undefined behaviour; here all functions are looked up at once, and a status
//! is an integer.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use libloading::{Error, Library};

/// Loads the library that an environment variable names, else the first of `names` on the loader's path; it stays loaded.
/// The error says how to install it from `package`. Libraries beside it that begin with `companion` are loaded first.
///
/// # Safety
///
/// The initialisers of the libraries are sound.
pub(crate) unsafe fn find(
    variable: &str,
    names: &[&str],
    companion: &str,
    package: &str,
) -> Result<&'static Library, String> {
    let library = match env::var_os(variable) {
        // SAFETY: the caller's promise.
        Some(path) => unsafe { load(&path, companion) }
            .map_err(|e| format!("{variable} names {}, which cannot be loaded: {e}", path.display()))?,
        // SAFETY: as above.
        None => names.iter().find_map(|name| unsafe { load(name.as_ref(), companion) }.ok()).ok_or_else(|| {
            format!(
                "the loader does not find {}; install it (the CUDA toolkit, or pip install {package}) and put its folder on \
                 LD_LIBRARY_PATH, or its path in {variable}",
                names.join(" or ")
            )
        })?,
    };
    Ok(Box::leak(Box::new(library)))
}

/// Loads the library at `path`, after the libraries in its folder whose names begin with `companion`: it depends on them by
/// name, and the loader does not search its folder.
///
/// # Safety
///
/// The initialisers of the libraries are sound.
unsafe fn load(path: &OsStr, companion: &str) -> Result<Library, Error> {
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

/// Defines a table of a library's functions, whose statuses are turned into errors by `$describe(call, status)`.
macro_rules! functions {
    ($(#[$meta:meta])* $name:ident of $sys:ident -> $status:ident, $error:ident by $describe:ident {
        $(fn $function:ident($($argument:ty),* $(,)?);)*
    }) => {
        $(#[$meta])*
        #[derive(Debug)]
        #[allow(non_snake_case, reason = "the names are the library's")]
        pub(super) struct $name {
            $(pub(super) $function: unsafe extern "C" fn($($argument),*) -> u32,)*
        }

        $(const _: unsafe fn($($argument),*) -> $sys::$status = $sys::$function;)*

        impl $name {
            /// Looks up all functions; the error is the name of the first missing one.
            pub(super) fn load(library: &'static ::libloading::Library) -> Result<Self, &'static str> {
                Ok(Self {
                    $($function: {
                        type F = unsafe extern "C" fn($($argument),*) -> u32;
                        // SAFETY: the signature is cudarc's, which made it from the library's header, but for the status:
                        // an enum there, the same 32 bits here.
                        *unsafe { library.get::<F>(stringify!($function)) }.map_err(|_| stringify!($function))?
                    },)*
                })
            }

            /// A status as a result that names the call.
            pub(super) fn check(&self, call: &'static str, status: u32) -> Result<(), $error> {
                if status == 0 { Ok(()) } else { Err($describe(call, status)) }
            }
        }
    };
}
pub(crate) use functions;

/// Calls a function of a table and checks its status.
macro_rules! call {
    ($table:expr, $function:ident($($argument:expr),* $(,)?)) => {
        $table.check(stringify!($function), ($table.$function)($($argument),*))
    };
}
pub(crate) use call;
