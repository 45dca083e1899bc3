//! The plan of a group: trainers, their cores and their first shares (unified-cpu-gpu-protocol §4).

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use morphgl_group::{HostExchange, Weights};
use morphgl_plan::{GroupProblem, Limits, Member, Plan, Schedule, Time};
use morphgl_profile::{MemoryLimit, Profile, Progress, Settings, Watch};
use morphgl_registry::{Key, Operators, Place, RouteOperators, TrainingOperator};
use serde::{Deserialize, Serialize};

use crate::build::serves_group;
use crate::usage::Usage;
use crate::{ExchangeKind, Job, Stop, engine};

/// The share of a mini-batch that is measured beside whole ones.
const PART: f64 = 0.5;
/// Up to so many divisions of the cores are tried; of more, the one with the largest sum of speeds.
const MOST_DIVISIONS: f64 = 10_000.0;
/// The longest wait within an all-reduce that is measured.
const LIMIT: Duration = Duration::from_secs(60);

/// A plan for several trainers, the fastest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Unified {
    /// The trainers.
    pub trainers: Vec<UnifiedTrainer>,
    /// How mini-batches are divided among them.
    #[serde(default)]
    pub shares: Shares,
    /// Transport of their all-reduces.
    #[serde(default)]
    pub exchange: ExchangeKind,
    /// Predicted seconds of an epoch.
    pub epoch_seconds: f64,
    /// Measured seconds of the all-reduce of gradients, per step.
    #[serde(alias = "addition_seconds")]
    pub all_reduce_seconds: f64,
}

/// How the mini-batches of a group are divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shares {
    /// By the work of seeds and the measured speeds of the trainers. Which seeds a trainer has depends on times.
    #[default]
    Balanced,
    /// As many seeds for each. Two runs have the same bits.
    Equal,
}

/// One trainer's part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UnifiedTrainer {
    /// Where it trains.
    pub place: Place,
    /// Its own plan: of whole mini-batches, by one route.
    pub plan: Plan,
    /// The host's cores that its plan is for.
    pub cores: usize,
    /// Its share of each mini-batch at the start.
    pub share: f64,
}

/// What the trainers of a job would do in a group, as measured.
#[derive(Debug)]
pub struct GroupProfile {
    /// Of shares of mini-batches, on the routes to trainers with gradients.
    part: Profile,
    /// These shares.
    share: f64,
    /// Seconds of adding up the gradients of all trainers.
    all_reduce: f64,
}

/// A trainer and its place.
type Trainer = (Key, Place);

impl GroupProfile {
    /// What is known of such shares of mini-batches, and of the seconds of an all-reduce.
    pub(crate) fn new(part: Profile, share: f64, all_reduce: f64) -> Self {
        Self { part, share, all_reduce }
    }

    /// Measures halves of mini-batches on all routes, and the all-reduce of gradients; `None` where fewer than two
    /// trainers have gradients, or a mini-batch is a single seed.
    ///
    /// # Errors
    ///
    /// A failing operator, or a stop.
    pub fn measure(
        job: &mut Job,
        settings: &Settings,
        stop: &Stop,
        memory: Option<MemoryLimit<'_>>,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Option<Self>> {
        let num_seeds = job.dataset.splits.train.len().min(job.config.sampler.batch_size);
        let all_reduce = all_reduce_seconds(&mut job.operators.trainers)?;
        let able = all_reduce.as_ref().map_or_else(Vec::new, |(trainers, _)| trainers.clone());
        let is_own = |RouteOperators { route, .. }: &RouteOperators, (key, place): &Trainer| {
            (&route.training, &route.trained_at) == (key, place) && serves_group(route, &able)
        };
        let all_reduce = all_reduce.map(|(mut trainers, seconds)| {
            trainers.retain(|trainer| job.operators.routes.iter().any(|route| is_own(route, trainer)));
            (trainers, seconds)
        });
        let Some((trainers, all_reduce)) = all_reduce.filter(|(trainers, _)| trainers.len() > 1 && num_seeds > 1)
        else {
            return Ok(None);
        };
        let is_of = |route: &RouteOperators| trainers.iter().any(|trainer| is_own(route, trainer));
        let all = std::mem::take(&mut job.operators);
        let (trains, idle) =
            all.trainers.into_iter().partition(|t| trainers.contains(&(t.key.clone(), t.place.clone())));
        let (routes, unused) = all.routes.into_iter().partition(is_of);
        job.operators = Operators { routes, trainers: trains };
        let halves = Weights::new(&[PART, 1.0 - PART]).expect("weights");
        let (budget, epochs) = (settings.budget.mul_f64(PART), settings.epochs.map(|epochs| epochs * PART));
        let settings = Settings { budget, epochs, ..settings.clone() };
        let watch = Watch { stop: &|| stop.is_requested(), memory };
        let machine = job.registry().machine().clone();
        let part = job.with_shares(&(Arc::new(halves) as _), 0, |job| {
            morphgl_profile::profile(&mut job.operators, &[], &machine, &settings, &watch, progress)
        });
        job.operators.routes.extend::<Vec<_>>(unused);
        job.operators.trainers.extend::<Vec<_>>(idle);
        Ok(Some(Self { part: part?, share: PART, all_reduce }))
    }
}

