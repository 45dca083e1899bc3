//! Random durations around measured means.

use crate::Seconds;
use morphgl_registry::Phase;

/// Normally distributed durations, by each duration's own deviation, never below a tenth of the mean.
///
/// A draw is a function of seed, phase and mini-batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Noise {
    /// Seed.
    pub seed: u64,
    /// Coefficient of variation for all phases, in place of the measured deviations.
    pub variation: Option<f64>,
}

impl Noise {
    /// Deviations as measured.
    pub fn measured(seed: u64) -> Self {
        Self { seed, variation: None }
    }

    /// The same relative deviation for every phase.
    pub fn of(seed: u64, variation: f64) -> Self {
        Self { seed, variation: Some(variation) }
    }

    /// Seconds of one phase of one mini-batch.
    pub fn draw(&self, phase: Phase, batch: u32, seconds: Seconds) -> f64 {
        let std = self.variation.map_or(seconds.std, |v| v * seconds.mean);
        if std <= 0.0 {
            return seconds.mean;
        }
        let key = self.seed ^ (u64::from(batch) << 2 | phase as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (a, b) = (mix(key), mix(key ^ 0x5851_f42d_4c95_7f2d));
        let unit = |x: u64| ((x >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        let normal = (-2.0 * unit(a).ln()).sqrt() * (std::f64::consts::TAU * unit(b)).cos();
        (seconds.mean + std * normal).max(seconds.mean / 10.0)
    }
}

/// The finalizer of SplitMix64.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
