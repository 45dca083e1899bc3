//! Pre-sampling, smoothed by the inclusion probability.

use std::sync::Arc;

use morphgl_registry::{Result, SamplerSettings};

use crate::inclusion::expansion;
use crate::{Graph, Hotness, Inclusion, Policy, PreSample, WeightedReversePageRank};

/// Mini-batches that the prior counts as: more, and it outweighs counts where it errs; fewer, and nodes that
/// were counted by chance outrank others (`docs/performance/hotness.md`).
const PRIOR_BATCHES: f32 = 4.0;

/// The accesses that [`PreSample`] counts, with [`Inclusion`] as a prior that counts as four mini-batches.
///
/// Counts of few mini-batches cannot tell nodes apart that are rarely accessed: most have 0 or 1. The inclusion probability orders
/// those, and where it errs (it takes picks to be independent, which they are not in graphs with many triangles) counts
/// outweigh it. Random walks have no inclusion probability: there [`WeightedReversePageRank`] is the prior, scaled to as many
/// accesses as were counted.
///
/// # Errors
///
/// Those of both policies.
///
/// # Complexity
///
/// That of both policies, one after the other; 20 bytes per node, 24 with expansion `New` and for walks.
#[derive(Debug, Clone, Copy)]
pub struct Smoothed<'a>(pub PreSample<'a>);

impl Policy for Smoothed<'_> {
    fn score(&self, graph: &dyn Graph, seeds: &[u32], settings: &SamplerSettings) -> Result<Hotness> {
        let counted = self.0.score(graph, seeds, settings)?;
        Self::mix(counted, self.0.num_counted(), graph, seeds, settings)
    }
}

impl Smoothed<'_> {
    /// The scores, by what was `counted` in `num_counted` mini-batches; for a caller that counts by itself.
    ///
    /// # Errors
    ///
    /// Those of the prior.
    pub fn mix(
        counted: Hotness,
        num_counted: f64,
        graph: &dyn Graph,
        seeds: &[u32],
        settings: &SamplerSettings,
    ) -> Result<Hotness> {
        let in_accesses = expansion(&settings.sampling).is_some();
        let prior = match in_accesses {
            true => Inclusion.score(graph, seeds, settings)?,
            false => WeightedReversePageRank::default().score(graph, seeds, settings)?,
        };
        let weight = PRIOR_BATCHES / (PRIOR_BATCHES + num_counted as f32);
        let mix = |counted: Arc<[f32]>, prior: &[f32]| {
            let sum = |scores: &[f32]| scores.iter().map(|&score| f64::from(score)).sum::<f64>();
            let scale = if in_accesses { 1.0 } else { (sum(&counted) / sum(prior).max(f64::MIN_POSITIVE)) as f32 };
            counted.iter().zip(prior).map(|(&counted, &prior)| counted + weight * (scale * prior - counted)).collect()
        };
        Ok(Hotness { features: mix(counted.features, &prior.features), rows: mix(counted.rows, &prior.rows) })
    }
}
