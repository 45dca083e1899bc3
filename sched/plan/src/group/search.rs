//! The search for a group's plan: shares, division of the host's cores, and a schedule for each trainer.

use super::fluid::{self, Bound, Fluid, Program};
use super::knapsack::Knapsack;
use super::simulate::run;
use super::{GroupPlan, GroupProblem, GroupSimulation, TrainerPlan};
use crate::assemble::with_durations;
use crate::numbers::wrong;
use crate::problem::alike;
use crate::simulate::simulate;
use crate::{Invalid, Linear, PerPhase, Plan, Policy, Problem, Resource, Schedule, ScheduleShare, plan, predict};

/// Ratio to the bound at which the search stops.
const CLOSE: f64 = 1.002;
/// Maximum number of simulations of a group.
const MAX_SIMULATIONS: usize = 90;
/// Choices of trainers, the best ones, for which other schedules are tried.
const IMPROVED: usize = 2;
/// Simulations after which shares that follow the times of waiting stay.
const ROUNDS: usize = 6;
/// Factor to the exponent by which shares follow the times of waiting, after a step that made the epoch no shorter.
const DAMPING: f64 = 0.3;
/// Change of a share, as a factor, by which a trainer is planned again.
const MOVED: f64 = 1.05;
/// Mini-batches that trainers of a kind, in turn, batch ahead of training, where they stagger phases on shared links.
const LEADS: [[usize; 2]; 3] = [[0, 1], [1, 2], [0, 0]];
/// A trainer of a smaller share is of no use.
const LEAST_SHARE: f64 = 1e-4;
/// Plans of a trainer that are tried.
const PLANS: usize = 4;
/// Change of a share, as a factor less 1, with which refinement begins.
const LARGEST_CHANGE: f64 = 0.2;
/// Refinement ends at this change.
const LEAST_CHANGE: f64 = 0.005;
/// Factor to the seconds of an epoch above which changes become smaller.
const REFINED: f64 = 0.999;
/// Maximum number of simulations of a refinement.
const MAX_REFINEMENTS: usize = 200;
/// Halvings of the interval in which the seconds of balanced shares are looked for.
const HALVINGS: usize = 60;

/// The plan of the shortest predicted epoch: of all trainers that are worth their fixed costs, or of the best one alone.
///
/// Each trainer has its own schedule, of one route or several, on its own division of the host's cores. Shares and cores begin with
/// those of the bound; then each trainer is planned by itself ([`plan`](crate::plan())) with the durations of its share and the
/// seconds for which it waits after its steps, the group is simulated, and shares move from trainers that the others wait for to
/// those that wait. Then other schedules are tried for one kind of trainer after the other, trainers are staggered, and cores are
/// moved, while that makes the simulated epoch shorter; at the end single shares are changed.
///
/// # Errors
///
/// No trainer; trainers with different numbers of mini-batches, with several training operators or without durations of shares; a link of
/// unknown resources; numbers that are negative or not finite; fewer cores than trainers; or a limit of memory that nothing fits.
///
/// # Complexity
///
/// The bound's; O(log(trainers)) choices of trainers; at most 90 simulations of the group for each of the two best ones, and 200 more
/// with other shares; a planning for each kind of trainer and share, and at most one for each trainer alone.
pub fn group(problem: &GroupProblem) -> Result<GroupPlan, Invalid> {
    problem.check()?;
    let bound = fluid::bound(problem);
    let mut search = Search::new(problem, bound.seconds);
    if problem.num_batches() > 0 {
        search.choose(bound)?;
    }
    search.alone()?;
    Ok(search.best.expect("one trainer alone was planned"))
}

/// The plan of the shortest predicted epoch of these trainers, all of which take part: with the given shares, which add
/// up to 1, or with the best ones.
///
/// # Errors
///
/// As [`group`].
///
/// # Panics
///
/// When a trainer does not exist or is there twice, there is none, or there are not as many shares as trainers.
///
/// # Complexity
///
/// As [`group`].
pub fn group_of(problem: &GroupProblem, trainers: &[usize], shares: Option<&[f64]>) -> Result<GroupPlan, Invalid> {
    problem.check()?;
    assert!(shares.is_none_or(|shares| shares.len() == trainers.len()), "one share per trainer");
    assert!(!trainers.is_empty(), "a group has a trainer");
    let mut search = Search::new(problem, fluid::bound(problem).seconds);
    search.plan_members(trainers, shares)?;
    Ok(search.best.expect("the group was planned"))
}

