//! A third hardware adds its routes with no change anywhere else: operators of an invented accelerator are described,
//! found, profiled, planned with and run by the same registry and the same `sched` that run those of the CPU.

mod npu;

use std::sync::Arc;

use morphgl_execute::{Executor, Operators, Stop};
use morphgl_graph_store::{Dataset, FeatureMatrix, Splits, Topology};
use morphgl_plan::{Limits, Problem};
use morphgl_registry::{
    BatchingContext, Description, Machine, Registry, Route, SamplerSettings, SeedSet, TrainingContext,
    TransferringContext,
};

/// A ring of `n` nodes whose feature is their own id.
fn dataset(n: u32) -> Arc<Dataset> {
    let indptr: Vec<u64> = (0..=u64::from(n)).collect();
    let indices: Vec<u32> = (0..n).map(|v| (v + 1) % n).collect();
    let features: Vec<f32> = (0..n).map(|v| v as f32).collect();
    let all: Vec<u32> = (0..n).collect();
    Arc::new(Dataset {
        path: Default::default(),
        name: "ring".into(),
        topology: Topology::new(indptr, indices, None).expect("a ring"),
        features: Some(FeatureMatrix::F32 { data: features.into(), dim: 1 }),
        labels: Some(vec![0; n as usize].into()),
        num_classes: 1,
        splits: Splits { train: all.into(), valid: Vec::new().into(), test: Vec::new().into() },
        node_ids: None,
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

fn build(registry: &Registry, dataset: &Arc<Dataset>, route: &Route) -> Operators {
    let batching = BatchingContext {
        dataset: Arc::clone(dataset),
        seeds: SeedSet::new("train split", &dataset.splits.train, dataset.num_nodes()).expect("a split"),
        settings: SamplerSettings { batch_size: 10, ..SamplerSettings::default() },
        gather: true,
        place: route.batched_at.clone(),
        options: serde_json::Value::Null,
    };
    let transferring = TransferringContext {
        dataset: Arc::clone(dataset),
        from: route.batched_at.clone(),
        to: route.trained_at.clone(),
        options: serde_json::Value::Null,
    };
    let training = TrainingContext {
        dataset: Arc::clone(dataset),
        spec: serde_json::Value::Null,
        seed: 0,
        threads: 1,
        place: route.trained_at.clone(),
        options: serde_json::Value::Null,
    };
    Operators {
        route: route.clone(),
        batching: registry.batching(&route.batching, &batching).expect("a batching operator"),
        transferring: registry.transferring(&route.transferring, &transferring).expect("a transferring operator"),
        training: registry.training(&route.training, &training).expect("a training operator"),
    }
}

#[test]
fn new_operators_add_routes_and_nothing_else_changes() {
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
fn what_a_device_batches_may_be_trained_on_the_host() {
    let operators = [npu::host_operators(), npu::npu_operators(), vec![npu::copy_back()]].concat();
    let names = names(&registry(operators).routes());
    let back = "Batching_NPU+PCIe_Ring Transferring_NPU+PCIe_Back Training_CPU_Count @host";
    assert_eq!(names.iter().filter(|n| *n == back).count(), 2, "one a device: {names:?}");
    assert_eq!(names.len(), 7);
}

#[test]
fn every_route_is_profiled_planned_and_run_by_the_same_code() {
    let registry = registry([npu::host_operators(), npu::npu_operators()].concat());
    let dataset = dataset(64);
    for route in registry.routes() {
        let mut operators = build(&registry, &dataset, &route);
        let mut measured = morphgl_profile::Operators {
            route: &route,
            batching: operators.batching.as_ref(),
            transferring: operators.transferring.as_mut(),
            training: operators.training.as_mut(),
        };
        let settings = morphgl_profile::Settings::new(2);
        let profile = morphgl_profile::profile(&mut measured, registry.machine(), &settings, &mut |_| ());
        let profile = profile.expect("fakes do not fail");
        let problem = Problem {
            route: profile.route_keys(),
            num_batches: profile.num_batches,
            cores: 2,
            durations: profile.durations(),
            limits: Limits::default(),
        };
        let plans = morphgl_plan::plan(&problem);
        for plan in plans.all() {
            let mut executor = Executor::new(build(&registry, &dataset, &route), &plan.schedule).expect("threads");
            let report = executor.train(0, 0..executor.num_batches(), &Stop::new(), &mut |_| ()).expect("no fault");
            assert_eq!((report.batches, report.seeds), (7, 64), "{route:?} {plan}");
            let seen = executor.operators_mut().training.parameters().expect("what was counted");
            assert_eq!(seen[0].values, [1.0; 64], "every seed once, its own feature with it: {route:?} {plan}");
        }
    }
}
