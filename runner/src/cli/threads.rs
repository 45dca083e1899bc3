//! The threads of loops outside of plans.

use std::sync::atomic::{AtomicBool, Ordering};

static SHARED: AtomicBool = AtomicBool::new(false);

/// From here on commands are called as functions, of which there may be several: all share the threads of the first.
pub(super) fn share() {
    SHARED.store(true, Ordering::Relaxed);
}

/// Starts so many threads.
pub(super) fn start(threads: usize) -> anyhow::Result<()> {
    let started = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global();
    started.or_else(|error| if SHARED.load(Ordering::Relaxed) { Ok(()) } else { Err(error) })?;
    Ok(())
}
