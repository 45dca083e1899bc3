//! The lower bound of a group whose trainers have whole cores and one share each: a knapsack of shares by cores.

use std::collections::HashMap;

use morphgl_registry::Phase;

use super::GroupProblem;
use crate::bound::{joint_seconds, rows_of, sets};
use crate::lp::{self, Row};

/// Parts of a mini-batch in which a trainer's best share is looked for.
const SHARES: u32 = 1 << 14;
/// Ratio by which the seconds of a knapsack are looked for.
const CLOSE: f64 = 2e-4;
/// Ratio of the ends of an interval of step times that is not divided.
const NARROW: f64 = 1.02;
/// Maximum number of intervals of step times.
const MAX_INTERVALS: usize = 24;
/// Step times below this part of the longest one are one interval.
const SHORT: f64 = 1e-3;
/// Share that the value of a trainer is too high by at most, where links have prices.
const VALUE_GAP: f64 = 5e-4;
/// Maximum number of shares for which a trainer's value is computed.
const MAX_VALUES: usize = 30;

/// A trainer's part in a division of mini-batches and cores.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub(super) trainer: usize,
    pub(super) share: f64,
    pub(super) cores: usize,
}

/// Seconds, from below, of the shortest epoch in which trainers have whole cores, and the division that comes near it.
pub(super) struct Division {
    pub(super) seconds: f64,
    pub(super) parts: Vec<Part>,
}

/// The knapsack of a problem's trainers.
///
/// For given seconds of an epoch, every trainer and count of cores has a largest share, or where links have prices (Lagrange multipliers) a
/// largest share less the price of its load on them; the knapsack has the largest sum of them within the host's cores. Epochs in
/// which the sum, with the price of all that the links can carry, is below 1 are impossible.
pub(super) struct Knapsack<'a> {
    problem: &'a GroupProblem,
    kinds: Vec<usize>,
    /// Maximum number of routes of a trainer.
    routes: usize,
    /// Share per second of each link.
    prices: Vec<f64>,
    /// Sets of routes by trainer, cores and share, in parts of [`SHARES`].
    known: HashMap<(usize, usize, u32), Vec<RouteSet>>,
}

/// Seconds of a set of routes of a trainer with a share and cores.
struct RouteSet {
    rows: Vec<Row>,
    /// Seconds until the first step can begin.
    fill: f64,
    /// Seconds of a step.
    step: f64,
    /// Seconds for which each route's batching and transferring hold the device that trains.
    joint: Vec<[f64; 2]>,
    /// Whether the device queues work: its steps leave it free during the all-reduce.
    queued: bool,
    /// Share that each route's loads on links cost.
    costs: Vec<f64>,
}

/// An interval of the longest trainer's seconds per step, and the epoch's seconds, from below.
#[derive(Clone, Copy)]
struct Steps {
    least: f64,
    most: f64,
    seconds: f64,
}

impl RouteSet {
    /// The least cost of the set's links in an epoch of so many seconds; `None` where the trainer takes longer.
    ///
    /// Steps are of all trainers at once: the longest ones take `steps` seconds, and then the all-reduce. A phase that holds the device
    /// lies between two steps of its own trainer, so it extends those two where it takes longer than what they leave.
    fn cost(&self, n: f64, seconds: f64, steps: Steps, all_reduce: f64) -> Option<f64> {
        if self.step > steps.most {
            return None;
        }
        let left = match self.queued {
            true => 2.0 * (steps.most - self.step) + all_reduce,
            false => steps.most - self.step,
        };
        let longest = steps.least.max(self.step);
        let period = longest + all_reduce;
        let extension = |joint: &[f64; 2]| joint.iter().map(|phase| (phase - left).max(0.0)).sum::<f64>();
        // The first step waits until the trainer's own begins. Phases of the first mini-batch that hold the device lie before all steps,
        // and count as if they did not.
        let is_joint = self.joint.iter().flatten().any(|phase| *phase > 0.0);
        let load = self.joint.iter().map(|joint| period + extension(joint)).collect();
        let together = Row { load, constant: if is_joint { 0.0 } else { (self.fill + self.step - longest).max(0.0) } };
        let rows = || self.rows.iter().chain([&together]);
        match self.costs[..] {
            [cost] => rows().all(|row| n * row.load[0] + row.constant <= seconds).then_some(n * cost),
            [a, b] => {
                // Mini-batches of the first route.
                let (mut low, mut high) = (0.0_f64, n);
                for Row { load, constant } in rows() {
                    let (slope, room) = (load[0] - load[1], seconds - constant - n * load[1]);
                    match slope {
                        0.0 if room < 0.0 => return None,
                        0.0 => {}
                        _ if slope > 0.0 => high = high.min(room / slope),
                        _ => low = low.max(room / slope),
                    }
                }
                let of = |first: f64| first * a + (n - first) * b;
                (low <= high).then(|| of(low).min(of(high)))
            }
            _ => {
                let all = vec![1.0; self.costs.len()];
                let mut limits: Vec<(Vec<f64>, f64)> =
                    rows().map(|row| (row.load.clone(), seconds - row.constant)).collect();
                limits.push((all.iter().map(|x| -x).collect(), -n));
                limits.push((all, n));
                let gains: Vec<f64> = self.costs.iter().map(|cost| -cost).collect();
                lp::maximize(&gains, &limits).map(|found| -found.value)
            }
        }
    }
}

