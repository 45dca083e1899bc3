//! The problem of a layer-split plan: exact durations, and points of durations with given rows.

use serde::{Deserialize, Serialize};

use super::{check_ratio, staleness};
use crate::numbers::{within, wrong};
use crate::{Curve, Invalid, Problem};

/// Measured durations at one length of super-batches and one hot ratio.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SplitPoint {
    /// Mini-batches of a super-batch.
    pub super_batch: usize,
    /// Hot ratio, above 0 and at most 1.
    pub ratio: f64,
    /// The planning problem with the durations of mini-batches with given rows.
    pub problem: Problem,
    /// Seconds of computing the given rows of one super-batch, over the threads that do it, alone on the cores. Each count that
    /// was measured is tried.
    pub embedding: Curve,
}

/// An exact problem, and the ways to split it.
///
/// Memory of the embeddings themselves is not planned: take it off the limits of the points' problems.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct SplitProblem {
    // Invariant: points have the exact problem's mini-batches and resources; ratios are above 0 and at most 1, super-batches not
    // empty; one resource has cores, if there are points.
    pub(super) exact: Problem,
    pub(super) points: Vec<SplitPoint>,
    /// Updates by which a given row may be behind; 0 allows no split.
    pub max_staleness: usize,
}

#[derive(Deserialize)]
struct Unchecked {
    exact: Problem,
    points: Vec<SplitPoint>,
    max_staleness: usize,
}

impl TryFrom<Unchecked> for SplitProblem {
    type Error = Invalid;

    fn try_from(u: Unchecked) -> Result<Self, Invalid> {
        Self::new(u.exact, u.points, u.max_staleness)
    }
}

impl SplitProblem {
    /// Takes the parts of a problem.
    ///
    /// # Errors
    ///
    /// A point with other mini-batches or resources than the exact problem, an empty super-batch or a hot ratio outside of 0 to 1;
    /// points where no resource has cores, on which given rows are computed.
    pub fn new(exact: Problem, points: Vec<SplitPoint>, max_staleness: usize) -> Result<Self, Invalid> {
        if !points.is_empty() && exact.resources.iter().all(|r| r.cores.is_none()) {
            return Err(Invalid("layer-split: no resource has cores; given rows are computed on cores".to_string()));
        }
        let check = |point: &SplitPoint| {
            within("super_batch", point.super_batch, 1, u32::MAX as usize)?;
            check_ratio(point.ratio)?;
            let (of_point, batches) = (point.problem.num_batches, exact.num_batches);
            if of_point != batches {
                return wrong(&"num_batches", format!("{of_point}, and {batches} in the exact problem; give the same"));
            }
            if point.problem.resources != exact.resources {
                return wrong(&"resources", "others than in the exact problem; give the same".to_string());
            }
            Ok(())
        };
        for (i, point) in points.iter().enumerate() {
            check(point).map_err(|e| Invalid(format!("layer-split: point {i}: {e}")))?;
        }
        Ok(Self { exact, points, max_staleness })
    }

    /// The exact problem.
    pub fn exact(&self) -> &Problem {
        &self.exact
    }

    /// The points.
    pub fn points(&self) -> &[SplitPoint] {
        &self.points
    }

    /// The points within the bound of staleness, by staleness and hot ratio.
    pub(super) fn allowed(&self) -> Vec<&SplitPoint> {
        let is_allowed = |p: &&SplitPoint| staleness(p.super_batch) <= self.max_staleness;
        let mut points: Vec<&SplitPoint> = self.points.iter().filter(is_allowed).collect();
        points.sort_by(|a, b| a.super_batch.cmp(&b.super_batch).then(a.ratio.total_cmp(&b.ratio)));
        points
    }
}
