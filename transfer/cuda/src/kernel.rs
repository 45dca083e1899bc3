//! Kernels of a device, and their launch.

use std::ffi::c_void;
use std::sync::atomic::Ordering;

use morphgl_registry::Result;

use crate::driver::{Id, Shape};
use crate::{Argument, Device, Module, Stream};

/// A kernel loaded on a device.
#[derive(Debug, Clone)]
pub struct Kernel {
    name: &'static str,
    function: Id,
    device: Device,
}

impl Module {
    /// Loads the kernel `name`.
    ///
    /// # Errors
    ///
    /// The driver or the compiler refuses it.
    ///
    /// # Panics
    ///
    /// When the module lists no such kernel.
    pub fn kernel(&'static self, device: &Device, name: &str) -> Result<Kernel> {
        let listed = self.kernels.iter().find(|k| **k == name);
        let name = listed.unwrap_or_else(|| panic!("the kernels of {} are {:?}, not {name}", self.name, self.kernels));
        let function = device.check(device.driver().function(self, name))?;
        Ok(Kernel { name, function, device: device.clone() })
    }
}

impl Kernel {
    /// Occupancy: blocks of `block` threads with `shared` bytes of shared memory that a multiprocessor runs at a time.
    pub fn occupancy(&self, block: u32, shared: usize) -> Result<u32> {
        self.device.check(self.device.driver().occupancy(self.function, block, shared))
    }
}

impl Stream {
    /// Launches a kernel.
    ///
    /// # Panics
    ///
    /// When the kernel, or memory that is an argument, belongs to another device.
    ///
    /// # Safety
    ///
    /// `arguments` match the kernel's parameters in number, order and type; the kernel stays within their bounds; and until
    /// the kernel is done, no other stream or host thread writes to what it reads or accesses what it writes.
    pub unsafe fn launch(&self, kernel: &Kernel, shape: Shape, arguments: &mut [Argument<'_>]) -> Result<()> {
        const MAX_ARGUMENTS: usize = 48;
        let device = self.device();
        assert!(arguments.len() <= MAX_ARGUMENTS, "{} has more than {MAX_ARGUMENTS} arguments", kernel.name);
        assert!(kernel.device.is(device), "{} was loaded for {:?}", kernel.name, kernel.device);
        let mut pointers = [std::ptr::null_mut::<c_void>(); MAX_ARGUMENTS];
        for (pointer, argument) in pointers.iter_mut().zip(arguments.iter_mut()) {
            if let Some(users) = argument.users {
                users.mark(self);
            }
            *pointer = argument.value.as_mut_ptr().cast();
        }
        let pointers = &mut pointers[..arguments.len()];
        device.inner().launches.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise; drivers copy arguments before they return.
        let launched = unsafe { device.driver().launch(self.id(), kernel.function, shape, pointers) };
        device.check(launched.map_err(|failure| failure.about(format_args!("kernel {}", kernel.name))))
    }
}

/// Defines a struct with all kernels of some files, and its function `load` for a device; files as in `module!`.
#[macro_export]
macro_rules! kernels {
    (
        $(#[$meta:meta])* $visibility:vis struct $name:ident {
            $($module:ident = $path:literal { $($kernel:ident),+ $(,)? })+
        }
    ) => {
        $($crate::module! { static $module = $path { $($kernel),+ } })+

        $(#[$meta])*
        #[derive(Debug)]
        $visibility struct $name {
            $($($visibility $kernel: $crate::Kernel,)+)+
        }

        impl $name {
            $visibility fn load(device: &$crate::Device) -> ::morphgl_registry::Result<Self> {
                Ok(Self { $($($kernel: $module.kernel(device, stringify!($kernel))?,)+)+ })
            }
        }
    };
}
