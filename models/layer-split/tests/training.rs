//! Layer-split training beside ordinary training, mini-batch after mini-batch.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use morphgl_generate::{SbmConfig, sbm};
use morphgl_graph_store::Dataset;
use morphgl_group::{GroupMember, HostExchange, Weights, join};
use morphgl_layer_split::{HotQueue, LayerSplit, Settings, SplitStatistics, SuperBatches};
use morphgl_model_core::TrainingSpec;
use morphgl_registry::{
    BatchId, Batching, BatchingContext, BatchingWorker, Counters, Fanouts, HostBatch, Key, MiniBatch, NamedTensor,
    Operators, Place, Result, Route, SamplerSettings, SeedSet, Training, TrainingContext, TrainingWrapper,
    Transferring, TransferringContext,
};
use serde_json::{Value, json};

struct Task {
    dataset: Arc<Dataset>,
    settings: SamplerSettings,
    spec: Value,
    width: usize,
    input_widths: Vec<usize>,
    /// Threads that compute hot rows.
    threads: usize,
}

impl Task {
    fn new(fanouts: &str, model: Value, lr: f64) -> Self {
        let config = SbmConfig { nodes: 400, classes: 4, dim: 12, degree: 8.0, seed: 3, ..SbmConfig::default() };
        let dataset = sbm(&config).expect("a graph");
        let fanouts: Fanouts = fanouts.parse().expect("fanouts");
        let mut spec = json!({"in_dim": 12, "num_classes": 4, "hidden": 8, "layers": fanouts.0.len()});
        spec.as_object_mut().expect("an object").extend(model.as_object().expect("an object").clone());
        let settings = SamplerSettings { batch_size: 32, seed: 5, ..fanouts.into() };
        let spec = json!({"model": spec, "optimizer": {"lr": lr}});
        let input_widths = TrainingSpec::from_json(&spec).expect("a spec").model.given_input_widths();
        Self { dataset: Arc::new(dataset), settings, spec, width: 8, input_widths, threads: 1 }
    }

    /// Some training nodes repeat.
    fn oversample(&mut self) {
        let splits = &mut Arc::make_mut(&mut self.dataset).splits;
        splits.train = [&splits.train[..], &splits.train[..60], &splits.train[..9]].concat().into();
    }

    fn seeds(&self) -> SeedSet {
        SeedSet::new("train split", &self.dataset.splits.train, self.dataset.num_nodes()).expect("nodes")
    }

    fn batching(&self) -> Arc<dyn Batching> {
        let context = BatchingContext::new(Arc::clone(&self.dataset), self.seeds(), self.settings.clone());
        Arc::new(morphgl_batching_cpu::CpuNeighbor::new(&context).expect("the sampler"))
    }

    fn trainer(&self) -> Box<dyn Training> {
        let context =
            TrainingContext { seed: 11, ..TrainingContext::new(Arc::clone(&self.dataset), self.spec.clone()) };
        Box::new(morphgl_training_cpu_native::CpuNative::new(&context).expect("the trainer"))
    }

    fn operators(&self) -> Operators {
        let context = TransferringContext {
            gather: false,
            ..TransferringContext::new(Arc::clone(&self.dataset), Place::Host, Place::Host)
        };
        let description = &morphgl_transferring_cpu_host::DESCRIPTION;
        let morphgl_registry::Build::Transferring(build) = description.build else { panic!("it transfers") };
        let key = |text: &str| text.parse::<Key>().expect("a key");
        let keys = [key("Batching_CPU_Neighbor"), description.key.clone(), key("Training_CPU_Native")];
        let transferring = build(&context).expect("the transfer");
        let route = Route::new(keys, Place::Host, Place::Host);
        Operators::of(route, self.batching(), transferring, self.trainer())
    }

    fn split(&self, len: u32, hot_ratio: f64) -> (Operators, SplitStatistics) {
        self.split_from(len, hot_ratio, None)
    }

    /// Training that is resumed before this mini-batch.
    fn split_from(&self, len: u32, hot_ratio: f64, resumed: Option<BatchId>) -> (Operators, SplitStatistics) {
        self.split_by(self.trainer(), len, hot_ratio, resumed)
    }

