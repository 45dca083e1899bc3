//! Roles of devices: GNNLab's formula beside trying every number, changes of roles, and the bound.
//! `MORPHGL_TEST_MACHINES` is the number of random machines; the published figures are of 10,000.
#![allow(clippy::print_stdout, reason = "the figures are the point")]

use crate::common::{Random, quantiles};
use morphgl_plan::{Linear, RolesPlan, RolesProblem, RolesReplay, RolesStep, RolesWork, Segment, roles};
use proptest::prelude::*;

/// Machines where the environment names no number.
const MACHINES: usize = 300;
const SEED: u64 = 23;
const N: usize = 300;

fn line(whole: f64) -> Linear {
    Linear { fixed: 0.0, whole }
}

/// Devices without fixed costs.
fn problem(devices: usize, [sampling, gathering, training]: [f64; 3]) -> RolesProblem {
    RolesProblem {
        num_batches: N,
        devices,
        sampling: line(sampling),
        gathering: line(gathering),
        standby_gathering: line(gathering),
        training: line(training),
        all_reduce: 0.0,
        queue: 16,
        ready: 2,
        switching: 0.0,
        staleness: 0,
    }
}

/// 2 to 8 devices; durations of whole mini-batches over two decades, a fixed part of up to a tenth of each, an all-reduce of up
/// to a tenth of a step, a queue of 4 to 64 mini-batches, and changes of roles that take up to ten steps.
fn random(random: &mut Random) -> RolesProblem {
    let seconds = |random: &mut Random| 1e-2 * 100f64.powf(random.unit());
    let line = |random: &mut Random| {
        let (whole, fixed) = (seconds(random), 0.1 * random.unit());
        Linear { fixed: fixed * whole, whole: (1.0 - fixed) * whole }
    };
    let (sampling, gathering, training) = (line(random), line(random), line(random));
    let slower = 1.0 + random.unit();
    RolesProblem {
        num_batches: N,
        devices: 2 + (7.0 * random.unit()) as usize,
        sampling,
        gathering,
        standby_gathering: Linear { fixed: slower * gathering.fixed, whole: slower * gathering.whole },
        training,
        all_reduce: 0.1 * random.unit() * training.at(1.0),
        queue: 4 << (5.0 * random.unit()) as usize,
        ready: 2,
        switching: 10.0 * random.unit() * training.at(1.0),
        staleness: 0,
    }
}

fn constant(trainers: usize) -> Vec<Segment> {
    vec![Segment { from: 0, trainers }]
}

/// Seconds with the best number of trainers, which do not change, by trying all.
fn best_by_trying_all(problem: &RolesProblem) -> f64 {
    let all = (1..problem.devices).map(|trainers| problem.simulate(&constant(trainers)).expect("devices sample"));
    all.fold(f64::INFINITY, f64::min)
}

#[test]
fn the_search_finds_the_best_number_on_random_machines() {
    let number = std::env::var("MORPHGL_TEST_MACHINES").map_or(MACHINES, |n| n.parse().expect("a number of machines"));
    let mut numbers = Random(SEED);
    let (mut agrees, mut exact, mut changes) = (0, 0, 0);
    let (mut formula, mut gains, mut bounds) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..number {
        let problem = random(&mut numbers);
        let RolesPlan { unswitched_seconds, epoch_seconds, bound_seconds, segments, samplers_by_formula, .. } =
            roles(&problem).expect("valid");
        let best = best_by_trying_all(&problem);
        assert_eq!(unswitched_seconds, best, "{problem:?}");
        assert!(epoch_seconds <= unswitched_seconds, "{problem:?}");
        assert!(epoch_seconds >= bound_seconds * (1.0 - 1e-9), "{problem:?}: {epoch_seconds}, bound {bound_seconds}");
        let by_formula = problem.simulate(&constant(problem.devices - samplers_by_formula)).expect("devices sample");
        agrees += usize::from(by_formula <= 1.02 * best);
        exact += usize::from(by_formula == best);
        changes += usize::from(segments.len() > 1);
        formula.push(by_formula / best);
        gains.push(unswitched_seconds / epoch_seconds);
        bounds.push(epoch_seconds / bound_seconds);
    }
    let share = |count: usize| 100.0 * count as f64 / number as f64;
    println!("{number} machines");
    println!(
        "the formula's number is within 2% of the best one on {:.1}%, and is the best on {:.1}%",
        share(agrees),
        share(exact)
    );
    println!("roles change on {:.1}%", share(changes));
    quantiles("epoch by the formula / with the best number", formula);
    quantiles("epoch without changes of roles / with", gains);
    quantiles("epoch / bound", bounds);
    assert!(share(agrees) > 60.0, "the formula is a first guess");
}

