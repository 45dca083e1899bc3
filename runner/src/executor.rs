//! The last of the four steps of morphgl's Listing 1: execute, and plan again.

use std::cmp::Ordering;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use anyhow::{Result, bail};
use morphgl_execute::{Control, EpochReport, Event, Settings as ExecutorSettings, Stop, TrainingState};
use morphgl_graph_store::Dataset;
use morphgl_group::StalenessCounts;
use morphgl_layer_split::SplitStatistics;
use morphgl_model_core::{Confusion, ScoreKind, count_reduction};
use morphgl_plan::{Drift, PaceHistory, Plan, Plans, Problem, Replanned, Replanner, Schedule};
use morphgl_registry::{BatchId, Key, Route, Score, Training, Transferring, VirtualClock};

use crate::budget::Purpose;
use crate::build::keep_one_of_each;
use crate::evaluate::Sampled;
use crate::factored::{Factored, FactoredExecutor};
use crate::position::{PartialEpoch, Position, append};
use crate::split::SplitPlan;
use crate::unified::{Followers, Others, Unified, later};
use crate::watcher::{Observer, Watcher};
use crate::{Evaluated, Group, Job, JobConfig, OperatorBuilder, RunContext, task};

/// Trains epochs by a plan with real threads (morphgl §IV-B4), and plans again when durations change.
#[derive(Debug)]
pub struct Executor {
    pub(crate) dataset: Arc<Dataset>,
    pub(crate) config: JobConfig,
    pub(crate) context: RunContext,
    inner: Inner,
    pub(crate) group: Option<Arc<Group>>,
    plan: Plan,
    /// The problem with the durations measured so far; `None` for a fixed plan.
    problem: Option<Problem>,
    /// Whether the durations of `problem` are newer than the plan.
    drifted: bool,
    /// Measured over predicted seconds of whole epochs; empty for a fixed plan.
    paces: PaceHistory,
    /// Plans of `problem`, computed when they are first needed.
    plans: Option<Plans>,
    /// The plan that was changed to because whole epochs took longer than predicted; taken when it is reported.
    changed: Option<Replanned>,
    /// Where an epoch was interrupted.
    within: Option<PartialEpoch>,
    /// The other trainers of a group; `None` where one trains alone.
    followers: Option<Followers>,
    /// What is computed beside training, and predicted seconds of the first epoch; `None` where training is exact.
    split: Option<(SplitStatistics, f64)>,
}

/// What runs epochs.
#[derive(Debug)]
enum Inner {
    /// One trainer, or the leading one of several, by its schedule.
    Scheduled(Box<morphgl_execute::Executor>),
    /// Devices with roles.
    Roles(Box<FactoredExecutor>),
}

impl Inner {
    fn num_batches(&self) -> u32 {
        match self {
            Self::Scheduled(executor) => executor.num_batches(),
            Self::Roles(devices) => devices.roles.num_batches(),
        }
    }

    fn training_key(&self) -> &Key {
        match self {
            Self::Scheduled(executor) => executor.training_key(),
            Self::Roles(devices) => devices.roles.training_key(),
        }
    }

    fn training_mut(&mut self) -> morphgl_execute::Result<&mut dyn Training> {
        match self {
            Self::Scheduled(executor) => executor.training_mut(),
            Self::Roles(devices) => Ok(devices.roles.trainers_mut()?.swap_remove(0)),
        }
    }

    /// Changes the schedule; roles are those of a plan of their own.
    fn set_schedule(&mut self, schedule: &Schedule) -> morphgl_execute::Result<()> {
        match self {
            Self::Scheduled(executor) => executor.set_schedule(schedule),
            Self::Roles(_) => Ok(()),
        }
    }

    /// Works with the first route of the leading trainer.
    fn with_route<R>(
        &mut self,
        work: impl FnOnce(&Route, &mut dyn Transferring, &mut dyn Training) -> R,
    ) -> morphgl_execute::Result<R> {
        match self {
            Self::Scheduled(executor) => {
                let (route, transferring, training) = executor.share_mut(0)?;
                Ok(work(route, transferring, training))
            }
            Self::Roles(devices) => devices.roles.with_route(work),
        }
    }
}

