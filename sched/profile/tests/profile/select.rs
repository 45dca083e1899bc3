//! The choice among training operators: its outcome, its duration, and the state after it.
//! The fake operators sleep, for times far apart.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{Fakes, Times, fail, unlimited};
use crate::in_one_of_thirty;
use crate::memory::{STEP, WORKER, take_peak};
use morphgl_conformance::fake::Fault;
use morphgl_profile::{ErrorKind, MemoryLimit, Outcome, Settings, Watch};

fn training(millis: u64) -> Times {
    Times { batching: 1, transferring: 0, training: millis }
}

/// `Training_CPU_Fake` and `Training_CPU_Rival`, of so many milliseconds on one thread.
fn two(first: u64, second: u64) -> Fakes {
    let mut fakes = Fakes::new(1000, training(first));
    fakes.rival("Rival", training(second));
    fakes
}

#[test]
fn the_faster_operator_is_chosen_and_a_far_slower_one_abandoned_after_one_step() {
    for (times, chosen) in [([2, 400], 0), ([400, 2], 1)] {
        in_one_of_thirty(|| {
            let mut fakes = two(times[0], times[1]);
            let s = fakes.select(&unlimited(1), &Watch::NONE).expect("nothing fails");
            fakes.check_unchanged();
            let steps = [fakes.steps(0), fakes.steps(1)];
            if steps != [1, 1] {
                return Err(format!("{steps:?} steps: {s}"));
            }
            assert_eq!(s.chosen, fakes.trainers[chosen].key);
            let [won, lost] = [chosen, 1 - chosen].map(|i| {
                let key = &fakes.trainers[i].key;
                s.candidates.iter().find(|c| c.training == *key).expect("every candidate")
            });
            assert_eq!((won.outcome, lost.outcome), (Outcome::Chosen, Outcome::Abandoned));
            assert!(lost.typical() > won.typical() && lost.typical() >= Some(0.4), "{s}");
            Ok(())
        });
    }
}

#[test]
fn close_operators_are_timed_alternately() {
    in_one_of_thirty(|| {
        let mut fakes = two(24, 20);
        let s = fakes.select(&unlimited(1), &Watch::NONE).expect("nothing fails");
        fakes.check_unchanged();
        let [first, second] = [0, 1].map(|i| fakes.steps(i));
        // Both train the same mini-batches.
        let indices: Vec<u32> = fakes.log.record().prepared.iter().map(|id| id.index).collect();
        assert!(indices.chunks(2).all(|pair| pair[0] == pair[1]), "{indices:?}");
        assert_eq!(first, second);
        assert_eq!(s.candidates.iter().map(|c| c.steps()).collect::<Vec<_>>(), [first; 2]);
        let slower = s.chosen == fakes.trainers[0].key;
        if first < 3 || slower { Err(format!("{first} steps each: {s}")) } else { Ok(()) }
    });
}

#[test]
fn batching_for_an_operator_counts() {
    // The second trains faster, but batching for it takes longer.
    in_one_of_thirty(|| {
        let mut fakes = two(20, 10);
        fakes.routes[1].batching.takes(|_| 200.0);
        let s = fakes.select(&unlimited(1), &Watch::NONE).expect("nothing fails");
        if s.chosen == fakes.trainers[0].key { Ok(()) } else { Err(s.to_string()) }
    });
}

#[test]
fn the_time_for_profiling_holds_with_two_trainers() {
    // The budget includes the choice and the needed points; a step or a mini-batch may exceed it.
    let settings = Settings { budget: Duration::from_millis(600), epochs: None, ..Settings::new(2) };
    // The same where an epoch of a fifth of a second leaves less for phases, and the budget is the larger limit.
    let short = Settings { epochs: Some(0.8), ..settings.clone() };
    for (settings, num_batches) in [(settings, 1000), (short, 20)] {
        in_one_of_thirty(|| {
            let mut fakes = two(40, 40);
            fakes.routes.iter_mut().for_each(|r| r.batching.num_batches = num_batches);
            let s = fakes.select(&settings, &Watch::NONE).expect("nothing fails");
            let profile = fakes.profile(&settings).expect("nothing fails");
            fakes.check_unchanged();
            assert_eq!(profile.selections, std::slice::from_ref(&s));
            assert!(profile.seconds >= s.seconds, "the choice is a part of it");
            assert!((0..fakes.trainers.len()).all(|i| fakes.steps(i) >= 3), "there is time to time them: {s}");
            let holds = s.seconds <= 0.36 + 0.05 && profile.seconds <= 0.6 + 0.1;
            if holds { Ok(()) } else { Err(format!("{} and {} s", s.seconds, profile.seconds)) }
        });
    }
    // Of an epoch of 0.5 s, 0.4 are more than the budget.
    in_one_of_thirty(|| {
        let settings = Settings { budget: Duration::from_millis(300), ..Settings::new(2) };
        let mut fakes = two(40, 40);
        fakes.routes.iter_mut().for_each(|r| r.batching.num_batches = 25);
        fakes.select(&settings, &Watch::NONE).expect("nothing fails");
        let seconds = fakes.profile(&settings).expect("nothing fails").seconds;
        if seconds <= 0.4 + 0.1 { Ok(()) } else { Err(format!("{seconds} s")) }
    });
    // No time: one step of each.
    let none = Settings { budget: Duration::ZERO, epochs: None, ..Settings::new(1) };
    // No more than an epoch of 20 s allows: each is timed once, since first steps are a poor guide, and where they are close
    // three times.
    let long = Settings { epochs: Some(0.8), ..none.clone() };
    for (settings, other, steps) in [(none, 22, 1), (long.clone(), 40, 2), (long, 22, 4)] {
        let mut fakes = two(20, other);
        fakes.select(&settings, &Watch::NONE).expect("nothing fails");
        assert_eq!([0, 1].map(|i| fakes.steps(i)), [steps; 2]);
    }
}

