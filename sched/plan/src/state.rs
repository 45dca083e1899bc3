//! The state of an epoch (resources, buffers, progress of each share): which phases may begin. Shared by simulator and executor.

use std::collections::VecDeque;

use morphgl_registry::Phase;

use crate::Schedule;
use crate::problem::exclusive;

/// One phase of the next mini-batch of a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Step {
    /// Index of the share in the schedule.
    pub share: usize,
    /// The phase.
    pub phase: Phase,
}

/// The constants of a share.
#[derive(Debug, Clone)]
pub(crate) struct ShareSpec {
    pub(crate) batches: u32,
    pub(crate) workers: u32,
    pub(crate) in_place: bool,
    /// Exclusive resources of each phase, as bits.
    pub(crate) exclusive: [u32; 3],
}

/// Progress of a share. Its mini-batches are numbered from 0, and every phase takes them in that order.
#[derive(Debug, Clone, Default)]
pub(crate) struct ShareProgress {
    /// Mini-batches begun so far, by phase.
    pub(crate) begun: [u32; 3],
    /// Mini-batches being batched.
    pub(crate) batching: u32,
    /// For the mini-batches from `begun[Transferring]` on: whether batching has ended.
    batched: VecDeque<bool>,
    pub(crate) transferring: bool,
    /// Mini-batches transferred and not yet in training.
    pub(crate) ready: u32,
}

/// Resources in use, free buffer slots, and the progress of each share.
#[derive(Debug, Clone)]
pub(crate) struct State {
    pub(crate) specs: Vec<ShareSpec>,
    pub(crate) progress: Vec<ShareProgress>,
    /// Exclusive resources in use.
    busy: u32,
    pub(crate) training: bool,
    /// Free slots of the batched and of the ready buffer.
    pub(crate) free: [usize; 2],
    /// Mini-batches trained.
    pub(crate) trained: u32,
    /// Mini-batches of each share that may be transferred: those for which no task beside them has to
    /// end first. No limit without such tasks.
    pub(crate) transferable: u32,
}

impl State {
    pub(crate) fn new(schedule: &Schedule) -> Self {
        let spec = |s: &crate::ScheduleShare| ShareSpec {
            batches: s.batches as u32,
            workers: s.workers.max(1) as u32,
            in_place: s.in_place,
            exclusive: Phase::ALL.map(|phase| exclusive(&schedule.resources, &s.hardware[phase])),
        };
        Self {
            specs: schedule.shares.iter().map(spec).collect(),
            progress: vec![ShareProgress::default(); schedule.shares.len()],
            busy: 0,
            training: false,
            free: [schedule.batched.max(1), schedule.ready.max(1)],
            trained: 0,
            transferable: u32::MAX,
        }
    }

    /// Mini-batches whose `phase` has begun.
    pub(crate) fn begun(&self, phase: Phase) -> u32 {
        self.progress.iter().map(|p| p.begun[phase as usize]).sum()
    }

    /// Mini-batches of a share whose batching has not begun.
    pub(crate) fn left(&self, share: usize) -> u32 {
        self.specs[share].batches - self.progress[share].begun[0]
    }

    /// Mini-batches of a share that wait for their transfer: those batched without a gap in their numbers.
    pub(crate) fn batched(&self, share: usize) -> u32 {
        self.progress[share].batched.iter().take_while(|b| **b).count() as u32
    }

    /// Mini-batches ready for training.
    pub(crate) fn ready(&self) -> u32 {
        self.progress.iter().map(|p| p.ready).sum()
    }

    pub(crate) fn is_free(&self, resources: u32) -> bool {
        self.busy & resources == 0
    }

    /// The buffer in which the step takes a slot, if any: 0 is the batched, 1 the ready buffer.
    pub(crate) fn buffer(&self, step: Step) -> Option<usize> {
        match (step.phase, self.specs[step.share].in_place) {
            (Phase::Batching, false) => Some(0),
            (Phase::Batching, true) | (Phase::Transferring, false) => Some(1),
            _ => None,
        }
    }

