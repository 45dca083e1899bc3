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
/// That of both policies, one after the other; 16 bytes a node.
#[derive(Debug, Clone, Copy)]
pub struct Smoothed<'a>(pub PreSample<'a>);

impl Policy for Smoothed<'_> {
    fn score(&self, graph: &dyn Graph, seeds: &[u32], settings: &SamplerSettings) -> Result<Hotness> {
        let counted = self.0.score(graph, seeds, settings)?;
        if settings.sampling.hops().is_none() {
            return Ok(counted);
        }
        let prior = Inclusion.score(graph, seeds, settings)?;
        let weight = PRIOR_BATCHES / (PRIOR_BATCHES + self.0.num_counted() as f32);
        let mix = |counted: Arc<[f32]>, prior: &[f32]| {
            counted.iter().zip(prior).map(|(&counted, &prior)| counted + weight * (prior - counted)).collect()
        };
        Ok(Hotness { features: mix(counted.features, &prior.features), rows: mix(counted.rows, &prior.rows) })
    }
}
