//! Pools, loaders and `prepare`: every mini-batch once, in order, within the window, and failures in order.

mod common;

use common::{Fakes, Fault, nodes, with_timeout};
use morphgl_conformance::fake::Fake;
use morphgl_execute::{Pool, PoolSettings, Stop, prepare};
use morphgl_registry::{BatchId, MiniBatch, Phase, Score, Transferring};
use proptest::prelude::*;

fn all_settings() -> Vec<PoolSettings> {
    let ahead = |workers, queue| PoolSettings { queue, threads_per_worker: 2, ..PoolSettings::ahead(workers) };
    vec![PoolSettings::here(3), ahead(1, 0), ahead(1, 4), ahead(2, 1), ahead(8, 0), ahead(8, 8)]
}

fn transferring(fakes: &Fakes) -> Fake {
    fakes.operator("Transferring_CPU_Fake", true)
}

fn pool(fakes: &Fakes, settings: PoolSettings) -> Pool {
    let batching = fakes.operator("Batching_CPU_Fake", true);
    Pool::new(&batching.key, &batching, settings).expect("a pool")
}

fn ids(epoch: u32, range: std::ops::Range<u32>) -> Vec<BatchId> {
    range.map(|index| BatchId { epoch, index }).collect()
}

/// Prepares two epochs, the second in two parts, and checks reports and the operators' records.
#[track_caller]
fn check(delays: Vec<[u64; 3]>, num_batches: usize, settings: PoolSettings) {
    let fakes = Fakes { delays, ..Fakes::new(num_batches) };
    let end = num_batches as u32;
    let mut pool = pool(&fakes, settings);
    assert_eq!(pool.num_batches(), end);
    let mut transferring = transferring(&fakes);
    let key = transferring.key.clone();
    for (epoch, range) in [(0, 0..end), (1, 0..end / 3), (1, end / 3..end)] {
        let mut consume = |batch: &MiniBatch| fakes.train(batch);
        let transfer = Some((&key, &mut transferring as &mut dyn Transferring));
        let report = prepare(&mut pool, transfer, epoch, range.clone(), &Stop::new(), &mut consume);
        let report = report.expect("nothing fails");
        assert_eq!((report.next, report.stopped), (range.end, false));
        assert_eq!(report.score.loss_sum, range.clone().map(f64::from).sum::<f64>());
        assert_eq!(report.score.count, 2 * range.len() as u64);
        assert!(report.peak_in_flight <= settings.window(), "{} in flight", report.peak_in_flight);
    }
    let expected: Vec<BatchId> = [ids(0, 0..end), ids(1, 0..end)].concat();
    let (record, checks) = (fakes.record(), fakes.checks());
    assert_eq!(record.trained, expected);
    let mut prepared = record.prepared.clone();
    prepared.sort();
    assert_eq!(prepared, expected, "each is prepared once");
    assert!(checks.live.is_empty());
    assert!(checks.peak_live <= settings.window(), "{} buffers live", checks.peak_live);
    assert!(checks.buffers as usize <= settings.window(), "{} buffers made, epochs share them", checks.buffers);
    assert_eq!(record.worker_threads, vec![settings.threads_per_worker; settings.workers.max(1)], "workers are kept");
}

#[test]
fn each_once_and_in_order() {
    for settings in all_settings() {
        for num_batches in [0, 1, 2, 7, 40] {
            with_timeout(move || check(Vec::new(), num_batches, settings));
        }
    }
}

