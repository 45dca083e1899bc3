//! Durations measured at some counts of threads or workers, interpolated to any count.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Invalid;
use crate::numbers::{MAX_SECONDS, MAX_THREADS, is_amount, wrong};

/// Mean and standard deviation of a duration, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Seconds {
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub std: f64,
}

impl Seconds {
    /// A duration with this mean that does not vary.
    pub const fn constant(mean: f64) -> Self {
        Self { mean, std: 0.0 }
    }

    pub(crate) fn scaled(self, factor: f64) -> Self {
        Self { mean: factor * self.mean, std: factor * self.std }
    }

    pub(crate) fn check(self, what: &dyn fmt::Display) -> Result<Self, Invalid> {
        for (name, value) in [("mean", self.mean), ("deviation", self.std)] {
            if !(is_amount(value) && value <= MAX_SECONDS) {
                let cure = "give a finite number of at least 0, and at most 10^9";
                return wrong(what, format!("a {name} of {value} s; {cure}")).map(|()| self);
            }
        }
        Ok(self)
    }
}

/// A duration measured at a count of threads or workers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The count, from 1.
    pub at: usize,
    /// Seconds per mini-batch.
    pub seconds: Seconds,
}

/// Seconds per mini-batch as a function of a count of threads or workers.
///
/// Between measured counts the *rate* (mini-batches per second) is interpolated linearly;
/// below the first it is proportional to the count; above the last it is constant: no speed-up is assumed that was not measured.
/// The coefficient of variation is interpolated in the same way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Point>")]
pub struct Curve(
    // Invariant: not empty, `at` strictly ascending from at least 1, every mean and deviation finite and not negative.
    Vec<Point>,
);

impl Curve {
    /// Takes measured points in any order.
    ///
    /// # Errors
    ///
    /// No point, a count of 0, one given twice or one above [`MAX_THREADS`], or seconds that are negative, not finite or above
    /// [`MAX_SECONDS`](crate::MAX_SECONDS).
    pub fn new(mut points: Vec<Point>) -> Result<Self, Invalid> {
        let error = |message: &str| Err(Invalid(format!("a curve of durations: {message}")));
        points.sort_by_key(|p| p.at);
        match points.first() {
            None => return error("no point; measure at least one count"),
            Some(Point { at: 0, .. }) => return error("a count of 0; counts start at 1"),
            Some(_) => {}
        }
        if let Some(point) = points.last().filter(|p| p.at > MAX_THREADS) {
            return error(&format!("a count of {}; at most {MAX_THREADS} are planned with", point.at));
        }
        if let Some(pair) = points.windows(2).find(|pair| pair[0].at == pair[1].at) {
            return error(&format!("the count {} is there twice; give it once", pair[0].at));
        }
        for point in &points {
            point.seconds.check(&format_args!("a curve of durations, at {}", point.at))?;
        }
        Ok(Self(points))
    }

    /// The measured points, by ascending count.
    pub fn points(&self) -> &[Point] {
        &self.0
    }

    /// Seconds at `count`, which counts as 1 when it is 0.
    pub fn at(&self, count: usize) -> Seconds {
        let count = count.max(1);
        let after = self.0.partition_point(|p| p.at < count);
        let Some(high) = self.0.get(after) else { return self.0[after - 1].seconds };
        if high.at == count {
            return high.seconds;
        }
        let Some(low) = after.checked_sub(1).map(|i| self.0[i]) else {
            return high.seconds.scaled(high.at as f64 / count as f64);
        };
        let share = (count - low.at) as f64 / (high.at - low.at) as f64;
        let mix = |a: f64, b: f64| (1.0 - share) * a + share * b;
        // A duration of zero is an infinite rate, and so is every mix with it.
        let mean = 1.0 / mix(1.0 / low.seconds.mean, 1.0 / high.seconds.mean);
        let variation = |s: Seconds| if s.mean > 0.0 { s.std / s.mean } else { 0.0 };
        Seconds { mean, std: mean * mix(variation(low.seconds), variation(high.seconds)) }
    }

    pub(crate) fn scaled(&self, factor: f64) -> Self {
        Self(self.0.iter().map(|p| Point { at: p.at, seconds: p.seconds.scaled(factor) }).collect())
    }

    /// Minimum mean over all counts.
    pub(crate) fn min(&self) -> f64 {
        self.0.iter().map(|p| p.seconds.mean).fold(f64::INFINITY, f64::min)
    }

    /// Minimum of count times mean: thread-seconds of a mini-batch at the most efficient count.
    ///
    /// Between two points the rate is linear, so count over rate is monotone, and the minimum lies at a measured point.
    pub(crate) fn min_work(&self) -> f64 {
        self.0.iter().map(|p| p.at as f64 * p.seconds.mean).fold(f64::INFINITY, f64::min)
    }
}

impl TryFrom<Vec<Point>> for Curve {
    type Error = Invalid;

    fn try_from(points: Vec<Point>) -> Result<Self, Invalid> {
        Self::new(points)
    }
}