fn problems() -> impl Strategy<Value = RolesProblem> {
    (any::<u64>(), 0..60usize, 0..4usize).prop_map(|(seed, num_batches, staleness)| RolesProblem {
        num_batches,
        staleness,
        ..random(&mut Random(seed))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Changes of roles are planned only where they make the epoch shorter.
    #[test]
    fn changes_of_roles_never_make_the_prediction_longer(problem in problems()) {
        let plan = roles(&problem).expect("valid");
        prop_assert_eq!(plan.unswitched_seconds, best_by_trying_all(&problem));
        prop_assert!(plan.epoch_seconds <= plan.unswitched_seconds);
        prop_assert!(plan.segments.len() == 1 || plan.epoch_seconds < plan.unswitched_seconds, "{:?}", plan);
        prop_assert_eq!(problem.simulate(&plan.segments), Some(plan.epoch_seconds));
        prop_assert!(plan.epoch_seconds >= plan.bound_seconds * (1.0 - 1e-9), "{:?}", plan);
    }

    /// No roles that change at random are below the bound.
    #[test]
    fn the_bound_holds_for_any_changes(problem in problems(), lengths in proptest::collection::vec((1..9usize, 1..9usize), 1..9)) {
        let mut segments = Vec::new();
        let mut from = 0;
        for (length, trainers) in lengths {
            segments.push(Segment { from, trainers: trainers.min(problem.devices - 1) });
            from += length;
        }
        let bound = roles(&problem).expect("valid").bound_seconds;
        let seconds = problem.simulate(&segments).expect("a device samples");
        prop_assert!(seconds >= bound * (1.0 - 1e-9), "{} below {}: {:?}", seconds, bound, segments);
    }

    /// A longer queue never makes an epoch without changes longer.
    #[test]
    fn a_longer_queue_is_of_no_harm(problem in problems(), trainers in 1..8usize) {
        let segments = constant(trainers.min(problem.devices - 1));
        let longer = RolesProblem { queue: 2 * problem.queue, ..problem };
        let (short, long) = (problem.simulate(&segments), longer.simulate(&segments));
        prop_assert!(long.expect("devices sample") <= short.expect("devices sample") * (1.0 + 1e-9));
    }

    /// Gradients that may be staler never make an epoch without changes longer, and hide what is shorter of training and all-reduce.
    #[test]
    fn staler_gradients_are_of_no_harm(problem in problems(), trainers in 1..8usize) {
        let segments = constant(trainers.min(problem.devices - 1));
        let staler = RolesProblem { staleness: problem.staleness + 1, ..problem };
        let (fresh, stale) = (problem.simulate(&segments), staler.simulate(&segments));
        prop_assert!(stale.expect("devices sample") <= fresh.expect("devices sample") * (1.0 + 1e-9));
    }

    /// In whatever order operations complete, every share is sampled, gathered and trained once, steps end in the order of
    /// mini-batches, and no share begins more steps ahead than gradients may be stale; the queue and the buffers stay within their
    /// capacities, and the device of a share is one with that role.
    #[test]
    fn any_durations_train_every_mini_batch_once_and_in_order(
        problem in problems(),
        lengths in proptest::collection::vec((1..9usize, 1..9usize), 1..9),
        first in 0..20usize,
        seed in any::<u64>(),
    ) {
        let (mut segments, mut from) = (Vec::<Segment>::new(), 0);
        for (length, trainers) in lengths {
            // All devices train for a while, as far as the queue goes.
            let all_before = segments.last().is_some_and(|s| s.trainers == problem.devices);
            let trainers = trainers.min(problem.devices - usize::from(all_before));
            segments.push(Segment { from, trainers });
            from += if trainers == problem.devices { length.min(problem.queue) } else { length };
        }
        // Some device samples in the end.
        segments.push(Segment { from, trainers: 1 });
        let first = first.min(problem.num_batches);
        let schedule = problem.schedule(&segments);
        prop_assert!(schedule.is_possible());
        let mut replay = RolesReplay::new(&schedule, first);
        let mut random = Random(seed);
        let mut running: Vec<RolesStep> = Vec::new();
        let mut counts = std::collections::BTreeMap::<(usize, usize, usize), usize>::new();
        let mut waiting = vec![0_usize; problem.devices];
        loop {
            while let Some(step) = replay.begin() {
                let RolesStep { batch, work, device, rank } = step;
                prop_assert!(running.iter().all(|other| (other.device, other.work) != (device, work)), "{:?}", step);
                prop_assert!(replay.queued() <= problem.queue);
                match work {
                    RolesWork::Switching => {}
                    RolesWork::Sampling => prop_assert!(rank < schedule.trainers(batch)),
                    RolesWork::Gathering => {
                        prop_assert!(rank == device && device < schedule.trainers(batch));
                        waiting[device] += 1;
                        prop_assert!(waiting[device] <= problem.ready);
                    }
                    RolesWork::Training => {
                        prop_assert!(rank == device);
                        prop_assert!((replay.ended()..=replay.ended() + problem.staleness).contains(&batch));
                        waiting[device] -= 1;
                    }
                }
                if work != RolesWork::Switching {
                    *counts.entry((batch, rank, work as usize)).or_default() += 1;
                }
                running.push(step);
            }
            if replay.ended() == problem.num_batches {
                break;
            }
            prop_assert!(!running.is_empty() || replay.complete() > 0, "a device samples at any time");
            // The all-reduce of a step that is complete may end at any time, too.
            let any = (random.unit() * (running.len() + usize::from(replay.complete() > 0)) as f64) as usize;
            if any < running.len() {
                replay.end(running.swap_remove(any));
            } else {
                replay.summed();
            }
        }
        prop_assert!(problem.simulate(&segments).is_some());
        let expected: usize = (first..problem.num_batches).map(|batch| 3 * schedule.trainers(batch)).sum();
        prop_assert_eq!(counts.len(), expected);
        prop_assert!(counts.values().all(|times| *times == 1));
    }

    #[test]
    fn plans_are_the_same_after_json(problem in problems()) {
        let plan = roles(&problem).expect("valid");
        let text = serde_json::to_string(&plan).expect("plain data");
        let read: RolesPlan = serde_json::from_str(&text).expect("it was written");
        prop_assert_eq!(read.segments, plan.segments);
    }
}

/// Two samplers and six trainers keep up with each other where training takes three times as long as sampling (the paper's Fig. 12
/// has these numbers).
#[test]
fn a_quarter_of_the_devices_samples_where_training_takes_three_times_as_long() {
    let problem = problem(8, [0.1, 0.05, 0.3]);
    assert_eq!(problem.samplers_by_formula(), 2);
    let plan = roles(&problem).expect("valid");
    assert_eq!(plan.unswitched_trainers, 6);
    // A step takes 0.3 / 6 s. The first one waits for sampling and gathering of its shares, two by each sampler device at most.
    let steps = N as f64 * 0.05;
    assert!(plan.unswitched_seconds > steps && plan.unswitched_seconds < steps + 0.1, "{plan:?}");
}

/// Synchronous steps take training and all-reduce, one after the other; stale ones the longer of both.
#[test]
fn stale_gradients_hide_the_all_reduce() {
    let fresh = RolesProblem { all_reduce: 0.06, ..problem(4, [0.01, 0.01, 0.3]) };
    let stale = RolesProblem { staleness: 1, ..fresh };
    let of = |problem: &RolesProblem| problem.simulate(&constant(3)).expect("a device samples") / N as f64;
    assert!((of(&fresh) - 0.16).abs() < 1e-3, "{}", of(&fresh));
    assert!((of(&stale) - 0.1).abs() < 1e-3, "{}", of(&stale));
    let slow = RolesProblem { all_reduce: 0.25, ..stale };
    assert!((of(&slow) - 0.25).abs() < 2e-3, "{}: all-reduces follow one another", of(&slow));
}

/// Where gathering takes longer than training, it is the time of a trainer.
#[test]
fn gathering_counts_where_it_takes_longer_than_training() {
    assert_eq!(problem(8, [0.1, 0.3, 0.05]).samplers_by_formula(), 2);
    assert_eq!(problem(8, [0.1, 0.1, 0.05]).samplers_by_formula(), 4);
    assert_eq!(problem(8, [9.0, 0.1, 0.1]).samplers_by_formula(), 7, "one device trains");
    assert_eq!(problem(8, [0.0, 0.1, 0.1]).samplers_by_formula(), 1, "one device samples");
}

/// Of three devices with equal work in both roles, one is in each role half of the time.
#[test]
fn a_device_takes_turns_where_no_number_balances() {
    let mut problem = problem(3, [0.1, 0.01, 0.1]);
    let plan = roles(&problem).expect("valid");
    // One device in one of the roles needs 0.1 s per mini-batch; three devices have 0.2 s of work on each.
    assert!((plan.unswitched_seconds / N as f64 - 0.1).abs() < 0.002, "{plan:?}");
    assert!(plan.segments.len() > 2, "{plan:?}");
    assert!((0.0667..0.075).contains(&(plan.epoch_seconds / N as f64)), "{plan:?}");
    problem.switching = 100.0;
    let plan = roles(&problem).expect("valid");
    assert_eq!(plan.segments.len(), 1, "changes cost more than they gain: {plan:?}");
}

/// The sampler device trains too, once everything is sampled.
#[test]
fn the_last_mini_batches_are_trained_by_more_devices() {
    let problem = RolesProblem { num_batches: 40, queue: 40, ..problem(2, [0.05, 0.01, 0.1]) };
    let plan = roles(&problem).expect("valid");
    assert_eq!(plan.segments.last().map(|s| s.trainers), Some(2), "{plan:?}");
    assert!(plan.epoch_seconds < 0.85 * plan.unswitched_seconds, "{plan:?}");
}

#[test]
fn segments_that_nobody_samples_for_are_impossible() {
    let problem = RolesProblem { num_batches: 40, queue: 4, ..problem(2, [0.05, 0.01, 0.1]) };
    let all_train = |from| [Segment { from: 0, trainers: 1 }, Segment { from, trainers: 2 }];
    assert_eq!(problem.simulate(&all_train(30)), None);
    assert!(!problem.schedule(&all_train(30)).is_possible());
    assert!(problem.simulate(&all_train(38)).is_some());
    assert!(problem.schedule(&all_train(38)).is_possible());
}

#[test]
fn impossible_problems_are_refused() {
    let valid = problem(2, [0.1; 3]);
    let refused = |problem: RolesProblem| roles(&problem).expect_err("it is impossible").to_string();
    assert_eq!(refused(RolesProblem { devices: 1, ..valid }), "devices with roles: 1 is outside 2 to 64");
    assert!(refused(RolesProblem { queue: 0, ..valid }).contains("global queue: 0"));
    let odd = RolesProblem { training: line(f64::NAN), ..valid };
    assert_eq!(refused(odd), "roles: NaN s are no finite number of at least 0");
}
