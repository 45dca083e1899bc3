//! Gradients of bounded staleness: under any delays the bound holds, and every step applies the gradients that the trainers computed
//! with the versions of the parameters that they state.

mod common;

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use common::{Ends, LIMIT, Seen, Task};
use morphgl_generate::{SbmConfig, sbm};
use morphgl_group::{Exchange, HostExchange, Result as GroupResult, StaleMember, StalenessCounts, join_stale};
use morphgl_registry::{
    BatchId, Fanouts, Gradients, Handle, HostBatch, MiniBatch, NamedTensor, Result, SamplerSettings, Score, Training,
    TrainingOperator, TrainingWrapper,
};
use proptest::prelude::*;
use serde_json::json;

/// Mini-batches of an epoch.
const BATCHES: usize = 9;
const BATCH: usize = 8;

fn task() -> Task {
    let graph = SbmConfig { nodes: 150, classes: 3, dim: 8, degree: 6.0, seed: 4, ..SbmConfig::default() };
    let mut dataset = sbm(&graph).expect("a graph");
    dataset.splits.train = (0..(BATCHES * BATCH) as u32).collect::<Vec<_>>().into();
    let fanouts: Fanouts = "4,3".parse().expect("fanouts");
    let spec = json!({
        "model": {"kind": "sage", "in_dim": 8, "hidden": 8, "layers": 2, "num_classes": 3, "dropout": 0.3},
        "optimizer": {"lr": 0.02},
    });
    Task {
        dataset: Arc::new(dataset),
        settings: SamplerSettings { batch_size: BATCH, seed: 5, ..fanouts.into() },
        spec,
        pairs: None,
    }
}

/// For each mini-batch, the version of the parameters (the number of steps taken) that a trainer's gradients were computed with.
type Versions = Arc<Mutex<Vec<(BatchId, usize)>>>;

/// A training operator that says with which parameters it computes, each time after a delay.
#[derive(Debug)]
struct Watched {
    inner: Box<dyn Training>,
    steps: usize,
    versions: Versions,
    delays: Delays,
}

impl TrainingWrapper for Watched {
    fn inner(&self) -> &dyn Training {
        &*self.inner
    }
    fn inner_mut(&mut self) -> &mut dyn Training {
        &mut *self.inner
    }
    fn accumulate(&mut self, batch: &MiniBatch) -> Result<Handle<Score>> {
        self.delays.sleep();
        self.versions.lock().expect("no test panics with it").push((batch.id(), self.steps));
        self.inner.accumulate(batch)
    }
    fn step(&mut self) -> Result<Handle<()>> {
        self.steps += 1;
        self.inner.step()
    }
}

/// Durations of sleeps, in turn.
#[derive(Debug, Clone)]
struct Delays(std::iter::Cycle<std::vec::IntoIter<u64>>);

impl Delays {
    fn of(micros: Vec<u64>) -> Self {
        Self(micros.into_iter().cycle())
    }

    fn sleep(&mut self) {
        thread::sleep(Duration::from_micros(self.0.next().unwrap_or(0)));
    }
}

/// An exchange whose all-reduces begin after delays.
#[derive(Debug)]
struct Slow(HostExchange, Delays);

impl Exchange for Slow {
    fn rank(&self) -> usize {
        self.0.rank()
    }
    fn size(&self) -> usize {
        self.0.size()
    }
    fn all_gather(&mut self, mine: &[u8]) -> GroupResult<Vec<Vec<u8>>> {
        self.0.all_gather(mine)
    }
    fn all_reduce(&mut self, values: &mut [f32]) -> GroupResult<()> {
        self.1.sleep();
        self.0.all_reduce(values)
    }
    fn leave(&mut self, why: &str) {
        self.0.leave(why);
    }
}

/// What a trainer has after an epoch.
#[derive(Debug)]
struct Trained {
    score: Score,
    parameters: Vec<NamedTensor>,
    optimizer: Vec<NamedTensor>,
    /// Gradients by step.
    gradients: Vec<Gradients>,
    versions: Vec<(BatchId, usize)>,
}

