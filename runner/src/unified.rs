//! The unified mode: trainers at several places share every step (unified-cpu-gpu-protocol §4).

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use morphgl_execute::{
    Control, EpochReport, Settings as ExecutorSettings, Stop, TrainerReport, TrainingState, add_counters, add_trainers,
};
use morphgl_group::{Balanced, Division, HostExchange, Leaver, Seat, StopTogether, Weights, join, work};
use morphgl_plan::{Limits, Plan, Schedule};
use morphgl_profile::Profile;
use morphgl_registry::{BatchId, Key, Operators, Place, RouteOperators, SeedSet};
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
    /// How mini-batches are divided among them.
    #[serde(default)]
    pub shares: Shares,
    /// Predicted seconds of an epoch, of durations in proportion to the shares, without the addition of gradients.
    pub epoch_seconds: f64,
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

impl Unified {
    /// The division of the host's cores among the training operators of the profile, each at its place, that has the least
    /// predicted epoch time.
    ///
    /// # Errors
    ///
    /// One training operator alone, fewer cores than trainers, or a limit that nothing fits.
    ///
    /// # Complexity
    ///
    /// One search of plans for each trainer and number of cores.
    pub fn plan(profile: &Profile, cores: usize, limits: Limits) -> Result<Self> {
        let ends = profile.trainers();
        let count = ends.len();
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
        for (key, place) in &ends {
            let own = profile.of_trainer(key, place);
            let on = |cores: usize| {
                let plans = morphgl_plan::plan(&own.problem(cores, limits))?;
                let single = plans.all().iter().find(|plan| plan.schedule.shares.len() == 1);
                single.cloned().ok_or_else(|| anyhow!("{key} at {place}: no plan of a single route"))
            };
            plans.push((1..=cores - (count - 1)).map(on).collect::<Result<_>>()?);
        }
        let speeds: Vec<Vec<f64>> =
            plans.iter().map(|plans| plans.iter().map(|p| 1.0 / p.prediction.epoch_seconds).collect()).collect();
        let division = divide(cores, &speeds);
        let speed: f64 = speeds.iter().zip(&division).map(|(speeds, &cores)| speeds[cores - 1]).sum();
        let trainer = |((mut plans, cores), (_, place)): ((Vec<Plan>, usize), (Key, Place))| {
            let plan = plans.swap_remove(cores - 1);
            let share = 1.0 / plan.prediction.epoch_seconds / speed;
            UnifiedTrainer { place, plan, cores, share }
        };
        let mut trainers: Vec<UnifiedTrainer> = plans.into_iter().zip(division).zip(ends).map(trainer).collect();
        trainers.sort_by(|a, b| b.share.total_cmp(&a.share));
        Ok(Self { trainers, shares: Shares::Balanced, epoch_seconds: 1.0 / speed })
    }

