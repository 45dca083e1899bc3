//! Mean, deviation, median, outliers.

use morphgl_plan::Seconds;
use serde::{Deserialize, Serialize};

/// What was measured of one duration, in seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Statistics {
    /// Mean of all samples.
    pub mean: f64,
    /// Standard deviation (of a sample: divided by one less than there are; 0 of a single one).
    pub std: f64,
    /// Median; the mean of the middle two of an even number.
    pub median: f64,
    /// Every sample, in the order measured.
    pub samples: Vec<f64>,
    /// Positions of the outliers among the samples: those above median + 5 · MAD,
    /// the median absolute deviation, which counts as at least 5% of the median.
    pub outliers: Vec<usize>,
}

impl Statistics {
    /// Sums up samples.
    ///
    /// # Panics
    ///
    /// Without a sample, or with one that is not a number.
    pub fn of(samples: Vec<f64>) -> Self {
        assert!(!samples.is_empty(), "a duration is measured at least once");
        assert!(samples.iter().all(|x| !x.is_nan()), "a duration is a number: {samples:?}");
        let (mean, std) = mean_and_std(&samples);
        let middle = median(samples.clone());
        let mad = median(samples.iter().map(|x| (x - middle).abs()).collect());
        let outliers = (0..samples.len()).filter(|&i| samples[i] > middle + 5.0 * mad.max(0.05 * middle)).collect();
        Self { mean, std, median: middle, samples, outliers }
    }

    /// Mean and deviation without the outliers, for the planner: a hiccup of the machine is no property of the operator.
    pub fn seconds(&self) -> Seconds {
        let usual =
            (0..self.samples.len()).filter(|i| !self.outliers.contains(i)).map(|i| self.samples[i]).collect::<Vec<_>>();
        let (mean, std) = mean_and_std(&usual);
        Seconds { mean, std }
    }
}

fn mean_and_std(samples: &[f64]) -> (f64, f64) {
    let n = samples.len() as f64;
    let mean = samples.iter().sum::<f64>() / n;
    let squares: f64 = samples.iter().map(|x| (x - mean).powi(2)).sum();
    (mean, if samples.len() > 1 { (squares / (n - 1.0)).sqrt() } else { 0.0 })
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len() % 2 == 1 { values[half] } else { (values[half - 1] + values[half]) / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::Statistics;

    #[test]
    fn known_values() {
        let s = Statistics::of(vec![1.0, 2.0, 3.0, 4.0]);
        assert_eq!((s.mean, s.median, s.outliers), (2.5, 2.5, vec![]));
        assert!((s.std - (5.0f64 / 3.0).sqrt()).abs() < 1e-15);
        let s = Statistics::of(vec![7.0]);
        assert_eq!((s.mean, s.std, s.median), (7.0, 0.0, 7.0));
    }

    #[test]
    fn a_hiccup_is_named_and_left_out() {
        let s = Statistics::of(vec![1.0, 1.1, 0.9, 50.0, 1.0, 1.05]);
        assert_eq!(s.outliers, vec![3]);
        assert!(s.mean > 9.0);
        assert!((s.seconds().mean - 1.01).abs() < 1e-9);
        // All the same: a difference that cannot be told from noise is no outlier.
        assert!(Statistics::of(vec![1.0, 1.0, 1.0, 1.2]).outliers.is_empty());
    }
}
