//! Several routes, the problem the planner gets of them, and phases beside each other.

use std::sync::atomic::Ordering;

use crate::common::{Fakes, Fault, QUICK, Times, unhurried};
use crate::in_one_of_thirty;
use morphgl_plan::{Contention, Limits, Policy, Resource};
use morphgl_profile::Settings;

#[test]
fn the_problem_has_the_routes_hardware() {
    let mut fakes = Fakes::with_device(60, QUICK);
    let p = fakes.profile(&unhurried(3)).expect("nothing fails");
    fakes.check_unchanged();
    let problem = p.problem(3, Limits { ready: 4, ..Limits::default() });
    let resources = [Resource::shared("CPU", 3), Resource::exclusive("PCIe"), Resource::exclusive("NPU")];
    assert_eq!(problem.resources(), resources);
    assert_eq!(p.problem(16, Limits::default()).cores(), 16, "as many as asked for");
    assert_eq!((problem.num_batches(), problem.limits.ready), (60, 4));
    let of = |i: usize| &problem.routes()[i];
    let held = |i: usize| {
        let h = &of(i).hardware;
        [&h.batching, &h.transferring, &h.training].map(|names| names.join("+"))
    };
    assert_eq!(held(0), ["CPU", "CPU", "CPU"]);
    assert_eq!(held(1), ["CPU", "PCIe", "NPU"]);
    assert_eq!(held(2), ["NPU+PCIe", "NPU", "NPU"]);
    assert_eq!([0, 1, 2].map(|i| (of(i).in_place, of(i).on_host)), [(true, true), (false, false), (true, false)]);
    // A device's mini-batches and its worker take there what they say.
    assert_eq!([0, 1, 2].map(|i| (of(i).bytes.batched, of(i).bytes.ready)), [(35, 35), (35, 50), (50, 50)]);
    assert_eq!([0, 1, 2].map(|i| of(i).bytes.worker), [275, 275, 1250]);
    let plans = morphgl_plan::plan(&problem).expect("it fits");
    assert!(plans.all().len() >= 6, "{plans}");
}

#[test]
fn what_routes_share_is_measured_once() {
    let mut fakes = Fakes::with_device(60, QUICK);
    let settings = Settings { splits: 0, ..unhurried(2) };
    let p = fakes.profile(&settings).expect("nothing fails");
    let [host, mixed, device] = &p.routes[..] else { panic!("three routes") };
    assert_eq!(host.batching, mixed.batching, "the same samples");
    assert_eq!(mixed.training, device.training);
    assert_ne!(host.transferring, mixed.transferring);
    // A device's operator is not spread over the host's threads.
    assert_eq!(device.batching.iter().map(|s| (s.workers, s.threads)).collect::<Vec<_>>(), [(1, 1)]);
    assert_eq!(device.training.iter().map(|s| s.threads).collect::<Vec<_>>(), [1]);
    assert_eq!(host.training.iter().map(|s| s.threads).collect::<Vec<_>>(), [1, 2]);
    // One to warm up and three measured, at 1 and 2 threads; and once on the device.
    assert_eq!(fakes.training(0).ever, 8);
    assert_eq!(fakes.training(1).ever, 4);
    // The device never had to hold more than one that is trained, and one that comes.
    assert_eq!(fakes.seen.most_on_device.load(Ordering::SeqCst), 2);
}

#[test]
fn batching_that_slows_training_and_is_slowed_is_noticed() {
    in_one_of_thirty(|| {
        let mut fakes = Fakes::new(400, Times { batching: 6, transferring: 0, training: 12 });
        fakes.routes[0].1.slowed = 2.0;
        fakes.training(0).slowed = 1.5;
        let p = fakes.profile(&unhurried(2)).expect("nothing fails");
        fakes.check_unchanged();
        let r = &p.routes[0];
        let problem = p.problem(2, Limits::default());
        let plans = morphgl_plan::plan(&problem).expect("it fits");
        let plan = plans.all().iter().find(|p| p.schedule.policy == Policy::Pipeline).expect("there always is one");
        let share = &plan.schedule.shares[0];
        let (workers, threads, training) = (share.workers, share.threads_per_worker, plan.schedule.training_threads);
        let measured =
            r.interference.iter().find(|t| (t.workers, t.threads, t.training_threads) == (workers, threads, training));
        let measured = measured.ok_or_else(|| format!("{plan} is not among {:?}", r.interference))?;
        assert!(measured.training.samples.len() == 3 && measured.batching.samples.len() >= workers, "{measured:?}");
        // Workers really were at work whenever training was measured beside them.
        let beside = fakes.training(0).beside.iter().filter(|&&b| b > 0).count();
        if beside < 3 * r.interference.len() {
            return Err(format!("{beside} steps beside batching"));
        }
        // A worker is slowed only where training trains when it begins, which is nearly always.
        let Contention { batching, training } = share.contention.expect("it was measured");
        // Each worker that prepares costs half as much again.
        let expected = 1.0 + 1.5 * workers as f64;
        let about = (1.3..3.5).contains(&batching) && (0.6 * expected..1.6 * expected).contains(&training);
        if about { Ok(()) } else { Err(format!("{batching} and {training} with {workers} workers")) }
    });
}

