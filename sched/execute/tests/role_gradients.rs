//! Devices with roles compute the gradients of one trainer, mini-batch by mini-batch. Operators of the host stand for those of devices.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use morphgl_batching_cpu::{CpuNeighbor, NEIGHBOR};
use morphgl_execute::{Control, EpochReport, RolesDevice, RolesExecutor, Stop};
use morphgl_generate::{SbmConfig, sbm};
use morphgl_graph_store::Dataset;
use morphgl_group::{BUCKET_BYTES, GroupMember, HostExchange, StaleMember, StalenessCounts, Weights, join, join_stale};
use morphgl_plan::{RolesSchedule, Segment};
use morphgl_registry::{
    BatchId, Batching, BatchingContext, Fanouts, Gradients, Handle, MiniBatch, NamedTensor, Operators, Place, Route,
    SamplerSettings, Score, SeedSet, Training, TrainingContext, TrainingOperator, TrainingWrapper, Transferring,
    TransferringContext, VirtualClock,
};
use morphgl_training_cpu_native::{CpuNative, KEY};
use morphgl_transferring_cpu_host::{CpuHost, DESCRIPTION};
use proptest::prelude::*;
use serde_json::json;

const BATCH: usize = 12;
const BATCHES: usize = 14;
const DEVICES: usize = 4;
/// Rounding: gradients of shares added in another order than those of a whole mini-batch.
const ROUNDING: f64 = 1e-6;

/// Steps: the parameters before each, and its gradients.
type Steps = Vec<(Vec<NamedTensor>, Gradients)>;
type Seen = Arc<Mutex<Steps>>;

/// A training operator whose steps can be read, and that takes its time.
#[derive(Debug)]
struct Watched {
    inner: Box<dyn Training>,
    seen: Seen,
    delay: Duration,
}

impl TrainingWrapper for Watched {
    fn inner(&self) -> &dyn Training {
        &*self.inner
    }
    fn inner_mut(&mut self) -> &mut dyn Training {
        &mut *self.inner
    }
    fn accumulate(&mut self, batch: &MiniBatch) -> morphgl_registry::Result<Handle<Score>> {
        thread::sleep(self.delay);
        self.inner.accumulate(batch)
    }
    fn step(&mut self) -> morphgl_registry::Result<Handle<()>> {
        let step = (self.inner.parameters()?, self.inner.gradients()?);
        self.seen.lock().expect("no test panics with it").push(step);
        self.inner.step()
    }
}

struct Rig {
    dataset: Arc<Dataset>,
    dropout: f32,
}

impl Rig {
    fn new(seed: u64, dropout: f32) -> Self {
        let graph = SbmConfig { nodes: 240, classes: 3, dim: 8, degree: 6.0, seed, ..SbmConfig::default() };
        let mut dataset = sbm(&graph).expect("a graph");
        dataset.splits.train = (0..(BATCHES * BATCH) as u32).collect::<Vec<_>>().into();
        Self { dataset: Arc::new(dataset), dropout }
    }

    fn batching(&self) -> Arc<dyn Batching> {
        let (dataset, fanouts): (_, Fanouts) = (Arc::clone(&self.dataset), "4,3".parse().expect("fanouts"));
        let seeds = SeedSet::new("train split", &dataset.splits.train, dataset.num_nodes()).expect("nodes");
        let settings = SamplerSettings { batch_size: BATCH, seed: 5, ..fanouts.into() };
        Arc::new(CpuNeighbor::new(&BatchingContext::new(dataset, seeds, settings)).expect("settings for the dataset"))
    }

    fn transferring(&self) -> Box<dyn Transferring> {
        let context = TransferringContext::new(Arc::clone(&self.dataset), Place::Host, Place::Host);
        Box::new(CpuHost::new(&context).expect("it has no options"))
    }

    fn training(&self) -> Box<dyn Training> {
        let model =
            json!({"kind": "sage", "in_dim": 8, "hidden": 8, "layers": 2, "num_classes": 3, "dropout": self.dropout});
        let spec = json!({"model": model, "optimizer": {"lr": 0.02}});
        let context = TrainingContext { seed: 1, ..TrainingContext::new(Arc::clone(&self.dataset), spec) };
        Box::new(CpuNative::new(&context).expect("a model for the dataset"))
    }