struct Search<'a> {
    problem: &'a GroupProblem,
    kinds: Vec<usize>,
    bound_seconds: f64,
    best: Option<GroupPlan>,
    simulations: usize,
    /// Plans made so far, with their problems.
    planned: Vec<(Problem, Vec<Plan>)>,
}

/// Shares and cores of a group's trainers, and the maximum number of routes of each.
#[derive(Clone)]
struct Start {
    shares: Vec<f64>,
    cores: Vec<usize>,
    routes: usize,
}

/// A group with its simulation.
#[derive(Clone)]
struct Attempt {
    trainers: Vec<TrainerPlan>,
    simulation: GroupSimulation,
}

impl<'a> Search<'a> {
    fn new(problem: &'a GroupProblem, bound_seconds: f64) -> Self {
        let kinds = problem.kinds();
        Self { problem, kinds, bound_seconds, best: None, simulations: 0, planned: Vec::new() }
    }

    /// Seconds of an epoch besides its phases.
    fn overhead(&self) -> f64 {
        self.problem.trainers.iter().map(|trainer| trainer.whole.limits.overhead).fold(0.0, f64::max)
    }

    /// Keeps the group if it is the best so far.
    fn keep(&mut self, Attempt { trainers, simulation }: Attempt) {
        let epoch_seconds = simulation.seconds + self.overhead();
        if self.best.as_ref().is_none_or(|best| epoch_seconds < best.epoch_seconds) {
            self.best = Some(GroupPlan { trainers, epoch_seconds, bound_seconds: self.bound_seconds });
        }
    }

    /// Seconds after each trainer's steps until the longest of these trainers has ended its own and gradients are added up.
    fn after_steps(&self, trainers: &[(usize, f64)]) -> Vec<f64> {
        let step = |&(trainer, share): &(usize, f64)| {
            self.problem.of_share(trainer, share, 1).routes[0].durations.training().min()
        };
        let steps: Vec<f64> = trainers.iter().map(step).collect();
        let longest = steps.iter().fold(0.0_f64, |a, &b| a.max(b));
        let all_reduce = if trainers.len() > 1 { self.problem.all_reduce } else { 0.0 };
        steps.iter().map(|step| longest - step + all_reduce).collect()
    }

    fn plans_of(&mut self, problem: &Problem) -> Result<Vec<Plan>, Invalid> {
        if let Some((known, plans)) = self.planned.iter().find(|(known, _)| alike(known, problem)) {
            return Ok(plans.iter().map(|plan| on(plan, known.resources(), problem.resources())).collect());
        }
        let plans = plan(problem).map_err(|e| Invalid(e.to_string()))?;
        let is_wanted = |plan: &&Plan| !self.problem.single_routes || plan.schedule.shares.len() == 1;
        let plans: Vec<Plan> = plans.all().iter().filter(is_wanted).take(PLANS).cloned().collect();
        self.planned.push((problem.clone(), plans.clone()));
        Ok(plans)
    }

    /// The best trainer alone, on all cores.
    fn alone(&mut self) -> Result<(), Invalid> {
        let problem = self.problem;
        let mut bounds: Vec<(f64, usize)> = (0..problem.trainers.len())
            .filter(|&t| self.kinds[t] == t)
            .map(|t| (crate::bound(&problem.trainers[t].whole), t))
            .collect();
        bounds.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (bound, trainer) in bounds {
            if self.best.as_ref().is_some_and(|best| best.epoch_seconds <= bound) {
                break;
            }
            let cores = problem.trainers[trainer].own_cores();
            let plan = self.plans_of(&problem.of_share(trainer, 1.0, cores))?.swap_remove(0);
            let trainers = vec![TrainerPlan { trainer, share: 1.0, cores, plan }];
            let simulation = run(problem, &trainers);
            self.keep(Attempt { trainers, simulation });
        }
        Ok(())
    }

