//! The operators an executor has, between epochs and while lanes have them.

use morphgl_plan::Schedule;
use morphgl_registry::{Batching, BatchingWorker, Key, MiniBatch, Route, Training, Transferring};

use crate::error::guarded;
use crate::lane::Operator;
use crate::lanes::Role;
use crate::{Error, Result};

/// The operators of a route, but for training: all routes share that.
#[derive(Debug)]
pub struct RouteOperators {
    /// Their keys.
    pub route: Route,
    /// Who batches.
    pub batching: Box<dyn Batching>,
    /// Who transfers.
    pub transferring: Box<dyn Transferring>,
}

/// Who trains, with its key.
pub type Trainer = (Key, Box<dyn Training>);

/// The operators of a route, lent between epochs: for evaluation, checkpoints, inference, profiling.
#[derive(Debug)]
pub struct Operators<'a> {
    /// Their keys.
    pub route: &'a Route,
    /// Who batches.
    pub batching: &'a dyn Batching,
    /// Who transfers.
    pub transferring: &'a mut dyn Transferring,
    /// Who trains.
    pub training: &'a mut dyn Training,
}

/// A route with its workers and their buffers, which are kept from epoch to epoch.
struct Own {
    route: Route,
    batching: Box<dyn Batching>,
    /// `None` after it panicked or hung.
    transferring: Option<Box<dyn Transferring>>,
    workers: Vec<Box<dyn BatchingWorker>>,
    /// Threads its workers were made for.
    threads: usize,
    spares: Vec<MiniBatch>,
}

/// The operators of all routes.
pub(crate) struct Crew {
    routes: Vec<Own>,
    training_key: Key,
    /// `None` after it panicked or hung.
    training: Option<Box<dyn Training>>,
    /// Whose operator panicked or hung, so that no further epoch can be run.
    lost: Option<Key>,
}

impl Crew {
    pub(crate) fn new(routes: Vec<RouteOperators>, (training_key, training): Trainer) -> Self {
        let own = |r: RouteOperators| Own {
            route: r.route,
            batching: r.batching,
            transferring: Some(r.transferring),
            workers: Vec::new(),
            threads: 0,
            spares: Vec::new(),
        };
        let routes = routes.into_iter().map(own).collect();
        Self { routes, training_key, training: Some(training), lost: None }
    }

    pub(crate) fn routes(&self) -> impl ExactSizeIterator<Item = &Route> {
        self.routes.iter().map(|r| &r.route)
    }

    pub(crate) fn training_key(&self) -> &Key {
        &self.training_key
    }

    /// Whether all operators are there.
    pub(crate) fn whole(&self) -> Result<()> {
        match &self.lost {
            None => Ok(()),
            Some(key) => Err(Error::setting(key, "lost when it failed earlier; make a new executor".to_string())),
        }
    }

    /// Makes the workers of a schedule whose shares are of these routes; those that fit it are kept.
    ///
    /// # Errors
    ///
    /// A worker cannot be made; nothing has changed then.
    pub(crate) fn make_workers(&mut self, schedule: &Schedule, shares: &[usize]) -> Result<()> {
        let mut made = Vec::new();
        for (share, &route) in schedule.shares.iter().zip(shares) {
            let own = &self.routes[route];
            let (workers, threads) = (share.workers.max(1), share.threads_per_worker.max(1));
            let kept = if own.threads == threads { own.workers.len().min(workers) } else { 0 };
            let make = || (kept..workers).map(|_| own.batching.worker(threads)).collect();
            let new: Vec<_> = guarded(Some(&own.route.batching), None, make)?;
            made.push((kept, threads, new));
        }
        for (_, own) in self.routes.iter_mut().enumerate().filter(|(i, _)| !shares.contains(i)) {
            own.workers.clear();
            own.spares.clear();
        }
        for (&route, (kept, threads, new)) in shares.iter().zip(made) {
            let own = &mut self.routes[route];
            own.workers.truncate(kept);
            own.workers.extend(new);
            own.threads = threads;
        }
        Ok(())
    }

    pub(crate) fn set_training_threads(&mut self, threads: usize) -> Result<()> {
        let training = self.training.as_mut().expect("nothing is lost");
        guarded(Some(&self.training_key), None, || training.set_threads(threads))
    }

    /// The spares of every share.
    pub(crate) fn take_spares(&mut self, shares: &[usize]) -> Vec<Vec<MiniBatch>> {
        shares.iter().map(|&route| std::mem::take(&mut self.routes[route].spares)).collect()
    }

    /// The operators of all lanes that have something to do, training first.
    pub(crate) fn lend(&mut self, schedule: &Schedule, shares: &[usize]) -> Vec<(Role, Key, Operator)> {
        let training = self.training.take().expect("nothing is lost");
        let mut lent = vec![(Role::Training, self.training_key.clone(), Operator::Training(training))];
        for (i, (share, &route)) in schedule.shares.iter().zip(shares).enumerate().filter(|(_, s)| s.0.batches > 0) {
            // More workers than mini-batches would have nothing to do.
            let busy = share.workers.max(1).min(share.batches);
            let Own { route, transferring, workers, .. } = &mut self.routes[route];
            let transferring = transferring.take().expect("nothing is lost");
            lent.push((Role::Transferring(i), route.transferring.clone(), Operator::Transferring(transferring)));
            let workers = workers.drain(..busy).map(Operator::Batching);
            lent.extend(workers.map(|worker| (Role::Worker(i), route.batching.clone(), worker)));
        }
        lent
    }

    /// Takes back what lanes and buffers had; who is not there is lost.
    pub(crate) fn take_back(
        &mut self,
        shares: &[usize],
        lanes: Vec<(Role, std::result::Result<Operator, Key>)>,
        spares: Vec<Vec<MiniBatch>>,
    ) {
        for (role, operator) in lanes {
            match (role, operator) {
                (Role::Training, Ok(Operator::Training(training))) => self.training = Some(training),
                (Role::Transferring(share), Ok(Operator::Transferring(transferring))) => {
                    self.routes[shares[share]].transferring = Some(transferring);
                }
                (Role::Worker(share), Ok(Operator::Batching(worker))) => {
                    self.routes[shares[share]].workers.push(worker);
                }
                (_, Err(key)) => drop(self.lost.get_or_insert(key)),
                (role, Ok(_)) => unreachable!("another operator than that of {role:?}"),
            }
        }
        for (&route, spares) in shares.iter().zip(spares) {
            self.routes[route].spares = spares;
        }
    }

    pub(crate) fn training_mut(&mut self) -> Result<&mut dyn Training> {
        self.whole()?;
        Ok(self.training.as_mut().expect("nothing is lost").as_mut())
    }

    pub(crate) fn operators_mut(&mut self, route: usize) -> Result<Operators<'_>> {
        self.whole()?;
        let Own { route, batching, transferring, .. } = &mut self.routes[route];
        Ok(Operators {
            route: &*route,
            batching: &**batching,
            transferring: transferring.as_mut().expect("nothing is lost").as_mut(),
            training: self.training.as_mut().expect("nothing is lost").as_mut(),
        })
    }

    pub(crate) fn into_parts(self) -> Result<(Vec<RouteOperators>, Trainer)> {
        self.whole()?;
        let own = |r: Own| RouteOperators {
            route: r.route,
            batching: r.batching,
            transferring: r.transferring.expect("nothing is lost"),
        };
        let training = self.training.expect("nothing is lost");
        Ok((self.routes.into_iter().map(own).collect(), (self.training_key, training)))
    }
}
