//! How a mini-batch is divided into shares.

use std::fmt;
use std::ops::Range;

use morphgl_registry::{BatchId, Result};

/// Divides mini-batches into one share per trainer. Every trainer's own copy gives the same shares.
pub trait Division: fmt::Debug + Send + Sync {
    /// The positions of trainer `rank`'s seeds among the `num_seeds` of a mini-batch; the shares of all ranks follow one another
    /// and are the whole. A share may be empty.
    ///
    /// # Errors
    ///
    /// The division does not reach so far ahead of the mini-batches trained.
    fn share(&self, id: BatchId, num_seeds: usize, rank: usize) -> Result<Range<usize>>;

    /// The seconds from the last step to the end of each trainer's work on its share of a mini-batch, by rank, without waiting for
    /// others. Called once per step, with the same values at every trainer.
    ///
    /// # Errors
    ///
    /// An epoch has no such mini-batch.
    fn observe(&self, _id: BatchId, _seconds: &[f64]) -> Result<()> {
        Ok(())
    }
}

/// A fixed division: numbers of seeds in proportion to weights.
#[derive(Debug, Clone, PartialEq)]
pub struct Weights {
    /// Sums of the weights before and with each rank, divided by their total.
    ends: Vec<f64>,
}

impl Weights {
    /// A division by weights, for example the trainers' measured speeds; `None` unless they are finite and not negative, with
    /// at least one above 0.
    pub fn new(weights: &[f64]) -> Option<Self> {
        let total: f64 = weights.iter().sum();
        let valid = weights.iter().all(|w| *w >= 0.0) && total > 0.0 && total.is_finite();
        let ends = weights.iter().scan(0.0, |sum, w| {
            *sum += w;
            Some(*sum / total)
        });
        valid.then(|| Self { ends: ends.collect() })
    }

    /// Equal shares of `size` trainers.
    ///
    /// # Panics
    ///
    /// When there are none.
    pub fn equal(size: usize) -> Self {
        Self::new(&vec![1.0; size]).expect("a trainer at least")
    }
}

impl Division for Weights {
    fn share(&self, _id: BatchId, num_seeds: usize, rank: usize) -> Result<Range<usize>> {
        let end = |rank: usize| match rank + 1 == self.ends.len() {
            true => num_seeds,
            false => (self.ends[rank] * num_seeds as f64).round() as usize,
        };
        let start = rank.checked_sub(1).map_or(0, end);
        Ok(start..end(rank))
    }
}