    /// The best group of the bound's division, of its division with one route per trainer, of the trainers of the linear programs, `few`, of all that are like one of them, of all trainers, or of the half
    /// of these with the largest shares, and so on: the programs take few trainers even where others like them are of as much use,
    /// and many where the fixed costs of shares by several routes are too low.
    fn choose(&mut self, bound: Bound) -> Result<(), Invalid> {
        let Bound { seconds, members: few, parts } = bound;
        let kinds: Vec<usize> = few.iter().map(|&t| self.kinds[t]).collect();
        let all: Vec<usize> = (0..self.kinds.len()).collect();
        let like: Vec<usize> = all.iter().copied().filter(|&t| kinds.contains(&self.kinds[t])).collect();
        let mut open = vec![all, like, few];
        let (mut tried, mut found): (Vec<Vec<usize>>, Vec<Attempt>) = (Vec::new(), Vec::new());
        let single = Knapsack::new(self.problem, 1, &vec![0.0; self.problem.links.len()]).shortest(seconds).parts;
        for (parts, routes) in [(parts, usize::MAX), (single, 1)] {
            if parts.len() < 2 {
                continue;
            }
            let members: Vec<usize> = parts.iter().map(|part| part.trainer).collect();
            let shares = normalised(parts.iter().map(|part| part.share.max(LEAST_SHARE)).collect());
            let cores: Vec<usize> = parts.iter().map(|part| part.cores).collect();
            let equal = self.equal_cores(&members, &cores);
            if equal != cores {
                found.push(self.attempt(&members, Start { shares: shares.clone(), cores: equal, routes }, None)?);
            }
            found.push(self.attempt(&members, Start { shares, cores, routes }, None)?);
        }
        while let Some(members) = open.pop() {
            if members.len() < 2 || tried.contains(&members) {
                continue;
            }
            if found.iter().any(|found| found.simulation.seconds <= CLOSE * self.bound_seconds) {
                break;
            }
            let start = self.start(&members)?;
            let attempt = self.attempt(&members, start, None)?;
            let mut by_share: Vec<&TrainerPlan> = attempt.trainers.iter().collect();
            by_share.sort_by(|a, b| b.share.total_cmp(&a.share));
            let mut half: Vec<usize> = by_share[..members.len().div_ceil(2)].iter().map(|t| t.trainer).collect();
            half.sort_unstable();
            open.insert(0, half);
            tried.push(members);
            found.push(attempt);
        }
        found.sort_by(|a, b| a.simulation.seconds.total_cmp(&b.simulation.seconds));
        let mut best: Option<Attempt> = None;
        for attempt in found.into_iter().take(IMPROVED) {
            if best.as_ref().is_some_and(|best| best.simulation.seconds <= CLOSE * self.bound_seconds) {
                break;
            }
            self.simulations = 0;
            let improved = self.improve(attempt, false)?;
            if best.as_ref().is_none_or(|best| improved.simulation.seconds < best.simulation.seconds) {
                best = Some(improved);
            }
        }
        if let Some(best) = best {
            let refined = self.refined(best);
            self.keep(refined);
        }
        Ok(())
    }

    /// The best group of these trainers, all of which take part.
    fn plan_members(&mut self, members: &[usize], fixed: Option<&[f64]>) -> Result<(), Invalid> {
        let start = self.start(members)?;
        let attempt = self.attempt(members, start, fixed)?;
        let mut best = self.improve(attempt, fixed.is_some())?;
        if fixed.is_none() {
            best = self.refined(best);
        }
        self.keep(best);
        Ok(())
    }

    /// Shares and cores by the linear program.
    fn start(&self, members: &[usize]) -> Result<Start, Invalid> {
        let fluid = self.evened(members, Program::new(self.problem, members).solve());
        let cores = self.divide_cores(members, &fluid)?;
        let shares = normalised(fluid.shares.iter().map(|share| share.max(LEAST_SHARE)).collect());
        Ok(Start { shares, cores, routes: usize::MAX })
    }

    /// As many cores for trainers that are alike, in place of `cores`.
    fn equal_cores(&self, members: &[usize], cores: &[usize]) -> Vec<usize> {
        let mean = |&member: &usize| {
            let like = || (0..members.len()).filter(|&i| self.kinds[members[i]] == self.kinds[member]);
            like().map(|i| cores[i]).sum::<usize>() / like().count()
        };
        members.iter().map(mean).collect()
    }

