//! The lower bound of a group: linear programs over shares and divisions of the trainers' routes.

use morphgl_registry::Phase;

use super::GroupProblem;
use super::knapsack::{Division, Knapsack, Part};
use crate::lp::{self, Optimum};
use crate::{Candidate, Linear};

/// Ratio by which seconds of a linear program may be too low.
const CLOSE: f64 = 1e-6;
/// Ratio to the best choice of trainers below which another one is not looked for.
const GAP: f64 = 1e-4;
/// Maximum number of linear programs with different choices of trainers.
const MAX_CHOICES: usize = 200;
/// Difference to 0 and 1 at which a trainer is out or in.
const WHOLE: f64 = 1e-3;

/// Shares and work by a linear program.
#[derive(Debug, Clone)]
pub(super) struct Fluid {
    /// Seconds of the epoch.
    pub(super) seconds: f64,
    /// The trainers' shares.
    pub(super) shares: Vec<f64>,
    /// Core-seconds of each trainer.
    pub(super) work: Vec<f64>,
    /// The part of all mini-batches that each trainer has a share of: 1 or 0 where it is decided.
    pub(super) parts: Vec<f64>,
}

/// Whether a trainer takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choice {
    In,
    Out,
    Open,
}

/// Seconds of a route's phases by its trainer's share, from below.
struct RouteLines {
    /// One mini-batch's, in the order of phases.
    latency: [Linear; 3],
    /// In the steady state, in the order of phases.
    steady: [Linear; 3],
    /// Core-seconds, in the order of phases.
    work: [Linear; 3],
}

impl RouteLines {
    /// The minimum over counts of workers or threads of lines is concave in the share, so the line through its ends is below it.
    fn new(empty: &Candidate, whole: &Candidate) -> Self {
        let of = |seconds: fn(&Candidate) -> f64| {
            let fixed = seconds(empty);
            Linear { fixed, whole: (seconds(whole) - fixed).max(0.0) }
        };
        let transferring = of(|r| r.durations.transferring().mean);
        let training = of(|r| r.durations.training().min());
        Self {
            latency: [of(|r| r.durations.min_latency()), transferring, training],
            steady: [of(|r| r.durations.min_batching()), transferring, training],
            work: [of(|r| r.durations.min_batching_work()), transferring, of(|r| r.durations.training().min_work())],
        }
    }
}

/// Rows of a linear program.
struct Rows {
    rows: Vec<(Vec<f64>, f64)>,
    /// Core-seconds of each column.
    work: Vec<f64>,
}

/// The linear programs of a group of some of the problem's trainers.
pub(super) struct Program<'a> {
    problem: &'a GroupProblem,
    /// Trainers of the group.
    members: &'a [usize],
    /// Of each member's routes.
    lines: Vec<Vec<RouteLines>>,
    /// Number of columns: for each route the fraction of mini-batches, then the same times the share.
    columns: usize,
}

impl<'a> Program<'a> {
    pub(super) fn new(problem: &'a GroupProblem, members: &'a [usize]) -> Self {
        let lines = |&trainer: &usize| {
            let [empty, whole] = [0.0, 1.0].map(|share| problem.of_share(trainer, share, problem.cores()));
            let [empty, whole] = [empty, whole].map(|problem| problem.with_largest_caches());
            empty.routes.iter().zip(&whole.routes).map(|(empty, whole)| RouteLines::new(empty, whole)).collect()
        };
        let lines: Vec<Vec<RouteLines>> = members.iter().map(lines).collect();
        let columns = 2 * lines.iter().map(Vec::len).sum::<usize>();
        Self { problem, members, lines, columns }
    }

    /// The shortest epoch in which all of its trainers take part.
    pub(super) fn solve(&self) -> Fluid {
        self.shortest(&vec![Choice::In; self.members.len()], 0.0)
    }

    /// The shortest epoch by these choices, of at least `low` seconds; the seconds are from below.
    fn shortest(&self, choices: &[Choice], low: f64) -> Fluid {
        let (mut low, mut high) = (low, if low > 0.0 { low } else { 1e-6 });
        let mut found = loop {
            // Any problem is possible in some time.
            match self.at(high, choices) {
                Some(found) => break found,
                None => (low, high) = (high, if low > 0.0 { 2.0 * high - low + 1e-3 * high } else { 4.0 * high }),
            }
        };
        while high - low > CLOSE * high {
            let middle = 0.5 * (low + high);
            match self.at(middle, choices) {
                Some(at) => (high, found) = (middle, at),
                None => low = middle,
            }
        }
        Fluid { seconds: low, ..found }
    }

