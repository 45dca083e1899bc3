//! Which of several operators is the fastest: they are timed by turns, each as long as it can still win.
//!
//! There is no clock here: seconds come from whoever runs a step.

use crate::Result;
use crate::statistics::median;

/// Timed rounds at most, the first not counted.
pub(crate) const ROUNDS: usize = 9;
/// An operator whose first step takes this many times the least of all first steps is given up at once. A first step allocates
/// memory and starts threads, and was measured to take 1.3 to 4.2 times as long as a later one: a smaller difference says
/// nothing. With 3, Burn was given up for a GAT that it trains as fast.
const FIRST: f64 = 4.0;
/// And so many seconds longer, at least: the first of very short steps differ by any factor, and more of them cost little.
const FIRST_SECONDS: f64 = 0.005;
/// Operators whose medians differ by no more than this count as equally fast, and the one listed first is taken: it is the
/// same one at every run.
const TIE: f64 = 1.02;

/// Operators whose medians differ by no more than this are close: a choice by one step of each may be wrong. The second step
/// of an operator that allocates in each was measured to take 1.0 to 1.4 times as long as its later ones.
const CLOSE: f64 = 1.3;

/// A timed round that may be begun.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ahead {
    /// Its number, from 1.
    pub(crate) round: usize,
    /// Seconds of the fastest mini-batch so far.
    pub(crate) fastest: f64,
    /// Whether another operator is nearly as fast.
    pub(crate) close: bool,
}

/// What was measured of one operator.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Times {
    /// Seconds of its first step.
    pub(crate) first: Option<f64>,
    /// Seconds of its other steps, one a round.
    pub(crate) samples: Vec<f64>,
    pub(crate) state: State,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum State {
    #[default]
    Running,
    /// It cannot win any more.
    GivenUp,
    /// It failed, or does not fit in memory.
    Out,
}

impl Times {
    /// The median of the timed steps, or seconds of the first where there are none.
    fn estimate(&self) -> f64 {
        if self.samples.is_empty() { self.first.unwrap_or(f64::INFINITY) } else { median(self.samples.clone()) }
    }

    fn last(&self) -> f64 {
        self.samples.last().copied().or(self.first).unwrap_or(0.0)
    }
}

/// Times `candidates` operators by turns: in every round each trains the same mini-batch, forwards in one round and backwards
/// in the next, so that a slow change of the machine meets all alike.
///
/// `step` runs the n-th operator in a round, and says how many seconds it took; `None` where it cannot go on.
/// The first round is run whatever it takes. The n-th timed one is begun where it fits in the seconds that are `allowed` in all.
pub(crate) fn compare(
    candidates: usize,
    allowed: impl Fn(Ahead) -> f64,
    mut step: impl FnMut(usize, usize) -> Result<Option<f64>>,
) -> Result<Vec<Times>> {
    let mut all = vec![Times::default(); candidates];
    let mut spent = 0.0;
    for round in 0..=ROUNDS {
        let mut running: Vec<usize> = (0..candidates).filter(|&i| all[i].state == State::Running).collect();
        if round > 0 {
            let next: f64 = running.iter().map(|&i| all[i].last()).sum();
            let mut estimates: Vec<f64> = running.iter().map(|&i| all[i].estimate()).collect();
            estimates.sort_by(f64::total_cmp);
            let [fastest, second, ..] = estimates[..] else { break };
            if spent + next > allowed(Ahead { round, fastest, close: second <= CLOSE * fastest }) {
                break;
            }
        }
        if round % 2 == 1 {
            running.reverse();
        }
        for i in running {
            let Some(seconds) = step(i, round)? else {
                all[i].state = State::Out;
                continue;
            };
            spent += seconds;
            match round {
                0 => all[i].first = Some(seconds),
                _ => all[i].samples.push(seconds),
            }
        }
        give_up(&mut all);
    }
    Ok(all)
}

/// Gives up the operators that cannot win any more.
///
/// After the first round: those of [`FIRST`] times the least. After the n-th timed round: those that took longer than the
/// fastest in every one of them, by a factor of 1 + 2/n²: 3, 1.5, 1.22, 1.13, … A hiccup of the machine in one round is
/// forgiven, and what is a little slower again and again is not.
fn give_up(all: &mut [Times]) {
    let running = |all: &[Times]| (0..all.len()).filter(|&i| all[i].state == State::Running).collect::<Vec<_>>();
    let Some(best) = running(all).into_iter().min_by(|&a, &b| all[a].estimate().total_cmp(&all[b].estimate())) else {
        return;
    };
    let best = all[best].clone();
    for i in running(all) {
        let own = &all[i];
        let lost = match best.samples.len() {
            0 => {
                let (own, least) = (own.estimate(), best.estimate());
                own > FIRST * least && own > least + FIRST_SECONDS
            }
            n => {
                let margin = 1.0 + 2.0 / (n * n) as f64;
                own.samples.iter().zip(&best.samples).all(|(own, best)| *own > margin * best)
            }
        };
        if lost {
            all[i].state = State::GivenUp;
        }
    }
}

