//! Items of work of an emulated stream.

use std::ffi::{c_int, c_void};

use crate::driver::{Address, Failure, Gemm, Outcome, Shape};
use crate::module::EmulatedKernel;

unsafe extern "C" {
    fn morphgl_emulation_launch(
        kernel: EmulatedKernel,
        arguments: *mut *mut c_void,
        grid: *const u32,
        block: *const u32,
        shared_bytes: usize,
    ) -> c_int;
}

#[derive(Debug, Clone)]
pub(super) enum Work {
    Copy { from: Address, to: Address, bytes: usize },
    Fill { at: Address, byte: u8, bytes: usize },
    Launch { name: &'static str, kernel: EmulatedKernel, shape: Shape, arguments: Vec<u64> },
    Gemm(Gemm),
}

impl Work {
    /// Executes the item.
    ///
    /// # Safety
    ///
    /// Its memory is valid.
    pub(super) unsafe fn run(&self) -> Outcome<()> {
        match self {
            // SAFETY: the ranges are valid.
            Self::Copy { from, to, bytes } => unsafe { std::ptr::copy(*from as *const u8, *to as *mut u8, *bytes) },
            // SAFETY: the range is valid.
            Self::Fill { at, byte, bytes } => unsafe { std::ptr::write_bytes(*at as *mut u8, *byte, *bytes) },
            Self::Launch { name, kernel, shape, arguments } => {
                let mut values = arguments.clone();
                let mut pointers: Vec<*mut c_void> = values.iter_mut().map(|v| std::ptr::from_mut(v).cast()).collect();
                let (grid, block, pointers) = (shape.grid.as_ptr(), shape.block.as_ptr(), pointers.as_mut_ptr());
                // SAFETY: arguments are those of the kernel; shapes are checked on the other side.
                let message = match unsafe { morphgl_emulation_launch(*kernel, pointers, grid, block, shape.shared) } {
                    0 => return Ok(()),
                    1 => format!("threads of {name} wait for ever at a barrier"),
                    _ => format!("{shape:?} is not a valid launch"),
                };
                return Err(Failure::new("cuLaunchKernel", message));
            }
            // SAFETY: the matrices are valid.
            Self::Gemm(gemm) => unsafe { multiply(gemm) },
        }
        Ok(())
    }
}

/// # Safety
///
/// The matrices are valid and not accessed concurrently.
unsafe fn multiply(gemm: &Gemm) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("fma") {
        // SAFETY: the processor has FMA, and the caller promises the rest.
        return unsafe { multiply_by_fma(gemm) };
    }
    // SAFETY: the caller's promise.
    unsafe { multiply_by_elements(gemm) }
}

/// [`multiply_by_elements`] compiled for FMA: each `mul_add` is one instruction instead of a call of the mathematical library.
///
/// # Safety
///
/// The matrices are valid and not accessed concurrently, and the processor has FMA.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "fma")]
unsafe fn multiply_by_fma(gemm: &Gemm) {
    // SAFETY: the caller's promise.
    unsafe { multiply_by_elements(gemm) }
}

/// # Safety
///
/// The matrices are valid and not accessed concurrently.
#[inline(always)]
unsafe fn multiply_by_elements(gemm: &Gemm) {
    let at =
        |i: usize, j: usize, stride: usize, transposed: bool| if transposed { j * stride + i } else { i * stride + j };
    let (a, b, out) = (gemm.a as *const f32, gemm.b as *const f32, gemm.out as *mut f32);
    for i in 0..gemm.m {
        for j in 0..gemm.n {
            let mut sum = 0.0f32;
            for d in 0..gemm.k {
                // SAFETY: the indices are within the matrices.
                let (x, y) = unsafe {
                    (
                        *a.add(at(i, d, gemm.strides[0], gemm.transpose[0])),
                        *b.add(at(d, j, gemm.strides[1], gemm.transpose[1])),
                    )
                };
                sum = x.mul_add(y, sum);
            }
            // SAFETY: the indices are within the output.
            unsafe {
                let out = out.add(i * gemm.strides[2] + j);
                *out = gemm.alpha * sum + if gemm.beta == 0.0 { 0.0 } else { gemm.beta * *out };
            }
        }
    }
}
