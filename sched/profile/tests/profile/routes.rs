//! Several routes, their planning problem, and interference.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{Fakes, QUICK, Times, fail, unlimited};
use crate::in_one_of_thirty;
use morphgl_conformance::fake::{Fake, Fault};
use morphgl_plan::{Contention, Limits, Policy, Resource};
use morphgl_profile::Settings;
use morphgl_registry::{Phase, Route};

#[test]
fn the_problem_has_the_routes_hardware() {
    let mut fakes = Fakes::with_device(60, QUICK);
    let p = fakes.profile(&unlimited(3)).expect("nothing fails");
    fakes.check_unchanged();
    let problem = p.problem(3, Limits { ready: 4, ..Limits::default() });
    let resources = [Resource::shared("CPU", 3), Resource::exclusive("PCIe:0"), Resource::exclusive("NPU:0")];
    assert_eq!(problem.resources(), resources);
    assert_eq!(p.problem(16, Limits::default()).cores(), 16, "as many as given");
    assert_eq!((problem.num_batches(), problem.limits.ready), (60, 4));
    let of = |i: usize| &problem.routes()[i];
    let used = |i: usize| {
        let h = &of(i).hardware;
        [&h.batching, &h.transferring, &h.training].map(|names| names.join("+"))
    };
    assert_eq!(used(0), ["CPU", "CPU", "CPU"]);
    assert_eq!(used(1), ["CPU", "PCIe:0", "NPU:0"]);
    assert_eq!(used(2), ["NPU:0+PCIe:0", "NPU:0", "NPU:0"]);
    assert_eq!([0, 1, 2].map(|i| (of(i).in_place, of(i).on_host)), [(true, true), (false, false), (true, false)]);
    // A device's mini-batches and its worker take there what they say.
    assert_eq!([0, 1, 2].map(|i| (of(i).bytes.batched, of(i).bytes.ready)), [(40, 40), (40, 80), (80, 80)]);
    assert_eq!([0, 1, 2].map(|i| of(i).bytes.worker), [280, 280, 1250]);
    let plans = morphgl_plan::plan(&problem).expect("it fits");
    assert!(plans.all().len() >= 6, "{plans}");
}

#[test]
fn shared_operators_are_measured_once() {
    // A step of two threads takes as long as training by several threads warms up.
    let mut fakes = Fakes::with_device(60, Times { training: 80, ..QUICK });
    let settings = Settings { splits: 0, ..unlimited(2) };
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
    assert_eq!(fakes.steps(0), 8);
    assert_eq!(fakes.steps(1), 4);
    // The device's memory has the mini-batch in training and the next one, at most.
    assert_eq!(fakes.log.record().on_device.peak, 2);
}

#[test]
fn a_sampler_that_gathers_is_measured_apart_from_one_that_does_not() {
    let mut fakes = Fakes::with_device(60, QUICK);
    fakes.routes.remove(0);
    // The same sampler, whose features the next operator gathers.
    let before = ["Batching_CPU_Fake", "Transferring_NPU+PCIe_Fake"];
    fakes.add_route(60, Times { batching: 1, ..QUICK }, before, 1);
    fakes.routes[2].gathering = Phase::Transferring;
    let p = fakes.profile(&Settings { splits: 0, ..unlimited(2) }).expect("nothing fails");
    let [gathers, _, leaves_out] = &p.routes[..] else { panic!("three routes") };
    assert_eq!(gathers.batching.len(), leaves_out.batching.len(), "the same pools");
    assert_ne!(gathers.batching, leaves_out.batching, "samples of its own");
    assert_eq!(gathers.training, leaves_out.training);
    let problem = p.problem(2, Limits::default());
    let used = &problem.routes()[2].hardware;
    assert_eq!((used.batching.join("+"), used.transferring.join("+")), ("CPU".into(), "NPU:0+PCIe:0".into()));
}

#[test]
fn a_transfer_between_devices_holds_the_links_of_both() {
    let mut fakes = Fakes::with_device(60, QUICK);
    let mut p = fakes.profile(&Settings { splits: 0, ..unlimited(2) }).expect("nothing fails");
    let between = &mut p.routes[2].route;
    between.transferring = "Transferring_NPU+PCIe+Peer_Fake".parse().expect("a key");
    between.batched_at = "npu:1".parse().expect("a place");
    assert!(between.is_between_devices());
    let problem = p.problem(2, Limits::default());
    let route = &problem.routes()[2];
    let held = [&route.hardware.batching, &route.hardware.transferring, &route.hardware.training];
    assert_eq!(held.map(|names| names.join("+")), ["NPU:1+PCIe:1", "NPU:0+PCIe:0+Peer:1+Peer:0", "NPU:0"]);
    assert!(!route.in_place && !route.on_host);
    // A file keeps the places.
    let text = serde_json::to_string(&p.routes[2].route).expect("plain data");
    assert_eq!(serde_json::from_str::<Route>(&text).expect("a route"), p.routes[2].route);
}

