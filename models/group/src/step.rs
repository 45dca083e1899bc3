//! One optimizer step of several trainers.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use morphgl_registry::{
    BatchId, CounterSpec, Counters, Error, GradientReady, Handle, Measured, MiniBatch, Result, Score, Training,
    TrainingWrapper, VirtualClock,
};

use crate::overlap::{Reduced, all_reduce_while, buckets};
use crate::{Division, Exchange, GroupError};

/// Microseconds in exchanges, the time in which a trainer waits for others included.
pub(crate) const EXCHANGE_MICROS: CounterSpec =
    CounterSpec::new("exchange_micros", "microseconds in exchanges of the group, waiting for other trainers included");
/// The part of [`EXCHANGE_MICROS`] in which this trainer's own work went on.
pub(crate) const EXCHANGE_HIDDEN_MICROS: CounterSpec =
    CounterSpec::new("exchange_hidden_micros", "microseconds of these in which this trainer's backward went on");
/// Bytes sent to other trainers.
pub(crate) const EXCHANGE_BYTES: CounterSpec =
    CounterSpec::new("exchange_bytes", "bytes sent to other trainers of the group");
/// Microseconds by which the slowest trainer took longer than the mean.
pub(crate) const IMBALANCE_MICROS: CounterSpec =
    CounterSpec::new("imbalance_micros", "microseconds by which the group's slowest share took longer than the mean");

/// How the trainers of a group stop after the same step: the one in which any of them was asked to.
#[derive(Clone)]
pub struct StopTogether {
    /// Whether this trainer is asked to stop. Read once per step.
    pub requested: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Ends this trainer's training after the current step.
    pub stop: Arc<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for StopTogether {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StopTogether")
    }
}

/// Hook that is called after every all-reduce of a step at one trainer, with the mini-batch and the instants when it began and
/// ended, the wait for other trainers included.
#[derive(Clone)]
pub struct AllReduceHook(pub Arc<dyn Fn(BatchId, Instant, Instant) + Send + Sync>);

impl fmt::Debug for AllReduceHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AllReduceHook")
    }
}

/// How the steps of a trainer last in virtual time: it is done when the last trainer's work is, and the all-reduce after it.
#[derive(Debug, Clone)]
pub struct VirtualSteps {
    /// The clock of this trainer's executor.
    pub clock: VirtualClock,
    /// Duration of an all-reduce.
    pub all_reduce: Duration,
    /// The instant that stands for the beginning of virtual time where a hook is called. The same at all trainers.
    pub origin: Instant,
}

/// Training operator whose steps are those of its group: the gradients of all trainers are all-reduced before each.
#[derive(Debug)]
pub(crate) struct GroupTraining {
    pub(crate) inner: Box<dyn Training>,
    pub(crate) exchange: Box<dyn Exchange>,
    pub(crate) division: Arc<dyn Division>,
    pub(crate) stop: Option<StopTogether>,
    pub(crate) observe: Option<AllReduceHook>,
    /// Bytes from which on a bucket of gradients is all-reduced while backward goes on; 0 all-reduces all of them after it.
    pub(crate) bucket_bytes: usize,
    pub(crate) virtual_steps: Option<VirtualSteps>,
    /// Lengths of the gradients' buckets; empty before the first step.
    pub(crate) buckets: Vec<usize>,
    /// The gradients, tensor after tensor.
    pub(crate) values: Vec<f32>,
    /// The last step's epoch, and its end.
    pub(crate) last: Option<(u32, Instant)>,
}

/// Statistics of a step that each trainer all-gathers, besides the all-reduced gradients.
#[derive(Debug, Clone, Copy, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct StepStatistics {
    epoch: u32,
    index: u32,
    loss_sum: f64,
    correct: u64,
    /// Seeds with a label.
    labelled: u64,
    /// Seeds whose gradients are summed.
    count: u64,
    /// From the end of the last step to that of training on the share.
    seconds: f64,
    /// When training on the share ended in virtual time, in nanoseconds; 0 in real time.
    ended: u64,
    stop: u64,
}