    /// The group of these trainers, each by its best plan, with shares by which all take the same time.
    fn attempt(&mut self, members: &[usize], start: Start, fixed: Option<&[f64]>) -> Result<Attempt, Invalid> {
        let Start { mut shares, cores, routes } = start;
        if let Some(fixed) = fixed {
            shares = fixed.to_vec();
        }
        let mut best: Option<Attempt> = None;
        // Plans depend on shares, and balanced shares on plans.
        for _ in 0..3 {
            let steps: Vec<(usize, f64)> = members.iter().copied().zip(shares.iter().copied()).collect();
            let after_steps = self.after_steps(&steps);
            let planned = |search: &mut Self, t: usize| {
                let (trainer, share, cores) = (members[t], shares[t], cores[t]);
                let plans = search.plans_of(&search.problem.of_step(trainer, share, cores, after_steps[t]))?;
                let plan = plans.iter().find(|plan| plan.schedule.shares.len() <= routes).unwrap_or(&plans[0]).clone();
                Ok(TrainerPlan { trainer, share, cores, plan })
            };
            let trainers = (0..members.len()).map(|t| planned(self, t)).collect::<Result<Vec<_>, Invalid>>()?;
            let attempt = self.settle(trainers, fixed.is_some());
            let moved: Vec<f64> = attempt.trainers.iter().map(|t| t.share).collect();
            let is_settled = moved.iter().zip(&shares).all(|(a, b)| a / b < MOVED && b / a < MOVED);
            if best.as_ref().is_none_or(|b| attempt.simulation.seconds < b.simulation.seconds) {
                best = Some(attempt);
            }
            if is_settled || fixed.is_some() {
                break;
            }
            shares = moved;
        }
        Ok(best.expect("there was an attempt"))
    }

    /// The same with equal shares and work of trainers that are alike.
    fn evened(&self, members: &[usize], fluid: Fluid) -> Fluid {
        let even = |values: &[f64]| -> Vec<f64> {
            let mean = |&member: &usize| {
                let like = || (0..members.len()).filter(|&i| self.kinds[members[i]] == self.kinds[member]);
                like().map(|i| values[i]).sum::<f64>() / like().count() as f64
            };
            members.iter().map(mean).collect()
        };
        Fluid { shares: even(&fluid.shares), work: even(&fluid.work), ..fluid }
    }

    /// The host's cores by the work of each trainer that uses them, at least one each.
    fn divide_cores(&self, members: &[usize], fluid: &Fluid) -> Result<Vec<usize>, Invalid> {
        let uses = |&&t: &&usize| self.problem.trainers[t].own_cores() > 0;
        let all = self.problem.cores();
        let mut cores: Vec<usize> = members.iter().map(|t| usize::from(uses(&t))).collect();
        let given: usize = cores.iter().sum();
        if given > all {
            let fault = format!("{given} trainers on {all} of the host's cores; allow one each");
            return wrong(&"a group", fault).map(|()| cores);
        }
        for _ in given..all {
            let need = |t: usize| (fluid.work[t] + 1e-12) / cores[t] as f64;
            let users = (0..members.len()).filter(|&t| cores[t] > 0);
            let Some(most) = users.max_by(|&a, &b| need(a).total_cmp(&need(b)).then(b.cmp(&a))) else { break };
            cores[most] += 1;
        }
        Ok(cores)
    }

    fn is_close(&self, attempt: &Attempt) -> bool {
        attempt.simulation.seconds <= CLOSE * self.bound_seconds || self.simulations >= MAX_SIMULATIONS
    }

    fn simulated(&mut self, trainers: Vec<TrainerPlan>) -> Attempt {
        self.simulations += 1;
        let simulation = run(self.problem, &trainers);
        Attempt { trainers, simulation }
    }

    /// Simulates the group with shares by which its trainers take the same time; as given where they are `fixed`.
    fn settle(&mut self, trainers: Vec<TrainerPlan>, fixed: bool) -> Attempt {
        if fixed {
            return self.simulated(trainers);
        }
        let balanced = balanced(self.problem, &trainers);
        let trainers = self.with_shares(trainers, &balanced);
        let mut best = self.simulated(trainers);
        let mut step = 1.0;
        for _ in 0..ROUNDS {
            if self.is_close(&best) {
                break;
            }
            let Attempt { trainers, simulation } = best.clone();
            let worked = |waited: &f64| (simulation.seconds - waited).max(0.01 * simulation.seconds);
            // A trainer that did not wait has its own part of the step; of the others the time of their work is known.
            let faster = trainers
                .iter()
                .zip(&simulation.waited)
                .map(|(t, waited)| t.share * (simulation.seconds / worked(waited)).powf(step));
            let shares = normalised(faster.collect());
            let trainers = self.with_shares(trainers, &shares);
            let now = self.simulated(trainers);
            if now.simulation.seconds < best.simulation.seconds * (1.0 - 1e-4) {
                best = now;
            } else {
                step *= DAMPING;
            }
        }
        best
    }

