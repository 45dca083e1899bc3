//! Every mini-batch once, in order, within the window, whatever the durations.

mod common;

use std::sync::Arc;

use common::{FakeBatching, FakeTraining, World, content, ends, executor, operators, route};
use morphgl_execute::{Executor, Pool, Stop, prepare};
use morphgl_plan::Schedule;
use morphgl_registry::{BatchId, MiniBatch, Score};
use proptest::prelude::*;

fn schedules() -> Vec<Schedule> {
    let short = |workers, queue| Schedule { queue, ..Schedule::pipeline(workers, 2) };
    vec![Schedule::sequential(3), short(1, 0), short(1, 4), short(2, 1), short(8, 0), short(8, 8)]
}

fn ids(epoch: u32, range: std::ops::Range<u32>) -> Vec<BatchId> {
    range.map(|index| BatchId { epoch, index }).collect()
}

/// Trains two epochs, the second in two parts, and looks at everything.
#[track_caller]
fn check(delays: Vec<[u64; 3]>, num_batches: usize, schedule: Schedule) {
    let world = Arc::new(World { delays, ..World::new(num_batches) });
    let end = num_batches as u32;
    let mut executor = executor(&world, &schedule);
    assert_eq!(executor.num_batches(), end);
    let mut events = Vec::new();
    let mut batches = 0;
    for (epoch, range) in [(0, 0..end), (1, 0..end / 3), (1, end / 3..end)] {
        let mut observe = |done: &morphgl_execute::BatchDone| events.push(*done);
        let report = executor.train(epoch, range.clone(), &Stop::new(), &mut observe).expect("nothing fails");
        assert_eq!((report.first, report.next, report.stopped), (range.start, range.end, false));
        assert_eq!((report.batches, report.seeds), (range.len(), 4 * range.len() as u64));
        assert_eq!(report.score.loss_sum, range.clone().map(f64::from).sum::<f64>());
        assert_eq!(report.score.count, 4 * range.len() as u64);
        assert!(report.peak_in_flight <= schedule.window(), "{} in flight", report.peak_in_flight);
        let spent = report.busy.training + report.trainer_waited;
        assert!(spent <= report.seconds, "{spent} s of {} s on one thread", report.seconds);
        batches += range.len();
    }
    let expected: Vec<BatchId> = [ids(0, 0..end), ids(1, 0..end)].concat();
    assert_eq!(events.iter().map(|e| e.id).collect::<Vec<_>>(), expected);
    for e in &events {
        assert!(e.batching.start + e.batching.seconds <= e.transferring.start, "{} is batched, then moved", e.id);
        assert!(e.transferring.start + e.transferring.seconds <= e.training.start, "{} is moved, then trained", e.id);
        assert!(e.worker < schedule.workers);
        assert!(e.ready < schedule.window(), "{} ready beside {}", e.ready, e.id);
    }
    let seen = world.seen.lock().expect("not poisoned");
    assert_eq!(seen.trained, expected);
    assert_eq!(seen.steps, batches);
    let mut prepared = seen.prepared.clone();
    prepared.sort();
    assert_eq!(prepared, expected, "each is prepared once");
    assert!(seen.live.is_empty());
    assert!(seen.peak_live <= schedule.window(), "{} buffers live", seen.peak_live);
    assert!(seen.buffers as usize <= schedule.window(), "{} buffers made, epochs share them", seen.buffers);
    assert_eq!(seen.worker_threads, vec![schedule.threads_per_worker; schedule.workers], "workers are kept");
    if num_batches > 0 {
        assert_eq!(seen.training_threads, schedule.training_threads);
    }
}

#[test]
fn each_once_and_in_order() {
    for schedule in schedules() {
        for num_batches in [0, 1, 2, 7, 40] {
            ends(move || check(Vec::new(), num_batches, schedule));
        }
    }
}

#[test]
fn one_slow_mini_batch_does_not_let_the_others_run_ahead() {
    for schedule in schedules() {
        let mut delays = vec![[0, 0, 0]; 40];
        delays[5] = [30_000, 0, 0];
        ends(move || check(delays, 40, schedule));
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
        ends(move || check(delays, num_batches, Schedule { queue, ..Schedule::pipeline(workers, 1) }));
    }
}

#[test]
fn a_pipeline_batches_while_it_trains() {
    // No timing: the first mini-batch's training waits until the second has been prepared, which needs another thread.
    let world = Arc::new(World::new(2));
    let looker = Arc::clone(&world);
    ends(move || {
        let batching = FakeBatching(Arc::clone(&world));
        let mut pool = Pool::new(&route().batching, &batching, &Schedule::pipeline(1, 1)).expect("a pool");
        let mut consume = |batch: &MiniBatch| {
            while looker.seen.lock().expect("not poisoned").prepared.len() < 2 {
                std::thread::yield_now();
            }
            FakeTraining::look(&looker, batch)
        };
        prepare(&mut pool, None, 0, 0..2, &Stop::new(), &mut consume, &mut |_| {}).expect("nothing fails");
    });
}