#[test]
fn samples_of_the_chosen_operator_are_used_again_where_there_is_no_time_for_others() {
    let settings = Settings { splits: 0, ..unlimited(1) };
    let no_time = Settings { budget: Duration::ZERO, epochs: None, ..settings.clone() };
    for (settings_of_profile, uses_known) in [(no_time, true), (settings.clone(), false)] {
        let mut fakes = two(4, 4);
        let s = fakes.select(&settings, &Watch::NONE).expect("nothing fails");
        let known = s.chosen_profile().and_then(|c| c.training_seconds.clone()).expect("it was timed").samples;
        let chosen = fakes.trainers.iter().position(|t| t.key == s.chosen).expect("one of them");
        let before = fakes.steps(chosen);
        let profile = fakes.profile(&settings_of_profile).expect("nothing fails");
        let samples = &profile.routes[0].training[0].seconds.samples;
        assert_eq!(samples.starts_with(&known), uses_known, "{samples:?} after {known:?}");
        if uses_known {
            // One step more measures its memory.
            assert_eq!((samples.len(), fakes.steps(chosen)), (known.len() + 1, before + 1));
        }
    }
}

#[test]
fn a_failing_operator_is_excluded_with_the_reason() {
    for fault in [Fault::ERROR, Fault::Panic] {
        for at in [0, 1] {
            let mut fakes = two(2, 2);
            fail(&mut fakes.trainers[0], at, fault);
            let s = fakes.select(&unlimited(1), &Watch::NONE).expect("the other one does not fail");
            fakes.check_unchanged();
            assert_eq!(s.chosen, fakes.trainers[1].key);
            let last = s.candidates.last().expect("two");
            assert_eq!((&last.training, last.outcome), (&fakes.trainers[0].key, Outcome::Unable));
            let reason = last.reason.as_deref().unwrap_or_default();
            assert!(reason.contains("injected error") || reason.contains("injected panic"), "{reason}");
            assert!(s.to_string().contains(" (cannot: "), "{s}");
        }
    }
    let mut fakes = two(2, 2);
    fakes.trainers.iter_mut().for_each(|trainer| fail(trainer, 0, Fault::ERROR));
    let error = fakes.select(&unlimited(1), &Watch::NONE).expect_err("no operator can train");
    assert_eq!(
        error.to_string(),
        "fake: injected error; Training_CPU_Fake met this while it was profiled, and would while it trains"
    );
    fakes.check_unchanged();
    // A failure of batching fails the choice.
    let mut fakes = two(2, 2);
    fail(&mut fakes.routes[1].batching, 1, Fault::ERROR);
    let error = fakes.select(&unlimited(1), &Watch::NONE).expect_err("nothing is batched");
    assert_eq!(error.context, "Batching_CPU_Fake");
    fakes.check_unchanged();
}

#[test]
fn it_stops_on_request() {
    for at in [0, 1, 4] {
        let calls = AtomicUsize::new(0);
        let stop = || calls.fetch_add(1, Ordering::SeqCst) >= at;
        let mut fakes = two(2, 2);
        let error = fakes.select(&unlimited(1), &Watch { stop: &stop, memory: None }).expect_err("stopped");
        assert!(matches!(error.kind, ErrorKind::Stopped));
        fakes.check_unchanged();
        assert_eq!(fakes.log.record().trained.len(), at);
    }
}

#[test]
fn an_operator_that_may_not_fit_in_memory_is_not_tried() {
    for (room, tried) in [(6 * (WORKER + STEP), true), (6 * (WORKER + STEP) / 2, false)] {
        // The second one would be the faster.
        let mut fakes = two(40, 2);
        let log = std::sync::Arc::clone(&fakes.log);
        let peak = || take_peak(&log);
        let memory = MemoryLimit { limit: peak() + WORKER + room, peak: &peak };
        let s = fakes.select(&unlimited(1), &Watch { stop: &|| false, memory: Some(memory) }).expect("one fits");
        assert_eq!(fakes.steps(1) > 0, tried, "{s}");
        assert_eq!(s.chosen, fakes.trainers[usize::from(tried)].key);
        assert_eq!(s.to_string().contains("may not fit in memory"), !tried, "{s}");
    }
}

#[test]
fn a_single_operator_is_not_measured() {
    let mut fakes = Fakes::new(1000, training(2));
    let s = fakes.select(&unlimited(1), &Watch::NONE).expect("there is one");
    assert_eq!((s.seconds, fakes.steps(0)), (0.0, 0));
    assert_eq!(s.to_string(), "trained at host by Training_CPU_Fake (the only one that can)");
}
