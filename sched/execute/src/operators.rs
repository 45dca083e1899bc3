//! The operators of an executor: owned between epochs, moved into the lanes while one is trained.

use std::sync::Arc;

use morphgl_plan::Schedule;
use morphgl_registry::{
    Batching, BatchingWorker, Key, MiniBatch, Operators, Place, Route, RouteOperators, Training, TrainingOperator,
    Transferring,
};

use crate::error::guarded;
use crate::lane::Operator;
use crate::{Error, Result};

/// A route's operators, with its workers and spare mini-batches, which are kept from epoch to epoch.
struct RouteState {
    route: Route,
    batching: Arc<dyn Batching>,
    /// `None` after it panicked or hung.
    transferring: Option<Box<dyn Transferring>>,
    workers: Vec<Box<dyn BatchingWorker>>,
    /// Threads of each worker.
    threads: usize,
    spares: Vec<MiniBatch>,
}

/// The routes to one training operator, and that operator.
pub(crate) struct ExecutorOperators {
    routes: Vec<RouteState>,
    training_key: Key,
    /// `None` after it panicked or hung.
    training: Option<Box<dyn Training>>,
    /// Index of the route of each share of the schedule in use.
    shares: Vec<usize>,
    /// Key of the first operator that panicked or hung: no further epoch can be run.
    lost: Option<Key>,
}

impl ExecutorOperators {
    /// Takes the training operator that the schedule names, or the first one, and the routes to it; drops all others.
    ///
    /// # Errors
    ///
    /// There is no training operator.
    pub(crate) fn new(operators: Operators, schedule: &Schedule) -> Result<Self> {
        let Operators { mut routes, mut trainers } = operators;
        if trainers.is_empty() {
            return Err(Error::setting(None, "there is no training operator; give one at least"));
        }
        let named = schedule.shares.first().map(|share| &share.keys.training);
        let index = trainers.iter().position(|t| Some(&t.key) == named).unwrap_or(0);
        let trainer = trainers.swap_remove(index);
        routes.retain(|r| (&r.route.training, &r.route.trained_at) == (&trainer.key, &trainer.place));
        let state = |RouteOperators { route, batching, transferring }| RouteState {
            route,
            batching,
            transferring: Some(transferring),
            workers: Vec::new(),
            threads: 0,
            spares: Vec::new(),
        };
        let routes = routes.into_iter().map(state).collect();
        let (training_key, training) = (trainer.key, Some(trainer.operator));
        Ok(Self { routes, training_key, training, shares: Vec::new(), lost: None })
    }

    pub(crate) fn into_operators(self) -> Operators {
        let Self { routes, training_key: key, training, .. } = self;
        let place = routes.first().map_or(Place::Host, |state| state.route.trained_at.clone());
        let operators = |RouteState { route, batching, transferring, .. }| {
            let transferring = transferring.expect("nothing is lost");
            RouteOperators { route, batching, transferring }
        };
        let trainers = vec![TrainingOperator { key, place, operator: training.expect("nothing is lost") }];
        Operators { routes: routes.into_iter().map(operators).collect(), trainers }
    }

    pub(crate) fn routes(&self) -> Vec<&Route> {
        self.routes.iter().map(|r| &r.route).collect()
    }

    pub(crate) fn training_key(&self) -> &Key {
        &self.training_key
    }

    /// # Errors
    ///
    /// An operator panicked or hung earlier.
    pub(crate) fn check(&self) -> Result<()> {
        let lost = |key| Err(Error::setting(Some(key), "lost when it failed earlier; make a new executor"));
        self.lost.as_ref().map_or(Ok(()), lost)
    }

    /// Number of mini-batches of an epoch, the same on every route.
    ///
    /// # Errors
    ///
    /// Two routes have the same keys, or different numbers of mini-batches.
    pub(crate) fn num_batches(&self) -> Result<u32> {
        let mut num_batches = None;
        for (i, RouteState { route, batching, .. }) in self.routes.iter().enumerate() {
            let keys = |route: &Route| (route.batching.clone(), route.transferring.clone());
            if self.routes[..i].iter().any(|r| keys(&r.route) == keys(route)) {
                let text = format!("twice with {}; give the routes of one device", route.transferring);
                return Err(Error::setting(Some(&route.batching), text));
            }
            let n = count(&route.batching, batching.as_ref())?;
            let first = *num_batches.get_or_insert(n);
            if n != first {
                let text =
                    format!("{n} mini-batches per epoch, another route has {first}; give all routes the same seeds");
                return Err(Error::setting(Some(&route.batching), text));
            }
        }
        Ok(num_batches.unwrap_or(0))
    }

