//! Seconds that are linear in the share of a mini-batch.

use serde::{Deserialize, Serialize};

/// Seconds by a share of a mini-batch: `fixed + whole · share`, for any share that is not empty.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Linear {
    /// Fixed seconds of any share that is not empty.
    pub fixed: f64,
    /// Further seconds of a whole mini-batch.
    pub whole: f64,
}

impl Linear {
    /// Seconds of a share.
    pub fn at(self, share: f64) -> f64 {
        self.fixed + self.whole * share
    }

    /// The line through the seconds of whole mini-batches and of a share below 1, neither falling nor below 0 anywhere.
    pub fn through(whole: f64, share: f64, seconds: f64) -> Self {
        let fixed = ((seconds - whole * share) / (1.0 - share)).clamp(0.0, whole);
        Self { fixed, whole: whole - fixed }
    }
}
