//! Pre-sampling, smoothed by the inclusion probability.

use std::sync::Arc;

use morphgl_registry::{Result, SamplerSettings};

use crate::{Graph, Hotness, Inclusion, Policy, PreSample};

/// Mini-batches that the inclusion probability counts as: more, and it outweighs counts where it errs; fewer, and nodes that
/// were counted by chance outrank others (`docs/performance/hotness.md`).
const PRIOR_BATCHES: f32 = 4.0;

/// The accesses that [`PreSample`] counts, with [`Inclusion`] as a prior that counts as four mini-batches.
///
/// Counts of few mini-batches cannot tell nodes apart that are rarely accessed: most have 0 or 1. The inclusion probability orders
/// those, and where it errs (it takes picks to be independent, which they are not in graphs with many triangles) counts
/// outweigh it. Random walks have no inclusion probability, and there the counts are all.
///
/// # Errors
///
/// Those of both policies.
///
/// # Complexity
///
/// That of both policies, one after the other; 20 bytes a node, 24 with expansion `New`.
#[derive(Debug, Clone, Copy)]
pub struct Smoothed<'a>(pub PreSample<'a>);

impl Policy for Smoothed<'_> {
    fn score(&self, graph: &dyn Graph, seeds: &[u32], settings: &SamplerSettings) -> Result<Hotness> {
        let counted = self.0.score(graph, seeds, settings)?;
        if settings.sampling.hops().is_none() {
            return Ok(counted);
        }
        Ok(Self::mix(counted, self.0.num_counted(), &Inclusion.score(graph, seeds, settings)?))
    }
}

impl Smoothed<'_> {
    /// The scores, by what was `counted` in `num_counted` mini-batches and the inclusion probability; for a caller that
    /// counts and scores apart.
    pub fn mix(counted: Hotness, num_counted: f64, inclusion: &Hotness) -> Hotness {
        let weight = PRIOR_BATCHES / (PRIOR_BATCHES + num_counted as f32);
        let mix = |counted: Arc<[f32]>, prior: &[f32]| {
            counted.iter().zip(prior).map(|(&counted, &prior)| counted + weight * (prior - counted)).collect()
        };
        Hotness { features: mix(counted.features, &inclusion.features), rows: mix(counted.rows, &inclusion.rows) }
    }
}
