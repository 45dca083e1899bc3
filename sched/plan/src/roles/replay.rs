//! Which steps of devices with roles may begin: the rule that the simulator and the executor share.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::{MAX_DEVICES, Segment};
use crate::Invalid;
use crate::numbers::{MAX_BUFFER, is_amount, within, wrong};

/// Roles of devices in an epoch, and the sizes of the queue and the buffers between them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RolesSchedule {
    /// Mini-batches of the epoch.
    pub num_batches: usize,
    /// Number of devices.
    pub devices: usize,
    /// Roles by segment, the first from mini-batch 0 on.
    pub segments: Vec<Segment>,
    /// Capacity of the global queue ([`RolesProblem::queue`](super::RolesProblem::queue)).
    pub queue: usize,
    /// Capacity of each trainer's buffer ([`RolesProblem::ready`](super::RolesProblem::ready)).
    pub ready: usize,
    /// Seconds in which a device changes its role.
    pub switching: f64,
    /// Maximum staleness of gradients: a share of a mini-batch may be trained while up to so many steps before that of its mini-batch
    /// have not ended (stale synchronous parallel, [Ho et al., NeurIPS 2013](https://dl.acm.org/doi/10.5555/2999611.2999748)).
    #[serde(default)]
    pub staleness: usize,
}

/// What a device does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RolesWork {
    /// It samples a share.
    Sampling,
    /// It takes its share from the queue, and gathers the features.
    Gathering,
    /// It trains its share.
    Training,
    /// It becomes a trainer, or a sampler again.
    Switching,
}

/// A step of one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RolesStep {
    /// The mini-batch; of a switch, the first one that the device trains, or the next one that is sampled.
    pub batch: usize,
    /// What it does.
    pub work: RolesWork,
    /// The device that does it.
    pub device: usize,
    /// The trainer, by its number, whose share it is; of a switch, the device itself where it becomes a trainer, else the
    /// number of devices.
    pub rank: usize,
}

/// Role of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Sampler,
    Trainer,
    /// Its last step as a trainer has ended, and it does not sample yet.
    Between,
}

/// State of a device.
#[derive(Debug, Clone)]
struct Device {
    role: Role,
    /// Mini-batches that it trains: the first one, and the one after the last; those to come.
    trains: VecDeque<(usize, usize)>,
    /// Whether it is at a share to sample, to gather, or to train, or changes its role.
    at: [bool; 4],
    /// The next mini-batch of which it gathers a share, and of which it trains one.
    gathers: usize,
    trained: usize,
}

/// A mini-batch in the global queue: not all of its shares are being gathered yet.
#[derive(Debug, Clone)]
struct Queued {
    /// Whether the share of each trainer is sampled.
    sampled: Vec<bool>,
    /// Trainers that have begun to gather theirs.
    taken: usize,
}

/// The replay of roles with any durations: which steps may begin, which have begun and ended.
///
/// Shares are sampled in the order of mini-batches and, within one, of trainers, each by the sampler device that is free first; of several
/// the last device, which never trains where one does not. A step of training is complete when all of its trainers' shares are, and
/// ends when their gradients have been added up ([`RolesReplay::summed`]); steps end in the order of mini-batches. A share is trained
/// only when at most [`RolesSchedule::staleness`] steps before its own have not ended: with none, one step after another. So for any
/// durations every mini-batch is trained once, steps are in their order, and the queue stays within its capacity.
///
/// Single-threaded: the executor owns it and reports every end to it.
#[derive(Debug, Clone)]
pub struct RolesReplay {
    schedule: RolesSchedule,
    devices: Vec<Device>,
    /// Mini-batches from the first one on that not every trainer has begun to gather, as far as sampling has come.
    queue: VecDeque<Queued>,
    /// Mini-batches that every trainer has begun to gather, from the beginning of the epoch.
    taken: usize,
    /// The next share to be sampled: mini-batch and trainer.
    next: (usize, usize),
    /// Steps of training that have ended.
    ended: usize,
    /// Of each of the steps after these, up to the last one that a trainer has begun, the trainers that have trained their shares.
    steps: VecDeque<usize>,
    /// Mini-batches that may be worked on; fewer than all after a stop.
    limit: usize,
    /// Whether no further step may begin for now.
    held: bool,
}

