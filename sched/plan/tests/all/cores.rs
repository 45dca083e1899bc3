//! Machines without an accelerator: batching and training share the cores.

use crate::common::{CpuOnly, check::check};
use morphgl_plan::{
    Bottleneck, Contention, Durations, InterferencePoint, Limits, Phase, Plan, Policy, Problem, Strategy, bound, plan,
    timeline,
};
use proptest::prelude::*;
use proptest::strategy::Strategy as _;

fn machine(n: usize, cores: usize, batching: &[(usize, usize, f64)], training: &[(usize, f64)]) -> CpuOnly {
    CpuOnly { n, cores, batching: batching.to_vec(), transferring: 0.0, training: training.to_vec() }
}

/// Policy, workers, threads per worker, training threads, and epoch seconds.
#[track_caller]
fn expect(plan: &Plan, schedule: (Policy, usize, usize, usize), epoch: f64) {
    let s = &plan.schedule;
    assert_eq!((s.policy, s.shares[0].workers, s.shares[0].threads_per_worker, s.training_threads), schedule, "{plan}");
    let predicted = plan.prediction.epoch_seconds;
    assert!((predicted - epoch).abs() < 1e-9 * epoch.max(1.0), "predicted {predicted}, expected {epoch}");
    let simulation = timeline(s);
    check(s, &simulation);
    assert_eq!(simulation.seconds, predicted);
}

#[test]
fn slow_batching_gets_the_workers() {
    let m = machine(99, 4, &[(1, 1, 1.0), (2, 1, 0.5), (3, 1, 1.0 / 3.0)], &[(1, 0.1)]);
    // 33 rounds of three mini-batches that take a second each; the last round's three are then trained.
    let plans = plan(&m.problem()).expect("there is memory");
    expect(plans.best(), (Policy::Pipeline, 3, 1, 1), 33.0 + 0.3);
    assert_eq!(plans.best().prediction.bottleneck, Bottleneck { resource: "CPU".to_string(), phase: Phase::Batching });
}

#[test]
fn slow_training_gets_the_threads() {
    let m = machine(100, 4, &[(1, 1, 0.1), (2, 1, 0.05)], &[(1, 1.0), (2, 0.5), (3, 0.3), (4, 0.3)]);
    // The first fill of 0.1 s and 100 steps of 0.3 s.
    expect(plan(&m.problem()).expect("there is memory").best(), (Policy::Pipeline, 1, 1, 3), 0.1 + 30.0);
}

#[test]
fn one_core_does_not_get_faster_by_a_pipeline() {
    let m = machine(50, 1, &[(1, 1, 0.5)], &[(1, 0.5)]);
    let plans = plan(&m.problem()).expect("there is memory");
    expect(plans.best(), (Policy::Sequential, 1, 1, 1), 50.0);
    let pipeline = plans.best_of(Strategy::Pipeline).expect("it is a candidate");
    assert!(pipeline.prediction.epoch_seconds > 50.0, "an oversubscribed core is slower, not faster");
}

#[test]
fn a_single_mini_batch_is_spread_over_threads() {
    let m = machine(1, 4, &[(1, 1, 1.0), (1, 4, 0.3)], &[(1, 1.0), (4, 0.25)]);
    expect(plan(&m.problem()).expect("there is memory").best(), (Policy::Sequential, 1, 4, 4), 0.55);
}

#[test]
fn threads_that_slow_a_phase_down_are_not_used() {
    let m = machine(1, 8, &[(1, 1, 0.01), (1, 8, 0.04)], &[(1, 0.02), (8, 0.08)]);
    expect(plan(&m.problem()).expect("there is memory").best(), (Policy::Sequential, 1, 1, 1), 0.03);
}

#[test]
fn oversubscribed_cores_are_shared_among_threads() {
    // One core: batching alone for 0.5 s; then batching and training at half the speed over 1.1; then training alone.
    let m = machine(2, 1, &[(1, 1, 0.5)], &[(1, 0.5)]);
    let schedule = m.pipeline(1, 1, 2);
    let simulation = timeline(&schedule);
    check(&schedule, &simulation);
    assert!((simulation.seconds - (0.5 + 0.5 * 2.2 + 0.5)).abs() < 1e-12, "{}", simulation.seconds);
}

#[test]
fn phases_slow_each_other_as_measured() {
    let m = machine(2, 2, &[(1, 1, 1.0)], &[(1, 1.0)]);
    let mut schedule = m.pipeline(1, 1, 2);
    schedule.shares[0].contention = Some(Contention { batching: 1.5, training: 1.25 });
    let simulation = timeline(&schedule);
    check(&schedule, &simulation);
    // Both from 1 s: training ends at 2.25 s, when batching still lacks a sixth of a second; then training alone for 1 s.
    let expected = 1.0 + 1.25 + (1.0 - 1.25 / 1.5) + 1.0;
    assert!((simulation.seconds - expected).abs() < 1e-12, "{} instead of {expected}", simulation.seconds);
}

