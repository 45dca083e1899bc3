//! The allocator of the `morphgl` command.

use std::ffi::{c_int, c_long};

use mimalloc::MiMalloc;

// Training makes and drops large tensors at every step; with this allocator a step takes half the time
// (`docs/decisions.md` has the figures).
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

unsafe extern "C" {
    /// Of mimalloc, which is linked for the allocator above: frees what it holds without need; with `force`, gives it to
    /// the system.
    fn mi_collect(force: bool);

    /// Of mimalloc: sets an option, by its place in `mi_option_t`.
    fn mi_option_set(option: c_int, value: c_long);
}

/// `mi_option_purge_delay`: milliseconds after which what was freed goes back to the system; 1000 unless set, -1 for never.
const PURGE_DELAY: c_int = 15;
const PURGE_DELAY_DEFAULT: c_long = 1000;

/// Gives the system what was freed and is kept for later: mimalloc does so by itself only when memory is asked for.
pub(crate) fn give_back() {
    // SAFETY: the declaration is mimalloc's, and any thread may call it at any time.
    unsafe { mi_collect(true) }
}

/// Keeps what is freed from now on, for as long as it takes; or lets go of it soon, as is usual.
pub(crate) fn keep_freed(keep: bool) {
    // SAFETY: the declaration is mimalloc's, and any thread may set an option at any time.
    unsafe { mi_option_set(PURGE_DELAY, if keep { -1 } else { PURGE_DELAY_DEFAULT }) }
}

#[cfg(test)]
mod tests;
