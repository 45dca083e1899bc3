//! Every mini-batch once, in the schedule's order, within its buffers, whatever the durations.

mod common;

use std::sync::Arc;

use common::{
    Fakes, Fault, any_schedule, cpu, device, dual, executor, expected_order, interleaved, schedule, with_timeout,
};
use morphgl_execute::{BatchDone, Control, EpochReport, Event, Executor, Settings, Stop};
use morphgl_plan::{Phase, Policy, Schedule};
use morphgl_registry::BatchId;
use proptest::prelude::*;

const RECORD: Settings = Settings { limit: None, record: true };

fn schedules(n: usize) -> Vec<Schedule> {
    let mut schedules = vec![
        cpu(Policy::Sequential, n, 1, 1),
        cpu(Policy::Pipeline, n, 1, 1),
        cpu(Policy::Pipeline, n, 3, 2),
        cpu(Policy::Pipeline, n, 2, 9),
        device(n, 1),
        device(n, 3),
        schedule(Policy::Sequential, &[(0, n, 1, [1.0; 3])], [1, 1]),
        schedule(Policy::Pipeline, &[(0, n, 3, [5.0, 1.0, 2.0])], [4, 2]),
    ];
    if n >= 2 {
        let (host, device) = (n / 2, n - n / 2);
        schedules.extend([
            dual(host, device, 1, [1, 1]),
            dual(host, device, 2, [4, 3]),
            interleaved(host, device, 1, [2, 1], 1),
            interleaved(host, device, 3, [5, 4], 3),
        ]);
    }
    schedules
}

