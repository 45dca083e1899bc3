//! Steps of several trainers whose gradients may be stale: a trainer goes on with its next share while gradients are added up.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use morphgl_registry::{
    BatchId, Counters, Error, Gradients, Handle, Measured, MiniBatch, Result, Score, Training, TrainingOperator,
    TrainingWrapper,
};

use crate::step::{EXCHANGE_BYTES, EXCHANGE_HIDDEN_MICROS, EXCHANGE_MICROS};
use crate::{AllReduceHook, Exchange, GroupError};

/// How many shares were trained with gradients of which staleness. Clones count together.
#[derive(Debug, Clone)]
pub struct StalenessCounts(Arc<[AtomicU64]>);

impl StalenessCounts {
    /// Counts of shares whose gradients are at most `bound` steps stale.
    pub fn new(bound: usize) -> Self {
        Self((0..=bound).map(|_| AtomicU64::new(0)).collect())
    }

    /// The maximum staleness.
    pub fn bound(&self) -> usize {
        self.0.len() - 1
    }

    /// Number of shares by staleness, from 0 steps to the bound.
    pub fn shares(&self) -> Vec<u64> {
        self.0.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }

    fn add(&self, staleness: usize) {
        self.0[staleness].fetch_add(1, Ordering::Relaxed);
    }
}

/// A trainer's place in a group whose gradients may be stale.
#[derive(Debug)]
pub struct StaleMember {
    /// Its end of the exchange.
    pub exchange: Box<dyn Exchange>,
    /// The bound, and what counts the staleness of its shares.
    pub counts: StalenessCounts,
    /// Hook that is called after every all-reduce in real time, and not in virtual time.
    pub observe: Option<AllReduceHook>,
    /// In virtual time, the steps that have ended when a share begins, which [`Training::train`] then takes; `None` in real time, where it
    /// takes those that are there.
    pub ended: Option<Arc<AtomicU64>>,
}

/// A training operator whose gradients may be stale by at most the bound of its member: stale synchronous parallel
/// ([Ho et al., NeurIPS 2013](https://dl.acm.org/doi/10.5555/2999611.2999748)).
///
/// Every trainer of the group trains its share of every mini-batch, without a seed where it has none. Gradients of a mini-batch are added
/// up in the order of ranks by a thread of its own, and every trainer takes the steps in the order of mini-batches: so after
/// [`Training::settle`] all have the same parameters. The gradient of mini-batch i is computed with parameters after v steps of the epoch,
/// where i - v, its staleness, is at most the bound: `train` takes all steps that are there, and waits for those that the bound needs. With a
/// bound of 0 the steps have the bits of [`join`](crate::join)'s.
///
/// The score of `train` is that of the trainer's own share.
pub fn join_stale(trainer: TrainingOperator, member: StaleMember) -> TrainingOperator {
    let TrainingOperator { key, place, operator: inner } = trainer;
    let operator = StaleTraining {
        inner,
        member: Some(member),
        thread: None,
        epoch: 0,
        steps: 0,
        pending: VecDeque::new(),
        leftover: false,
        bytes_sent: 0,
        zeros: None,
        free: Vec::new(),
    };
    TrainingOperator { key, place, operator: Box::new(operator) }
}

/// The gradients of a trainer's share, for its thread; and their sums over all trainers, from it.
struct Share {
    id: BatchId,
    values: Vec<f32>,
    count: u64,
    /// The steps that the parameters had taken; of sums the fewest of any trainer.
    version: u64,
    /// Duration of the exchange.
    took: Duration,
}

/// What each trainer states of its share.
#[derive(Debug, Clone, Copy, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct ShareStatistics {
    epoch: u32,
    index: u32,
    count: u64,
    version: u64,
}

/// The thread that adds up gradients.
struct Adding {
    shares: Sender<Share>,
    sums: Receiver<std::result::Result<Share, GroupError>>,
    bytes_sent: Arc<AtomicU64>,
    counts: StalenessCounts,
    ended: Option<Arc<AtomicU64>>,
}

struct StaleTraining {
    inner: Box<dyn Training>,
    /// `None` once its thread has begun.
    member: Option<StaleMember>,
    thread: Option<Adding>,
    epoch: u32,
    /// Steps of the epoch that were taken.
    steps: u64,
    /// Mini-batches whose steps are to be taken.
    pending: VecDeque<BatchId>,
    /// Whether the inner operator still has gradients that were handed over.
    leftover: bool,
    /// Gradients of no seed.
    zeros: Option<Gradients>,
    /// Memory of sums that were taken.
    free: Vec<Vec<f32>>,
    /// Bytes that the exchange had sent when they were last counted.
    bytes_sent: u64,
}

