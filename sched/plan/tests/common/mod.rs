//! Problems of two routes from five durations, and a checker of simulated epochs that shares no code with the simulator.
#![allow(dead_code, reason = "each program uses a part of it")]

pub(crate) mod check;
pub(crate) mod groups;
pub(crate) mod noise;
pub(crate) mod tables;

use morphgl_plan::{
    Bytes, Candidate, Contention, Curve, Durations, Hardware, Limits, Point, Policy, PoolPoint, Problem, Resource,
    RouteKeys, Schedule, ScheduleShare, Seconds,
};

pub(crate) const HOST: usize = 0;
pub(crate) const DEVICE: usize = 1;

/// The keys of a route by their hardware and operator, such as `CPU_Neighbor`.
pub(crate) fn keys(batching: &str, transferring: &str, training: &str) -> RouteKeys {
    let key = |phase: &str, name: &str| format!("{phase}_{name}").parse().expect("a key");
    RouteKeys {
        batching: key("Batching", batching),
        transferring: key("Transferring", transferring),
        training: key("Training", training),
    }
}

/// A machine of one accelerator: a route batched by the host's workers, and one batched by the device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TwoRoutes {
    pub(crate) n: usize,
    pub(crate) workers: usize,
    /// A worker's seconds per mini-batch.
    pub(crate) host: f64,
    pub(crate) dma: f64,
    /// Batching by the device.
    pub(crate) device: f64,
    /// Gathering by the device.
    pub(crate) gather: f64,
    pub(crate) training: f64,
    pub(crate) batched: usize,
    pub(crate) ready: usize,
}

impl TwoRoutes {
    /// Buffers of the default lengths.
    pub(crate) fn new(n: usize, workers: usize, [host, dma, device, gather, training]: [f64; 5]) -> Self {
        let Limits { batched, ready, .. } = Limits::default();
        Self { n, workers, host, dma, device, gather, training, batched, ready }
    }

    pub(crate) fn limits(&self) -> Limits {
        Limits { batched: self.batched, ready: self.ready, ..Limits::default() }
    }

    pub(crate) fn problem(&self) -> Problem {
        let durations = |workers, batching, transferring| {
            Durations::constant(workers, batching, transferring, self.training).expect("durations are valid")
        };
        let route = |share: ScheduleShare, durations| Candidate {
            keys: share.keys,
            hardware: share.hardware,
            in_place: share.in_place,
            on_host: false,
            durations,
            bytes: Bytes::default(),
        };
        let [host, device] = self.shares(0);
        let routes = vec![
            route(host, durations(self.workers, self.host, self.dma)),
            route(device, durations(1, self.device, self.gather)),
        ];
        Problem::new(self.n, self.resources(), routes).expect("the problem is valid").with_limits(self.limits())
    }

    pub(crate) fn resources(&self) -> Vec<Resource> {
        vec![Resource::shared("CPU", self.workers), Resource::exclusive("PCIe"), Resource::exclusive("SIM")]
    }

    /// Both routes, the host's with `by_host` mini-batches and the device's with the others.
    pub(crate) fn shares(&self, by_host: usize) -> [ScheduleShare; 2] {
        let share = |names: [&str; 2], hardware, batches, workers: usize, batching, transferring| ScheduleShare {
            keys: keys(names[0], names[1], "SIM_Step"),
            hardware,
            in_place: workers == 0,
            batches,
            workers: workers.max(1),
            threads_per_worker: 1,
            batching: Seconds::constant(batching),
            transferring: Seconds::constant(transferring),
            training: Seconds::constant(self.training),
            contention: None,
        };
        [
            share(
                ["CPU_Neighbor", "PCIe_Dma"],
                hardware(&["CPU"], &["PCIe"], &["SIM"]),
                by_host,
                self.workers,
                self.host,
                self.dma,
            ),
            share(
                ["PCIe+SIM_Neighbor", "PCIe+SIM_Gather"],
                hardware(&["PCIe", "SIM"], &["PCIe", "SIM"], &["SIM"]),
                self.n - by_host,
                0,
                self.device,
                self.gather,
            ),
        ]
    }

    /// A schedule by hand, of both routes.
    pub(crate) fn schedule(&self, policy: Policy, by_host: usize, (group, keep): (usize, usize)) -> Schedule {
        self.of(policy, self.shares(by_host).to_vec(), (group, keep))
    }

    /// A schedule by hand, of one route.
    pub(crate) fn single(&self, policy: Policy, route: usize) -> Schedule {
        let share = self.shares(if route == HOST { self.n } else { 0 })[route].clone();
        self.of(policy, vec![share], (0, 0))
    }

