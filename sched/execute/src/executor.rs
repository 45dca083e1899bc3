//! Epochs of training.

use std::ops::Range;

use morphgl_plan::Schedule;
use morphgl_registry::{Batching, Route, Training, Transferring};

use crate::{BatchDone, EpochReport, Pool, Result, Stop};

/// The operators of a route.
#[derive(Debug)]
pub struct Operators {
    /// Their keys.
    pub route: Route,
    /// Who batches.
    pub batching: Box<dyn Batching>,
    /// Who transfers.
    pub transferring: Box<dyn Transferring>,
    /// Who trains.
    pub training: Box<dyn Training>,
}

/// Runs epochs by a schedule. Workers and their buffers live as long as it.
#[derive(Debug)]
pub struct Executor {
    operators: Operators,
    pool: Pool,
}

impl Executor {
    /// Makes the workers and sets the threads of training.
    pub fn new(operators: Operators, schedule: &Schedule) -> Result<Self> {
        let _ = (operators, schedule);
        todo!()
    }

    /// Trains on mini-batches `batches` of an epoch (all of them: `0..executor.num_batches()`), one step each.
    pub fn train(
        &mut self,
        epoch: u32,
        batches: Range<u32>,
        stop: &Stop,
        observe: &mut dyn FnMut(&BatchDone),
    ) -> Result<EpochReport> {
        let _ = (epoch, batches, stop, observe);
        todo!()
    }

    /// Mini-batches of one epoch.
    pub fn num_batches(&self) -> u32 {
        todo!()
    }

    /// The schedule in use.
    pub fn schedule(&self) -> &Schedule {
        &self.pool.schedule
    }

    /// Changes the schedule between epochs.
    pub fn set_schedule(&mut self, schedule: &Schedule) -> Result<()> {
        let _ = schedule;
        todo!()
    }

    /// The route's keys.
    pub fn route(&self) -> &Route {
        &self.operators.route
    }

    /// The transferring and the training operator between epochs: for evaluation, checkpoints, inference.
    pub fn operators_mut(&mut self) -> &mut Operators {
        &mut self.operators
    }

    /// Gives the operators back.
    pub fn into_operators(self) -> Operators {
        self.operators
    }
}
