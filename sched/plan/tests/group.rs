//! Laws of groups: shares, predictions, and the choice between a group and a single trainer.

use morphgl_plan::{
    Bytes, Candidate, Durations, GroupProblem, Hardware, Linear, Member, PerPhase, Plan, Plans, Problem, Resource,
    RouteKeys, Strategy as Kind, group, plan,
};
use proptest::prelude::*;

/// A trainer with these seconds of a step; its first mini-batch takes `latency` times as long.
fn member(step: Linear, latency: f64) -> Member {
    Member { step, first: Linear { fixed: latency * step.fixed, whole: latency * step.whole } }
}

fn members() -> impl Strategy<Value = Vec<Member>> {
    let seconds = || prop_oneof![1 => Just(0.0), 20 => (-3.0..0.0f64).prop_map(|e| 10f64.powf(e))];
    let line = (seconds(), seconds()).prop_map(|(fixed, whole)| Linear { fixed: 0.2 * fixed, whole });
    proptest::collection::vec((line, 1.0..4.0f64).prop_map(|(line, latency)| member(line, latency)), 1..9)
}

fn problem(members: Vec<Member>, num_batches: usize, all_reduce: f64) -> GroupProblem {
    GroupProblem { num_batches, members, all_reduce }
}

fn one_hot(size: usize, at: usize) -> Vec<f64> {
    (0..size).map(|i| if i == at { 1.0 } else { 0.0 }).collect()
}

/// One route of constant durations, on a device or on four cores.
fn single(n: usize, [batching, transferring, training]: [f64; 3], on_device: bool) -> Problem {
    let names = |name: &str| vec![name.to_string()];
    let [batches, trains] = if on_device { ["CPU", "CUDA"] } else { ["CPU", "CPU"] };
    let between = if on_device { "PCIe" } else { "CPU" };
    let hardware = Hardware { batching: names(batches), transferring: names(between), training: names(trains) };
    let candidate = Candidate {
        keys: PerPhase {
            batching: "Batching_CPU_B".parse().expect("a key"),
            transferring: "Transferring_CPU_T".parse().expect("a key"),
            training: "Training_CPU_M".parse().expect("a key"),
        } as RouteKeys,
        hardware,
        in_place: !on_device,
        on_host: !on_device,
        durations: Durations::constant(3, batching, transferring, training).expect("valid"),
        bytes: Bytes::default(),
    };
    let resources = vec![Resource::shared("CPU", 4), Resource::exclusive("PCIe"), Resource::exclusive("CUDA")];
    Problem::new(n, resources, vec![candidate]).expect("valid")
}