    /// The same trainers with mini-batches divided by `shares`.
    pub fn divided(mut self, shares: Shares) -> Self {
        self.shares = shares;
        if shares == Shares::Equal {
            let share = 1.0 / self.trainers.len() as f64;
            let epoch = |trainer: &UnifiedTrainer| share * trainer.plan.prediction.epoch_seconds;
            self.epoch_seconds = self.trainers.iter().map(epoch).fold(0.0, f64::max);
            self.trainers.iter_mut().for_each(|trainer| trainer.share = share);
        }
        self
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

/// The division of `cores` among trainers, at least one each, with the largest sum of speeds; `speeds` are by trainer, of one
/// core, of two, and so on.
///
/// # Complexity
///
/// O(trainers · cores²) time.
fn divide(cores: usize, speeds: &[Vec<f64>]) -> Vec<usize> {
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

/// The trainers of a group besides the one that leads it, each with an executor of its own.
#[derive(Debug)]
pub(crate) struct Followers {
    executors: Vec<(morphgl_execute::Executor, Schedule)>,
    /// Of all trainers, the leading one first.
    leavers: Vec<Leaver>,
    /// Training operators and places, in the same order.
    ends: Vec<(String, Place)>,
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
        let division = || -> Result<Arc<dyn Division>> {
            Ok(match unified.shares {
                Shares::Equal => Arc::new(Weights::equal(shares.len())),
                Shares::Balanced => {
                    let epochs = Epochs::new(&seeds, sampler);
                    let balanced = Balanced::new(epochs, Arc::clone(&work), &shares, unified.in_flight())?;
                    Arc::new(balanced.starting_at(start))
                }
            })
        };
        let stops = Arc::new(Stops::default());
        let limit = settings.limit.unwrap_or(LIMIT);
        let ends = HostExchange::group(unified.trainers.len(), limit);
        let leavers = ends.iter().map(HostExchange::leaver).collect();
        let (mut leading, mut executors, mut placed) = (None, Vec::new(), Vec::new());
        for (end, trainer) in ends.into_iter().zip(&unified.trainers) {
            let schedule = &trainer.plan.schedule;
            let key = &schedule.shares[0].keys.training;
            let place = &trainer.place;
            let operators = take(&mut job.operators, key, place).with_context(|| {
                format!("{key} at {place}: the run was planned with it, and it cannot be built here; train anew")
            })?;
            placed.push((key.clone(), place.clone()));
            let division = division()?;
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
        Ok((leading.expect("a group has a trainer"), Self { executors, leavers, ends: placed, stops }))
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
        let mut ends = self.ends.iter();
        let mut trainers = vec![part_of(ends.next().expect("the leading one"), &report)];
        trainers.extend(report.trainers.drain(..).skip(1));
        for (followed, end) in followed.into_iter().zip(ends) {
            let followed = followed?;
            if followed.remaining != report.remaining {
                bail!("the trainers of the group have not ended after the same step; this is a fault of the group");
            }
            add_trainers(&mut trainers, vec![part_of(end, &followed)]);
            report.seeds += followed.seeds;
            report.edges += followed.edges;
            add_counters(&mut report.counters, followed.counters);
        }
        report.trainers = trainers;
        Ok(report)
    }
}

/// What of a report is its trainer's own: all but the parts of other trainers, which a report that is continued contains, the
/// leading trainer's first.
fn part_of((training, place): &(String, Place), report: &EpochReport) -> TrainerReport {
    let (training, place) = (training.clone(), place.clone());
    let EpochReport { seeds, edges, ref counters, .. } = *report;
    let mut own = TrainerReport { training, place, seeds, edges, counters: counters.clone() };
    for other in report.trainers.iter().skip(1) {
        own.seeds -= other.seeds;
        own.edges -= other.edges;
        for (operator, counters) in &other.counters {
            let own = own.counters.entry(operator.clone()).or_default();
            counters.iter().for_each(|(name, amount)| *own.entry(name.clone()).or_default() -= amount);
            own.retain(|_, amount| *amount > 0);
        }
    }
    own.counters.retain(|_, counters| !counters.is_empty());
    own
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

/// Takes the operators of the routes to one training operator at one place.
fn take(operators: &mut Operators, training: &str, place: &Place) -> Option<Operators> {
    let index = operators.trainers.iter().position(|t| t.key.to_string() == training && t.place == *place)?;
    let trainer = operators.trainers.swap_remove(index);
    let is_own = |r: &RouteOperators| (&r.route.training, &r.route.trained_at) == (&trainer.key, &trainer.place);
    let (own, others) = std::mem::take(&mut operators.routes).into_iter().partition(is_own);
    operators.routes = others;
    Some(Operators { routes: own, trainers: vec![trainer] })
}

#[cfg(test)]
mod tests {
    use super::divide;

    #[test]
    fn cores_go_where_they_speed_up_most() {
        // The first gains by every core, the second by one more, the third by none.
        let speeds = [vec![1.0, 2.0, 3.0, 4.0], vec![1.0, 5.0, 5.0, 5.0], vec![9.0, 9.0, 9.0, 9.0]];
        assert_eq!(divide(3, &speeds), [1, 1, 1]);
        assert_eq!(divide(4, &speeds), [1, 2, 1]);
        assert_eq!(divide(6, &speeds), [3, 2, 1]);
        let slow = vec![vec![1.0; 57]; 8];
        assert_eq!(divide(64, &slow).iter().sum::<usize>(), 64, "every core is given");
    }
}
