//! The order in which phases begin, and its replay with other durations.

use morphgl_registry::Phase;

use crate::state::{State, Step};
use crate::{Policy, Schedule};

/// The order in which the phases of an epoch's mini-batches begin.
///
/// The k-th step of a phase in a share belongs to the share's k-th mini-batch, so steps alone define an order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Order(Vec<Step>);

impl Order {
    /// Takes the steps in the order in which they begin.
    pub fn new(steps: Vec<Step>) -> Self {
        Self(steps)
    }

    /// Maximum number of mini-batches, in the order of training, between one whose batching begins and the last one before which all
    /// were trained, with any durations: as its buffers let batching begin ahead of training. `schedule` is that of the order. O(steps).
    pub fn ahead(&self, schedule: &Schedule) -> usize {
        let state = State::new(schedule);
        let [batched, ready] = state.free;
        let mut counts = vec![[0; 3]; schedule.shares.len()];
        let mut trainings: Vec<Vec<usize>> = vec![Vec::new(); schedule.shares.len()];
        let training = self.0.iter().filter(|step| step.phase == Phase::Training);
        training.enumerate().for_each(|(position, step)| trainings[step.share].push(position));
        // Slots of the ready buffer that were taken so far, and with the transfer of each mini-batch that was in the other buffer.
        let (mut taken, mut of_transfers) = (0, Vec::new());
        let mut batchings: Vec<(usize, Option<usize>)> = Vec::new();
        for &step in &self.0 {
            let number = counts[step.share][step.phase as usize];
            counts[step.share][step.phase as usize] += 1;
            let buffer = state.buffer(step);
            if step.phase == Phase::Batching {
                batchings.push((trainings[step.share][number], (buffer == Some(1)).then_some(taken)));
            }
            if buffer == Some(1) {
                if step.phase == Phase::Transferring {
                    of_transfers.push(taken);
                }
                taken += 1;
            }
        }
        let mut streamed = 0_usize;
        let ahead = |(position, slot): (usize, Option<usize>)| {
            let slot = slot.or_else(|| {
                // The slot of the transfer that makes room for it.
                streamed += 1;
                of_transfers.get(streamed.checked_sub(batched + 1)?).copied()
            });
            let trained = slot.map_or(0, |slot| slot.saturating_sub(ready));
            (position + 1).saturating_sub(trained)
        };
        batchings.into_iter().map(ahead).max().unwrap_or(1)
    }

    /// The steps.
    pub fn steps(&self) -> &[Step] {
        &self.0
    }
}

/// The steps of an order that use one resource, buffer or lane, in sequence.
#[derive(Debug, Clone, Default)]
struct Queue {
    steps: Vec<u32>,
    next: usize,
}

impl Queue {
    /// Position in the order of the step that is `ahead` steps after the next one.
    fn ahead(&self, ahead: usize) -> Option<u32> {
        self.steps.get(self.next + ahead).copied()
    }
}

/// The replay of an order with any durations: which step may begin, which have begun and ended.
///
/// Each exclusive resource but those that queue work (`Resource::queued`), each buffer and each share's phase takes its steps in
/// the order's sequence; nothing else is ordered. So for any durations, buffers stay within the schedule's capacities and every
/// mini-batch is trained once, in the same order.
/// There is no deadlock: the first step that has not begun waits only for steps before it.
///
/// Single-threaded: the executor owns it and reports every end to it.
#[derive(Debug, Clone)]
pub struct Replay {
    state: State,
    steps: Vec<Step>,
    /// Queues of the resources, of the two buffers, and of each share's phases.
    queues: Vec<Queue>,
    /// The queue of all shares' training.
    training: usize,
    /// For each share and phase, the queues that its steps are in.
    memberships: Vec<[Vec<usize>; 3]>,
    /// Position in the epoch of every share's mini-batches: that of their batching in the order.
    positions: Vec<Vec<u32>>,
    /// Whether only one step may be under way at a time.
    sequential: bool,
    cut: bool,
    under_way: usize,
}