    /// The same with this operator for the first layer.
    fn split_by(
        &self,
        first_layer: Box<dyn Training>,
        len: u32,
        hot_ratio: f64,
        resumed: Option<BatchId>,
    ) -> (Operators, SplitStatistics) {
        let super_batches = SuperBatches { batches: self.batching().num_batches() as u32, len };
        self.split_all(self.operators(), first_layer, (super_batches, hot_ratio), resumed)
    }

    fn split_all(
        &self,
        operators: Operators,
        first_layer: Box<dyn Training>,
        (super_batches, hot_ratio): (SuperBatches, f64),
        resumed: Option<BatchId>,
    ) -> (Operators, SplitStatistics) {
        let (start, resumed) = (resumed.unwrap_or_default(), resumed.is_some());
        let (width, input_widths, threads) = (self.width, self.input_widths.clone(), self.threads);
        let settings = Settings {
            super_batches,
            hot_ratio,
            follow: None,
            width,
            input_widths,
            threads,
            learns: true,
            start,
            resumed,
        };
        let inputs = (&self.dataset, &self.seeds(), &self.settings);
        let split = LayerSplit::new(operators, first_layer, inputs, settings).expect("it is split");
        (split.operators, split.statistics)
    }

    /// A group of trainers with shares by these weights, whose hot rows are computed once for all.
    fn split_group(
        &self,
        weights: &[f64],
        len: u32,
        hot_ratio: f64,
        resumed: Option<BatchId>,
    ) -> (Vec<Operators>, SplitStatistics) {
        let super_batches = SuperBatches { batches: self.batching().num_batches() as u32, len };
        let mut all = Operators::default();
        for Operators { routes, trainers } in weights.iter().map(|_| self.operators()) {
            all.routes.extend(routes);
            all.trainers.extend(trainers);
        }
        let (split, statistics) = self.split_all(all, self.trainer(), (super_batches, hot_ratio), resumed);
        let ends = HostExchange::group(weights.len(), Duration::from_secs(60));
        let own = |((route, trainer), exchange)| {
            let member = GroupMember {
                exchange: Box::new(exchange),
                division: Arc::new(Weights::new(weights).expect("weights")),
                num_seeds: self.dataset.splits.train.len(),
                batch_size: self.settings.batch_size,
                stop: None,
                observe: None,
                bucket_bytes: morphgl_group::BUCKET_BYTES,
                virtual_steps: None,
            };
            join(Operators { routes: vec![route], trainers: vec![trainer] }, member).expect("a member")
        };
        let group = split.routes.into_iter().zip(split.trainers).zip(ends).map(own).collect();
        (group, statistics)
    }
}

/// What training gave: losses, parameters, and the mini-batches' counters.
#[derive(Debug, PartialEq)]
struct Trained {
    losses: Vec<f64>,
    parameters: Vec<NamedTensor>,
    counters: Vec<Counters>,
}

fn train(mut operators: Operators, epochs: u32) -> Trained {
    let batches = operators.routes[0].batching.num_batches() as u32;
    train_some(&mut operators, (0..epochs).flat_map(|epoch| (0..batches).map(move |index| BatchId { epoch, index })))
}

fn train_some(Operators { routes, trainers }: &mut Operators, ids: impl Iterator<Item = BatchId>) -> Trained {
    let (route, trainer) = (&mut routes[0], &mut trainers[0].operator);
    let (transferring, mut worker) = (&mut route.transferring, route.batching.worker(1).expect("a worker"));
    let (mut losses, mut counters) = (Vec::new(), Vec::new());
    for id in ids {
        let (batch, measured) = prepared(worker.as_mut(), transferring.as_mut(), id);
        counters.push(measured);
        losses.push(trainer.train(&batch).and_then(|handle| handle.wait()).expect("it trains").0.loss());
    }
    Trained { losses, parameters: trainer.parameters().expect("parameters"), counters }
}

/// Trains by all members of a group at once; what the first one has.
fn train_group(group: &mut [Operators], ids: &[BatchId]) -> Trained {
    let trained: Vec<Trained> = thread::scope(|scope| {
        let run = |member| scope.spawn(move || train_some(member, ids.iter().copied()));
        let running: Vec<_> = group.iter_mut().map(run).collect();
        running.into_iter().map(|thread| thread.join().expect("it trains")).collect()
    });
    for other in &trained[1..] {
        assert_eq!(
            (&other.losses, &other.parameters),
            (&trained[0].losses, &trained[0].parameters),
            "all step together"
        );
    }
    trained.into_iter().next().expect("a member")
}

