//! Epochs of training.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use morphgl_plan::{Order, Replay, Schedule, simulate};
use morphgl_registry::{Key, Operators, Route, Training, Transferring, VirtualClock};

use crate::epoch_loop::EpochLoop;
use crate::matching::routes_of;
use crate::operators::ExecutorOperators;
use crate::position::Rest;
use crate::{Control, EpochReport, Error, Event, Result, Settings, Stop};

/// Runs epochs by a schedule, in the order in which the schedule's own simulation begins its phases.
pub struct Executor {
    operators: ExecutorOperators,
    num_batches: u32,
    settings: Settings,
    schedule: Schedule,
    order: Order,
    /// The clock of virtual time; `None` in real time.
    clock: Option<VirtualClock>,
    /// Whether the mini-batches of an epoch are trained in their order by any schedule.
    in_order: bool,
}

impl Executor {
    /// Takes the training operator that the schedule names and the routes to it, and makes the schedule's workers. Routes that
    /// the schedule does not use are kept for later ones.
    ///
    /// # Errors
    ///
    /// The operators of a share are not among those given, two routes have the same keys or different numbers of mini-batches,
    /// the schedule has more mini-batches than an epoch, or a worker cannot be made.
    pub fn new(operators: Operators, schedule: &Schedule, settings: Settings) -> Result<Self> {
        let operators = ExecutorOperators::new(operators, schedule)?;
        let num_batches = operators.num_batches()?;
        let mut executor = Self {
            operators,
            num_batches,
            settings,
            schedule: schedule.clone(),
            order: Order::default(),
            clock: None,
            in_order: false,
        };
        executor.set_schedule(schedule)?;
        Ok(executor)
    }

    /// The same executor in virtual time, which `clock` shows to operators: a phase lasts for as long as its operator says, whatever
    /// it really takes, and nothing sleeps. So a phase begins at the instant at which the schedule and its resources let it, and
    /// every time of events and reports is virtual.
    ///
    /// It is a discrete-event simulation whose events are the ends of phases: all operators at work are waited for, and the phase
    /// that ends first is handed on. With durations that are those of the schedule, an epoch takes as long as
    /// [`morphgl_plan::simulate`] says, but for rounding to nanoseconds.
    pub fn in_virtual_time(self, clock: VirtualClock) -> Self {
        Self { clock: Some(clock), ..self }
    }

    /// The same executor, which trains the mini-batches of an epoch in the order in which they are given, by whatever routes they
    /// come ([`Replay::in_order_of_training`]). All trainers of a group do.
    pub fn in_order_of_training(self) -> Self {
        Self { in_order: true, ..self }
    }

    /// Changes the schedule between epochs, or between parts of one. Workers that fit the new schedule are kept.
    ///
    /// # Errors
    ///
    /// As [`Executor::new`]; the schedule is then the one before.
    pub fn set_schedule(&mut self, schedule: &Schedule) -> Result<()> {
        let shares = routes_of(schedule, &self.operators.routes(), self.training_key(), self.num_batches)?;
        self.operators.make_workers(schedule, shares)?;
        (self.schedule, self.order) = (schedule.clone(), simulate(schedule).order);
        Ok(())
    }