impl Executor {
    /// Takes from the job the operators that the plan names; those whose caches have another size in the plan are built again.
    ///
    /// The job of a trainer of a group has one training operator, and takes its steps with all others.
    ///
    /// With a `problem`, the rest of an epoch is planned again when measured durations drift; caches keep their sizes.
    ///
    /// # Errors
    ///
    /// A plan of operators that the job does not have, or of another number of mini-batches; or a cache that cannot be built.
    pub fn new(job: Job, plan: &Plan, problem: Option<Problem>, settings: ExecutorSettings) -> Result<Self> {
        let clock = job.context.machine().map(|_| VirtualClock::default());
        Self::timed(job, plan, problem, settings, clock)
    }

    /// [`Executor::new`] in the virtual time of a clock, or in real time.
    fn timed(
        mut job: Job,
        plan: &Plan,
        problem: Option<Problem>,
        settings: ExecutorSettings,
        clock: Option<VirtualClock>,
    ) -> Result<Self> {
        job.resize_caches(&plan.caches)?;
        let problem = problem.map(|problem| problem.settled(&plan.caches));
        let Job { dataset, config, context, mut operators, group, .. } = job;
        keep_one_of_each(&mut operators, Ordering::Less);
        if let Some(group) = &group {
            operators = group.join(operators, task::num_examples(&dataset, &config), config.sampler.batch_size)?;
        }
        let mut inner = morphgl_execute::Executor::new(operators, &plan.schedule, settings)?;
        if let Some(clock) = clock {
            inner = inner.in_virtual_time(clock);
        }
        let (plan, drifted, paces) = (plan.clone(), false, PaceHistory::default());
        let (plans, changed, within, followers, split) = (None, None, None, None, None);
        Ok(Self {
            dataset,
            config,
            context,
            inner: Inner::Scheduled(Box::new(inner)),
            group,
            plan,
            problem,
            drifted,
            paces,
            plans,
            changed,
            within,
            followers,
            split,
        })
    }

    /// An executor of several trainers that share every step, from mini-batch `start` on. The plan is fixed.
    ///
    /// # Errors
    ///
    /// As [`Executor::new`].
    pub fn unified(job: Job, unified: &Unified, start: BatchId, settings: ExecutorSettings) -> Result<Self> {
        Self::of_group(job, unified, None, (start, false), settings)
    }

    /// [`Executor::unified`], of trainers whose layers are split by this plan; with `start`, whether it is to be restored there.
    pub(crate) fn of_group(
        mut job: Job,
        unified: &Unified,
        split: Option<&SplitPlan>,
        (start, resumed): (BatchId, bool),
        settings: ExecutorSettings,
    ) -> Result<Self> {
        for trainer in &unified.trainers {
            job.resize_caches(&trainer.plan.caches)?;
        }
        let split = split.map(|plan| -> Result<_> {
            let statistics = plan.apply_to_group(&mut job, unified, (start, resumed))?;
            Ok((statistics, plan.split.first_seconds))
        });
        let split = split.transpose()?;
        let (operators, followers) = Followers::new(&mut job, unified, start, settings)?;
        job.operators = operators;
        let executor = Self::timed(job, &unified.leading_plan(), None, settings, followers.clock())?;
        let inner = match executor.inner {
            Inner::Scheduled(leading) => Inner::Scheduled(Box::new(leading.in_order_of_training())),
            roles @ Inner::Roles(_) => roles,
        };
        Ok(Self { inner, followers: Some(followers), split, ..executor })
    }

    /// An executor of devices with roles. The plan is fixed.
    ///
    /// # Errors
    ///
    /// As [`Executor::new`].
    pub fn factored(mut job: Job, factored: &Factored, settings: ExecutorSettings) -> Result<Self> {
        let devices = FactoredExecutor::new(&mut job, factored, settings)?;
        let Job { dataset, config, context, .. } = job;
        Ok(Self {
            dataset,
            config,
            context,
            inner: Inner::Roles(Box::new(devices)),
            group: None,
            plan: factored.plan.clone(),
            problem: None,
            drifted: false,
            paces: PaceHistory::default(),
            plans: None,
            changed: None,
            within: None,
            followers: None,
            split: None,
        })
    }

    /// An executor of layer-split training, from mini-batch `start` on, and whether it is to be restored there. The plan is fixed.
    ///
    /// # Errors
    ///
    /// As [`Executor::new`], and a job that cannot be split.
    pub fn split(mut job: Job, plan: &SplitPlan, start: (BatchId, bool), settings: ExecutorSettings) -> Result<Self> {
        let statistics = plan.apply(&mut job, start)?;
        let executor = Self::new(job, plan.plan(), None, settings)?;
        Ok(Self { split: Some((statistics, plan.split.first_seconds)), ..executor })
    }

