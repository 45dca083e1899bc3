//! The two routes of the simulated accelerator, with given durations.
#![allow(dead_code, reason = "tests and the benchmark each use a part")]

use std::sync::Arc;

use morphgl_batching_sim_neighbor::{CPU_KEY, CpuSimNeighbor, DEVICE_KEY, SimNeighbor};
use morphgl_conformance::batching::graphs;
use morphgl_execute::{EpochReport, Executor, Result, Settings, Stop};
use morphgl_graph_store::Dataset;
use morphgl_plan::{Bytes, Candidate, Durations, Hardware, Limits, Problem, Resource, RouteKeys, Schedule};
use morphgl_registry::{
    BatchId, Batching, BatchingContext, Fanouts, Operators, Place, Route, RouteOperators, SamplerSettings, SeedSet,
    TrainingContext, TrainingOperator, TransferringContext, VirtualClock,
};
use morphgl_sim::{Config, Device, MachineDescription};
use morphgl_training_sim_ledger::{KEY as LEDGER_KEY, Ledger, SimLedger};
use morphgl_transferring_sim_copy::{DMA_KEY, GATHER_KEY, SimDma, SimGather};

/// Milliseconds of a CPU worker, PCIe, device batching, device gather, and training.
pub(crate) type Millis = [f64; 5];

/// A simulated accelerator with given durations, and a dataset for it.
pub(crate) struct Rig {
    pub(crate) n: usize,
    millis: Millis,
    workers: usize,
    dataset: Arc<Dataset>,
    pub(crate) device: Device,
}

const BATCH: usize = 4;

impl Rig {
    /// `extra` is further configuration of the accelerator: faults, noise, slower phases.
    pub(crate) fn new(n: usize, millis: Millis, workers: usize, extra: &str) -> Self {
        let [host, pcie, device, gather, training] = millis.map(|m| (m * 1e3).round());
        let text = format!(
            "batching-cpu={host}us,transferring-pcie={pcie}us,batching-device={device}us,\
             transferring-device={gather}us,training={training}us,memory=12{extra}"
        );
        let config: Config = text.parse().expect("a configuration");
        let device = Device::new(place(), config);
        Self { n, millis, workers, dataset: Arc::new(graphs::cycle(n * BATCH)), device }
    }

    /// The first device of a described machine, whose time is virtual, and durations as its operators state them for one
    /// mini-batch: all of the dataset are alike, as they are not shuffled.
    pub(crate) fn described(n: usize, workers: usize, machine: MachineDescription) -> Self {
        let device = Device::described(place(), machine);
        let rig = Self { n, millis: Millis::default(), workers, dataset: Arc::new(graphs::cycle(n * BATCH)), device };
        let [mut first, mut second] = rig.routes();
        let mut training = rig.trainer();
        // Neither the first nor the last: those of the ends of the cycle are of one piece, too, but numbered otherwise.
        let mut of = |route: &mut RouteOperators| {
            let id = BatchId { epoch: 0, index: 1 };
            let mut worker = route.batching.worker(1).expect("a worker");
            let (batch, batching) = worker.prepare(id, None).and_then(|h| h.wait()).expect("prepared");
            let (batch, transferring) = route.transferring.transfer(batch).and_then(|h| h.wait()).expect("moved");
            let (_, trained) = training.operator.train(&batch).and_then(|h| h.wait()).expect("trained");
            [batching, transferring, trained].map(|took| 1e3 * took.as_secs_f64())
        };
        let ([host, pcie, training], [device, gather, _]) = (of(&mut first), of(&mut second));
        Self { millis: [host, pcie, device, gather, training], ..rig }
    }

    /// The same with durations in virtual time.
    pub(crate) fn in_virtual_time(self) -> Self {
        let device = Device::in_virtual_time(place(), self.device.config().clone());
        Self { device, ..self }
    }

    /// The planning problem of these durations.
    pub(crate) fn problem(&self, limits: Limits) -> Problem {
        let [host, pcie, device, gather, training] = self.millis.map(|m| m / 1e3);
        let names = |n: &[&str]| n.iter().map(ToString::to_string).collect::<Vec<_>>();
        let route = |keys: RouteKeys, resources: [&[&str]; 2], durations: Durations| Candidate {
            keys,
            hardware: Hardware {
                batching: names(resources[0]),
                transferring: names(resources[1]),
                training: names(&["SIM"]),
            },
            in_place: resources[0].contains(&"SIM"),
            on_host: false,
            durations,
            bytes: Bytes::default(),
        };
        let of = |workers, b, t| Durations::constant(workers, b, t, training).expect("durations");
        let [first, second] = routes().map(|r| RouteKeys::from(&r));
        let joint: &[&str] = &["PCIe", "SIM"];
        let routes = vec![
            route(first, [&["CPU"], &["PCIe"]], of(self.workers, host, pcie)),
            route(second, [joint, joint], of(1, device, gather)),
        ];
        let resources =
            vec![Resource::shared("CPU", self.workers), Resource::exclusive("PCIe"), Resource::exclusive("SIM")];
        Problem::new(self.n, resources, routes).expect("a problem").with_limits(limits)
    }

