//! Problems and durations that no plan can be made from, and invalid files.

use crate::common::{TwoRoutes, hardware};
use morphgl_plan::{
    Candidate, Contention, Curve, Durations, InterferencePoint, Plan, Plans, Point, Policy, PoolPoint, Problem,
    Resource, Schedule, Seconds, Strategy,
};

fn two() -> TwoRoutes {
    TwoRoutes::new(10, 2, [0.1, 0.1, 0.1, 0.1, 0.1])
}

#[track_caller]
fn refuse(resources: Vec<Resource>, routes: Vec<Candidate>, expected: &str) {
    let error = Problem::new(10, resources, routes).expect_err("the problem is invalid");
    assert_eq!(error.to_string(), expected);
}

#[test]
fn invalid_problems_are_refused() {
    let problem = two().problem();
    let routes = problem.routes().to_vec();
    let with = |hardware| vec![Candidate { hardware, ..routes[0].clone() }];
    refuse(two().resources(), Vec::new(), "a planning problem: no route; give one at least");
    refuse(
        [two().resources(), vec![Resource::exclusive("SIM")]].concat(),
        routes.clone(),
        "resource SIM: named twice; name each once",
    );
    refuse(
        vec![Resource::shared("CPU", 2), Resource::shared("NPU", 2)],
        routes.clone(),
        "a planning problem: two resources have cores; threads share those of one machine",
    );
    refuse(
        two().resources(),
        with(hardware(&["CPU"], &[], &["SIM"])),
        "Batching_CPU_Neighbor → Transferring_PCIe_Dma → Training_SIM_Step: transferring holds no resource; name one",
    );
    refuse(
        two().resources(),
        with(hardware(&["CPU"], &["PCIe"], &["CUDA"])),
        "Batching_CPU_Neighbor → Transferring_PCIe_Dma → Training_SIM_Step: training holds CUDA, which is not among the resources",
    );
    refuse(
        (0..33).map(|i| Resource::exclusive(i.to_string())).collect(),
        routes,
        "a planning problem: at most 32 resources can be planned",
    );
}

fn pool(workers: usize, threads: usize, seconds: f64) -> PoolPoint {
    PoolPoint { workers, threads, seconds: Seconds::constant(seconds) }
}

fn training() -> Curve {
    Curve::new(vec![Point { at: 1, seconds: Seconds::constant(1.0) }]).expect("a point is valid")
}

#[test]
fn invalid_durations_are_refused() {
    let refuse = |batching: &[PoolPoint]| {
        let made = Durations::new(batching, Seconds::default(), training());
        made.expect_err("these durations cannot be planned with").to_string()
    };
    assert_eq!(refuse(&[]), "batching: one worker of one thread is missing; measure it too");
    assert_eq!(refuse(&[pool(2, 1, 1.0)]), "batching: one worker of one thread is missing; measure it too");
    assert_eq!(refuse(&[pool(1, 0, 1.0)]), "batching: a worker of 0 threads; counts start at 1");
    assert!(refuse(&[pool(1, 1, 1.0), pool(1, 1, 2.0)]).contains("the count 1 is there twice"));
    assert!(refuse(&[pool(1, 1, -1.0)]).contains("a mean of -1 s"));
    assert!(refuse(&[pool(1, 1, f64::INFINITY)]).contains("a mean of inf s"));
    let transferring = Seconds { mean: 1.0, std: f64::NAN };
    let error =
        Durations::new(&[pool(1, 1, 1.0)], transferring, training()).expect_err("a deviation that is no number");
    assert!(error.to_string().starts_with("transferring: a deviation of NaN s"), "{error}");
    assert!(Durations::constant(2, -1.0, 0.0, 0.0).is_err());
    assert!(Curve::new(Vec::new()).is_err());
    assert!(Curve::new(vec![Point { at: 0, seconds: Seconds::constant(1.0) }]).is_err());
    for factor in [0.5, f64::NAN, f64::INFINITY] {
        let contention = Contention { batching: factor, training: 1.0 };
        let point = InterferencePoint { workers: 1, threads: 1, training_threads: 1, contention };
        let durations = Durations::constant(1, 1.0, 1.0, 1.0).expect("durations are valid");
        let error = durations.with_interference(vec![point]).expect_err("a factor below 1");
        assert!(error.to_string().ends_with("counts are from 1 to 1024, factors from 1"), "{error}");
    }
}

