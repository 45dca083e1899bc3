//! The balanced division: what it depends on, and how near it comes to the best static one.

mod simulated;

use std::ops::Range;

use morphgl_group::{Balanced, Division, Weights};
use morphgl_registry::BatchId;
use proptest::prelude::*;
use simulated::{Machine, Random, Trainer};

const BATCHES: usize = 100;
const BATCH_SIZE: usize = 96;

fn id(position: usize) -> BatchId {
    BatchId { epoch: (position / BATCHES) as u32, index: (position % BATCHES) as u32 }
}

fn shares(division: &Balanced, position: usize, size: usize) -> Vec<Range<usize>> {
    (0..size).map(|rank| division.share(id(position), BATCH_SIZE, rank).expect("determined")).collect()
}

#[test]
fn an_epoch_is_within_5_percent_of_the_best_static_division_in_hindsight() {
    let (mut near, mut total) = (0, 0);
    let (mut by_balance, mut by_profile) = (0.0, 0.0);
    for (seed, size) in (0..30).map(|seed| (seed, 2)).chain([(1, 3), (2, 5), (3, 8)]) {
        let machine = Machine::random(seed, size, BATCHES, BATCH_SIZE);
        let speeds: Vec<f64> = machine.profiled().iter().map(|seconds| 1.0 / seconds).collect();
        let (division, fixed) = (machine.balanced(&speeds), Weights::new(&speeds).expect("positive"));
        for epoch in [machine.epoch(0), machine.epoch(1)] {
            let (balanced, best) = (epoch.by(&division), epoch.best_static());
            assert!(balanced <= 1.25 * best, "machine {seed} of {size} trainers: {balanced} s, best {best} s");
            near += usize::from(balanced <= 1.05 * best);
            total += 1;
            by_balance += balanced / best;
            by_profile += epoch.by(&fixed) / best;
        }
    }
    assert!(near * 10 >= total * 9, "{near} of {total} epochs are within 5%");
    assert!(by_balance < by_profile, "balanced {by_balance}, static by profile {by_profile}");
}

#[test]
fn a_trainer_that_gets_slower_and_recovers_is_given_its_part_again() {
    let mut machine = Machine::random(5, 2, BATCHES, BATCH_SIZE);
    machine.trainers = vec![
        Trainer { speed: 10.0, fixed: 1.0, slower: Some((50, 200.0)) },
        Trainer { speed: 10.0, fixed: 1.0, slower: None },
    ];
    let division = machine.balanced(&[1.0, 1.0]);
    machine.epoch(0).by(&division);
    let slow = shares(&division, BATCHES, 2)[0].len();
    assert!(slow <= 2, "{slow} seeds for a trainer 200 times as slow");
    machine.trainers[0].slower = None;
    let steps = (1..4).map(|epoch| machine.epoch(epoch).by(&division));
    let seconds: Vec<f64> = steps.collect();
    let again = shares(&division, 4 * BATCHES, 2)[0].len();
    assert!((BATCH_SIZE / 4..=3 * BATCH_SIZE / 4).contains(&again), "{again} seeds, epochs of {seconds:?} s");
}