    /// Whether the step's buffer has a free slot.
    pub(crate) fn has_slot(&self, step: Step) -> bool {
        self.buffer(step).is_none_or(|buffer| self.free[buffer] > 0)
    }

    /// Whether the step may begin now: its mini-batch, the tasks it waits for, worker or lane, buffer slot and resources are available.
    pub(crate) fn can_begin(&self, step: Step) -> bool {
        self.is_admitted(step) && self.can_begin_admitted(step)
    }

    fn is_admitted(&self, step: Step) -> bool {
        step.phase != Phase::Transferring || self.progress[step.share].begun[step.phase as usize] < self.transferable
    }

    /// Whether the step waits for a task beside mini-batches and for nothing else.
    pub(crate) fn waits_for_task(&self, step: Step) -> bool {
        !self.is_admitted(step) && self.can_begin_admitted(step)
    }

    fn can_begin_admitted(&self, step: Step) -> bool {
        let (spec, progress) = (&self.specs[step.share], &self.progress[step.share]);
        let has_work = match step.phase {
            Phase::Batching => progress.begun[0] < spec.batches && progress.batching < spec.workers,
            Phase::Transferring => progress.batched.front() == Some(&true) && !progress.transferring,
            Phase::Training => progress.ready > 0 && !self.training,
        };
        has_work && self.has_slot(step) && self.is_free(spec.exclusive[step.phase as usize])
    }

    /// The share's next step of `phase`, if it may begin now.
    pub(crate) fn step(&self, share: usize, phase: Phase) -> Option<Step> {
        Some(Step { share, phase }).filter(|&step| self.can_begin(step))
    }

    /// The step of `phase` that may begin now, of the first share that has one.
    pub(crate) fn first(&self, phase: Phase) -> Option<Step> {
        (0..self.specs.len()).find_map(|share| self.step(share, phase))
    }

    /// Begins a step that may begin; returns the number of its mini-batch within the share.
    pub(crate) fn begin(&mut self, step: Step) -> u32 {
        debug_assert!(self.can_begin(step), "{step:?} cannot begin: {self:?}");
        if let Some(buffer) = self.buffer(step) {
            self.free[buffer] -= 1;
        }
        let (spec, progress) = (&self.specs[step.share], &mut self.progress[step.share]);
        self.busy |= spec.exclusive[step.phase as usize];
        match step.phase {
            Phase::Batching => {
                progress.batching += 1;
                progress.batched.push_back(false);
            }
            Phase::Transferring => {
                self.free[0] += usize::from(!spec.in_place);
                progress.batched.pop_front();
                progress.transferring = true;
            }
            Phase::Training => {
                self.free[1] += 1;
                progress.ready -= 1;
                self.training = true;
            }
        }
        let number = progress.begun[step.phase as usize];
        progress.begun[step.phase as usize] += 1;
        number
    }

    /// Ends a step of the mini-batch with this number.
    pub(crate) fn end(&mut self, step: Step, number: u32) {
        self.release(step, u32::MAX);
        self.end_released(step, number);
    }

    /// Frees those of the step's resources that are among `resources`.
    pub(crate) fn release(&mut self, step: Step, resources: u32) {
        self.busy &= !(self.specs[step.share].exclusive[step.phase as usize] & resources);
    }

    /// Ends a step whose resources were released.
    pub(crate) fn end_released(&mut self, step: Step, number: u32) {
        let progress = &mut self.progress[step.share];
        match step.phase {
            Phase::Batching => {
                progress.batching -= 1;
                // The queue begins with mini-batch `begun[Transferring]`.
                let position = (number - progress.begun[Phase::Transferring as usize]) as usize;
                progress.batched[position] = true;
            }
            Phase::Transferring => {
                progress.transferring = false;
                progress.ready += 1;
            }
            Phase::Training => {
                self.training = false;
                self.trained += 1;
            }
        }
    }
}
