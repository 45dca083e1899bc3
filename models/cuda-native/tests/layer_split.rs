//! Layer-split training on a CUDA device, or the emulated one: the host or the device samples, the host computes the rows of hot nodes, and
//! they are copied once for several mini-batches.

mod common;

use std::collections::VecDeque;
use std::process::Command;
use std::sync::Arc;

use common::place;
use morphgl_batching_cpu::CpuNeighbor;
use morphgl_batching_cuda_neighbor::CudaSampler;
use morphgl_conformance::available;
use morphgl_generate::{SbmConfig, sbm};
use morphgl_graph_store::Dataset;
use morphgl_layer_split::{LayerSplit, Settings, SplitStatistics, SuperBatches};
use morphgl_model_core::TrainingSpec;
use morphgl_registry::{
    BatchId, Batching, BatchingContext, Fanouts, Handle, Machine, MiniBatch, NamedTensor, Operators, Place, Route,
    SamplerSettings, Score, SeedSet, Training, TrainingContext, Transferring, TransferringContext,
};
use morphgl_training_cpu_native::CpuNative;
use morphgl_training_cuda_native::{CudaNative, DESCRIPTION, KEY};
use morphgl_transferring_cpu_host::CpuHost;
use morphgl_transferring_cuda::{PcieDma, PeerCopy, ZeroCopy};
use serde_json::{Value, json};

/// Mini-batches that are queued on the device before the first is waited for.
const QUEUE: usize = 2;

struct Task {
    dataset: Arc<Dataset>,
    sampler: SamplerSettings,
    spec: Value,
    sampled_at: Place,
    trained_at: Place,
}

impl Task {
    fn new(fanouts: &str, model: Value, lr: f64) -> Self {
        let config = SbmConfig { nodes: 300, classes: 4, dim: 12, degree: 6.0, seed: 3, ..SbmConfig::default() };
        let fanouts: Fanouts = fanouts.parse().expect("fanouts");
        let mut spec = json!({"in_dim": 12, "num_classes": 4, "hidden": 8, "layers": fanouts.0.len()});
        spec.as_object_mut().expect("an object").extend(model.as_object().expect("an object").clone());
        Self {
            dataset: Arc::new(sbm(&config).expect("a graph")),
            sampler: SamplerSettings { batch_size: 24, seed: 5, ..fanouts.into() },
            spec: json!({"model": spec, "optimizer": {"lr": lr}}),
            sampled_at: Place::Host,
            trained_at: place(),
        }
    }

    fn seeds(&self) -> SeedSet {
        SeedSet::new("train split", &self.dataset.splits.train, self.dataset.num_nodes()).expect("nodes")
    }

    fn training(&self, place: Place) -> TrainingContext {
        let (dataset, spec) = (Arc::clone(&self.dataset), self.spec.clone());
        TrainingContext { seed: 11, place, ..TrainingContext::new(dataset, spec) }
    }

    fn operators(&self) -> Operators {
        let Self { sampled_at, trained_at, .. } = self;
        let batching = BatchingContext {
            place: sampled_at.clone(),
            gather: *sampled_at == Place::Host,
            ..BatchingContext::new(Arc::clone(&self.dataset), self.seeds(), self.sampler.clone())
        };
        let batching: Arc<dyn Batching> = match sampled_at {
            Place::Host => Arc::new(CpuNeighbor::new(&batching).expect("the sampler")),
            _ => Arc::new(CudaSampler::new(&batching).expect("the sampler")),
        };
        let to = TransferringContext::new(Arc::clone(&self.dataset), sampled_at.clone(), trained_at.clone());
        let transferring: Box<dyn Transferring> = match (sampled_at, trained_at) {
            (Place::Host, Place::Host) => Box::new(CpuHost::new(&to).expect("the transfer")),
            (Place::Host, _) => Box::new(PcieDma::new(&to).expect("the copy")),
            (from, to_place) if from == to_place => Box::new(ZeroCopy::new(&to).expect("the gather")),
            _ => Box::new(PeerCopy::new(&to).expect("the copy of another device")),
        };
        let training = self.training(trained_at.clone());
        let operator: Box<dyn Training> = match trained_at {
            Place::Host => Box::new(CpuNative::new(&training).expect("the trainer")),
            _ => Box::new(CudaNative::new(&training).expect("the trainer")),
        };
        // Nothing here looks operators up by the keys of the route.
        let keys = [morphgl_batching_cpu::NEIGHBOR.key, morphgl_transferring_cuda::DMA_KEY, KEY];
        Operators::of(Route::new(keys, sampled_at.clone(), trained_at.clone()), batching, transferring, operator)
    }

