//! Epochs of training.

use std::ops::Range;

use morphgl_plan::Schedule;
use morphgl_registry::{Batching, MiniBatch, Route, Training, Transferring};

use crate::drive::{Job, drive};
use crate::{BatchDone, EpochReport, Error, Pool, Result, Stop, Transfer};

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
    /// Makes the schedule's workers.
    ///
    /// # Errors
    ///
    /// As [`Pool::new`].
    pub fn new(operators: Operators, schedule: &Schedule) -> Result<Self> {
        let pool = Pool::new(&operators.route.batching, operators.batching.as_ref(), schedule)?;
        Ok(Self { operators, pool })
    }

    /// Trains on mini-batches `batches` of an epoch (all of them: `0..executor.num_batches()`), one step each, in order.
    ///
    /// Training runs on the calling thread, with the schedule's count of threads;
    /// `observe` is called there after every step.
    /// A stop ends it after the current mini-batch, with a report of what was done and where to go on.
    ///
    /// # Errors
    ///
    /// An operator failed or panicked: the error says which, at which mini-batch. All earlier ones were trained,
    /// the failing one and all later ones were not; every thread has ended.
    pub fn train(
        &mut self,
        epoch: u32,
        batches: Range<u32>,
        stop: &Stop,
        observe: &mut dyn FnMut(&BatchDone),
    ) -> Result<EpochReport> {
        let Operators { route, transferring, training, .. } = &mut self.operators;
        let threads = training.set_threads(self.pool.schedule.training_threads.max(1));
        threads.map_err(|e| Error::failed(Some(&route.training), None, e))?;
        let transfer = Transfer { key: &route.transferring, operator: transferring.as_mut() };
        let job = Job { epoch, batches, consumer: Some(&route.training), stop };
        let step = &mut |batch: &MiniBatch| {
            let (score, accumulating) = training.accumulate(batch)?.wait()?;
            let ((), stepping) = training.step()?.wait()?;
            Ok((score, accumulating + stepping))
        };
        drive(&mut self.pool, Some(transfer), &job, step, observe)
    }

    /// Mini-batches of one epoch.
    pub fn num_batches(&self) -> u32 {
        self.pool.num_batches()
    }

    /// The schedule in use.
    pub fn schedule(&self) -> &Schedule {
        &self.pool.schedule
    }

    /// Changes the schedule between epochs, or between parts of one. Makes new workers only where it has to.
    ///
    /// # Errors
    ///
    /// As [`Pool::new`]; the schedule is then the one before.
    pub fn set_schedule(&mut self, schedule: &Schedule) -> Result<()> {
        let of = |s: &Schedule| (s.policy, s.workers, s.threads_per_worker);
        if of(schedule) == of(&self.pool.schedule) {
            self.pool.schedule = *schedule;
        } else {
            self.pool = Pool::new(&self.operators.route.batching, self.operators.batching.as_ref(), schedule)?;
        }
        Ok(())
    }

    /// The route's keys.
    pub fn route(&self) -> &Route {
        &self.operators.route
    }

    /// The operators.
    pub fn operators(&self) -> &Operators {
        &self.operators
    }

    /// The operators, between epochs: for evaluation, checkpoints, inference.
    /// Workers were made by the batching operator that was there; to change it, make a new executor.
    pub fn operators_mut(&mut self) -> &mut Operators {
        &mut self.operators
    }

    /// Gives the operators back.
    pub fn into_operators(self) -> Operators {
        self.operators
    }
}
