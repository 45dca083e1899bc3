//! Failures, panics and stops: the right words, no hang, no thread left.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use common::{FakeBatching, FakeTraining, Fault, World, ends, executor, route};
use morphgl_execute::{Error, ErrorKind, Pool, Stop, prepare};
use morphgl_plan::Schedule;
use morphgl_registry::{BatchId, MiniBatch, Phase};

const NUM_BATCHES: usize = 24;

fn schedules() -> [Schedule; 5] {
    let queue = |workers, queue| Schedule { queue, ..Schedule::pipeline(workers, 1) };
    [Schedule::sequential(1), queue(1, 0), queue(2, 2), queue(8, 0), queue(8, 20)]
}

fn key(phase: Phase) -> String {
    format!("{phase}_CPU_Fake")
}

/// Runs into the fault, and looks at what is left.
#[track_caller]
fn fail(phase: Phase, at: u32, fault: Fault, schedule: Schedule) -> Error {
    ends(move || {
        let world = Arc::new(World { fault: Some((phase, at, fault)), ..World::new(NUM_BATCHES) });
        let mut executor = executor(&world, &schedule);
        let mut events = 0;
        let outcome = executor.train(0, 0..NUM_BATCHES as u32, &Stop::new(), &mut |_| events += 1);
        let error = outcome.expect_err("it was told to fail");
        assert_eq!(error.operator.as_ref().map(ToString::to_string), Some(key(phase)));
        assert_eq!(error.batch, Some(BatchId { epoch: 0, index: at }));
        let (trained, steps) = {
            let seen = world.seen.lock().expect("not poisoned");
            (seen.trained.len(), seen.steps)
        };
        assert_eq!((trained, steps, events), (at as usize, at as usize, at as usize), "all before it, none after");
        drop(executor);
        assert_eq!(Arc::strong_count(&world), 1, "a thread is left");
        error
    })
}

#[test]
fn an_error_names_operator_and_mini_batch() {
    for schedule in schedules() {
        for phase in Phase::ALL {
            for at in [0, 1, 11, NUM_BATCHES as u32 - 1] {
                let error = fail(phase, at, Fault::Error, schedule);
                assert!(matches!(error.kind, ErrorKind::Failed(_)));
                let expected = format!("{}: mini-batch {at} of epoch 0: fake: out of luck", key(phase));
                assert_eq!(error.to_string(), expected);
            }
        }
    }
}

#[test]
fn so_does_a_panic() {
    for schedule in schedules() {
        for phase in Phase::ALL {
            for at in [0, 7, NUM_BATCHES as u32 - 1] {
                let error = fail(phase, at, Fault::Panic, schedule);
                let start = format!("{}: mini-batch {at} of epoch 0: panicked: lost my head", key(phase));
                assert!(error.to_string().starts_with(&start), "{error}");
            }
        }
    }
}

#[test]
fn another_mini_batch_than_asked_for_is_a_failure() {
    for schedule in schedules() {
        for phase in [Phase::Batching, Phase::Transferring] {
            let error = fail(phase, 3, Fault::Mixup, schedule);
            assert!(error.to_string().contains("it delivered mini-batch 4 of epoch 0 instead"), "{error}");
        }
    }
}

#[test]
fn of_two_failures_the_first_in_order_is_told() {
    // Training fails at 2 while batching, far ahead, has failed at 5 long ago: the window is wide, and training is slow.
    ends(|| {
        let world = Arc::new(World { fault: Some((Phase::Batching, 5, Fault::Error)), ..World::new(NUM_BATCHES) });
        let batching = FakeBatching(Arc::clone(&world));
        let schedule = Schedule { queue: 20, ..Schedule::pipeline(4, 1) };
        let mut pool = Pool::new(&route().batching, &batching, &schedule).expect("a pool");
        let mut consume = |batch: &MiniBatch| {
            while world.seen.lock().expect("not poisoned").prepared.len() < 8 {
                std::thread::yield_now();
            }
            match batch.id().index {
                2 => Err(morphgl_registry::Error::failed("evaluation", "no")),
                _ => FakeTraining::look(&world, batch),
            }
        };
        let outcome = prepare(&mut pool, None, 0, 0..24, &Stop::new(), &mut consume, &mut |_| {});
        let error = outcome.expect_err("it was told to fail");
        assert_eq!(error.operator, None);
        assert_eq!(error.to_string(), "mini-batch 2 of epoch 0: evaluation: no");
    });
}