impl RolesSchedule {
    /// Checks a schedule that may come from a file.
    ///
    /// # Errors
    ///
    /// Segments that do not ascend from mini-batch 0, a number of trainers or of devices that cannot be, an empty queue or buffer.
    pub fn check(&self) -> Result<(), Invalid> {
        within("devices with roles", self.devices, 2, MAX_DEVICES)?;
        within("mini-batches of the global queue", self.queue, 1, MAX_BUFFER)?;
        within("shares of a trainer's buffer", self.ready, 1, MAX_BUFFER)?;
        let segments = &self.segments;
        let ascend = segments.first().is_some_and(|s| s.from == 0)
            && segments.windows(2).all(|pair| pair[0].from < pair[1].from);
        if !ascend || !segments.iter().all(|s| (1..=self.devices).contains(&s.trainers)) {
            let n = self.devices;
            return wrong(&"roles", format!("segments ascend from mini-batch 0, with 1 to {n} trainers: {segments:?}"));
        }
        match is_amount(self.switching) {
            true => Ok(()),
            false => wrong(&"roles", format!("{} s are no finite number of at least 0", self.switching)),
        }
    }

    /// Number of trainers of a mini-batch.
    pub fn trainers(&self, batch: usize) -> usize {
        self.segments[self.segments.partition_point(|s| s.from <= batch) - 1].trainers
    }

    /// Number of devices that train some mini-batch.
    pub fn max_trainers(&self) -> usize {
        self.segments.iter().map(|s| s.trainers).max().unwrap_or(0)
    }

    /// Number of devices that train every mini-batch.
    pub fn min_trainers(&self) -> usize {
        self.segments.iter().map(|s| s.trainers).min().unwrap_or(0)
    }

    /// The mini-batch after those from this one on that all devices train; `None` where one samples then.
    fn all_train_until(&self, batch: usize) -> Option<usize> {
        let from = self.segments.partition_point(|s| s.from <= batch) - 1;
        if self.segments[from].trainers < self.devices {
            return None;
        }
        let next = self.segments[from..].iter().find(|s| s.trainers < self.devices);
        Some(next.map_or(self.num_batches, |s| s.from.min(self.num_batches)))
    }

    /// Whether every share is sampled, whatever the durations are: some device samples, and where all train for a while, the queue has
    /// room for their mini-batches.
    pub fn is_possible(&self) -> bool {
        let ends =
            |s: &Segment| self.all_train_until(s.from).is_none_or(|end| end.saturating_sub(s.from) <= self.queue);
        self.min_trainers() < self.devices && self.segments.iter().filter(|s| s.from < self.num_batches).all(ends)
    }

    /// The mini-batches that a device trains, as ascending ranges from `first` on.
    fn trains(&self, device: usize, first: usize) -> VecDeque<(usize, usize)> {
        let mut trains: VecDeque<(usize, usize)> = VecDeque::new();
        let ends = self.segments.iter().skip(1).map(|s| s.from).chain([self.num_batches]);
        for (segment, end) in self.segments.iter().zip(ends).filter(|(segment, _)| device < segment.trainers) {
            let (from, end) = (segment.from.max(first), end.min(self.num_batches));
            match trains.back_mut() {
                _ if from >= end => {}
                Some(last) if last.1 == from => last.1 = end,
                _ => trains.push_back((from, end)),
            }
        }
        trains
    }
}