impl GroupTraining {
    /// Accumulates the share, and all-reduces gradients meanwhile; `self.values` has the sums over all trainers.
    fn accumulate_together(&mut self, batch: &MiniBatch) -> Result<(Score, Measured, Reduced)> {
        if self.buckets.is_empty() {
            let tensors = self.inner.gradients()?.tensors;
            self.buckets = buckets(&tensors, self.bucket_bytes);
            self.values = vec![0.0; tensors.iter().map(|tensor| tensor.values.len()).sum()];
        }
        let inner = &mut self.inner;
        let accumulate = |complete: GradientReady<'_>| accumulate_share(&mut **inner, batch, complete)?.measured();
        let reduced = all_reduce_while(&mut *self.exchange, &mut self.values, &self.buckets, accumulate)?;
        let ((score, measured), reduced) = reduced;
        Ok((score, measured, reduced.map_err(|e| Error::failed(batch.id(), e))?))
    }

    /// Steps with the gradients of all trainers, `seconds` after the last step. Returns the score of the whole mini-batch, and the
    /// instant at which the step is done in virtual time.
    fn step_together(
        &mut self,
        batch: &MiniBatch,
        score: Score,
        (seconds, ended): (f64, Duration),
        reduced: &Reduced,
    ) -> Result<(Score, Handle<()>, Counters, Duration)> {
        let mut gradients = self.inner.gradients()?;
        let id = batch.id();
        let stop = self.stop.as_ref().is_some_and(|stop| (stop.requested)());
        let own = StepStatistics {
            epoch: id.epoch,
            index: id.index,
            loss_sum: score.loss_sum,
            correct: score.correct,
            labelled: score.count,
            count: gradients.count,
            seconds,
            ended: ended.as_nanos() as u64,
            stop: u64::from(stop),
        };
        let start = Instant::now();
        let all = self.exchange.all_gather(bytemuck::bytes_of(&own)).and_then(|all| read(&all, own));
        let all = all.map_err(|e| Error::failed(id, e))?;
        let last = Duration::from_nanos(all.iter().map(|t| t.ended).max().unwrap_or(0));
        let done = last + self.virtual_steps.as_ref().map_or(Duration::ZERO, |steps| steps.all_reduce);
        let (start, end, total) = match &self.virtual_steps {
            Some(steps) => (steps.origin + ended, steps.origin + done, done.saturating_sub(ended)),
            None => (start, Instant::now(), reduced.total + start.elapsed()),
        };
        if let Some(AllReduceHook(observe)) = &self.observe {
            reduced.spans.iter().chain([&(start, end)]).for_each(|&(from, to)| observe(id, from, to));
        }
        let micros = total.as_micros() as u64;
        gradients.count = all.iter().map(|t| t.count).sum();
        let mut rest = &self.values[..];
        for tensor in &mut gradients.tensors {
            let (own, others) = rest.split_at(tensor.values.len());
            tensor.values.copy_from_slice(own);
            rest = others;
        }
        self.inner.set_gradients(&gradients)?;
        let step = self.inner.step()?;
        let seconds: Vec<f64> = all.iter().map(|t| t.seconds).collect();
        self.division.observe(id, &seconds)?;
        if let Some(stop) = self.stop.as_ref().filter(|_| all.iter().any(|t| t.stop != 0)) {
            (stop.stop)();
        }
        let mut score = Score::default();
        all.iter().for_each(|t| score += Score { loss_sum: t.loss_sum, correct: t.correct, count: t.labelled });
        let longest = seconds.iter().copied().fold(0.0, f64::max);
        let behind = longest - seconds.iter().sum::<f64>() / seconds.len() as f64;
        let counters = Counters::NONE
            .with(&EXCHANGE_MICROS, micros)
            .with(&EXCHANGE_HIDDEN_MICROS, reduced.hidden.as_micros() as u64)
            .with(&IMBALANCE_MICROS, (behind * 1e6) as u64);
        Ok((score, step, counters, done))
    }

    /// In virtual time, the instants at which the last step of the epoch was done, or else this one begins, and at which this trainer's
    /// own work on its share is done, which takes so long; zero in real time.
    fn own_work(&self, epoch: u32, busy: Duration) -> (Duration, Duration) {
        let Some(VirtualSteps { clock, origin, .. }) = &self.virtual_steps else { return Default::default() };
        let ended = clock.now() + busy;
        let last = self.last.filter(|(of, _)| *of == epoch).map(|(_, end)| end.saturating_duration_since(*origin));
        // An epoch that is gone on with counts from 0 again.
        (last.filter(|last| *last <= ended).unwrap_or_else(|| clock.now()), ended)
    }
}