/// The trainers that have gradients, and the seconds of adding up those of all.
fn all_reduce_seconds(trainers: &mut [TrainingOperator]) -> Result<Option<(Vec<Trainer>, f64)>> {
    let (mut able, mut copies, mut num_values) = (Vec::new(), 0.0f64, 0);
    for TrainingOperator { key, place, operator } in trainers {
        let start = Instant::now();
        let gradients = operator.gradients()?;
        let values: usize = gradients.tensors.iter().map(|t| t.values.len()).sum();
        if values == 0 {
            continue;
        }
        operator.set_gradients(&gradients)?;
        copies = copies.max(start.elapsed().as_secs_f64());
        num_values = values;
        able.push((key.clone(), place.clone()));
    }
    if able.len() < 2 {
        return Ok(None);
    }
    let added = engine::all_reduce_seconds(HostExchange::group(able.len(), LIMIT).iter_mut(), num_values)?;
    Ok(Some((able, copies + added)))
}

impl Unified {
    /// The trainers, shares and division of the host's cores among them with the least predicted epoch time. Where one trainer
    /// alone is predicted to be faster than any group, it is the group of all with shares in proportion to their speeds. With equal
    /// shares it is the group of all.
    ///
    /// # Errors
    ///
    /// Fewer cores than trainers, or a limit that nothing fits.
    ///
    /// # Complexity
    ///
    /// One search of plans for each trainer and number of cores.
    pub fn plan(
        profile: &Profile,
        measured: &GroupProfile,
        kind: Shares,
        cores: usize,
        limits: Limits,
    ) -> Result<Self> {
        let trainers = measured.part.trainers();
        let count = trainers.len();
        if cores < count {
            let what = format!("--plan unified: {count} trainers on {cores} of the host's cores; allow one each");
            return Err(Usage::error(what));
        }
        let limits = Limits { host_bytes: limits.host_bytes.map(|bytes| bytes / count as u64), ..limits };
        // By trainer, its fastest plan on one core, on two, and so on.
        let mut plans: Vec<Vec<(Plan, Member)>> = Vec::new();
        for (key, place) in &trainers {
            let [mut whole, part] = [profile, &measured.part].map(|profile| profile.of_trainer(key, place));
            whole.routes.retain(|r| part.routes.iter().any(|measured| measured.route == r.route));
            let on = |cores: usize| {
                let plans = morphgl_plan::plan(&whole.problem(cores, limits))?;
                let single = plans.all().iter().find(|plan| plan.schedule.shares.len() == 1);
                let plan = single.cloned().ok_or_else(|| anyhow!("{key} at {place}: no plan of a single route"))?;
                let member = Member::of(&plan.schedule, &part.problem(cores, limits), measured.share);
                let unmeasured = || format!("{key} at {place}: shares of its route were not measured");
                let member = member.with_context(unmeasured)?;
                Ok((plan, member))
            };
            plans.push((1..=cores - (count - 1)).map(on).collect::<Result<_>>()?);
        }
        let num_batches = profile.num_batches;
        let mut best: Option<(f64, Vec<(usize, f64)>)> = None;
        let mut failed = None;
        let mut attempt = |division: &[usize]| {
            let members: Vec<Member> = plans.iter().zip(division).map(|(plans, &n)| plans[n - 1].1).collect();
            let problem = GroupProblem { num_batches, members, all_reduce: measured.all_reduce };
            match shares(&problem, kind) {
                Ok((seconds, shares)) if best.as_ref().is_none_or(|(least, _)| seconds < *least) => {
                    best = Some((seconds, division.iter().copied().zip(shares).collect()));
                }
                Ok(_) => {}
                Err(e) => failed = Some(e),
            }
        };
        if divisions(cores, count) <= MOST_DIVISIONS {
            for_each_division(cores, count, &mut Vec::new(), &mut attempt);
        } else {
            let speed = |(_, member): &(Plan, Member)| 1.0 / member.step.at(1.0).max(f64::MIN_POSITIVE);
            let speeds: Vec<Vec<f64>> = plans.iter().map(|plans| plans.iter().map(speed).collect()).collect();
            attempt(&fastest_division(cores, &speeds));
        }
        failed.map_or(Ok(()), Err)?;
        let (epoch_seconds, parts) = best.expect("there are as many cores as trainers");
        let mut trainers: Vec<UnifiedTrainer> = (plans.into_iter().zip(parts).zip(trainers))
            .filter(|((_, (_, share)), _)| *share > 0.0)
            .map(|((mut plans, (cores, share)), (_, place))| {
                let (plan, _) = plans.swap_remove(cores - 1);
                UnifiedTrainer { place, plan, cores, share }
            })
            .collect();
        trainers.sort_by(|a, b| b.share.total_cmp(&a.share));
        Ok(Self {
            trainers,
            shares: kind,
            exchange: ExchangeKind::Auto,
            epoch_seconds,
            all_reduce_seconds: measured.all_reduce,
        })
    }

