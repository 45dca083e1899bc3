//! The four steps of morphgl's Listing 1: profile, partition, schedule, execute.

use std::sync::Arc;

use anyhow::Result;
use morphgl_execute::{BatchDone, EpochReport, Stop};
use morphgl_graph_store::Dataset;
use morphgl_plan::{Limits, Plan, Plans, Problem};
use morphgl_profile::{Operators, Profile, Progress, Settings};
use morphgl_registry::{Registry, Training};

use crate::{Job, JobConfig, Scores};

/// Measures every phase of a job's route on this machine (morphgl §IV-A).
#[derive(Debug, Clone)]
pub struct Profiler {
    /// What is measured, and how much of it.
    pub settings: Settings,
}

impl Profiler {
    /// The default measurements for a machine of so many cores.
    pub fn new(cores: usize) -> Self {
        Self { settings: Settings::new(cores) }
    }

    /// Measures; the job's model is the same afterwards as before.
    ///
    /// # Errors
    ///
    /// A failing operator, by its key.
    pub fn measure(&self, job: &mut Job, progress: &mut dyn FnMut(&Progress)) -> Result<Profile> {
        let machine = job.registry().machine().clone();
        let built = job.operators_mut();
        let mut operators = Operators {
            route: &built.route,
            batching: built.batching.as_ref(),
            transferring: built.transferring.as_mut(),
            training: built.training.as_mut(),
        };
        Ok(morphgl_profile::profile(&mut operators, &machine, &self.settings, progress)?)
    }
}

/// Divides an epoch's mini-batches among routes (morphgl §IV-B1).
///
/// On a machine with one route they all go to it, and what is left to divide are its cores.
#[derive(Debug, Clone, Copy)]
pub struct Partitioner;

impl Partitioner {
    /// The planning problem of a profiled route on `cores` cores.
    pub fn partition(profile: &Profile, cores: usize) -> Problem {
        Problem {
            route: profile.route_keys(),
            num_batches: profile.num_batches,
            cores,
            durations: profile.durations(),
            limits: Limits::default(),
        }
    }
}

/// Predicts every way to run the partition, the best first (morphgl §IV-B3).
///
/// The search is exhaustive, so the loop of Listing 1 between partitioner and scheduler converges at once.
#[derive(Debug, Clone, Copy)]
pub struct Scheduler;

impl Scheduler {
    /// All plans of a problem, by predicted epoch time.
    pub fn schedule(problem: &Problem) -> Plans {
        morphgl_plan::plan(problem)
    }
}

/// Trains epochs by a plan with real threads (morphgl §IV-B4).
#[derive(Debug)]
pub struct Executor {
    dataset: Arc<Dataset>,
    config: JobConfig,
    registry: Registry,
    inner: morphgl_execute::Executor,
    plan: Plan,
}

impl Executor {
    /// Makes the plan's workers.
    ///
    /// # Errors
    ///
    /// Threads that cannot be started.
    pub fn new(job: Job, plan: &Plan) -> Result<Self> {
        let (dataset, config, registry, operators) = job.into_parts();
        let inner = morphgl_execute::Executor::new(operators, &plan.schedule)?;
        Ok(Self { dataset, config, registry, inner, plan: plan.clone() })
    }

    /// Trains one epoch, or what of it is done when `stop` is requested.
    ///
    /// # Errors
    ///
    /// A failing operator, with its key and mini-batch.
    pub fn epoch(&mut self, epoch: u32, stop: &Stop, observe: &mut dyn FnMut(&BatchDone)) -> Result<EpochReport> {
        let batches = 0..self.inner.num_batches();
        Ok(self.inner.train(epoch, batches, stop, observe)?)
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The dataset.
    pub fn dataset(&self) -> &Arc<Dataset> {
        &self.dataset
    }

    /// The configuration.
    pub fn config(&self) -> &JobConfig {
        &self.config
    }

    /// The operators and the machine.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The operators of the route, between epochs: for evaluation, and for the model.
    pub fn operators_mut(&mut self) -> &mut morphgl_execute::Operators {
        self.inner.operators_mut()
    }

    /// The training operator, between epochs, with all of the job's threads.
    ///
    /// # Errors
    ///
    /// Threads that cannot be started.
    pub fn with_all_threads<R>(&mut self, work: impl FnOnce(&mut dyn Training) -> Result<R>) -> Result<R> {
        let threads = self.config.threads.unwrap_or(self.registry.machine().cores).max(1);
        let planned = self.plan.schedule.training_threads;
        let training = self.inner.operators_mut().training.as_mut();
        training.set_threads(threads)?;
        let result = work(training);
        training.set_threads(planned)?;
        result
    }

    /// Scores sets of nodes on mini-batches sampled as in training.
    ///
    /// # Errors
    ///
    /// A failing operator, with its key and mini-batch.
    pub fn sampled(&mut self, sets: &[&[u32]]) -> Result<Scores> {
        let operators = self.inner.operators_mut();
        let mut sampled = crate::Sampled {
            registry: &self.registry,
            route: &operators.route,
            dataset: &self.dataset,
            settings: &self.config.sampler,
            schedule: &self.plan.schedule,
            transferring: operators.transferring.as_mut(),
            training: operators.training.as_mut(),
        };
        sampled.scores(sets)
    }
}