    fn of(&self, policy: Policy, shares: Vec<ScheduleShare>, (group, keep): (usize, usize)) -> Schedule {
        Schedule {
            policy,
            resources: self.resources(),
            shares,
            training_threads: 0,
            batched: self.batched,
            ready: self.ready,
            group,
            keep,
            oversubscription: 1.1,
            after_step: 0.0,
        }
    }
}

/// A machine without an accelerator: one route, batched and trained by the cores.
#[derive(Debug, Clone)]
pub(crate) struct CpuOnly {
    pub(crate) n: usize,
    pub(crate) cores: usize,
    /// Workers, threads per worker, seconds per mini-batch of the pool.
    pub(crate) batching: Vec<(usize, usize, f64)>,
    pub(crate) transferring: f64,
    /// Threads, seconds per step.
    pub(crate) training: Vec<(usize, f64)>,
}

impl CpuOnly {
    pub(crate) fn durations(&self) -> Durations {
        let pool = |&(workers, threads, s): &(usize, usize, f64)| PoolPoint {
            workers,
            threads,
            seconds: Seconds::constant(s),
        };
        let batching: Vec<PoolPoint> = self.batching.iter().map(pool).collect();
        let point = |&(at, s): &(usize, f64)| Point { at, seconds: Seconds::constant(s) };
        let training = Curve::new(self.training.iter().map(point).collect()).expect("points are valid");
        Durations::new(&batching, Seconds::constant(self.transferring), training).expect("durations are valid")
    }

    pub(crate) fn problem(&self) -> Problem {
        let candidate = Candidate {
            keys: keys("CPU_Neighbor", "CPU_Host", "CPU_Step"),
            hardware: hardware(&["CPU"], &["CPU"], &["CPU"]),
            in_place: true,
            on_host: true,
            durations: self.durations(),
            bytes: Bytes::default(),
        };
        Problem::new(self.n, vec![Resource::shared("CPU", self.cores)], vec![candidate]).expect("the problem is valid")
    }

    /// A pipeline by hand.
    pub(crate) fn pipeline(&self, workers: usize, training_threads: usize, ready: usize) -> Schedule {
        let d = self.durations();
        let problem = self.problem();
        let route = &problem.routes()[0];
        let share = ScheduleShare {
            keys: route.keys.clone(),
            hardware: route.hardware.clone(),
            in_place: true,
            batches: self.n,
            workers,
            threads_per_worker: 1,
            batching: Seconds::constant(workers as f64 * d.batching(workers, 1).mean),
            transferring: d.transferring(),
            training: d.training().at(training_threads),
            contention: None::<Contention>,
        };
        Schedule {
            policy: Policy::Pipeline,
            resources: problem.resources().to_vec(),
            shares: vec![share],
            training_threads,
            batched: 0,
            ready,
            group: 0,
            keep: 0,
            oversubscription: 1.1,
            after_step: 0.0,
        }
    }
}

pub(crate) fn hardware(batching: &[&str], transferring: &[&str], training: &[&str]) -> Hardware {
    let of = |names: &[&str]| names.iter().map(|n| n.to_string()).collect();
    Hardware { batching: of(batching), transferring: of(transferring), training: of(training) }
}

/// Random numbers from a seed: SplitMix64.
#[derive(Debug, Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// From 0 to 1.
    pub(crate) fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^= x >> 31;
        (x >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Seconds from a millisecond to a second, log-uniform.
    pub(crate) fn seconds(&mut self) -> f64 {
        1e-3 * 1000f64.powf(self.unit())
    }

    /// A random machine: 1 to 16 workers, five durations over three decades.
    pub(crate) fn two_routes(&mut self, n: usize) -> TwoRoutes {
        let workers = 1 + (self.unit() * 16.0) as usize;
        TwoRoutes::new(n, workers, [0; 5].map(|_| self.seconds()))
    }
}

/// Prints mean, quantiles and maximum of `values`, and returns them.
#[allow(clippy::print_stdout, reason = "the figures are the point")]
pub(crate) fn quantiles(what: &str, mut values: Vec<f64>) -> [f64; 5] {
    values.sort_by(f64::total_cmp);
    let at = |share: f64| values[((values.len() as f64 * share) as usize).min(values.len() - 1)];
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let figures = [mean, at(0.5), at(0.9), at(0.99), at(1.0)];
    let [mean, p50, p90, p99, most] = figures;
    println!("{what:<48} mean {mean:.4}  p50 {p50:.4}  p90 {p90:.4}  p99 {p99:.4}  max {most:.4}");
    figures
}
