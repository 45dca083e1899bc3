//! Routes of fake operators on a fake CPU, PCIe and device, and schedules for them.

use std::collections::VecDeque;
use std::sync::Arc;

use morphgl_execute::{Executor, Settings};
use morphgl_plan::{Hardware, Phase, Policy, Resource, RouteKeys, Schedule, ScheduleShare, Seconds, simulate};
use morphgl_registry::{Key, Operators, Place, Route, RouteOperators, TrainingOperator};

use super::{FakeBatching, FakeMachine, FakeTraining, FakeTransferring};

fn key(s: &str) -> Key {
    s.parse().expect("a valid key")
}

/// Keys of the routes: batched by the CPU and moved to the device; batched by the device; all on the CPU.
const ROUTES: [[&str; 3]; 3] = [
    ["Batching_CPU_Fake", "Transferring_PCIe_Fake", "Training_DEV_Fake"],
    ["Batching_DEV+PCIe_Fake", "Transferring_DEV+PCIe_Fake", "Training_DEV_Fake"],
    ["Batching_CPU_Fake", "Transferring_CPU_Fake", "Training_CPU_Fake"],
];

pub(crate) fn hardware(route: usize) -> Hardware {
    let [batching, transferring, training] =
        ROUTES[route].map(|k| key(k).hardware.resources().iter().map(|r| r.name().to_string()).collect());
    Hardware { batching, transferring, training }
}

fn share(route: usize, batches: usize, workers: usize, seconds: [f64; 3]) -> ScheduleShare {
    let [batching, transferring, training] = ROUTES[route].map(key);
    let [batch, transfer, train] = seconds.map(Seconds::constant);
    ScheduleShare {
        keys: RouteKeys { batching, transferring, training },
        hardware: hardware(route),
        in_place: route > 0,
        batches,
        workers,
        threads_per_worker: 1,
        batching: batch,
        transferring: transfer,
        training: train,
        contention: None,
    }
}

/// A schedule of shares (route, mini-batches, workers, seconds) and capacities of the buffers.
pub(crate) fn schedule(
    policy: Policy,
    shares: &[(usize, usize, usize, [f64; 3])],
    [batched, ready]: [usize; 2],
) -> Schedule {
    Schedule {
        policy,
        resources: vec![Resource::shared("CPU", 8), Resource::exclusive("PCIe"), Resource::exclusive("DEV")],
        shares: shares.iter().map(|&(route, batches, workers, s)| share(route, batches, workers, s)).collect(),
        training_threads: 1,
        batched,
        ready,
        group: 1,
        keep: 0,
        oversubscription: 1.1,
    }
}

/// A schedule of the route that is all on the CPU.
pub(crate) fn cpu(policy: Policy, batches: usize, workers: usize, ready: usize) -> Schedule {
    schedule(policy, &[(2, batches, workers, [3.0, 1.0, 2.0])], [0, ready])
}

/// A pipeline of the route that is batched and trained by the device.
pub(crate) fn device(batches: usize, ready: usize) -> Schedule {
    schedule(Policy::Pipeline, &[(1, batches, 1, [1.0, 1.0, 1.5])], [0, ready])
}

/// Both routes of the device, by the paper's policy.
pub(crate) fn dual(host: usize, device: usize, workers: usize, sizes: [usize; 2]) -> Schedule {
    let shares = [(0, host, workers, [4.0, 1.0, 1.5]), (1, device, 1, [1.0, 0.5, 1.5])];
    schedule(Policy::DualBuffer, &shares, sizes)
}

/// Both routes of the device, in groups.
pub(crate) fn interleaved(host: usize, device: usize, workers: usize, sizes: [usize; 2], group: usize) -> Schedule {
    Schedule { policy: Policy::Interleaved, group, ..dual(host, device, workers, sizes) }
}

/// The operators of the routes that a schedule uses.
pub(crate) fn operators(machine: &Arc<FakeMachine>, schedule: &Schedule) -> Operators {
    let on_cpu = schedule.shares.iter().any(|s| s.keys.training == key(ROUTES[2][2]));
    let place = |device: bool| if device { "dev:0".parse().expect("a place") } else { Place::Host };
    let machine = || Arc::clone(machine);
    let route = |i: usize| {
        let [batching, transferring, training] = ROUTES[i].map(key);
        let fake_batching =
            FakeBatching { key: batching.clone(), machine: machine(), in_place: i > 0, on_device: i == 1 };
        let fake_transferring = FakeTransferring { key: transferring.clone(), machine: machine(), in_place: i > 0 };
        RouteOperators {
            route: Route {
                batching,
                transferring,
                training,
                read_at: Place::Host,
                batched_at: place(i == 1),
                trained_at: place(i < 2),
                gathering: Phase::Batching,
                queueing: Vec::new(),
            },
            batching: Arc::new(fake_batching),
            transferring: Box::new(fake_transferring),
        }
    };
    let (routes, training) =
        if on_cpu { (vec![route(2)], ROUTES[2][2]) } else { (vec![route(1), route(0)], ROUTES[0][2]) };
    let operator = Box::new(FakeTraining { key: key(training), machine: machine() });
    Operators { routes, trainers: vec![TrainingOperator { key: key(training), place: place(!on_cpu), operator }] }
}

pub(crate) fn executor(machine: &Arc<FakeMachine>, schedule: &Schedule, settings: Settings) -> Executor {
    Executor::new(operators(machine, schedule), schedule, settings).expect("fakes can be built")
}

/// Positions of the mini-batches in the order of training, by the schedule's own simulation.
pub(crate) fn expected_order(schedule: &Schedule) -> Vec<u32> {
    let mut waiting = vec![VecDeque::new(); schedule.shares.len()];
    let (mut next, mut trained) = (0, Vec::new());
    for step in simulate(schedule).order.steps() {
        match step.phase {
            Phase::Batching => {
                waiting[step.share].push_back(next);
                next += 1;
            }
            Phase::Transferring => {}
            Phase::Training => trained.push(waiting[step.share].pop_front().expect("it was batched")),
        }
    }
    trained
}