/// A step that has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begun {
    /// Share and phase.
    pub step: Step,
    /// Number of the mini-batch within the share.
    pub number: u32,
    /// Position of the mini-batch in the epoch: that of its batching in the order, whatever the durations are.
    pub batch: u32,
}

impl Replay {
    /// Begins a replay of `order`, an order of `schedule`.
    ///
    /// # Panics
    ///
    /// When the order does not take every mini-batch of every share through every phase once.
    pub fn new(schedule: &Schedule, order: &Order) -> Self {
        let mut state = State::new(schedule);
        let queued =
            schedule.resources.iter().enumerate().filter(|(_, r)| r.queued).fold(0, |all, (i, _)| all | 1 << i);
        state.specs.iter_mut().flat_map(|spec| &mut spec.exclusive).for_each(|held| *held &= !queued);
        let (resources, shares) = (schedule.resources.len(), state.specs.len());
        let training = resources + 2 + Phase::Training as usize;
        let membership = |share: usize, phase: Phase| -> Vec<usize> {
            let held = state.specs[share].exclusive[phase as usize];
            let exclusive = (0..resources).filter(|i| held >> i & 1 == 1);
            let buffer = state.buffer(Step { share, phase }).map(|buffer| resources + buffer);
            let lane = if phase == Phase::Training { training } else { resources + 2 + 3 * share + phase as usize };
            exclusive.chain(buffer).chain([lane]).collect()
        };
        let memberships: Vec<_> = (0..shares).map(|share| Phase::ALL.map(|phase| membership(share, phase))).collect();
        let mut queues = vec![Queue::default(); resources + 2 + 3 * shares];
        let mut counts = vec![[0; 3]; shares];
        let mut positions = vec![Vec::new(); shares];
        let mut next = 0;
        for (i, step) in order.0.iter().enumerate() {
            memberships[step.share][step.phase as usize].iter().for_each(|&q| queues[q].steps.push(i as u32));
            counts[step.share][step.phase as usize] += 1;
            if step.phase == Phase::Batching {
                positions[step.share].push(next);
                next += 1;
            }
        }
        let expected: Vec<[u32; 3]> = state.specs.iter().map(|s| [s.batches; 3]).collect();
        assert_eq!(counts, expected, "an order takes every mini-batch of every share through every phase once");
        Self {
            state,
            steps: order.0.clone(),
            queues,
            training,
            memberships,
            positions,
            sequential: schedule.policy == Policy::Sequential,
            cut: false,
            under_way: 0,
        }
    }

    /// Begins the next step that may begin now, if any. Call it until it returns `None`.
    pub fn begin(&mut self) -> Option<Begun> {
        let step = self.peek()?;
        Some(self.start(step))
    }

    /// Position of the mini-batch to be trained after the one in training and `ahead` others, if it may be queued at the trainer now:
    /// all of them are ready, and their training is next on each of their resources. `None` while nothing is in training.
    pub fn next_training(&self, ahead: usize) -> Option<u32> {
        let training = |share: usize| self.state.specs[share].exclusive[Phase::Training as usize];
        // The mini-batch in training must hold the same resources as the next ones.
        let alike = (1..self.state.specs.len()).all(|share| training(share) == training(0));
        if self.sequential || !self.state.training || !alike {
            return None;
        }
        let queue = &self.queues[self.training];
        let coming = queue.steps.get(queue.next..=queue.next + ahead)?;
        let at = coming[ahead];
        let share = self.steps[at as usize].share;
        let of_share = coming.iter().filter(|&&i| self.steps[i as usize].share == share).count() as u32;
        let progress = &self.state.progress[share];
        let is_next = |q: &usize| self.queues[*q].ahead(ahead) == Some(at);
        let ready = progress.ready >= of_share && self.memberships[share][Phase::Training as usize].iter().all(is_next);
        let number = progress.begun[Phase::Training as usize] + of_share - 1;
        ready.then(|| self.positions[share][number as usize])
    }

