//! Layer-split training of a simulated device, whose first layer the host computes.

use std::sync::Arc;

use morphgl_batching_sim_neighbor::CpuSimNeighbor;
use morphgl_generate::{SbmConfig, sbm};
use morphgl_graph_store::Dataset;
use morphgl_layer_split::{LayerSplit, Settings, SplitStatistics, SuperBatches};
use morphgl_registry::{
    BatchId, Batching, BatchingContext, DeviceBatch, Fanouts, MiniBatch, Operators, Place, Route, SamplerSettings,
    SeedSet, TrainingContext, TransferringContext,
};
use morphgl_sim::{Config, Device, SimBatch};
use morphgl_training_sim_ledger::{Ledger, SimLedger};
use morphgl_transferring_sim_copy::{DMA_KEY, SimDma};
use serde_json::{Value, json};

/// Mini-batches of a super-batch.
const LEN: u32 = 3;

fn place() -> Place {
    "sim:0".parse().expect("a place")
}

struct Task {
    dataset: Arc<Dataset>,
    sampler: SamplerSettings,
    device: Device,
}

impl Task {
    fn new() -> Self {
        let config = SbmConfig { nodes: 400, classes: 4, dim: 12, degree: 8.0, seed: 3, ..SbmConfig::default() };
        let fanouts: Fanouts = "4,3".parse().expect("fanouts");
        Self {
            dataset: Arc::new(sbm(&config).expect("a graph")),
            sampler: SamplerSettings { batch_size: 32, seed: 5, ..fanouts.into() },
            device: Device::new(place(), Config::instant(4)),
        }
    }

    fn training(&self, place: Place) -> TrainingContext {
        let model = json!({"kind": "sage", "in_dim": 12, "num_classes": 4, "hidden": 8, "layers": 2});
        let (dataset, options) = (Arc::clone(&self.dataset), Value::Null);
        let spec = json!({"model": model, "optimizer": {"lr": 0.01}});
        TrainingContext { seed: 11, place, options, ..TrainingContext::new(dataset, spec) }
    }

    /// Layers split from a mini-batch on, which a run is resumed before.
    fn split(&self, resumed: Option<BatchId>) -> (Operators, SplitStatistics) {
        let seeds = SeedSet::new("train split", &self.dataset.splits.train, self.dataset.num_nodes()).expect("nodes");
        let (dataset, settings, options) = (Arc::clone(&self.dataset), self.sampler.clone(), Value::Null);
        let context = BatchingContext {
            options: options.clone(),
            ..BatchingContext::new(Arc::clone(&dataset), seeds.clone(), settings)
        };
        let batching = CpuSimNeighbor::new(&context, &self.device).expect("the sampler");
        let to = TransferringContext { options, ..TransferringContext::new(dataset, Place::Host, place()) };
        let keys = [morphgl_batching_sim_neighbor::CPU_KEY, DMA_KEY, morphgl_training_sim_ledger::KEY];
        let super_batches = SuperBatches { batches: batching.num_batches() as u32, len: LEN };
        let transferring = Box::new(SimDma::new(&to, &self.device).expect("the copy"));
        let ledger = SimLedger::new(&self.training(place()), &self.device).expect("the ledger");
        let route = Route::new(keys, Place::Host, place());
        let operators = Operators::of(route, Arc::new(batching), transferring, Box::new(ledger));
        let first_layer = morphgl_training_cpu_native::CpuNative::new(&self.training(Place::Host)).expect("a trainer");
        let (start, resumed) = (resumed.unwrap_or_default(), resumed.is_some());
        let settings = Settings {
            super_batches,
            hot_ratio: 0.6,
            follow: None,
            width: 8,
            input_widths: vec![12],
            threads: 1,
            learns: false,
            start,
            resumed,
        };
        let inputs = (&self.dataset, &seeds, &self.sampler);
        let split = LayerSplit::new(operators, Box::new(first_layer), inputs, settings);
        let split = split.expect("it is split");
        (split.operators, split.statistics)
    }

    fn ids(&self, epochs: u32) -> Vec<BatchId> {
        let batches = self.dataset.splits.train.len().div_ceil(self.sampler.batch_size) as u32;
        (0..epochs * batches).map(|i| BatchId { epoch: i / batches, index: i % batches }).collect()
    }
}

