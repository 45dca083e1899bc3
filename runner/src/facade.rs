//! The four steps of morphgl's Listing 1: profile, partition, schedule, execute.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use anyhow::{Result, bail};
use morphgl_execute::{Control, EpochReport, Event, Settings as ExecutorSettings, Stop, add_counters};
use morphgl_graph_store::Dataset;
use morphgl_plan::{Drift, Limits, Plan, Plans, Problem, Replanner};
use morphgl_profile::{MemoryLimit, Profile, Progress, RouteProfile, Settings, Watch};
use morphgl_registry::{Registry, Score, Training};

use crate::budget::Purpose;
use crate::evaluate::Sampled;
use crate::{Job, JobConfig, OperatorBuilder, budget};

/// Measures every phase of a job's routes on this machine (morphgl §IV-B1).
#[derive(Debug, Clone)]
pub struct Profiler {
    /// Settings of the measurements.
    pub settings: Settings,
}

impl Profiler {
    /// The default measurements for a number of cores.
    pub fn new(cores: usize) -> Self {
        Self { settings: Settings::new(cores) }
    }

    /// Keeps the fastest training operator at each place ([`Job::select`]), and measures the job's routes within `memory`. The
    /// job's model is not changed.
    ///
    /// # Errors
    ///
    /// A failing operator, by its key; or `stop` was requested.
    pub fn measure(
        &self,
        job: &mut Job,
        stop: &Stop,
        memory: Option<MemoryLimit<'_>>,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Profile> {
        let machine = job.registry.machine().clone();
        let watch = Watch { stop: &|| stop.is_requested(), memory };
        job.select(&self.settings, &watch, progress)?;
        let Job { operators, selections, .. } = job;
        let profile = morphgl_profile::profile(operators, selections, &machine, &self.settings, &watch, progress);
        let mut profile = profile?;
        for RouteProfile { route, cache, .. } in &mut profile.routes {
            if budget::is_fixed(&job.config, &job.registry, &route.batching)? {
                // The user's size is kept.
                cache.iter_mut().for_each(|cache| cache.points.clear());
            }
        }
        Ok(profile)
    }
}

/// States the planning problem: routes, resources, durations, limits (morphgl §IV-A).
#[derive(Debug, Clone, Copy)]
pub struct Partitioner;

impl Partitioner {
    /// The problem of a profile on `cores` cores.
    pub fn partition(profile: &Profile, cores: usize, limits: Limits) -> Problem {
        profile.problem(cores, limits)
    }
}

/// Divides an epoch's mini-batches among routes and orders their phases (morphgl §IV-B2 and §IV-B3).
///
/// The search covers divisions and schedules together, so the loop of Listing 1 converges at once.
#[derive(Debug, Clone, Copy)]
pub struct Scheduler;

impl Scheduler {
    /// The best plan of every strategy, by predicted epoch time.
    ///
    /// # Errors
    ///
    /// Nothing fits the limits.
    pub fn schedule(problem: &Problem) -> Result<Plans> {
        Ok(morphgl_plan::plan(problem)?)
    }
}

/// Trains epochs by a plan with real threads (morphgl §IV-B4), and plans again when durations change.
#[derive(Debug)]
pub struct Executor {
    pub(crate) dataset: Arc<Dataset>,
    pub(crate) config: JobConfig,
    registry: Registry,
    inner: morphgl_execute::Executor,
    plan: Plan,
    /// The problem with the durations measured so far; `None` for a fixed plan.
    problem: Option<Problem>,
    /// Whether the durations of `problem` are newer than the plan.
    drifted: bool,
}

impl Executor {
    /// Takes from the job the operators that the plan names; those whose caches have another size in the plan are built again.
    ///
    /// With a `problem`, the rest of an epoch is planned again when measured durations drift; caches keep their sizes.
    ///
    /// # Errors
    ///
    /// A plan of operators that the job does not have, or of another number of mini-batches; or a cache that cannot be built.
    pub fn new(mut job: Job, plan: &Plan, problem: Option<Problem>, settings: ExecutorSettings) -> Result<Self> {
        job.resize_caches(&plan.caches)?;
        let problem = problem.map(|problem| problem.settled(&plan.caches));
        let Job { dataset, config, registry, operators, .. } = job;
        let inner = morphgl_execute::Executor::new(operators, &plan.schedule, settings)?;
        Ok(Self { dataset, config, registry, inner, plan: plan.clone(), problem, drifted: false })
    }

