//! Replanning while training, in virtual time: an epoch is run as the executor runs it.
#![allow(clippy::print_stdout, reason = "the throughput reached is worth reading")]

use crate::common::noise::Noise;
use morphgl_plan::{
    Begun, Bytes, Candidate, Drift, Durations, Hardware, Phase, Plan, Problem, Replanner, Replay, Resource, Seconds,
    plan, simulate,
};

/// Seconds of CPU batching of a worker, of DMA, of device batching with its gather, of training.
type PhaseSeconds = [f64; 4];

fn problem(workers: usize, n: usize, [host, dma, device, training]: PhaseSeconds) -> Problem {
    let names = |n: &[&str]| n.iter().map(ToString::to_string).collect::<Vec<_>>();
    let route = |key: &str, b: &[&str], t: &[&str], durations: Durations| Candidate {
        keys: crate::common::keys(&format!("CPU_b{key}"), &format!("CPU_t{key}"), "CPU_m"),
        hardware: Hardware { batching: names(b), transferring: names(t), training: names(&["DEV"]) },
        in_place: b.contains(&"DEV"),
        on_host: false,
        durations,
        bytes: Bytes::default(),
    };
    let durations = |workers, b, t| Durations::constant(workers, b, t, training).expect("durations");
    let routes = vec![
        route("0", &["CPU"], &["PCIe"], durations(workers, host, dma)),
        route("1", &["DEV", "PCIe"], &["DEV", "PCIe"], durations(1, 0.75 * device, 0.25 * device)),
    ];
    let resources = vec![Resource::shared("CPU", workers), Resource::exclusive("PCIe"), Resource::exclusive("DEV")];
    Problem::new(n, resources, routes).expect("a problem")
}

/// An epoch in virtual time.
struct Epoch {
    seconds: f64,
    /// When each mini-batch was trained.
    trained: Vec<f64>,
    replans: Vec<usize>,
    /// Overlaps until the last change of plan.
    overlaps: usize,
}

/// Runs an epoch by `plan`; `slow` says how many times as long a phase of a route takes once so many mini-batches are trained.
fn run(first: &Plan, watch: &mut Replanner, noise: &Noise, slow: &dyn Fn(bool, Phase, usize) -> f64) -> Epoch {
    let mut epoch = Epoch { seconds: 0.0, trained: Vec::new(), replans: Vec::new(), overlaps: 0 };
    let (mut time, mut done, mut overlaps) = (0.0, 0u32, 0);
    let mut schedule = first.schedule.clone();
    let total = schedule.num_batches();
    loop {
        let mut replay = Replay::new(&schedule, &simulate(&schedule).order);
        let mut running: Vec<(f64, Begun, f64)> = Vec::new();
        let mut next = None;
        loop {
            while let Some(begun) = replay.begin() {
                let share = &schedule.shares[begun.step.share];
                let of_device = share.in_place;
                let mean = match begun.step.phase {
                    Phase::Batching if of_device => 0.75 * DEVICE,
                    Phase::Transferring if of_device => 0.25 * DEVICE,
                    Phase::Batching => HOST,
                    Phase::Transferring => DMA,
                    Phase::Training => TRAINING,
                };
                let factor = slow(of_device, begun.step.phase, epoch.trained.len());
                let took = factor * noise.draw(begun.step.phase, done + begun.batch, Seconds::constant(mean));
                running.push((time + took, begun, took));
            }
            let Some(i) = (0..running.len()).min_by(|&a, &b| running[a].0.total_cmp(&running[b].0)) else { break };
            let (end, begun, took) = running.swap_remove(i);
            time = end;
            replay.end(begun);
            watch.observe(begun.step.share, begun.step.phase, took);
            if begun.step.phase == Phase::Training {
                epoch.trained.push(time);
            }
            if next.is_none() && watch.is_due() {
                overlaps += 1;
                next = watch.judge(schedule.num_batches() - replay.begun() as usize);
                if next.is_some() {
                    epoch.replans.push(epoch.trained.len());
                    epoch.overlaps = overlaps;
                    replay.cut();
                }
            }
        }
        done += replay.begun();
        if next.is_none() {
            break;
        }
        // Mini-batches begun before the replanning are trained by the old plan; the rest is planned again.
        let left = total - done as usize;
        let problem = watch.problem().clone().with_batches(left);
        schedule = plan(&problem).expect("no limits").best().schedule.clone();
        *watch = Replanner::new(problem, &schedule, Drift::default());
    }
    assert_eq!(epoch.trained.len(), total, "every mini-batch is trained once");
    epoch.seconds = time;
    epoch
}

const HOST: f64 = 0.080;
const DMA: f64 = 0.004;
const DEVICE: f64 = 0.018;
const TRAINING: f64 = 0.010;
const WORKERS: usize = 6;
const N: usize = 1179;

fn factors(phase: Phase, of_device: bool, by: f64) -> PhaseSeconds {
    let mut seconds = [HOST, DMA, DEVICE, TRAINING];
    let i = match (phase, of_device) {
        (Phase::Batching, false) => 0,
        (Phase::Transferring, false) => 1,
        (Phase::Batching | Phase::Transferring, true) => 2,
        (Phase::Training, _) => 3,
    };
    seconds[i] *= by;
    seconds
}