#[test]
fn a_pool_survives_errors_and_says_when_panics_have_used_it_up() {
    ends(|| {
        let world = Arc::new(World { fault: Some((Phase::Batching, 0, Fault::Panic)), ..World::new(NUM_BATCHES) });
        let batching = FakeBatching(Arc::clone(&world));
        let mut pool = Pool::new(&route().batching, &batching, &Schedule::pipeline(2, 1)).expect("a pool");
        for _ in 0..2 {
            let mut loader = pool.load(0, 0..1, &Stop::new()).expect("workers are left");
            assert!(matches!(loader.next(), Some(Err(_))));
            assert!(loader.next().is_none());
        }
        let error = pool.load(0, 0..1, &Stop::new()).expect_err("both workers panicked");
        assert_eq!(error.to_string(), "Batching_CPU_Fake: all of its workers panicked earlier; make a new pool");
    });
    ends(|| {
        let world = Arc::new(World { fault: Some((Phase::Batching, 3, Fault::Error)), ..World::new(NUM_BATCHES) });
        let mut executor = executor(&world, &Schedule::pipeline(2, 1));
        executor.train(0, 0..10, &Stop::new(), &mut |_| {}).expect_err("it was told to fail");
        let report = executor.train(0, 4..10, &Stop::new(), &mut |_| {}).expect("the fault is behind");
        assert_eq!((report.batches, report.stopped), (6, false));
    });
}

#[test]
fn a_stop_ends_after_the_current_mini_batch() {
    for schedule in schedules() {
        for at in [0, 5, NUM_BATCHES as u32 - 1] {
            ends(move || {
                let world = Arc::new(World::new(NUM_BATCHES));
                let mut executor = executor(&world, &schedule);
                let stop = Stop::new();
                let flag = stop.clone();
                let mut observe = |done: &morphgl_execute::BatchDone| {
                    if done.id.index == at {
                        flag.request();
                    }
                };
                let report =
                    executor.train(0, 0..NUM_BATCHES as u32, &stop, &mut observe).expect("a stop is no failure");
                assert_eq!((report.next, report.batches), (at + 1, at as usize + 1));
                assert_eq!(report.stopped, at + 1 < NUM_BATCHES as u32);
                // And goes on from there.
                let rest = executor.train(0, report.next..NUM_BATCHES as u32, &Stop::new(), &mut |_| {});
                assert!(!rest.expect("nothing fails").stopped);
                let seen = world.seen.lock().expect("not poisoned");
                let expected: Vec<u32> = (0..NUM_BATCHES as u32).collect();
                assert_eq!(seen.trained.iter().map(|id| id.index).collect::<Vec<_>>(), expected);
            });
        }
    }
}

#[test]
fn a_stop_from_elsewhere_ends_a_run_that_waits() {
    // Batching never gets further than the first mini-batch's sleep before the stop: training is asleep then.
    for schedule in schedules() {
        ends(move || {
            let world = Arc::new(World { delays: vec![[20_000, 0, 0]; NUM_BATCHES], ..World::new(NUM_BATCHES) });
            let stop = Stop::new();
            let mut executor = executor(&world, &schedule);
            let report = std::thread::scope(|scope| {
                scope.spawn(|| {
                    while world.seen.lock().expect("not poisoned").prepared.is_empty() {
                        std::thread::yield_now();
                    }
                    stop.request();
                });
                executor.train(0, 0..NUM_BATCHES as u32, &stop, &mut |_| {}).expect("a stop is no failure")
            });
            assert!(report.stopped);
            assert_eq!(report.next as usize, report.batches);
        });
    }
}

#[test]
fn a_stop_before_the_start_does_nothing() {
    let world = Arc::new(World::new(NUM_BATCHES));
    let stop = Stop::new();
    stop.request();
    for schedule in schedules() {
        let report = executor(&world, &schedule).train(0, 0..3, &stop, &mut |_| {}).expect("a stop is no failure");
        assert_eq!((report.batches, report.next, report.stopped), (0, 0, true));
    }
}

#[test]
fn an_observer_that_panics_is_not_swallowed_and_leaves_no_thread() {
    for schedule in schedules() {
        ends(move || {
            let world = Arc::new(World::new(NUM_BATCHES));
            let mut executor = executor(&world, &schedule);
            let mut observe =
                |done: &morphgl_execute::BatchDone| assert!(done.id.index < 3, "the observer's own fault");
            let run = AssertUnwindSafe(|| executor.train(0, 0..NUM_BATCHES as u32, &Stop::new(), &mut observe));
            catch_unwind(run).expect_err("the panic is the caller's to see");
            drop(executor);
            assert_eq!(Arc::strong_count(&world), 1, "a thread is left");
        });
    }
}