/// As [`Training::accumulate_last`]; an empty share leaves the gradients as they are.
fn accumulate_share(inner: &mut dyn Training, batch: &MiniBatch, complete: GradientReady<'_>) -> Result<Handle<Score>> {
    if batch.num_seeds() > 0 {
        return inner.accumulate_last(batch, complete);
    }
    inner.gradients()?.hand_over(complete);
    Ok(Handle::ready(Score::default(), Duration::ZERO))
}

/// Statistics of all trainers, by rank; an error where one is at another mini-batch.
fn read(all: &[Vec<u8>], own: StepStatistics) -> crate::Result<Vec<StepStatistics>> {
    let mut read = Vec::with_capacity(all.len());
    for (rank, bytes) in all.iter().enumerate() {
        let differs = |what: String| Err(GroupError::Differs { rank, what });
        match bytemuck::try_pod_read_unaligned::<StepStatistics>(bytes) {
            Ok(t) if (t.epoch, t.index) == (own.epoch, own.index) => read.push(t),
            Ok(t) => {
                let what = format!(
                    "mini-batch {} of epoch {}, another trains mini-batch {} of epoch {}",
                    t.index, t.epoch, own.index, own.epoch
                );
                return differs(what);
            }
            Err(_) => return differs("it makes another call".to_string()),
        }
    }
    Ok(read)
}

impl TrainingWrapper for GroupTraining {
    fn inner(&self) -> &dyn Training {
        &*self.inner
    }

    fn inner_mut(&mut self) -> &mut dyn Training {
        &mut *self.inner
    }

    fn accumulate(&mut self, batch: &MiniBatch) -> Result<Handle<Score>> {
        match batch.num_seeds() {
            0 => Ok(Handle::ready(Score::default(), Duration::ZERO)),
            _ => self.inner.accumulate(batch),
        }
    }

    fn accumulate_last(&mut self, batch: &MiniBatch, complete: GradientReady<'_>) -> Result<Handle<Score>> {
        accumulate_share(&mut *self.inner, batch, complete)
    }

    /// A step ends with the exchange of all trainers; none is pending beside it.
    fn queue_depth(&self) -> usize {
        1
    }

    /// The score is that of the whole mini-batch, at every trainer; the duration is this trainer's, without exchanges.
    ///
    /// What the division observes is the time since the last step, which all trainers end together: it contains the wait for a
    /// share whose batching or transferring takes longer than training. The first step of an epoch has no such wait.
    fn train(&mut self, batch: &MiniBatch) -> Result<Handle<Score>> {
        let mut together = || {
            let sent = self.exchange.bytes_sent();
            let last = self.last.filter(|(epoch, _)| *epoch == batch.id().epoch);
            let start = last.map_or_else(Instant::now, |(_, end)| end);
            let (own, accumulating, reduced) = self.accumulate_together(batch)?;
            let (last, ended) = self.own_work(batch.id().epoch, accumulating.busy);
            let seconds = match self.virtual_steps {
                Some(_) => ended - last,
                None => reduced.work_ended.saturating_duration_since(start),
            };
            let of_share = (seconds.as_secs_f64(), ended);
            let (score, step, exchanged, done) = self.step_together(batch, own, of_share, &reduced)?;
            let ((), stepping) = step.measured()?;
            let end = self.virtual_steps.as_ref().map_or_else(Instant::now, |steps| steps.origin + done);
            self.last = Some((batch.id().epoch, end));
            let mut counters = accumulating.counters.with(&EXCHANGE_BYTES, self.exchange.bytes_sent() - sent);
            counters += exchanged;
            counters += stepping.counters;
            let (busy, waited) = (accumulating.busy + stepping.busy, done.saturating_sub(ended));
            Ok(Handle::ready_after(score, busy, waited).counting(counters))
        };
        let trained: Result<_> = together();
        if let Err(e) = &trained {
            self.exchange.leave(&e.to_string());
        }
        trained
    }
}
