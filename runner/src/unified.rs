//! The unified mode: trainers at several places share every step (unified-cpu-gpu-protocol §4).

mod links;
mod plan;

use std::cmp::Ordering;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use morphgl_execute::{
    Activity, Control, EpochReport, Event, Settings as ExecutorSettings, Stop, TrainerReport, TrainingState,
    add_counters, add_trainers,
};
use morphgl_group::{
    AbortHandle, AllReduceHook, BUCKET_BYTES, Balanced, Division, GroupMember, StopTogether, VirtualSteps, Weights,
    join, work, work_of_pairs, work_of_rows,
};
use morphgl_plan::{Span, Time};
use morphgl_registry::{BatchId, Key, Operators, Place, RouteOperators, VirtualClock};
use morphgl_sampler_core::Epochs;

use crate::build::keep_one_of_each;
use crate::engine::Ends;
use crate::{Job, OperatorBuilder};

pub use links::LinkUse;
pub(crate) use plan::all_reduce_seconds;
pub use plan::{GroupProfile, Shares, Unified, UnifiedTrainer};

/// The longest wait for a trainer without a time limit of its own.
pub(crate) const LIMIT: Duration = Duration::from_secs(300);

/// The trainers of a group besides the one that leads it, each with an executor of its own.
#[derive(Debug)]
pub(crate) struct Followers {
    executors: Vec<morphgl_execute::Executor>,
    /// Of all trainers, the leading one first.
    abort_handles: Vec<AbortHandle>,
    /// Training operators and places, in the same order.
    ends: Vec<(Key, Place)>,
    /// What adds up their gradients, for the user.
    exchange: String,
    stops: Arc<Stops>,
    sender: Sender<Message>,
    messages: Receiver<Message>,
    /// When they began to train last.
    begun: Instant,
    /// In virtual time, the instant that stands for its beginning, and the clock of the leading trainer.
    virtual_time: Option<(Instant, VirtualClock)>,
}

/// What a trainer does besides leading, for the observer of the leading one.
#[derive(Debug)]
pub(crate) enum Message {
    /// A phase of a follower, by its number.
    Ended(usize, Activity),
    /// An all-reduce at any trainer.
    Added(usize, BatchId, Instant, Instant),
}

/// The other trainers of a group while they train.
#[derive(Debug)]
pub(crate) struct Others<'a> {
    messages: &'a Receiver<Message>,
    begun: Instant,
    /// Seconds of the epoch before.
    before: f64,
}

impl<'a> Others<'a> {
    /// Those who send these messages, who began to train then, `before` seconds after the beginning of the epoch.
    pub(crate) fn new(messages: &'a Receiver<Message>, begun: Instant, before: f64) -> Self {
        Self { messages, begun, before }
    }

    /// What they have done since the last call, in seconds since the beginning of the epoch.
    pub(crate) fn events(&self) -> impl Iterator<Item = Event<'static>> {
        let at = |time: Instant| self.before + time.saturating_duration_since(self.begun).as_secs_f64();
        self.messages.try_iter().map(move |message| match message {
            Message::Ended(trainer, activity) => Event::Followed(trainer, later(activity, self.before)),
            Message::Added(trainer, id, from, to) => Event::Added(trainer, id, Span { start: at(from), end: at(to) }),
        })
    }
}

