//! Epochs of devices with roles: some sample shares of mini-batches, the others gather and train them.

mod epoch;
mod sums;

use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use morphgl_plan::{RolesReplay, RolesSchedule};
use morphgl_registry::{
    BatchId, Batching, BatchingWorker, Error as OperatorError, Handle, Key, MiniBatch, Place, Route, Training,
    TrainingOperator, Transferring, VirtualClock,
};

use self::epoch::Epoch;
use crate::error::guarded;
use crate::lane::Operator;
use crate::operators::count;
use crate::{Control, EpochReport, Error, Event, Result, Stop};

/// The positions of a trainer's seeds in a mini-batch: by the mini-batch, the number of its trainers, and the trainer's.
pub type ShareOf = Arc<dyn Fn(BatchId, usize, usize) -> Range<usize> + Send + Sync>;

/// The operators of one device: of a device that samples, one that trains, or one that does both in turn.
#[derive(Debug)]
pub struct RolesDevice {
    /// The device.
    pub place: Place,
    /// Its name among the resources of reports.
    pub resource: String,
    /// What it samples with; `None` for one that never samples.
    pub batching: Option<(Key, Arc<dyn Batching>)>,
    /// What moves shares to it and gathers their features, by the route that they come.
    pub transferring: Vec<(Route, Box<dyn Transferring>)>,
    /// What it trains with, which takes its steps with those of the other devices; `None` for one that never trains.
    pub training: Option<TrainingOperator>,
    /// In virtual time, the clock that this training operator reads.
    pub clock: VirtualClock,
    /// In virtual time, the steps of the epoch that have ended when this training operator begins with a share; it reads them where
    /// gradients may be stale.
    pub ended: Arc<AtomicU64>,
}

/// Moves shares to a device from wherever they were sampled.
#[derive(Debug)]
struct FromAnywhere(Vec<(Route, Box<dyn Transferring>)>);

/// The operators that gather at a device: its lane has them during an epoch, and the executor between epochs.
#[derive(Debug, Clone)]
struct SharedGather(Arc<Mutex<FromAnywhere>>);

impl Transferring for SharedGather {
    fn transfer(&mut self, batch: MiniBatch) -> morphgl_registry::Result<Handle<MiniBatch>> {
        let place = batch.place();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match all.0.iter_mut().find(|(route, _)| route.batched_at == place) {
            Some((_, operator)) => operator.transfer(batch),
            None => Err(OperatorError::setting(batch.id(), format!("no operator here takes mini-batches of {place}"))),
        }
    }
}

/// A device between epochs. An operator is `None` while it is lent to a lane, and after it was lost.
struct State {
    place: Place,
    resource: String,
    sampler: Option<(Key, Option<Box<dyn BatchingWorker>>)>,
    gather: Option<(Key, SharedGather)>,
    /// Operators that move shares to it, by the place where these were sampled.
    moved_by: Vec<(Place, Key)>,
    trainer: Option<(Key, Option<Box<dyn Training>>)>,
    clock: VirtualClock,
    ended: Arc<AtomicU64>,
}

/// Runs epochs of devices with roles by a schedule ([`RolesReplay`]).
///
/// The first device leads: it trains every mini-batch, events of its phases are [`Event::Ended`], and those of device `d` are
/// [`Event::Followed`] with that number. All others that train some mini-batch take part in every step, in those of other trainers
/// without a seed; so all have the same parameters after any step, and a change of roles moves none.
///
/// Where gradients may be stale ([`RolesSchedule::staleness`]), training operators hand over their gradients and go on
/// (`morphgl_group::join_stale`). A mini-batch has then been trained when all of its gradients are there, an export waits for the steps
/// under way, and the epoch ends when all trainers have taken all steps.
pub struct RolesExecutor {
    devices: Vec<State>,
    schedule: RolesSchedule,
    num_batches: u32,
    limit: Option<Duration>,
    share_of: ShareOf,
    /// Ends the exchange of gradients for trainers that wait for one that has failed.
    abort: Box<dyn Fn(&str) + Send>,
    /// In virtual time, the duration of an all-reduce.
    all_reduce: Option<Duration>,
    /// The key of an operator that panicked or hung.
    lost: Option<Key>,
}

