//! The unified mode: trainers at several places share every step (unified-cpu-gpu-protocol §4).

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use morphgl_execute::{Control, EpochReport, Settings as ExecutorSettings, Stop, TrainingState, add_counters};
use morphgl_group::{Balanced, Division, HostExchange, Leaver, Seat, StopTogether, join, work};
use morphgl_plan::{Limits, Plan, Schedule};
use morphgl_profile::Profile;
use morphgl_registry::{BatchId, Operators, SeedSet};
use morphgl_sampler_core::Epochs;
use serde::{Deserialize, Serialize};

use crate::Job;
use crate::usage::Usage;

/// The longest wait for a trainer without a time limit of its own.
const LIMIT: Duration = Duration::from_secs(300);

/// A plan for several trainers, the fastest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Unified {
    /// The trainers.
    pub trainers: Vec<UnifiedTrainer>,
    /// Predicted seconds of an epoch, of durations in proportion to the shares, without the addition of gradients.
    pub epoch_seconds: f64,
}

/// One trainer's part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UnifiedTrainer {
    /// Its own plan: of whole mini-batches, by one route.
    pub plan: Plan,
    /// The host's cores that its plan is for.
    pub cores: usize,
    /// Its share of each mini-batch at the start.
    pub share: f64,
}

impl Unified {
    /// The division of the host's cores among the training operators of the profile that has the least predicted epoch time.
    ///
    /// # Errors
    ///
    /// One training operator alone, fewer cores than trainers, or a limit that nothing fits.
    ///
    /// # Complexity
    ///
    /// One search of plans for each trainer and number of cores.
    pub fn plan(profile: &Profile, cores: usize, limits: Limits) -> Result<Self> {
        let mut keys: Vec<String> = profile.routes.iter().map(|r| r.route.training.to_string()).collect();
        keys.sort();
        keys.dedup();
        let count = keys.len();
        if count < 2 {
            let what = "--plan unified: one place alone can train here; use --plan auto";
            return Err(Usage::error(what));
        }
        if cores < count {
            let what = format!("--plan unified: {count} trainers on {cores} of the host's cores; allow one each");
            return Err(Usage::error(what));
        }
        let limits = Limits { host_bytes: limits.host_bytes.map(|bytes| bytes / count as u64), ..limits };
        // By trainer, its fastest plan on one core, on two, and so on.
        let mut plans: Vec<Vec<Plan>> = Vec::new();
        for key in &keys {
            let on = |cores: usize| {
                let problem = profile.problem(cores, limits).of_training(key);
                let plans = morphgl_plan::plan(&problem.expect("the profile has a route to it"))?;
                let single = plans.all().iter().find(|plan| plan.schedule.shares.len() == 1);
                single.cloned().ok_or_else(|| anyhow!("{key}: no plan of a single route"))
            };
            plans.push((1..=cores - (count - 1)).map(on).collect::<Result<_>>()?);
        }
        let mut best: Option<(f64, Vec<usize>)> = None;
        for_each_division(cores, count, &mut Vec::new(), &mut |division| {
            let speed: f64 =
                plans.iter().zip(division).map(|(plans, &n)| 1.0 / plans[n - 1].prediction.epoch_seconds).sum();
            if best.as_ref().is_none_or(|(most, _)| speed > *most) {
                best = Some((speed, division.to_vec()));
            }
        });
        let (speed, division) = best.expect("there are as many cores as trainers");
        let trainer = |(mut plans, cores): (Vec<Plan>, usize)| {
            let plan = plans.swap_remove(cores - 1);
            let share = 1.0 / plan.prediction.epoch_seconds / speed;
            UnifiedTrainer { plan, cores, share }
        };
        let mut trainers: Vec<UnifiedTrainer> = plans.into_iter().zip(division).map(trainer).collect();
        trainers.sort_by(|a, b| b.share.total_cmp(&a.share));
        Ok(Self { trainers, epoch_seconds: 1.0 / speed })
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
    fn in_flight(&self) -> usize {
        let of = |schedule: &Schedule| {
            let workers: usize = schedule.shares.iter().map(|share| share.workers).sum();
            workers + schedule.batched + schedule.ready + 2
        };
        self.trainers.iter().map(|trainer| of(&trainer.plan.schedule)).max().unwrap_or(1)
    }
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

/// The trainers of a group besides the one that leads it, each with an executor of its own.
#[derive(Debug)]
pub(crate) struct Followers {
    executors: Vec<(morphgl_execute::Executor, Schedule)>,
    /// Of all trainers, the leading one first.
    leavers: Vec<Leaver>,
    stops: Arc<Stops>,
}

/// The caller's request, and the one that all trainers have agreed on.
#[derive(Debug, Default)]
struct Stops {
    requested: Mutex<Stop>,
    agreed: Mutex<Stop>,
}

fn current(stop: &Mutex<Stop>) -> Stop {
    stop.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn replace(old: &Mutex<Stop>, new: Stop) {
    *old.lock().unwrap_or_else(PoisonError::into_inner) = new;
}

impl Followers {
    /// Divides a job's operators among the trainers; returns the leading one's and the others.
    ///
    /// # Errors
    ///
    /// A plan of operators that the job does not have.
    pub(crate) fn new(
        job: &mut Job,
        unified: &Unified,
        start: BatchId,
        settings: ExecutorSettings,
    ) -> Result<(Operators, Self)> {
        let seeds = SeedSet::new("train split", &job.dataset.splits.train, job.dataset.num_nodes())?;
        let sampler = &job.config.sampler;
        let work = Arc::from(work(&job.dataset.topology, &sampler.sampling));
        let shares: Vec<f64> = unified.trainers.iter().map(|trainer| trainer.share).collect();
        let balanced = || -> Result<Balanced> {
            let epochs = Epochs::new(&seeds, sampler);
            Ok(Balanced::new(epochs, Arc::clone(&work), &shares, unified.in_flight())?.starting_at(start))
        };
        let stops = Arc::new(Stops::default());
        let limit = settings.limit.unwrap_or(LIMIT);
        let ends = HostExchange::group(unified.trainers.len(), limit);
        let leavers = ends.iter().map(HostExchange::leaver).collect();
        let (mut leading, mut executors) = (None, Vec::new());
        for (end, trainer) in ends.into_iter().zip(&unified.trainers) {
            let schedule = &trainer.plan.schedule;
            let key = &schedule.shares[0].keys.training;
            let operators = take(&mut job.operators, key).with_context(|| {
                format!("{key}: the run was planned with this operator, which cannot be built here; train anew")
            })?;
            let division: Arc<dyn Division> = Arc::new(balanced()?);
            let (of_request, of_agreement) = (Arc::clone(&stops), Arc::clone(&stops));
            let stop = StopTogether {
                requested: Arc::new(move || current(&of_request.requested).is_requested()),
                stop: Arc::new(move || current(&of_agreement.agreed).request()),
            };
            let (num_seeds, batch_size) = (seeds.nodes().len(), sampler.batch_size);
            let seat = Seat { exchange: Box::new(end), division, num_seeds, batch_size, stop: Some(stop) };
            let operators = join(operators, seat)?;
            match &leading {
                None => leading = Some(operators),
                Some(_) => {
                    let executor = morphgl_execute::Executor::new(operators, schedule, settings)?;
                    executors.push((executor, schedule.clone()));
                }
            }
        }
        Ok((leading.expect("a group has a trainer"), Self { executors, leavers, stops }))
    }

    /// Gives all trainers the state of the leading one.
    ///
    /// # Errors
    ///
    /// A state of another model.
    pub(crate) fn restore(&mut self, training: &TrainingState) -> Result<()> {
        self.executors.iter_mut().try_for_each(|(executor, _)| Ok(training.restore(executor.training_mut()?)?))
    }

    /// Trains mini-batches with all trainers: `lead` runs the leading one, until the given stop. The report is the leading
    /// trainer's, with the seeds, edges and counters of all.
    ///
    /// # Errors
    ///
    /// The first failure, of whichever trainer.
    pub(crate) fn train(
        &mut self,
        epoch: u32,
        batches: &[u32],
        stop: &Stop,
        lead: impl FnOnce(&Stop) -> morphgl_execute::Result<EpochReport>,
    ) -> Result<EpochReport> {
        let agreed = Stop::new();
        replace(&self.stops.requested, stop.clone());
        replace(&self.stops.agreed, agreed.clone());
        let (leavers, executors) = (&self.leavers, &mut self.executors);
        let (led, followed) = thread::scope(|scope| {
            let follow = |(follower, leaver): (&mut (morphgl_execute::Executor, Schedule), &Leaver)| {
                let trained = train_all(follower, epoch, batches, &agreed);
                if let Err(e) = &trained {
                    leaver.leave(&e.to_string());
                }
                trained
            };
            let running: Vec<_> =
                executors.iter_mut().zip(&leavers[1..]).map(|one| scope.spawn(move || follow(one))).collect();
            let led = lead(&agreed);
            if let Err(e) = &led {
                leavers[0].leave(&e.to_string());
            }
            let followed: Vec<_> =
                running.into_iter().map(|thread| thread.join().expect("operators' panics are caught")).collect();
            (led, followed)
        });
        // A trainer that others wait for in vain says why it left, in their errors too.
        let mut report = led?;
        for followed in followed {
            let followed = followed?;
            if followed.remaining != report.remaining {
                bail!("the trainers of the group have not ended after the same step; this is a fault of the group");
            }
            report.seeds += followed.seeds;
            report.edges += followed.edges;
            add_counters(&mut report.counters, followed.counters);
        }
        Ok(report)
    }
}

fn train_all(
    (executor, schedule): &mut (morphgl_execute::Executor, Schedule),
    epoch: u32,
    batches: &[u32],
    stop: &Stop,
) -> Result<EpochReport> {
    schedule.shares[0].batches = batches.len();
    if executor.schedule() != schedule {
        executor.set_schedule(schedule)?;
    }
    Ok(executor.train(epoch, batches, stop, &mut |_| Control::Continue)?)
}

/// Takes the operators of the routes to one training operator.
fn take(operators: &mut Operators, training: &str) -> Option<Operators> {
    let index = operators.trainers.iter().position(|t| t.key.to_string() == training)?;
    let trainer = operators.trainers.swap_remove(index);
    let is_own = |route: &morphgl_registry::RouteOperators| route.route.training == trainer.key;
    let (own, others) = std::mem::take(&mut operators.routes).into_iter().partition(is_own);
    operators.routes = others;
    Some(Operators { routes: own, trainers: vec![trainer] })
}

#[cfg(test)]
mod tests {
    use super::for_each_division;

    #[test]
    fn every_division_of_the_cores_comes_once() {
        let mut found = Vec::new();
        for_each_division(4, 3, &mut Vec::new(), &mut |division| found.push(division.to_vec()));
        assert_eq!(found, [[1, 1, 2], [1, 2, 1], [2, 1, 1]]);
    }
}
