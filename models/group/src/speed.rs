//! The speed of one trainer, estimated from the seconds of its shares.

/// Number of recent observations whose median outliers are compared with.
const RECENT: usize = 5;
/// Decay of an observation's weight per further observation: some 30 of them count.
const KEPT: f64 = 0.97;
/// The same once the model has missed most recent observations although shares had another size: their slope was wrong.
const KEPT_MISSED: f64 = 0.3;
/// Observations are clipped to within this factor of what the median of the recent ones predicts.
const OUTLIER: f64 = 1.5;
/// Median factor between observed and predicted seconds from which the speed has changed.
const CHANGED: f64 = 1.2;
/// Shares of the same size, as a factor.
const SAME_WORK: f64 = 1.2;
/// Ridge penalty on the fixed cost, as a part of the observations' total weight: where the relative variance of the shares' work
/// is as small as this, the estimated fixed cost is halved.
const NO_FIXED_COST: f64 = 0.01;
/// Maximum fraction of a mean share's seconds that may be fixed cost.
const MAX_FIXED: f64 = 0.95;

/// Seconds of a share: `fixed + slope · work`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Line {
    /// Seconds of any share that is not empty.
    pub(crate) fixed: f64,
    /// Seconds per unit of work.
    pub(crate) slope: f64,
}

impl Line {
    pub(crate) fn at(self, work: f64) -> f64 {
        self.fixed + self.slope * work
    }
}

/// Weighted least squares of relative errors: weights decay exponentially, and a ridge penalty keeps the fixed cost small.
/// Observations are limited to a factor around the median of the last ones, so that a stall of a step or two changes little,
/// and sums are scaled when that median says that the speed has changed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Speed {
    /// Work per second before the first observation.
    prior: f64,
    /// Weighted sums of 1, work, seconds, work², work · seconds.
    sums: [f64; 5],
    /// Mean square of relative errors of predictions, outliers limited.
    pub(crate) variance: f64,
    /// Work and seconds of the last shares, the newest last; 0 where there was none yet.
    recent: [[f64; 2]; RECENT],
    /// Seconds of the group until an empty share is tried again.
    pub(crate) rest: f64,
    /// Whether a trial is under way, whose seconds are not known yet.
    pub(crate) on_trial: bool,
}

impl Speed {
    /// How many numbers [`Speed::export`] has.
    pub(crate) const NUMBERS: usize = 9 + 2 * RECENT;

    pub(crate) fn new(prior: f64) -> Self {
        Self { prior, sums: [0.0; 5], variance: 0.0, recent: [[0.0; 2]; RECENT], rest: 0.0, on_trial: false }
    }

    /// The estimate; a slope of infinity where the trainer was never tried.
    pub(crate) fn line(&self) -> Line {
        let [one, x, y, xx, xy] = self.sums;
        if one <= 0.0 {
            return Line { fixed: 0.0, slope: 1.0 / self.prior };
        }
        let regular = one * (1.0 + NO_FIXED_COST);
        let determinant = regular * xx - x * x;
        let fixed = ((y * xx - x * xy) / determinant).clamp(0.0, MAX_FIXED * y / one);
        // The slope that fits best beside this fixed cost.
        Line { fixed, slope: ((xy - fixed * x) / xx).max((1.0 - MAX_FIXED) * y / x) }
    }

    /// Updates the estimate with the seconds of a share with this work; a share without work or with impossible seconds is ignored.
    pub(crate) fn observe(&mut self, work: f64, seconds: f64) {
        if !(work > 0.0 && seconds > 0.0 && seconds.is_finite()) {
            return;
        }
        if self.on_trial && self.sums[0] > 0.0 {
            // The trainer may have changed meanwhile, and a single seed says by how much.
            let factor = seconds / self.line().at(work);
            self.scale(factor);
            self.recent = [[0.0; 2]; RECENT];
        }
        self.on_trial = false;
        self.recent.rotate_left(1);
        self.recent[RECENT - 1] = [work, seconds];
        if self.sums[0] <= 0.0 {
            self.add(work, seconds, seconds, 0.0);
            return;
        }
        let factor = self.median_factor();
        let changed = self.recent[0][0] > 0.0 && !(1.0 / CHANGED..=CHANGED).contains(&factor);
        if changed && self.is_same_work() {
            self.scale(factor);
        }
        let usual = self.line().at(work) * self.median_factor();
        let seconds = seconds.clamp(usual / OUTLIER, usual * OUTLIER);
        let error = seconds / usual - 1.0;
        self.variance = KEPT * self.variance + (1.0 - KEPT) * error * error;
        let kept = if changed { KEPT_MISSED } else { KEPT };
        self.add(work, seconds, usual, kept);
    }

    /// The lower median of observed by predicted seconds, of the last observations.
    fn median_factor(&self) -> f64 {
        let line = self.line();
        let seen = self.recent.iter().filter(|[work, _]| *work > 0.0);
        let mut factors: Vec<f64> = seen.map(|[work, seconds]| seconds / line.at(*work)).collect();
        factors.sort_by(f64::total_cmp);
        factors[(factors.len() - 1) / 2]
    }

    /// Whether the last shares were about as large as those that the estimate is from.
    fn is_same_work(&self) -> bool {
        let mean = self.sums[1] / self.sums[0];
        self.recent.iter().all(|[work, _]| (mean / SAME_WORK..=mean * SAME_WORK).contains(work))
    }

    /// Scales all observed seconds by `factor`.
    fn scale(&mut self, factor: f64) {
        let [one, x, y, xx, xy] = &mut self.sums;
        // Weights are those of relative errors.
        let weight = factor * factor;
        (*one, *x, *xx) = (*one / weight, *x / weight, *xx / weight);
        (*y, *xy) = (*y / factor, *xy / factor);
    }

    /// Adds an observation, whose error counts relative to the `usual` seconds.
    fn add(&mut self, work: f64, seconds: f64, usual: f64, kept: f64) {
        let weight = 1.0 / (usual * usual);
        let terms = [1.0, work, seconds, work * work, work * seconds];
        self.sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum = kept * *sum + weight * term);
    }

    /// The numbers of the estimate, for a checkpoint.
    pub(crate) fn export(&self, out: &mut Vec<f64>) {
        out.push(self.prior);
        out.extend(self.sums);
        out.push(self.variance);
        out.extend(self.recent.iter().flatten());
        out.extend([self.rest, f64::from(u8::from(self.on_trial))]);
    }

    /// The estimate of [`Speed::export`]'s numbers; `None` for impossible ones.
    pub(crate) fn import(numbers: &[f64]) -> Option<Self> {
        let [prior, rest @ ..] = numbers else { return None };
        let (sums, rest) = rest.split_first_chunk::<5>()?;
        let (&variance, rest) = rest.split_first()?;
        let (recent, rest) = rest.split_at_checked(2 * RECENT)?;
        let [wait, on_trial] = *rest else { return None };
        let valid = [0.0, 1.0].contains(&on_trial)
            && sums.iter().chain(recent).chain([&variance, prior]).all(|x| x.is_finite() && *x >= 0.0)
            && *prior > 0.0
            && wait.is_finite();
        let recent = std::array::from_fn(|i| [recent[2 * i], recent[2 * i + 1]]);
        valid.then_some(Self { prior: *prior, sums: *sums, variance, recent, rest: wait, on_trial: on_trial != 0.0 })
    }
}

#[cfg(test)]
mod tests;