impl RolesExecutor {
    /// Takes the operators of the devices in the order of the schedule: the first ones train. `share_of` divides mini-batches among
    /// trainers, and `abort` lets training operators that wait for others fail.
    ///
    /// # Errors
    ///
    /// Another number of devices or of mini-batches than the schedule's, a device without the operators of its roles, or a worker
    /// that cannot be made.
    pub fn new(
        devices: Vec<RolesDevice>,
        schedule: &RolesSchedule,
        share_of: ShareOf,
        abort: Box<dyn Fn(&str) + Send>,
        limit: Option<Duration>,
    ) -> Result<Self> {
        let refused = |text: String| Err(Error::setting(None, text));
        schedule.check().map_err(|e| Error::setting(None, e.to_string()))?;
        if !schedule.is_possible() {
            return refused(
                "all devices train more mini-batches in a row than the queue holds; plan again".to_string(),
            );
        }
        if devices.len() != schedule.devices {
            return refused(format!("{} devices, and roles of {}; plan again", devices.len(), schedule.devices));
        }
        let (stay, train) = (schedule.min_trainers(), schedule.max_trainers());
        let (mut states, mut num_batches) = (Vec::new(), None);
        for (number, device) in devices.into_iter().enumerate() {
            let RolesDevice { place, resource, batching, transferring, training, clock, ended } = device;
            let trains = !transferring.is_empty() && training.is_some();
            if number < train && !trains || number >= stay && batching.is_none() {
                return refused(format!("{place}: operators of one of its roles are missing; plan again"));
            }
            let sampler = match batching.filter(|_| number >= stay) {
                None => None,
                Some((key, batching)) => {
                    let n = count(&key, batching.as_ref())?;
                    if *num_batches.get_or_insert(n) != n || n as usize != schedule.num_batches {
                        let planned = schedule.num_batches;
                        return refused(format!("{key}: {n} mini-batches per epoch, roles of {planned}; plan again"));
                    }
                    let worker = guarded(Some(&key), None, || batching.worker(1))?;
                    Some((key, Some(worker)))
                }
            };
            let of = |(route, _): &(Route, _)| (route.batched_at.clone(), route.transferring.clone());
            let moved_by: Vec<(Place, Key)> = transferring.iter().map(of).collect();
            let gather = transferring.last().filter(|_| number < train).map(|(route, _)| route.transferring.clone());
            let gather = gather.map(|key| (key, SharedGather(Arc::new(Mutex::new(FromAnywhere(transferring))))));
            let trainer = training.filter(|_| number < train).map(|t| (t.key, Some(t.operator)));
            states.push(State { place, resource, sampler, gather, moved_by, trainer, clock, ended });
        }
        let Some(num_batches) = num_batches else { return refused("no device samples; plan again".to_string()) };
        let (schedule, lost, all_reduce) = (schedule.clone(), None, None);
        Ok(Self { devices: states, schedule, num_batches, limit, share_of, abort, all_reduce, lost })
    }

    /// The same executor in virtual time, as [`Executor::in_virtual_time`](crate::Executor::in_virtual_time). A step of several
    /// trainers takes so long for the all-reduce, after the last of them has trained its share.
    pub fn in_virtual_time(self, all_reduce: Duration) -> Self {
        Self { all_reduce: Some(all_reduce), ..self }
    }