fn ids(task: &Task, epochs: u32) -> Vec<BatchId> {
    let batches = task.batching().num_batches() as u32;
    (0..epochs * batches).map(|i| BatchId { epoch: i / batches, index: i % batches }).collect()
}

fn prepared(worker: &mut dyn BatchingWorker, transfer: &mut dyn Transferring, id: BatchId) -> (MiniBatch, Counters) {
    let batch = worker.prepare(id, None).and_then(|handle| handle.wait()).expect("a mini-batch").0;
    let (batch, measured) = transfer.transfer(batch).and_then(|handle| handle.measured()).expect("it is moved");
    (batch, measured.counters)
}

fn amount(counters: &Counters, name: &str) -> u64 {
    counters.iter().find(|(n, _)| *n == name).map_or(0, |(_, amount)| amount)
}

#[test]
fn hot_ratio_zero_is_ordinary_training_bit_for_bit() {
    for model in [json!({"kind": "sage", "dropout": 0.5}), json!({"kind": "gat", "heads": 2}), json!({"kind": "gcn"})] {
        let task = Task::new("4,3", model, 0.01);
        let (split, _) = task.split(3, 0.0);
        let (split, ordinary) = (train(split, 2), train(task.operators(), 2));
        assert_eq!((&split.losses, &split.parameters), (&ordinary.losses, &ordinary.parameters));
    }
}

#[test]
fn given_rows_of_unchanged_parameters_are_those_that_are_computed() {
    // Parameters that do not change are never stale; with all neighbours and dropout of hidden values alone, given rows are the
    // computed ones.
    for model in [json!({"kind": "sage", "dropout": 0.5}), json!({"kind": "gcn", "dropout": 0.0})] {
        let mut task = Task::new("-1,-1,-1", model, 1e-30);
        for ratio in [0.4, 1.0] {
            if ratio == 1.0 {
                task.oversample();
            }
            let (split, statistics) = task.split(2, ratio);
            let (split, ordinary) = (train(split, 2), train(task.operators(), 2));
            for (step, (a, b)) in split.losses.iter().zip(&ordinary.losses).enumerate() {
                assert!((a - b).abs() < 1e-5, "step {step}: loss {a} with given rows, {b} without");
            }
            let given: u64 = split.counters.iter().map(|c| amount(c, "given_rows")).sum();
            assert!(given > 0, "rows are given");
            let all = statistics.all();
            assert!(all.iter().all(|s| s.hot == (ratio * s.nodes as f64).ceil() as u64), "{all:?}");
        }
    }
}

#[test]
fn runs_repeat_and_keep_the_bound() {
    let task = Task::new("5,4", json!({"kind": "sage", "dropout": 0.3}), 0.05);
    for len in [1, 2, 4, 5] {
        let run = || train(task.split(len, 0.5).0, 8);
        let (first, second) = (run(), run());
        assert_eq!((&first.losses, &first.parameters), (&second.losses, &second.parameters), "super-batches of {len}");
        let staleness = first.counters.iter().filter(|c| amount(c, "given_batches") > 0);
        let staleness: Vec<u64> = staleness.map(|c| amount(c, "staleness_steps")).collect();
        let bound = 2 * u64::from(len) - 1;
        assert!(staleness.iter().all(|&steps| steps > 0 && steps <= bound), "super-batches of {len}: {staleness:?}");
        // Eight mini-batches per epoch: the last super-batch of five is shorter.
        assert_eq!(staleness.contains(&bound), len != 5, "super-batches of {len}: {staleness:?}");
        let ordinary = train(task.operators(), 8);
        assert_ne!(first.parameters, ordinary.parameters, "stale rows change training");
        let end = |losses: &[f64]| losses[losses.len() - 4..].iter().sum::<f64>() / 4.0;
        assert!(end(&first.losses) < 0.9 * first.losses[0], "the loss falls: {:?}", first.losses);
        assert!(
            (end(&first.losses) - end(&ordinary.losses)).abs() < 0.3 * ordinary.losses[0],
            "as in ordinary training"
        );
    }
}