/// Lets a step take so many milliseconds, and `slowed` times as long more for each worker that prepares a mini-batch when it
/// begins; counts the steps beside any.
fn count_beside(training: &mut Fake, millis: f64, slowed: f64) -> Arc<AtomicUsize> {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    training.takes(move |call| {
        let workers = call.running[Phase::Batching as usize];
        counted.fetch_add(usize::from(workers > 0), Ordering::SeqCst);
        millis * (1.0 + slowed * workers as f64)
    });
    count
}

#[test]
fn interference_is_measured_at_the_plans_split() {
    in_one_of_thirty(|| {
        let mut fakes = Fakes::new(400, Times { batching: 6, transferring: 0, training: 12 });
        let training = Phase::Training as usize;
        fakes.routes[0].batching.takes(move |call| if call.running[training] > 0 { 12.0 } else { 6.0 });
        let beside = count_beside(&mut fakes.trainers[0], 12.0, 1.5);
        let p = fakes.profile(&unlimited(2)).expect("nothing fails");
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
        // Workers were at work in every sample of training.
        let beside = beside.load(Ordering::SeqCst);
        if beside < 3 * r.interference.len() {
            return Err(format!("{beside} steps beside batching"));
        }
        // A worker is slowed only if a step runs when it begins, which is nearly always so.
        let Contention { batching, training } = share.contention.expect("it was measured");
        // Each preparing worker adds 1.5 times the duration.
        let expected = 1.0 + 1.5 * workers as f64;
        let about = (1.3..3.5).contains(&batching) && (0.6 * expected..1.6 * expected).contains(&training);
        if about { Ok(()) } else { Err(format!("{batching} and {training} with {workers} workers")) }
    });
}

#[test]
fn without_interference_few_splits_are_measured() {
    in_one_of_thirty(|| {
        let mut fakes = Fakes::new(400, Times { batching: 4, transferring: 0, training: 24 });
        let p = fakes.profile(&unlimited(4)).expect("nothing fails");
        let interference = &p.routes[0].interference;
        assert!(interference.len() <= 12, "{interference:?}");
        let problem = p.problem(4, Limits::default());
        let plans = morphgl_plan::plan(&problem).expect("it fits");
        // Every split of the cores has a contention: its own, or that of the nearest measured split.
        let durations = &problem.routes()[0].durations;
        durations.contention(4, 1, 1).ok_or_else(|| "no split was measured".to_string())?;
        assert!(durations.contention(4, 1, 2).is_none(), "no plan may have that many threads");
        plans.best().schedule.shares[0].contention.ok_or_else(|| format!("not measured: {plans}"))?;
        interference.iter().try_for_each(|t| {
            let c = durations.contention(t.workers, t.threads, t.training_threads).expect("measured");
            let about = (1.0..1.5).contains(&c.batching) && (1.0..1.5).contains(&c.training);
            if about { Ok(()) } else { Err(format!("{t:?} {c:?}")) }
        })
    });
}

#[test]
fn interference_is_not_measured_on_different_hardware() {
    let mut fakes = Fakes::with_device(60, QUICK);
    fakes.routes.remove(0);
    let beside = count_beside(&mut fakes.trainers[1], QUICK.training as f64, 0.0);
    let p = fakes.profile(&unlimited(2)).expect("nothing fails");
    assert!(p.routes.iter().all(|r| r.interference.is_empty()));
    assert_eq!(beside.load(Ordering::SeqCst), 0);
    // Nor is that of a host's route far slower than the device's.
    let mut fakes = Fakes::with_device(60, Times { batching: 2, transferring: 0, training: 0 });
    fakes.trainers[0].takes(|_| 60.0);
    let p = fakes.profile(&unlimited(2)).expect("nothing fails");
    assert!(p.routes[0].interference.is_empty(), "{:?}", p.routes[0].interference);
}

#[test]
fn operators_that_fail_while_interference_is_measured_are_named() {
    let settings = unlimited(2);
    for fault in [Fault::ERROR, Fault::Panic] {
        let mut fakes = Fakes::new(400, QUICK);
        // Training alone has no worker beside it.
        fakes.trainers[0].fails(move |call| (call.running[Phase::Batching as usize] > 0).then_some(fault));
        let error = fakes.profile(&settings).expect_err("a fault is injected");
        assert_eq!(error.context, "Training_CPU_Fake");
        fakes.check_unchanged();
    }
    for fault in [Fault::ERROR, Fault::Panic] {
        let mut fakes = Fakes::new(400, Times { batching: 1, transferring: 0, training: 600 });
        // Alone some dozens of mini-batches are prepared, during half a second of training hundreds.
        fail(&mut fakes.routes[0].batching, 120, fault);
        let error = fakes.profile(&Settings { batches: 1, ..settings.clone() }).expect_err("a fault is injected");
        assert_eq!(error.context, "Batching_CPU_Fake");
        assert!(fakes.steps(0) >= 4, "training had been measured alone");
        fakes.check_unchanged();
    }
}
