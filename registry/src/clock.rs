//! The clock of a run in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The present instant of an executor that runs in virtual time, since its epoch began. Clones are of the same clock.
///
/// The executor sets it before work begins, and not again until all work under way has answered, so that an operator at work reads
/// the instant at which its work began.
#[derive(Debug, Clone, Default)]
pub struct VirtualClock(Arc<AtomicU64>);

impl VirtualClock {
    /// The present instant.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Acquire))
    }

    /// Sets the present instant, capped at 2^64 - 1 nanoseconds (584 years).
    pub fn set(&self, now: Duration) {
        self.0.store(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX), Ordering::Release);
    }
}