#[test]
fn one_slow_mini_batch_does_not_let_the_others_run_ahead() {
    for settings in all_settings() {
        let mut delays = vec![[0, 0, 0]; 40];
        delays[5] = [30_000, 0, 0];
        with_timeout(move || check(delays, 40, settings));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn any_durations(
        delays in proptest::collection::vec([0u64..600, 0u64..200, 0u64..400], 1..24),
        workers in 1usize..=8, queue in 0usize..4,
    ) {
        let num_batches = delays.len();
        with_timeout(move || check(delays, num_batches, PoolSettings { queue, ..PoolSettings::ahead(workers) }));
    }
}

#[test]
fn workers_prepare_while_the_caller_works() {
    // Without timing: the first mini-batch's consumer waits until the second has been prepared, which needs another thread.
    let fakes = Fakes::new(2);
    with_timeout(move || {
        let mut pool = pool(&fakes, PoolSettings::ahead(1));
        let mut consume = |batch: &MiniBatch| {
            while fakes.record().prepared.len() < 2 {
                std::thread::yield_now();
            }
            fakes.train(batch)
        };
        prepare(&mut pool, None, 0, 0..2, &Stop::new(), &mut consume).expect("nothing fails");
    });
}

#[test]
fn a_loader_is_an_iterator() {
    for settings in all_settings() {
        with_timeout(move || {
            let fakes = Fakes::new(20);
            let mut pool = pool(&fakes, settings);
            // All of an epoch, half of the mini-batches recycled, the others kept.
            let mut kept = Vec::new();
            let mut loader = pool.load(3, 0..20, &Stop::new()).expect("a loader");
            let mut next = 0;
            while let Some(batch) = loader.next() {
                let batch = batch.expect("nothing fails");
                assert_eq!(batch.id(), BatchId { epoch: 3, index: next });
                assert_eq!(batch.host().expect("on the host").input_nodes, nodes(batch.id()));
                fakes.train(&batch).expect("nothing fails");
                if next % 2 == 0 {
                    loader.recycle(batch)
                } else {
                    kept.push(batch)
                }
                next += 1;
            }
            assert_eq!((next, kept.len()), (20, 10));
            assert!(loader.next().is_none(), "the end is the end");
            drop(loader);
            for batch in &kept {
                assert_eq!(
                    batch.host().expect("on the host").input_nodes,
                    nodes(batch.id()),
                    "kept mini-batches are unchanged"
                );
            }
        });
    }
}

#[test]
fn a_loader_dropped_early_ends_its_threads() {
    for settings in all_settings() {
        with_timeout(move || {
            let fakes = Fakes::new(1000);
            let mut pool = pool(&fakes, settings);
            for _ in 0..3 {
                let mut loader = pool.load(0, 0..1000, &Stop::new()).expect("a loader");
                loader.next().expect("there are more").expect("nothing fails");
                drop(loader);
                let observed = fakes.record().prepared.len();
                assert!(observed <= 3 * (settings.window() + 1), "{observed} prepared");
            }
            drop(pool);
            fakes.no_thread_is_left();
        });
    }
}

#[test]
fn more_mini_batches_than_there_are_is_an_error() {
    let fakes = Fakes::new(3);
    let mut pool = pool(&fakes, PoolSettings::ahead(1));
    let error = pool.load(0, 0..4, &Stop::new()).expect_err("there are three");
    let text = "Batching_CPU_Fake: mini-batches up to 4 are asked for, an epoch has 3; ask for fewer";
    assert_eq!(error.to_string(), text);
}

#[test]
fn scores_are_the_callers() {
    let fakes = Fakes::new(5);
    let mut pool = pool(&fakes, PoolSettings::ahead(2));
    let mut consume = |_: &MiniBatch| Ok(Score { loss_sum: 0.5, correct: 1, count: 2 });
    let report = prepare(&mut pool, None, 0, 0..1, &Stop::new(), &mut consume).expect("nothing fails");
    assert_eq!(report.score, Score { loss_sum: 0.5, correct: 1, count: 2 });
}

#[test]
fn a_failure_names_operator_and_mini_batch() {
    for settings in all_settings() {
        for phase in [Phase::Batching, Phase::Transferring, Phase::Training] {
            for fault in [Fault::ERROR, Fault::Panic, Fault::OtherBatch] {
                if phase == Phase::Training && fault == Fault::OtherBatch {
                    continue;
                }
                with_timeout(move || {
                    let at = 7;
                    let fakes = Fakes { fault: Some((phase, at, fault)), ..Fakes::new(24) };
                    let (mut pool, mut operator) = (pool(&fakes, settings), transferring(&fakes));
                    let key = operator.key.clone();
                    let mut consume = |batch: &MiniBatch| fakes.train(batch);
                    let transfer = Some((&key, &mut operator as &mut dyn Transferring));
                    let outcome = prepare(&mut pool, transfer, 0, 0..24, &Stop::new(), &mut consume);
                    let error = outcome.expect_err("a fault is injected");
                    let who = match phase {
                        Phase::Batching => Some("Batching_CPU_Fake".to_string()),
                        Phase::Transferring => Some(key.to_string()),
                        Phase::Training => None,
                    };
                    assert_eq!(error.operator.as_ref().map(ToString::to_string), who);
                    assert_eq!(error.batch, Some(BatchId { epoch: 0, index: at }));
                    let what = match fault {
                        Fault::Panic => "panicked: injected panic",
                        Fault::OtherBatch => "it delivered mini-batch 8 of epoch 0 instead",
                        _ => "injected error",
                    };
                    assert!(error.to_string().contains(what), "{error}");
                    assert_eq!(fakes.record().trained, ids(0, 0..at), "all before it, none after");
                    drop((pool, operator));
                    fakes.no_thread_is_left();
                });
            }
        }
    }
}

#[test]
fn of_two_failures_the_first_in_order_is_reported() {
    // Batching fails at 5, long before the slow caller fails at 2: the window is wide.
    with_timeout(|| {
        let fakes = Fakes { fault: Some((Phase::Batching, 5, Fault::ERROR)), ..Fakes::new(24) };
        let mut pool = pool(&fakes, PoolSettings { queue: 20, ..PoolSettings::ahead(4) });
        let mut consume = |batch: &MiniBatch| {
            while fakes.record().prepared.len() < 8 {
                std::thread::yield_now();
            }
            match batch.id().index {
                2 => Err(morphgl_registry::Error::failed("evaluation", "no")),
                _ => fakes.train(batch),
            }
        };
        let outcome = prepare(&mut pool, None, 0, 0..24, &Stop::new(), &mut consume);
        let error = outcome.expect_err("a fault is injected");
        assert_eq!(error.operator, None);
        assert_eq!(error.to_string(), "mini-batch 2 of epoch 0: evaluation: no");
    });
}

#[test]
fn a_pool_loses_a_worker_by_each_panic_and_reports_the_last() {
    with_timeout(|| {
        let fakes = Fakes { fault: Some((Phase::Batching, 0, Fault::Panic)), ..Fakes::new(24) };
        let mut pool = pool(&fakes, PoolSettings::ahead(2));
        for _ in 0..2 {
            let mut loader = pool.load(0, 0..1, &Stop::new()).expect("workers are left");
            assert!(matches!(loader.next(), Some(Err(_))));
            assert!(loader.next().is_none());
        }
        let error = pool.load(0, 0..1, &Stop::new()).expect_err("both workers panicked");
        assert_eq!(error.to_string(), "Batching_CPU_Fake: all of its workers panicked earlier; make a new pool");
    });
}

#[test]
fn a_stop_ends_after_the_current_mini_batch() {
    for settings in all_settings() {
        for at in [0, 5, 23] {
            with_timeout(move || {
                let fakes = Fakes { delays: vec![[300, 0, 0]; 24], ..Fakes::new(24) };
                let (mut pool, stop) = (pool(&fakes, settings), Stop::new());
                let mut consume = |batch: &MiniBatch| {
                    if batch.id().index == at {
                        stop.request();
                    }
                    fakes.train(batch)
                };
                let report = prepare(&mut pool, None, 0, 0..24, &stop, &mut consume);
                let report = report.expect("a stop is no failure");
                assert_eq!(report.next, at + 1);
                assert_eq!(report.stopped, at + 1 < 24);
                let rest = prepare(&mut pool, None, 0, report.next..24, &Stop::new(), &mut consume);
                assert!(!rest.expect("nothing fails").stopped);
                assert_eq!(fakes.record().trained, ids(0, 0..24));
            });
        }
    }
}

#[test]
fn a_stop_from_another_thread_ends_a_caller_that_waits() {
    // Batching is in the first mini-batch's sleep when the stop is requested: the caller is asleep then.
    for settings in all_settings() {
        with_timeout(move || {
            let fakes = Fakes { delays: vec![[20_000, 0, 0]; 24], ..Fakes::new(24) };
            let (mut pool, stop) = (pool(&fakes, settings), Stop::new());
            let report = std::thread::scope(|scope| {
                scope.spawn(|| {
                    while fakes.record().prepared.is_empty() {
                        std::thread::yield_now();
                    }
                    stop.request();
                });
                let mut consume = |batch: &MiniBatch| fakes.train(batch);
                prepare(&mut pool, None, 0, 0..24, &stop, &mut consume).expect("a stop is no failure")
            });
            assert!(report.stopped);
            assert_eq!(fakes.record().trained, ids(0, 0..report.next));
        });
    }
}