    /// The choice of trainers with the shortest epoch, by branch and bound: its trainers, and a lower bound for any choice. Of
    /// trainers that are alike, `kinds`, those before are in before the next one is.
    pub(super) fn choose(&self, kinds: &[usize]) -> (Vec<usize>, f64) {
        let mut best: (f64, Vec<usize>) = (f64::INFINITY, self.members.to_vec());
        let mut open = vec![(vec![Choice::Open; self.members.len()], 0.0)];
        let mut bound = f64::INFINITY;
        let mut solved = 0;
        while let Some((choices, low)) = open.pop() {
            let enough = best.0 * (1.0 - GAP);
            if low >= enough || (best.0.is_finite() && self.at(enough, &choices).is_none()) {
                continue;
            }
            if solved == MAX_CHOICES {
                bound = bound.min(low);
                continue;
            }
            solved += 1;
            let Fluid { seconds, parts, .. } = self.shortest(&choices, low);
            let distance = |part: f64| part.min(1.0 - part);
            let undecided = (0..parts.len()).filter(|&t| choices[t] == Choice::Open);
            let most = undecided.max_by(|&a, &b| distance(parts[a]).total_cmp(&distance(parts[b])));
            match most.filter(|&t| distance(parts[t]) > WHOLE) {
                None if seconds < best.0 => {
                    let is_in = |&t: &usize| parts[t] > 0.5;
                    best = (seconds, (0..parts.len()).filter(is_in).map(|t| self.members[t]).collect());
                }
                None => {}
                Some(most) => {
                    let like = |t: &usize| kinds[self.members[*t]] == kinds[self.members[most]];
                    let all = || (0..parts.len()).filter(like).filter(|&t| choices[t] == Choice::Open);
                    let (mut out, mut taken) = (choices.clone(), choices.clone());
                    all().for_each(|t| out[t] = Choice::Out);
                    taken[all().next().expect("it is open itself")] = Choice::In;
                    open.extend([(out, seconds), (taken, seconds)]);
                }
            }
        }
        (best.1, bound.min(best.0 * (1.0 - GAP)))
    }

    /// The sum of shares.
    fn objective(&self) -> Vec<f64> {
        (0..self.columns).map(|column| if column % 2 == 1 { 1.0 } else { 0.0 }).collect()
    }

    /// Dual values of the links in the linear program for an epoch of so many seconds: how much the sum of all shares grows per
    /// second more of each link.
    pub(super) fn prices(&self, seconds: f64) -> Vec<f64> {
        let Rows { rows, .. } = self.rows(seconds, &vec![Choice::Open; self.members.len()]);
        let links = self.problem.links.len();
        match lp::maximize(&self.objective(), &rows) {
            Some(Optimum { prices, .. }) => prices[rows.len() - links..].to_vec(),
            None => vec![0.0; links],
        }
    }

    /// Shares that make up whole mini-batches in an epoch of so many seconds, where there are any; their sum may be above 1.
    fn at(&self, seconds: f64, choices: &[Choice]) -> Option<Fluid> {
        let Rows { rows, work } = self.rows(seconds, choices);
        let Optimum { value, x, .. } = lp::maximize(&self.objective(), &rows)?;
        if value < 1.0 {
            return None;
        }
        let mut found = Fluid { seconds, shares: Vec::new(), work: Vec::new(), parts: Vec::new() };
        let mut first = 0;
        for lines in &self.lines {
            let own = first..first + 2 * lines.len();
            found.shares.push(own.clone().filter(|column| column % 2 == 1).map(|column| x[column]).sum());
            found.work.push(own.clone().map(|column| work[column] * x[column]).sum());
            found.parts.push(own.clone().filter(|column| column % 2 == 0).map(|column| x[column]).sum());
            first = own.end;
        }
        Some(found)
    }