    /// The trainers' schedules, unchanged but for the durations, which are those of `shares`.
    fn with_shares(&self, trainers: Vec<TrainerPlan>, shares: &[f64]) -> Vec<TrainerPlan> {
        let with = |(mut t, &share): (TrainerPlan, &f64)| {
            t.share = share;
            self.refresh(&mut t);
            t
        };
        trainers.into_iter().zip(shares).map(with).collect()
    }

    /// Gives a trainer's schedule the durations of its share and cores.
    fn refresh(&self, t: &mut TrainerPlan) {
        let problem = self.problem.of_share(t.trainer, t.share, t.cores).settled(&t.plan.caches);
        t.plan.schedule = with_durations(&t.plan.schedule, &problem).expect("the routes are the trainer's");
        t.plan.prediction = predict(&t.plan.schedule, t.plan.prediction.bound_seconds);
    }

    /// Changes one trainer's share at a time while that makes the simulated epoch shorter, in smaller and smaller steps: where links slow
    /// phases down, times of waiting do not tell how shares should move.
    fn refined(&mut self, mut best: Attempt) -> Attempt {
        self.simulations = 0;
        let mut change = LARGEST_CHANGE;
        while change > LEAST_CHANGE && best.trainers.len() > 1 {
            let before = best.simulation.seconds;
            for t in 0..best.trainers.len() {
                for factor in [1.0 + change, 1.0 / (1.0 + change)] {
                    if best.simulation.seconds <= CLOSE * self.bound_seconds || self.simulations >= MAX_REFINEMENTS {
                        return best;
                    }
                    let mut shares: Vec<f64> = best.trainers.iter().map(|t| t.share).collect();
                    shares[t] *= factor;
                    let trainers = self.with_shares(best.trainers.clone(), &normalised(shares));
                    let now = self.simulated(trainers);
                    if now.simulation.seconds < best.simulation.seconds {
                        best = now;
                        break;
                    }
                }
            }
            if best.simulation.seconds > REFINED * before {
                change *= 0.5;
            }
        }
        best
    }

    /// Tries other schedules for one kind of trainer after the other, all on as many cores, staggered ones, and cores for those that others
    /// wait for.
    fn improve(&mut self, mut best: Attempt, fixed: bool) -> Result<Attempt, Invalid> {
        let mut tried: Vec<Vec<TrainerPlan>> = Vec::new();
        loop {
            let before = best.simulation.seconds;
            let mut attempt = |search: &mut Self, best: &mut Attempt, trainers: Vec<TrainerPlan>| {
                if !search.is_close(best) && !tried.contains(&trainers) {
                    let attempt = search.settle(trainers.clone(), fixed);
                    tried.push(trainers);
                    if attempt.simulation.seconds < best.simulation.seconds {
                        *best = attempt;
                    }
                }
            };
            let kind = |kinds: &[usize], t: &TrainerPlan| (kinds[t.trainer], t.cores);
            let mut kinds: Vec<(usize, usize)> = best.trainers.iter().map(|t| kind(&self.kinds, t)).collect();
            kinds.sort_unstable();
            kinds.dedup();
            for own in kinds {
                let of_kind = best.trainers.iter().find(|t| kind(&self.kinds, t) == own);
                let of_kind = of_kind.expect("it is the kind of a trainer").clone();
                if self.is_close(&best) {
                    return Ok(best);
                }
                for other in self.others(&of_kind)? {
                    let mut trainers = best.trainers.clone();
                    for t in trainers.iter_mut().filter(|t| kind(&self.kinds, t) == own) {
                        let from = self.problem.trainers[of_kind.trainer].whole.resources();
                        t.plan = on(&other, from, self.problem.trainers[t.trainer].whole.resources());
                        self.refresh(t);
                    }
                    attempt(self, &mut best, trainers);
                }
            }
            let steps: Vec<(usize, f64)> = best.trainers.iter().map(|t| (t.trainer, t.share)).collect();
            let mut trainers = best.trainers.clone();
            for (t, after_step) in trainers.iter_mut().zip(self.after_steps(&steps)) {
                t.plan.schedule.after_step = after_step;
            }
            attempt(self, &mut best, trainers);
            for leads in LEADS {
                if let Some(trainers) = self.staggered(&best, leads) {
                    attempt(self, &mut best, trainers);
                }
            }
            if let Some(trainers) = self.with_core_moved(&best)? {
                attempt(self, &mut best, trainers);
            }
            if self.is_close(&best) || best.simulation.seconds > 0.999 * before {
                return Ok(best);
            }
        }
    }