/// The activity, so many seconds later.
pub(crate) fn later(activity: Activity, seconds: f64) -> Activity {
    let Span { start, end } = activity.span;
    Activity { span: Span { start: start + seconds, end: end + seconds }, ..activity }
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
        let builder = OperatorBuilder { dataset: &job.dataset, config: &job.config, context: &job.context };
        let seeds = builder.seeds()?;
        let sampler = &job.config.sampler;
        let mut all = work(&job.dataset.topology, &sampler.sampling);
        if let Some(pairs) = seeds.pairs() {
            all = work_of_pairs(&all, pairs);
        }
        if let Some(rows) = seeds.rows() {
            all = work_of_rows(&all, rows);
        }
        let work = Arc::from(all);
        let shares: Vec<f64> = unified.trainers.iter().map(|trainer| trainer.share).collect();
        let division = || -> Result<Arc<dyn Division>> {
            Ok(match unified.shares {
                Shares::Equal => Arc::new(Weights::equal(shares.len())),
                Shares::Static => {
                    let weights = Weights::new(&shares);
                    Arc::new(weights.context("the shares of the group's plan are no numbers of at least 0; plan anew")?)
                }
                Shares::Dynamic => {
                    let epochs = Epochs::new(&seeds, sampler);
                    let balanced = Balanced::new(epochs, Arc::clone(&work), &shares, unified.in_flight())?;
                    Arc::new(balanced.starting_at(start))
                }
            })
        };
        let (sender, messages) = mpsc::channel();
        let stops = Arc::new(Stops::default());
        let limit = settings.limit.unwrap_or(LIMIT);
        let end =
            |trainer: &UnifiedTrainer| (trainer.plan.schedule.shares[0].keys.training.clone(), trainer.place.clone());
        let trainers: Vec<(Key, Place)> = unified.trainers.iter().map(end).collect();
        let gradients = job.operators.trainers.first_mut().map(|trainer| trainer.operator.gradients()).transpose()?;
        let num_values = gradients.iter().flat_map(|g| &g.tensors).map(|tensor| tensor.values.len()).sum();
        let Ends { exchanges, abort_handles, how } = Ends::new(unified.exchange, &trainers, num_values, limit)?;
        let (mut leading, mut executors, mut placed) = (None, Vec::new(), Vec::new());
        let (all_reduce, origin) = (Duration::from_secs_f64(unified.all_reduce_seconds), Instant::now());
        let is_virtual = job.context.machine().is_some();
        let how = if is_virtual { format!("simulated, {} per step", Time(unified.all_reduce_seconds)) } else { how };
        let mut clocks = Vec::new();
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
            let (num_seeds, batch_size) = (seeds.num_examples(), sampler.batch_size);
            let (sender, rank) = (sender.clone(), exchange.rank());
            let observe = AllReduceHook(Arc::new(move |id, from, to| {
                // Nobody listens between epochs, when nothing is added.
                let _ = sender.send(Message::Added(rank, id, from, to));
            }));
            let (stop, observe, bucket_bytes) = (Some(stop), Some(observe), BUCKET_BYTES);
            let clock = is_virtual.then(VirtualClock::default);
            let virtual_steps = clock.clone().map(|clock| VirtualSteps { clock, all_reduce, origin });
            let member =
                GroupMember { exchange, division, num_seeds, batch_size, stop, observe, bucket_bytes, virtual_steps };
            let operators = join(operators, member)?;
            match &leading {
                None => leading = Some(operators),
                Some(_) => {
                    let mut executor = morphgl_execute::Executor::new(operators, schedule, settings)?;
                    if let Some(clock) = clock.clone() {
                        executor = executor.in_virtual_time(clock);
                    }
                    executors.push(executor.in_order_of_training());
                }
            }
            clocks.extend(clock);
        }
        let virtual_time = clocks.into_iter().next().map(|clock| (origin, clock));
        Ok((
            leading.expect("a group has a trainer"),
            Self {
                executors,
                abort_handles,
                ends: placed,
                exchange: how,
                stops,
                sender,
                messages,
                begun: Instant::now(),
                virtual_time,
            },
        ))
    }

    /// What adds up gradients, and why that was chosen.
    pub(crate) fn exchange(&self) -> &str {
        &self.exchange
    }

    /// In virtual time, the clock of the leading trainer.
    pub(crate) fn clock(&self) -> Option<VirtualClock> {
        self.virtual_time.as_ref().map(|(_, clock)| clock.clone())
    }

    /// Work of the other trainers that was not reported to the leading trainer's observer yet.
    pub(crate) fn others(&self, before: f64) -> Others<'_> {
        Others { messages: &self.messages, begun: self.begun, before }
    }

    /// Gives all trainers the state of the leading one.
    ///
    /// # Errors
    ///
    /// A state of another model.
    pub(crate) fn restore(&mut self, training: &TrainingState) -> Result<()> {
        self.executors.iter_mut().try_for_each(|executor| Ok(training.restore(executor.training_mut()?)?))
    }

    /// Trains the mini-batches after the first `trained` ones with all trainers, `before` seconds after the beginning of the epoch:
    /// `lead` runs the leading one, until the given stop. The report is the leading trainer's, with the seeds, edges and counters of all.
    ///
    /// # Errors
    ///
    /// The first failure, of whichever trainer.
    pub(crate) fn train(
        &mut self,
        (epoch, batches, trained): (u32, &[u32], usize),
        before: f64,
        stop: &Stop,
        lead: impl FnOnce(&Stop, &Others<'_>) -> morphgl_execute::Result<EpochReport>,
    ) -> Result<EpochReport> {
        let agreed = Stop::new();
        replace(&self.stops.requested, stop.clone());
        replace(&self.stops.agreed, agreed.clone());
        self.begun = self.virtual_time.as_ref().map_or_else(Instant::now, |(origin, _)| *origin);
        let (abort_handles, executors) = (&self.abort_handles, &mut self.executors);
        let others = Others { messages: &self.messages, begun: self.begun, before };
        let (sender, agreed) = (&self.sender, &agreed);
        let (led, followed) = thread::scope(|scope| {
            let followed = |(index, follower): (usize, &mut morphgl_execute::Executor), abort_handle: &AbortHandle| {
                let tell = |activity| drop(sender.send(Message::Ended(index + 1, activity)));
                let trained = follow(follower, (epoch, batches, trained), agreed, &tell);
                if let Err(e) = &trained {
                    abort_handle.abort(&e.to_string());
                }
                trained
            };
            let followers = executors.iter_mut().enumerate().zip(&abort_handles[1..]);
            let running: Vec<_> = followers
                .map(|(follower, abort_handle)| scope.spawn(move || followed(follower, abort_handle)))
                .collect();
            let led = lead(agreed, &others);
            if let Err(e) = &led {
                abort_handles[0].abort(&e.to_string());
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
fn part_of((training, place): &(Key, Place), report: &EpochReport) -> TrainerReport {
    let (training, place) = (training.to_string(), place.clone());
    // Busy seconds of the others are not added to the leading trainer's.
    let EpochReport { seeds, edges, busy, ref counters, .. } = *report;
    let mut own = TrainerReport { training, place, seeds, edges, busy, counters: counters.clone() };
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

fn follow(
    executor: &mut morphgl_execute::Executor,
    (epoch, batches, trained): (u32, &[u32], usize),
    stop: &Stop,
    tell: &dyn Fn(Activity),
) -> Result<EpochReport> {
    let mut observe = |event: &Event<'_>| {
        if let Event::Ended(activity) = event {
            tell(*activity);
        }
        Control::Continue
    };
    Ok(executor.train_after(epoch, batches, trained, stop, &mut observe)?)
}

/// Takes the operators of the routes to one training operator at one place.
fn take(operators: &mut Operators, training: &Key, place: &Place) -> Option<Operators> {
    let index = operators.trainers.iter().position(|t| t.key == *training && t.place == *place)?;
    let trainer = operators.trainers.swap_remove(index);
    let is_own = |r: &RouteOperators| (&r.route.training, &r.route.trained_at) == (&trainer.key, &trainer.place);
    let (own, others) = std::mem::take(&mut operators.routes).into_iter().partition(is_own);
    operators.routes = others;
    let mut own = Operators { routes: own, trainers: vec![trainer] };
    // The last devices sample for the others.
    keep_one_of_each(&mut own, Ordering::Greater);
    Some(own)
}