    /// The rows of the program for an epoch of so many seconds, those of links at the end.
    fn rows(&self, seconds: f64, choices: &[Choice]) -> Rows {
        let n = self.problem.num_batches() as f64;
        let (all_reduce, links) = (self.problem.all_reduce, self.problem.links.len());
        let mut rows: Vec<(Vec<f64>, f64)> = Vec::new();
        let empty = || vec![0.0; self.columns];
        let (mut cores, mut shared) = (empty(), vec![empty(); links]);
        let mut first = 0;
        for ((&trainer, lines), choice) in self.members.iter().zip(&self.lines).zip(choices) {
            let problem = &self.problem.trainers[trainer].whole;
            // Each route has two variables: its number of mini-batches, and that number times the trainer's share.
            let column = |route: usize| first + 2 * route;
            let add = |row: &mut Vec<f64>, route: usize, line: Linear, factor: f64| {
                row[column(route)] += n * factor * line.fixed;
                row[column(route) + 1] += n * factor * line.whole;
            };
            // A row of a trainer in use: its load, in what is left of the epoch but for `ends`, if anything.
            let mut push = |mut row: Vec<f64>, ends: f64| {
                (0..lines.len()).for_each(|route| row[column(route)] -= (seconds - ends).max(0.0));
                rows.push((row, 0.0));
            };
            let steps = Linear { fixed: all_reduce, whole: 0.0 };
            let alone = |route: usize, phases: std::ops::Range<usize>| -> f64 {
                lines[route].latency[phases].iter().map(|line| line.fixed).sum()
            };
            for resource in &problem.resources {
                let held = |route: usize, phase: Phase| problem.routes[route].hardware[phase].contains(&resource.name);
                let all = || (0..lines.len()).flat_map(|r| Phase::ALL.map(|p| (r, p))).filter(|&(r, p)| held(r, p));
                if resource.cores.is_some() {
                    all().for_each(|(route, phase)| add(&mut cores, route, lines[route].work[phase as usize], 1.0));
                    continue;
                }
                let mut row = empty();
                let (mut head, mut tail) = (f64::INFINITY, f64::INFINITY);
                for (route, phase) in all() {
                    let position = phase as usize;
                    add(&mut row, route, lines[route].steady[position], 1.0);
                    head = head.min(alone(route, 0..position));
                    // A device that does not queue is held until the end of the all-reduce.
                    let holds = phase == Phase::Training && !resource.queued;
                    if holds {
                        add(&mut row, route, steps, 1.0);
                    }
                    tail = tail.min(alone(route, position + 1..3) + if holds { 0.0 } else { all_reduce });
                }
                if head.is_finite() {
                    push(row, head + tail);
                }
            }
            for (route, candidate) in problem.routes.iter().enumerate() {
                let RouteLines { steady: [batching, transferring, _], .. } = lines[route];
                for (line, ends) in
                    [(batching, alone(route, 1..3)), (transferring, alone(route, 0..1) + alone(route, 2..3))]
                {
                    let mut row = empty();
                    add(&mut row, route, line, 1.0);
                    push(row, ends + all_reduce);
                }
                // A share is not above 1.
                let mut row = empty();
                (row[column(route)], row[column(route) + 1]) = (-1.0, 1.0);
                push(row, seconds);
                for phase in Phase::ALL {
                    let fractions = self.problem.fractions(trainer, &candidate.hardware[phase]);
                    for (row, fraction) in shared.iter_mut().zip(fractions).filter(|(_, fraction)| *fraction > 0.0) {
                        add(row, route, lines[route].steady[phase as usize], fraction);
                    }
                }
            }
            let mut row = empty();
            for (route, lines) in lines.iter().enumerate() {
                add(&mut row, route, lines.steady[Phase::Training as usize], 1.0);
                add(&mut row, route, steps, 1.0);
            }
            push(row, (0..lines.len()).map(|route| alone(route, 0..2)).fold(f64::INFINITY, f64::min));
            let mut row = empty();
            (0..lines.len()).for_each(|route| row[column(route)] = 1.0);
            if *choice == Choice::In {
                rows.push((row.iter().map(|x| -x).collect(), -1.0));
            }
            rows.push((row, if *choice == Choice::Out { 0.0 } else { 1.0 }));
            first += 2 * lines.len();
        }
        let work = cores.clone();
        rows.push((cores, self.problem.cores().max(1) as f64 * seconds));
        rows.extend(shared.into_iter().map(|row| (row, seconds)));
        Rows { rows, work }
    }
}

/// As [`GroupProblem::bound`], with the trainers of the shortest epoch by the linear programs, and the division that comes near it.
pub(super) fn bound(problem: &GroupProblem) -> Bound {
    let all: Vec<usize> = (0..problem.trainers.len()).collect();
    let alone = problem.trainers.iter().map(|trainer| crate::bound(&trainer.whole)).fold(f64::INFINITY, f64::min);
    if all.len() < 2 || problem.num_batches() == 0 {
        return Bound { seconds: alone, members: all, parts: Vec::new() };
    }
    // Trainers that are alike may be behind different links.
    let kinds = if problem.links.is_empty() { problem.kinds() } else { all.clone() };
    let program = Program::new(problem, &all);
    let (members, seconds) = program.choose(&kinds);
    let prices = program.prices(seconds);
    let free = vec![0.0; prices.len()];
    let mut division = Knapsack::new(problem, usize::MAX, &free).shortest(seconds);
    if prices.iter().any(|price| *price > 0.0) {
        division = Knapsack::new(problem, usize::MAX, &prices).shortest(division.seconds);
    }
    let Division { seconds: together, parts } = division;
    Bound { seconds: alone.min(together), members, parts }
}

/// The bound of a group.
pub(super) struct Bound {
    pub(super) seconds: f64,
    /// The trainers that take part by the linear programs.
    pub(super) members: Vec<usize>,
    /// The division of mini-batches and cores by the knapsack.
    pub(super) parts: Vec<Part>,
}
