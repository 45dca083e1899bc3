//! The clock of the time limit.

use std::time::{Duration, Instant};

/// Time in which the process ran. While it is stopped (SIGSTOP, Ctrl-Z) or the machine is suspended, lanes do no work, so that
/// time does not count as an operator's.
///
/// The clock is read once a [`Clock::piece`] at least; a longer gap between two readings counts as two pieces.
#[derive(Debug)]
pub(crate) struct Clock {
    limit: Option<Duration>,
    piece: Duration,
    read: Instant,
    ran: Duration,
}

/// Longest wait between two readings.
const LONGEST: Duration = Duration::from_secs(1);

/// Pieces of a time limit at least: a gap takes no more than a quarter of it.
const PIECES: u32 = 8;

impl Clock {
    /// A clock for a time limit, at `now`.
    pub(crate) fn new(limit: Option<Duration>, now: Instant) -> Self {
        let piece = limit.map_or(LONGEST, |limit| LONGEST.min(limit / PIECES));
        Self { limit, piece, read: now, ran: Duration::ZERO }
    }

    /// Reads the clock `now`.
    pub(crate) fn read(&mut self, now: Instant) -> Duration {
        self.ran += now.saturating_duration_since(self.read).min(2 * self.piece);
        self.read = now;
        self.ran
    }

    /// How long to sleep before the next reading, where work in progress began at `since` at the earliest; `None` for ever.
    pub(crate) fn sleep(&self, since: Duration) -> Option<Duration> {
        let left = |limit: Duration| limit.saturating_sub(self.ran.saturating_sub(since));
        self.limit.map(|limit| left(limit).min(self.piece))
    }

    /// Whether work that began at `since` has passed the time limit, by the last reading.
    pub(crate) fn is_late(&self, since: Duration) -> bool {
        self.limit.is_some_and(|limit| self.ran.saturating_sub(since) >= limit)
    }
}

#[cfg(test)]
mod tests;