/// Adds up gradients until no more come, or an exchange fails.
fn add_up(
    StaleMember { mut exchange, observe, ended, .. }: StaleMember,
    shares: &Receiver<Share>,
    sums: &Sender<std::result::Result<Share, GroupError>>,
    bytes_sent: &AtomicU64,
) {
    for mut share in shares {
        let start = Instant::now();
        let outcome = add_share(exchange.as_mut(), &mut share);
        share.took = start.elapsed();
        bytes_sent.store(exchange.bytes_sent(), Ordering::Relaxed);
        if let (Some(AllReduceHook(observe)), Ok(()), None) = (&observe, &outcome, &ended) {
            observe(share.id, start, Instant::now());
        }
        let failed = outcome.is_err();
        if let Err(e) = &outcome {
            exchange.leave(&e.to_string());
        }
        if sums.send(outcome.map(|()| share)).is_err() || failed {
            return;
        }
    }
}

/// Adds up the gradients of all trainers' shares of a mini-batch.
fn add_share(exchange: &mut dyn Exchange, share: &mut Share) -> crate::Result<()> {
    exchange.all_reduce(&mut share.values)?;
    let Share { id: BatchId { epoch, index }, count, version, .. } = *share;
    let own = ShareStatistics { epoch, index, count, version };
    share.count = 0;
    for (rank, bytes) in exchange.all_gather(bytemuck::bytes_of(&own))?.iter().enumerate() {
        let of = bytemuck::try_pod_read_unaligned::<ShareStatistics>(bytes).ok();
        let Some(of) = of.filter(|of| (of.epoch, of.index) == (epoch, index)) else {
            let what = format!("mini-batch {index} of epoch {epoch}, it is at another: {of:?}");
            return Err(GroupError::Differs { rank, what });
        };
        share.count += of.count;
        share.version = share.version.min(of.version);
    }
    Ok(())
}

impl StaleTraining {
    /// The thread that adds up gradients, which begins with the first share.
    fn thread(&mut self) -> Result<&Adding> {
        if let Some(member) = self.member.take() {
            let (shares, received) = mpsc::channel();
            let (sender, sums) = mpsc::channel();
            let bytes_sent = Arc::new(AtomicU64::new(0));
            let (counts, ended, sent) = (member.counts.clone(), member.ended.clone(), Arc::clone(&bytes_sent));
            let thread = thread::Builder::new().name("gradients".to_string());
            // It ends when this trainer is dropped, or another has failed; nobody waits for that.
            thread
                .spawn(move || add_up(member, &received, &sender, &sent))
                .map_err(|e| Error::setting("group", format!("no thread for the sums of gradients: {e}")))?;
            self.thread = Some(Adding { shares, sums, bytes_sent, counts, ended });
        }
        Ok(self.thread.as_ref().expect("it was started"))
    }

    /// Takes steps: those that are there, and waits for those up to `least` of the epoch. In virtual time it takes `exact` steps.
    ///
    /// # Panics
    ///
    /// When the gradients of a step exceed the bound of staleness.
    fn take_steps(&mut self, least: u64, exact: Option<u64>) -> Result<Measured> {
        let mut measured = Measured::default();
        while let Some(&id) = self.pending.front() {
            let Adding { sums, counts, .. } = self.thread.as_ref().expect("shares are pending");
            let (from, is_needed) = (Instant::now(), self.steps < exact.unwrap_or(least));
            if !is_needed && exact.is_some() {
                return Ok(measured);
            }
            let sum = match sums.try_recv() {
                Err(TryRecvError::Empty) if !is_needed => return Ok(measured),
                Err(TryRecvError::Empty) => sums.recv().ok(),
                sum => sum.ok(),
            };
            let waited = from.elapsed();
            let ended =
                || Error::failed(id, GroupError::Engine("the thread that adds up gradients has ended".to_string()));
            let sum = sum.ok_or_else(ended)?.map_err(|e| Error::failed(id, e))?;
            let (staleness, bound) = (u64::from(id.index) - sum.version, counts.bound() as u64);
            assert_eq!(sum.id, id, "steps are taken in the order of mini-batches");
            assert!(staleness <= bound, "{id}: its gradients are {staleness} steps stale, {bound} are allowed");
            let mut gradients = self.zeros.clone().expect("a share was trained");
            gradients.count = sum.count;
            let mut rest = &sum.values[..];
            for tensor in &mut gradients.tensors {
                let (own, others) = rest.split_at(tensor.values.len());
                tensor.values.copy_from_slice(own);
                rest = others;
            }
            self.inner.set_gradients(&gradients)?;
            let ((), step) = self.inner.step()?.measured()?;
            measured.busy += step.busy;
            measured.counters += step.counters;
            if exact.is_none() {
                let hidden = sum.took.saturating_sub(waited);
                measured.counters += Counters::NONE
                    .with(&EXCHANGE_MICROS, sum.took.as_micros() as u64)
                    .with(&EXCHANGE_HIDDEN_MICROS, hidden.as_micros() as u64);
            }
            (self.leftover, self.steps) = (false, self.steps + 1);
            self.pending.pop_front();
            self.free.push(sum.values);
        }
        Ok(measured)
    }

