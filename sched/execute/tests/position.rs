//! Exports between two steps, and epochs that continue after them: the order of training is that of an undisturbed epoch.

mod common;

use common::{Fakes, Fault, any_schedule, cpu, dual, executor, expected_order, interleaved, schedule, with_timeout};
use morphgl_execute::{Control, EpochReport, ErrorKind, Event, Settings, Stop};
use morphgl_plan::{Phase, Policy, Schedule};
use proptest::prelude::*;

fn all(schedule: &Schedule) -> Vec<u32> {
    (0..schedule.num_batches() as u32).collect()
}

fn trained(fakes: &Fakes) -> Vec<u32> {
    fakes.record().trained.iter().map(|id| id.index).collect()
}

/// What two reports of the same mini-batches have in common: all but times and what depends on them.
fn sums(report: &EpochReport) -> (usize, u64, u64, f64, u64, Vec<usize>, Vec<u32>) {
    let shares = report.shares.iter().map(|share| share.batches).collect();
    let EpochReport { batches, seeds, edges, score, remaining, .. } = report;
    (*batches, *seeds, *edges, score.loss_sum, score.count, shares, remaining.clone())
}

/// Trains an epoch that asks for an export after its `at`-th mini-batch; returns the exported report, and the number of
/// mini-batches trained when it came.
#[track_caller]
fn export(schedule: &Schedule, depth: usize, at: usize) -> Option<(EpochReport, usize)> {
    let fakes = Fakes { depth, ..Fakes::new(schedule.num_batches()) };
    let mut executor = executor(&fakes, schedule, Settings::default());
    let (mut count, mut exported) = (0, None);
    let report = executor.train(0, &all(schedule), &Stop::new(), &mut |event| {
        match event {
            Event::Trained(_) => {
                count += 1;
                if count == at {
                    return Control::Export;
                }
            }
            Event::Exported(state, so_far) => {
                // The fake's only parameter is its number of steps.
                assert_eq!(state.parameters[0].values, [count as f32], "steps before the export");
                assert_eq!(so_far.batches, count);
                assert!(exported.replace(((*so_far).clone(), count)).is_none(), "one export");
            }
            _ => {}
        }
        Control::Continue
    });
    assert_eq!(report.expect("nothing fails").batches, schedule.num_batches());
    assert_eq!(trained(&fakes), expected_order(schedule), "an export changes no order");
    exported
}

