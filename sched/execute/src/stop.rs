//! The flag that ends a run early.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A request to end a run, after the current mini-batch or after the current epoch. Clones share the flags; setting them is safe in a
/// signal handler.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<Flags>);

#[derive(Debug, Default)]
struct Flags {
    now: AtomicBool,
    after_epoch: AtomicBool,
}

impl Stop {
    /// A flag that is not set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Requests the end after the current mini-batch: an interruption.
    pub fn request(&self) {
        self.0.now.store(true, Ordering::Relaxed);
    }

    /// Whether the end after the current mini-batch was requested.
    pub fn is_requested(&self) -> bool {
        self.0.now.load(Ordering::Relaxed)
    }

    /// Requests the end after the current epoch and its evaluation, or after the one that was just done: the run is then done as by early
    /// stopping. Of several ranks each has to request it.
    pub fn request_after_epoch(&self) {
        self.0.after_epoch.store(true, Ordering::Relaxed);
    }

    /// Whether the end after the current epoch was requested.
    pub fn is_requested_after_epoch(&self) -> bool {
        self.0.after_epoch.load(Ordering::Relaxed)
    }
}
