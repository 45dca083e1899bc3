//! The factored mode: of the devices of a backend some sample, the others gather and train (GNNLab, the survey §VI-B).

mod plan;

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use morphgl_execute::{
    Control, EpochReport, Event, RolesDevice, RolesExecutor, Settings as ExecutorSettings, Stop, TrainingState,
};
use morphgl_group::{
    AllReduceHook, BUCKET_BYTES, GroupMember, SeedShare, StaleMember, StalenessCounts, VirtualSteps, Weights, join,
    join_stale,
};
use morphgl_plan::{RolesSchedule, Time};
use morphgl_registry::{Key, Operators, Place, RouteOperators, VirtualClock};

use crate::Job;
use crate::engine::Ends;
use crate::task;
use crate::unified::{LIMIT, Message, Others};

pub use plan::{Factored, FactoredProfile, RoleCaches};
pub(crate) use plan::{RolesInFlight, candidate};

/// Devices with roles, and what tells of their all-reduces.
#[derive(Debug)]
pub(crate) struct FactoredExecutor {
    pub(crate) roles: RolesExecutor,
    /// What adds up their gradients, for the user.
    pub(crate) exchange: String,
    messages: Receiver<Message>,
    /// In virtual time, the instant that stands for its beginning.
    origin: Option<Instant>,
    /// Where gradients may be stale, how many were how stale.
    pub(crate) staleness: Option<StalenessCounts>,
}

impl FactoredExecutor {
    /// Divides a job's operators among the devices.
    ///
    /// # Errors
    ///
    /// A plan of operators that the job does not have.
    pub(crate) fn new(job: &mut Job, factored: &Factored, settings: ExecutorSettings) -> Result<Self> {
        let schedule = factored.schedule();
        let train = schedule.max_trainers();
        let limit = settings.limit.unwrap_or(LIMIT);
        let ends: Vec<(Key, Place)> =
            factored.places[..train].iter().map(|place| (factored.keys.training.clone(), place.clone())).collect();
        let gradients = job.operators.trainers.first_mut().map(|trainer| trainer.operator.gradients()).transpose()?;
        let num_values = gradients.iter().flat_map(|g| &g.tensors).map(|tensor| tensor.values.len()).sum();
        let Ends { exchanges, abort_handles, how } = Ends::new(factored.exchange, &ends, num_values, limit)?;
        let (num_seeds, batch_size) = (task::num_examples(&job.dataset, &job.config), job.config.sampler.batch_size);
        let is_virtual = job.context.machine().is_some();
        let (all_reduce, origin) = (Duration::from_secs_f64(factored.problem.all_reduce), Instant::now());
        let how = if is_virtual { format!("simulated, {} per step", Time(factored.problem.all_reduce)) } else { how };
        let (sender, messages) = mpsc::channel();
        let staleness = (schedule.staleness > 0).then(|| StalenessCounts::new(schedule.staleness));
        let mut exchanges = exchanges.into_iter();
        let mut devices = Vec::new();
        for mut device in divide(std::mem::take(&mut job.operators), factored, &schedule)? {
            if let (Some(exchange), Some(trainer)) = (exchanges.next(), device.training.take()) {
                let (sender, rank, of) = (sender.clone(), exchange.rank(), schedule.clone());
                let observe = AllReduceHook(Arc::new(move |id, from, to| {
                    let trainers = of.trainers(id.index as usize);
                    // Devices without a share take part in the exchange, and have nothing to add.
                    if rank < trainers && (trainers > 1 || !is_virtual) {
                        // Nobody listens between epochs, when nothing is added.
                        let _ = sender.send(Message::Added(rank, id, from, to));
                    }
                }));
                if let Some(counts) = staleness.clone() {
                    let ended = is_virtual.then(|| Arc::clone(&device.ended));
                    let member = StaleMember { exchange, counts, observe: Some(observe), ended };
                    device.training = Some(join_stale(trainer, member));
                    devices.push(device);
                    continue;
                }
                let clock = device.clock.clone();
                let member = GroupMember {
                    exchange,
                    division: Arc::new(Weights::equal(1)),
                    num_seeds,
                    batch_size,
                    stop: None,
                    observe: Some(observe),
                    bucket_bytes: BUCKET_BYTES,
                    virtual_steps: is_virtual.then_some(VirtualSteps { clock, all_reduce, origin }),
                };
                let alone = Operators { routes: Vec::new(), trainers: vec![trainer] };
                device.training = join(alone, member)?.trainers.pop();
            }
            devices.push(device);
        }
        let share_of = move |id, trainers: usize, rank| {
            let division = Arc::new(Weights::equal(trainers));
            let share = SeedShare { division, rank, num_seeds, batch_size };
            share.positions(id).expect("a fixed division has every share")
        };
        let abort = Box::new(move |why: &str| abort_handles.iter().for_each(|handle| handle.abort(why)));
        let roles = RolesExecutor::new(devices, &schedule, Arc::new(share_of), abort, settings.limit)?;
        let roles = if is_virtual { roles.in_virtual_time(all_reduce) } else { roles };
        Ok(Self { roles, exchange: how, messages, origin: is_virtual.then_some(origin), staleness })
    }

