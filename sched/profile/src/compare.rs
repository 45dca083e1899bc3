//! Comparison of operators: they are timed alternately, each as long as it can still be the fastest.
//!
//! The module has no clock: seconds come from the caller's function that runs a step.

use crate::Result;
use crate::statistics::median;

/// Maximum number of timed rounds, after the first one.
pub(crate) const ROUNDS: usize = 9;
/// Factor to the fastest first step from which an operator is abandoned at once. A first step allocates memory and starts
/// threads, and was measured to take 1.3 to 4.2 times as long as a later one: a smaller difference means nothing. With 3, Burn
/// was abandoned for a GAT that it trains as fast.
const FIRST: f64 = 4.0;
/// Seconds by which it also has to be slower: the first of very short steps differ by any factor, and more of them cost little.
const FIRST_SECONDS: f64 = 0.005;
/// Factor between medians within which operators are equally fast, and the one listed first is chosen: the same one at every
/// run.
const TIE: f64 = 1.02;
/// Factor between medians up to which the operator of an earlier run is kept: medians of few steps of the same operator differ by
/// so much on a machine under load.
pub(crate) const NOISE: f64 = 1.25;

/// Factor between estimates within which operators are close: a choice by one step of each may be wrong. The second step of an
/// operator that allocates in each was measured to take 1.0 to 1.4 times as long as its later ones.
const CLOSE: f64 = 1.3;

/// Measured steps of one operator.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct StepTimes {
    /// Seconds of its first step.
    pub(crate) first: Option<f64>,
    /// Seconds of its other steps, one per round.
    pub(crate) samples: Vec<f64>,
    pub(crate) state: State,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum State {
    #[default]
    Running,
    /// It cannot be the fastest any more.
    Abandoned,
    /// It failed, or does not fit in memory.
    Failed,
}

impl StepTimes {
    /// The median of the timed steps, or seconds of the first where there are none.
    fn estimate(&self) -> f64 {
        if self.samples.is_empty() { self.first.unwrap_or(f64::INFINITY) } else { median(self.samples.clone()) }
    }

    fn last(&self) -> f64 {
        self.samples.last().copied().or(self.first).unwrap_or(0.0)
    }
}

fn running(all: &[StepTimes]) -> Vec<usize> {
    (0..all.len()).filter(|&i| all[i].state == State::Running).collect()
}

/// Times `candidates` operators alternately: in every round each trains the same mini-batch, alternating between the given
/// and the reverse order, so that a slow change of the machine affects all alike.
///
/// `step` runs the n-th operator in a round, and returns its seconds; `None` where it cannot continue.
/// The first round is always run. A timed one is run where it fits in the seconds that are `allowed` in all: a function of its
/// number from 1, the estimated seconds of the fastest mini-batch, and whether another operator is close to that.
pub(crate) fn compare(
    candidates: usize,
    allowed: impl Fn(usize, f64, bool) -> f64,
    mut step: impl FnMut(usize, usize) -> Result<Option<f64>>,
) -> Result<Vec<StepTimes>> {
    let mut all = vec![StepTimes::default(); candidates];
    let mut spent = 0.0;
    for round in 0..=ROUNDS {
        let mut order = running(&all);
        if round > 0 {
            let next: f64 = order.iter().map(|&i| all[i].last()).sum();
            let mut estimates: Vec<f64> = order.iter().map(|&i| all[i].estimate()).collect();
            estimates.sort_by(f64::total_cmp);
            let [fastest, second, ..] = estimates[..] else { break };
            if spent + next > allowed(round, fastest, second <= CLOSE * fastest) {
                break;
            }
        }
        if round % 2 == 1 {
            order.reverse();
        }
        for i in order {
            let Some(seconds) = step(i, round)? else {
                all[i].state = State::Failed;
                continue;
            };
            spent += seconds;
            match round {
                0 => all[i].first = Some(seconds),
                _ => all[i].samples.push(seconds),
            }
        }
        abandon_slow(&mut all);
    }
    Ok(all)
}

/// Abandons the operators that cannot be the fastest any more.
///
/// After the first round: those that took [`FIRST`] times as long as the fastest. After the n-th timed round: those that took
/// longer than the fastest in every timed round, by a factor of 1 + 2/n²: 3, 1.5, 1.22, 1.13, … An outlier in one round is
/// forgiven, a small difference in every round is not.
fn abandon_slow(all: &mut [StepTimes]) {
    let running = running(all);
    let Some(&best) = running.iter().min_by(|&&a, &&b| all[a].estimate().total_cmp(&all[b].estimate())) else {
        return;
    };
    let best = all[best].clone();
    for i in running {
        let times = &mut all[i];
        let slow = match best.samples.len() {
            0 => {
                let (seconds, least) = (times.estimate(), best.estimate());
                seconds > FIRST * least && seconds > least + FIRST_SECONDS
            }
            n => {
                let margin = 1.0 + 2.0 / (n * n) as f64;
                times.samples.iter().zip(&best.samples).all(|(seconds, best)| *seconds > margin * best)
            }
        };
        if slow {
            times.state = State::Abandoned;
        }
    }
}

/// The fastest of the running operators; of equally fast ones the one listed first. One that is `preferred` is taken for equally
/// fast where its times overlap with the fastest's, and its median is within [`NOISE`] of that.
pub(crate) fn fastest(all: &[StepTimes], preferred: Option<usize>) -> Option<usize> {
    let running = running(all);
    let best = running.iter().copied().min_by(|&a, &b| all[a].estimate().total_cmp(&all[b].estimate()))?;
    if let Some(kept) = preferred.filter(|kept| running.contains(kept)) {
        let least = all[kept].samples.iter().copied().fold(f64::INFINITY, f64::min);
        let most = all[best].samples.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        // Without timed steps there is one of each, whose noise is larger than any bound here.
        let overlap = all[kept].samples.is_empty() || least <= most;
        if overlap && all[kept].estimate() <= NOISE * all[best].estimate() {
            return Some(kept);
        }
    }
    let least = running.iter().map(|&i| all[i].estimate()).fold(f64::INFINITY, f64::min);
    running.into_iter().find(|&i| all[i].estimate() <= TIE * least)
}

#[cfg(test)]
mod tests;
