//! Search over interleaved schedules of several routes: the division of the mini-batches, and the size of groups.

use std::cmp::Ordering;

use crate::assemble::{fastest_pool, schedule, share};
use crate::memory;
use crate::simulate::{Simulation, simulated};
use crate::{Policy, Problem, Schedule};

/// Maximum number of simulations for one set of routes.
const MAX_SIMULATIONS: usize = 150;
/// Ratio to the bound at which the search stops.
pub(crate) const CLOSE: f64 = 1.0005;

/// The best interleaved schedule found for the routes in `set`, starting at the division `split` that reaches their bound of
/// `bound` seconds.
///
/// Three stages: divisions near `split` that give whole numbers of the other route's mini-batches for each group, because the
/// steady state is then one repeated cycle; hill climbing on the division with shrinking steps; all group sizes again.
pub(crate) fn best(problem: &Problem, set: &[usize], split: &[f64], bound: f64) -> Option<(Schedule, Simulation)> {
    if set.iter().any(|&r| problem.on_cores(&problem.routes[r].hardware.training)) {
        // Not planned: the cores would have to be split between all routes and training.
        return None;
    }
    let n = problem.num_batches;
    let ready = problem.limits.ready.max(1);
    let pools = set.iter().map(|&route| fastest_pool(problem, route)).collect();
    let current = Mix { division: whole(split, n), group: 1, keep: 0 };
    let mut search = Search { problem, set, pools, enough: CLOSE * bound, simulations: 0, best: None, current };
    search.groups([(ready, 0)].into_iter());
    search.cycles(ready);
    search.climb((n / 64).max(1));
    search.groups(groups(ready));
    search.best.map(|(mut schedule, simulation)| {
        // A buffer that never filled up is made smaller, with some slack for durations that vary.
        schedule.batched = schedule.batched.min(simulation.peak[0] + schedule.workers(false).max(2));
        (schedule, simulation)
    })
}

/// A point of the search: mini-batches of each route, group size, and mini-batches left ready when a group begins.
#[derive(Clone)]
struct Mix {
    division: Vec<usize>,
    group: usize,
    keep: usize,
}

struct Search<'a> {
    problem: &'a Problem,
    set: &'a [usize],
    pools: Vec<(usize, usize)>,
    /// Seconds at which the search stops.
    enough: f64,
    simulations: usize,
    best: Option<(Schedule, Simulation)>,
    current: Mix,
}

impl Search<'_> {
    /// Simulates a mix, and moves to it if it is the best so far; returns whether it is. Does nothing once the search is over.
    fn attempt(&mut self, mix: Mix) -> bool {
        let is_over = self.best.as_ref().is_some_and(|b| b.1.seconds <= self.enough);
        if is_over || self.simulations >= MAX_SIMULATIONS {
            return false;
        }
        let routes = self.set.iter().zip(&mix.division).zip(&self.pools);
        let shares = routes
            .map(|((&route, &batches), &pool)| share(self.problem, Policy::Interleaved, route, batches, pool, 0))
            .collect();
        let schedule = schedule(self.problem, Policy::Interleaved, shares, 0);
        let schedule = Schedule { group: mix.group, keep: mix.keep, ..schedule };
        let Some(schedule) = memory::fit(self.problem, schedule) else { return false };
        self.simulations += 1;
        let (schedule, simulation) = simulated(schedule);
        let better = self.best.as_ref().is_none_or(|b| simulation.seconds < b.1.seconds);
        if better {
            self.best = Some((schedule, simulation));
            self.current = mix;
        }
        better
    }

    /// Tries these pairs of group size and mini-batches kept ready with the current division.
    fn groups(&mut self, groups: impl Iterator<Item = (usize, usize)>) {
        for (group, keep) in groups {
            self.attempt(Mix { group, keep, ..self.current.clone() });
        }
    }

    /// For two routes: tries, for each group size, the divisions next to the current one in which every group is followed by the
    /// same number of the other route's mini-batches.
    fn cycles(&mut self, ready: usize) {
        let [a, b] = self.current.division[..] else { return };
        let first_in_place = self.problem.routes[self.set[0]].in_place;
        let (grouped, other) = if first_in_place { (a, b) } else { (b, a) };
        let n = a + b;
        for (group, keep) in groups(ready) {
            let each = (group * other) as f64 / grouped as f64;
            for each in [each.floor(), each.ceil()].into_iter().filter(|&e| e >= 1.0) {
                let other = (n as f64 * each / (group as f64 + each)).round().clamp(1.0, n as f64 - 1.0) as usize;
                let division = if first_in_place { vec![n - other, other] } else { vec![other, n - other] };
                self.attempt(Mix { division, group, keep });
            }
        }
    }

    /// Moves mini-batches between routes while that makes the epoch shorter, `step` at a time and then ever fewer.
    fn climb(&mut self, mut step: usize) {
        loop {
            let mut moved = false;
            for (from, to) in (0..self.set.len()).flat_map(|a| (0..self.set.len()).map(move |b| (a, b))) {
                // Continues in a direction while it improves.
                while from != to && self.current.division[from] > step {
                    let mut mix = self.current.clone();
                    mix.division[from] -= step;
                    mix.division[to] += step;
                    if !self.attempt(mix) {
                        break;
                    }
                    moved = true;
                }
            }
            if !moved && step == 1 {
                return;
            }
            if !moved {
                step /= 2;
            }
        }
    }
}

/// Every group size, the largest first, each with none, one, half and all of the remaining slots kept ready.
fn groups(ready: usize) -> impl Iterator<Item = (usize, usize)> {
    (1..=ready).rev().flat_map(move |group| {
        let slots = ready - group;
        let mut keeps = vec![slots.min(1), 0, slots / 2, slots];
        keeps.dedup();
        keeps.into_iter().map(move |keep| (group, keep))
    })
}

/// Whole mini-batches next to `split`, at least one for every route, `n` in all.
fn whole(split: &[f64], n: usize) -> Vec<usize> {
    let mut division: Vec<usize> = split.iter().map(|x| (x.round() as usize).max(1)).collect();
    loop {
        let sum: usize = division.iter().sum();
        let largest = (0..division.len()).max_by_key(|&i| division[i]).expect("there is a route");
        match sum.cmp(&n) {
            Ordering::Greater => division[largest] -= 1,
            Ordering::Less => division[largest] += 1,
            Ordering::Equal => return division,
        }
    }
}