    /// Trains one epoch, or a part of it until `stop` is requested.
    ///
    /// # Errors
    ///
    /// A failing operator, with its key and mini-batch.
    pub fn epoch(&mut self, epoch: u32, stop: &Stop, observe: &mut dyn FnMut(&Event<'_>)) -> Result<EpochReport> {
        self.plan_epoch()?;
        let mut left: Vec<u32> = (0..self.inner.num_batches()).collect();
        let mut whole: Option<EpochReport> = None;
        loop {
            let problem = self.problem.clone();
            let mut watch = problem.map(|p| Replanner::new(p, &self.plan.schedule, Drift::default()));
            let mut replanned = None;
            let offset = whole.as_ref().map_or(0.0, |r| r.seconds);
            let report = self.inner.train(epoch, &left, stop, &mut |event| {
                match *event {
                    Event::Ended(mut activity) => {
                        if let Some(watch) = &mut watch {
                            watch.observe(activity.share, activity.phase, activity.span.seconds());
                        }
                        (activity.span.start, activity.span.end) =
                            (activity.span.start + offset, activity.span.end + offset);
                        observe(&Event::Ended(activity));
                    }
                    Event::Trained(batch) => {
                        observe(event);
                        if let Some(watch) = watch.as_mut().filter(|w| replanned.is_none() && w.is_due()) {
                            replanned = watch.judge(batch.left);
                        }
                    }
                    _ => observe(event),
                }
                if replanned.is_some() { Control::Cut } else { Control::Continue }
            })?;
            if let Some(watch) = watch {
                // Durations that brought no better plan for this epoch are used for the next one's.
                self.drifted |= self.problem.as_ref() != Some(watch.problem());
                self.problem = Some(watch.problem().clone());
            }
            left.clone_from(&report.remaining);
            match &mut whole {
                Some(whole) => append(whole, report),
                None => whole = Some(report),
            }
            if let Some(mut replanned) = replanned
                && !left.is_empty()
                && !stop.is_requested()
            {
                self.plan_for(left.len())?;
                replanned.plan = self.plan.clone();
                observe(&Event::Replanned(&replanned));
                continue;
            }
            let mut whole = whole.expect("an epoch has a part");
            whole.stopped = !left.is_empty();
            return Ok(whole);
        }
    }

    /// The plan of the next epoch: a new one where durations changed in the last.
    ///
    /// # Errors
    ///
    /// Nothing fits the limits.
    pub fn plan_epoch(&mut self) -> Result<&Plan> {
        if std::mem::take(&mut self.drifted) {
            self.plan_for(self.inner.num_batches() as usize)?;
        }
        Ok(&self.plan)
    }

    /// Plans `num_batches` mini-batches with the durations measured so far.
    fn plan_for(&mut self, num_batches: usize) -> Result<()> {
        let Some(problem) = &self.problem else { return Ok(()) };
        let problem = problem.clone().with_batches(num_batches);
        self.plan = morphgl_plan::plan(&problem)?.best().clone();
        self.problem = Some(problem);
        Ok(self.inner.set_schedule(&self.plan.schedule)?)
    }

    /// The training operator, between epochs.
    ///
    /// # Errors
    ///
    /// An earlier failure lost the operator.
    pub fn training_mut(&mut self) -> Result<&mut dyn Training> {
        Ok(self.inner.training_mut()?)
    }

    /// The training operator, between epochs, with all of the job's threads.
    ///
    /// # Errors
    ///
    /// Threads that cannot be started, or an operator that panics.
    pub fn with_all_threads<R>(&mut self, work: impl FnOnce(&mut dyn Training) -> Result<R>) -> Result<R> {
        let threads = self.config.num_threads(&self.registry);
        let key = self.inner.training_key().clone();
        let training = self.training_mut()?;
        let done = catch_unwind(AssertUnwindSafe(|| {
            training.set_threads(threads)?;
            work(training)
        }));
        done.unwrap_or_else(|_| bail!("{key}: panicked, see above; this is a fault of the operator"))
    }

    /// Scores sets of nodes on mini-batches sampled as in training, with the plan's workers, at most `max_workers`.
    ///
    /// # Errors
    ///
    /// A failing operator, with its key and mini-batch.
    pub fn sampled(&mut self, sets: &[&[u32]], max_workers: Option<usize>) -> Result<Vec<Score>> {
        let share = &self.plan.schedule.shares[0];
        let (workers, threads) = (max_workers.unwrap_or(usize::MAX).min(share.workers), share.threads_per_worker);
        let (route, transferring, training) = self.inner.share_mut(0)?;
        let mut sampled = Sampled {
            builder: OperatorBuilder { dataset: &self.dataset, config: &self.config, registry: &self.registry },
            purpose: Purpose::EvaluationBesideTraining,
            route,
            workers,
            threads,
            memory: None,
            transferring,
            training,
        };
        sampled.scores(sets)
    }
}

/// Adds the next part of an epoch, run by another plan, to the report of its earlier parts.
fn append(whole: &mut EpochReport, part: EpochReport) {
    let offset = whole.seconds;
    whole.seconds += part.seconds;
    whole.batches += part.batches;
    whole.seeds += part.seeds;
    whole.edges += part.edges;
    whole.score += part.score;
    whole.busy += part.busy;
    whole.trainer_waited += part.trainer_waited;
    add_counters(&mut whole.counters, part.counters);
    whole.remaining = part.remaining;
    whole.peak_batched = whole.peak_batched.max(part.peak_batched);
    whole.peak_ready = whole.peak_ready.max(part.peak_ready);
    for (a, b) in whole.resources.iter_mut().zip(part.resources) {
        // Both list the machine's resources in the same order.
        a.share = (a.share * offset + b.share * part.seconds) / whole.seconds.max(f64::MIN_POSITIVE);
        a.seconds += b.seconds;
    }
    // Shares of different plans cannot be added: those of the last plan are kept.
    whole.shares = part.shares;
    whole.activities.extend(part.activities.into_iter().map(|mut a| {
        (a.span.start, a.span.end) = (a.span.start + offset, a.span.end + offset);
        a
    }));
}