    /// Trains the mini-batches of an epoch that follow those of the report `so_far`, in their order; the report returned is of all.
    ///
    /// Every sampler, gather and trainer runs in a thread of its own; `observe` is called on the calling thread. A stop, and a
    /// [`Control::Cut`], end it after the step that a trainer has begun.
    ///
    /// # Errors
    ///
    /// As [`Executor::train`](crate::Executor::train).
    pub fn train_on(
        &mut self,
        epoch: u32,
        so_far: EpochReport,
        stop: &Stop,
        observe: &mut dyn FnMut(&Event<'_>) -> Control,
    ) -> Result<EpochReport> {
        self.check()?;
        if so_far.batches > self.schedule.num_batches || so_far.batches > 0 && so_far.epoch != epoch {
            let text = "the position within the epoch is one of another schedule; begin the epoch again";
            return Err(Error::setting(None, text));
        }
        let replay = RolesReplay::new(&self.schedule, so_far.batches);
        let mut run = Epoch::new(self, epoch, replay, so_far);
        let panicked = catch_unwind(AssertUnwindSafe(|| run.run(stop, observe))).err();
        if panicked.is_some() {
            run.drain();
        }
        let report = run.close();
        match panicked {
            // The observer's own panic: operators' panics are caught in their lanes.
            Some(payload) => resume_unwind(payload),
            None => report,
        }
    }

    fn check(&self) -> Result<()> {
        let lost = |key| Err(Error::setting(Some(key), "lost when it failed earlier; make a new executor"));
        self.lost.as_ref().map_or(Ok(()), lost)
    }

    /// Mini-batches of one epoch.
    pub fn num_batches(&self) -> u32 {
        self.num_batches
    }

    /// The schedule.
    pub fn schedule(&self) -> &RolesSchedule {
        &self.schedule
    }

    /// The places of the devices.
    pub fn places(&self) -> Vec<Place> {
        self.devices.iter().map(|device| device.place.clone()).collect()
    }

    /// Key of the first device's training operator.
    pub fn training_key(&self) -> &Key {
        &self.devices[0].trainer.as_ref().expect("the first device trains").0
    }

    /// The training operators of the devices that train, between epochs; the leading one first.
    ///
    /// # Errors
    ///
    /// An operator panicked or hung earlier.
    pub fn trainers_mut(&mut self) -> Result<Vec<&mut dyn Training>> {
        self.check()?;
        let mut trainers: Vec<&mut dyn Training> = Vec::new();
        for (_, training) in self.devices.iter_mut().filter_map(|device| device.trainer.as_mut()) {
            trainers.push(training.as_mut().expect("nothing is lost").as_mut());
        }
        Ok(trainers)
    }

    /// Works with the route from the last device to the first one, its transferring operator and the first device's training operator,
    /// between epochs.
    ///
    /// # Errors
    ///
    /// An operator panicked or hung earlier.
    pub fn with_route<R>(
        &mut self,
        work: impl FnOnce(&Route, &mut dyn Transferring, &mut dyn Training) -> R,
    ) -> Result<R> {
        self.check()?;
        let last = self.devices.last().expect("two devices at least").place.clone();
        let State { gather, trainer, .. } = &mut self.devices[0];
        let (Some((_, gather)), Some((_, Some(training)))) = (gather, trainer) else {
            unreachable!("the first device trains, and nothing is lost")
        };
        let mut all = gather.0.lock().unwrap_or_else(PoisonError::into_inner);
        let route = all.0.iter_mut().find(|(route, _)| route.batched_at == last);
        let (route, transferring) = route.expect("shares of the last device are trained");
        Ok(work(route, transferring.as_mut(), training.as_mut()))
    }

    /// The operators of all lanes, with their devices.
    fn lend(&mut self) -> Vec<(Option<usize>, Key, Operator)> {
        let mut lent = Vec::new();
        for (device, State { sampler, gather, trainer, .. }) in self.devices.iter_mut().enumerate() {
            if let Some((key, worker)) = sampler {
                let worker = worker.take().expect("nothing is lost");
                lent.push((Some(device), key.clone(), Operator::Batching(worker)));
            }
            if let Some((key, gather)) = gather {
                lent.push((Some(device), key.clone(), Operator::Transferring(Box::new(gather.clone()))));
            }
            if let Some((key, training)) = trainer {
                let training = training.take().expect("nothing is lost");
                lent.push((Some(device), key.clone(), Operator::Training(training)));
            }
        }
        lent
    }

    /// Lets all trainers take the steps that they have left behind.
    fn settle(&mut self) -> Result<()> {
        for State { trainer, .. } in &mut self.devices {
            let Some((key, Some(training))) = trainer else { continue };
            let settled = guarded(Some(key), None, || training.settle());
            if let Err(e) = settled {
                if e.is_panic() {
                    self.lost.get_or_insert_with(|| key.clone());
                }
                return Err(e);
            }
        }
        Ok(())
    }

    fn take_back(&mut self, lanes: Vec<(Option<usize>, std::result::Result<Operator, Key>)>) {
        for (device, operator) in lanes {
            let State { sampler, trainer, .. } = &mut self.devices[device.expect("every lane is of a device")];
            match operator {
                Ok(Operator::Batching(worker)) => sampler.as_mut().expect("it was lent").1 = Some(worker),
                Ok(Operator::Training(training)) => trainer.as_mut().expect("it was lent").1 = Some(training),
                Ok(Operator::Transferring(_)) => {}
                Err(key) => drop(self.lost.get_or_insert(key)),
            }
        }
    }
}

impl fmt::Debug for RolesExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RolesExecutor")
            .field("places", &self.places())
            .field("schedule", &self.schedule)
            .finish_non_exhaustive()
    }
}
