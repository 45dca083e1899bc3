//! Hardware extends the system without changes elsewhere: operators of an invented accelerator are found, profiled, planned
//! and run by the same registry and the same `sched` as those of the CPU.

mod npu;

use std::sync::Arc;

use morphgl_execute::{Control, Executor, Settings, Stop};
use morphgl_graph_store::{Dataset, FeatureMatrix, Splits, Topology};
use morphgl_plan::{Limits, Policy};
use morphgl_profile::{Profile, Statistics};
use morphgl_registry::{
    BatchingContext, Description, Machine, Operators, Place, Registry, Route, RouteOperators, SamplerSettings, SeedSet,
    TrainingContext, TrainingOperator, TransferringContext,
};

/// A ring of `n` nodes whose feature is their own id.
fn dataset(n: u32) -> Arc<Dataset> {
    let indptr: Vec<u64> = (0..=u64::from(n)).collect();
    let indices: Vec<u32> = (0..n).map(|v| (v + 1) % n).collect();
    let features: Vec<f32> = (0..n).map(|v| v as f32).collect();
    let all: Vec<u32> = (0..n).collect();
    Arc::new(Dataset {
        features: Some(FeatureMatrix::F32 { data: features.into(), dim: 1 }),
        labels: Some(vec![0; n as usize].into()),
        num_classes: 1,
        splits: Splits { train: all.into(), valid: Vec::new().into(), test: Vec::new().into() },
        ..Dataset::new("ring", Topology::new(indptr, indices, None).expect("a ring"))
    })
}

fn machine() -> Machine {
    Machine { cpu: "test".into(), cores: 2, memory_bytes: 1 << 30, available_bytes: 1 << 29, accelerators: Vec::new() }
}

fn registry(operators: Vec<Description>) -> Registry {
    Registry::new(operators, machine()).expect("no key twice")
}

fn names(routes: &[Route]) -> Vec<String> {
    let name = |r: &Route| format!("{} {} {} @{}", r.batching, r.transferring, r.training, r.trained_at);
    routes.iter().map(name).collect()
}

fn build(registry: &Registry, dataset: &Arc<Dataset>, route: &Route) -> RouteOperators {
    let batching = BatchingContext {
        place: route.batched_at.clone(),
        ..BatchingContext::new(
            Arc::clone(dataset),
            SeedSet::new("train split", &dataset.splits.train, dataset.num_nodes()).expect("a split"),
            SamplerSettings { batch_size: 10, ..SamplerSettings::default() },
        )
    };
    let transferring =
        TransferringContext::new(Arc::clone(dataset), route.batched_at.clone(), route.trained_at.clone());
    RouteOperators {
        route: route.clone(),
        batching: registry.batching(&route.batching, &batching).expect("a batching operator").into(),
        transferring: registry.transferring(&route.transferring, &transferring).expect("a transferring operator"),
    }
}

fn trainer(registry: &Registry, dataset: &Arc<Dataset>, route: &Route) -> TrainingOperator {
    let training = TrainingContext {
        place: route.trained_at.clone(),
        ..TrainingContext::new(Arc::clone(dataset), serde_json::Value::Null)
    };
    let operator = registry.training(&route.training, &training).expect("a training operator");
    TrainingOperator { key: route.training.clone(), place: route.trained_at.clone(), operator }
}

/// The operators of routes to the same training operator.
fn operators(registry: &Registry, dataset: &Arc<Dataset>, routes: &[Route]) -> Operators {
    Operators {
        routes: routes.iter().map(|r| build(registry, dataset, r)).collect(),
        trainers: vec![trainer(registry, dataset, &routes[0])],
    }
}