/// A mini-batch on the device.
fn prepared(operators: &mut Operators, id: BatchId) -> MiniBatch {
    let route = &mut operators.routes[0];
    let mut worker = route.batching.worker(1).expect("a worker");
    let batch = worker.prepare(id, None).and_then(|handle| handle.wait()).expect("a mini-batch").0;
    route.transferring.transfer(batch).and_then(|handle| handle.wait()).expect("it is moved").0
}

fn train(operators: &mut Operators, ids: &[BatchId]) {
    for &id in ids {
        let batch = prepared(operators, id);
        operators.trainers[0].operator.train(&batch).and_then(|handle| handle.wait()).expect("it trains");
    }
}

fn ledger(operators: &Operators) -> Ledger {
    Ledger::from_tensors(&operators.trainers[0].operator.parameters().expect("parameters")).expect("a ledger")
}

#[test]
fn mini_batches_on_the_device_have_given_rows_within_the_bound() {
    let task = Task::new();
    let (mut operators, statistics) = task.split(None);
    let ids = task.ids(2);
    for (step, &id) in ids.iter().enumerate() {
        let batch = prepared(&mut operators, id);
        let ours = SimBatch::on(&task.device, &batch).expect("on the device");
        let content = ours.content().expect("intact");
        let given = content.given.as_ref().filter(|given| !given.nodes.is_empty());
        assert_eq!(given.is_some(), step >= LEN as usize, "all but the first super-batch have given rows");
        if let Some(given) = given {
            assert_eq!(given.rows.len(), 8 * given.nodes.len());
            assert!(given.rows.iter().any(|&x| x > 0.0), "rows are computed");
            assert!(ours.training_part() < 1.0);
            let staleness = step as u64 - ours.first_layer_rows().version.expect("a version");
            assert!((1..=2 * u64::from(LEN) - 1).contains(&staleness), "step {step}: {staleness}");
        }
        operators.trainers[0].operator.train(&batch).and_then(|handle| handle.wait()).expect("it trains");
    }
    let histogram = statistics.staleness();
    let sum = |of: fn(&morphgl_layer_split::StaleRows) -> u64| histogram.iter().map(of).sum::<u64>();
    assert!(histogram.is_sorted_by_key(|stale| stale.steps) && histogram.iter().all(|s| s.steps < 2 * u64::from(LEN)));
    assert_eq!(sum(|stale| stale.batches), ids.len() as u64 - u64::from(LEN));
    let given: u64 = statistics.all().iter().filter(|s| s.super_batch < 6).map(|s| s.given).sum();
    assert_eq!(sum(|stale| stale.rows), given, "every given row was read once");
}

#[test]
fn a_resumed_run_trains_on_the_same_mini_batches() {
    let task = Task::new();
    let ids = task.ids(2);
    let (mut undisturbed, _) = task.split(None);
    train(&mut undisturbed, &ids);
    let undisturbed = ledger(&undisturbed);
    for at in [1, 4, 8, 11] {
        let (mut before, _) = task.split(None);
        train(&mut before, &ids[..at]);
        let (mut after, _) = task.split(Some(ids[at]));
        let (from, to) = (&before.trainers[0].operator, &mut after.trainers[0].operator);
        to.set_parameters(&from.parameters().expect("parameters")).expect("a ledger");
        to.set_optimizer_state(&from.optimizer_state().expect("a state")).expect("snapshots");
        train(&mut after, &ids[at..]);
        // A digest is of the whole content, given rows included.
        assert_eq!(ledger(&after), undisturbed, "resumed before mini-batch {at}");
    }
}

#[test]
fn rows_that_are_too_old_are_refused_on_the_device() {
    let task = Task::new();
    let (mut operators, _) = task.split(None);
    let ids = task.ids(2);
    train(&mut operators, &ids[..3]);
    let stale = prepared(&mut operators, ids[3]);
    operators.trainers[0].operator.train(&stale).and_then(|handle| handle.wait()).expect("in time");
    train(&mut operators, &ids[4..7]);
    let refused = operators.trainers[0].operator.train(&stale).expect_err("rows of version 0 at step 7").to_string();
    assert!(refused.contains("version 0 are read at step 7: 7 steps old, 5 are allowed"), "{refused}");
}
