//! Measurements of operators with given durations, and the number of their calls.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::{Fakes, QUICK, Times, fail, unlimited};
use morphgl_conformance::fake::Fault;
use morphgl_plan::Limits;
use morphgl_profile::{ErrorKind, Settings, VERSION, Watch};

#[test]
fn measured_durations_are_those_given() {
    let mut fakes = Fakes::new(60, Times { batching: 8, transferring: 2, training: 16 });
    let settings = Settings { splits: 0, ..unlimited(4) };
    let mut reported = Vec::new();
    let p = fakes.profile_watched(&settings, &Watch::NONE, &mut |progress| reported.push(progress.clone()));
    let p = p.expect("nothing fails");
    fakes.check_unchanged();
    let [r] = &p.routes[..] else { panic!("one route") };
    assert_eq!(r.batching.iter().map(|s| (s.workers, s.threads)).collect::<Vec<_>>(), [(1, 1), (2, 1), (4, 1), (1, 4)]);
    assert_eq!(r.training.iter().map(|s| s.threads).collect::<Vec<_>>(), [1, 2, 3, 4]);
    // A sleep is never shorter than requested; on a busy machine it may be much longer.
    for (sample, least) in r.batching.iter().zip([0.008, 0.004, 0.002, 0.002]) {
        assert!(sample.seconds.samples.iter().all(|&s| s >= least), "{sample:?}");
        assert!(sample.seconds.samples.len() >= 3 * sample.workers, "{sample:?}");
    }
    assert!(r.training.iter().all(|s| s.seconds.median >= 0.016 / s.threads as f64 && s.seconds.samples.len() == 3));
    assert!(r.transferring.median >= 0.002);
    assert!(p.skipped.is_empty());
    assert_eq!((p.version, p.num_batches, r.edges_per_batch), (VERSION, 60, 2.0));
    // 3 input nodes, offsets of 2 rows, 2 edges, of 4 bytes each.
    assert_eq!((r.bytes_per_batch, r.largest.batched_bytes, r.largest.ready_bytes), (32.0, 32, 32));
    assert_eq!(r.largest.worker_bytes, 32 + 3 * 64);
    // The partial mini-batch at the end of an epoch is not measured.
    assert!(fakes.log.record().prepared.iter().all(|id| id.index < 59));
    // The planner reads the same numbers, deviations too.
    let problem = p.problem(4, Limits::default());
    let durations = &problem.routes()[0].durations;
    assert_eq!(durations.batching(2, 1), r.batching[1].seconds.seconds());
    assert!(durations.batching(4, 1).std > 0.0);
    assert_eq!(durations.training().at(3), r.training[2].seconds.seconds());
    assert_eq!(problem.routes()[0].bytes.ready, 40, "a quarter more than the largest measured");
    // The progress goes from nothing to all.
    assert_eq!(reported.first().map(|p| (p.what.as_str(), p.done)), Some(("batching by 1 worker", 0)));
    assert_eq!(reported.last().map(|p| p.done), reported.last().map(|p| p.total));
    assert!(reported.windows(2).all(|w| w[0].done < w[1].done && w[0].total == w[1].total));
}

#[test]
fn without_a_budget_only_needed_points_are_measured() {
    let mut fakes = Fakes::new(1000, QUICK);
    let settings = Settings { budget: Duration::ZERO, batches: 1000, ..Settings::new(8) };
    let p = fakes.profile(&settings).expect("nothing fails");
    fakes.check_unchanged();
    let r = &p.routes[0];
    assert_eq!(r.batching.iter().map(|s| (s.workers, s.threads)).collect::<Vec<_>>(), [(1, 1), (8, 1)]);
    assert_eq!(r.training.iter().map(|s| s.threads).collect::<Vec<_>>(), [8]);
    assert_eq!(
        p.skipped[..8],
        [
            "training with 4 threads",
            "batching by 1 worker of 8 threads",
            "training with 2 threads",
            "batching by 2 workers",
            "training with 1 thread",
            "batching by 4 workers",
            "training with 7 threads",
            // The split of the best plan, which depends on the measurements.
            p.skipped[7].as_str(),
        ]
    );
    assert!(p.skipped[7].contains(" beside training with "), "{:?}", p.skipped);
    assert_eq!(p.skipped.len(), 8);
    assert!(r.interference.is_empty());
    // One step to warm up and one measured; three mini-batches are kept for training, or as many as its warm-up and samples.
    assert_eq!(fakes.log.record().trained.len(), 2);
    assert_eq!(r.training[0].seconds.samples.len(), 1);
    assert!(fakes.log.record().transferred.len() <= 3);
}

#[test]
fn an_epoch_of_few_mini_batches_is_profiled_with_few() {
    // 20 mini-batches: one sample per point, and no more time than an epoch of them takes.
    let mut fakes = Fakes::new(20, Times { batching: 1, transferring: 0, training: 160 });
    let settings =
        Settings { budget: Duration::from_secs(600), least: Duration::ZERO, epochs: Some(0.0), ..Settings::new(4) };
    let p = fakes.profile(&settings).expect("nothing fails");
    assert_eq!(p.routes[0].training.len(), 1);
    assert!(!p.skipped.is_empty(), "no share of an epoch allows nothing more than what is needed");
    assert_eq!(fakes.log.record().trained.len(), 2);
    assert!(p.routes[0].batching.iter().all(|s| s.seconds.samples.len() >= s.workers));
}