    /// What layer-split training has computed beside training; `None` where training is exact.
    pub fn split_statistics(&self) -> Option<&SplitStatistics> {
        self.split.as_ref().map(|(statistics, _)| statistics)
    }

    /// How stale gradients of devices with roles were; `None` where training is synchronous.
    pub(crate) fn stale_gradients(&self) -> Option<&StalenessCounts> {
        match &self.inner {
            Inner::Roles(devices) => devices.staleness.as_ref(),
            Inner::Scheduled(_) => None,
        }
    }

    /// Predicted seconds of epoch `epoch` by the plan in force, at the pace of its routes.
    pub fn predicted_seconds(&self, epoch: u32) -> f64 {
        match self.split {
            Some((_, first_seconds)) if epoch == 0 => first_seconds,
            _ => self.paces.seconds(&self.plan),
        }
    }

    /// Continues from a position of an executor of the same job.
    ///
    /// # Errors
    ///
    /// A position or a state of another job.
    pub fn restore(&mut self, position: Position, training: &TrainingState) -> Result<()> {
        let Position { plan, problem, drifted, paces, within } = position;
        self.inner.set_schedule(&plan.schedule)?;
        (self.plan, self.problem, self.drifted) = (plan, problem, drifted);
        (self.paces, self.plans, self.within) = (paces, None, within);
        self.set_training(training)
    }

    /// Makes it the state of all trainers.
    fn set_training(&mut self, training: &TrainingState) -> Result<()> {
        if let Inner::Roles(devices) = &mut self.inner {
            return devices.restore(training);
        }
        training.restore(self.inner.training_mut()?)?;
        self.followers.as_mut().map_or(Ok(()), |followers| followers.restore(training))
    }

    /// Reduces the learning rate of all trainers, between epochs, by the schedule's factor.
    ///
    /// # Errors
    ///
    /// An earlier failure lost the operator.
    pub(crate) fn reduce_learning_rate(&mut self) -> Result<()> {
        let mut training = TrainingState::of(self.inner.training_mut()?)?;
        // An operator that is simulated has no state, and learns nothing.
        if count_reduction(&mut training.optimizer) { self.set_training(&training) } else { Ok(()) }
    }

    /// The position between two calls of [`Executor::epoch`].
    pub fn position(&self) -> Position {
        let Self { plan, problem, drifted, paces, within, .. } = self;
        let (plan, problem, paces, within) = (plan.clone(), problem.clone(), paces.clone(), within.clone());
        Position { plan, problem, drifted: *drifted, paces, within }
    }

    /// Whether an epoch was interrupted: the next call of [`Executor::epoch`] continues it.
    pub fn is_within(&self) -> bool {
        self.within.is_some()
    }

