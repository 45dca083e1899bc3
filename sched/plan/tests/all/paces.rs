//! Plans are left for others by what whole epochs took.

use morphgl_plan::{
    Bytes, Candidate, Durations, Hardware, PaceHistory, Plan, Plans, Problem, Resource, RouteKeys, Strategy, plan,
};

/// Two routes to a device, batched by the host in so many seconds and by the device itself: mixed epochs are predicted to be shorter
/// than others.
fn plans_of(host: f64) -> Plans {
    let route = |batching: &str, hardware: [&[&str]; 3], durations: Durations| Candidate {
        keys: RouteKeys {
            batching: batching.parse().expect("a key"),
            transferring: format!("Transferring_{}_Copy", hardware[1].join("+")).parse().expect("a key"),
            training: "Training_CUDA_Native".parse().expect("a key"),
        },
        hardware: Hardware {
            batching: hardware[0].iter().map(|s| s.to_string()).collect(),
            transferring: hardware[1].iter().map(|s| s.to_string()).collect(),
            training: hardware[2].iter().map(|s| s.to_string()).collect(),
        },
        in_place: hardware[0].contains(&"CUDA"),
        on_host: false,
        durations,
        bytes: Bytes::default(),
    };
    let host = Durations::constant(4, host, 0.004, 0.010).expect("valid");
    let device = Durations::constant(1, 0.010, 0.005, 0.010).expect("valid");
    let problem = Problem::new(
        200,
        vec![Resource::shared("CPU", 4), Resource::exclusive("PCIe"), Resource::exclusive("CUDA")],
        vec![
            route("Batching_CPU_Neighbor", [&["CPU"], &["PCIe"], &["CUDA"]], host),
            route("Batching_CUDA+PCIe_Neighbor", [&["CUDA", "PCIe"], &["CUDA", "PCIe"], &["CUDA"]], device),
        ],
    );
    plan(&problem.expect("valid")).expect("it fits")
}

fn plans() -> Plans {
    plans_of(0.120)
}

#[test]
fn a_mix_that_promises_little_is_not_chosen() {
    for (host, mixes) in [(1.0, true), (2.0, false)] {
        let plans = plans_of(host);
        let [best, device] = [plans.best(), plans.best_of(Strategy::Device).expect("a plan")];
        let ratio = device.prediction.epoch_seconds / best.prediction.epoch_seconds;
        assert!(best.schedule.shares.len() > 1 && (ratio > 1.05) == mixes, "{ratio}: {plans}");
        assert_eq!(plans.chosen(), if mixes { best } else { device });
        assert_eq!(plans.passed_over(), (!mixes).then_some(best));
    }
}

/// Whether each of `epochs` epochs mixed both routes; an epoch takes the predicted seconds times a factor, `mixed` where it does.
fn run(plans: &Plans, epochs: usize, [mixed, single]: [f64; 2]) -> Vec<bool> {
    let mut paces = PaceHistory::default();
    let mut in_force: Plan = paces.best(plans).clone();
    let mut ran = Vec::new();
    for _ in 0..epochs {
        ran.push(in_force.schedule.shares.len() > 1);
        let factor = if ran[ran.len() - 1] { mixed } else { single };
        paces.record(&in_force, in_force.prediction.epoch_seconds * factor);
        if let Some(better) = paces.better(plans, &in_force) {
            in_force = better.clone();
        }
    }
    ran
}

#[test]
fn a_plan_that_takes_longer_than_another_promises_is_left_for_it() {
    let plans = plans();
    let predicted = |s| plans.best_of(s).expect("a plan").prediction.epoch_seconds;
    let ratio = predicted(Strategy::Device) / predicted(Strategy::Interleaved);
    assert!(plans.best().schedule.shares.len() > 1 && (1.2..1.7).contains(&ratio), "{plans}");
    // As predicted, or a little worse than the device's own plan: it stays.
    assert_eq!((plans.chosen(), plans.passed_over()), (plans.best(), None));
    assert_eq!(run(&plans, 9, [1.0, 1.0]), [true; 9]);
    assert_eq!(run(&plans, 9, [1.09 * ratio, 1.0]), [true; 9]);
    // Longer, for a reason of its own: after two epochs the device's own plan is chosen, and kept.
    let left: Vec<bool> = (0..9).map(|epoch| epoch < 2).collect();
    assert_eq!(run(&plans, 9, [1.2 * ratio, 1.0]), left);
    // Where all take three times as long, other routes are tried for two epochs each, and the first ones are found again.
    let ran = run(&plans, 40, [3.0, 3.0]);
    assert!(ran[30..].iter().all(|&mixed| mixed), "{ran:?}");
    assert!((2..=8).contains(&ran.iter().filter(|&&mixed| !mixed).count()), "{ran:?}");
}

#[test]
fn one_slow_epoch_changes_nothing() {
    let plans = plans();
    let best = plans.best();
    let mut paces = PaceHistory::default();
    let seconds = best.prediction.epoch_seconds;
    for factor in [9.0, 1.0, 9.0, 1.0, 1.0] {
        paces.record(best, factor * seconds);
        assert_eq!(paces.better(&plans, best), None);
    }
    assert!((paces.seconds(best) - seconds).abs() < 1e-9);
    // Two in a row do.
    paces.record(best, 9.0 * seconds);
    paces.record(best, 9.0 * seconds);
    assert!(paces.better(&plans, best).is_some());
}

#[test]
fn paces_are_saved_and_loaded() {
    let plans = plans();
    let mut paces = PaceHistory::default();
    for (i, plan) in plans.all().iter().enumerate() {
        paces.record(plan, 1.5 + i as f64);
    }
    let text = serde_json::to_string(&paces).expect("it is plain data");
    assert_eq!(serde_json::from_str::<PaceHistory>(&text).expect("its own text"), paces);
}