/// Trains an epoch by a group whose gradients may be stale; the delays are those of each trainer's shares and exchanges.
fn train(task: &Task, division: &Ends, bound: usize, delays: &[[Vec<u64>; 2]]) -> (Vec<Trained>, StalenessCounts) {
    let counts = StalenessCounts::new(bound);
    let ends = HostExchange::group(delays.len(), LIMIT);
    let trained = thread::scope(|scope| {
        let trainer = |(end, [own, exchange]): (HostExchange, &[Vec<u64>; 2])| {
            let (counts, rank) = (counts.clone(), end.rank());
            let exchange = Box::new(Slow(end, Delays::of(exchange.clone())));
            let own = Delays::of(own.clone());
            scope.spawn(move || {
                let (seen, versions) = (Seen::default(), Versions::default());
                let mut operators = task.operators(&seen);
                let TrainingOperator { key, place, operator } = operators.trainers.swap_remove(0);
                let watched = Watched { inner: operator, steps: 0, versions: Arc::clone(&versions), delays: own };
                let watched = TrainingOperator { key, place, operator: Box::new(watched) };
                let member = StaleMember { exchange, counts, observe: None, ended: None };
                let mut training = join_stale(watched, member).operator;
                let mut score = Score::default();
                for index in 0..BATCHES as u32 {
                    let batch = share(task, division, BatchId { epoch: 0, index }, rank);
                    score += training.train(&batch).and_then(Handle::wait).expect("it trains").0;
                }
                training.settle().expect("all gradients come");
                let (parameters, optimizer) = (training.parameters(), training.optimizer_state());
                Trained {
                    score,
                    parameters: parameters.expect("parameters"),
                    optimizer: optimizer.expect("a state"),
                    gradients: std::mem::take(&mut *seen.lock().expect("no panic")),
                    versions: std::mem::take(&mut *versions.lock().expect("no panic")),
                }
            })
        };
        let running: Vec<_> = ends.into_iter().zip(delays).map(trainer).collect();
        running.into_iter().map(|thread| thread.join().expect("the trainer ends well")).collect()
    });
    (trained, counts)
}

/// A trainer's share of a mini-batch; one without a seed lies on the host.
fn share(task: &Task, division: &Ends, id: BatchId, rank: usize) -> MiniBatch {
    use morphgl_group::Division;
    let seeds: Range<usize> = division.share(id, BATCH, rank).expect("a division");
    if seeds.is_empty() {
        return MiniBatch::Host(HostBatch { id, ..HostBatch::default() });
    }
    let mut operators = task.operators(&Seen::default());
    let route = &mut operators.routes[0];
    let mut worker = route.batching.worker(1).expect("a worker");
    let (batch, _) = worker.prepare_share(id, seeds, None).and_then(Handle::wait).expect("batching");
    route.transferring.transfer(batch).and_then(Handle::wait).expect("transferring").0
}

