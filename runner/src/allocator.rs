//! The allocator of the `morphgl` command.

use std::ffi::{c_int, c_long};

use mimalloc::MiMalloc;

// Training allocates and frees large tensors at every step; with this allocator a step takes half the time
// (`docs/decisions.md` has the figures).
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

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