/// The fastest of those that were not given up; of equally fast ones the one listed first.
pub(crate) fn fastest(all: &[Times]) -> Option<usize> {
    let running = || (0..all.len()).filter(|&i| all[i].state == State::Running);
    let least = running().map(|i| all[i].estimate()).fold(f64::INFINITY, f64::min);
    running().find(|&i| all[i].estimate() <= TIE * least)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares operators whose n-th step takes the n-th of their seconds, later ones the last; in `allowed` seconds.
    /// The fastest, and how many steps each took.
    #[track_caller]
    fn check(seconds: &[&[f64]], allowed: f64, fastest: usize, steps: &[usize]) {
        let mut taken = vec![0; seconds.len()];
        let all = compare(
            seconds.len(),
            |_| allowed,
            |i, round| {
                taken[i] += 1;
                Ok(Some(*seconds[i].get(round).unwrap_or_else(|| seconds[i].last().expect("seconds"))))
            },
        );
        let all = all.expect("nothing fails");
        assert_eq!((super::fastest(&all), &taken[..]), (Some(fastest), steps), "{all:?}");
    }

    #[test]
    fn a_hopeless_one_is_given_up_after_its_first_step() {
        check(&[&[1.0], &[0.2]], 60.0, 1, &[1, 1]);
        check(&[&[0.2], &[1.0]], 60.0, 0, &[1, 1]);
        check(&[&[1.0], &[0.95], &[0.2]], 60.0, 2, &[1, 1, 1]);
        // A first step of 3.2 times another's, and later ones that are as fast.
        check(&[&[0.36, 0.29], &[1.15, 0.27]], 60.0, 1, &[7, 7]);
    }

    #[test]
    fn a_slow_first_step_is_no_reason() {
        // Memory is allocated in it.
        check(&[&[0.5, 0.2], &[0.4]], 60.0, 0, &[3, 3]);
        // Of steps of milliseconds, the first ones may differ by any factor.
        check(&[&[0.004, 0.001], &[0.0005, 0.002]], 60.0, 0, &[3, 3]);
    }

    #[test]
    fn the_closer_they_are_the_longer_they_are_compared() {
        check(&[&[1.0], &[2.0, 3.5]], 60.0, 0, &[2, 2]);
        check(&[&[1.0], &[1.6]], 60.0, 0, &[3, 3]);
        check(&[&[1.0], &[1.3]], 60.0, 0, &[4, 4]);
        check(&[&[1.1], &[1.0]], 60.0, 1, &[6, 6]);
        check(&[&[1.03], &[1.0]], 60.0, 1, &[10, 10]);
    }

    #[test]
    fn of_equally_fast_ones_the_first_is_taken() {
        check(&[&[1.01], &[1.0]], 60.0, 0, &[10, 10]);
        check(&[&[1.0], &[1.01]], 60.0, 0, &[10, 10]);
    }

    #[test]
    fn a_hiccup_does_not_decide() {
        check(&[&[1.0, 3.0, 1.0], &[1.4, 1.2]], 60.0, 0, &[10, 10]);
        check(&[&[1.0, 1.0, 3.0, 1.0], &[1.4, 1.2]], 60.0, 0, &[10, 10]);
    }

    #[test]
    fn time_ends_it_and_the_medians_decide() {
        // Both first steps are taken whatever they take; then nothing is allowed, or one round more.
        check(&[&[1.2], &[1.0]], 0.0, 1, &[1, 1]);
        check(&[&[1.2], &[1.0]], 4.5, 1, &[2, 2]);
        check(&[&[2.0, 1.0], &[1.9, 1.2]], 8.0, 0, &[2, 2]);
    }

    #[test]
    fn one_alone_is_run_once_and_one_that_fails_is_out() {
        check(&[&[1.0]], 60.0, 0, &[1]);
        let step = |i, round| Ok((i != 0 || round < 2).then_some(if i == 0 { 1.0 } else { 1.1 }));
        let all = compare(2, |_| 60.0, step).expect("nothing fails as a whole");
        assert_eq!((all[0].state, all[1].state), (State::Out, State::Running));
        assert_eq!((fastest(&all), all[0].samples.len()), (Some(1), 1));
        let none = compare(2, |_| 60.0, |_, _| Ok(None)).expect("nothing fails as a whole");
        assert_eq!(fastest(&none), None);
    }
}