    /// Begins the next step of training if it may begin, even where a step before it in the order may begin too.
    pub fn begin_training(&mut self) -> Option<Begun> {
        let next = self.queues[self.training].ahead(0)?;
        self.can_begin(next).then(|| self.start(self.steps[next as usize]))
    }

    fn start(&mut self, step: Step) -> Begun {
        let number = self.state.begin(step);
        for &q in &self.memberships[step.share][step.phase as usize] {
            self.queues[q].next += 1;
        }
        self.under_way += 1;
        let batch = self.positions[step.share][number as usize];
        Begun { step, number, batch }
    }

    /// The step that [`Replay::begin`] would begin.
    fn peek(&self) -> Option<Step> {
        if self.sequential && self.under_way > 0 {
            return None;
        }
        let heads = self.queues.iter().filter_map(|q| q.ahead(0));
        heads.filter(|&i| self.can_begin(i)).min().map(|i| self.steps[i as usize])
    }

    /// Whether the order's step `i` may begin.
    fn can_begin(&self, i: u32) -> bool {
        let step = self.steps[i as usize];
        let first = |q: &usize| self.queues[*q].ahead(0) == Some(i);
        (!self.cut || step.phase != Phase::Batching)
            && self.memberships[step.share][step.phase as usize].iter().all(first)
            && self.state.can_begin(step)
    }

    /// The same replay with the positions of mini-batches in the order in which they are trained, so that an epoch's mini-batches are
    /// trained one after the other by any schedule. Trainers of a group have it: they train the same mini-batch in every step.
    pub fn in_order_of_training(mut self) -> Self {
        self.positions.iter_mut().for_each(Vec::clear);
        let training = self.steps.iter().filter(|step| step.phase == Phase::Training);
        (0..).zip(training).for_each(|(position, step)| self.positions[step.share].push(position));
        self
    }

    /// Frees those of the step's resources that are among `resources`, a set of bits by position, before the step ends by
    /// [`Replay::end_released`].
    pub(crate) fn release(&mut self, begun: Begun, resources: u32) {
        self.state.release(begun.step, resources);
    }

    /// Ends a step whose resources among `released` are free already.
    pub(crate) fn end_released(&mut self, begun: Begun, released: u32) {
        self.state.release(begun.step, !released);
        self.state.end_released(begun.step, begun.number);
        self.under_way -= 1;
    }

    /// Ends a step.
    pub fn end(&mut self, begun: Begun) {
        self.state.end(begun.step, begun.number);
        self.under_way -= 1;
    }

    /// Lets no further mini-batch begin; those that have begun can be finished.
    ///
    /// Steps of mini-batches that will not begin are removed from the queues.
    pub fn cut(&mut self) {
        if std::mem::replace(&mut self.cut, true) {
            return;
        }
        let mut counts = vec![[0; 3]; self.state.progress.len()];
        let has_begun = |step: &Step| {
            let count = &mut counts[step.share][step.phase as usize];
            *count += 1;
            *count <= self.state.progress[step.share].begun[0]
        };
        let stays: Vec<bool> = self.steps.iter().map(has_begun).collect();
        for queue in &mut self.queues {
            let rest = queue.steps.split_off(queue.next);
            queue.steps.extend(rest.into_iter().filter(|&i| stays[i as usize]));
        }
    }

    /// Whether nothing is under way and nothing can begin.
    pub fn is_done(&self) -> bool {
        self.under_way == 0 && self.peek().is_none()
    }

    /// Mini-batches whose batching has begun.
    pub fn begun(&self) -> u32 {
        self.state.begun(Phase::Batching)
    }

    /// Mini-batches trained.
    pub fn trained(&self) -> u32 {
        self.state.trained
    }

    /// Mini-batches ready for training.
    pub fn ready(&self) -> usize {
        self.state.ready() as usize
    }
}