    fn split(&self, len: u32, hot_ratio: f64, resumed: Option<BatchId>) -> (Operators, SplitStatistics) {
        let operators = self.operators();
        let super_batches = SuperBatches { batches: operators.routes[0].batching.num_batches() as u32, len };
        let (start, resumed) = (resumed.unwrap_or_default(), resumed.is_some());
        let settings = Settings {
            super_batches,
            hot_ratio,
            follow: None,
            width: 8,
            input_widths: self.input_widths(),
            threads: 1,
            learns: true,
            start,
            resumed,
        };
        let first_layer = Box::new(CpuNative::new(&self.training(Place::Host)).expect("a trainer of the host"));
        let inputs = (&self.dataset, &self.seeds(), &self.sampler);
        let split = LayerSplit::new(operators, first_layer, inputs, settings).expect("it is split");
        (split.operators, split.statistics)
    }

    /// Widths of what the first layer's weights multiply.
    fn input_widths(&self) -> Vec<usize> {
        TrainingSpec::from_json(&self.spec).expect("a spec").model.given_input_widths()
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
    let batch = worker.prepare(id, None).and_then(Handle::wait).expect("a mini-batch").0;
    route.transferring.transfer(batch).and_then(Handle::wait).expect("it is moved").0
}

/// Losses and parameters after training on these mini-batches, as many queued as the operator allows.
fn train(operators: &mut Operators, ids: &[BatchId]) -> (Vec<f64>, Vec<NamedTensor>) {
    let (mut queued, mut losses) = (VecDeque::<(Handle<Score>, MiniBatch)>::new(), Vec::new());
    for &id in ids {
        let batch = prepared(operators, id);
        if queued.len() == QUEUE {
            let (oldest, _) = queued.pop_front().expect("two are queued");
            losses.push(oldest.wait().expect("it trains").0.loss());
        }
        queued.push_back((operators.trainers[0].operator.train(&batch).expect("it is queued"), batch));
    }
    losses.extend(queued.into_iter().map(|(handle, _)| handle.wait().expect("it trains").0.loss()));
    (losses, operators.trainers[0].operator.parameters().expect("parameters"))
}

#[test]
fn hot_ratio_zero_has_the_bits_of_ordinary_training() {
    if !available(&DESCRIPTION) {
        return;
    }
    for model in [json!({"kind": "sage", "dropout": 0.5}), json!({"kind": "gat", "heads": 2}), json!({"kind": "gcn"})] {
        let task = Task::new("4,3", model, 0.01);
        let ids = task.ids(2);
        assert_eq!(train(&mut task.split(3, 0.0, None).0, &ids), train(&mut task.operators(), &ids));
    }
}

/// Parameters that do not change are never stale; with all neighbours, and dropout of hidden values alone, given rows are the
/// computed ones.
#[test]
fn rows_of_unchanged_parameters_give_the_losses_of_exact_training() {
    if !available(&DESCRIPTION) {
        return;
    }
    for model in [json!({"kind": "sage", "dropout": 0.5}), json!({"kind": "gcn"}), json!({"kind": "gat", "heads": 2})] {
        let task = Task::new("-1,-1", model, 1e-30);
        let ids = task.ids(2);
        let (exact, _) = train(&mut task.operators(), &ids);
        for ratio in [0.4, 1.0] {
            let (mut operators, statistics) = task.split(2, ratio, None);
            let (split, _) = train(&mut operators, &ids);
            for (step, (a, b)) in split.iter().zip(&exact).enumerate() {
                assert!((a - b).abs() < 1e-5, "step {step}: loss {a} with given rows, {b} without");
            }
            let stale = statistics.staleness();
            assert!(stale.iter().map(|s| s.rows).sum::<u64>() > 0, "rows are given: {stale:?}");
        }
    }
}

#[test]
fn runs_repeat_keep_the_bound_and_are_resumed() {
    if !available(&DESCRIPTION) {
        return;
    }
    let task = Task::new("5,4", json!({"kind": "sage", "dropout": 0.3}), 0.05);
    let ids = task.ids(4);
    let (mut operators, statistics) = task.split(3, 0.5, None);
    let first = train(&mut operators, &ids);
    assert_eq!(train(&mut task.split(3, 0.5, None).0, &ids), first, "two runs have the same bits");
    let staleness = statistics.staleness();
    assert!(staleness.iter().all(|stale| (1..=5).contains(&stale.steps)), "{staleness:?}");
    assert_eq!(staleness.iter().map(|stale| stale.batches).sum::<u64>(), ids.len() as u64 - 3);
    let (exact, parameters) = train(&mut task.operators(), &ids);
    assert_ne!(first.1, parameters, "stale rows change training");
    let end = |losses: &[f64]| losses[losses.len() - 3..].iter().sum::<f64>() / 3.0;
    assert!(end(&first.0) < 0.9 * first.0[0], "the loss falls: {:?}", first.0);
    assert!((end(&first.0) - end(&exact)).abs() < 0.3 * exact[0], "as in exact training");

    for at in [2, 3, 7] {
        let (mut before, _) = task.split(3, 0.5, None);
        let (mut losses, _) = train(&mut before, &ids[..at]);
        let (mut after, _) = task.split(3, 0.5, Some(ids[at]));
        let (from, to) = (&before.trainers[0].operator, &mut after.trainers[0].operator);
        to.set_parameters(&from.parameters().expect("parameters")).expect("the same model");
        to.set_optimizer_state(&from.optimizer_state().expect("a state")).expect("the same optimizer");
        let (rest, parameters) = train(&mut after, &ids[at..]);
        losses.extend(rest);
        assert_eq!((losses, parameters), first, "resumed before mini-batch {at}");
    }
}

/// Losses are those of the CPU's training with the same split, and the same bits wherever mini-batches are sampled, on as many devices as
/// the emulation has.
fn losses_are_the_same_everywhere() {
    let places: Vec<Place> = ["cuda:0", "cuda:1", "cuda:3"].map(|place| place.parse().expect("a place")).into();
    let devices: Vec<Place> = (DESCRIPTION.accelerators)(&Machine::probe()).into_iter().map(|a| a.place).collect();
    let on_devices = places.into_iter().filter(|place| devices.contains(place));
    for model in [json!({"kind": "sage", "dropout": 0.3}), json!({"kind": "gcn"}), json!({"kind": "gat", "heads": 2})] {
        let mut task = Task::new("5,4", model, 0.05);
        let ids = task.ids(3);
        let mut run = |sampled_at: Place, trained_at: Place| {
            (task.sampled_at, task.trained_at) = (sampled_at, trained_at);
            let (mut operators, statistics) = task.split(3, 0.5, None);
            let trained = train(&mut operators, &ids);
            let staleness = statistics.staleness();
            assert!(staleness.iter().all(|stale| (1..=5).contains(&stale.steps)), "{staleness:?}");
            assert!(staleness.iter().map(|stale| stale.rows).sum::<u64>() > 500, "rows are given: {staleness:?}");
            trained
        };
        let (on_host, _) = run(Place::Host, Place::Host);
        let by_host = run(Place::Host, place());
        for (step, (loss, expected)) in by_host.0.iter().zip(&on_host).enumerate() {
            assert!((loss - expected).abs() < 1e-4, "step {step}: loss {loss}, {expected} on the CPU");
        }
        for sampled_at in on_devices.clone() {
            assert_eq!(run(sampled_at.clone(), place()), by_host, "sampled at {sampled_at}");
        }
    }
}

#[test]
#[allow(clippy::print_stdout, reason = "the parent process reads it")]
fn in_a_process_of_its_own() {
    if std::env::var_os("MORPHGL_TEST_PART").is_some() {
        losses_are_the_same_everywhere();
        println!("the part is done");
    }
}

/// The number of devices is a setting of the emulation: each part runs in a process of its own.
#[test]
fn losses_are_those_of_the_cpu_on_one_device_and_several() {
    if !available(&DESCRIPTION) {
        return;
    }
    for emulation in ["devices=1", "devices=2", "devices=2,apart=0-1", "devices=4"] {
        let mut command = Command::new(std::env::current_exe().expect("the program has a path"));
        command.args(["--exact", "in_a_process_of_its_own", "--nocapture"]);
        let output = command.envs([("MORPHGL_TEST_PART", "losses"), ("MORPHGL_EMULATION", emulation)]).output();
        let output = output.expect("the program starts");
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("the part is done"), "{emulation}: {text}");
    }
}

#[test]
fn rows_that_are_too_old_are_refused_on_the_device() {
    if !available(&DESCRIPTION) {
        return;
    }
    let task = Task::new("4,3", json!({"kind": "sage"}), 0.01);
    let ids = task.ids(2);
    let (mut operators, _) = task.split(2, 1.0, None);
    train(&mut operators, &ids[..3]);
    let stale = prepared(&mut operators, ids[3]);
    operators.trainers[0].operator.train(&stale).and_then(Handle::wait).expect("in time");
    train(&mut operators, &ids[4..6]);
    let refused = operators.trainers[0].operator.train(&stale).expect_err("rows of version 0 at step 6").to_string();
    assert!(refused.contains("version 0 are read at step 6: 6 steps old, 3 are allowed"), "{refused}");
}