impl<'a> Knapsack<'a> {
    pub(super) fn new(problem: &'a GroupProblem, routes: usize, prices: &[f64]) -> Self {
        Self { problem, kinds: problem.kinds(), routes, prices: prices.to_vec(), known: HashMap::new() }
    }

    /// The shortest epoch of at least `low` seconds.
    pub(super) fn shortest(&mut self, low: f64) -> Division {
        let longest = self.problem.trainers.iter().map(|trainer| trainer.whole.routes[0].durations.training().min());
        let longest = longest.fold(0.0, f64::max);
        let all = Steps { least: 0.0, most: longest, seconds: low };
        let mut open = vec![Steps { seconds: self.seconds(all), ..all }];
        for _ in 0..MAX_INTERVALS {
            let lowest = (0..open.len()).min_by(|&a, &b| open[a].seconds.total_cmp(&open[b].seconds));
            let lowest = open.swap_remove(lowest.expect("an interval is divided into two"));
            let from = lowest.least.max(SHORT * longest);
            if lowest.most <= NARROW * from {
                open.push(lowest);
                break;
            }
            let middle = (from * lowest.most).sqrt();
            for half in [Steps { most: middle, ..lowest }, Steps { least: middle, ..lowest }] {
                open.push(Steps { seconds: self.seconds(half), ..half });
            }
        }
        let lowest = open.into_iter().min_by(|a, b| a.seconds.total_cmp(&b.seconds)).expect("there is an interval");
        let parts = self.at((1.0 + 2.0 * CLOSE) * lowest.seconds, lowest).1;
        Division { seconds: lowest.seconds, parts }
    }

    /// The least seconds of an epoch with steps of an interval, from below and at least the interval's own; infinite where there is none.
    fn seconds(&mut self, steps: Steps) -> f64 {
        let (mut low, mut step) = (steps.seconds, 1e-3 * steps.seconds);
        while self.at(low + step, steps).0 < 1.0 {
            low += step;
            step *= 2.0;
            if step > 1e6 * steps.seconds {
                return f64::INFINITY;
            }
        }
        let mut high = low + step;
        while high - low > CLOSE * low {
            let middle = 0.5 * (low + high);
            if self.at(middle, steps).0 >= 1.0 { high = middle } else { low = middle }
        }
        low
    }

    /// The largest sum of values in an epoch of so many seconds, from above, and the trainers that make it up.
    fn at(&mut self, seconds: f64, steps: Steps) -> (f64, Vec<Part>) {
        let all = self.problem.cores();
        // The largest sum of shares for each number of cores in use, and for each trainer the share and cores that it has there.
        let mut sums = vec![self.prices.iter().sum::<f64>() * seconds; all + 1];
        let mut taken: Vec<Vec<Option<Part>>> = Vec::new();
        let mut of_kind: HashMap<usize, Vec<(f64, Part)>> = HashMap::new();
        // Trainers that are alike may be behind different links.
        let is_priced = self.prices.iter().any(|price| *price > 0.0);
        for trainer in 0..self.kinds.len() {
            let kind = if is_priced { trainer } else { self.kinds[trainer] };
            let values = of_kind.entry(kind).or_insert_with(|| self.values(kind, seconds, steps));
            let (mut with, mut chosen) = (sums.clone(), vec![None; all + 1]);
            for &(value, part) in values.iter().filter(|(value, _)| *value > 0.0) {
                for used in part.cores..=all {
                    if sums[used - part.cores] + value > with[used] {
                        with[used] = sums[used - part.cores] + value;
                        chosen[used] = Some(Part { trainer, ..part });
                    }
                }
            }
            sums = with;
            taken.push(chosen);
        }
        let mut left = all;
        let mut parts: Vec<Part> = Vec::new();
        for part in taken.iter().rev().filter_map(|chosen| chosen[left].map(|part| (part, left -= part.cores).0)) {
            parts.push(part);
        }
        parts.reverse();
        (sums[all], parts)
    }