#[test]
fn a_phase_that_becomes_twice_as_slow_is_adopted_within_five_overlaps() {
    let before = problem(WORKERS, N, factors(Phase::Training, false, 1.0));
    let first = plan(&before).expect("no limits").best().clone();
    for (phase, of_device) in
        [(Phase::Batching, false), (Phase::Transferring, false), (Phase::Batching, true), (Phase::Training, false)]
    {
        for by in [2.0, 0.5] {
            for noise in [Noise::of(1, 0.0), Noise::of(2, 0.1)] {
                // The whole of a device's route becomes slower: its batching and its gather.
                let of = |device: bool, p: Phase| match (phase, of_device) {
                    (Phase::Training, _) => p == Phase::Training,
                    (_, true) => device && p != Phase::Training,
                    (_, false) => !device && p == phase,
                };
                let changed_at = N / 4;
                let slow = |device: bool, p: Phase, trained: usize| {
                    if of(device, p) && trained >= changed_at { by } else { 1.0 }
                };
                let mut watch = Replanner::new(before.clone(), &first.schedule, Drift::default());
                let overlap = watch.overlap();
                let epoch = run(&first, &mut watch, &noise, &slow);
                // The plan of the changed durations from the start, on the second half alone.
                let ideal = problem(WORKERS, N, factors(phase, of_device, by));
                let ideal = plan(&ideal).expect("no limits").best().prediction.epoch_seconds / N as f64;
                // From five overlaps after the change on; the end of the epoch, where the pipeline empties, aside.
                let (from, to) = (changed_at + 5 * overlap, N - 2 * overlap);
                let reached = (epoch.trained[to] - epoch.trained[from]) / (to - from) as f64;
                println!(
                    "{phase} {} x{by}, noise {:?}: throughput {:.3} of the ideal plan; new plans at {:?}, overlaps of {overlap}",
                    if of_device { "of the device" } else { "" },
                    noise.variation,
                    ideal / reached,
                    epoch.replans,
                );
                assert!(reached * 0.95 <= ideal, "{phase} {of_device} x{by}: {} of the ideal plan", ideal / reached);
                let late = epoch.replans.iter().filter(|&&at| at > changed_at + 5 * overlap).count();
                assert!(late <= 1 && epoch.replans.len() <= 3, "it settles: {:?}", epoch.replans);
            }
        }
    }
}

/// Two routes: phases of the old plan end while the new plan, of a single route, is already in force.
#[test]
fn phases_that_end_after_a_new_plan_are_not_counted() {
    let before = problem(WORKERS, N, factors(Phase::Training, false, 1.0));
    let first = plan(&before).expect("no limits").best().clone();
    assert_eq!(first.schedule.shares.len(), 2);
    let mut watch = Replanner::new(before, &first.schedule, Drift::default());
    let device = first.schedule.shares.iter().position(|s| s.in_place).expect("a route of the device");
    let new = (0..10).find_map(|_| {
        for _ in 0..watch.overlap() {
            watch.observe(device, Phase::Batching, 10.0);
            watch.observe(device, Phase::Transferring, 10.0);
            watch.observe(device, Phase::Training, TRAINING);
        }
        watch.judge(N)
    });
    let new = new.expect("a device that takes twenty seconds needs a new plan");
    assert_eq!(new.plan.schedule.shares.len(), 1);
    for share in 0..2 {
        (0..N).for_each(|_| watch.observe(share, Phase::Training, 10.0));
    }
    assert!(!watch.is_due());
}

/// Phases that share a device which queues their work take longer than alone, by the work of the others: that is no drift.
#[test]
fn phases_on_a_resource_that_queues_are_not_judged() {
    let problem = problem(WORKERS, N, factors(Phase::Training, false, 1.0));
    let mut schedule = plan(&problem).expect("no limits").best().schedule.clone();
    let device = schedule.shares.iter().position(|s| s.in_place).expect("a route of the device");
    for queued in [false, true] {
        schedule.resources.iter_mut().filter(|r| r.cores.is_none()).for_each(|r| r.queued = queued);
        let mut watch = Replanner::new(problem.clone(), &schedule, Drift::default());
        let new = (0..10).find_map(|_| {
            for _ in 0..watch.overlap() {
                watch.observe(device, Phase::Batching, 10.0);
                watch.observe(device, Phase::Training, TRAINING);
            }
            watch.judge(N)
        });
        assert_eq!(new.is_none(), queued);
    }
}

#[test]
fn constant_durations_never_cause_a_new_plan() {
    let problem = problem(WORKERS, N, factors(Phase::Training, false, 1.0));
    let first = plan(&problem).expect("no limits").best().clone();
    let mut watch = Replanner::new(problem, &first.schedule, Drift::default());
    for epoch in 0..50 {
        let epoch = run(&first, &mut watch, &Noise::of(100 + epoch, 0.1), &|_, _, _| 1.0);
        assert!(epoch.replans.is_empty(), "planned again after {:?}", epoch.replans);
    }
}
