//! The random policy.

use morphgl_platform::{SPLITMIX_STEP, splitmix64};
use morphgl_registry::{Result, SamplerSettings};

use crate::{Graph, Hotness, Policy};

/// Uniform random scores below 1: the baseline that knows nothing (GNNLab, EuroSys'22, §6). The score of a node depends on the
/// seed and its id alone.
///
/// # Complexity
///
/// O(nodes) time; 4 bytes per node.
#[derive(Debug, Clone, Copy, Default)]
pub struct Random {
    /// Seed of the scores.
    pub seed: u64,
}

impl Policy for Random {
    fn score(&self, graph: &dyn Graph, _: &[u32], _: &SamplerSettings) -> Result<Hotness> {
        // The seed is mixed first: neighbouring seeds would otherwise give shifted sequences.
        let start = splitmix64(self.seed.wrapping_add(SPLITMIX_STEP));
        let score = |v: u64| {
            let bits = splitmix64(start.wrapping_add((v + 1).wrapping_mul(SPLITMIX_STEP)));
            // 24 bits are what an f32 below 1 holds exactly.
            (bits >> 40) as f32 / (1 << 24) as f32
        };
        Ok(Hotness::of_both((0..graph.num_nodes() as u64).map(score).collect()))
    }
}