impl RolesReplay {
    /// Begins a replay with mini-batch `first`.
    ///
    /// # Panics
    ///
    /// When the schedule is not valid ([`RolesSchedule::check`]), or has no mini-batch `first` and is not at its end there.
    pub fn new(schedule: &RolesSchedule, first: usize) -> Self {
        schedule.check().unwrap_or_else(|e| panic!("{e}"));
        assert!(first <= schedule.num_batches, "mini-batch {first} of {}", schedule.num_batches);
        // Where all devices train at the beginning, those that sample at other times have to before.
        let all_train = first < schedule.num_batches && schedule.trainers(first) == schedule.devices;
        let device = |device: usize| {
            let trains = schedule.trains(device, first);
            let is_trainer = trains.front().is_some_and(|t| t.0 == first);
            let samples_first = all_train && device >= schedule.min_trainers();
            let role = if is_trainer && !samples_first { Role::Trainer } else { Role::Sampler };
            Device { role, trains, at: [false; 4], gathers: first, trained: first }
        };
        Self {
            devices: (0..schedule.devices).map(device).collect(),
            queue: VecDeque::new(),
            taken: first,
            next: (first, 0),
            ended: first,
            steps: VecDeque::new(),
            limit: schedule.num_batches,
            held: false,
            schedule: schedule.clone(),
        }
    }

    /// The schedule.
    pub fn schedule(&self) -> &RolesSchedule {
        &self.schedule
    }

    /// Mini-batches that have been trained, from the beginning of the epoch.
    pub fn ended(&self) -> usize {
        self.ended
    }

    /// Mini-batches in the queue: sampled or being sampled, and not yet being gathered by every trainer.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Steps that have not ended, up to the last one that a trainer has begun.
    pub fn under_way(&self) -> usize {
        self.steps.len()
    }

    /// Steps that have not ended and of which every trainer has trained its share, as those before.
    pub fn complete(&self) -> usize {
        let trainers = |step: usize| self.schedule.trainers(self.ended + step);
        self.steps.iter().enumerate().take_while(|(step, trained)| **trained == trainers(*step)).count()
    }

    /// Lets no further mini-batch begin its training: the steps that a trainer has begun are completed.
    pub fn stop(&mut self) {
        self.limit = self.limit.min(self.ended + self.steps.len());
        self.held = false;
    }

    /// Lets no further mini-batch begin its training until [`RolesReplay::release`], as [`RolesReplay::stop`]; all else goes on.
    pub fn hold(&mut self) {
        self.held = true;
    }

    /// Ends what [`RolesReplay::hold`] began.
    pub fn release(&mut self) {
        self.held = false;
    }

    /// Begins the next step that may begin now, if any. Call it until it returns `None`.
    pub fn begin(&mut self) -> Option<RolesStep> {
        let devices = 0..self.devices.len();
        let step = None
            .or_else(|| devices.clone().find_map(|device| self.training(device)))
            .or_else(|| devices.clone().find_map(|device| self.gathering(device)))
            .or_else(|| devices.clone().find_map(|device| self.switching(device)))
            .or_else(|| devices.rev().find_map(|device| self.sampling(device)))?;
        self.devices[step.device].at[step.work as usize] = true;
        match step.work {
            RolesWork::Training => {
                let number = step.batch - self.ended;
                // A device that becomes a trainer may begin before the trainers of the step before.
                self.steps.resize(self.steps.len().max(number + 1), 0);
                self.devices[step.device].trained += 1;
            }
            RolesWork::Gathering => {
                self.devices[step.device].gathers += 1;
                self.queue[step.batch - self.taken].taken += 1;
                while let Some(first) = self.queue.front()
                    && first.taken == first.sampled.len()
                {
                    self.queue.pop_front();
                    self.taken += 1;
                }
            }
            RolesWork::Sampling => {
                let trainers = self.schedule.trainers(step.batch);
                if step.rank == 0 {
                    self.queue.push_back(Queued { sampled: vec![false; trainers], taken: 0 });
                }
                self.next = if step.rank + 1 < trainers { (step.batch, step.rank + 1) } else { (step.batch + 1, 0) };
            }
            RolesWork::Switching => {}
        }
        Some(step)
    }

    /// Records that a step of a device, which [`RolesReplay::begin`] returned, has ended; of training, that its share is trained.
    pub fn end(&mut self, step: RolesStep) {
        let device = &mut self.devices[step.device];
        device.at[step.work as usize] = false;
        match step.work {
            RolesWork::Sampling => self.queue[step.batch - self.taken].sampled[step.rank] = true,
            RolesWork::Gathering => {}
            RolesWork::Switching => {
                device.role = if step.rank == step.device { Role::Trainer } else { Role::Sampler };
                if device.role == Role::Trainer {
                    (device.gathers, device.trained) = (step.batch, step.batch);
                }
            }
            RolesWork::Training => self.steps[step.batch - self.ended] += 1,
        }
    }

