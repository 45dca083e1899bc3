//! The plan of a group: trainers, their cores and their first shares (unified-cpu-gpu-protocol §4).

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use morphgl_group::{HostExchange, Weights};
use morphgl_plan::{
    GroupPlan, GroupProblem, GroupTrainer, Limits, LinkUser, Plan, SharedLink, Time, TrainerPlan, group, group_of,
    simulate,
};
use morphgl_profile::{LinkProfile, LinkShare, MemoryLimit, Profile, Progress, Settings, Watch};
use morphgl_registry::{Key, Operators, Place, RouteOperators, TrainingOperator};
use serde::{Deserialize, Serialize};

use super::LinkUse;
use crate::build::serves_group;
use crate::usage::Usage;
use crate::{ExchangeKind, Job, Stop, engine, task, words};

/// The share of a mini-batch that is measured beside whole ones.
const PART: f64 = 0.5;
/// Ratio by which trainers with several routes have to be faster than with one each: a route is measured without the others.
const MIXED: f64 = 1.05;
/// The longest wait within an all-reduce that is measured.
const LIMIT: Duration = Duration::from_secs(60);

/// A plan for several trainers, the fastest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Unified {
    /// The trainers.
    pub trainers: Vec<UnifiedTrainer>,
    /// Where trainers would get less than half a seed of each mini-batch, and so none: they take no part.
    #[serde(default)]
    pub left_out: Vec<Place>,
    /// How mini-batches are divided among them.
    #[serde(default)]
    pub shares: Shares,
    /// Transport of their all-reduces.
    #[serde(default)]
    pub exchange: ExchangeKind,
    /// Predicted seconds of an epoch.
    pub epoch_seconds: f64,
    /// Predicted seconds with several routes for each trainer, where these are fewer by less than 5%.
    #[serde(default)]
    pub passed_over_seconds: Option<f64>,
    /// The links that the trainers share, and their predicted use.
    #[serde(default)]
    pub links: Vec<LinkUse>,
    /// Measured seconds of the all-reduce of gradients, per step.
    #[serde(alias = "addition_seconds")]
    pub all_reduce_seconds: f64,
}

/// How the mini-batches of a group are divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shares {
    /// By the work of seeds and the speeds of the trainers, measured in every step. Which seeds a trainer has depends on times.
    #[default]
    #[serde(alias = "balanced")]
    Dynamic,
    /// In proportion to the speeds measured before training. Two runs of a plan have the same bits.
    Static,
    /// As many seeds for each. Two runs have the same bits.
    Equal,
}

/// One trainer's part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UnifiedTrainer {
    /// Where it trains.
    pub place: Place,
    /// Its own plan, of one route or several, with the durations of its share.
    pub plan: Plan,
    /// The host's cores that its plan is for.
    pub cores: usize,
    /// Its share of each mini-batch at the start.
    pub share: f64,
}

/// What the trainers of a job would do in a group, as measured.
#[derive(Debug)]
pub struct GroupProfile {
    /// Seeds of a mini-batch.
    num_seeds: usize,
    /// Of shares of mini-batches, on the routes to trainers with gradients.
    part: Profile,
    /// These shares.
    share: f64,
    /// Seconds of adding up the gradients of all trainers.
    all_reduce: f64,
}

/// A trainer and its place.
pub(crate) type Trainer = (Key, Place);

impl GroupProfile {
    /// The profile `part` of a `share` of each mini-batch of `num_seeds` seeds, and the seconds of an all-reduce.
    pub(crate) fn new(num_seeds: usize, part: Profile, share: f64, all_reduce: f64) -> Self {
        Self { num_seeds, part, share, all_reduce }
    }

    /// The problem of a trainer, whose whole mini-batches have the durations of `whole`, and the share of its parts.
    pub(crate) fn trainer(
        &self,
        whole: &Profile,
        (key, place): &Trainer,
        cores: usize,
        limits: Limits,
    ) -> (GroupTrainer, f64) {
        let [whole, part] = [whole, &self.part].map(|profile| profile.of_trainer(key, place).problem(cores, limits));
        (GroupTrainer { whole, part }, self.share)
    }

    /// The trainers that have gradients.
    pub(crate) fn trainers(&self) -> Vec<Trainer> {
        self.part.trainers()
    }

    /// Links that the trainers' devices share.
    pub(crate) fn links(&self) -> &[LinkProfile] {
        &self.part.links
    }