    /// Trains one epoch, or a part of it until `stop` is requested. After a stop, the next call trains the rest; the report is of
    /// all mini-batches of the epoch so far.
    ///
    /// # Errors
    ///
    /// A failing operator, with its key and mini-batch.
    pub fn epoch(&mut self, epoch: u32, stop: &Stop, observe: &mut dyn FnMut(&Event<'_>)) -> Result<EpochReport> {
        self.watched_epoch(epoch, stop, &mut Observer(observe))
    }

    /// [`Executor::epoch`] with checkpoints.
    pub(crate) fn watched_epoch(&mut self, epoch: u32, stop: &Stop, watcher: &mut dyn Watcher) -> Result<EpochReport> {
        self.plan_epoch()?;
        let is_whole = self.within.is_none();
        let mut within = self.within.take().unwrap_or_default();
        loop {
            let (report, replanned) = self.part(epoch, &mut within, stop, watcher)?;
            let left = report.remaining.clone();
            let Some(mut replanned) = replanned.filter(|_| !left.is_empty()) else {
                let whole = append(within.earlier.clone(), report.clone());
                let stopped = !left.is_empty();
                let score = within.score;
                if stopped {
                    within.part = EpochReport { remaining: Vec::new(), stopped: false, ..report };
                    self.within = Some(within);
                } else if is_whole && within.earlier.is_none() && self.problem.is_some() {
                    self.paces.record(&self.plan, whole.seconds);
                }
                return Ok(EpochReport { stopped, score, ..whole });
            };
            // After a cut, what is left has a plan of its own.
            let PartialEpoch { earlier, score, .. } = within;
            let whole = EpochReport { score, ..append(earlier, report) };
            self.plan_for(left.len())?;
            within =
                PartialEpoch { batches: Some(left), earlier: Some(whole.clone()), part: EpochReport::default(), score };
            replanned.plan = self.plan.clone();
            watcher.observe(&Event::Replanned(&replanned));
            if stop.is_requested() {
                self.within = Some(within);
                return Ok(EpochReport { stopped: true, ..whole });
            }
        }
    }

    /// Trains by the plan in force, until a stop or a better plan.
    fn part(
        &mut self,
        epoch: u32,
        within: &mut PartialEpoch,
        stop: &Stop,
        watcher: &mut dyn Watcher,
    ) -> Result<(EpochReport, Option<Replanned>)> {
        let batches = within.batches.clone().unwrap_or_else(|| (0..self.inner.num_batches()).collect());
        let so_far = std::mem::take(&mut within.part);
        let problem = self.problem.clone();
        let mut watch = problem.map(|p| Replanner::new(p, &self.plan.schedule, Drift::default()));
        let mut replanned = None;
        let offset = within.earlier.as_ref().map_or(0.0, |r| r.seconds);
        let trained = so_far.batches;
        let before = offset + so_far.seconds;
        let (inner, followers) = (&mut self.inner, &mut self.followers);
        let mut observe = |event: &Event<'_>, others: Option<&Others<'_>>| {
            others.into_iter().flat_map(|others| others.events()).for_each(|event| watcher.observe(&event));
            match *event {
                Event::Ended(activity) => {
                    if let Some(watch) = &mut watch {
                        watch.observe(activity.share, activity.phase, activity.span.seconds());
                    }
                    watcher.observe(&Event::Ended(later(activity, offset)));
                }
                Event::Trained(batch) => {
                    within.score += batch.score;
                    watcher.observe(event);
                    if let Some(watch) = watch.as_mut().filter(|w| replanned.is_none() && w.is_due()) {
                        replanned = watch.judge(batch.left);
                    }
                    if replanned.is_none() && watcher.is_due() {
                        return Control::Export;
                    }
                }
                Event::Exported(training, part) => {
                    let problem = watch.as_ref().map(|watch| watch.problem().clone());
                    let position = Position {
                        plan: self.plan.clone(),
                        drifted: self.drifted || problem != self.problem,
                        problem,
                        paces: self.paces.clone(),
                        within: Some(PartialEpoch { part: part.clone(), ..within.clone() }),
                    };
                    watcher.keep(&position, training);
                }
                _ => watcher.observe(event),
            }
            if replanned.is_some() { Control::Cut } else { Control::Continue }
        };
        let report = match (inner, followers) {
            (Inner::Roles(devices), _) => devices.train_on(epoch, so_far, stop, &mut observe)?,
            (Inner::Scheduled(inner), None) => {
                inner.train_on(epoch, &batches, so_far, stop, &mut |event| observe(event, None))?
            }
            // All trainers of a group train mini-batches in their order.
            (Inner::Scheduled(inner), Some(followers)) => {
                let lead = |stop: &Stop, others: &Others<'_>| {
                    inner.train_on(epoch, &batches, so_far, stop, &mut |event| observe(event, Some(others)))
                };
                let led = followers.train((epoch, &batches, trained), before, stop, lead);
                followers.others(before).events().for_each(|event| watcher.observe(&event));
                led?
            }
        };
        if let Some(watch) = watch {
            // Durations that brought no better plan for this epoch are used for the next one's.
            self.drifted |= self.problem.as_ref() != Some(watch.problem());
            self.problem = Some(watch.problem().clone());
        }
        Ok((report, replanned))
    }

    /// The plan of the next epoch: a new one where durations changed in the last, one of other routes where the last two epochs took
    /// longer than that one promises ([`PaceHistory`]), the one in force for an interrupted epoch.
    ///
    /// # Errors
    ///
    /// Nothing fits the limits.
    pub fn plan_epoch(&mut self) -> Result<&Plan> {
        let num_batches = self.inner.num_batches() as usize;
        if self.within.is_none() && std::mem::take(&mut self.drifted) {
            self.plan_for(num_batches)?;
        } else if self.within.is_none() && self.paces.of(&self.plan).is_some() {
            self.plan_better(num_batches)?;
        }
        Ok(&self.plan)
    }

    /// The plan that the seconds of whole epochs have led to, and the reason, if it has not been taken before.
    pub(crate) fn take_changed(&mut self) -> Option<Replanned> {
        self.changed.take()
    }

