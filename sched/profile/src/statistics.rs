//! Mean, deviation, median and outliers of samples.

use morphgl_plan::Seconds;
use serde::{Deserialize, Serialize};

/// Samples of one duration, in seconds, and their statistics.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Statistics {
    /// Mean of all samples.
    pub mean: f64,
    /// Sample standard deviation (the divisor is the number of samples less one); 0 of a single sample.
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
    /// The statistics of samples.
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

    /// Mean and deviation without the outliers, for the planner: a disturbance of the machine is no property of the operator.
    pub fn seconds(&self) -> Seconds {
        let mut usual: Vec<Option<f64>> = self.samples.iter().copied().map(Some).collect();
        self.outliers.iter().for_each(|&i| usual[i] = None);
        let (mean, std) = mean_and_std(&usual.into_iter().flatten().collect::<Vec<_>>());
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
mod tests;
