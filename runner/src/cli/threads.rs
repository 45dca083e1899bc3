//! The threads of loops outside of plans.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;

static SHARED: AtomicBool = AtomicBool::new(false);

/// From here on commands are called as functions, of which there may be several: all share the threads of the first.
pub(super) fn share() {
    SHARED.store(true, Ordering::Relaxed);
}

/// Starts so many threads.
pub(super) fn start(threads: usize) -> anyhow::Result<()> {
    let started = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global();
    match started {
        Err(error) if !SHARED.load(Ordering::Relaxed) => Err(error).context("no thread can be started"),
        _ => Ok(()),
    }
}
