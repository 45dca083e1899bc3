//! Policies that count accesses: pre-sampling, and the optimum in hindsight.

use std::ops::Range;

use morphgl_registry::{BatchId, Batching, Error, Result, SamplerSettings};

use crate::counts::{Counts, MAX_BATCHES};
use crate::{Graph, Hotness, Policy};

/// Pre-sampling, PreSC#K: average accesses per epoch, counted in K epochs that are never trained (GNNLab, EuroSys'22,
/// §6; the survey of mini-batch training systems, §VI-B3).
///
/// Of each epoch all mini-batches are counted, or the first ones scaled to a whole epoch: a random sample of its seeds, where
/// epochs are shuffled. Their numbers count down from the
/// last one that the sampler makes ([`Batching::last_epoch`]), so that no run trains them.
///
/// Features are counted exactly for any sampler. Accesses of CSR rows are block rows with
/// edges: the hops that expand a node, where each block is a hop. For other samplers they only rank the nodes.
///
/// `seeds` and `settings` of [`Policy::score`] are ignored: the sampler was built with its own.
///
/// # Errors
///
/// No epoch, mini-batch or thread; 2^24 mini-batches or more; mini-batches that are not in host memory or of another graph; the
/// sampler's own failures.
///
/// # Complexity
///
/// The sampling of the mini-batches on `threads` threads, and an atomic addition for each access; 8 bytes per node
/// while counting, 12 at the end, and the workers' buffers. The result is the same on any number of threads.
#[derive(Debug, Clone, Copy)]
pub struct PreSample<'a> {
    /// The sampler, for the seeds and settings that are scored; it should gather no features.
    pub batching: &'a dyn Batching,
    /// Number of epochs, K.
    pub epochs: u32,
    /// Maximum number of mini-batches of each epoch; all for `None`.
    pub batches: Option<usize>,
    /// Number of threads that sample.
    pub threads: usize,
}

impl PreSample<'_> {
    /// Number of mini-batches of an epoch that are counted.
    fn batches_per_epoch(&self) -> usize {
        let all = self.batching.num_batches();
        self.batches.map_or(all, |batches| batches.min(all))
    }

    /// Number of mini-batches that are counted.
    pub fn num_counted(&self) -> f64 {
        f64::from(self.epochs) * self.batches_per_epoch() as f64
    }
}

impl Policy for PreSample<'_> {
    fn score(&self, graph: &dyn Graph, _: &[u32], _: &SamplerSettings) -> Result<Hotness> {
        let batches = self.batches_per_epoch();
        if batches == 0 || self.epochs == 0 {
            let what = format!("{batches} mini-batches of {} epochs have no accesses; give at least 1", self.epochs);
            return Err(Error::setting("pre-sampling", what));
        }
        let last = self.batching.last_epoch();
        if self.epochs > last {
            let what = format!("{} epochs, and the sampler makes {last}; give fewer", self.epochs);
            return Err(Error::setting("pre-sampling", what));
        }
        let ids = batch_ids((0..self.epochs).map(|epoch| last - epoch), batches)?;
        let counts = Counts::sample(self.batching, &ids, graph.num_nodes(), self.threads)?;
        Ok(counts.scaled(self.batching.num_batches() as f64 / self.num_counted()))
    }
}

/// The optimum in hindsight: average accesses per epoch, counted in the very epochs that are trained. No static cache
/// of as many rows has more hits in these epochs than the hottest by this policy (the policy Optimal of GNNLab,
/// EuroSys'22, §6): a yardstick for the others.
///
/// Counts, errors and complexity as for [`PreSample`].
#[derive(Debug, Clone)]
pub struct Hindsight<'a> {
    /// The sampler of the training; it should gather no features.
    pub batching: &'a dyn Batching,
    /// The epochs that are trained.
    pub epochs: Range<u32>,
    /// Number of threads that sample.
    pub threads: usize,
}

impl Policy for Hindsight<'_> {
    fn score(&self, graph: &dyn Graph, _: &[u32], _: &SamplerSettings) -> Result<Hotness> {
        let (batches, epochs) = (self.batching.num_batches(), self.epochs.len());
        if batches == 0 || epochs == 0 {
            let what = format!("{batches} mini-batches of {epochs} epochs have no accesses; give at least 1");
            return Err(Error::setting("optimum in hindsight", what));
        }
        let ids = batch_ids(self.epochs.clone(), batches)?;
        let counts = Counts::sample(self.batching, &ids, graph.num_nodes(), self.threads)?;
        Ok(counts.scaled(1.0 / epochs as f64))
    }
}

/// The first `batches` mini-batches of each epoch.
fn batch_ids(epochs: impl ExactSizeIterator<Item = u32>, batches: usize) -> Result<Vec<BatchId>> {
    let all = epochs.len().saturating_mul(batches);
    if all >= MAX_BATCHES {
        let what = format!("{all} mini-batches, and fewer than {MAX_BATCHES} can be counted; give fewer epochs");
        return Err(Error::setting("pre-sampling", what));
    }
    Ok(epochs.flat_map(|epoch| (0..batches as u32).map(move |index| BatchId { epoch, index })).collect())
}