    /// Trains on mini-batches of an epoch, one step each: position p of the schedule's order is `batches[p]`.
    /// There are as many as the schedule is for; of a whole epoch, `0..executor.num_batches()`.
    ///
    /// Every worker, every share's transferring and training run in threads of their own; `observe` is called on the calling
    /// thread, after every phase of every mini-batch, before anything else begins.
    /// The order of training is the schedule's, whatever the durations are.
    ///
    /// A stop ends it after the steps that lanes are working on; other mini-batches that have begun are dropped. A
    /// [`Control::Cut`] lets all mini-batches that have begun be trained. Either way the report lists the `remaining` ones, for
    /// the schedule of another call.
    ///
    /// # Errors
    ///
    /// An operator failed, panicked or hung: the error says which, at which mini-batch. Nothing has begun since, the other
    /// operators have finished their steps, and all threads have ended but those that hang.
    /// After a panic or a hang the operator is lost, and every further call is an error.
    /// Also an error: another number of mini-batches than the schedule's, one that does not exist, one listed twice.
    pub fn train(
        &mut self,
        epoch: u32,
        batches: &[u32],
        stop: &Stop,
        observe: &mut dyn FnMut(&Event<'_>) -> Control,
    ) -> Result<EpochReport> {
        self.train_on(epoch, batches, EpochReport::default(), stop, observe)
    }

    /// Continues [`Executor::train`] after the mini-batches of the report `so_far`, one that came with [`Event::Exported`] or
    /// was returned after a stop: the first `so_far.batches` ones of the schedule's order of training. The others are trained
    /// in the order in which they would have been, and the report returned is of all.
    ///
    /// # Errors
    ///
    /// As [`Executor::train`]; also a report that is not of this schedule.
    pub fn train_on(
        &mut self,
        epoch: u32,
        batches: &[u32],
        so_far: EpochReport,
        stop: &Stop,
        observe: &mut dyn FnMut(&Event<'_>) -> Control,
    ) -> Result<EpochReport> {
        self.check(batches)?;
        let rest = match so_far.batches {
            0 => None,
            trained => Some(self.rest(trained, epoch, &so_far)?),
        };
        self.run((epoch, batches), rest, so_far, stop, observe)
    }

    /// As [`Executor::train`] without the first `trained` mini-batches of the schedule's order of training; the report is of the others.
    ///
    /// # Errors
    ///
    /// As [`Executor::train`]; also more mini-batches than the schedule has.
    pub fn train_after(
        &mut self,
        epoch: u32,
        batches: &[u32],
        trained: usize,
        stop: &Stop,
        observe: &mut dyn FnMut(&Event<'_>) -> Control,
    ) -> Result<EpochReport> {
        self.check(batches)?;
        if trained > batches.len() {
            return Err(Error::setting(
                None,
                "more mini-batches are trained than the schedule has; begin the epoch again",
            ));
        }
        let rest = (trained > 0).then(|| Rest::after(&self.schedule, &self.order, trained, self.in_order));
        self.run((epoch, batches), rest, EpochReport::default(), stop, observe)
    }

    fn run(
        &mut self,
        (epoch, batches): (u32, &[u32]),
        rest: Option<Rest>,
        so_far: EpochReport,
        stop: &Stop,
        observe: &mut dyn FnMut(&Event<'_>) -> Control,
    ) -> Result<EpochReport> {
        self.operators.set_training_threads(self.schedule.training_threads.max(1))?;
        let Self { operators, settings, schedule, order, clock, in_order, .. } = self;
        let left: Vec<u32>;
        let (schedule, order, batches) = match &rest {
            Some(rest) => {
                left = rest.positions.iter().map(|&position| batches[position as usize]).collect();
                (&rest.schedule, &rest.order, &left[..])
            }
            None => (&*schedule, &*order, batches),
        };
        let replay = Replay::new(schedule, order);
        let replay = if *in_order { replay.in_order_of_training() } else { replay };
        let mut epoch_loop =
            EpochLoop::new(operators, (schedule, replay), (epoch, batches), so_far, *settings, clock.clone());
        let panicked = catch_unwind(AssertUnwindSafe(|| epoch_loop.run(stop, observe))).err();
        if panicked.is_some() {
            epoch_loop.drain();
        }
        let report = epoch_loop.close(operators);
        match panicked {
            // The observer's own panic: operators' panics are caught in their lanes.
            Some(payload) => resume_unwind(payload),
            None => report,
        }
    }

    /// The part of the schedule after the mini-batches of `so_far`.
    fn rest(&self, trained: usize, epoch: u32, so_far: &EpochReport) -> Result<Rest> {
        let refused = |text: &str| Err(Error::setting(None, text));
        let resources = self.schedule.resources.len();
        if trained > self.schedule.num_batches() || so_far.epoch != epoch || so_far.resources.len() != resources {
            return refused("the position within the epoch is one of another schedule; begin the epoch again");
        }
        let rest = Rest::after(&self.schedule, &self.order, trained, self.in_order);
        let left = |share: usize| rest.schedule.shares[share].batches;
        let trained = self.schedule.shares.iter().enumerate().map(|(i, share)| share.batches - left(i));
        if !trained.eq(so_far.shares.iter().map(|share| share.batches)) {
            return refused("the position within the epoch is one of another schedule; begin the epoch again");
        }
        Ok(rest)
    }

    /// Whether these mini-batches can be trained by the schedule.
    fn check(&self, batches: &[u32]) -> Result<()> {
        self.operators.check()?;
        let refused = |text: String| Err(Error::setting(None, text));
        let (given, planned) = (batches.len(), self.schedule.num_batches());
        if given != planned {
            return refused(format!(
                "{given} mini-batches are to be trained, the schedule is for {planned}; plan again"
            ));
        }
        let mut sorted = batches.to_vec();
        sorted.sort_unstable();
        if let Some(last) = sorted.last().filter(|&&last| last >= self.num_batches) {
            let have = self.num_batches;
            return refused(format!("mini-batch {last} is asked for, an epoch has {have}; ask for those from 0 on"));
        }
        match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => refused(format!("mini-batch {} is asked for twice; ask for it once", pair[0])),
            None => Ok(()),
        }
    }

    /// The operators, between epochs: the training operator that was taken, and the routes to it.
    ///
    /// # Errors
    ///
    /// An operator panicked or hung earlier.
    pub fn into_operators(self) -> Result<Operators> {
        self.operators.check()?;
        Ok(self.operators.into_operators())
    }

    /// Mini-batches of one epoch.
    pub fn num_batches(&self) -> u32 {
        self.num_batches
    }

    /// The schedule in use.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Key of the training operator.
    pub fn training_key(&self) -> &Key {
        self.operators.training_key()
    }

    /// The training operator, between epochs.
    ///
    /// # Errors
    ///
    /// An operator panicked or hung earlier.
    pub fn training_mut(&mut self) -> Result<&mut dyn Training> {
        self.operators.training_mut()
    }

    /// The route of a share of the schedule, its transferring operator and the training operator, between epochs.
    ///
    /// # Errors
    ///
    /// An operator panicked or hung earlier.
    ///
    /// # Panics
    ///
    /// When there is no such share.
    pub fn share_mut(&mut self, share: usize) -> Result<(&Route, &mut dyn Transferring, &mut dyn Training)> {
        self.operators.share_mut(share)
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("Executor");
        f.field("routes", &self.operators.routes()).field("schedule", &self.schedule);
        f.field("settings", &self.settings).finish_non_exhaustive()
    }
}
