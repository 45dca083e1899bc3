//! Routes of fake operators with given durations, on the host and on a device.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use morphgl_conformance::fake::{Fake, Fault, Log, State, route};
use morphgl_profile::{Profile, Progress, Selection, Settings, Watch, profile, select};
use morphgl_registry::{Machine, Operators, Phase, Place, Route};

use crate::memory::{STEP, WORKER};

/// Milliseconds of the phases on one thread; batching and training with t threads take a t-th of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub(crate) batching: u64,
    pub(crate) transferring: u64,
    pub(crate) training: u64,
}

pub(crate) const QUICK: Times = Times { batching: 2, transferring: 1, training: 4 };

/// The state of every trainer before it is profiled.
const INITIAL: State = State { calls: 0, parameter: 0.5, steps: 7, accumulated: 0, threads: 1 };

/// The fake operators of a test.
pub(crate) struct Fakes {
    pub(crate) routes: Vec<FakeRoute>,
    pub(crate) trainers: Vec<Fake>,
    pub(crate) selections: Vec<Selection>,
    pub(crate) log: Arc<Log>,
}

pub(crate) struct FakeRoute {
    pub(crate) batching: Fake,
    pub(crate) transferring: Fake,
    /// The trainer it leads to.
    pub(crate) training: Fake,
    pub(crate) gathering: Phase,
    pub(crate) queueing: Vec<Phase>,
}

impl Fakes {
    /// No operators.
    pub(crate) fn none() -> Self {
        Self { routes: Vec::new(), trainers: Vec::new(), selections: Vec::new(), log: Arc::default() }
    }

    /// One route, all on the CPU.
    pub(crate) fn new(num_batches: usize, times: Times) -> Self {
        let mut fakes = Self::none();
        fakes.add_trainer("Training_CPU_Fake", times);
        fakes.add_route(num_batches, times, ["Batching_CPU_Fake", "Transferring_CPU_Fake"], 0);
        fakes
    }

    /// The same, and the routes of a device: batched by the host or the device, trained by the device.
    pub(crate) fn with_device(num_batches: usize, times: Times) -> Self {
        let mut fakes = Self::new(num_batches, times);
        fakes.add_trainer("Training_NPU_Fake", times);
        fakes.add_route(num_batches, times, ["Batching_CPU_Fake", "Transferring_PCIe_Fake"], 1);
        fakes.add_route(num_batches, times, ["Batching_NPU+PCIe_Fake", "Transferring_NPU_Fake"], 1);
        fakes
    }

    fn fake(&self, key: &str, num_batches: usize, bytes: u64, millis: u64) -> Fake {
        let mut fake = Fake { num_batches, bytes: bytes as usize, ..Fake::new(key, &self.log) };
        fake.takes(move |_| millis as f64);
        fake
    }

    pub(crate) fn add_trainer(&mut self, key: &str, times: Times) {
        let trainer = self.fake(key, 0, STEP, times.training);
        *trainer.state() = INITIAL;
        self.trainers.push(trainer);
    }

    pub(crate) fn add_route(&mut self, num_batches: usize, times: Times, before: [&str; 2], trainer: usize) {
        self.routes.push(FakeRoute {
            batching: self.fake(before[0], num_batches, WORKER, times.batching),
            transferring: self.fake(before[1], 0, 0, times.transferring),
            training: self.trainers[trainer].clone(),
            gathering: Phase::Batching,
            queueing: Vec::new(),
        });
    }

    /// Adds a trainer on the CPU, with a route of its own and its own times.
    pub(crate) fn rival(&mut self, name: &str, times: Times) {
        self.add_trainer(&format!("Training_CPU_{name}"), times);
        let (num_batches, trainer) = (self.routes[0].batching.num_batches, self.trainers.len() - 1);
        self.add_route(num_batches, times, ["Batching_CPU_Fake", "Transferring_CPU_Fake"], trainer);
    }

    pub(crate) fn profile(&mut self, settings: &Settings) -> morphgl_profile::Result<Profile> {
        self.profile_watched(settings, &Watch::NONE, &mut |_| {})
    }

    pub(crate) fn profile_watched(
        &mut self,
        settings: &Settings,
        watch: &Watch<'_>,
        progress: &mut dyn FnMut(&Progress),
    ) -> morphgl_profile::Result<Profile> {
        profile(&mut self.operators(), &self.selections, &Machine::probe(), settings, watch, progress)
    }

    /// Chooses among all trainers; a later profile gets the selection, and measures the routes of the chosen trainer.
    pub(crate) fn select(&mut self, settings: &Settings, watch: &Watch<'_>) -> morphgl_profile::Result<Selection> {
        let mut operators = self.operators();
        let routes = operators.routes_to(&Place::Host);
        let selection = select(&mut operators, &routes, settings, watch, &mut |_| {})?;
        self.routes.retain(|route| route.training.key == selection.chosen);
        self.selections.push(selection.clone());
        Ok(selection)
    }

    fn operators(&self) -> Operators {
        let of = |fake: &FakeRoute| {
            let mut operators = route(&fake.batching, &fake.transferring, &fake.training);
            let (gathering, queueing) = (fake.gathering, fake.queueing.clone());
            operators.route = Route { gathering, queueing, ..operators.route };
            operators
        };
        Operators {
            routes: self.routes.iter().map(of).collect(),
            trainers: self.trainers.iter().map(Fake::trainer).collect(),
        }
    }

    /// Number of a trainer's steps, those that failed included.
    pub(crate) fn steps(&self, trainer: usize) -> usize {
        self.trainers[trainer].state().calls
    }

    /// Checks that the models are unchanged, and no worker or device mini-batch is left.
    #[track_caller]
    pub(crate) fn check_unchanged(&self) {
        for trainer in &self.trainers {
            let state = *trainer.state();
            let expected = State { calls: state.calls, threads: state.threads, ..INITIAL };
            assert_eq!(state, expected, "the model of {trainer:?} is unchanged");
        }
        let record = self.log.record();
        assert_eq!(record.workers.now, 0, "no worker is left");
        assert_eq!(record.on_device.now, 0, "the device's memory is free");
    }
}

/// Lets the `n`-th call fail, from 0.
pub(crate) fn fail(fake: &mut Fake, n: usize, fault: Fault) {
    fake.fails(move |call| (call.nth == n).then_some(fault));
}

/// Settings with time for every point.
pub(crate) fn unlimited(cores: usize) -> Settings {
    Settings { budget: Duration::from_secs(600), epochs: None, batches: 3, ..Settings::new(cores) }
}

/// A temporary file, removed at the end of the test.
pub(crate) struct File(pub(crate) PathBuf);

impl File {
    pub(crate) fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("morphgl-profile-{}-{name}", std::process::id())))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).ok();
    }
}
