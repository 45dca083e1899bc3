//! Which phases may begin: resources, buffers and the order within a route. Shared by simulation and execution.

use std::collections::VecDeque;

use crate::Schedule;

/// A phase of mini-batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Batching.
    Batching,
    /// Transferring.
    Transferring,
    /// Training.
    Training,
}

impl Phase {
    /// All phases, in the order a mini-batch goes through them.
    pub const ALL: [Phase; 3] = [Phase::Batching, Phase::Transferring, Phase::Training];
}

/// One phase of the next mini-batch of a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Step {
    /// Which share of the schedule.
    pub share: usize,
    /// Which phase.
    pub phase: Phase,
}

/// What of a share does not change.
#[derive(Debug, Clone)]
pub(crate) struct Fixed {
    pub(crate) batches: u32,
    pub(crate) workers: u32,
    pub(crate) in_place: bool,
    /// Exclusive resources of each phase, as bits.
    pub(crate) exclusive: [u32; 3],
}

/// A share's mini-batches: each is numbered from 0 within its share, and every phase takes them in that order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Flow {
    /// Begun so far, by phase.
    pub(crate) begun: [u32; 3],
    /// Being batched.
    pub(crate) batching: u32,
    /// Whether the mini-batches from `begun[Transferring]` on are batched.
    pub(crate) batched: VecDeque<bool>,
    pub(crate) transferring: bool,
    /// Transferred and not yet begun to be trained.
    pub(crate) waiting: u32,
}

/// What is busy and what waits where.
#[derive(Debug, Clone)]
pub(crate) struct State {
    pub(crate) fixed: Vec<Fixed>,
    pub(crate) flows: Vec<Flow>,
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
        let bits = |names: &[String]| -> u32 {
            let resources = schedule.resources.iter().enumerate();
            resources.filter(|(_, r)| r.cores.is_none() && names.contains(&r.name)).map(|(i, _)| 1 << i).sum()
        };
        let fixed = schedule.shares.iter().map(|s| Fixed {
            batches: s.batches as u32,
            workers: s.workers.max(1) as u32,
            in_place: s.in_place,
            exclusive: [bits(&s.hardware.batching), bits(&s.hardware.transferring), bits(&s.hardware.training)],
        });
        let fixed: Vec<Fixed> = fixed.collect();
        let flow = Flow { begun: [0; 3], batching: 0, batched: VecDeque::new(), transferring: false, waiting: 0 };
        Self {
            flows: vec![flow; fixed.len()],
            fixed,
            busy: 0,
            training: false,
            batched_free: schedule.batched.max(1),
            ready_free: schedule.ready.max(1),
            trained: 0,
        }
    }

    /// Mini-batches of a share whose batching has not begun.
    pub(crate) fn left(&self, share: usize) -> u32 {
        self.fixed[share].batches - self.flows[share].begun[0]
    }

    /// Mini-batches of a share that are batched and wait for their transfer; those after a gap do not count.
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

    /// Whether the step's data, worker or lane is there: all but resources and buffers.
    pub(crate) fn has_work(&self, step: Step) -> bool {
        let (fixed, flow) = (&self.fixed[step.share], &self.flows[step.share]);
        match step.phase {
            Phase::Batching => flow.begun[0] < fixed.batches && flow.batching < fixed.workers,
            Phase::Transferring => flow.batched.front() == Some(&true) && !flow.transferring,
            Phase::Training => flow.waiting > 0 && !self.training,
        }
    }

    /// Whether the step's buffer has room for it.
    pub(crate) fn has_room(&self, step: Step) -> bool {
        match (step.phase, self.fixed[step.share].in_place) {
            (Phase::Batching, false) => self.batched_free > 0,
            (Phase::Batching, true) | (Phase::Transferring, false) => self.ready_free > 0,
            _ => true,
        }
    }

    /// Whether the step may begin now.
    pub(crate) fn can_begin(&self, step: Step) -> bool {
        self.has_work(step)
            && self.has_room(step)
            && self.is_free(self.fixed[step.share].exclusive[step.phase as usize])
    }

    /// Begins a step that may begin; returns the number of its mini-batch within the share.
    pub(crate) fn begin(&mut self, step: Step) -> u32 {
        debug_assert!(self.can_begin(step), "{step:?} cannot begin: {self:?}");
        let (fixed, flow) = (&self.fixed[step.share], &mut self.flows[step.share]);
        self.busy |= fixed.exclusive[step.phase as usize];
        match step.phase {
            Phase::Batching => {
                *if fixed.in_place { &mut self.ready_free } else { &mut self.batched_free } -= 1;
                flow.batching += 1;
                flow.batched.push_back(false);
            }
            Phase::Transferring => {
                if !fixed.in_place {
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

    /// Ends a step that began, of the mini-batch with this number.
    pub(crate) fn end(&mut self, step: Step, number: u32) {
        let (fixed, flow) = (&self.fixed[step.share], &mut self.flows[step.share]);
        self.busy &= !fixed.exclusive[step.phase as usize];
        match step.phase {
            Phase::Batching => {
                flow.batching -= 1;
                // Those before `begun[Transferring]` left the queue.
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