    /// Trains an epoch by the schedule, and returns what each device that trains has seen, and has in the end.
    fn train(&self, schedule: &RolesSchedule, delays: &[u64]) -> Vec<(Steps, Vec<NamedTensor>)> {
        let limit = Duration::from_secs(60);
        let exchanges = HostExchange::group(schedule.max_trainers(), limit);
        let handle = exchanges[0].abort_handle();
        let seen: Vec<Seen> = exchanges.iter().map(|_| Seen::default()).collect();
        let counts = StalenessCounts::new(schedule.staleness);
        let mut exchanges = exchanges.into_iter();
        let device = |number: usize| {
            let training = exchanges.next().map(|exchange| {
                let delay = Duration::from_micros(delays[number % delays.len()]);
                let operator = Watched { inner: self.training(), seen: Arc::clone(&seen[number]), delay };
                let operator = TrainingOperator { key: KEY, place: Place::Host, operator: Box::new(operator) };
                if schedule.staleness > 0 {
                    let (exchange, counts) = (Box::new(exchange), counts.clone());
                    return join_stale(operator, StaleMember { exchange, counts, observe: None, ended: None });
                }
                let member = GroupMember {
                    exchange: Box::new(exchange),
                    division: Arc::new(Weights::equal(1)),
                    num_seeds: BATCH * BATCHES,
                    batch_size: BATCH,
                    stop: None,
                    observe: None,
                    bucket_bytes: BUCKET_BYTES,
                    virtual_steps: None,
                };
                let alone = Operators { routes: Vec::new(), trainers: vec![operator] };
                join(alone, member).expect("one trainer").trainers.swap_remove(0)
            });
            let route = Route::new([NEIGHBOR.key, DESCRIPTION.key, KEY], Place::Host, Place::Host);
            RolesDevice {
                place: Place::Host,
                resource: format!("device {number}"),
                batching: Some((NEIGHBOR.key, self.batching())),
                transferring: vec![(route, self.transferring())],
                training,
                clock: VirtualClock::default(),
                ended: Arc::default(),
            }
        };
        let devices = (0..DEVICES).map(device).collect();
        let abort = Box::new(move |why: &str| handle.abort(why));
        let share_of = Arc::new(|_, trainers: usize, rank| share(trainers, rank));
        let mut executor = RolesExecutor::new(devices, schedule, share_of, abort, Some(limit)).expect("valid");
        let mut order = Vec::new();
        let mut observe = |event: &morphgl_execute::Event<'_>| {
            if let morphgl_execute::Event::Trained(done) = event {
                order.push(done.id.index as usize);
            }
            Control::Continue
        };
        let report = executor.train_on(0, EpochReport::default(), &Stop::new(), &mut observe).expect("no faults");
        assert_eq!((report.batches, report.seeds as usize), (BATCHES, BATCH * BATCHES));
        assert_eq!(order, (0..BATCHES).collect::<Vec<_>>());
        let of = |trainer: &mut dyn Training| trainer.parameters().expect("parameters");
        let parameters = executor.trainers_mut().expect("there").into_iter().map(of).collect::<Vec<_>>();
        seen.iter().map(|seen| std::mem::take(&mut *seen.lock().expect("no panic"))).zip(parameters).collect()
    }
}

fn share(trainers: usize, rank: usize) -> Range<usize> {
    BATCH * rank / trainers..BATCH * (rank + 1) / trainers
}

/// The length of `a - b` divided by the length of `b`.
fn distance(a: &Gradients, b: &Gradients) -> f64 {
    let pairs = || a.tensors.iter().zip(&b.tensors).flat_map(|(a, b)| a.values.iter().zip(&b.values));
    let difference: f64 = pairs().map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum();
    let length: f64 = pairs().map(|(_, b)| f64::from(*b).powi(2)).sum();
    (difference / length.max(f64::MIN_POSITIVE)).sqrt()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the roles and their changes: the gradients of every mini-batch are those that one trainer computes of the whole one with
    /// the same parameters. Where they may be stale, all devices take the same steps, one for each mini-batch, to the same bits.
    #[test]
    fn every_mini_batch_has_the_gradients_of_one_trainer(
        random in proptest::collection::vec((1..6usize, 1..4usize), 1..5),
        buffers in (1..5usize, 1..3usize),
        staleness in 0..3usize,
        delays in proptest::collection::vec(0..1500u64, 1..4),
        seed in 0..1000u64,
        dropout in prop_oneof![Just(0.0f32), Just(0.4)],
    ) {
        let mut from = 0;
        let segment = |&(length, trainers): &(usize, usize)| {
            let segment = Segment { from, trainers };
            from += length;
            segment
        };
        let segments = random.iter().map(segment).collect();
        let (queue, ready) = buffers;
        let schedule =
            RolesSchedule { num_batches: BATCHES, devices: DEVICES, segments, queue, ready, switching: 0.0, staleness };
        let rig = Rig::new(seed, dropout);
        let trained = rig.train(&schedule, &delays);
        let (steps, end) = &trained[0];
        prop_assert_eq!(steps.len(), BATCHES);
        for (other, parameters) in &trained {
            prop_assert_eq!(other, steps, "all devices take the same steps");
            prop_assert_eq!(parameters, end);
        }
        if staleness > 0 {
            return Ok(());
        }
        let (mut alone, batching, mut transferring) = (rig.training(), rig.batching(), rig.transferring());
        let mut worker = batching.worker(1).expect("a worker");
        let mut none = alone.gradients().expect("gradients");
        none.tensors.iter_mut().for_each(|tensor| tensor.values.fill(0.0));
        none.count = 0;
        for (index, (parameters, gradients)) in steps.iter().enumerate() {
            let id = BatchId { epoch: 0, index: index as u32 };
            let (batch, _) = worker.prepare(id, None).and_then(Handle::wait).expect("batching");
            let (batch, _) = transferring.transfer(batch).and_then(Handle::wait).expect("transferring");
            alone.set_parameters(parameters).expect("parameters of the model");
            alone.set_gradients(&none).expect("gradients of the model");
            alone.accumulate(&batch).and_then(Handle::wait).expect("it trains");
            let expected = alone.gradients().expect("gradients");
            prop_assert_eq!(gradients.count, expected.count);
            let apart = distance(gradients, &expected);
            prop_assert!(apart <= ROUNDING, "{}: gradients are {:e} apart", id, apart);
        }
    }
}
