//! The parts of the suite that this crate's programs run, one suite at a time.

use std::sync::{Mutex, MutexGuard, PoisonError};

use morphgl_conformance::batching::Part;
use morphgl_registry::Description;

static SUITE: Mutex<()> = Mutex::new(());

/// Waits until no other suite runs: two take more streams than a device has.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    SUITE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The part for an operator that samples by hops, by walks or by edge type. All combinations of the settings of the latter take over five
/// minutes on an emulated device; under the thread sanitizer each takes seconds.
pub(crate) fn of(description: &Description) -> Part {
    let is_typed = description.key == morphgl_batching_cuda_neighbor::TYPED.key;
    let (cases, [other, typed]) = match morphgl_cuda::sanitizer() {
        None => (1, [1, 7]),
        Some("thread") => (3, [29, 101]),
        Some(_) => (3, [7, 31]),
    };
    Part { cases, settings: if is_typed { typed } else { other } }
}