    /// Plans `num_batches` mini-batches with the durations measured so far.
    fn plan_for(&mut self, num_batches: usize) -> Result<()> {
        let Some(problem) = &self.problem else { return Ok(()) };
        let problem = problem.clone().with_batches(num_batches);
        let plans = morphgl_plan::plan(&problem)?;
        self.plan = self.paces.best(&plans).clone();
        (self.problem, self.plans) = (Some(problem), Some(plans));
        Ok(self.inner.set_schedule(&self.plan.schedule)?)
    }

    /// Changes to a plan of other routes, if whole epochs have shown it to be better.
    fn plan_better(&mut self, num_batches: usize) -> Result<()> {
        let Some(problem) = &self.problem else { return Ok(()) };
        let plans = match self.plans.take() {
            Some(plans) => plans,
            None => morphgl_plan::plan(&problem.clone().with_batches(num_batches))?,
        };
        let better = self.paces.better(&plans, &self.plan).cloned();
        self.plans = Some(plans);
        let Some(plan) = better else { return Ok(()) };
        self.changed = Some(Replanned { plan: plan.clone(), changed: Vec::new(), pace: self.paces.of(&self.plan) });
        self.plan = plan;
        Ok(self.inner.set_schedule(&self.plan.schedule)?)
    }

    /// Transport of the group's all-reduces, and why it was chosen; `None` for a single trainer.
    pub fn exchange(&self) -> Option<&str> {
        match &self.inner {
            Inner::Roles(devices) => Some(&devices.exchange),
            Inner::Scheduled(_) => self.followers.as_ref().map(Followers::exchange),
        }
    }

    /// Threads of the job.
    pub fn threads(&self) -> usize {
        self.config.num_threads(self.context.registry())
    }

    /// The training operator, between epochs.
    ///
    /// # Errors
    ///
    /// An earlier failure lost the operator.
    pub fn training_mut(&mut self) -> Result<&mut dyn Training> {
        Ok(self.inner.training_mut()?)
    }

    /// The training operator, between epochs, with all of the job's threads.
    ///
    /// # Errors
    ///
    /// Threads that cannot be started, or an operator that panics.
    pub fn with_all_threads<R>(&mut self, work: impl FnOnce(&mut dyn Training) -> Result<R>) -> Result<R> {
        let threads = self.threads();
        let key = self.inner.training_key().clone();
        let training = self.training_mut()?;
        let done = catch_unwind(AssertUnwindSafe(|| {
            training.set_threads(threads)?;
            work(training)
        }));
        done.unwrap_or_else(|_| bail!("{key}: panicked, see above; this is a fault of the operator"))
    }

    /// Scores sets of nodes on mini-batches sampled as in training, with the plan's workers, at most `max_workers`. The trainers of a
    /// group score a part of the mini-batches each, and all have the sums.
    ///
    /// # Errors
    ///
    /// A failing operator, with its key and mini-batch.
    pub fn sampled(&mut self, sets: &[&[u32]], max_workers: Option<usize>) -> Result<Vec<Score>> {
        self.with_sampled(max_workers, |sampled| sampled.scores(sets))
    }

    /// Evaluates validation and test examples, pairs or rows of a task, on sampled mini-batches as [`Executor::sampled`] does: sums of
    /// losses, the value of `score`, and the confusion matrix of classes.
    pub(crate) fn sampled_outputs(
        &mut self,
        score: ScoreKind,
        max_workers: Option<usize>,
    ) -> Result<(Vec<Evaluated>, Option<Confusion>)> {
        self.with_sampled(max_workers, |sampled| sampled.kept(score))
    }

    fn with_sampled<R>(
        &mut self,
        max_workers: Option<usize>,
        work: impl FnOnce(&mut Sampled<'_>) -> Result<R>,
    ) -> Result<R> {
        let share = &self.plan.schedule.shares[0];
        let (workers, threads) = (max_workers.unwrap_or(usize::MAX).min(share.workers), share.threads_per_worker);
        let (dataset, config, context, group) = (&self.dataset, &self.config, &self.context, self.group.as_deref());
        self.inner.with_route(|route, transferring, training| {
            let mut sampled = Sampled {
                builder: OperatorBuilder { dataset, config, context },
                purpose: Purpose::EvaluationBesideTraining,
                route,
                workers,
                threads,
                memory: None,
                transferring,
                training,
                group,
            };
            work(&mut sampled)
        })?
    }
}
