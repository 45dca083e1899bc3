//! The allocator of the `morphgl` command.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::{c_int, c_long};

use mimalloc::MiMalloc;

// Training allocates and frees large tensors at every step; with this allocator a step takes half the time
// (`docs/decisions.md` has the figures).
#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// mimalloc; where it has no memory, the process ends with one line.
struct Allocator;

// SAFETY: every call is mimalloc's, whose results are passed on.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's.
        or_end(unsafe { MiMalloc.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's.
        or_end(unsafe { MiMalloc.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's.
        or_end(unsafe { MiMalloc.realloc(memory, layout, size) }, size)
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's.
        unsafe { MiMalloc.dealloc(memory, layout) }
    }
}

#[inline(always)]
fn or_end(memory: *mut u8, bytes: usize) -> *mut u8 {
    if memory.is_null() { morphgl::cli::out_of_memory(bytes) } else { memory }
}

unsafe extern "C" {
    /// mimalloc's: frees unused internal memory; with `force`, returns it to the system.
    fn mi_collect(force: bool);

    /// mimalloc's: sets an option, by its number in `mi_option_t`.
    fn mi_option_set(option: c_int, value: c_long);
}

/// `mi_option_purge_delay`: milliseconds after which freed memory is returned to the system; -1 for never.
const PURGE_DELAY: c_int = 15;
const PURGE_DELAY_DEFAULT: c_long = 1000;

/// Returns freed memory to the system; mimalloc does so by itself only while memory is being allocated.
pub(crate) fn release() {
    // SAFETY: the declaration is mimalloc's, and any thread may call it at any time.
    unsafe { mi_collect(true) }
}

/// Keeps memory freed from now on indefinitely, or for the default delay.
pub(crate) fn keep_freed(keep: bool) {
    // SAFETY: the declaration is mimalloc's, and any thread may set an option at any time.
    unsafe { mi_option_set(PURGE_DELAY, if keep { -1 } else { PURGE_DELAY_DEFAULT }) }
}

#[cfg(test)]
mod tests;