#[test]
fn steps_of_threads_that_still_share_a_core_are_not_samples() {
    let mut fakes = Fakes::new(60, Times { batching: 1, transferring: 0, training: 4 });
    // For 20 ms after its threads are set, several share a core: steps report a thousand seconds.
    let (act, set) = (Arc::clone(&fakes.trainers[0].act), Mutex::new((1, Instant::now())));
    fakes.trainers[0].act = Arc::new(move |call| {
        let mut set = set.lock().expect("not poisoned");
        if set.0 != call.threads {
            *set = (call.threads, Instant::now());
        }
        let took = act(call)?;
        let sharing = call.threads > 1 && set.1.elapsed() < Duration::from_millis(20);
        Ok(if sharing { Duration::from_secs(1000) } else { took })
    });
    let p = fakes.profile(&Settings { splits: 0, ..unlimited(2) }).expect("nothing fails");
    let threads: Vec<usize> = p.routes[0].training.iter().map(|s| s.threads).collect();
    assert_eq!(threads, [1, 2]);
    for sample in &p.routes[0].training {
        assert!(sample.seconds.samples.iter().all(|&s| s < 1000.0), "{sample:?}");
    }
}

#[test]
fn a_single_mini_batch_is_enough() {
    let mut fakes = Fakes::new(1, QUICK);
    let settings =
        Settings { batches: 2, pools: Vec::new(), training_threads: Vec::new(), warm_up: 0, ..Settings::new(1) };
    let p = fakes.profile(&settings).expect("nothing fails");
    let r = &p.routes[0];
    assert_eq!((r.batching.len(), r.training.len()), (1, 1));
    assert_eq!((r.batching[0].workers, r.batching[0].threads, r.training[0].threads), (1, 1, 1));
}

#[test]
fn impossible_profiles_are_refused() {
    let error = Fakes::new(0, QUICK).profile(&Settings::new(2)).expect_err("no mini-batch");
    assert!(matches!(error.kind, ErrorKind::Operators(_)));
    assert_eq!(error.to_string(), "Batching_CPU_Fake: there is no mini-batch to measure; give it seeds");
    let mut fakes = Fakes::new(5, QUICK);
    fakes.routes.clear();
    let error = fakes.profile(&Settings::new(2)).expect_err("no route");
    assert_eq!(error.to_string(), "profiling: there is no route to measure; give one at least");
    let mut fakes = Fakes::with_device(5, QUICK);
    fakes.trainers.pop();
    let error = fakes.profile(&Settings::new(2)).expect_err("no trainer of the device");
    assert_eq!(error.to_string(), "Training_NPU_Fake: it is not among the trainers at npu:0; give it too");
    let mut fakes = Fakes::with_device(5, QUICK);
    fakes.routes[2].batching.num_batches = 6;
    let error = fakes.profile(&Settings::new(2)).expect_err("other seeds");
    assert!(matches!(error.kind, ErrorKind::Operators(_)));
    assert!(error.to_string().starts_with("Batching_NPU+PCIe_Fake: it makes 6 mini-batches per epoch, and"), "{error}");
}

#[test]
fn a_failing_operator_is_named_and_the_model_is_unchanged() {
    let settings = unlimited(2);
    for fault in [Fault::ERROR, Fault::Panic] {
        let says = |error: morphgl_profile::Error, key: &str| {
            let expected = match fault {
                Fault::Panic => format!("{key} panicked while it was profiled: injected panic"),
                _ => format!("fake: injected error; {key} met this while it was profiled, and would while it trains"),
            };
            assert_eq!(error.to_string(), expected);
        };
        // In the first pool, in a pool of two, in the measurement of transferring, and in those of the other points.
        for at in [0, 2, 8, 17, 23] {
            let mut fakes = Fakes::new(60, QUICK);
            fail(&mut fakes.routes[0].batching, at, fault);
            says(fakes.profile(&settings).expect_err("a fault is injected"), "Batching_CPU_Fake");
            fakes.check_unchanged();
        }
        let mut fakes = Fakes::new(60, QUICK);
        fakes.routes[0].transferring.fails(move |_| Some(fault));
        says(fakes.profile(&settings).expect_err("a fault is injected"), "Transferring_CPU_Fake");
        for at in [0, 1, 4] {
            let mut fakes = Fakes::new(60, QUICK);
            fail(&mut fakes.trainers[0], at, fault);
            says(fakes.profile(&settings).expect_err("a fault is injected"), "Training_CPU_Fake");
            fakes.check_unchanged();
        }
    }
}

#[test]
fn it_stops_on_request_and_the_model_is_unchanged() {
    let calls = AtomicUsize::new(0);
    let mut fakes = Fakes::new(60, QUICK);
    let stop = || calls.fetch_add(1, Ordering::SeqCst) == usize::MAX;
    fakes.profile_watched(&unlimited(2), &Watch { stop: &stop, ..Watch::NONE }, &mut |_| {}).expect("no");
    let times = calls.into_inner();
    // At the beginning, in the middle and near the end.
    for at in [0, 3, times / 4, times / 2, times - times / 10] {
        let calls = AtomicUsize::new(0);
        let stop = || calls.fetch_add(1, Ordering::SeqCst) >= at;
        let mut fakes = Fakes::new(60, QUICK);
        match fakes.profile_watched(&unlimited(2), &Watch { stop: &stop, ..Watch::NONE }, &mut |_| {}) {
            Err(error) => {
                assert!(matches!(error.kind, ErrorKind::Stopped));
                assert_eq!(error.to_string(), "profiling was stopped; nothing of it is kept");
            }
            // The number of calls depends on the speed of the workers during training.
            Ok(_) => assert!(at > times / 2, "stopped at {at} of about {times}"),
        }
        fakes.check_unchanged();
    }
}