#[test]
fn phases_that_do_not_slow_each_other_are_measured_at_the_chosen_split_alone() {
    in_one_of_thirty(|| {
        let mut fakes = Fakes::new(400, Times { batching: 4, transferring: 0, training: 24 });
        let p = fakes.profile(&unhurried(4)).expect("nothing fails");
        let together = &p.routes[0].interference;
        assert!(together.len() <= 12, "{together:?}");
        let problem = p.problem(4, Limits::default());
        let plans = morphgl_plan::plan(&problem).expect("it fits");
        // Every split of the cores has a contention: its own, or that of its nearest neighbour.
        let durations = &problem.routes()[0].durations;
        durations.contention(4, 1, 1).ok_or_else(|| "no split was measured".to_string())?;
        assert!(durations.contention(4, 1, 2).is_none(), "no plan may have that many threads");
        plans.best().schedule.shares[0].contention.ok_or_else(|| format!("not measured: {plans}"))?;
        together.iter().try_for_each(|t| {
            let c = durations.contention(t.workers, t.threads, t.training_threads).expect("measured");
            let about = (1.0..1.5).contains(&c.batching) && (1.0..1.5).contains(&c.training);
            if about { Ok(()) } else { Err(format!("{t:?} {c:?}")) }
        })
    });
}

#[test]
fn phases_on_different_hardware_are_not_measured_beside_each_other() {
    let mut fakes = Fakes::with_device(60, QUICK);
    fakes.routes.remove(0);
    let p = fakes.profile(&unhurried(2)).expect("nothing fails");
    assert!(p.routes.iter().all(|r| r.interference.is_empty()));
    assert!(fakes.training(1).beside.iter().all(|&b| b == 0));
    // And a route of the host is not, where it is far from the best: the device trains in no time.
    let mut fakes = Fakes::with_device(60, Times { batching: 2, transferring: 0, training: 0 });
    fakes.training(0).times.training = 60;
    let p = fakes.profile(&unhurried(2)).expect("nothing fails");
    assert!(p.routes[0].interference.is_empty(), "{:?}", p.routes[0].interference);
}

#[test]
fn operators_that_fail_beside_each_other_are_named() {
    // What is prepared and trained before phases are measured beside each other depends on no clock but for pools;
    // training fails at its first step after all its points alone.
    let settings = unhurried(2);
    let mut fakes = Fakes::new(400, QUICK);
    fakes.profile(&Settings { splits: 0, ..settings.clone() }).expect("nothing fails");
    let alone = fakes.training(0).ever;
    for fault in [Fault::Error, Fault::Panic] {
        let mut fakes = Fakes::new(400, QUICK);
        fakes.training(0).fault = Some((alone + 1, fault));
        let error = fakes.profile(&settings).expect_err("told to fail");
        assert_eq!(error.context, "Training_CPU_Fake");
        fakes.check_unchanged();
    }
    for fault in [Fault::Error, Fault::Panic] {
        let mut fakes = Fakes::new(400, Times { batching: 1, transferring: 0, training: 600 });
        // Alone some dozens are prepared, beside half a second of training hundreds.
        fakes.routes[0].1.fault = Some((120, fault));
        let error = fakes.profile(&Settings { batches: 1, ..settings.clone() }).expect_err("told to fail");
        assert_eq!(error.context, "Batching_CPU_Fake");
        assert!(fakes.training(0).ever >= 4, "training had been measured alone");
        fakes.check_unchanged();
    }
}