    /// Records that the gradients of the first mini-batch that is complete have been added up: its step has ended.
    ///
    /// # Panics
    ///
    /// When some trainer of the mini-batch has not trained its share.
    pub fn summed(&mut self) {
        assert!(self.complete() > 0, "step {} of {:?} is not complete", self.ended, self.steps);
        self.steps.pop_front();
        self.ended += 1;
        for device in &mut self.devices {
            if device.role == Role::Trainer && device.trains.front().is_some_and(|t| t.1 <= self.ended) {
                device.trains.pop_front();
                device.role = Role::Between;
            }
        }
    }

    fn is_at(&self, device: usize, work: RolesWork) -> bool {
        self.devices[device].at[work as usize]
    }

    /// The first mini-batch that the device trains next, if it has to be a trainer soon: the step before has begun, and where all
    /// devices train then, all of their shares are being sampled.
    fn leaves(&self, device: usize) -> Option<usize> {
        let &(first, _) = self.devices[device].trains.front()?;
        let is_left = |end: usize| self.next.0 >= end.min(self.limit);
        (self.ended + 1 >= first && self.schedule.all_train_until(first).is_none_or(is_left)).then_some(first)
    }

    fn training(&self, device: usize) -> Option<RolesStep> {
        let Device { role, trained: batch, gathers, .. } = self.devices[device];
        let is_gathered = batch + 1 < gathers || batch + 1 == gathers && !self.is_at(device, RolesWork::Gathering);
        // A device whose own mini-batches are all trained waits until the last one's step has ended.
        let is_own = self.devices[device].trains.front().is_some_and(|t| (t.0..t.1).contains(&batch));
        let is_fresh = (self.ended..=self.ended + self.schedule.staleness).contains(&batch);
        let is_begun = batch < self.ended + self.steps.len();
        let may = role == Role::Trainer && is_own && is_fresh && batch < self.limit && (is_begun || !self.held);
        let may = may && is_gathered;
        (may && !self.is_at(device, RolesWork::Training)).then_some(RolesStep {
            batch,
            work: RolesWork::Training,
            device,
            rank: device,
        })
    }

    fn gathering(&self, device: usize) -> Option<RolesStep> {
        let Device { role, ref trains, gathers: batch, trained, .. } = self.devices[device];
        let is_own = role == Role::Trainer && trains.front().is_some_and(|t| (t.0..t.1).contains(&batch));
        if !is_own
            || batch >= self.limit
            || self.is_at(device, RolesWork::Gathering)
            || batch - trained >= self.schedule.ready
        {
            return None;
        }
        let is_sampled = self.queue.get(batch - self.taken).is_some_and(|queued| queued.sampled[device]);
        is_sampled.then_some(RolesStep { batch, work: RolesWork::Gathering, device, rank: device })
    }

    fn switching(&self, device: usize) -> Option<RolesStep> {
        let state = &self.devices[device];
        if state.role == Role::Trainer
            || self.is_at(device, RolesWork::Sampling)
            || self.is_at(device, RolesWork::Switching)
        {
            return None;
        }
        let (batch, rank) = match self.leaves(device) {
            Some(first) => (first, device),
            // It samples again, where anything is left.
            None if state.role == Role::Between => (self.next.0, self.devices.len()),
            None => return None,
        };
        (batch < self.limit).then_some(RolesStep { batch, work: RolesWork::Switching, device, rank })
    }

    fn sampling(&self, device: usize) -> Option<RolesStep> {
        let (batch, rank) = self.next;
        let has_room = batch < self.limit.min(self.taken + self.schedule.queue);
        let may = has_room
            && self.devices[device].role == Role::Sampler
            && !self.is_at(device, RolesWork::Sampling)
            && !self.is_at(device, RolesWork::Switching)
            && self.leaves(device).is_none();
        may.then_some(RolesStep { batch, work: RolesWork::Sampling, device, rank })
    }
}
