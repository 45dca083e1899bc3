//! Failures, panics, hangs, stops and cuts: messages, no deadlock, no thread left.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Fakes, Fault, cpu, device, dual, executor, interleaved, schedule, with_timeout};
use morphgl_execute::{Control, Error, ErrorKind, Event, Executor, Settings, Stop};
use morphgl_plan::{Policy, Schedule};
use morphgl_registry::{BatchId, Operators, Phase};
use proptest::prelude::*;

const N: usize = 16;

fn schedules() -> Vec<Schedule> {
    vec![
        cpu(Policy::Sequential, N, 1, 1),
        cpu(Policy::Pipeline, N, 3, 4),
        device(N, 2),
        schedule(Policy::Pipeline, &[(0, N, 2, [2.0, 1.0, 1.0])], [3, 2]),
        dual(N / 2, N / 2, 2, [4, 3]),
        interleaved(N / 2, N / 2, 2, [4, 3], 2),
    ]
}

fn all() -> Vec<u32> {
    (0..N as u32).collect()
}

fn continue_training(_: &Event) -> Control {
    Control::Continue
}

/// The keys of a schedule's operators of this phase.
fn keys(schedule: &Schedule, phase: Phase) -> Vec<String> {
    let of = |s: &morphgl_plan::ScheduleShare| match phase {
        Phase::Batching => s.keys.batching.to_string(),
        Phase::Transferring => s.keys.transferring.to_string(),
        Phase::Training => s.keys.training.to_string(),
    };
    schedule.shares.iter().map(of).collect()
}

/// Runs an epoch with the fault, and checks the error and the executor after it.
#[track_caller]
fn fail(phase: Phase, at: u32, fault: Fault, schedule: &Schedule) -> Error {
    let queued = fail_queued(phase, at, fault, schedule, 2);
    let error = fail_queued(phase, at, fault, schedule, 1);
    assert_eq!(queued.to_string(), error.to_string());
    error
}

#[track_caller]
fn fail_queued(phase: Phase, at: u32, fault: Fault, schedule: &Schedule, depth: usize) -> Error {
    let schedule = schedule.clone();
    with_timeout(move || {
        let fakes = Fakes { fault: Some((phase, at, fault)), depth, ..Fakes::new(N) };
        let mut executor = executor(&fakes, &schedule, Settings::default());
        let mut trained = Vec::new();
        let outcome = executor.train(0, &all(), &Stop::new(), &mut |e| {
            if let Event::Trained(done) = e {
                trained.push(done.id);
            }
            Control::Continue
        });
        let error = outcome.expect_err("a fault is injected");
        let operator = error.operator.as_ref().expect("an operator failed").to_string();
        assert!(keys(&schedule, phase).contains(&operator), "{operator} failed in {phase}");
        assert_eq!(error.batch, Some(BatchId { epoch: 0, index: at }));
        assert!(!trained.iter().any(|id| id.index == at), "the failed mini-batch was not trained");
        if fault != Fault::LateError && fault != Fault::LatePanic {
            assert_eq!(fakes.record().trained, trained, "every step was reported");
        }
        if let ErrorKind::Panicked(_) = error.kind {
            let again =
                executor.train(1, &all(), &Stop::new(), &mut continue_training).expect_err("an operator is lost");
            assert_eq!(again.to_string(), format!("{operator}: lost when it failed earlier; make a new executor"));
            assert!(executor.training_mut().is_err());
            assert!(executor.share_mut(0).is_err());
        }
        drop(executor);
        fakes.no_thread_is_left();
        error
    })
}

/// What an operator says that cannot allocate.
const NO_MEMORY: &str = "4096 bytes cannot be allocated; make mini-batches smaller";

const AT: [u32; 3] = [0, 7, N as u32 - 1];

#[test]
fn an_error_names_operator_and_mini_batch() {
    for schedule in schedules() {
        for phase in Phase::ALL {
            for at in AT {
                for (fault, what) in [
                    (Fault::ERROR, "injected error"),
                    (Fault::LateError, "injected error"),
                    (Fault::Error(NO_MEMORY), NO_MEMORY),
                ] {
                    let error = fail(phase, at, fault, &schedule);
                    assert!(matches!(error.kind, ErrorKind::Failed(_)));
                    let key = error.operator.as_ref().expect("an operator failed").to_string();
                    assert_eq!(error.to_string(), format!("{key}: mini-batch {at} of epoch 0: fake: {what}"));
                }
            }
        }
    }
}

