//! Routes of fake operators on a fake CPU, PCIe and device, and schedules for them.

use std::collections::VecDeque;

use morphgl_conformance::fake::route;
use morphgl_execute::{Executor, Settings};
use morphgl_plan::{Hardware, Phase, Policy, Resource, RouteKeys, Schedule, ScheduleShare, Seconds, simulate};
use morphgl_registry::{Key, Operators};
use proptest::prelude::Strategy;

use super::Fakes;

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
        after_step: 0.0,
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

/// Any schedule of one or both routes, for any durations it was planned with.
pub(crate) fn any_schedule() -> impl Strategy<Value = Schedule> {
    let seconds = || [0.0f64..4.0, 0.0f64..4.0, 0.0f64..4.0];
    let sizes = [1usize..5, 1usize..5];
    (0usize..7, 1usize..12, 1usize..12, 1usize..4, sizes, 1usize..5, 0usize..3, seconds(), seconds()).prop_map(
        |(kind, a, b, workers, sizes, group, keep, first, second)| {
            let (host, device) = ((0, a, workers, first), (1, b, 1, second));
            let [batched, ready] = sizes;
            match kind {
                0 => schedule(Policy::Sequential, &[(2, a, 1, first)], [0, 1]),
                1 => schedule(Policy::Pipeline, &[(2, a, workers, first)], [0, ready]),
                2 => schedule(Policy::Pipeline, &[host], sizes),
                3 => schedule(Policy::Pipeline, &[device], sizes),
                4 => schedule(Policy::DualBuffer, &[host, device], [batched + workers, ready]),
                5 => Schedule { group, keep, ..schedule(Policy::Interleaved, &[host, device], sizes) },
                _ => schedule(Policy::Pipeline, &[host, device], sizes),
            }
        },
    )
}

/// The operators of the routes that a schedule uses.
pub(crate) fn operators(fakes: &Fakes, schedule: &Schedule) -> Operators {
    let on_cpu = schedule.shares.iter().any(|s| s.keys.training == key(ROUTES[2][2]));
    let used = if on_cpu { vec![2] } else { vec![1, 0] };
    let training = fakes.operator(ROUTES[used[0]][2], true);
    let routes = used.into_iter().map(|i| {
        let [batching, transferring] = [0, 1].map(|phase| fakes.operator(ROUTES[i][phase], i > 0));
        route(&batching, &transferring, &training)
    });
    Operators { routes: routes.collect(), trainers: vec![training.trainer()] }
}

pub(crate) fn executor(fakes: &Fakes, schedule: &Schedule, settings: Settings) -> Executor {
    Executor::new(operators(fakes, schedule), schedule, settings).expect("fakes can be built")
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
