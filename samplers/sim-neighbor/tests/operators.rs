//! The simulation: durations, refusals, and one device for operators that are built separately.

use std::sync::Arc;
use std::time::{Duration, Instant};

use morphgl_batching_sim_neighbor::{CPU, CPU_KEY, CpuSimNeighbor, DEVICE, DEVICE_KEY, SimNeighbor};
use morphgl_conformance::batching::graphs;
use morphgl_registry::{
    BatchId, Batching, BatchingContext, BatchingWorker, Fanouts, Machine, MiniBatch, Place, Registry, SamplerSettings,
    SeedSet,
};
use morphgl_sim::{Device, SimBatch, available};

fn context(place: &str, options: serde_json::Value) -> BatchingContext {
    let fanouts: Fanouts = "2".parse().expect("fanouts");
    BatchingContext {
        dataset: Arc::new(graphs::cycle(40)),
        seeds: SeedSet::new("seeds", &(0..40).collect::<Vec<_>>(), 40).expect("every node"),
        settings: SamplerSettings { batch_size: 4, ..fanouts.into() },
        gather: false,
        place: place.parse().expect("a place"),
        options,
    }
}

fn device(config: &str) -> Device {
    Device::new("sim:0".parse().expect("a place"), config.parse().expect("a configuration"))
}

fn id(index: u32) -> BatchId {
    BatchId { epoch: 0, index }
}

fn take(worker: &mut dyn BatchingWorker, index: u32) -> (MiniBatch, Duration) {
    worker.prepare(id(index), None).and_then(|h| h.wait()).expect("a mini-batch")
}

#[test]
fn the_device_works_while_the_caller_continues() {
    let device = device("batching-device=60ms,fault=batching-device:hang@0:9");
    let operator = SimNeighbor::new(&context("sim:0", Default::default()), &device).expect("built");
    let mut worker = operator.worker(1).expect("a worker");
    let hung = worker.prepare(id(9), None).expect("queued");
    let handles: Vec<_> = (0..3).map(|i| worker.prepare(id(i), None).expect("queued")).collect();
    assert!(handles.iter().all(|h| !h.is_ready()), "they are queued behind a mini-batch that hangs");
    while device.statistics().hanging == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let start = Instant::now();
    device.release();
    assert!(hung.wait().is_err());
    let made: Vec<_> = handles.into_iter().map(|handle| handle.wait().expect("a mini-batch")).collect();
    for (batch, took) in &made {
        assert!(*took >= Duration::from_millis(60), "{took:?}");
        assert_eq!(batch.place().to_string(), "sim:0");
    }
    assert!(start.elapsed() >= Duration::from_millis(180), "one after another");
    let statistics = device.statistics();
    assert_eq!((statistics.pcie.operations, statistics.sim.operations), (4, 4), "both resources are occupied");
    assert_eq!((statistics.sim.contended, statistics.memory_used), (0, 3));
    drop(made);
    assert_eq!(
        (device.statistics().memory_used, device.statistics().memory_peak),
        (0, 3),
        "dropped mini-batches release their memory"
    );
}

#[test]
fn every_cpu_worker_takes_the_configured_duration() {
    let operator = CpuSimNeighbor::new(&context("host", Default::default()), &device("batching-cpu=30ms"));
    let operator = operator.expect("built");
    std::thread::scope(|scope| {
        for w in 0..4 {
            let operator = &operator;
            scope.spawn(move || {
                let mut worker = operator.worker(1).expect("a worker");
                for i in 0..2 {
                    let (batch, took) = take(worker.as_mut(), 2 * w + i);
                    assert!(took >= Duration::from_millis(30), "{took:?}");
                    assert_eq!(batch.place(), Place::Host);
                }
            });
        }
    });
}

#[test]
fn operators_built_separately_share_a_device() {
    let registry = Registry::new(vec![available(DEVICE), available(CPU)], Machine::probe()).expect("no key twice");
    assert_eq!(registry.machine().accelerators[0].place.to_string(), "sim:0");
    let options = |name: &str| serde_json::json!({"sim": {"batching-device": "0s", "memory": 1, "name": name}});
    let build = |name: &str| registry.batching(&DEVICE_KEY, &context("sim:0", options(name))).expect("built");
    let (one, same, other) = (build("a"), build("a"), build("b"));
    let mut workers = [one, same, other].map(|o| o.worker(1).expect("a worker"));
    let (batch, _) = take(workers[0].as_mut(), 0);
    let error = workers[1].prepare(id(1), None).and_then(|h| h.wait()).expect_err("the same device's memory is full");
    assert_eq!(
        error.to_string(),
        "Batching_PCIe+SIM_Neighbor, mini-batch 1 of epoch 0: simulated device memory: 1 mini-batch fits, and this is \
         one more; plan with a smaller device buffer"
    );
    take(workers[2].as_mut(), 1);
    let options = serde_json::json!({"sim": "batching-cpu=0s"});
    assert!(registry.batching(&CPU_KEY, &context("host", options)).is_ok());
    assert!(SimBatch::on(&device(""), &batch).is_err(), "a mini-batch of another device is refused");
}

#[test]
fn invalid_contexts_are_refused_with_a_cure() {
    let sim = device("");
    let refused = |result: Result<(), morphgl_registry::Error>| result.expect_err("refused").to_string();
    assert_eq!(
        refused(SimNeighbor::new(&context("host", Default::default()), &sim).map(|_| ())),
        "Batching_PCIe+SIM_Neighbor: it makes mini-batches at sim:0, not at host; give that place"
    );
    assert_eq!(
        refused(CpuSimNeighbor::new(&context("sim:0", Default::default()), &sim).map(|_| ())),
        "Batching_CPU_SimNeighbor: it makes mini-batches at host, not at sim:0; give the host"
    );
    let operator = SimNeighbor::new(&context("sim:0", Default::default()), &sim).expect("built");
    assert_eq!(
        refused(operator.worker(0).map(|_| ())),
        "threads of a batching worker: 0 threads make no mini-batch; give at least 1"
    );
}
