//! Kernel sources, embedded in the program.

use std::ffi::c_void;
use std::fmt;

/// A kernel compiled for the CPU: it unpacks its arguments.
pub type EmulatedKernel = unsafe extern "C" fn(*mut *mut c_void);

/// A file of kernels, embedded by [`crate::module!`].
pub struct Module {
    /// Its name, unique among modules.
    pub name: &'static str,
    /// CUDA C++ source.
    pub source: &'static str,
    /// The same as PTX, for machines without a compiler; empty without a PTX file beside the source.
    pub ptx: &'static str,
    /// Names of its kernels.
    pub kernels: &'static [&'static str],
    #[doc(hidden)]
    pub emulated: &'static [EmulatedKernel],
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Module({}: {:?})", self.name, self.kernels)
    }
}

/// Defines a constant [`Module`]: the source of its kernels and, with the crate's feature `emulate`, the same compiled for
/// the CPU by `morphgl-cuda-build` in the crate's build script. The path is relative to the crate's root, the source names
/// each kernel by `MORPHGL_KERNEL(name)`, and kernel names are unique in the whole program. The PTX of `x.cu` is the file
/// `x.ptx` beside it, made by `cargo run -p morphgl-cuda --example kernels -- compile x.cu`.
///
/// ```
/// morphgl_cuda::module! {
///     /// Conversions of half-precision values.
///     static HALVES = "tests/emulation.cu" { test_half }
/// }
/// assert_eq!(HALVES.kernels, ["test_half"]);
/// assert!(HALVES.ptx.contains(".entry test_half("));
/// ```
#[macro_export]
macro_rules! module {
    ($(#[$meta:meta])* $visibility:vis static $name:ident = $path:literal { $($kernel:ident),+ $(,)? }) => {
        $(#[$meta])*
        $visibility static $name: $crate::Module = $crate::Module {
            name: concat!(env!("CARGO_PKG_NAME"), "/", $path),
            source: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/", $path)),
            ptx: include_str!(concat!(env!("OUT_DIR"), "/", $path, ".ptx")),
            kernels: &[$(stringify!($kernel)),+],
            emulated: {
                #[cfg(feature = "emulate")]
                {
                    $crate::emulated_kernels!($($kernel),+)
                }
                #[cfg(not(feature = "emulate"))]
                {
                    &[]
                }
            },
        };
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! emulated_kernels {
    ($($kernel:ident),+) => {{
        mod emulated {
            unsafe extern "C" {
                $(
                    #[link_name = concat!("morphgl_emulated_", stringify!($kernel))]
                    pub(super) fn $kernel(arguments: *mut *mut ::std::ffi::c_void);
                )+
            }
        }
        &[$(emulated::$kernel as $crate::EmulatedKernel),+]
    }};
}