    /// The same trainers with gradients added up by `exchange`.
    pub fn exchanging(self, exchange: ExchangeKind) -> Self {
        Self { exchange, ..self }
    }

    /// Whether the group is predicted to be faster than the best plan of a single trainer.
    pub fn is_chosen_over(&self, single: &Plan) -> bool {
        self.epoch_seconds < single.prediction.epoch_seconds
    }

    /// The plan of the first trainer, with the group's predicted epoch time.
    pub fn leading_plan(&self) -> Plan {
        let mut plan = self.trainers[0].plan.clone();
        let factor = self.epoch_seconds / plan.prediction.epoch_seconds;
        plan.prediction.epoch_seconds = self.epoch_seconds;
        plan.prediction.bound_seconds *= factor;
        plan
    }

    /// Mini-batches that a trainer may have begun and not trained.
    pub(super) fn in_flight(&self) -> usize {
        let of = |schedule: &Schedule| {
            let workers: usize = schedule.shares.iter().map(|share| share.workers).sum();
            workers + schedule.batched + schedule.ready + 2
        };
        self.trainers.iter().map(|trainer| of(&trainer.plan.schedule)).max().unwrap_or(1)
    }
}

impl fmt::Display for Unified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, all_reduce) = (Time(self.epoch_seconds), Time(self.all_reduce_seconds));
        let count = self.trainers.len();
        write!(
            f,
            "{count} trainers together: {seconds} per epoch, {all_reduce} per step for the all-reduce of gradients"
        )?;
        for (i, UnifiedTrainer { place, plan, cores, share }) in self.trainers.iter().enumerate() {
            let noun = if *cores == 1 { "core" } else { "cores" };
            write!(
                f,
                "\ntrainer {i} at {place}: {:.1}% of each mini-batch at first, {cores} {noun}; {plan}",
                100.0 * share
            )?;
        }
        Ok(())
    }
}

/// Predicted seconds of an epoch and the shares of a group of two trainers at least.
fn shares(problem: &GroupProblem, kind: Shares) -> Result<(f64, Vec<f64>)> {
    if kind == Shares::Equal {
        let count = problem.members.len();
        let all = problem.predicted(vec![1.0 / count as f64; count]);
        return Ok((all.epoch_seconds, all.shares));
    }
    let found = morphgl_plan::group(problem)?;
    if found.num_trainers() > 1 {
        return Ok((found.epoch_seconds, found.shares));
    }
    let speeds: Vec<f64> = problem.members.iter().map(|m| 1.0 / m.step.at(1.0).max(f64::MIN_POSITIVE)).collect();
    let sum: f64 = speeds.iter().sum();
    let all = problem.predicted(speeds.iter().map(|speed| speed / sum).collect());
    Ok((all.epoch_seconds, all.shares))
}

/// Number of divisions of `cores` among `count` trainers, at least one each.
fn divisions(cores: usize, count: usize) -> f64 {
    (1..count).map(|i| (cores - i) as f64 / i as f64).product()
}

/// The division of `cores` among trainers, at least one each, with the largest sum of speeds; `speeds` are by trainer, of one
/// core, of two, and so on.
///
/// # Complexity
///
/// O(trainers · cores²) time.
fn fastest_division(cores: usize, speeds: &[Vec<f64>]) -> Vec<usize> {
    // By cores given so far: the largest sum of the trainers so far, and the cores of each.
    let mut best: Vec<Option<(f64, Vec<usize>)>> = vec![None; cores + 1];
    best[0] = Some((0.0, Vec::new()));
    for speeds in speeds {
        let mut next: Vec<Option<(f64, Vec<usize>)>> = vec![None; cores + 1];
        for (given, (sum, division)) in best.iter().enumerate().filter_map(|(n, b)| Some((n, b.as_ref()?))) {
            for (own, speed) in (1..=cores - given).zip(speeds) {
                let slot = &mut next[given + own];
                if slot.as_ref().is_none_or(|(most, _)| sum + speed > *most) {
                    *slot = Some((sum + speed, [&division[..], &[own]].concat()));
                }
            }
        }
        best = next;
    }
    best.pop().flatten().expect("there are as many cores as trainers").1
}

/// Calls `each` with every division of `cores` among `count` trainers, at least one each.
fn for_each_division(cores: usize, count: usize, given: &mut Vec<usize>, each: &mut dyn FnMut(&[usize])) {
    if given.len() + 1 == count {
        given.push(cores);
        each(given);
        given.pop();
        return;
    }
    let others = count - given.len() - 1;
    for own in 1..=cores - others {
        given.push(own);
        for_each_division(cores - own, count, given, each);
        given.pop();
    }
}

#[cfg(test)]
mod tests;