fn trained(events: &[Event<'_>]) -> Vec<BatchDone> {
    let done = |e: &Event<'_>| if let Event::Trained(done) = e { Some(*done) } else { None };
    events.iter().filter_map(done).collect()
}

fn run(executor: &mut Executor, epoch: u32, batches: &[u32]) -> (EpochReport, Vec<Event<'static>>) {
    let mut events = Vec::new();
    let report = executor.train(epoch, batches, &Stop::new(), &mut |e| {
        events.extend(match *e {
            Event::Ended(activity) => Some(Event::Ended(activity)),
            Event::Trained(done) => Some(Event::Trained(done)),
            _ => None,
        });
        Control::Continue
    });
    (report.expect("nothing fails"), events)
}

/// Trains two epochs with an operator that computes when it is called and with ones that queue, and checks reports, events and the
/// operators' records; returns the order of training.
#[track_caller]
fn check(delays: Vec<[u64; 3]>, schedule: &Schedule) -> Vec<u32> {
    [2, 3].into_iter().for_each(|depth| drop(check_queue(delays.clone(), schedule, depth)));
    check_queue(delays, schedule, 1)
}

#[track_caller]
fn check_queue(delays: Vec<[u64; 3]>, schedule: &Schedule, depth: usize) -> Vec<u32> {
    let n = schedule.num_batches();
    let fakes = Fakes { delays, depth, ..Fakes::new(n) };
    let mut executor = executor(&fakes, schedule, RECORD);
    assert_eq!(executor.num_batches() as usize, n);
    let all: Vec<u32> = (0..n as u32).collect();
    let expected: Vec<u32> = expected_order(schedule);
    for epoch in 0..2 {
        let (report, events) = run(&mut executor, epoch, &all);
        assert_eq!((report.epoch, report.stopped, &report.remaining[..]), (epoch, false, &[][..]), "{schedule}");
        assert_eq!((report.batches, report.seeds, report.score.count), (n, 2 * n as u64, 2 * n as u64));
        assert_eq!(report.score.loss_sum, all.iter().copied().map(f64::from).sum::<f64>());
        let streamed = schedule.shares.iter().any(|s| !s.in_place);
        assert!(report.peak_batched <= if streamed { schedule.batched } else { 0 }, "{}", report.peak_batched);
        assert!(report.peak_ready <= schedule.ready, "{}", report.peak_ready);
        let done = trained(&events);
        let id = |index: &u32| BatchId { epoch, index: *index };
        assert_eq!(done.iter().map(|d| d.id).collect::<Vec<_>>(), expected.iter().map(id).collect::<Vec<_>>());
        assert_eq!(report.activities.len(), 3 * n);
        let ended = events.iter().filter_map(|e| if let Event::Ended(a) = e { Some(*a) } else { None });
        assert_eq!(ended.collect::<Vec<_>>(), report.activities);
        let mut last = 0.0;
        for d in &done {
            let [batching, transferring, training] = Phase::ALL.map(|phase| {
                let mut of = report.activities.iter().filter(|a| (a.id, a.share, a.phase) == (d.id, d.share, phase));
                (*of.next().expect("every phase is recorded"), of.next().is_none())
            });
            assert!(batching.1 && transferring.1 && training.1, "every phase of {} once", d.id);
            assert!(batching.0.span.end <= transferring.0.span.start, "{} is batched, then moved", d.id);
            assert!(transferring.0.span.end <= training.0.span.start, "{} is moved, then trained", d.id);
            assert!(last <= training.0.span.start, "one is trained at a time");
            last = training.0.span.end;
            assert!(batching.0.worker < schedule.shares[d.share].workers);
        }
        assert!(done.last().is_none_or(|d| d.left == 0));
        for (i, (share, planned)) in report.shares.iter().zip(&schedule.shares).enumerate() {
            assert_eq!(share.batches, planned.batches);
            let spans = report.activities.iter().filter(|a| a.share == i && a.phase == Phase::Training);
            let sum: f64 = spans.map(|a| a.span.seconds()).sum();
            assert!((sum - share.training.mean * share.batches as f64).abs() < 1e-9);
        }
        for r in &report.resources {
            let names = |a: &morphgl_execute::Activity| {
                let h = &schedule.shares[a.share].hardware;
                [&h.batching, &h.transferring, &h.training][a.phase as usize].contains(&r.resource)
            };
            let sum: f64 = report.activities.iter().filter(|a| names(a)).map(|a| a.span.seconds()).sum();
            assert!((sum - r.seconds).abs() < 1e-9, "{} busy", r.resource);
            assert!((0.0..=1.0).contains(&r.share));
        }
        let spent = report.busy.training + report.trainer_waited;
        assert!(spent <= report.seconds, "{spent} s of {} s in one lane", report.seconds);
    }
    {
        let (record, checks, training) = (fakes.record(), fakes.checks(), *fakes.training());
        assert_eq!(training.steps, 2 * n as u64);
        let mut prepared = record.prepared.clone();
        prepared.sort();
        let both: Vec<BatchId> =
            (0..2).flat_map(|epoch| all.iter().map(move |&index| BatchId { epoch, index })).collect();
        assert_eq!(prepared, both, "each is prepared once");
        assert!(checks.live.is_empty());
        assert!(record.queued.now == 0 && record.queued.peak <= depth, "{:?} queued", record.queued);
        // A mini-batch that is moved is in both buffers' memory.
        assert!(checks.batched.peak <= schedule.batched + 1, "{:?} batched", checks.batched);
        assert!(checks.ready.peak <= schedule.ready + 1, "{:?} ready, one of them in training", checks.ready);
        if schedule.policy == Policy::Sequential {
            assert!(record.active.peak <= 1, "one phase at a time");
        }
        if matches!(&schedule.shares[..], [share] if share.in_place) {
            assert!(
                checks.buffers as usize <= schedule.ready + 1,
                "{} buffers made, epochs share them",
                checks.buffers
            );
        }
        let workers: usize = schedule.shares.iter().map(|s| s.workers).sum();
        assert_eq!(record.worker_threads.len(), workers, "workers are kept");
        assert_eq!(training.threads, schedule.training_threads.max(1));
        let alive = record.on_device.peak;
        assert!(alive <= schedule.ready + 1, "{alive} mini-batches in the device's memory, spares counted");
    }
    drop(executor);
    assert_eq!(fakes.record().on_device.now, 0, "mini-batches are dropped");
    fakes.no_thread_is_left();
    expected
}

#[test]
fn each_once_and_in_the_schedules_order() {
    for n in [0, 1, 2, 7, 40] {
        for schedule in schedules(n) {
            with_timeout(move || check(Vec::new(), &schedule));
        }
    }
}

#[test]
fn one_slow_mini_batch_changes_no_order_and_fills_no_memory() {
    for schedule in schedules(24) {
        for phase in 0..3 {
            let mut delays = vec![[0; 3]; 24];
            delays[5][phase] = 20_000;
            let schedule = schedule.clone();
            with_timeout(move || check(delays, &schedule));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_schedule_and_any_durations(
        schedule in any_schedule(),
        delays in proptest::collection::vec([0u64..400, 0u64..200, 0u64..300], 24),
        others in proptest::collection::vec([0u64..400, 0u64..200, 0u64..300], 24),
    ) {
        let order = with_timeout(move || {
            let order = check(delays, &schedule);
            assert_eq!(order, check(others, &schedule));
            order
        });
        prop_assert!(!order.is_empty());
    }
}

#[test]
fn plans_of_one_route_train_the_same_in_the_same_order() {
    // Model and optimizer see the same sequence of the same mini-batches, so they are equal bit for bit afterwards.
    with_timeout(|| {
        for schedules in [
            vec![cpu(Policy::Sequential, 20, 1, 1), cpu(Policy::Pipeline, 20, 4, 3), cpu(Policy::Pipeline, 20, 1, 1)],
            vec![device(20, 1), device(20, 7), schedule(Policy::Sequential, &[(1, 20, 1, [1.0; 3])], [0, 1])],
        ] {
            for schedule in schedules {
                assert_eq!(check(Vec::new(), &schedule), (0..20).collect::<Vec<_>>(), "{schedule}");
            }
        }
    });
}

#[test]
fn a_pipeline_batches_transfers_and_trains_at_once() {
    // Without timing: the first mini-batch's training waits until three are prepared, which needs other threads.
    with_timeout(|| {
        let fakes = Fakes::new(6);
        let schedule = cpu(Policy::Pipeline, 6, 2, 3);
        let mut executor = executor(&fakes, &schedule, Settings::default());
        let watched = Arc::clone(&fakes.log);
        let mut observe = |e: &Event<'_>| {
            if matches!(e, Event::Ended(a) if a.phase == Phase::Transferring && a.id.index == 0) {
                while watched.record().prepared.len() < 3 {
                    std::thread::yield_now();
                }
            }
            Control::Continue
        };
        let all: Vec<u32> = (0..6).collect();
        executor.train(0, &all, &Stop::new(), &mut observe).expect("nothing fails");
    });
}

#[test]
fn the_next_mini_batch_is_queued_before_the_one_in_training_is_waited_for() {
    // Without timing: the first mini-batch's training continues once four others are ready.
    with_timeout(|| {
        for (depth, expected) in [(1, 0), (2, 2), (3, 3)] {
            let fault = Some((morphgl_registry::Phase::Training, 0, Fault::Hang));
            let fakes = Fakes { depth, fault, ..Fakes::new(24) };
            let schedule = schedule(Policy::Pipeline, &[(0, 24, 2, [1.0, 1.0, 4.0])], [4, 4]);
            let mut executor = executor(&fakes, &schedule, Settings::default());
            let all: Vec<u32> = (0..24).collect();
            let mut observe = |e: &Event<'_>| {
                if matches!(e, Event::Ended(a) if a.phase == Phase::Transferring && a.id.index == 4) {
                    fakes.log.release();
                }
                Control::Continue
            };
            executor.train(0, &all, &Stop::new(), &mut observe).expect("nothing fails");
            assert_eq!(fakes.record().queued.peak, expected, "at depth {depth}");
        }
    });
}

#[test]
fn a_schedule_can_change_between_parts_of_an_epoch() {
    with_timeout(|| {
        let fakes = Fakes::new(40);
        let schedules = [
            device(10, 2),
            dual(5, 5, 2, [4, 2]),
            Schedule { training_threads: 3, ..interleaved(4, 6, 3, [4, 2], 2) },
            schedule(Policy::Pipeline, &[(0, 10, 1, [1.0; 3])], [2, 2]),
        ];
        let mut executor = executor(&fakes, &schedules[0], Settings::default());
        for (i, schedule) in schedules.iter().enumerate() {
            executor.set_schedule(schedule).expect("workers can be made");
            assert_eq!(executor.schedule(), schedule);
            let part: Vec<u32> = (10 * i as u32..10 * (i as u32 + 1)).collect();
            let (report, _) = run(&mut executor, 0, &part);
            assert_eq!(report.batches, 10);
            assert_eq!(fakes.training().threads, schedule.training_threads);
        }
        let mut trained: Vec<u32> = fakes.record().trained.iter().map(|id| id.index).collect();
        trained.sort_unstable();
        assert_eq!(trained, (0..40).collect::<Vec<_>>());
        assert!(fakes.record().on_device.peak <= 3);
    });
}

#[test]
fn operators_are_lent_between_epochs() {
    with_timeout(|| {
        let fakes = Fakes::new(4);
        let schedule = dual(2, 2, 1, [2, 1]);
        let mut executor = executor(&fakes, &schedule, Settings::default());
        let (_, _) = run(&mut executor, 0, &[0, 1, 2, 3]);
        assert_eq!(executor.training_key().to_string(), "Training_DEV_Fake");
        let (route, _, training) = executor.share_mut(0).expect("nothing is lost");
        assert_eq!(route.batching.to_string(), "Batching_CPU_Fake");
        training.set_threads(5).expect("a fake");
        assert_eq!(fakes.training().threads, 5);
        executor.training_mut().expect("nothing is lost").set_threads(6).expect("a fake");
        assert_eq!(fakes.training().threads, 6);
    });
}
