//! Search over interleaved schedules of several routes: the division of the mini-batches, and the size of groups.

use crate::assemble::{fastest_pool, schedule, share};
use crate::memory;
use crate::simulate::{Simulation, simulate};
use crate::{Policy, Problem, Schedule};

/// Simulations for one set of routes, at most.
const MOST: usize = 150;
/// Ratio to the bound at which the search stops.
pub(crate) const CLOSE: f64 = 1.0005;

/// The best interleaved schedule found for the routes in `set`, starting at the division `split` that reaches their bound of
/// `least` seconds.
///
/// Three stages: divisions near `split` that give whole numbers of the other route's mini-batches for each group, because the
/// steady state is then one repeated cycle; hill climbing on the division with shrinking steps; all group sizes again.
pub(crate) fn best(problem: &Problem, set: &[usize], split: &[f64], least: f64) -> Option<(Schedule, Simulation)> {
    if set.iter().any(|&r| problem.on_cores(&problem.routes[r].hardware.training)) {
        // Not planned: the cores would have to be split between all routes and training.
        return None;
    }
    let n = problem.num_batches;
    let ready = problem.limits.ready.max(1);
    let pools = set.iter().map(|&route| fastest_pool(problem, route)).collect();
    let mut search = Search { problem, set, pools, enough: CLOSE * least, simulations: 0, best: None };
    let mut at = (whole(split, n), (1, 0));
    search.shapes(&mut at, [(ready, 0)].into_iter());
    search.cycles(&mut at, ready);
    search.climb(&mut at, (n / 64).max(1));
    search.shapes(&mut at, shapes(ready));
    search.best.map(|(mut schedule, simulation)| {
        // A buffer that never filled up is made smaller, with some slack for durations that vary.
        let workers: usize = schedule.shares.iter().filter(|s| !s.in_place).map(|s| s.workers).sum();
        schedule.batched = schedule.batched.min(simulation.peak[0] + workers.max(2));
        (schedule, simulation)
    })
}

/// A point of the search: mini-batches of each route, and (group size, mini-batches left ready when a group begins).
type Mix = (Vec<usize>, (usize, usize));

struct Search<'a> {
    problem: &'a Problem,
    set: &'a [usize],
    pools: Vec<(usize, usize)>,
    /// Seconds at which the search stops.
    enough: f64,
    simulations: usize,
    best: Option<(Schedule, Simulation)>,
}

impl Search<'_> {
    fn is_over(&self) -> bool {
        self.simulations >= MOST || self.best.as_ref().is_some_and(|b| b.1.seconds <= self.enough)
    }

    /// Simulates a mix; returns whether it is the best so far.
    fn attempt(&mut self, (division, (group, keep)): &Mix) -> bool {
        let routes = self.set.iter().zip(division).zip(&self.pools);
        let shares = routes.map(|((&route, &batches), &pool)| share(self.problem, route, batches, pool, 0)).collect();
        let schedule = schedule(self.problem, Policy::Interleaved, shares, 0);
        let Some(schedule) = memory::fit(self.problem, Schedule { group: *group, keep: *keep, ..schedule }) else {
            return false;
        };
        self.simulations += 1;
        let simulation = simulate(&schedule);
        let better = self.best.as_ref().is_none_or(|b| simulation.seconds < b.1.seconds);
        if better {
            self.best = Some((schedule, simulation));
        }
        better
    }

    /// Tries these shapes (group, keep) with the current division, and moves to the best.
    fn shapes(&mut self, at: &mut Mix, shapes: impl Iterator<Item = (usize, usize)>) {
        for shape in shapes {
            if self.is_over() {
                return;
            }
            let other = (at.0.clone(), shape);
            if self.attempt(&other) {
                *at = other;
            }
        }
    }

    /// For two routes: tries, for each group size, the divisions next to the current one in which every group is followed by the
    /// same number of the other route's mini-batches.
    fn cycles(&mut self, at: &mut Mix, ready: usize) {
        let [a, b] = at.0[..] else { return };
        let joint = usize::from(!self.problem.routes[self.set[0]].in_place);
        let (grouped, other) = if joint == 0 { (a, b) } else { (b, a) };
        let n = a + b;
        for (group, keep) in shapes(ready) {
            let each = (group * other) as f64 / grouped as f64;
            for each in [each.floor(), each.ceil()].into_iter().filter(|&e| e >= 1.0) {
                if self.is_over() {
                    return;
                }
                let other = (n as f64 * each / (group as f64 + each)).round().clamp(1.0, n as f64 - 1.0) as usize;
                let division = if joint == 0 { vec![n - other, other] } else { vec![other, n - other] };
                let next = (division, (group, keep));
                if self.attempt(&next) {
                    *at = next;
                }
            }
        }
    }

    /// Moves mini-batches between routes while that makes the epoch shorter.
    fn climb(&mut self, at: &mut Mix, mut step: usize) {
        loop {
            let mut moved = false;
            for (from, to) in pairs(self.set.len()) {
                // Continues in a direction while it improves.
                while at.0[from] > step && !self.is_over() {
                    let mut other = at.clone();
                    other.0[from] -= step;
                    other.0[to] += step;
                    if !self.attempt(&other) {
                        break;
                    }
                    (*at, moved) = (other, true);
                }
            }
            if self.is_over() || (!moved && step == 1) {
                return;
            }
            if !moved {
                step = (step / 2).max(1);
            }
        }
    }
}

/// Every group size, the largest first, each with none, one, half and all of the remaining slots kept ready.
fn shapes(ready: usize) -> impl Iterator<Item = (usize, usize)> {
    (1..=ready).rev().flat_map(move |group| {
        let most = ready - group;
        let mut keeps = vec![most.min(1), 0, most / 2, most];
        keeps.dedup();
        keeps.into_iter().map(move |keep| (group, keep))
    })
}

fn pairs(routes: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..routes).flat_map(move |a| (0..routes).filter(move |&b| b != a).map(move |b| (a, b)))
}

/// Whole mini-batches next to `split`, at least one for every route, `n` in all.
fn whole(split: &[f64], n: usize) -> Vec<usize> {
    let mut division: Vec<usize> = split.iter().map(|x| (x.round() as usize).max(1)).collect();
    while division.iter().sum::<usize>() != n {
        let sum: usize = division.iter().sum();
        let largest = (0..division.len()).max_by_key(|&i| division[i]).expect("there is a route");
        if sum > n {
            division[largest] -= 1;
        } else {
            division[largest] += 1;
        }
    }
    division
}