    /// Other schedules of a trainer: its best ones of other strategies and routes, those that spare its links, and mixes in groups
    /// of other sizes, since a group of mini-batches that its device batches in a row keeps the other trainers waiting.
    fn others(&mut self, t: &TrainerPlan) -> Result<Vec<Plan>, Invalid> {
        let problem = self.problem.of_step(t.trainer, t.share, t.cores, t.plan.schedule.after_step);
        let mut plans: Vec<Plan> = self.plans_of(&problem)?;
        let slowed = slowed_by_links(self.problem, t.trainer, &problem);
        if let Some(slowed) = slowed {
            plans.extend(self.plans_of(&slowed)?);
        }
        let mixes: Vec<Plan> = plans.iter().filter(|p| p.schedule.policy == Policy::Interleaved).cloned().collect();
        for mix in mixes {
            for (group, keep) in [(1, 0), (1, 1), (2, 1), (1, mix.schedule.ready - 1)] {
                let mut other = mix.clone();
                (other.schedule.group, other.schedule.keep) = (group, keep);
                plans.push(other);
            }
        }
        let mut others: Vec<Plan> = Vec::new();
        for other in plans {
            let is_new = others.iter().all(|o| o.schedule != other.schedule) && t.plan.schedule != other.schedule;
            if is_new {
                others.push(other);
            }
        }
        Ok(others)
    }

    /// The group whose trainers of a kind, in turn, batch this many mini-batches on their devices ahead of training, so that some batch
    /// while others train: phases of all at once keep shared links busy and then idle. `None` where that is no other group.
    fn staggered(&self, best: &Attempt, leads: [usize; 2]) -> Option<Vec<TrainerPlan>> {
        let mut trainers = best.trainers.clone();
        let mut is_other = false;
        for i in 0..trainers.len() {
            let turn = (0..i).filter(|&j| self.kinds[trainers[j].trainer] == self.kinds[trainers[i].trainer]).count();
            let schedule = &mut trainers[i].plan.schedule;
            let is_joint = |share: &ScheduleShare| {
                share.in_place
                    && share.hardware.training.iter().any(|r| share.hardware.batching.contains(r))
                    && !Resource::on_cores(&schedule.resources, &share.hardware.training)
            };
            if schedule.policy == Policy::Sequential || !schedule.shares.iter().any(is_joint) {
                continue;
            }
            let mut other = schedule.clone();
            (other.policy, other.group) = (Policy::Interleaved, other.group.max(1));
            other.keep = leads[turn % leads.len()].min(other.ready - other.group);
            is_other |= other != *schedule;
            *schedule = other;
            self.refresh(&mut trainers[i]);
        }
        is_other.then_some(trainers)
    }

    /// The group with a core moved from the trainer that waits longest to the one that waits least, both planned again.
    fn with_core_moved(&mut self, best: &Attempt) -> Result<Option<Vec<TrainerPlan>>, Invalid> {
        let waited = &best.simulation.waited;
        let users = || (0..best.trainers.len()).filter(|&t| best.trainers[t].cores > 0);
        let giver = users().filter(|&t| best.trainers[t].cores > 1).max_by(|&a, &b| waited[a].total_cmp(&waited[b]));
        let taker = users().min_by(|&a, &b| waited[a].total_cmp(&waited[b]));
        let (Some(giver), Some(taker)) = (giver, taker) else { return Ok(None) };
        if giver == taker {
            return Ok(None);
        }
        let mut trainers = best.trainers.clone();
        trainers[giver].cores -= 1;
        trainers[taker].cores += 1;
        for t in [giver, taker] {
            let TrainerPlan { trainer, share, cores, .. } = trainers[t];
            let after_step = trainers[t].plan.schedule.after_step;
            trainers[t].plan = self.plans_of(&self.problem.of_step(trainer, share, cores, after_step))?.swap_remove(0);
        }
        Ok(Some(trainers))
    }
}