    /// The largest value of a trainer by its cores, from above, with its share.
    fn values(&mut self, trainer: usize, seconds: f64, steps: Steps) -> Vec<(f64, Part)> {
        let (all, own_cores) = (self.problem.cores(), self.problem.trainers[trainer].own_cores());
        let mut of = |cores: usize| {
            let (value, share) = self.value(trainer, cores, seconds, steps);
            (value, Part { trainer, share, cores })
        };
        if own_cores == 0 {
            return vec![of(0)];
        }
        let (most, _) = of(all);
        let mut values = Vec::new();
        for cores in 1..=all {
            values.push(of(cores));
            if values[cores - 1].0 >= most {
                break;
            }
        }
        values
    }

    /// The largest share less its cost, from above, and the share.
    fn value(&mut self, trainer: usize, cores: usize, seconds: f64, steps: Steps) -> (f64, f64) {
        let of = |share: u32| f64::from(share) / f64::from(SHARES);
        let mut cost = |share: u32| self.cost(trainer, cores, share, seconds, steps);
        let (mut low, mut high) = (0, SHARES);
        let Some(least) = cost(0) else { return (0.0, 0.0) };
        if cost(SHARES).is_some() {
            low = SHARES;
        }
        while high - low > 1 {
            let middle = (low + high) / 2;
            if cost(middle).is_some() { low = middle } else { high = middle }
        }
        let largest = low;
        if self.prices.iter().all(|price| *price == 0.0) {
            return (of(high), of(high));
        }
        // A cost never falls as the share grows.
        let mut best = (0.0, 0.0);
        let mut open = vec![(least, 0, high)];
        let mut above = 0.0_f64;
        for i in 0.. {
            let upper = |&(cost, _, high): &(f64, u32, u32)| of(high) - cost;
            let highest = (0..open.len()).max_by(|&a, &b| upper(&open[a]).total_cmp(&upper(&open[b])));
            let Some(highest) = highest else { break };
            let (least, low, high) = open.swap_remove(highest);
            above = of(high) - least;
            if above <= best.0 + VALUE_GAP || high - low <= 1 || i == MAX_VALUES {
                break;
            }
            let middle = ((low + high) / 2).min(largest);
            if middle == low {
                break;
            }
            let more = self.cost(trainer, cores, middle, seconds, steps).expect("smaller shares are possible, too");
            if of(middle) - more > best.0 {
                best = (of(middle) - more, of(middle));
            }
            open.extend([(least, low, middle), (more, middle, high)]);
        }
        (above.max(best.0), best.1)
    }

    fn cost(&mut self, trainer: usize, cores: usize, share: u32, seconds: f64, steps: Steps) -> Option<f64> {
        let (problem, routes, prices) = (self.problem, self.routes, &self.prices);
        let kind = if prices.iter().any(|price| *price > 0.0) { trainer } else { self.kinds[trainer] };
        let sets = self.known.entry((kind, cores, share));
        let of_share = || route_sets(problem, trainer, f64::from(share) / f64::from(SHARES), cores, (routes, prices));
        let costs = sets.or_insert_with(of_share).iter();
        let n = problem.num_batches() as f64;
        costs.filter_map(|set| set.cost(n, seconds, steps, problem.all_reduce)).min_by(f64::total_cmp)
    }
}

/// The sets of up to `routes` routes of a trainer with a share and cores.
fn route_sets(
    problem: &GroupProblem,
    trainer: usize,
    share: f64,
    cores: usize,
    (routes, prices): (usize, &[f64]),
) -> Vec<RouteSet> {
    let own = problem.of_step(trainer, share, cores, problem.all_reduce).with_largest_caches();
    let set = |set: &Vec<usize>| {
        let candidates = || set.iter().map(|&route| &own.routes[route]);
        let fill = candidates().map(|r| r.durations.min_latency() + r.durations.transferring().mean);
        let cost = |route: &crate::Candidate| -> f64 {
            let phases =
                [route.durations.min_batching(), route.durations.transferring().mean, route.durations.training().min()];
            let of_phase = |(phase, seconds): (Phase, f64)| -> f64 {
                let fractions = problem.fractions(trainer, &route.hardware[phase]);
                fractions.iter().zip(prices).map(|(fraction, price)| fraction * price * seconds).sum()
            };
            Phase::ALL.into_iter().zip(phases).map(of_phase).sum()
        };
        let training = &candidates().next().expect("a set has a route").hardware.training;
        RouteSet {
            rows: rows_of(&own, set),
            fill: fill.fold(f64::INFINITY, f64::min),
            step: candidates().map(|r| r.durations.training().min()).fold(f64::INFINITY, f64::min),
            joint: candidates().map(|route| joint_seconds(&own, route)).collect(),
            queued: own.resources.iter().filter(|r| training.contains(&r.name)).all(|r| r.queued || r.cores.is_some()),
            costs: candidates().map(cost).collect(),
        }
    };
    sets(&own).iter().filter(|s| s.len() <= routes).map(set).collect()
}
