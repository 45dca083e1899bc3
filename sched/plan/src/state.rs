//! The state of an epoch (resources, buffers, progress of each share): which phases may begin. Shared by simulator and executor.

use morphgl_registry::Phase;
use std::collections::VecDeque;

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
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ShareProgress {
    /// Mini-batches begun so far, by phase.
    pub(crate) begun: [u32; 3],
    /// Mini-batches being batched.
    pub(crate) batching: u32,
    /// For the mini-batches from `begun[Transferring]` on: whether batching has ended.
    pub(crate) batched: VecDeque<bool>,
    pub(crate) transferring: bool,
    /// Mini-batches transferred and not yet in training.
    pub(crate) waiting: u32,
}

/// Resources in use, free buffer slots, and the progress of each share.
#[derive(Debug, Clone)]
pub(crate) struct State {
    pub(crate) specs: Vec<ShareSpec>,
    pub(crate) flows: Vec<ShareProgress>,
    /// Exclusive resources in use.
    pub(crate) busy: u32,
    pub(crate) training: bool,
    pub(crate) batched_free: usize,
    pub(crate) ready_free: usize,
    /// Mini-batches trained.
    pub(crate) trained: u32,
}

impl State {
    pub(crate) fn new(schedule: &Schedule) -> Self {
        let bits = |names: &[String]| exclusive(&schedule.resources, names);
        let specs = schedule.shares.iter().map(|s| ShareSpec {
            batches: s.batches as u32,
            workers: s.workers.max(1) as u32,
            in_place: s.in_place,
            exclusive: [bits(&s.hardware.batching), bits(&s.hardware.transferring), bits(&s.hardware.training)],
        });
        let specs: Vec<ShareSpec> = specs.collect();
        let flow =
            ShareProgress { begun: [0; 3], batching: 0, batched: VecDeque::new(), transferring: false, waiting: 0 };
        Self {
            flows: vec![flow; specs.len()],
            specs,
            busy: 0,
            training: false,
            batched_free: schedule.batched.max(1),
            ready_free: schedule.ready.max(1),
            trained: 0,
        }
    }

    /// Mini-batches of a share whose batching has not begun.
    pub(crate) fn left(&self, share: usize) -> u32 {
        self.specs[share].batches - self.flows[share].begun[0]
    }

    /// Mini-batches of a share that wait for their transfer: those batched without a gap in their numbers.
    pub(crate) fn batched(&self, share: usize) -> u32 {
        self.flows[share].batched.iter().take_while(|b| **b).count() as u32
    }

    /// Mini-batches ready for training.
    pub(crate) fn ready(&self) -> u32 {
        self.flows.iter().map(|f| f.waiting).sum()
    }

    pub(crate) fn is_free(&self, resources: u32) -> bool {
        self.busy & resources == 0
    }

    /// Whether the step's mini-batch and its worker or lane are available; resources and buffers are not looked at.
    pub(crate) fn has_work(&self, step: Step) -> bool {
        let (spec, flow) = (&self.specs[step.share], &self.flows[step.share]);
        match step.phase {
            Phase::Batching => flow.begun[0] < spec.batches && flow.batching < spec.workers,
            Phase::Transferring => flow.batched.front() == Some(&true) && !flow.transferring,
            Phase::Training => flow.waiting > 0 && !self.training,
        }
    }

    /// Whether the step's buffer has a free slot.
    pub(crate) fn has_room(&self, step: Step) -> bool {
        match (step.phase, self.specs[step.share].in_place) {
            (Phase::Batching, false) => self.batched_free > 0,
            (Phase::Batching, true) | (Phase::Transferring, false) => self.ready_free > 0,
            _ => true,
        }
    }

    /// Whether the step may begin now.
    pub(crate) fn can_begin(&self, step: Step) -> bool {
        self.has_work(step)
            && self.has_room(step)
            && self.is_free(self.specs[step.share].exclusive[step.phase as usize])
    }

    /// Begins a step that may begin; returns the number of its mini-batch within the share.
    pub(crate) fn begin(&mut self, step: Step) -> u32 {
        debug_assert!(self.can_begin(step), "{step:?} cannot begin: {self:?}");
        let (spec, flow) = (&self.specs[step.share], &mut self.flows[step.share]);
        self.busy |= spec.exclusive[step.phase as usize];
        match step.phase {
            Phase::Batching => {
                *if spec.in_place { &mut self.ready_free } else { &mut self.batched_free } -= 1;
                flow.batching += 1;
                flow.batched.push_back(false);
            }
            Phase::Transferring => {
                if !spec.in_place {
                    self.batched_free += 1;
                    self.ready_free -= 1;
                }
                flow.batched.pop_front();
                flow.transferring = true;
            }
            Phase::Training => {
                self.ready_free += 1;
                flow.waiting -= 1;
                self.training = true;
            }
        }
        let number = flow.begun[step.phase as usize];
        flow.begun[step.phase as usize] += 1;
        number
    }

    /// Ends a step of the mini-batch with this number.
    pub(crate) fn end(&mut self, step: Step, number: u32) {
        let (spec, flow) = (&self.specs[step.share], &mut self.flows[step.share]);
        self.busy &= !spec.exclusive[step.phase as usize];
        match step.phase {
            Phase::Batching => {
                flow.batching -= 1;
                // The queue begins with mini-batch `begun[Transferring]`.
                let position = (number - flow.begun[Phase::Transferring as usize]) as usize;
                flow.batched[position] = true;
            }
            Phase::Transferring => {
                flow.transferring = false;
                flow.waiting += 1;
            }
            Phase::Training => {
                self.training = false;
                self.trained += 1;
            }
        }
    }
}