    /// Trains a share with the parameters that are there, and hands over its gradients.
    fn train_share(&mut self, batch: &MiniBatch) -> Result<Handle<Score>> {
        let id = batch.id();
        if self.zeros.is_none() {
            let mut zeros = self.inner.gradients()?;
            zeros.tensors.iter_mut().for_each(|tensor| tensor.values.fill(0.0));
            self.zeros = Some(Gradients { count: 0, ..zeros });
        }
        let Adding { counts, ended, .. } = self.thread()?;
        let (counts, ended) = (counts.clone(), ended.as_ref().map(|ended| ended.load(Ordering::Acquire)));
        if self.pending.is_empty() {
            (self.epoch, self.steps) = (id.epoch, u64::from(id.index));
        }
        let next = self.steps + self.pending.len() as u64;
        assert_eq!((self.epoch, next), (id.epoch, u64::from(id.index)), "mini-batches are trained in their order");
        let mut measured = self.take_steps(u64::from(id.index).saturating_sub(counts.bound() as u64), ended)?;
        let staleness = u64::from(id.index) - self.steps;
        assert!(staleness <= counts.bound() as u64, "{id}: {staleness} steps stale, {} are allowed", counts.bound());
        let zeros = self.zeros.as_ref().expect("made above");
        let mut values = self.free.pop().unwrap_or_default();
        values.clear();
        let (mut score, mut count) = (Score::default(), 0);
        if batch.num_seeds() > 0 {
            if self.leftover {
                self.inner.set_gradients(zeros)?;
            }
            let (of_share, training) = self.inner.accumulate(batch)?.measured()?;
            let gradients = self.inner.gradients()?;
            gradients.tensors.iter().for_each(|tensor| values.extend_from_slice(&tensor.values));
            (score, count, self.leftover) = (of_share, gradients.count, true);
            measured.busy += training.busy;
            measured.counters += training.counters;
            counts.add(staleness as usize);
        } else {
            values.resize(zeros.tensors.iter().map(|tensor| tensor.values.len()).sum(), 0.0);
        }
        let Adding { shares, bytes_sent, .. } = self.thread.as_ref().expect("it was started");
        // An error: the thread has ended, and its last answer says why.
        let _ = shares.send(Share { id, values, count, version: self.steps, took: Duration::ZERO });
        let sent = bytes_sent.load(Ordering::Relaxed);
        measured.counters += Counters::NONE.with(&EXCHANGE_BYTES, sent - std::mem::replace(&mut self.bytes_sent, sent));
        self.pending.push_back(id);
        Ok(Handle::ready(score, measured.busy).counting(measured.counters))
    }
}

impl fmt::Debug for StaleTraining {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StaleTraining").field("inner", &self.inner).field("steps", &self.steps).finish_non_exhaustive()
    }
}

impl TrainingWrapper for StaleTraining {
    fn inner(&self) -> &dyn Training {
        &*self.inner
    }

    fn inner_mut(&mut self) -> &mut dyn Training {
        &mut *self.inner
    }

    /// Steps that may be behind, and the share that is trained.
    fn queue_depth(&self) -> usize {
        let bound = |counts: &StalenessCounts| counts.bound() + 1;
        let of_member = self.member.as_ref().map(|member| bound(&member.counts));
        of_member.or_else(|| self.thread.as_ref().map(|adding| bound(&adding.counts))).unwrap_or(1)
    }

    fn train(&mut self, batch: &MiniBatch) -> Result<Handle<Score>> {
        self.train_share(batch)
    }

    fn settle(&mut self) -> Result<()> {
        self.take_steps(u64::MAX, None).map(drop)
    }
}
