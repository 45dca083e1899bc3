//! Plans executed on the simulated accelerator: real threads, real copies, exclusive use of its resources.

mod simulated;

use std::time::{Duration, Instant};

use morphgl_execute::{Control, Event, Settings, Stop};
use morphgl_plan::{Drift, Limits, Phase, Replanner, plan};
use simulated::Rig;

#[test]
fn every_strategy_trains_every_mini_batch_once_with_its_content_whole() {
    for millis in [[6.0, 0.5, 1.0, 0.5, 0.7], [1.0, 1.5, 1.0, 1.0, 0.3], [2.0, 0.3, 0.4, 0.2, 1.5]] {
        let rig = Rig::new(60, millis, 3, ",noise=0.2");
        let plans = plan(&rig.problem(Limits::default())).expect("no memory limits");
        for plan in plans.all() {
            let report = rig.run(&plan.schedule).unwrap_or_else(|e| panic!("{plan}: {e}"));
            assert_eq!(report.batches, 60, "{plan}");
            assert!(report.peak_ready <= plan.schedule.ready && report.peak_batched <= plan.schedule.batched, "{plan}");
        }
    }
}

#[test]
fn device_memory_of_the_plan_is_enough_and_less_is_noticed() {
    // One mini-batch is in training beside those that are ready.
    let rig = Rig::new(40, [1.0, 0.2, 0.3, 0.2, 0.4], 2, "");
    for ready in [1, 3, 11] {
        let plans = plan(&rig.problem(Limits { ready, ..Limits::default() })).expect("no memory limits");
        for plan in plans.all() {
            rig.run(&plan.schedule).unwrap_or_else(|e| panic!("{plan}: {e}"));
            assert!(rig.device.statistics().memory_peak <= ready + 1, "{plan}");
        }
    }
    // All other mini-batches are ready before the first one is trained, on a busy machine, too.
    let rig = Rig::new(40, [0.1, 0.1, 0.3, 0.2, 1000.0], 2, "");
    let plans = plan(&rig.problem(Limits { ready: 30, ..Limits::default() })).expect("no memory limits");
    let pipeline = plans.best_of(morphgl_plan::Strategy::Pipeline).expect("a host's route");
    let mut schedule = pipeline.schedule.clone();
    schedule.ready = 30;
    let error = rig.run(&schedule).expect_err("12 mini-batches fit").to_string();
    assert!(error.contains("simulated") && error.contains("memory"), "{error}");
}

#[test]
fn faults_of_every_phase_end_the_run_with_operator_and_mini_batch() {
    let cases = [
        ("batching-cpu", "Batching_CPU_SimNeighbor"),
        ("transferring-pcie", "Transferring_PCIe_SimDma"),
        ("batching-device", "Batching_PCIe+SIM_Neighbor"),
        ("transferring-device", "Transferring_PCIe+SIM_SimGather"),
        ("training", "Training_SIM_Ledger"),
    ];
    let fail = |work: &str, operator: &str| {
        for kind in ["error", "panic", "memory", "hang"] {
            // The plan decides which route batches which mini-batch, so the fault is set after planning.
            let rig = Rig::new(24, [2.0, 0.3, 0.6, 0.3, 0.5], 2, "");
            let plans = plan(&rig.problem(Limits::default())).expect("no memory limits");
            let schedule = &plans.best_of(morphgl_plan::Strategy::Interleaved).expect("two routes").schedule;
            let at = first_of(schedule, work);
            let rig = Rig::new(24, [2.0, 0.3, 0.6, 0.3, 0.5], 2, &format!(",fault={work}:{kind}@0:{at}"));
            let settings = Settings { limit: Some(Duration::from_secs(2)), ..Settings::default() };
            let mut executor = rig.executor(schedule, settings);
            let batches: Vec<u32> = (0..24).collect();
            let start = Instant::now();
            let error = executor.train(0, &batches, &Stop::new(), &mut |_| Control::Continue).expect_err("it fails");
            assert!(start.elapsed() < Duration::from_secs(300), "{work} {kind}: it ends");
            let said = error.to_string();
            assert!(said.contains(operator), "{work} {kind}: {said}");
            assert_eq!(error.batch.map(|b| b.index), Some(at), "{work} {kind}: {said}");
            rig.device.release();
        }
    };
    // Side by side, since a case that hangs waits for its time limit.
    std::thread::scope(|scope| {
        for (work, operator) in cases {
            scope.spawn(move || fail(work, operator));
        }
    });
}

/// The first mini-batch, not before the fifth, whose share does this work.
fn first_of(schedule: &morphgl_plan::Schedule, work: &str) -> u32 {
    let of_device = work.ends_with("device");
    let activities = morphgl_plan::timeline(schedule).activities;
    let mut batched = activities.iter().filter(|a| a.phase == Phase::Batching && a.id.index >= 5);
    let fits = |share: usize| work == "training" || schedule.shares[share].in_place == of_device;
    batched.find(|a| fits(a.share)).expect("both routes have mini-batches").id.index
}

#[test]
fn a_slower_phase_changes_the_plan_within_an_epoch() {
    let millis = [9.0, 0.4, 1.6, 0.8, 1.0];
    let rig = Rig::new(400, millis, 4, ",slow=batching-cpu*3@0:80");
    let problem = rig.problem(Limits::default());
    let first = plan(&problem).expect("no memory limits").best().clone();
    let mut executor = rig.executor(&first.schedule, Settings::default());
    let mut watch = Replanner::new(problem, &first.schedule, Drift::default());
    let mut left: Vec<u32> = (0..400).collect();
    let (mut replanned, mut named) = (Vec::new(), false);
    while !left.is_empty() {
        let mut new = None;
        let report = executor.train(0, &left, &Stop::new(), &mut |event| {
            match event {
                Event::Ended(a) => watch.observe(a.share, a.phase, a.span.seconds()),
                Event::Trained(done) if new.is_none() && watch.is_due() => new = watch.judge(done.left),
                _ => {}
            }
            if new.is_some() { Control::Cut } else { Control::Continue }
        });
        left = report.expect("no faults").remaining;
        if let (Some(new), false) = (new, left.is_empty()) {
            replanned.push(400 - left.len());
            // On a loaded machine short phases may change, too.
            named |= new.changed.iter().any(|c| c.operator.to_string() == "Batching_CPU_SimNeighbor");
            let problem = watch.problem().clone().with_batches(left.len());
            let plan = plan(&problem).expect("no memory limits").best().clone();
            executor.set_schedule(&plan.schedule).expect("the same routes");
            watch = Replanner::new(problem, &plan.schedule, Drift::default());
        }
    }
    assert!(named, "three times as slow is worth a new plan; planned again after {replanned:?}");
    rig.check(&mut executor);
}