#[test]
fn measured_contention_is_planned_with() {
    let m = machine(200, 2, &[(1, 1, 1.0)], &[(1, 1.0)]);
    let plans = plan(&m.problem()).expect("there is memory");
    expect(plans.best(), (Policy::Pipeline, 1, 1, 1), 201.0);
    // With so much interference that one after the other is better.
    let interference = |factor| InterferencePoint {
        workers: 1,
        threads: 1,
        training_threads: 1,
        contention: Contention { batching: factor, training: factor },
    };
    let slowed = |factor: f64| {
        let durations: Durations =
            m.durations().with_interference(vec![interference(factor)]).expect("factors are valid");
        let problem = m.problem();
        let mut route = problem.routes()[0].clone();
        route.durations = durations;
        let slowed = Problem::new(200, problem.resources().to_vec(), vec![route]).expect("the problem is valid");
        // No splits but the measured one.
        slowed.with_limits(Limits { extra_threads: 0, ..Limits::default() })
    };
    expect(plan(&slowed(1.5)).expect("there is memory").best(), (Policy::Pipeline, 1, 1, 1), 1.0 + 199.0 * 1.5 + 1.0);
    expect(plan(&slowed(3.0)).expect("there is memory").best(), (Policy::Sequential, 1, 1, 1), 400.0);
}

fn seconds() -> impl proptest::strategy::Strategy<Value = f64> {
    prop_oneof![1 => Just(0.0), 20 => (-3.0..0.0f64).prop_map(|e| 10f64.powf(e))]
}

/// Counts from 1, and seconds of each; in thread-seconds no less than half of what one takes.
fn curve() -> impl proptest::strategy::Strategy<Value = Vec<(usize, f64)>> {
    let counts = proptest::sample::subsequence(vec![2usize, 3, 4, 6, 8, 16], 0..=4);
    counts.prop_flat_map(|at| {
        let seconds = proptest::collection::vec(seconds(), at.len() + 1);
        seconds.prop_map(move |s| std::iter::once(1).chain(at.iter().copied()).zip(s).collect())
    })
}

fn any_machine() -> impl proptest::strategy::Strategy<Value = CpuOnly> {
    (curve(), curve(), seconds(), curve(), prop_oneof![0usize..40, 200usize..300], 1usize..=16).prop_map(
        |(pool, solo, transferring, training, n, cores)| {
            let workers = pool.iter().map(|&(workers, s)| (workers, 1, s));
            let threads = solo.iter().skip(1).map(|&(threads, s)| (1, threads, s));
            CpuOnly { n, cores, batching: workers.chain(threads).collect(), transferring, training }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn plans_of_any_machine_respect_the_cores_and_the_bound(m in any_machine()) {
        let problem = m.problem();
        let plans = plan(&problem).expect("there is memory");
        let limit = bound(&problem);
        for p in plans.all() {
            let s = &p.schedule;
            let simulation = timeline(s);
            check(s, &simulation);
            prop_assert_eq!(simulation.seconds, p.prediction.epoch_seconds);
            prop_assert!(plans.best().prediction.epoch_seconds <= simulation.seconds);
            prop_assert!(simulation.seconds >= limit * (1.0 - 1e-9), "{} below the bound {}", p, limit);
            let (workers, threads) = (s.shares[0].workers, s.shares[0].threads_per_worker);
            let most = match s.policy {
                Policy::Sequential => threads.max(s.training_threads),
                _ => (workers * threads + s.training_threads).saturating_sub(problem.limits.extra_threads),
            };
            prop_assert!(most <= m.cores, "{} threads on {} cores", most, m.cores);
            prop_assert!(p.prediction.utilisation.iter().all(|u| (0.0..=1.0).contains(&u.share)));
        }
        prop_assert!(plans.best_of(Strategy::Sequential).is_some() && plans.best_of(Strategy::Pipeline).is_some());
    }

    #[test]
    fn pipelines_by_hand_are_not_below_the_bound(
        m in any_machine(), workers in 1usize..8, training_threads in 1usize..8, ready in 1usize..12,
    ) {
        // The bound is that of pools which the cores hold. Curves that are drawn may give more workers any speed.
        let workers = workers.min(m.cores).min(m.n.max(1));
        let schedule = m.pipeline(workers, training_threads, ready);
        let simulation = timeline(&schedule);
        check(&schedule, &simulation);
        let limit = bound(&m.problem());
        prop_assert!(simulation.seconds >= limit * (1.0 - 1e-9), "{} s below the bound {}", simulation.seconds, limit);
    }
}