#[test]
fn files_are_checked_in_the_same_way() {
    let durations = r#"{"batching":[],"transferring":{"mean":0,"std":0},"training":[]}"#;
    let error = serde_json::from_str::<Durations>(durations).expect_err("invalid durations in a file");
    assert!(error.to_string().contains("no point"), "{error}");
    let mut problem = serde_json::to_value(two().problem()).expect("a problem is plain data");
    problem["resources"][1]["name"] = "NVLink".into();
    let error = serde_json::from_value::<Problem>(problem).expect_err("its routes hold PCIe");
    assert!(error.to_string().ends_with("transferring holds PCIe, which is not among the resources"), "{error}");
    assert!(serde_json::from_str::<Schedule>(r#"{"policy":"fast"}"#).is_err());
    let _: Plans = serde_json::from_value(
        serde_json::to_value(morphgl_plan::plan(&two().problem()).expect("there is memory")).expect("plain data"),
    )
    .expect("what was written can be read");
}

/// Numbers that a plan's file may have and no planner writes: refused, since a run with them would hang, overflow or take all
/// memory.
#[test]
fn every_number_of_a_plan_has_bounds() {
    let plans = morphgl_plan::plan(&two().problem()).expect("there is memory");
    let good = serde_json::to_value(plans.best_of(Strategy::Pipeline).expect("a plan")).expect("plain data");
    let refusal = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut json = good.clone();
        change(&mut json);
        let plan: Plan = serde_json::from_value(json).expect("a plan, as far as its fields go");
        plan.check().expect_err("a number out of bounds").to_string()
    };
    serde_json::from_value::<Plan>(good.clone()).expect("a plan").check().expect("the planner's own");
    let mut on_cores = good.clone();
    on_cores["schedule"]["shares"][0]["hardware"]["training"] = serde_json::json!(["CPU"]);
    on_cores["schedule"]["training_threads"] = 0.into();
    let plan: Plan = serde_json::from_value(on_cores).expect("a plan");
    assert!(plan.check().expect_err("no thread").to_string().contains("training_threads: 0 is outside 1 to 1024"));
    let huge = serde_json::json!(i64::MAX as u64);
    for field in ["training_threads", "batched", "ready", "group", "keep"] {
        let text = refusal(&|json| json["schedule"][field] = huge.clone());
        assert!(text.contains(&format!("{field}: 9223372036854775807 is outside")), "{text}");
    }
    for (field, value) in
        [("batches", &huge), ("workers", &huge), ("workers", &0.into()), ("threads_per_worker", &huge)]
    {
        let text = refusal(&|json| json["schedule"]["shares"][0][field] = value.clone());
        assert!(text.contains(field), "{field}: {text}");
    }
    let text = refusal(&|json| {
        json["schedule"]["shares"][0]["workers"] = 1000.into();
        json["schedule"]["shares"][0]["threads_per_worker"] = 1000.into();
    });
    assert!(text.contains("workers times threads_per_worker: 1000000 is outside"), "{text}");
    for phase in ["batching", "transferring", "training"] {
        for seconds in [-1.0, 1e300] {
            let text = refusal(&|json| json["schedule"]["shares"][0][phase]["mean"] = seconds.into());
            assert!(text.contains(&format!("{phase}: a mean of")), "{text}");
        }
        let text = refusal(&|json| json["schedule"]["shares"][0]["hardware"][phase] = serde_json::json!(["XPU"]));
        assert!(text.contains("holds XPU, which is not among the resources"), "{text}");
    }
    for (field, part) in [
        ("host", "memory.host"),
        ("device", "memory.device"),
        ("caches", "memory.caches"),
        ("device_caches", "memory.device_caches"),
        ("sampler", "memory.sampler"),
        ("sampler_caches", "memory.sampler_caches"),
    ] {
        let text = refusal(&|json| json["memory"][field] = huge.clone());
        assert!(text.contains(part), "{text}");
    }
    assert!(refusal(&|json| json["schedule"]["shares"] = serde_json::json!([])).contains("1 to 32"));
    assert!(
        refusal(&|json| json["schedule"]["policy"] = "dual-buffer".into()).contains("the policy dual-buffer takes")
    );
    let long = serde_json::Value::from("x".repeat(300));
    let long_key = serde_json::Value::from(format!("Training_CPU_{}", "x".repeat(287)));
    for text in [
        refusal(&|json| json["schedule"]["shares"][0]["keys"]["training"] = long_key.clone()),
        refusal(&|json| json["schedule"]["resources"][0]["name"] = long.clone()),
        refusal(&|json| json["schedule"]["shares"][0]["hardware"]["training"] = serde_json::json!([long.clone()])),
    ] {
        assert!(text.contains("has 300 bytes; give 256 at most"), "{text}");
    }
    assert!(refusal(&|json| json["prediction"]["epoch_seconds"] = (-1.0).into()).contains("prediction"));
}

#[test]
fn policies_and_strategies_are_printed_as_in_files() {
    for policy in Policy::ALL {
        assert_eq!(serde_json::to_value(policy).expect("plain data"), policy.to_string());
    }
    for strategy in Strategy::ALL {
        assert_eq!(serde_json::to_value(strategy).expect("plain data"), strategy.to_string());
    }
}

#[test]
fn plans_print_as_a_table() {
    let two = TwoRoutes::new(1000, 4, [0.1, 0.002, 0.02, 0.01, 0.005]);
    let plans = morphgl_plan::plan(&two.problem()).expect("there is memory");
    let text = plans.to_string();
    assert_eq!(text.lines().count(), 1 + plans.all().len());
    for name in [
        "strategy",
        "bound",
        "CPU",
        "PCIe",
        "SIM",
        "bottleneck",
        "sequential",
        "pipeline",
        "device",
        "paper",
        "interleaved",
    ] {
        assert!(text.contains(name), "{name} is missing:\n{text}");
    }
    let schedule = two.schedule(Policy::Interleaved, 500, (2, 1)).to_string();
    let expected = "interleaved: 500 of 1000 by Batching_CPU_Neighbor, 4 batching workers; 500 of 1000 by \
                    Batching_PCIe+SIM_Neighbor, 1 batching worker, buffers of 64 and 10";
    assert_eq!(schedule, expected);
}