    fn batching(&self, place: Place) -> BatchingContext {
        let all: Vec<u32> = (0..self.dataset.num_nodes() as u32).collect();
        let fanouts: Fanouts = "2".parse().expect("a fanout");
        BatchingContext {
            gather: place == Place::Host,
            place,
            ..BatchingContext::new(
                Arc::clone(&self.dataset),
                SeedSet::new("all nodes", &all, all.len()).expect("seeds"),
                SamplerSettings { batch_size: BATCH, shuffle: !self.device.is_virtual(), ..fanouts.into() },
            )
        }
    }

    fn transferring(&self, from: Place) -> TransferringContext {
        let (dataset, options) = (Arc::clone(&self.dataset), serde_json::Value::Null);
        TransferringContext { options, ..TransferringContext::new(dataset, from, place()) }
    }

    fn routes(&self) -> [RouteOperators; 2] {
        let [first, second] = routes();
        let of_host = RouteOperators {
            route: first,
            batching: Arc::new(CpuSimNeighbor::new(&self.batching(Place::Host), &self.device).expect("built")),
            transferring: Box::new(SimDma::new(&self.transferring(Place::Host), &self.device).expect("built")),
        };
        let of_device = RouteOperators {
            route: second,
            batching: Arc::new(SimNeighbor::new(&self.batching(place()), &self.device).expect("built")),
            transferring: Box::new(SimGather::new(&self.transferring(place()), &self.device).expect("built")),
        };
        [of_host, of_device]
    }

    fn trainer(&self) -> TrainingOperator {
        let (features, classes) = (self.dataset.feature_dim(), self.dataset.num_classes);
        let model = serde_json::json!({ "kind": "sage", "in_dim": features, "num_classes": classes, "layers": 1 });
        let spec = serde_json::json!({ "model": model });
        let context = TrainingContext { place: place(), ..TrainingContext::new(Arc::clone(&self.dataset), spec) };
        let operator = Box::new(SimLedger::new(&context, &self.device).expect("built"));
        TrainingOperator { key: LEDGER_KEY.clone(), place: place(), operator }
    }

    /// An executor of both routes, in virtual time where the device is of a described machine.
    pub(crate) fn executor(&self, schedule: &Schedule, settings: Settings) -> Executor {
        let operators = Operators { routes: self.routes().into(), trainers: vec![self.trainer()] };
        let executor = Executor::new(operators, schedule, settings).expect("matches");
        if self.device.is_virtual() { executor.in_virtual_time(VirtualClock::default()) } else { executor }
    }

    /// Runs an epoch, and checks that every mini-batch was trained once, with its content unchanged.
    pub(crate) fn run(&self, schedule: &Schedule) -> Result<EpochReport> {
        let mut executor = self.executor(schedule, Settings::default());
        let batches: Vec<u32> = (0..self.n as u32).collect();
        let report = executor.train(0, &batches, &Stop::new(), &mut |_| morphgl_execute::Control::Continue)?;
        self.check(&mut executor);
        Ok(report)
    }

    /// Checks that every mini-batch of epoch 0 was trained once, each as the host makes it.
    pub(crate) fn check(&self, executor: &mut Executor) {
        let parameters = executor.training_mut().expect("there").parameters().expect("a ledger");
        let ledger = Ledger::from_tensors(&parameters).expect("a ledger");
        let expected: Vec<u32> = (0..self.n as u32).collect();
        assert_eq!(ledger.indices(0), expected, "every mini-batch once");
        let still = Device::new(place(), Config::instant(usize::MAX));
        let host = CpuSimNeighbor::new(&self.batching(Place::Host), &still).expect("built");
        let mut worker = host.worker(1).expect("a worker");
        for index in expected {
            let id = BatchId { epoch: 0, index };
            let (batch, _) = worker.prepare(id, None).and_then(|h| h.wait()).expect("prepared");
            let morphgl_registry::MiniBatch::Host(batch) = batch else { panic!("the host's lies on the host") };
            let entry = &ledger.entries[&id];
            assert_eq!((entry.times, entry.changes), (1, 0), "{id}");
            assert_eq!(entry.digest, morphgl_sim::digest(&batch), "{id}: its content");
        }
    }
}

fn place() -> Place {
    "sim:0".parse().expect("a place")
}

/// The routes: batched by the host and copied; batched by the device and gathered there.
fn routes() -> [Route; 2] {
    [
        Route::new([CPU_KEY, DMA_KEY, LEDGER_KEY], Place::Host, place()),
        Route::new([DEVICE_KEY, GATHER_KEY, LEDGER_KEY], place(), place()),
    ]
}