#[test]
fn new_operators_add_routes_without_other_changes() {
    let cpu = registry(npu::host_operators());
    assert_eq!(names(&cpu.routes()), ["Batching_CPU_Ring Transferring_CPU_Keep Training_CPU_Count @host"]);
    let both = registry([npu::host_operators(), npu::npu_operators()].concat());
    assert_eq!(
        names(&both.routes()),
        [
            "Batching_CPU_Ring Transferring_CPU_Keep Training_CPU_Count @host",
            "Batching_CPU_Ring Transferring_PCIe_Copy Training_NPU_Count @npu:0",
            "Batching_CPU_Ring Transferring_PCIe_Copy Training_NPU_Count @npu:1",
            "Batching_NPU+PCIe_Ring Transferring_NPU_Keep Training_NPU_Count @npu:0",
            "Batching_NPU+PCIe_Ring Transferring_NPU_Keep Training_NPU_Count @npu:1",
        ]
    );
    assert_eq!(both.machine().accelerators.len(), 2);
}

#[test]
fn mini_batches_of_a_device_may_be_trained_on_the_host() {
    let operators = [npu::host_operators(), npu::npu_operators(), vec![npu::copy_back()]].concat();
    let names = names(&registry(operators).routes());
    let back = "Batching_NPU+PCIe_Ring Transferring_NPU+PCIe_Back Training_CPU_Count @host";
    assert_eq!(names.iter().filter(|n| *n == back).count(), 2, "one per device: {names:?}");
    assert_eq!(names.len(), 7);
}

/// The profile of a machine whose cores batch at half the speed of its device: both routes of the device at once are the
/// least epoch, 15 µs per mini-batch from the cores and 14 from the device.
fn with_fixed_durations(mut profile: Profile) -> Profile {
    let micros = |us: f64| Statistics::of(vec![us * 1e-6; 3]);
    for route in &mut profile.routes {
        let on_host = route.route.batched_at == Place::Host;
        for pool in &mut route.batching {
            pool.seconds = micros(if on_host { 30.0 / pool.workers as f64 } else { 5.0 });
        }
        route.transferring = micros(1.0);
        route.training.iter_mut().for_each(|sample| sample.seconds = micros(9.0));
        route.interference.clear();
    }
    profile
}

#[test]
fn routes_are_profiled_planned_and_run_together_by_the_same_code() {
    let registry = registry([npu::host_operators(), npu::npu_operators()].concat());
    let dataset = dataset(64);
    let mut places: Vec<_> = registry.routes().into_iter().map(|r| r.trained_at).collect();
    places.sort();
    places.dedup();
    assert_eq!(places.len(), 3, "the host and two devices: {places:?}");
    for place in places {
        let routes: Vec<Route> = registry.routes().into_iter().filter(|r| r.trained_at == place).collect();
        let profile = morphgl_profile::profile(
            &mut operators(&registry, &dataset, &routes),
            &[],
            registry.machine(),
            &morphgl_profile::Settings::new(2),
            &morphgl_profile::Watch::NONE,
            &mut |_| (),
        );
        let measured = profile.expect("fakes do not fail");
        // Measured durations of fake operators are noise: the choice of plans is tested with fixed durations.
        for (profile, is_set) in [(measured.clone(), false), (with_fixed_durations(measured), true)] {
            let plans = morphgl_plan::plan(&profile.problem(2, Limits::default())).expect("no memory limits");
            let mut mixed = 0;
            for plan in plans.all() {
                let operators = operators(&registry, &dataset, &routes);
                let mut executor =
                    Executor::new(operators, &plan.schedule, Settings::default()).expect("the plan's own routes");
                let all: Vec<u32> = (0..executor.num_batches()).collect();
                let report = executor.train(0, &all, &Stop::new(), &mut |_| Control::Continue).expect("no fault");
                assert_eq!((report.batches, report.seeds), (7, 64), "{place} {plan}");
                let training = executor.training_mut().expect("no operator is lost");
                let seen = training.parameters().expect("what was counted");
                assert_eq!(seen[0].values, [1.0; 64], "every seed once, its own feature with it: {place} {plan}");
                mixed += usize::from(matches!(plan.schedule.policy, Policy::DualBuffer | Policy::Interleaved));
            }
            assert!(!is_set || (mixed > 0) == (routes.len() > 1), "both routes of a device at once: {plans}");
        }
    }
}
