//! A machine of one accelerator, by five durations: a route that the host's workers batch, and one that the device batches.

use morphgl_plan::{
    Bytes, Candidate, Durations, Hardware, Plans, Policy, Problem, Resource, RouteKeys, Schedule, ScheduleShare,
    Seconds, plan, simulate,
};

/// Names of the resources.
pub(crate) const CPU: &str = "CPU";
pub(crate) const LINK: &str = "PCIe";
pub(crate) const DEVICE: &str = "Device";

/// The two routes of such a machine. Seconds per mini-batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Pair {
    /// Mini-batches of an epoch.
    pub(crate) batches: usize,
    /// Workers of the host.
    pub(crate) workers: usize,
    /// One worker.
    pub(crate) host: f64,
    /// Copying what it batched.
    pub(crate) copying: f64,
    /// Batching by the device.
    pub(crate) device: f64,
    /// Gathering by the device.
    pub(crate) gathering: f64,
    pub(crate) training: f64,
}

/// The route of a baseline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    Host,
    Device,
}

fn hardware(phases: [&[&str]; 3]) -> Hardware {
    let [batching, transferring, training] = phases.map(|names| names.iter().map(|n| n.to_string()).collect());
    Hardware { batching, transferring, training }
}

fn keys(batching: &str, transferring: &str) -> RouteKeys {
    let key = |text: &str| text.parse().expect("a key");
    RouteKeys { batching: key(batching), transferring: key(transferring), training: key("Training_Device_Step") }
}

impl Pair {
    fn resources(&self) -> Vec<Resource> {
        vec![Resource::shared(CPU, self.workers), Resource::exclusive(LINK), Resource::exclusive(DEVICE)]
    }

    fn share(&self, route: Route) -> ScheduleShare {
        let both: &[&str] = &[LINK, DEVICE];
        let (keys, hardware, workers, batching, transferring) = match route {
            Route::Host => (
                keys("Batching_CPU_Neighbor", "Transferring_PCIe_Dma"),
                hardware([&[CPU], &[LINK], &[DEVICE]]),
                self.workers,
                self.host,
                self.copying,
            ),
            Route::Device => (
                keys("Batching_Device+PCIe_Neighbor", "Transferring_Device+PCIe_Gather"),
                hardware([both, both, &[DEVICE]]),
                1,
                self.device,
                self.gathering,
            ),
        };
        ScheduleShare {
            keys,
            hardware,
            in_place: route == Route::Device,
            batches: self.batches,
            workers,
            threads_per_worker: 1,
            batching: Seconds::constant(batching),
            transferring: Seconds::constant(transferring),
            training: Seconds::constant(self.training),
            contention: None,
        }
    }

    fn candidate(&self, route: Route) -> Candidate {
        let share = self.share(route);
        let [batching, transferring] = [share.batching.mean, share.transferring.mean];
        let durations = Durations::constant(share.workers, batching, transferring, self.training).expect("valid");
        let ScheduleShare { keys, hardware, in_place, .. } = share;
        Candidate { keys, hardware, in_place, on_host: false, durations, bytes: Bytes::default() }
    }

    /// The planning problem of these routes.
    pub(crate) fn problem(&self, routes: &[Route]) -> Problem {
        let routes = routes.iter().map(|&route| self.candidate(route)).collect();
        Problem::new(self.batches, self.resources(), routes).expect("the problem is valid")
    }

    /// The plans of both routes.
    pub(crate) fn plans(&self) -> Plans {
        plan(&self.problem(&[Route::Host, Route::Device])).expect("there is no limit of memory")
    }

    /// The schedule of one route by all workers: a pipeline.
    pub(crate) fn schedule(&self, route: Route) -> Schedule {
        Schedule {
            policy: Policy::Pipeline,
            resources: self.resources(),
            shares: vec![self.share(route)],
            training_threads: 0,
            batched: 64,
            ready: 10,
            group: 0,
            keep: 0,
            oversubscription: 1.1,
            after_step: 0.0,
        }
    }

    /// Seconds of an epoch by one route.
    pub(crate) fn alone(&self, route: Route) -> f64 {
        simulate(&self.schedule(route)).seconds
    }

    /// The same with the worker's seconds with which an epoch by the host's route takes as long as stated.
    pub(crate) fn fitted_to(mut self, seconds: f64) -> Self {
        let (mut low, mut high) = (0.0, 2.0 * seconds * self.workers as f64 / self.batches as f64);
        for _ in 0..40 {
            self.host = 0.5 * (low + high);
            *(if self.alone(Route::Host) < seconds { &mut low } else { &mut high }) = self.host;
        }
        self
    }
}