/// A division of two trainers in a simulation whose seconds are a function of share and position.
fn seconds(position: usize, shares: &[Range<usize>]) -> Vec<f64> {
    let mut random = Random(position as u64);
    let of = |(rank, share): (usize, &Range<usize>)| match share.len() {
        0 => 0.0,
        len => (0.5 + len as f64 * [1.0, 0.2][rank]) * random.between(0.8, 1.2),
    };
    shares.iter().enumerate().map(of).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whether a trainer samples as far ahead as it may or not at all, and in which order, its shares are the same.
    #[test]
    fn shares_do_not_depend_on_when_they_are_asked_for(ahead in 1usize..12, seed in 0u64..1000, stop in 1usize..250) {
        let machine = Machine::random(7, 2, BATCHES, BATCH_SIZE).with_ahead(ahead);
        let (lazy, eager) = (machine.balanced(&[1.0, 3.0]), machine.balanced(&[1.0, 3.0]));
        let mut resumed = None;
        let mut random = Random(seed);
        for position in 0..260 {
            let furthest = position + ahead - 1;
            if random.unit() < 0.7 {
                shares(&eager, furthest, 2);
            }
            let asked = position + (random.unit() * ahead as f64) as usize;
            shares(&eager, asked, 2);
            prop_assert!(eager.share(id(furthest + 1), BATCH_SIZE, 0).is_err());
            let own = shares(&lazy, position, 2);
            prop_assert_eq!(&own, &shares(&eager, position, 2));
            prop_assert_eq!(own[0].start, 0);
            prop_assert_eq!(own[0].end, own[1].start);
            prop_assert_eq!(own[1].end, BATCH_SIZE);
            if let Some(resumed) = &resumed {
                prop_assert_eq!(&own, &shares(resumed, position, 2));
            }
            let seconds = seconds(position, &own);
            for division in [&lazy, &eager].into_iter().chain(&resumed) {
                division.observe(id(position), &seconds).expect("in an epoch");
            }
            if position + 1 == stop {
                // However far ahead each is, a checkpoint holds the same, and what continues from it goes on as they do.
                prop_assert_eq!(lazy.export(), eager.export());
                resumed = Some(machine.balanced(&[1.0, 1.0]).import(&lazy.export()).expect("exported"));
                prop_assert_eq!(resumed.as_ref().map(Balanced::export), Some(lazy.export()));
            }
        }
    }

    /// Mini-batches may be trained in another order than that of their indices, within what is sampled ahead.
    #[test]
    fn the_order_of_training_does_not_matter(swap in 1usize..4) {
        let machine = Machine::random(7, 2, BATCHES, BATCH_SIZE).with_ahead(6);
        let (straight, swapped) = (machine.balanced(&[1.0, 1.0]), machine.balanced(&[1.0, 1.0]));
        for first in (0..96).step_by(swap + 1) {
            let all: Vec<usize> = (first..=first + swap).collect();
            let reported: Vec<_> = all.iter().map(|&p| (p, seconds(p, &shares(&straight, p, 2)))).collect();
            for (position, _) in &reported {
                prop_assert_eq!(shares(&straight, *position, 2), shares(&swapped, *position, 2));
            }
            for (position, seconds) in &reported {
                straight.observe(id(*position), seconds).expect("in an epoch");
            }
            for (i, (position, seconds)) in reported.iter().rev().enumerate() {
                swapped.observe(id(*position), seconds).expect("in an epoch");
                if i == 0 {
                    let resumed = machine.balanced(&[1.0, 1.0]).import(&swapped.export()).expect("exported");
                    prop_assert_eq!(resumed.export(), swapped.export());
                }
            }
            prop_assert_eq!(straight.export(), swapped.export());
        }
    }
}

#[test]
fn an_epoch_may_begin_anywhere() {
    let machine = Machine::random(7, 2, BATCHES, BATCH_SIZE).with_ahead(3);
    let division = machine.balanced(&[1.0, 3.0]).starting_at(id(150));
    let error = division.share(id(149), BATCH_SIZE, 0).expect_err("it was trained").to_string();
    assert!(error.starts_with("mini-batch 49 of epoch 1: its shares are forgotten"), "{error}");
    let (own, predicted) = (shares(&division, 152, 2), division.predicted(id(152)).expect("cut"));
    assert!(own[1].len() > own[0].len());
    assert_eq!(predicted.len(), 2);
    let error = division.share(id(153), BATCH_SIZE, 0).expect_err("too far ahead").to_string();
    assert_eq!(
        error,
        "mini-batch 53 of epoch 1: it is 3 ahead of mini-batch 50 of epoch 1, the first that is not trained; a division made \
         for less than 3 ahead cannot cut it yet"
    );
}

#[test]
fn damaged_states_are_refused() {
    let machine = Machine::random(7, 2, BATCHES, BATCH_SIZE).with_ahead(4);
    let division = machine.balanced(&[1.0, 3.0]);
    for position in 0..10 {
        let own = shares(&division, position, 2);
        division.observe(id(position), &seconds(position, &own)).expect("in an epoch");
    }
    let state = division.export();
    let import = |numbers: &[f64], size: usize| machine.balanced(&vec![1.0; size]).import(numbers).map(|_| ());
    import(&state, 2).expect("as exported");
    assert!(import(&state, 3).is_err());
    assert!(import(&state[..state.len() - 1], 2).is_err());
    assert!(import(&[], 2).is_err());
    for at in 0..state.len() {
        let mut damaged = state.clone();
        damaged[at] = f64::NAN;
        assert!(import(&damaged, 2).is_err(), "number {at} of {state:?}");
    }
}

#[test]
fn impossible_arguments_are_refused() {
    let machine = Machine::random(7, 2, BATCHES, BATCH_SIZE);
    let new = |work: &[f32], speeds: &[f64], ahead| Balanced::new(machine.epochs(), work.into(), speeds, ahead).is_ok();
    let work = &machine.work[..];
    assert!(new(work, &[0.0, 1.0], 1));
    assert!(!new(work, &[0.0, 0.0], 1));
    assert!(!new(work, &[], 1));
    assert!(!new(work, &[1.0, f64::NAN], 1));
    assert!(!new(work, &[1.0, 1.0], 0));
    assert!(!new(&work[1..], &[1.0, 1.0], 1));
    let negative: Vec<f32> = work.iter().map(|w| -w).collect();
    assert!(!new(&negative, &[1.0, 1.0], 1));
}