/// Every step's gradients, computed anew one share after another with the parameters that the trainers say they had: equal bits, and the
/// parameters at the end.
fn recompute(task: &Task, division: &Ends, group: &[Trained]) {
    let mut reference = task.operators(&Seen::default()).trainers.swap_remove(0).operator;
    let mut history = vec![reference.parameters().expect("parameters")];
    let mut none = reference.gradients().expect("gradients");
    none.tensors.iter_mut().for_each(|tensor| tensor.values.fill(0.0));
    none.count = 0;
    for index in 0..BATCHES {
        let id = BatchId { epoch: 0, index: index as u32 };
        let mut sum: Option<Gradients> = None;
        for (rank, trained) in group.iter().enumerate() {
            let version = trained.versions.iter().find(|(of, _)| *of == id).map(|(_, version)| *version);
            let mut own = none.clone();
            if let Some(version) = version {
                reference.set_parameters(&history[version]).expect("parameters of the model");
                reference.set_gradients(&none).expect("gradients of the model");
                let batch = share(task, division, id, rank);
                reference.accumulate(&batch).and_then(Handle::wait).expect("it trains");
                own = reference.gradients().expect("gradients");
            }
            match &mut sum {
                None => sum = Some(own),
                Some(sum) => {
                    sum.count += own.count;
                    let values = sum.tensors.iter_mut().flat_map(|tensor| &mut tensor.values);
                    values.zip(own.tensors.iter().flat_map(|t| &t.values)).for_each(|(sum, value)| *sum += value);
                }
            }
        }
        let sum = sum.expect("a trainer");
        assert_eq!(group[0].gradients[index], sum, "gradients of {id}");
        reference.set_parameters(&history[index]).expect("parameters of the model");
        reference.set_gradients(&sum).expect("gradients of the model");
        reference.step().and_then(Handle::wait).expect("it steps");
        history.push(reference.parameters().expect("parameters"));
    }
    assert_eq!(&group[0].parameters, history.last().expect("steps were taken"));
    assert_eq!(group[0].optimizer, reference.optimizer_state().expect("a state"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// The law of stale gradients, under random delays of shares and of exchanges.
    #[test]
    fn no_gradient_is_staler_than_the_bound(
        bound in 0..4usize,
        mut ends in proptest::collection::vec(0..=BATCH, 1..4),
        delays in proptest::collection::vec([proptest::collection::vec(0..3000u64, 1..6), proptest::collection::vec(0..3000u64, 1..6)], 4),
    ) {
        ends.sort_unstable();
        let (task, division, size) = (task(), Ends(ends.clone()), ends.len());
        let (group, counts) = train(&task, &division, bound, &delays[..size]);
        let mut by_staleness = vec![0_u64; bound + 1];
        for trained in &group {
            prop_assert_eq!(trained.gradients.len(), BATCHES, "every step is taken once");
            prop_assert_eq!(&trained.gradients, &group[0].gradients);
            prop_assert_eq!((&trained.parameters, &trained.optimizer), (&group[0].parameters, &group[0].optimizer));
            for (id, version) in &trained.versions {
                let staleness = id.index as usize - version;
                prop_assert!(staleness <= bound, "{} is {} steps stale", id, staleness);
                by_staleness[staleness] += 1;
            }
        }
        prop_assert_eq!(counts.shares(), by_staleness);
        recompute(&task, &division, &group);
    }
}

/// A bound of 0 is synchronous training, to the bit.
#[test]
fn a_bound_of_0_has_the_bits_of_synchronous_steps() {
    let (task, ends) = (task(), vec![3, 5, BATCH]);
    let expected = task.group(3, &(Arc::new(Ends(ends.clone())) as _), 1);
    let delays = [[100, 0, 700], [0, 900, 50], [300, 10, 0]].map(|micros| [micros.to_vec(), micros.to_vec()]);
    let (group, _) = train(&task, &Ends(ends), 0, &delays);
    for (trained, expected) in group.iter().zip(&expected) {
        assert_eq!(trained.gradients, expected.gradients);
        assert_eq!(trained.parameters, expected.parameters);
    }
    // The score of each is that of its own share.
    let mut score = Score::default();
    group.iter().for_each(|trained| score += trained.score);
    assert_eq!((score.count, score.correct), (expected[0].scores[0].count, expected[0].scores[0].correct));
    assert!((score.loss_sum - expected[0].scores[0].loss_sum).abs() < 1e-9 * score.loss_sum);
}

/// Trainers go on during exchanges that take long, up to the bound and no further.
#[test]
fn slow_exchanges_are_waited_for_at_the_bound_alone() {
    for bound in [1, 3] {
        let slow = [[vec![0], vec![40_000]], [vec![0], vec![40_000]]];
        let (group, counts) = train(&task(), &Ends(vec![4, BATCH]), bound, &slow);
        let shares = counts.shares();
        assert!(shares[bound] >= 2 * (BATCHES as u64 - 5), "{shares:?}: every share but the first ones");
        assert_eq!(shares.iter().sum::<u64>(), 2 * BATCHES as u64);
        recompute(&task(), &Ends(vec![4, BATCH]), &group);
    }
}

/// A trainer that fails ends the others, with its name.
#[test]
fn a_trainer_that_leaves_is_named() {
    let task = task();
    let mut ends = HostExchange::group(2, LIMIT);
    let gone = ends.pop().expect("two");
    gone.abort_handle().abort("its device was lost");
    let operator = task.operators(&Seen::default()).trainers.swap_remove(0);
    let exchange = Box::new(ends.pop().expect("one"));
    let member = StaleMember { exchange, counts: StalenessCounts::new(2), observe: None, ended: None };
    let mut training = join_stale(operator, member).operator;
    let batch = share(&task, &Ends(vec![4, BATCH]), BatchId { epoch: 0, index: 0 }, 0);
    training.train(&batch).and_then(Handle::wait).expect("its own share is trained");
    let error = training.settle().expect_err("the other one is gone");
    let chain = format!("{error}: {:?}", std::error::Error::source(&error).map(ToString::to_string));
    assert!(chain.contains("its device was lost") && chain.contains("mini-batch 0"), "{chain}");
}