    /// Gives all trainers this state.
    ///
    /// # Errors
    ///
    /// A state of another model.
    pub(crate) fn restore(&mut self, training: &TrainingState) -> Result<()> {
        self.roles.trainers_mut()?.into_iter().try_for_each(|trainer| Ok(training.restore(trainer)?))
    }

    /// Trains the mini-batches of an epoch after those of the report `so_far`.
    ///
    /// # Errors
    ///
    /// A failing operator, with its key and mini-batch.
    pub(crate) fn train_on(
        &mut self,
        epoch: u32,
        so_far: EpochReport,
        stop: &Stop,
        observe: &mut dyn FnMut(&Event<'_>, Option<&Others<'_>>) -> Control,
    ) -> Result<EpochReport> {
        let begun = self.origin.unwrap_or_else(Instant::now);
        let others = Others::new(&self.messages, begun, so_far.seconds);
        Ok(self.roles.train_on(epoch, so_far, stop, &mut |event| observe(event, Some(&others)))?)
    }
}

/// Divides operators among the devices of a plan; those that none needs are dropped, and the memory that they hold.
///
/// # Errors
///
/// One of a device's roles lacks its operators.
fn divide(operators: Operators, factored: &Factored, schedule: &RolesSchedule) -> Result<Vec<RolesDevice>> {
    let Factored { places, keys, own, .. } = factored;
    let (stay, train) = (schedule.min_trainers(), schedule.max_trainers());
    let Operators { routes, trainers } = operators;
    let number = |place: &Place| places.iter().position(|of| of == place);
    let resources = factored.plan.prediction.utilisation.iter().map(|used| used.resource.clone());
    let device = |(place, resource): (&Place, String)| {
        let (place, clock) = (place.clone(), VirtualClock::default());
        let ended = Arc::default();
        RolesDevice { place, resource, batching: None, transferring: Vec::new(), training: None, clock, ended }
    };
    let mut devices: Vec<RolesDevice> = places.iter().zip(resources).map(device).collect();
    for RouteOperators { route, batching, transferring } in routes {
        let is_planned = (&route.batching, &route.training) == (&keys.batching, &keys.training)
            && match route.batched_at == route.trained_at {
                true => own.as_ref().is_none_or(|own| route.transferring == *own),
                false => route.transferring == keys.transferring,
            };
        let (Some(from), Some(to), true) = (number(&route.batched_at), number(&route.trained_at), is_planned) else {
            continue;
        };
        if from < stay {
            continue;
        }
        devices[from].batching.get_or_insert_with(|| (keys.batching.clone(), batching));
        if to < train && devices[to].transferring.iter().all(|(known, _)| known.batched_at != route.batched_at) {
            devices[to].transferring.push((route, transferring));
        }
    }
    for trainer in trainers {
        if let Some(to) = number(&trainer.place).filter(|&to| to < train && trainer.key == keys.training) {
            devices[to].training = Some(trainer);
        }
    }
    for (number, device) in devices.iter_mut().enumerate() {
        let Some(caches) = factored.caches.filter(|_| device.training.is_some()) else { continue };
        let bytes = if number < stay { caches.trainer_bytes } else { caches.standby_bytes };
        device.transferring.iter_mut().try_for_each(|(_, transferring)| transferring.resize_cache(bytes))?;
    }
    for (number, RolesDevice { place, batching, transferring, training, .. }) in devices.iter().enumerate() {
        // A device that never trains alone need not move its own shares.
        let moves = |from: usize| transferring.iter().any(|(route, _)| route.batched_at == places[from]);
        let moved = (stay..places.len()).all(|from| from == number && from >= train || moves(from));
        if number >= stay && batching.is_none() || number < train && !(moved && training.is_some()) {
            bail!("{keys} at {place}: the run was planned with it, and it cannot be built here; train anew");
        }
    }
    Ok(devices)
}