#[test]
fn a_panic_names_operator_and_mini_batch() {
    for schedule in schedules() {
        for phase in Phase::ALL {
            for at in AT {
                for fault in [Fault::Panic, Fault::LatePanic] {
                    let error = fail(phase, at, fault, &schedule);
                    let key = error.operator.as_ref().expect("an operator failed");
                    let start = format!("{key}: mini-batch {at} of epoch 0: panicked: injected panic");
                    assert!(error.to_string().starts_with(&start), "{error}");
                }
            }
        }
    }
}

#[test]
fn the_delivery_of_another_mini_batch_is_a_failure() {
    for schedule in schedules() {
        for phase in [Phase::Batching, Phase::Transferring] {
            let error = fail(phase, 3, Fault::OtherBatch, &schedule);
            assert!(error.to_string().contains("it delivered mini-batch 4 of epoch 0 instead"), "{error}");
        }
    }
}

/// Runs an epoch in which one operator hangs; returns when its thread, released, has ended too.
fn hang(phase: Phase, at: u32, limit: Duration, schedule: &Schedule, depth: usize) {
    let fakes = Fakes { fault: Some((phase, at, Fault::Hang)), depth, ..Fakes::new(N) };
    let mut executor = executor(&fakes, schedule, Settings { limit: Some(limit), record: false });
    let start = Instant::now();
    let error = executor.train(0, &all(), &Stop::new(), &mut continue_training).expect_err("it hangs");
    let took = start.elapsed();
    assert!(took >= limit && took < limit + Duration::from_secs(300), "{took:?}");
    assert!(matches!(error.kind, ErrorKind::Hangs(l) if l == limit), "{error}");
    let key = error.operator.as_ref().expect("an operator hangs").to_string();
    assert!(keys(schedule, phase).contains(&key), "{key} hangs in {phase}");
    let start = format!("{key}: mini-batch {at} of epoch 0: has not answered for 2.000 s; this is a fault");
    assert!(error.to_string().starts_with(&start), "{error}");
    assert!(executor.train(0, &all(), &Stop::new(), &mut continue_training).is_err(), "its operator is lost");
    drop(executor);
    // Owners left by the hanging thread alone: two of its operator; of each mini-batch that the operator has taken, the work and
    // the memory; the memory of the mini-batch that waits in the channel of an operator that queues.
    let waiting = usize::from(depth > 1);
    let left = Arc::strong_count(&fakes.log) - 1;
    assert!((1..=2 + 2 * depth + waiting).contains(&left), "{left} owners left");
    fakes.log.release();
    let patience = Instant::now();
    while Arc::strong_count(&fakes.log) > 1 {
        assert!(patience.elapsed() < Duration::from_secs(300), "the thread ends when it is released");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_hang_is_reported_after_the_limit_and_leaves_one_thread() {
    // All cases run at once: they only wait.
    let cases = schedules().into_iter().flat_map(|s| Phase::ALL.map(|p| (s.clone(), p)));
    with_timeout(|| {
        std::thread::scope(|scope| {
            for (schedule, phase) in cases {
                let limit = Duration::from_secs(2);
                for depth in [1, 2] {
                    let schedule = schedule.clone();
                    scope.spawn(move || AT.iter().for_each(|&at| hang(phase, at, limit, &schedule, depth)));
                }
            }
        });
    });
}

#[test]
fn a_limit_that_no_step_exceeds_changes_nothing() {
    for schedule in schedules() {
        with_timeout(move || {
            let fakes = Fakes { delays: vec![[2_000, 1_000, 1_000]; N], ..Fakes::new(N) };
            // Far more than a step takes, less than the epoch.
            for limit in [Duration::from_secs(300), Duration::MAX] {
                let mut executor = executor(&fakes, &schedule, Settings { limit: Some(limit), record: false });
                let report = executor.train(0, &all(), &Stop::new(), &mut continue_training).expect("nothing hangs");
                assert_eq!(report.batches, N);
            }
        });
    }
}

#[test]
fn an_executor_trains_after_an_error() {
    for schedule in schedules() {
        with_timeout(move || {
            let fakes = Fakes { fault: Some((Phase::Batching, 3, Fault::ERROR)), ..Fakes::new(2 * N) };
            let mut executor = executor(&fakes, &schedule, Settings::default());
            executor.train(0, &all(), &Stop::new(), &mut continue_training).expect_err("a fault is injected");
            let others: Vec<u32> = (N as u32..2 * N as u32).collect();
            let report =
                executor.train(0, &others, &Stop::new(), &mut continue_training).expect("the fault is not among them");
            assert_eq!(report.batches, N);
        });
    }
}

/// The schedule for `n` of its mini-batches, divided in the same proportions; the first share gets the rest.
fn shrunk(schedule: &Schedule, n: usize) -> Schedule {
    let mut schedule = schedule.clone();
    let total = schedule.num_batches();
    let mut left = n;
    for share in schedule.shares.iter_mut().rev() {
        share.batches = (share.batches * n / total).min(left);
        left -= share.batches;
    }
    schedule.shares[0].batches += left;
    schedule
}

/// Ends early at the `at`-th event, by a cut or a stop, then trains the rest; everything is trained once.
#[track_caller]
fn early(at: usize, by_stop: bool, delays: Vec<[u64; 3]>, schedule: &Schedule) {
    [1, 2].into_iter().for_each(|depth| early_queued(at, by_stop, delays.clone(), schedule, depth));
}

#[track_caller]
fn early_queued(at: usize, by_stop: bool, delays: Vec<[u64; 3]>, schedule: &Schedule, depth: usize) {
    let fakes = Fakes { delays, depth, ..Fakes::new(N) };
    let mut executor = executor(&fakes, schedule, Settings::default());
    let (stop, mut events, mut left) = (Stop::new(), 0, None);
    let report = executor.train(0, &all(), &stop, &mut |e| {
        events += 1;
        if events != at {
            return Control::Continue;
        }
        if let Event::Trained(done) = e {
            left = Some(done.left);
        }
        if by_stop {
            stop.request();
            return Control::Continue;
        }
        Control::Cut
    });
    let report = report.expect("neither is a failure");
    let trained = |fakes: &Fakes| fakes.record().trained.iter().map(|id| id.index).collect::<Vec<u32>>();
    let mut whole = [trained(&fakes), report.remaining.clone()].concat();
    whole.sort_unstable();
    assert_eq!(whole, all(), "trained and remaining");
    assert!(report.remaining.is_sorted());
    assert_eq!(report.batches, trained(&fakes).len());
    assert_eq!(report.stopped, by_stop && !report.remaining.is_empty());
    if let (Some(left), false) = (left, by_stop) {
        assert_eq!(report.remaining.len(), left, "a cut keeps what was not begun");
        assert_eq!(fakes.record().prepared.len(), N - left, "and finishes what was");
    }
    executor.set_schedule(&shrunk(schedule, report.remaining.len())).expect("the same operators");
    let rest = executor.train(0, &report.remaining, &Stop::new(), &mut continue_training).expect("nothing fails");
    assert!(rest.remaining.is_empty() && !rest.stopped);
    let mut whole = trained(&fakes);
    whole.sort_unstable();
    assert_eq!(whole, all(), "each once");
    assert_eq!(fakes.training().steps, N as u64);
    drop(executor);
    fakes.no_thread_is_left();
}

#[test]
fn mini_batches_remaining_after_a_cut_or_a_stop_can_be_trained_later() {
    with_timeout(|| {
        std::thread::scope(|scope| {
            for schedule in schedules() {
                scope.spawn(move || {
                    for at in 1..=4 * N {
                        early(at, false, Vec::new(), &schedule);
                        early(at, true, Vec::new(), &schedule);
                    }
                });
            }
        });
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn remaining_mini_batches_can_be_trained_later_for_any_durations(
        which in 0usize..6, at in 1usize..4 * N, by_stop: bool,
        delays in proptest::collection::vec([0u64..300, 0u64..200, 0u64..300], N),
    ) {
        with_timeout(move || early(at, by_stop, delays, &schedules()[which]));
    }
}

#[test]
fn a_stop_from_another_thread_ends_a_run_that_waits() {
    for schedule in schedules() {
        with_timeout(move || {
            let fakes = Fakes { delays: vec![[10_000, 0, 0]; N], ..Fakes::new(N) };
            let stop = Stop::new();
            let mut executor = executor(&fakes, &schedule, Settings::default());
            let report = std::thread::scope(|scope| {
                scope.spawn(|| {
                    while fakes.record().prepared.is_empty() {
                        std::thread::yield_now();
                    }
                    stop.request();
                });
                executor.train(0, &all(), &stop, &mut continue_training).expect("a stop is no failure")
            });
            assert!(report.stopped);
            assert_eq!(report.remaining.len() + report.batches, N);
        });
    }
}

#[test]
fn a_stop_before_the_start_does_nothing() {
    let stop = Stop::new();
    stop.request();
    for schedule in schedules() {
        let fakes = Fakes::new(N);
        let report = executor(&fakes, &schedule, Settings::default()).train(0, &all(), &stop, &mut continue_training);
        let report = report.expect("a stop is no failure");
        assert_eq!((report.batches, report.remaining, report.stopped), (0, all(), true));
        assert!(fakes.record().prepared.is_empty());
    }
}

#[test]
fn an_observers_panic_reaches_the_caller_and_leaves_no_thread() {
    for schedule in schedules() {
        with_timeout(move || {
            let fakes = Fakes::new(N);
            let mut executor = executor(&fakes, &schedule, Settings::default());
            let mut observe = |e: &Event| {
                assert!(!matches!(e, Event::Trained(done) if done.left == 0), "the observer's own fault");
                Control::Continue
            };
            let run = AssertUnwindSafe(|| executor.train(0, &all(), &Stop::new(), &mut observe));
            catch_unwind(run).expect_err("the panic is the caller's to see");
            executor.train(1, &all(), &Stop::new(), &mut continue_training).expect("no operator is lost");
            drop(executor);
            fakes.no_thread_is_left();
        });
    }
}

#[track_caller]
fn refused(outcome: Result<impl std::fmt::Debug, Error>, what: &str) {
    assert_eq!(outcome.expect_err("it cannot be run").to_string(), what);
}

#[test]
fn impossible_schedules_and_epochs_are_refused_with_the_cure() {
    let fakes = Fakes::new(N);
    let good = dual(N / 2, N / 2, 1, [2, 2]);
    let make = |schedule: &Schedule| Executor::new(common::operators(&fakes, &good), schedule, Settings::default());
    let mut executor = make(&good).expect("it is good");
    let mut train = |batches: &[u32]| executor.train(0, batches, &Stop::new(), &mut continue_training);
    refused(train(&[0, 1]), "2 mini-batches are to be trained, the schedule is for 16; plan again");
    let mut twice = all();
    twice[3] = 9;
    refused(train(&twice), "mini-batch 9 is asked for twice; ask for it once");
    twice[3] = 16;
    refused(train(&twice), "mini-batch 16 is asked for, an epoch has 16; ask for those from 0 on");

    let more = dual(N, 1, 1, [2, 2]);
    refused(make(&more), "the schedule is for 17 mini-batches, an epoch has 16; plan again");
    let there = "Batching_DEV+PCIe_Fake → Transferring_DEV+PCIe_Fake → Training_DEV_Fake, \
                 Batching_CPU_Fake → Transferring_PCIe_Fake → Training_DEV_Fake";
    let mut other = good.clone();
    other.shares[0].keys.transferring = "Transferring_PCIe_Other".parse().expect("a key");
    let keys = "Batching_CPU_Fake → Transferring_PCIe_Other → Training_DEV_Fake";
    refused(make(&other), &format!("{keys}: no such route here; there is {there}; plan again"));
    let cpu = cpu(Policy::Pipeline, N, 1, 1);
    let keys = "Batching_CPU_Fake → Transferring_CPU_Fake → Training_CPU_Fake";
    let what = "training is by Training_DEV_Fake here; plan again for it, or train by what was planned";
    refused(make(&cpu), &format!("{keys}: {what}"));
    let mut twice = good.clone();
    twice.shares[1].keys = twice.shares[0].keys.clone();
    refused(make(&twice), &format!("{}: two shares of the schedule; plan again", twice.shares[0].keys));
    let mut short = good.clone();
    short.resources.pop();
    let what = "holds DEV, which is not among the schedule's resources; plan again";
    refused(make(&short), &format!("{}: {what}", short.shares[0].keys));
    let mut none = good.clone();
    none.shares.clear();
    refused(make(&none), "the schedule has no share, or more than 32 resources; plan again");
    let mut single = good.clone();
    single.shares.pop();
    let what = "a dual-buffer schedule has a share that is transferred and then one batched in place; plan again";
    refused(make(&single), what);

    // A refused schedule changes nothing.
    refused(executor.set_schedule(&single), what);
    assert_eq!(executor.schedule(), &good);
    let mut doubled = common::operators(&fakes, &good);
    doubled.routes.extend(common::operators(&fakes, &good).routes);
    let what = "Batching_DEV+PCIe_Fake: twice with Transferring_DEV+PCIe_Fake; give the routes of one device";
    refused(Executor::new(doubled, &good, Settings::default()), what);
    let mut unequal = common::operators(&fakes, &good);
    unequal.routes[1] = common::operators(&Fakes::new(N + 1), &good).routes.remove(1);
    let what = "Batching_CPU_Fake: 17 mini-batches per epoch, another route has 16; give all routes the same seeds";
    refused(Executor::new(unequal, &good, Settings::default()), what);
    let what = "there is no training operator; give one at least";
    refused(Executor::new(Operators::default(), &good, Settings::default()), what);
}