/// Continues after `so_far`; returns the order of training and the report.
#[track_caller]
fn continued(schedule: &Schedule, depth: usize, so_far: EpochReport) -> (Vec<u32>, EpochReport) {
    let fakes = Fakes { depth, ..Fakes::new(schedule.num_batches()) };
    let mut executor = executor(&fakes, schedule, Settings::default());
    let report = executor.train_on(0, &all(schedule), so_far, &Stop::new(), &mut |_| Control::Continue);
    (trained(&fakes), report.expect("nothing fails"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn the_first_and_the_rest_are_the_undisturbed_order(
        schedule in any_schedule(),
        at in 0.0f64..1.0,
        depth in 1usize..4,
    ) {
        with_timeout(move || {
            let order = expected_order(&schedule);
            let at = 1 + (at * order.len() as f64) as usize;
            let whole = continued(&schedule, depth, EpochReport::default());
            assert_eq!(whole.0, order);
            let (so_far, count) = export(&schedule, depth, at.min(order.len())).expect("an export");
            assert!(count >= at.min(order.len()));
            let (rest, report) = continued(&schedule, depth, so_far);
            assert_eq!([&order[..count], &rest].concat(), order, "{count} of {schedule}");
            assert_eq!(sums(&report), sums(&whole.1), "{count} of {schedule}");
        });
    }

    /// A stop, any number of times, as a signal makes it.
    #[test]
    fn stopped_parts_are_the_undisturbed_order(schedule in any_schedule(), every in 1usize..5, depth in 1usize..4) {
        with_timeout(move || {
            let order = expected_order(&schedule);
            let fakes = Fakes { depth, ..Fakes::new(order.len()) };
            let mut so_far = EpochReport::default();
            loop {
                // Each part by an executor of its own, as by another process.
                let mut executor = executor(&fakes, &schedule, Settings::default());
                let stop = Stop::new();
                let mut count = 0;
                let report = executor.train_on(0, &all(&schedule), so_far, &stop, &mut |event| {
                    count += usize::from(matches!(event, Event::Trained(_)));
                    if count >= every {
                        stop.request();
                    }
                    Control::Continue
                });
                so_far = report.expect("nothing fails");
                if so_far.remaining.is_empty() {
                    break;
                }
            }
            assert_eq!(trained(&fakes), order);
            let whole = continued(&schedule, depth, EpochReport::default()).1;
            assert_eq!(sums(&so_far), sums(&whole));
        });
    }
}

#[test]
fn every_mini_batch_of_a_schedule_of_two_routes_is_a_position() {
    with_timeout(|| {
        for schedule in [dual(9, 11, 2, [4, 3]), interleaved(8, 12, 3, [5, 4], 3)] {
            let order = expected_order(&schedule);
            assert!(order.windows(2).any(|pair| pair[0] > pair[1]), "the order of training is not that of batching");
            for at in 1..=order.len() {
                let (so_far, count) = export(&schedule, 1, at).expect("an export");
                assert_eq!(count, at, "an operator that computes when it is called has nothing queued");
                let (rest, _) = continued(&schedule, 1, so_far);
                assert_eq!(rest, order[at..]);
            }
        }
    });
}

#[test]
fn a_position_of_another_schedule_is_refused() {
    with_timeout(|| {
        let schedule = dual(6, 6, 2, [4, 3]);
        let (so_far, _) = export(&schedule, 1, 5).expect("an export");
        assert!(so_far.shares[0].batches > 1, "{so_far:?}");
        let fakes = Fakes::new(12);
        for (wrong, report) in [
            (interleaved(1, 11, 3, [5, 4], 3), so_far.clone()),
            (cpu(Policy::Pipeline, 12, 2, 3), so_far.clone()),
            (schedule.clone(), EpochReport { epoch: 1, ..so_far.clone() }),
            (schedule, EpochReport { batches: 13, ..so_far }),
        ] {
            let mut executor = executor(&fakes, &wrong, Settings::default());
            let refused = executor.train_on(0, &all(&wrong), report, &Stop::new(), &mut |_| Control::Continue);
            let error = refused.expect_err("another schedule").to_string();
            assert!(error.contains("another schedule"), "{error}");
        }
        assert!(trained(&fakes).is_empty());
    });
}

/// A step that fails behind or before a requested export ends the epoch with that error, and without a hang.
#[test]
fn failures_around_an_export() {
    with_timeout(|| {
        for fault in [Fault::ERROR, Fault::Panic, Fault::LateError, Fault::LatePanic] {
            for depth in 1..4 {
                for at in 0..8 {
                    let fakes = Fakes { depth, fault: Some((Phase::Training, at, fault)), ..Fakes::new(8) };
                    let schedule = schedule(Policy::Pipeline, &[(0, 8, 2, [1.0, 1.0, 4.0])], [4, 4]);
                    let mut executor = executor(&fakes, &schedule, Settings::default());
                    let outcome = executor.train(0, &all(&schedule), &Stop::new(), &mut |event| match event {
                        Event::Trained(_) => Control::Export,
                        Event::Exported(..) => Control::Continue,
                        _ => Control::Continue,
                    });
                    let error = outcome.expect_err("an injected fault");
                    assert_eq!(error.batch.map(|id| id.index), Some(at), "{error}");
                    let panics = matches!(error.kind, ErrorKind::Panicked(_));
                    assert_eq!(panics, matches!(fault, Fault::Panic | Fault::LatePanic), "{error}");
                }
            }
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Trainers of a group train the same mini-batch in every step, whatever their schedules are.
    #[test]
    fn mini_batches_are_trained_in_their_order_by_any_schedule(
        schedule in any_schedule(),
        at in 0.0f64..1.0,
        depth in 1usize..4,
    ) {
        with_timeout(move || {
            let batches = all(&schedule);
            let trained_after = |first: usize, stop_after: usize| {
                let fakes = Fakes { depth, ..Fakes::new(batches.len()) };
                let mut executor = executor(&fakes, &schedule, Settings::default()).in_order_of_training();
                let stop = Stop::new();
                let mut count = first;
                let report = executor.train_after(0, &batches, first, &stop, &mut |event| {
                    count += usize::from(matches!(event, Event::Trained(_)));
                    if count >= stop_after {
                        stop.request();
                    }
                    Control::Continue
                });
                (trained(&fakes), report.expect("nothing fails"))
            };
            let (whole, report) = trained_after(0, usize::MAX);
            assert_eq!(whole, batches, "{schedule}");
            assert!(report.shares.iter().map(|share| share.batches).eq(schedule.shares.iter().map(|s| s.batches)));
            let at = 1 + (at * batches.len() as f64) as usize;
            let (first, stopped) = trained_after(0, at);
            assert_eq!(first, batches[..first.len()], "{schedule}");
            assert_eq!(stopped.remaining, batches[first.len()..], "{schedule}");
            let (rest, report) = trained_after(first.len(), usize::MAX);
            assert_eq!(rest, batches[first.len()..], "{schedule}");
            assert_eq!(report.batches, rest.len());
        });
    }
}
