//! The unified mode: trainers at several places share every step (unified-cpu-gpu-protocol §4).

mod plan;

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use morphgl_execute::{
    Control, EpochReport, Settings as ExecutorSettings, Stop, TrainerReport, TrainingState, add_counters, add_trainers,
};
use morphgl_group::{BUCKET_BYTES, Balanced, Division, Leaver, Seat, StopTogether, Weights, join, work};
use morphgl_plan::Schedule;
use morphgl_registry::{BatchId, Key, Operators, Place, RouteOperators, SeedSet};
use morphgl_sampler_core::Epochs;

use crate::Job;
use crate::engine::Ends;

pub use plan::{GroupProfile, Shares, Unified, UnifiedTrainer};

/// The longest wait for a trainer without a time limit of its own.
const LIMIT: Duration = Duration::from_secs(300);

/// The trainers of a group besides the one that leads it, each with an executor of its own.
#[derive(Debug)]
pub(crate) struct Followers {
    executors: Vec<(morphgl_execute::Executor, Schedule)>,
    /// Of all trainers, the leading one first.
    leavers: Vec<Leaver>,
    /// Training operators and places, in the same order.
    ends: Vec<(String, Place)>,
    /// What adds up their gradients, for the user.
    exchange: String,
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
        let end = |trainer: &UnifiedTrainer| -> Result<_> {
            Ok((trainer.plan.schedule.shares[0].keys.training.parse::<Key>()?, trainer.place.clone()))
        };
        let trainers = unified.trainers.iter().map(end).collect::<Result<Vec<_>>>()?;
        let gradients = job.operators.trainers.first_mut().map(|trainer| trainer.operator.gradients()).transpose()?;
        let num_values = gradients.iter().flat_map(|g| &g.tensors).map(|tensor| tensor.values.len()).sum();
        let Ends { exchanges, leavers, how } = Ends::new(unified.exchange, &trainers, num_values, limit)?;
        let (mut leading, mut executors, mut placed) = (None, Vec::new(), Vec::new());
        for (exchange, trainer) in exchanges.into_iter().zip(&unified.trainers) {
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
            let (stop, bucket_bytes) = (Some(stop), BUCKET_BYTES);
            let seat = Seat { exchange, division, num_seeds, batch_size, stop, bucket_bytes };
            let operators = join(operators, seat)?;
            match &leading {
                None => leading = Some(operators),
                Some(_) => {
                    let executor = morphgl_execute::Executor::new(operators, schedule, settings)?;
                    executors.push((executor, schedule.clone()));
                }
            }
        }
        Ok((leading.expect("a group has a trainer"), Self { executors, leavers, ends: placed, exchange: how, stops }))
    }

    /// What adds up gradients, and why that was chosen.
    pub(crate) fn exchange(&self) -> &str {
        &self.exchange
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