    /// Measures halves of mini-batches on all routes, the all-reduce of gradients, and copies at once to all devices; `None` where fewer than two
    /// trainers have gradients, or a mini-batch is a single seed.
    ///
    /// # Errors
    ///
    /// An operator fails, or a stop is requested.
    pub fn measure(
        job: &mut Job,
        settings: &Settings,
        stop: &Stop,
        memory: Option<MemoryLimit<'_>>,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Option<Self>> {
        let num_seeds = task::num_examples(&job.dataset, &job.config).min(job.config.sampler.batch_size);
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
        let links = morphgl_profile::links(&mut job.operators.routes, watch.stop);
        job.operators.routes.extend::<Vec<_>>(unused);
        job.operators.trainers.extend::<Vec<_>>(idle);
        Ok(Some(Self::new(num_seeds, Profile { links: links?, ..part? }, PART, all_reduce)))
    }
}

/// The trainers that have gradients, and the seconds of adding up those of all.
pub(crate) fn all_reduce_seconds(trainers: &mut [TrainingOperator]) -> Result<Option<(Vec<Trainer>, f64)>> {
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
    /// The plan of the trainers with the least predicted epoch: their shares, their division of the host's cores, and for each its own
    /// routes, buffers, workers and threads ([`group`]). Where one trainer alone is predicted to be faster than any group, it is that
    /// of all trainers, but for those whose shares are no seed of a mini-batch: these are left out, until one trainer is left. With equal
    /// shares it is always that of all.
    ///
    /// # Errors
    ///
    /// Fewer cores than trainers, or a limit that nothing fits.
    ///
    /// # Complexity
    ///
    /// As [`group`], for each choice of trainers.
    pub fn plan(
        profile: &Profile,
        measured: &GroupProfile,
        kind: Shares,
        cores: usize,
        limits: Limits,
    ) -> Result<Self> {
        Self::of_routes(profile, measured, kind, (cores, limits), true)
    }

    /// [`Unified::plan`], in which trainers may have several routes each, or have one.
    pub(crate) fn of_routes(
        profile: &Profile,
        measured: &GroupProfile,
        kind: Shares,
        (cores, limits): (usize, Limits),
        may_have_several: bool,
    ) -> Result<Self> {
        let trainers = measured.part.trainers();
        let count = trainers.len();
        if cores < count {
            let what = format!("--plan unified: {count} trainers on {cores} of the host's cores; allow one each");
            return Err(Usage::error(what));
        }
        let limits = Limits { host_bytes: limits.host_bytes.map(|bytes| bytes / count as u64), ..limits };
        let problem = |(key, place): &Trainer| {
            let [mut whole, part] = [profile, &measured.part].map(|profile| profile.of_trainer(key, place));
            // Some routes have no shares.
            whole.routes.retain(|r| part.routes.iter().any(|of_part| of_part.route == r.route));
            if whole.routes.is_empty() {
                bail!("{key} at {place}: no route of whole mini-batches was measured");
            }
            let [whole, part] = [whole, part].map(|profile| profile.problem(cores, limits));
            Ok(GroupTrainer { whole, part })
        };
        let members = trainers.iter().map(problem).collect::<Result<Vec<_>>>()?;
        let links: Vec<SharedLink> = measured.links().iter().map(|link| shared(link, &trainers, &members)).collect();
        let problem = |single_routes: bool| GroupProblem {
            trainers: members.clone(),
            part: measured.share,
            links: links.clone(),
            all_reduce: measured.all_reduce,
            single_routes,
        };
        let best = |single_routes: bool, members: &[usize]| {
            let problem = problem(single_routes);
            match kind {
                Shares::Equal => group_of(&problem, members, Some(&vec![1.0 / count as f64; count])),
                Shares::Dynamic | Shares::Static if members.len() < count => group_of(&problem, members, None),
                Shares::Dynamic | Shares::Static => match group(&problem)? {
                    found if found.trainers.len() > 1 => Ok(found),
                    _ => group_of(&problem, members, None),
                },
            }
        };
        // The plan, and the trainers that it leaves without a seed.
        let served = |single_routes: bool| -> Result<(GroupPlan, Vec<usize>)> {
            let (mut members, mut without): (Vec<usize>, Vec<usize>) = ((0..count).collect(), Vec::new());
            loop {
                let found = best(single_routes, &members)?;
                let has_seeds = |part: &&TrainerPlan| (part.share * measured.num_seeds as f64).round() >= 1.0;
                let (with, few): (Vec<&TrainerPlan>, Vec<&TrainerPlan>) = found.trainers.iter().partition(has_seeds);
                if kind == Shares::Equal || few.is_empty() || with.is_empty() {
                    return Ok((found, without));
                }
                without.extend(few.into_iter().map(|part| part.trainer));
                members = with.into_iter().map(|part| part.trainer).collect();
            }
        };
        let (mut passed_over_seconds, mut is_chosen) = (None, false);
        let (mut found, mut without) = served(true)?;
        if may_have_several {
            let (several, of_several) = served(false)?;
            is_chosen = MIXED * several.epoch_seconds < found.epoch_seconds;
            if is_chosen {
                (found, without) = (several, of_several);
            } else if several.epoch_seconds < found.epoch_seconds {
                passed_over_seconds = Some(several.epoch_seconds);
            }
        }
        let left_out = without.into_iter().map(|trainer| trainers[trainer].1.clone()).collect();
        let GroupPlan { trainers: parts, epoch_seconds, .. } = found;
        let used = problem(!is_chosen).simulate(&parts);
        let of_link = |(link, used): (&LinkProfile, &f64)| {
            let share = if epoch_seconds > 0.0 { (used / epoch_seconds).min(1.0) } else { 0.0 };
            LinkUse { link: link.clone(), share }
        };
        let links = measured.links().iter().zip(&used.link_seconds).map(of_link).collect();
        let of = |TrainerPlan { trainer, share, cores, plan }| {
            let place = trainers[trainer].1.clone();
            UnifiedTrainer { place, plan, cores, share }
        };
        let mut trainers: Vec<UnifiedTrainer> = parts.into_iter().map(of).collect();
        trainers.sort_by(|a, b| b.share.total_cmp(&a.share));
        let all_reduce_seconds = if trainers.len() > 1 { measured.all_reduce } else { 0.0 };
        Ok(Self {
            trainers,
            left_out,
            shares: kind,
            exchange: ExchangeKind::Auto,
            epoch_seconds,
            passed_over_seconds,
            links,
            all_reduce_seconds,
        })
    }

    /// The same trainers with gradients added up by `exchange`.
    pub fn exchanging(self, exchange: ExchangeKind) -> Self {
        Self { exchange, ..self }
    }

    /// Whether several trainers are predicted to be faster than the best plan of a single one.
    pub fn is_chosen_over(&self, single: &Plan) -> bool {
        self.trainers.len() > 1 && self.epoch_seconds < single.prediction.epoch_seconds
    }

    /// The plan of the first trainer, with the group's predicted epoch time.
    pub fn leading_plan(&self) -> Plan {
        let mut plan = self.trainers[0].plan.clone();
        let factor = self.epoch_seconds / plan.prediction.epoch_seconds;
        plan.prediction.epoch_seconds = self.epoch_seconds;
        plan.prediction.bound_seconds *= factor;
        plan
    }

    /// Mini-batches, in their order, between one whose batching a trainer may begin and the last one before which all are trained.
    pub(super) fn in_flight(&self) -> usize {
        let of = |trainer: &UnifiedTrainer| {
            let schedule = &trainer.plan.schedule;
            let workers: usize = schedule.shares.iter().map(|share| share.workers).sum();
            let buffers = workers + schedule.batched + schedule.ready;
            // Mini-batches of one route are batched in the order of training.
            let ahead = if schedule.shares.len() > 1 { simulate(schedule).order.ahead(schedule) } else { 0 };
            buffers.max(ahead) + 2
        };
        self.trainers.iter().map(of).max().unwrap_or(1)
    }
}