/// Wherever training is interrupted, a copy that is given its state goes on with the same bits.
#[test]
fn a_resumed_run_has_the_bits_of_an_undisturbed_one() {
    let task = Task::new("4,3", json!({"kind": "sage", "dropout": 0.4}), 0.05);
    let ids = ids(&task, 2);
    let undisturbed = train(task.split(3, 0.6).0, 2);
    for at in 0..ids.len() {
        let (mut before, _) = task.split(3, 0.6);
        let mut losses = train_some(&mut before, ids[..at].iter().copied()).losses;
        let (mut after, _) = task.split_from(3, 0.6, Some(ids[at]));
        let (from, to) = (&before.trainers[0].operator, &mut after.trainers[0].operator);
        to.set_parameters(&from.parameters().expect("parameters")).expect("the same model");
        // In any order, as a file may keep them.
        let mut state = from.optimizer_state().expect("a state");
        state.sort_by(|a, b| b.name.cmp(&a.name));
        to.set_optimizer_state(&state).expect("the same optimizer");
        let rest = train_some(&mut after, ids[at..].iter().copied());
        losses.extend(rest.losses);
        assert_eq!(losses, undisturbed.losses, "resumed before mini-batch {at}");
        assert_eq!(rest.parameters, undisturbed.parameters, "resumed before mini-batch {at}");
    }
}

#[test]
fn the_queue_has_the_nodes_of_the_mini_batches() {
    let task = Task::new("5,4,3", json!({"kind": "sage"}), 0.01);
    let batches = task.batching().num_batches() as u32;
    let super_batches = SuperBatches { batches, len: 4 };
    let mut queue = HotQueue::new(&task.dataset, &task.seeds(), &task.settings, super_batches, 1).expect("a queue");
    let mut worker = task.batching().worker(1).expect("a worker");
    for super_batch in 0..5 {
        let mut counts = std::collections::BTreeMap::new();
        for id in super_batches.ids(super_batch) {
            let batch = worker.prepare(id, None).and_then(|handle| handle.wait()).expect("a mini-batch").0;
            let HostBatch { blocks, input_nodes, .. } = batch.host().expect("on the host");
            for node in &input_nodes[blocks[1].num_dst..blocks[0].num_dst] {
                *counts.entry(*node).or_insert(0) += 1;
            }
        }
        let mut expected: Vec<(u32, u32)> = counts.into_iter().collect();
        expected.sort_by_key(|&(node, count)| (std::cmp::Reverse(count), node));
        assert_eq!(queue.of(super_batch).expect("sampled"), expected, "super-batch {super_batch}");
    }
}

#[test]
fn rows_are_the_same_on_any_number_of_threads() {
    for model in [json!({"kind": "sage", "dropout": 0.3}), json!({"kind": "gcn"})] {
        let mut task = Task::new("5,4", model, 0.05);
        let mut run = |threads| {
            task.threads = threads;
            train(task.split(3, 0.5).0, 3)
        };
        let (one, three) = (run(1), run(3));
        assert_eq!((one.losses, one.parameters), (three.losses, three.parameters));
    }
}

/// Sleeps of up to two milliseconds, none half of the time.
#[derive(Debug)]
struct Delays(u64);

impl Delays {
    fn next(&mut self) {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let micros = if self.0 >> 63 == 0 { 0 } else { self.0 >> 32 & 0x7ff };
        thread::sleep(Duration::from_micros(micros));
    }
}

/// A first layer that is late.
#[derive(Debug)]
struct Late(Box<dyn Training>, Delays);

impl TrainingWrapper for Late {
    fn inner(&self) -> &dyn Training {
        &*self.0
    }

    fn inner_mut(&mut self) -> &mut dyn Training {
        &mut *self.0
    }

    fn first_layer(&mut self, batch: &HostBatch, rows: &mut Vec<f32>, inputs: &mut [Vec<f32>]) -> Option<Result<()>> {
        self.1.next();
        self.0.first_layer(batch, rows, inputs)
    }
}