#[test]
fn a_loader_is_an_iterator() {
    for schedule in schedules() {
        ends(move || {
            let world = Arc::new(World::new(20));
            let mut pool = Pool::new(&route().batching, &FakeBatching(Arc::clone(&world)), &schedule).expect("a pool");
            // All of an epoch, half of the mini-batches recycled, the others kept.
            let mut kept = Vec::new();
            let mut loader = pool.load(3, 0..20, &Stop::new()).expect("a loader");
            let mut next = 0;
            while let Some(batch) = loader.next() {
                let batch = batch.expect("nothing fails");
                assert_eq!(batch.id(), BatchId { epoch: 3, index: next });
                assert_eq!(batch.host().expect("on the host").input_nodes, content(batch.id()));
                FakeTraining::look(&world, &batch).expect("nothing fails");
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
                assert_eq!(batch.host().expect("on the host").input_nodes, content(batch.id()), "kept ones stay whole");
            }
        });
    }
}

#[test]
fn a_loader_dropped_early_ends_its_threads() {
    for schedule in schedules() {
        ends(move || {
            let world = Arc::new(World::new(1000));
            let batching = FakeBatching(Arc::clone(&world));
            let mut pool = Pool::new(&route().batching, &batching, &schedule).expect("a pool");
            for _ in 0..3 {
                let mut loader = pool.load(0, 0..1000, &Stop::new()).expect("a loader");
                loader.next().expect("there are more").expect("nothing fails");
                drop(loader);
                let seen = world.seen.lock().expect("not poisoned").prepared.len();
                assert!(seen <= 3 * (schedule.window() + 1), "{seen} prepared");
            }
            drop((pool, batching));
            // The world's only owner is this test: no thread is left that holds a worker.
            assert_eq!(Arc::strong_count(&world), 1);
        });
    }
}

#[test]
fn preparing_alone_transfers_too_and_reports() {
    for schedule in schedules() {
        ends(move || {
            let world = Arc::new(World::new(12));
            let mut operators = operators(&world);
            let key = route().transferring;
            let mut pool = Pool::new(&route().batching, operators.batching.as_ref(), &schedule).expect("a pool");
            let by = morphgl_execute::Transfer { key: &key, operator: operators.transferring.as_mut() };
            let mut consume = |batch: &MiniBatch| FakeTraining::look(&world, batch);
            let report = prepare(&mut pool, Some(by), 0, 2..12, &Stop::new(), &mut consume, &mut |_| {});
            let report = report.expect("nothing fails");
            assert_eq!((report.batches, report.score.count), (10, 40));
            assert_eq!(world.seen.lock().expect("not poisoned").trained, ids(0, 2..12));
        });
    }
}

#[test]
fn a_schedule_can_change_between_parts_of_an_epoch() {
    ends(|| {
        let world = Arc::new(World::new(30));
        let mut executor: Executor = executor(&world, &Schedule::sequential(2));
        for (i, schedule) in
            [Schedule::pipeline(2, 1), Schedule::pipeline(2, 2), Schedule::pipeline(5, 1)].iter().enumerate()
        {
            executor.set_schedule(schedule).expect("workers can be made");
            assert_eq!(executor.schedule(), schedule);
            let part = 10 * i as u32..10 * (i as u32 + 1);
            executor.train(0, part, &Stop::new(), &mut |_| {}).expect("nothing fails");
            assert_eq!(world.seen.lock().expect("not poisoned").training_threads, schedule.training_threads);
        }
        assert_eq!(world.seen.lock().expect("not poisoned").trained, ids(0, 0..30));
    });
}

#[test]
fn more_mini_batches_than_there_are_is_an_error() {
    let world = Arc::new(World::new(3));
    let error = executor(&world, &Schedule::pipeline(1, 1)).train(0, 0..4, &Stop::new(), &mut |_| {});
    let text = error.expect_err("there are three").to_string();
    assert_eq!(text, "Batching_CPU_Fake: mini-batches up to 4 are asked for, an epoch has 3; ask for fewer");
}

#[test]
fn scores_of_preparing_are_the_callers() {
    let world = Arc::new(World::new(5));
    let batching = FakeBatching(Arc::clone(&world));
    let mut pool = Pool::new(&route().batching, &batching, &Schedule::pipeline(2, 1)).expect("a pool");
    let mut consume = |_: &MiniBatch| Ok(Score { loss_sum: 0.5, correct: 1, count: 2 });
    let report = prepare(&mut pool, None, 0, 0..1, &Stop::new(), &mut consume, &mut |_| {}).expect("nothing fails");
    assert_eq!(report.score, Score { loss_sum: 0.5, correct: 1, count: 2 });
}
