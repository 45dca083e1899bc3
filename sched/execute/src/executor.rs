//! Epochs of training.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Instant;

use morphgl_plan::{Order, Replay, Schedule, simulate};
use morphgl_registry::{Key, Route, Training};

use crate::buffers::Buffers;
use crate::crew::Crew;
use crate::engine::{Closed, Engine, Job};
use crate::lanes::Lanes;
use crate::matching::routes_of;
use crate::tally::Tally;
use crate::{
    Control, EpochReport, Error, ErrorKind, Event, Operators, Result, RouteOperators, Settings, Stop, Trainer, pool,
};

/// Runs epochs by a schedule, in the order in which the schedule's own simulation begins its phases.
pub struct Executor {
    crew: Crew,
    num_batches: u32,
    settings: Settings,
    schedule: Schedule,
    order: Order,
    /// The route of each share.
    shares: Vec<usize>,
}

impl Executor {
    /// Takes operators, and makes the schedule's workers. Routes that the schedule does not use are there for later ones.
    ///
    /// # Errors
    ///
    /// A share of the schedule is of no route by its keys, two routes have the same keys, the schedule has more mini-batches than an epoch, routes have different
    /// numbers of mini-batches, or a worker cannot be made.
    pub fn new(
        routes: Vec<RouteOperators>,
        training: Trainer,
        schedule: &Schedule,
        settings: Settings,
    ) -> Result<Self> {
        let mut num_batches = None;
        for (i, RouteOperators { route, batching, .. }) in routes.iter().enumerate() {
            let same = |r: &RouteOperators| {
                (&r.route.batching, &r.route.transferring) == (&route.batching, &route.transferring)
            };
            if routes[..i].iter().any(same) {
                let what = format!("twice with {}; give the routes of one device", route.transferring);
                return Err(Error::setting(&route.batching, what));
            }
            let n = pool::count(&route.batching, batching.as_ref())?;
            let first = *num_batches.get_or_insert(n);
            if n != first {
                let what =
                    format!("{n} mini-batches an epoch, another route has {first}; give all routes the same seeds");
                return Err(Error::setting(&route.batching, what));
            }
        }
        let mut executor = Self {
            crew: Crew::new(routes, training),
            num_batches: num_batches.unwrap_or(0),
            settings,
            schedule: schedule.clone(),
            order: Order::default(),
            shares: Vec::new(),
        };
        executor.set_schedule(schedule)?;
        Ok(executor)
    }

    /// Changes the schedule between epochs, or between parts of one. Workers are kept where they fit the new one.
    ///
    /// # Errors
    ///
    /// As [`Executor::new`]; the schedule is then the one before.
    pub fn set_schedule(&mut self, schedule: &Schedule) -> Result<()> {
        let routes: Vec<&Route> = self.routes().collect();
        let shares = routes_of(schedule, &routes, self.training_key(), self.num_batches)?;
        self.crew.make_workers(schedule, &shares)?;
        (self.schedule, self.order, self.shares) = (schedule.clone(), simulate(schedule).order, shares);
        Ok(())
    }

    /// Trains on mini-batches of an epoch, one step each: position p of the schedule's order is `batches[p]`.
    /// There are as many as the schedule is for; of a whole epoch, `0..executor.num_batches()`.
    ///
    /// Every worker, every share's transferring and training run in threads of their own; `observe` is called on the calling
    /// thread, after every phase of every mini-batch, before anything else begins.
    /// The order of training is the schedule's, whatever the durations are.
    ///
    /// A stop ends it after what lanes are at; other mini-batches that have begun are dropped. A [`Control::Cut`] lets what has
    /// begun be trained. Either way the report lists the `remaining` ones, for the schedule of another call.
    ///
    /// # Errors
    ///
    /// An operator failed, panicked or hung: the error says which, at which mini-batch. Nothing new has begun since, what other
    /// operators were at has ended, and so have all threads but those that hang.
    /// After a panic or a hang the operator is lost, and every further call is an error.
    /// An error too: another number of mini-batches than the schedule's, one that does not exist, one listed twice.
    pub fn train(
        &mut self,
        epoch: u32,
        batches: &[u32],
        stop: &Stop,
        observe: &mut dyn FnMut(&Event<'_>) -> Control,
    ) -> Result<EpochReport> {
        self.check(batches)?;
        self.crew.set_training_threads(self.schedule.training_threads.max(1))?;
        let start = Instant::now();
        let spares = self.crew.take_spares(&self.shares);
        let (lanes, started) = Lanes::start(start, self.crew.lend(&self.schedule, &self.shares));
        let mut engine = Engine::new(
            Job { epoch, batches, limit: self.settings.limit, start },
            (lanes, started.err()),
            Replay::new(&self.schedule, &self.order),
            Buffers::new(&self.schedule, spares),
            Tally::new(epoch, &self.schedule, self.settings.record),
        );
        let panicked = catch_unwind(AssertUnwindSafe(|| engine.run(stop, observe))).err();
        if panicked.is_some() {
            engine.drain();
        }
        let Closed { lanes, spares, report } = engine.close();
        self.crew.take_back(&self.shares, lanes, spares);
        match panicked {
            // The observer's own: operators' panics are caught in their lanes.
            Some(payload) => resume_unwind(payload),
            None => report,
        }
    }

    /// Whether an epoch can be run on these mini-batches.
    fn check(&self, batches: &[u32]) -> Result<()> {
        self.crew.whole()?;
        let wrong = |what: String| Err(Error { operator: None, batch: None, kind: ErrorKind::Setting(what) });
        let (given, planned) = (batches.len(), self.schedule.num_batches());
        if given != planned {
            return wrong(format!("{given} mini-batches are to be trained, the schedule is for {planned}; plan again"));
        }
        let mut sorted = batches.to_vec();
        sorted.sort_unstable();
        if let Some(last) = sorted.last().filter(|&&last| last >= self.num_batches) {
            let have = self.num_batches;
            return wrong(format!("mini-batch {last} is asked for, an epoch has {have}; ask for those from 0 on"));
        }
        match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => wrong(format!("mini-batch {} is asked for twice; ask for it once", pair[0])),
            None => Ok(()),
        }
    }

    /// Mini-batches of one epoch.
    pub fn num_batches(&self) -> u32 {
        self.num_batches
    }

    /// The schedule in use.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// The settings.
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// The routes' keys.
    pub fn routes(&self) -> impl ExactSizeIterator<Item = &Route> {
        self.crew.routes()
    }

    /// Who trains.
    pub fn training_key(&self) -> &Key {
        self.crew.training_key()
    }

    /// The training operator, between epochs.
    ///
    /// # Errors
    ///
    /// An operator panicked or hung earlier.
    pub fn training_mut(&mut self) -> Result<&mut dyn Training> {
        self.crew.training_mut()
    }

    /// The operators of a route by its position among [`Executor::routes`], between epochs.
    ///
    /// # Errors
    ///
    /// An operator panicked or hung earlier.
    ///
    /// # Panics
    ///
    /// When there is no such route.
    pub fn operators_mut(&mut self, route: usize) -> Result<Operators<'_>> {
        self.crew.operators_mut(route)
    }

    /// Gives the operators back.
    ///
    /// # Errors
    ///
    /// An operator panicked or hung earlier.
    pub fn into_parts(self) -> Result<(Vec<RouteOperators>, Trainer)> {
        self.crew.into_parts()
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let routes: Vec<&Route> = self.routes().collect();
        let mut f = f.debug_struct("Executor");
        f.field("routes", &routes).field("schedule", &self.schedule).field("settings", &self.settings);
        f.finish_non_exhaustive()
    }
}
