//! A position within an epoch: the state of training after a number of mini-batches, and the part of a schedule that is left.

use morphgl_plan::{Order, Phase, Schedule};
use morphgl_registry::{NamedTensor, Training};

/// Parameters and optimizer state of a training operator between two steps.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TrainingState {
    /// The parameters.
    pub parameters: Vec<NamedTensor>,
    /// The optimizer's state.
    pub optimizer: Vec<NamedTensor>,
}

impl TrainingState {
    /// Copies out the state of `training`.
    ///
    /// # Errors
    ///
    /// The operator's own.
    pub fn of(training: &dyn Training) -> morphgl_registry::Result<Self> {
        Ok(Self { parameters: training.parameters()?, optimizer: training.optimizer_state()? })
    }

    /// Makes it the state of `training`.
    ///
    /// # Errors
    ///
    /// The state is that of another model or optimizer.
    pub fn restore(&self, training: &mut dyn Training) -> morphgl_registry::Result<()> {
        training.set_parameters(&self.parameters)?;
        training.set_optimizer_state(&self.optimizer)
    }
}

/// The part of a schedule and its order without the mini-batches that are trained first.
///
/// Mini-batches are left out with all of their steps. The order of the others stays, and it can be replayed: at each of its
/// steps no more of a buffer is occupied, and no more resources are in use, than at the same step of the whole order.
#[derive(Debug)]
pub(crate) struct Rest {
    pub(crate) schedule: Schedule,
    pub(crate) order: Order,
    /// Positions of its mini-batches in the whole order, ascending.
    pub(crate) positions: Vec<u32>,
}

impl Rest {
    /// The part of `order`, an order of `schedule`, after its first `trained` steps of training; positions are in the order of training
    /// where `in_order`, else of batching. O(steps).
    pub(crate) fn after(schedule: &Schedule, order: &Order, trained: usize, in_order: bool) -> Self {
        let mut schedule = schedule.clone();
        let mut done = vec![0; schedule.shares.len()];
        let training = order.steps().iter().filter(|step| step.phase == Phase::Training);
        training.take(trained).for_each(|step| done[step.share] += 1);
        let mut counts = vec![[0; 3]; done.len()];
        let (mut steps, mut positions, mut position) = (Vec::new(), Vec::new(), 0);
        for &step in order.steps() {
            // The k-th step of a phase in a share belongs to the share's k-th mini-batch.
            let count = &mut counts[step.share][step.phase as usize];
            *count += 1;
            let is_left = *count > done[step.share];
            if is_left {
                steps.push(step);
            }
            if step.phase == Phase::Batching {
                positions.extend(is_left.then_some(position));
                position += 1;
            }
        }
        if in_order {
            positions = (trained as u32..position).collect();
        }
        schedule.shares.iter_mut().zip(done).for_each(|(share, done)| share.batches -= done);
        Self { schedule, order: Order::new(steps), positions }
    }
}
