//! The allocator of the `morphgl` command.

use mimalloc::MiMalloc;

// Training makes and drops large tensors at every step; with this allocator a step takes half the time
// (`docs/decisions.md` has the figures).
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

unsafe extern "C" {
    /// Of mimalloc, which is linked for the allocator above: frees what it holds without need; with `force`, gives it to
    /// the system.
    fn mi_collect(force: bool);
}

/// Gives the system what was freed and is kept for later: mimalloc does so by itself only when memory is asked for.
pub(crate) fn give_back() {
    // SAFETY: the declaration is mimalloc's, and any thread may call it at any time.
    unsafe { mi_collect(true) }
}
