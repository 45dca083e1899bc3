//! Hardware extends the system without changes elsewhere: operators of an invented accelerator are found, profiled, planned
//! and run by the same registry and the same `sched` as those of the CPU.

use std::sync::Arc;
use std::time::Duration;

use morphgl_conformance::batching::graphs;
use morphgl_conformance::fake::Fake;
use morphgl_execute::{Control, Event, Executor, Settings, Stop};
use morphgl_graph_store::Dataset;
use morphgl_plan::{Limits, Policy};
use morphgl_profile::{Profile, Statistics};
use morphgl_registry::{
    Accelerator, At, BatchFeatures, BatchingContext, Block, Build, Description, Hardware, HostBatch, Key, Machine,
    Operators, Phase, Place, Registry, Resource, Route, RouteOperators, SamplerSettings, SeedSet, TrainingContext,
    TrainingOperator, TransferringContext,
};

const NPU: Resource = Resource::new("NPU");
const NPU_ONLY: Hardware = Hardware::new(&[NPU]);
const NPU_PCIE: Hardware = Hardware::new(&[NPU, Resource::PCIE]);
const PCIE: Hardware = Hardware::new(&[Resource::PCIE]);
const DEVICE: At = At::Device("npu");
const BATCHING: Build = Build::Batching(|context| {
    let num_batches = context.seeds.nodes().len().div_ceil(context.settings.batch_size);
    let (place, context) = (context.place.clone(), context.clone());
    let content = Arc::new(move |batch: &mut HostBatch| of_ring(&context, batch));
    Ok(Box::new(Fake { place, num_batches, content, ..fake(Phase::Batching, 5) }))
});
const TRANSFERRING: Build = Build::Transferring(|context| {
    let (place, from) = (context.to.clone(), context.from.clone());
    let mut fake = Fake { place, ..fake(Phase::Transferring, 1) };
    fake.fails(move |call| {
        assert_eq!(*call.from, from, "the place a mini-batch comes from");
        None
    });
    Ok(Box::new(fake))
});
const TRAINING: Build = Build::Training(|context| {
    let dataset = Arc::clone(&context.dataset);
    let mut fake = Fake { place: context.place.clone(), ..fake(Phase::Training, 9) };
    fake.fails(move |call| {
        let own = features(&dataset, call.batch.seeds());
        assert_eq!(call.batch.features, Some(own), "each seed's own features");
        None
    });
    Ok(Box::new(fake))
});

/// An operator of the invented accelerator, which says that its calls take so many microseconds.
fn fake(phase: Phase, micros: u64) -> Fake {
    let key = Key::new(phase, NPU_ONLY, "Fake").to_string();
    Fake { act: Arc::new(move |_| Ok(Duration::from_micros(micros))), ..Fake::new(&key, &Arc::default()) }
}

fn host_operators() -> Vec<Description> {
    let key = |phase, name| Key::new(phase, Hardware::CPU, name);
    vec![
        Description::new(key(Phase::Batching, "Ring"), "batches a ring", At::Host, At::Host, BATCHING),
        Description::new(key(Phase::Transferring, "Keep"), "moves nothing", At::Host, At::Host, TRANSFERRING),
        Description::new(key(Phase::Training, "Count"), "counts steps", At::Host, At::Host, TRAINING),
    ]
}

fn npu_operators() -> Vec<Description> {
    let keep = Key::new(Phase::Transferring, NPU_ONLY, "Keep");
    let count = Key::new(Phase::Training, NPU_ONLY, "Count");
    let ring = Key::new(Phase::Batching, NPU_PCIE, "Ring");
    let copy = Key::new(Phase::Transferring, PCIE, "Copy");
    vec![
        Description::new(ring, "batches a ring on the device", At::Host, DEVICE, BATCHING).with_accelerators(|_| {
            let place = |index| Place::Device { backend: "npu".into(), index };
            let npu = |i| Accelerator { place: place(i), name: "invented".into(), memory_bytes: 1 << 20 };
            vec![npu(0), npu(1)]
        }),
        Description::new(copy, "copies to the device", At::Host, DEVICE, TRANSFERRING),
        Description::new(keep, "leaves it on the device", DEVICE, DEVICE, TRANSFERRING),
        Description::new(count, "counts steps on the device", DEVICE, DEVICE, TRAINING),
    ]
}

fn copy_back() -> Description {
    let back = Key::new(Phase::Transferring, NPU_PCIE, "Back");
    Description::new(back, "copies to the host", DEVICE, At::Host, TRANSFERRING)
}

/// Fills in the seeds of a mini-batch and their features.
fn of_ring(context: &BatchingContext, batch: &mut HostBatch) {
    let mut all = context.seeds.nodes().chunks(context.settings.batch_size);
    let input_nodes = all.nth(batch.id.index as usize).expect("a mini-batch of the epoch").to_vec();
    let n = input_nodes.len();
    *batch = HostBatch {
        id: batch.id,
        num_seeds: n,
        degrees: vec![1.0; n],
        given: None,
        labels: vec![0; n],
        targets: Default::default(),
        pairs: None,
        features_by_type: Vec::new(),
        trees: None,
        blocks: vec![Block { num_dst: n, num_src: n, indptr: vec![0; n + 1], ..Block::default() }],
        features: Some(features(&context.dataset, &input_nodes)),
        input_nodes,
    };
}

fn features(dataset: &Dataset, nodes: &[u32]) -> BatchFeatures {
    let matrix = dataset.features.as_ref().expect("the ring has features");
    let mut features = BatchFeatures::like(matrix);
    matrix.gather_rows(nodes, features.resize(nodes.len(), matrix.dim(), matrix.dtype()));
    features
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
    let all: Vec<u32> = (0..dataset.num_nodes() as u32).collect();
    let batching = BatchingContext {
        place: route.batched_at.clone(),
        ..BatchingContext::new(
            Arc::clone(dataset),
            SeedSet::new("all nodes", &all, all.len()).expect("distinct nodes"),
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
    let cpu = registry(host_operators());
    assert_eq!(names(&cpu.routes()), ["Batching_CPU_Ring Transferring_CPU_Keep Training_CPU_Count @host"]);
    let both = registry([host_operators(), npu_operators()].concat());
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
    let operators = [host_operators(), npu_operators(), vec![copy_back()]].concat();
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
    let registry = registry([host_operators(), npu_operators()].concat());
    let dataset = Arc::new(graphs::cycle(64));
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
                let mut trained = Vec::new();
                let report = executor.train(0, &all, &Stop::new(), &mut |event| {
                    trained.extend(if let Event::Trained(done) = event { Some(done.id.index) } else { None });
                    Control::Continue
                });
                let report = report.expect("no fault");
                // What was trained on, by the executor and by the operator, whose losses are the mini-batches' indices.
                trained.sort_unstable();
                assert_eq!(trained, all, "{place} {plan}");
                assert_eq!((report.score.loss_sum, report.score.count), (21.0, 64), "{place} {plan}");
                assert_eq!((report.batches, report.seeds), (7, 64), "{place} {plan}");
                let training = executor.training_mut().expect("no operator is lost");
                assert_eq!(training.parameters().expect("its steps")[0].values, [7.0], "{place} {plan}");
                mixed += usize::from(matches!(plan.schedule.policy, Policy::DualBuffer | Policy::Interleaved));
            }
            assert!(!is_set || (mixed > 0) == (routes.len() > 1), "both routes of a device at once: {plans}");
        }
    }
}