/// The plan on the resources `to` in place of `from`, by position.
fn on(plan: &Plan, from: &[Resource], to: &[Resource]) -> Plan {
    let schedule = renamed(&plan.schedule, from, to);
    let prediction = predict(&schedule, plan.prediction.bound_seconds);
    Plan { schedule, prediction, ..plan.clone() }
}

/// The same shares, so that they add up to 1.
fn normalised(shares: Vec<f64>) -> Vec<f64> {
    let sum: f64 = shares.iter().sum();
    shares.iter().map(|share| share / sum).collect()
}

/// Shares by which the trainers' own epochs take the same time, each linear around its present share.
fn balanced(problem: &GroupProblem, trainers: &[TrainerPlan]) -> Vec<f64> {
    let seconds = |t: &TrainerPlan, share: f64| {
        let of_share = problem.of_share(t.trainer, share, t.cores).settled(&t.plan.caches);
        let schedule = with_durations(&t.plan.schedule, &of_share).expect("the routes are the trainer's");
        let schedule = Schedule { after_step: problem.all_reduce, ..schedule };
        simulate(&schedule).seconds
    };
    let line = |t: &TrainerPlan| {
        let [less, more] = [0.95, 1.0].map(|factor| seconds(t, factor * t.share));
        let whole = ((more - less) / (0.05 * t.share)).max(1e-9 * more / t.share).max(f64::MIN_POSITIVE);
        Linear { fixed: more - whole * t.share, whole }
    };
    let lines: Vec<Linear> = trainers.iter().map(line).collect();
    let shares = |seconds: f64| -> Vec<f64> {
        lines.iter().map(|line| ((seconds - line.fixed) / line.whole).clamp(LEAST_SHARE, 1.0)).collect()
    };
    let (mut low, mut high) = (0.0, lines.iter().map(|line| line.at(1.0)).fold(0.0, f64::max));
    for _ in 0..HALVINGS {
        let middle = 0.5 * (low + high);
        if shares(middle).iter().sum::<f64>() >= 1.0 { high = middle } else { low = middle }
    }
    normalised(shares(high))
}

/// The problem of a trainer whose phases on shared links take as long as while all users of the links are at work; `None` where it
/// shares no link, or all can use it at once without loss.
fn slowed_by_links(problem: &GroupProblem, trainer: usize, of_share: &Problem) -> Option<Problem> {
    let all: Vec<f64> = problem.links.iter().map(|link| link.users.iter().map(|user| user.fraction).sum()).collect();
    let factor = |held: &[String]| {
        let fractions = problem.fractions(trainer, held);
        fractions.iter().zip(&all).filter(|(f, _)| **f > 0.0).map(|(_, all)| *all).fold(1.0, f64::max)
    };
    let mut slowed = of_share.clone();
    let mut is_slowed = false;
    for route in &mut slowed.routes {
        let hardware = &route.hardware;
        let [batching, transferring, training] =
            [&hardware.batching, &hardware.transferring, &hardware.training].map(|held| factor(held));
        is_slowed |= batching.max(transferring).max(training) > 1.0;
        route.durations = route.durations.scaled(batching, transferring, training);
    }
    is_slowed.then_some(slowed)
}

/// The schedule with the resources `to` in place of `from`, by position.
fn renamed(schedule: &Schedule, from: &[Resource], to: &[Resource]) -> Schedule {
    let mut renamed = schedule.clone();
    let rename = |name: &mut String| {
        let position = from.iter().position(|r| r.name == *name).expect("the resource is among those of the problem");
        name.clone_from(&to[position].name);
    };
    renamed.resources.iter_mut().for_each(|r| rename(&mut r.name));
    for PerPhase { batching, transferring, training } in renamed.shares.iter_mut().map(|s| &mut s.hardware) {
        batching.iter_mut().chain(transferring).chain(training).for_each(rename);
    }
    renamed
}