/// With the first layer, sampling, transfers and training delayed at random, no mini-batch has rows that are staler than the bound, and the
/// bits are those of a run without delays.
#[test]
fn random_delays_neither_exceed_the_bound_nor_change_bits() {
    let task = Task::new("4,3", json!({"kind": "sage"}), 0.05);
    for (len, seed) in [(1, 7), (2, 8), (3, 9), (4, 10)] {
        let undisturbed = train(task.split(len, 0.5).0, 4);
        let (mut operators, statistics) = task.split_by(Box::new(Late(task.trainer(), Delays(seed))), len, 0.5, None);
        let (route, trainer) = (&mut operators.routes[0], &mut operators.trainers[0].operator);
        let batches = route.batching.num_batches() as u32;
        let (mut worker, mut delays) = (route.batching.worker(1).expect("a worker"), Delays(seed + 1));
        let mut losses = Vec::new();
        for id in (0..4).flat_map(|epoch| (0..batches).map(move |index| BatchId { epoch, index })) {
            delays.next();
            let batch = worker.prepare(id, None).and_then(|handle| handle.wait()).expect("a mini-batch").0;
            delays.next();
            let (batch, _) = route.transferring.transfer(batch).and_then(|handle| handle.wait()).expect("it is moved");
            delays.next();
            let step = u64::from(id.epoch * batches + id.index);
            if let Some(version) = batch.first_layer_rows().version {
                assert!(step - version < 2 * u64::from(len), "step {step}: version {version}, super-batches of {len}");
            }
            losses.push(trainer.train(&batch).and_then(|handle| handle.wait()).expect("it trains").0.loss());
        }
        assert_eq!(losses, undisturbed.losses, "super-batches of {len}");
        let stale = statistics.staleness();
        assert!(stale.iter().all(|s| s.steps < 2 * u64::from(len)) && !stale.is_empty(), "{stale:?}");
    }
}

#[test]
fn rows_that_are_too_old_are_refused_where_they_are_used() {
    let task = Task::new("4,3", json!({"kind": "sage"}), 0.01);
    let Operators { mut routes, mut trainers } = task.split(2, 1.0).0;
    let mut worker = routes[0].batching.worker(1).expect("a worker");
    let trainer = &mut trainers[0].operator;
    let mut stale = None;
    for index in 0..6 {
        let id = BatchId { epoch: 0, index };
        let (batch, _) = prepared(worker.as_mut(), routes[0].transferring.as_mut(), id);
        if index == 3 {
            stale = Some(batch.host().expect("on the host").clone());
        }
        trainer.train(&batch).and_then(|handle| handle.wait()).expect("it trains");
    }
    let refused =
        trainer.train(&MiniBatch::Host(stale.expect("six mini-batches"))).expect_err("rows of version 0 at step 6");
    assert!(refused.to_string().contains("version 0 are read at step 6: 6 steps old, 3 are allowed"), "{refused}");
}

#[test]
fn a_failing_first_layer_ends_training_with_its_reason() {
    let task = Task::new("4,3", json!({"kind": "sage"}), 0.01);
    // The first layer of another model: its parameters do not fit.
    let other = Task::new("4,3", json!({"kind": "gcn"}), 0.01);
    let super_batches = SuperBatches { batches: task.batching().num_batches() as u32, len: 1 };
    let start = BatchId::default();
    let settings = Settings {
        super_batches,
        hot_ratio: 1.0,
        follow: None,
        width: 8,
        input_widths: vec![],
        threads: 1,
        learns: true,
        start,
        resumed: false,
    };
    let inputs = (&task.dataset, &task.seeds(), &task.settings);
    let split = LayerSplit::new(task.operators(), other.trainer(), inputs, settings).expect("it is split");
    let Operators { mut routes, mut trainers } = split.operators;
    let mut worker = routes[0].batching.worker(1).expect("a worker");
    let mut failed = None;
    for index in 0..3 {
        let batch = worker.prepare(BatchId { epoch: 0, index }, None).and_then(|handle| handle.wait());
        let moved = batch.and_then(|(batch, _)| routes[0].transferring.transfer(batch)).and_then(|h| h.wait());
        match moved {
            Ok((batch, _)) => _ = trainers[0].operator.train(&batch).expect("it trains"),
            Err(e) => {
                failed = Some(e.to_string());
                break;
            }
        }
    }
    let failed = failed.expect("the second super-batch has no rows");
    assert!(failed.contains("no more embeddings") && failed.contains("convs.0"), "{failed}");
}