/// The link as the planner has it.
fn shared(link: &LinkProfile, trainers: &[Trainer], members: &[GroupTrainer]) -> SharedLink {
    let mut users = Vec::new();
    for LinkShare { place, resource, fraction } in &link.users {
        for trainer in (0..trainers.len()).filter(|&trainer| trainers[trainer].1 == *place) {
            if members[trainer].whole.resources().iter().any(|r| r.name == *resource) {
                users.push(LinkUser { trainer, resource: resource.clone(), fraction: *fraction });
            }
        }
    }
    SharedLink { name: link.name.clone(), users }
}

impl fmt::Display for Unified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, all_reduce) = (Time(self.epoch_seconds), Time(self.all_reduce_seconds));
        let together = match self.trainers.len() {
            1 => "one trainer".to_string(),
            count => format!("{count} trainers together"),
        };
        write!(f, "{together}: {seconds} per epoch, {all_reduce} per step for the all-reduce of gradients")?;
        for (i, UnifiedTrainer { place, plan, cores, share }) in self.trainers.iter().enumerate() {
            let noun = if *cores == 1 { "core" } else { "cores" };
            write!(
                f,
                "\ntrainer {i} at {place}: {:.1}% of each mini-batch at first, {cores} {noun}; {plan}",
                100.0 * share
            )?;
        }
        for place in &self.left_out {
            write!(f, "\n{place} gets no seed of a mini-batch and is left out")?;
        }
        for link in &self.links {
            write!(f, "\nlink {}: {:.0}% in use", link.label(), 100.0 * link.share)?;
        }
        let Some(shorter) = self.passed_over_seconds else { return Ok(()) };
        write!(f, "\n{}", words::kept_simpler("several routes for each trainer", shorter, self.epoch_seconds))
    }
}

#[cfg(test)]
mod tests;