    /// Makes the workers of a schedule whose shares are of the routes `shares`; workers that fit it are kept.
    ///
    /// # Errors
    ///
    /// A worker cannot be made; nothing has changed then.
    pub(crate) fn make_workers(&mut self, schedule: &Schedule, shares: Vec<usize>) -> Result<()> {
        let mut made = Vec::new();
        for (share, &route) in schedule.shares.iter().zip(&shares) {
            let state = &self.routes[route];
            let (workers, threads) = (share.workers.max(1), share.threads_per_worker.max(1));
            let kept = if state.threads == threads { state.workers.len().min(workers) } else { 0 };
            let make = || (kept..workers).map(|_| state.batching.worker(threads)).collect();
            let new: Vec<_> = guarded(Some(&state.route.batching), None, make)?;
            made.push((kept, threads, new));
        }
        for (_, state) in self.routes.iter_mut().enumerate().filter(|(i, _)| !shares.contains(i)) {
            state.workers.clear();
            state.spares.clear();
        }
        for (&route, (kept, threads, new)) in shares.iter().zip(made) {
            let state = &mut self.routes[route];
            state.workers.truncate(kept);
            state.workers.extend(new);
            state.threads = threads;
        }
        self.shares = shares;
        Ok(())
    }

    pub(crate) fn set_training_threads(&mut self, threads: usize) -> Result<()> {
        let training = self.training.as_mut().expect("nothing is lost");
        guarded(Some(&self.training_key), None, || training.set_threads(threads))
    }

    /// The spares of every share.
    pub(crate) fn take_spares(&mut self) -> Vec<Vec<MiniBatch>> {
        self.shares.iter().map(|&route| std::mem::take(&mut self.routes[route].spares)).collect()
    }

    /// The operators of all lanes that have work, with their shares: that of training (of all shares) first, then of each share
    /// that of transferring and the workers.
    pub(crate) fn lend(&mut self, schedule: &Schedule) -> Vec<(Option<usize>, Key, Operator)> {
        let training = self.training.take().expect("nothing is lost");
        let mut operators = vec![(None, self.training_key.clone(), Operator::Training(training))];
        for (i, (share, &route)) in
            schedule.shares.iter().zip(&self.shares).enumerate().filter(|(_, s)| s.0.batches > 0)
        {
            // More workers than mini-batches would have nothing to do.
            let busy = share.workers.max(1).min(share.batches);
            let RouteState { route, transferring, workers, .. } = &mut self.routes[route];
            let transferring = transferring.take().expect("nothing is lost");
            operators.push((Some(i), route.transferring.clone(), Operator::Transferring(transferring)));
            let workers = workers.drain(..busy).map(Operator::Batching);
            operators.extend(workers.map(|worker| (Some(i), route.batching.clone(), worker)));
        }
        operators
    }

    /// Takes back the operators of the lanes, `Err` for a lost one, and the spares of every share.
    pub(crate) fn take_back(
        &mut self,
        lanes: Vec<(Option<usize>, std::result::Result<Operator, Key>)>,
        spares: Vec<Vec<MiniBatch>>,
    ) {
        for (share, operator) in lanes {
            let state = share.map(|share| &mut self.routes[self.shares[share]]);
            match (operator, state) {
                (Ok(Operator::Training(training)), _) => self.training = Some(training),
                (Ok(Operator::Transferring(operator)), Some(state)) => state.transferring = Some(operator),
                (Ok(Operator::Batching(worker)), Some(state)) => state.workers.push(worker),
                (Err(key), _) => drop(self.lost.get_or_insert(key)),
                (Ok(_), None) => unreachable!("only training is of no share"),
            }
        }
        for (&route, spares) in self.shares.iter().zip(spares) {
            self.routes[route].spares = spares;
        }
    }

    pub(crate) fn training_mut(&mut self) -> Result<&mut dyn Training> {
        self.check()?;
        Ok(self.training.as_mut().expect("nothing is lost").as_mut())
    }

    pub(crate) fn share_mut(&mut self, share: usize) -> Result<(&Route, &mut dyn Transferring, &mut dyn Training)> {
        self.check()?;
        let RouteState { route, transferring, .. } = &mut self.routes[self.shares[share]];
        let transferring = transferring.as_mut().expect("nothing is lost").as_mut();
        Ok((route, transferring, self.training.as_mut().expect("nothing is lost").as_mut()))
    }
}

/// Mini-batches of one epoch, as a `BatchId` counts them.
///
/// # Errors
///
/// There are more than a `BatchId` counts.
pub(crate) fn count(key: &Key, batching: &dyn Batching) -> Result<u32> {
    let n = batching.num_batches();
    u32::try_from(n)
        .map_err(|_| Error::setting(Some(key), format!("{n} mini-batches per epoch are too many; make them larger")))
}
