//! Executors in virtual time: an epoch takes what the planner's simulator predicts, and no real time but that of the work.

mod simulated;

use std::time::{Duration, Instant};

use morphgl_execute::{Control, EpochReport, Settings, Stop};
use morphgl_plan::{Limits, Schedule, plan, simulate, timeline};
use morphgl_sim::MachineDescription;
use simulated::Rig;

/// A machine of four cores with a device, at these speeds: of sampling on the host and on the device in M edges/s, of the link in
/// GB/s, of the device in TFLOP/s.
fn machine([host, device, link, tflops]: [f64; 4]) -> MachineDescription {
    let text = format!(
        "name = 'm'
        [host]
        cores = 4
        memory_gb = 16
        bandwidth_gb_per_s = 40
        sampling_m_edges_per_s = {host}
        gflop_per_s = 100
        [[link]]
        name = 'pcie'
        gb_per_s = {link}
        [[device]]
        name = 'd'
        link = 'pcie'
        memory_gb = 8
        bandwidth_gb_per_s = 400
        tflop_per_s = {tflops}
        sampling_m_edges_per_s = {device}"
    );
    MachineDescription::parse("m", &text).expect("valid")
}

fn run(rig: &Rig, schedule: &Schedule) -> EpochReport {
    let mut executor = rig.executor(schedule, Settings { record: true, ..Settings::default() });
    let batches: Vec<u32> = (0..rig.n as u32).collect();
    let report = executor.train(0, &batches, &Stop::new(), &mut |_| Control::Continue).expect("no faults");
    rig.check(&mut executor);
    report
}

/// The law of virtual time: every phase of every mini-batch begins and ends when the simulation of its schedule has it, but for the
/// rounding of each duration to a nanosecond.
#[test]
fn an_epoch_takes_what_is_predicted_to_the_nanosecond() {
    // The host is slow, the device is slow, the link is slow, training is slow, all are about as fast.
    let speeds = [
        [0.001, 0.1, 1.0, 10.0],
        [0.1, 0.001, 1.0, 10.0],
        [0.1, 0.1, 1e-5, 10.0],
        [0.1, 0.1, 1.0, 1e-6],
        [0.005, 0.01, 0.001, 1e-5],
    ];
    for speeds in speeds {
        let n = 60;
        let rig = Rig::described(n, 3, machine(speeds));
        let plans = plan(&rig.problem(Limits::default())).expect("no memory limits");
        let strategies: Vec<String> = plans.all().iter().map(|plan| plan.strategy.to_string()).collect();
        assert!(
            ["sequential", "pipeline", "device"].iter().all(|s| strategies.iter().any(|p| p == s)),
            "{strategies:?}"
        );
        for plan in plans.all() {
            let schedule = &plan.schedule;
            let (report, simulated) = (run(&rig, schedule), timeline(schedule));
            assert_eq!(report.batches, n, "{plan}");
            // A chain of at most three phases per mini-batch leads to each instant.
            let tolerance = 3.0 * n as f64 * 1e-9;
            let near = |a: f64, b: f64| (a - b).abs() <= tolerance;
            assert!(near(report.seconds, simulate(schedule).seconds), "{plan}: {} s", report.seconds);
            let mut done = report.activities.clone();
            let mut expected = simulated.activities;
            let by_step = |a: &morphgl_plan::Activity| (a.id, a.phase);
            done.sort_by_key(by_step);
            expected.sort_by_key(by_step);
            assert_eq!(done.len(), expected.len(), "{plan}");
            for (done, expected) in done.iter().zip(&expected) {
                assert_eq!(
                    (done.id.index, done.phase, done.share),
                    (expected.id.index, expected.phase, expected.share)
                );
                let same = near(done.span.start, expected.span.start) && near(done.span.end, expected.span.end);
                assert!(same, "{plan}: {done:?}, simulated {expected:?}");
            }
        }
    }
}

/// An epoch of minutes takes less than a second, and the same ones the next time.
#[test]
fn a_long_epoch_is_short_and_repeats_to_the_bit() {
    let rig = Rig::described(200, 3, machine([1e-6, 1e-6, 1.0, 1e-9]));
    let plans = plan(&rig.problem(Limits::default())).expect("no memory limits");
    let schedule = &plans.best().schedule;
    let start = Instant::now();
    let first = run(&rig, schedule);
    assert!(first.seconds > 300.0, "{} s", first.seconds);
    assert!(start.elapsed() < Duration::from_secs(120), "{:?}", start.elapsed());
    assert_eq!(run(&rig, schedule), first);
}

/// Configured durations are exact, too, and take no real time: those of a minute per epoch.
#[test]
fn configured_durations_in_virtual_time_are_as_predicted() {
    let rig = Rig::new(60, [2000.0, 300.0, 700.0, 200.0, 500.0], 3, "").in_virtual_time();
    for plan in plan(&rig.problem(Limits::default())).expect("no memory limits").all() {
        let (seconds, predicted) = (run(&rig, &plan.schedule).seconds, simulate(&plan.schedule).seconds);
        assert!((seconds - predicted).abs() < 1e-6 && seconds > 30.0, "{plan}: {seconds} s, predicted {predicted} s");
    }
}
