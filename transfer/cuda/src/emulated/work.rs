//! Items of work on an emulated stream.

use std::ffi::{c_int, c_void};

use super::failure;
use crate::driver::{Address, Outcome, Product, Shape};
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

/// An item of work.
#[derive(Debug, Clone)]
pub(super) enum Work {
    Copy { from: Address, to: Address, bytes: usize },
    Fill { at: Address, byte: u8, bytes: usize },
    Launch { name: &'static str, kernel: EmulatedKernel, shape: Shape, arguments: Vec<u64> },
    Multiply(Product),
}

impl Work {
    /// Executes it.
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
                let status = unsafe { morphgl_emulation_launch(*kernel, pointers, grid, block, shape.shared) };
                match status {
                    0 => {}
                    1 => {
                        return Err(failure("cuLaunchKernel", format!("threads of {name} wait for ever at a barrier")));
                    }
                    _ => return Err(failure("cuLaunchKernel", format!("{shape:?} is not a launch of a device"))),
                }
            }
            // SAFETY: the matrices are valid.
            Self::Multiply(product) => unsafe { multiply(product) },
        }
        Ok(())
    }
}

/// # Safety
///
/// The matrices are valid and not accessed concurrently.
unsafe fn multiply(p: &Product) {
    let at =
        |i: usize, j: usize, stride: usize, transposed: bool| if transposed { j * stride + i } else { i * stride + j };
    let (a, b, out) = (p.a as *const f32, p.b as *const f32, p.out as *mut f32);
    for i in 0..p.m {
        for j in 0..p.n {
            let mut sum = 0.0f32;
            for d in 0..p.k {
                // SAFETY: inside of the matrices.
                let (x, y) = unsafe {
                    (*a.add(at(i, d, p.strides[0], p.transpose[0])), *b.add(at(d, j, p.strides[1], p.transpose[1])))
                };
                sum = x.mul_add(y, sum);
            }
            // SAFETY: inside of the output.
            unsafe {
                let out = out.add(i * p.strides[2] + j);
                *out = p.alpha * sum + if p.beta == 0.0 { 0.0 } else { p.beta * *out };
            }
        }
    }
}
