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
    /// Positions of the outliers among the samples: those above median + 5 · MAD (median absolute deviation).
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
        let n = samples.len() as f64;
        let mean = samples.iter().sum::<f64>() / n;
        let squares: f64 = samples.iter().map(|x| (x - mean).powi(2)).sum();
        let std = if samples.len() > 1 { (squares / (n - 1.0)).sqrt() } else { 0.0 };
        let middle = median(samples.clone());
        let mad = median(samples.iter().map(|x| (x - middle).abs()).collect());
        let outliers = (0..samples.len()).filter(|&i| samples[i] > middle + 5.0 * mad).collect();
        Self { mean, std, median: middle, samples, outliers }
    }

    /// Mean and deviation, for the planner.
    pub fn seconds(&self) -> Seconds {
        Seconds { mean: self.mean, std: self.std }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len() % 2 == 1 { values[half] } else { (values[half - 1] + values[half]) / 2.0 }
}
