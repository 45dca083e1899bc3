//! Expected degrees by a bounded power law, and the rates for the configured mean degree.

use crate::{Error, Result};

/// A density proportional to `x^-exponent` between `min` and `max`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PowerLaw {
    exponent: f64,
    min: f64,
    max: f64,
}

impl PowerLaw {
    /// The law with the given mean and maximum: finds the minimum by bisection.
    pub(crate) fn with_mean(mean: f64, max: f64, exponent: f64) -> Self {
        let max = max.max(mean);
        let (mut low, mut high) = (mean * 1e-9, mean);
        for _ in 0..100 {
            let min = 0.5 * (low + high);
            let law = Self { exponent, min, max };
            *(if law.mean() < mean { &mut low } else { &mut high }) = min;
        }
        Self { exponent, min: high, max }
    }

    /// The largest value.
    pub(crate) fn max(&self) -> f64 {
        self.max
    }

    pub(crate) fn mean(&self) -> f64 {
        self.moment(1.0) / self.moment(0.0)
    }

    /// The integral of `x^(order - exponent)`.
    fn moment(&self, order: f64) -> f64 {
        integral(order - self.exponent, self.min, self.max)
    }

    /// The value below which a share `u` of the mass lies.
    pub(crate) fn quantile(&self, u: f64) -> f64 {
        let e = 1.0 - self.exponent;
        let (a, b) = (self.min.powf(e), self.max.powf(e));
        (a + u * (b - a)).powf(1.0 / e).clamp(self.min, self.max)
    }

    /// (value, share of mass) of slices even on a logarithmic scale.
    fn slices(&self) -> Vec<(f64, f64)> {
        const SLICES: usize = 48;
        let step = (self.max / self.min).powf(1.0 / SLICES as f64);
        if step <= 1.0 + 1e-9 {
            return vec![(self.min, 1.0)];
        }
        let whole = self.moment(0.0);
        (0..SLICES)
            .map(|i| {
                let from = self.min * step.powi(i as i32);
                let mass = integral(-self.exponent, from, from * step);
                (integral(1.0 - self.exponent, from, from * step) / mass, mass / whole)
            })
            .collect()
    }

    /// Factor of the rates with which a node of `partners` equally likely partners has `degree` of them on average once
    /// duplicates and self-loops are dropped. Rates alone would give that many with duplicates.
    ///
    /// # Errors
    ///
    /// There are too few partners for that degree.
    pub(crate) fn boost(&self, degree: f64, partners: f64, cure: &str) -> Result<f64> {
        if degree == 0.0 {
            return Ok(1.0);
        }
        let slices = self.slices();
        let mean = self.mean();
        let mut boost = 1.0;
        for _ in 0..60 {
            // A pair of expected degrees x and y meets Poisson(rate) times; it is an edge when that is not 0.
            let rate = boost * degree / (mean * mean * partners);
            let share: f64 = slices
                .iter()
                .flat_map(|&(x, p)| slices.iter().map(move |&(y, q)| -p * q * (-rate * x * y).exp_m1()))
                .sum();
            let kept = share * (partners - 1.0).max(0.0);
            if (kept / degree - 1.0).abs() < 1e-4 {
                return Ok(boost);
            }
            boost *= degree / kept;
            if boost.is_nan() || boost > 20.0 {
                break;
            }
        }
        let what = format!("{degree:.1} neighbours out of {partners:.0} nodes are too many to be distinct");
        Err(Error::argument("degree", what, cure))
    }
}

/// The integral of `x^power` from `a` to `b`.
fn integral(power: f64, a: f64, b: f64) -> f64 {
    let p = power + 1.0;
    if p.abs() < 1e-9 { (b / a).ln() } else { (b.powf(p) - a.powf(p)) / p }
}

#[cfg(test)]
mod tests;
