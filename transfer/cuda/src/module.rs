//! Kernels, by their source.

use std::ffi::c_void;
use std::fmt;

use morphgl_registry::Result;

use crate::Device;
use crate::driver::Id;

/// A kernel compiled for the CPU: it unpacks its arguments.
pub type Emulated = unsafe extern "C" fn(*mut *mut c_void);

/// A file of kernels, made by [`crate::module!`].
pub struct Module {
    /// Its name, which no other module has.
    pub name: &'static str,
    /// CUDA C++.
    pub source: &'static str,
    /// The same as PTX, for machines without a compiler; empty when none lay beside the source.
    pub ptx: &'static str,
    /// The names of its kernels.
    pub kernels: &'static [&'static str],
    #[doc(hidden)]
    pub emulated: &'static [Emulated],
}

impl Module {
    /// The kernel `name`.
    ///
    /// # Errors
    ///
    /// The driver or the compiler refuses it, or there is no such kernel.
    pub fn kernel(&'static self, device: &Device, name: &str) -> Result<Kernel> {
        let known = self.kernels.iter().find(|k| **k == name);
        let name = known.unwrap_or_else(|| panic!("the kernels of {} are {:?}, not {name}", self.name, self.kernels));
        let function = device.driver().function(self, name).map_err(|e| device.error(&e))?;
        Ok(Kernel { name, function, device: device.clone() })
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Module({}: {:?})", self.name, self.kernels)
    }
}

/// A kernel on a device.
#[derive(Debug, Clone)]
pub struct Kernel {
    pub(crate) name: &'static str,
    pub(crate) function: Id,
    pub(crate) device: Device,
}

impl Kernel {
    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Blocks of `block` threads with `shared` bytes of shared memory that a multiprocessor runs at a time.
    ///
    /// # Errors
    ///
    /// The driver refuses the question.
    pub fn occupancy(&self, block: u32, shared: usize) -> Result<u32> {
        self.device.driver().occupancy(self.function, block, shared).map_err(|e| self.device.error(&e))
    }
}

/// A constant [`Module`]: its kernels' source, and, with the crate's feature `emulate`, the same compiled for the CPU
/// by `morphgl-cuda-build`, which the crate's build script calls. The path is from the crate's root, and each kernel is
/// also named in the source by `MORPHGL_KERNEL(name)`. A kernel's name is its own in the whole program.
/// Beside `x.cu` lies `x.ptx`, made by `cargo run -p morphgl-cuda --example kernels -- compile x.cu`.
///
/// ```
/// morphgl_cuda::module! {
///     /// Values of halves.
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
        &[$(emulated::$kernel as $crate::__private::Emulated),+]
    }};
}
