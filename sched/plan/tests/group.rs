//! Laws of groups: shares, predictions, and the choice between a group and a single trainer.

use morphgl_plan::{
    Bytes, Candidate, Durations, GroupProblem, Hardware, Linear, Member, PerPhase, Problem, Resource, RouteKeys,
    Strategy as Kind, group, plan,
};
use proptest::prelude::*;

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

fn hardware(batching: &str, transferring: &str, training: &str) -> Hardware {
    Hardware { batching: names(&[batching]), transferring: names(&[transferring]), training: names(&[training]) }
}

fn resources() -> Vec<Resource> {
    vec![Resource::shared("CPU", 4), Resource::exclusive("PCIe"), Resource::exclusive("CUDA")]
}

/// Trains on the device what the host batches; what it batches itself; or all on the host.
fn member(kind: usize, lines: [Linear; 3]) -> Member {
    let hardware = [hardware("CPU", "PCIe", "CUDA"), hardware("CUDA", "PCIe", "CUDA"), hardware("CPU", "CPU", "CPU")];
    let [batching, transferring, training] = lines;
    Member {
        phases: PerPhase { batching, transferring, training },
        latency: batching,
        hardware: hardware[kind].clone(),
        threads: PerPhase { batching: 1, transferring: 1, training: 3 },
    }
}

fn members() -> impl Strategy<Value = Vec<Member>> {
    let seconds = || prop_oneof![1 => Just(0.0), 20 => (-3.0..0.0f64).prop_map(|e| 10f64.powf(e))];
    let line = move || (seconds(), seconds()).prop_map(|(fixed, whole)| Linear { fixed: 0.2 * fixed, whole });
    let one = (0usize..3, [line(), line(), line()]).prop_map(|(kind, lines)| member(kind, lines));
    proptest::collection::vec(one, 1..9)
}

fn problem(members: Vec<Member>, num_batches: usize, addition: f64) -> GroupProblem {
    GroupProblem { num_batches, resources: resources(), members, addition }
}

fn one_hot(size: usize, at: usize) -> Vec<f64> {
    (0..size).map(|i| if i == at { 1.0 } else { 0.0 }).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_group_is_never_worse_than_its_best_trainer_nor_better_than_the_bound(
        members in members(), n in 0usize..2000, addition in 0.0..0.1f64,
    ) {
        let problem = problem(members, n, addition);
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
        let useless = Linear { fixed: 10.0, whole: 0.0 };
        members.insert(at, member(0, [Linear::default(), Linear::default(), useless]));
        let found = group(&problem(members, 1000, 0.0)).expect("valid");
        prop_assert_eq!(found.shares[at], 0.0, "{:?}", found);
    }

    /// One trainer is predicted as the simulator has it where each phase has a resource of its own.
    #[test]
    fn one_trainer_takes_as_long_as_the_simulator_says(
        on_device in any::<bool>(), n in 1usize..200, seconds in [0.001..1.0f64, 0.001..1.0f64, 0.001..1.0f64],
    ) {
        let [batching, transferring, training] = seconds;
        let lines = seconds.map(|whole| Linear { fixed: 0.0, whole });
        let member = member(usize::from(on_device), lines);
        let keys = RouteKeys { batching: "B".into(), transferring: "T".into(), training: "M".into() };
        let candidate = Candidate {
            keys,
            hardware: member.hardware.clone(),
            in_place: on_device,
            on_host: false,
            durations: Durations::constant(1, batching, transferring, training).expect("valid"),
            bytes: Bytes::default(),
        };
        let single = Problem::new(n, vec![Resource::shared("CPU", 1), Resource::exclusive("PCIe"), Resource::exclusive("CUDA")], vec![candidate]).expect("valid");
        let plans = plan(&single).expect("there is memory");
        let of = if on_device { Kind::Device } else { Kind::Pipeline };
        let simulated = plans.best_of(of).expect("a pipeline").prediction.epoch_seconds;
        let found = group(&problem(vec![member], n, 0.5)).expect("valid");
        let off = found.epoch_seconds - simulated;
        if on_device {
            // Where one resource does two phases, the simulator waits for transfers at times, and the first and the last
            // mini-batches overlap otherwise than those between.
            let total = batching + transferring + training;
            prop_assert!(off <= total && off >= -0.25 * simulated, "{} predicted, {} simulated", found.epoch_seconds, simulated);
        } else {
            prop_assert!(off.abs() <= 1e-9 * simulated, "{} predicted, {} simulated", found.epoch_seconds, simulated);
        }
        // A group of one is no group.
        prop_assert!(!found.is_chosen_over(plans.best()));
    }
}

/// Two equal trainers halve the step but for the addition, and are chosen only where that is worth it.
#[test]
fn a_group_is_chosen_where_it_is_faster() {
    let trainer = || member(0, [Linear::default(), Linear::default(), Linear { fixed: 0.0, whole: 0.1 }]);
    let keys = RouteKeys { batching: "B".into(), transferring: "T".into(), training: "M".into() };
    let candidate = Candidate {
        keys,
        hardware: trainer().hardware,
        in_place: false,
        on_host: false,
        durations: Durations::constant(1, 0.0, 0.0, 0.1).expect("valid"),
        bytes: Bytes::default(),
    };
    let single = plan(&Problem::new(100, resources(), vec![candidate]).expect("valid")).expect("there is memory");
    let with = |addition| group(&problem(vec![trainer(), trainer()], 100, addition)).expect("valid");
    let found = with(0.01);
    assert!((found.step_seconds - 0.06).abs() < 1e-9, "{found:?}");
    assert!((found.shares[0] - 0.5).abs() < 1e-9 && found.is_chosen_over(single.best()), "{found:?}");
    let found = with(0.06);
    assert_eq!(found.num_trainers(), 1);
    assert!(!found.is_chosen_over(single.best()));
}

#[test]
fn impossible_problems_are_refused() {
    let trainer = member(0, [Linear::default(); 3]);
    assert!(group(&problem(vec![], 1, 0.0)).is_err());
    assert!(group(&problem(vec![trainer.clone()], 1, -1.0)).is_err());
    let odd = Member { latency: Linear { fixed: f64::NAN, whole: 0.0 }, ..trainer.clone() };
    assert!(group(&problem(vec![odd], 1, 0.0)).is_err());
    let elsewhere = Member { hardware: hardware("CPU", "NVLink", "CUDA"), ..trainer };
    let error = group(&problem(vec![elsewhere], 1, 0.0)).expect_err("no such resource");
    assert_eq!(error.to_string(), "trainer 0: it holds NVLink, which is not among the resources");
}