fn pipeline(plans: &Plans) -> &Plan {
    plans.best_of(Kind::Pipeline).expect("a pipeline")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_group_is_never_worse_than_its_best_trainer_nor_better_than_the_bound(
        members in members(), n in 0usize..2000, all_reduce in 0.0..0.1f64,
    ) {
        let problem = problem(members, n, all_reduce);
        let size = problem.members.len();
        let found = group(&problem).expect("valid");
        prop_assert!((found.shares.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{:?}", found.shares);
        prop_assert!(found.shares.iter().all(|share| (0.0..=1.0 + 1e-12).contains(share)));
        for at in 0..size {
            let alone = problem.predicted(one_hot(size, at));
            prop_assert!(found.epoch_seconds <= alone.epoch_seconds);
            prop_assert!(alone.epoch_seconds >= alone.bound_seconds * (1.0 - 1e-9));
        }
        prop_assert!(found.epoch_seconds >= found.bound_seconds * (1.0 - 1e-9), "{:?}", found);
        prop_assert_eq!(&problem.predicted(found.shares.clone()), &found);
    }

    /// No other division has a shorter step, among those between all trainers of the group.
    #[test]
    fn no_other_division_has_a_shorter_step(members in members(), weights in proptest::collection::vec(0.0..1.0f64, 9)) {
        let problem = problem(members, 1_000_000, 0.001);
        let weights = &weights[..problem.members.len()];
        let sum: f64 = weights.iter().sum();
        prop_assume!(sum > 0.0);
        let other = problem.predicted(weights.iter().map(|w| w / sum).collect());
        let found = group(&problem).expect("valid");
        // The first mini-batches of an epoch are not the step's.
        let ends = 10.0 / 1e6;
        prop_assert!(found.step_seconds <= other.step_seconds * (1.0 + 1e-9) + ends, "{:?} {:?}", found, other);
    }

    /// A trainer whose fixed cost alone is longer than the others need has no share.
    #[test]
    fn a_trainer_of_no_use_has_no_share(members in members(), at in 0usize..8) {
        let mut members = members;
        let at = at.min(members.len());
        members.insert(at, member(Linear { fixed: 10.0, whole: 0.0 }, 1.0));
        let found = group(&problem(members, 1000, 0.0)).expect("valid");
        prop_assert_eq!(found.shares[at], 0.0, "{:?}", found);
    }

    /// One trainer is predicted as the simulator predicts its own plan.
    #[test]
    fn one_trainer_takes_as_long_as_the_simulator_says(
        on_device in any::<bool>(), n in 1usize..200, seconds in [0.001..1.0f64, 0.001..1.0f64, 0.001..1.0f64],
    ) {
        let whole = single(n, seconds, on_device);
        let plans = plan(&whole).expect("there is memory");
        let alone = pipeline(&plans);
        let half = single(n, seconds.map(|s| 0.5 * s), on_device);
        let member = Member::of(&alone.schedule, &half, 0.5).expect("the same route");
        let found = group(&problem(vec![member], n, 0.5)).expect("valid");
        let simulated = alone.prediction.epoch_seconds;
        prop_assert!((found.epoch_seconds - simulated).abs() <= 1e-9 * simulated, "{:?}, {} simulated", found, simulated);
        prop_assert!(member.step.fixed <= 1e-9 * simulated, "halves take half as long: {:?}", member);
        prop_assert_eq!(found.num_trainers(), 1);
    }

    /// A fixed part of training stays whatever the share.
    #[test]
    fn fixed_seconds_are_found_from_two_shares(fixed in 0.01..1.0f64, whole in 0.01..1.0f64, share in 0.1..0.9f64) {
        let seconds = |share: f64| [0.0, 0.0, fixed + whole * share];
        let plans = plan(&single(10, seconds(1.0), true)).expect("there is memory");
        let part = single(10, seconds(share), true);
        let Member { step, .. } = Member::of(&pipeline(&plans).schedule, &part, share).expect("the same route");
        prop_assert!((step.fixed - fixed).abs() < 1e-9 && (step.whole - whole).abs() < 1e-9, "{:?}", step);
    }

    #[test]
    fn lines_never_fall_nor_go_below_zero(whole in 0.0..1.0f64, share in 0.1..0.9f64, seconds in 0.0..2.0f64) {
        let line = Linear::through(whole, share, seconds);
        prop_assert!(line.fixed >= 0.0 && line.whole >= 0.0, "{:?}", line);
        prop_assert!((line.at(1.0) - whole).abs() < 1e-12);
    }
}

/// Two equal trainers halve the step but for the all-reduce, and are together only where that is worth it.
#[test]
fn trainers_are_together_where_that_is_faster() {
    let trainer = member(Linear { fixed: 0.0, whole: 0.1 }, 1.0);
    let with = |all_reduce| group(&problem(vec![trainer, trainer], 100, all_reduce)).expect("valid");
    let found = with(0.01);
    assert!((found.step_seconds - 0.06).abs() < 1e-9, "{found:?}");
    assert!((found.shares[0] - 0.5).abs() < 1e-9, "{found:?}");
    let found = with(0.06);
    assert_eq!(found.num_trainers(), 1);
    assert!((found.step_seconds - 0.1).abs() < 1e-9, "{found:?}");
}

#[test]
fn impossible_problems_are_refused() {
    let trainer = member(Linear::default(), 1.0);
    assert!(group(&problem(vec![], 1, 0.0)).is_err());
    assert!(group(&problem(vec![trainer], 1, -1.0)).is_err());
    let odd = Member { first: Linear { fixed: f64::NAN, whole: 0.0 }, ..trainer };
    let error = group(&problem(vec![trainer, odd], 1, 0.0)).expect_err("no number");
    assert_eq!(error.to_string(), "trainer 1: NaN s are no finite number of at least 0");
}

#[test]
fn another_route_has_no_durations() {
    let plans = plan(&single(10, [0.1; 3], true)).expect("there is memory");
    assert_eq!(Member::of(&pipeline(&plans).schedule, &single(10, [0.05; 3], false), 0.5), None);
}