/// While parameters stay, with all neighbours in the first layer, a group has the losses of one trainer; its rows are computed once,
/// for the same nodes.
#[test]
fn a_group_has_the_losses_of_one_trainer_while_parameters_stay() {
    for model in [json!({"kind": "sage"}), json!({"kind": "gcn"})] {
        let task = Task::new("4,-1", model, 1e-30);
        let (alone, of_one) = task.split(3, 0.6);
        let alone = train(alone, 2);
        for weights in [&[1.0, 1.0][..], &[1.0, 2.0, 0.5], &[0.0, 1.0, 1.0]] {
            let (mut group, of_group) = task.split_group(weights, 3, 0.6, None);
            let trained = train_group(&mut group, &ids(&task, 2));
            for (step, (a, b)) in trained.losses.iter().zip(&alone.losses).enumerate() {
                assert!((a - b).abs() <= 1e-6 * b, "{weights:?}, step {step}: {a}, one trainer has {b}");
            }
            // The last super-batch's rows may not be computed when training ends.
            drop(group);
            let [group, one] = [&of_group, &of_one].map(|s| s.all().iter().map(|s| (s.super_batch, s.hot)).collect());
            let (group, one): (Vec<_>, Vec<_>) = (group, one);
            let both = group.len().min(one.len());
            assert!(both >= 5 && group[..both] == one[..both], "{group:?}, one trainer {one:?}");
        }
    }
}

/// Rows that change: a group of one share repeats, keeps the bound, and where one trainer has all seeds it has the bits of that one
/// alone, even if another one, without a seed, hands out the parameters.
#[test]
fn a_group_repeats_and_keeps_the_bound() {
    let task = Task::new("5,4", json!({"kind": "sage", "dropout": 0.3}), 0.05);
    for len in [1, 3, 4] {
        let run = |weights: &[f64]| {
            let (mut group, statistics) = task.split_group(weights, len, 0.5, None);
            (train_group(&mut group, &ids(&task, 4)), statistics)
        };
        let alone = train(task.split(len, 0.5).0, 4);
        for weights in [&[1.0, 0.0][..], &[0.0, 1.0]] {
            let (trained, _) = run(weights);
            assert_eq!((&trained.losses, &trained.parameters), (&alone.losses, &alone.parameters), "{weights:?}");
        }
        let (first, statistics) = run(&[1.0, 1.0]);
        let (second, _) = run(&[1.0, 1.0]);
        assert_eq!((&first.losses, &first.parameters), (&second.losses, &second.parameters));
        let end = |losses: &[f64]| losses[losses.len() - 4..].iter().sum::<f64>() / 4.0;
        let apart = (end(&first.losses) / end(&alone.losses) - 1.0).abs();
        assert!(apart < 0.1, "super-batches of {len}: {:?}, one trainer {:?}", first.losses, alone.losses);
        let stale = statistics.staleness();
        let bound = 2 * u64::from(len) - 1;
        assert!(!stale.is_empty() && stale.iter().all(|s| (1..=bound).contains(&s.steps)), "{stale:?}");
        // Each of the two trainers has a share of every mini-batch.
        assert!(stale.iter().all(|s| s.batches % 2 == 0), "{stale:?}");
    }
}

/// Wherever a group is interrupted, another one that is given the first trainer's state goes on with the same bits.
#[test]
fn a_resumed_group_has_the_bits_of_an_undisturbed_one() {
    let task = Task::new("4,3", json!({"kind": "sage", "dropout": 0.4}), 0.05);
    let ids = ids(&task, 2);
    for weights in [[1.0, 1.0], [0.0, 1.0]] {
        let undisturbed = train_group(&mut task.split_group(&weights, 3, 0.6, None).0, &ids);
        for at in 0..ids.len() {
            let (mut before, _) = task.split_group(&weights, 3, 0.6, None);
            let mut losses = train_group(&mut before, &ids[..at]).losses;
            let (mut after, _) = task.split_group(&weights, 3, 0.6, Some(ids[at]));
            let from = &before[0].trainers[0].operator;
            let (parameters, state) =
                (from.parameters().expect("parameters"), from.optimizer_state().expect("a state"));
            for member in &mut after {
                let to = &mut member.trainers[0].operator;
                to.set_parameters(&parameters).expect("the same model");
                to.set_optimizer_state(&state).expect("the same optimizer");
            }
            let rest = train_group(&mut after, &ids[at..]);
            losses.extend(&rest.losses);
            assert_eq!(losses, undisturbed.losses, "{weights:?}, resumed before mini-batch {at}");
            assert_eq!(rest.parameters, undisturbed.parameters, "{weights:?}, resumed before mini-batch {at}");
        }
    }
}
