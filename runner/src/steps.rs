//! The first three of the four steps of morphgl's Listing 1: profile, partition, schedule.

use anyhow::Result;
use morphgl_execute::Stop;
use morphgl_plan::{DoesNotFit, Limits, Plans, Problem};
use morphgl_profile::{MemoryLimit, Profile, Progress, RouteProfile, Settings, Watch};

use crate::{Job, budget};

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
        let machine = job.registry().machine().clone();
        let watch = Watch { stop: &|| stop.is_requested(), memory };
        job.select(&self.settings, &watch, progress)?;
        let Job { operators, selections, .. } = job;
        let profile = morphgl_profile::profile(operators, selections, &machine, &self.settings, &watch, progress);
        let mut profile = profile?;
        for RouteProfile { route, cache, device_cache, .. } in &mut profile.routes {
            // The user's size is kept. A device's cache has it only when accesses were counted, and is no part of the plan then.
            if budget::is_fixed(&job.config, job.context.registry(), &route.batching)? {
                cache.iter_mut().for_each(|cache| cache.points.clear());
            }
            if budget::is_fixed(&job.config, job.context.registry(), &route.transferring)? {
                *device_cache = None;
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
    pub fn schedule(problem: &Problem) -> Result<Plans, DoesNotFit> {
        morphgl_plan::plan(problem)
    }
}
