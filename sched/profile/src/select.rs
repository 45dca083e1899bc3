//! The choice among training operators at the same place: whole mini-batches of each are timed, alternately.

use std::time::Instant;

use morphgl_registry::{BatchId, BatchingWorker, Key, MiniBatch, Operators, Place, RouteOperators, TrainingOperator};

use crate::budget::check_stop;
use crate::compare::{self, ROUNDS, State, StepTimes};
use crate::memory::MemoryMonitor;
use crate::profile::on_host;
use crate::selection::{CandidateProfile, Outcome, Selection};
use crate::training::Snapshot;
use crate::{Error, ErrorKind, Progress, Result, Settings, Statistics, Watch, pool};

/// Fraction of the time for all of profiling that the choice may take, besides the first two mini-batches of each
/// operator.
const SHARE: f64 = 0.6;
/// Factor to the peak memory of the other operators' first steps that an operator's first step is assumed to need at most; up to
/// 5 was measured.
const MEMORY: u64 = 6;

/// Chooses the training operator with the fastest mini-batches, of those at the same place that `routes`, indices of
/// `operators.routes`, lead to.
///
/// A sample is a whole mini-batch: batched, transferred and trained. The crate's README describes the comparison.
/// An operator that fails, or does not fit in `watch.memory`, is excluded, with the reason.
/// Parameters and optimizer state are the same afterwards as before; no gradients are left.
///
/// # Errors
///
/// Batching or transferring failed, a stop was requested, or no candidate can train: the first one's failure.
///
/// # Panics
///
/// Without a route, or with one whose training operator is not among `operators.trainers`.
pub fn select(
    operators: &mut Operators,
    routes: &[usize],
    settings: &Settings,
    watch: &Watch<'_>,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Selection> {
    let start = Instant::now();
    let first = &operators.routes[routes[0]];
    let (place, num_batches) = (first.route.trained_at.clone(), first.batching.num_batches());
    if let [only] = routes {
        return Ok(Selection::only(place, operators.routes[*only].route.training.clone(), settings.cores));
    }
    let candidate = |&route: &usize| {
        let trainer = operators.trainer(&operators.routes[route].route).expect("a route leads to a training operator");
        Candidate { route, trainer, threads: settings.cores, ..Candidate::default() }
    };
    let mut candidates: Vec<Candidate> = routes.iter().map(candidate).collect();
    let monitor = MemoryMonitor::new(watch.memory);
    let mut most = 0;
    let times = compare::compare(
        candidates.len(),
        |round, fastest, close| {
            let in_all = settings.in_all(fastest * num_batches as f64);
            // First steps predict badly: one more of each may take all of the time. So may two further ones where operators are
            // close, since the wrong one would be slower in every epoch.
            let all = round == 1 || close && round <= 3;
            if all { in_all } else { in_all.mul_f64(SHARE).min(settings.budget) }.as_secs_f64()
        },
        |i, round| {
            check_stop(watch.stop)?;
            let candidate = &mut candidates[i];
            let RouteOperators { route, batching, .. } = &operators.routes[candidate.route];
            let what = format!("comparing {}", route.training);
            progress(&Progress { what, done: round, total: ROUNDS + 1 });
            let index = (round % pool::full_batches(batching.as_ref())) as u32;
            let id = BatchId { epoch: settings.epoch, index };
            if round > 0 {
                // Memory is not measured again: that would release freed memory to the system, and slow the step down.
                return candidate.step(operators, id);
            }
            let available = monitor.available();
            if MEMORY * most > available {
                let text = format!("it may not fit in memory: {} MiB are left for a step", available >> 20);
                return Ok(candidate.fail(Error::operators(&route.training, text)));
            }
            let (seconds, grown) = monitor.growth(|| candidate.step(operators, id));
            most = most.max(grown);
            seconds
        },
    );
    let failed = |i: usize| times.as_ref().map_or(true, |t| t[i].state == State::Failed);
    let restored: Vec<Result<()>> =
        candidates.iter_mut().enumerate().map(|(i, c)| c.restore(operators, failed(i))).collect();
    let times = times?;
    let is_preferred = |c: &Candidate| settings.preferred.contains(&operators.routes[c.route].route.training);
    let preferred = candidates.iter().position(is_preferred);
    let Some(chosen) = compare::fastest(&times, preferred) else {
        return Err(candidates.into_iter().find_map(|c| c.failure).expect("an operator that cannot train failed"));
    };
    restored.into_iter().nth(chosen).expect("one per candidate")?;
    let key = |c: &Candidate| operators.routes[c.route].route.training.clone();
    let profile = |(i, (c, times)): (usize, (&Candidate, &StepTimes))| c.profile(key(c), times, i == chosen);
    let mut profiles: Vec<_> = candidates.iter().zip(&times).enumerate().map(profile).collect();
    profiles.sort_by_key(|c| c.outcome == Outcome::Unable);
    Ok(Selection {
        place,
        chosen: key(&candidates[chosen]),
        threads: settings.cores,
        candidates: profiles,
        seconds: start.elapsed().as_secs_f64(),
    })
}

/// A training operator during the comparison, with the route that leads to it.
#[derive(Default)]
struct Candidate {
    route: usize,
    trainer: usize,
    threads: usize,
    worker: Option<Box<dyn BatchingWorker>>,
    /// The last mini-batch, whose memory is used again.
    recycled: Option<MiniBatch>,
    before: Option<Snapshot>,
    /// Seconds of training of each step.
    training: Vec<f64>,
    failure: Option<Error>,
}

impl Candidate {
    /// Seconds of a mini-batch; `None`, and the failure is kept, where the training operator failed.
    fn step(&mut self, operators: &mut Operators, id: BatchId) -> Result<Option<f64>> {
        let RouteOperators { route, batching, transferring } = &mut operators.routes[self.route];
        let TrainingOperator { key, operator: training, .. } = &mut operators.trainers[self.trainer];
        if self.before.is_none() {
            let threads = self.threads;
            let ready = Error::catch(key, || {
                training.set_threads(threads)?;
                Snapshot::of(training.as_ref())
            });
            match ready {
                Ok(before) => self.before = Some(before),
                Err(e) => return Ok(self.fail(e)),
            }
        }
        let worker = match &mut self.worker {
            Some(worker) => worker,
            none => {
                let threads = if on_host(&route.batching) { self.threads } else { 1 };
                none.insert(Error::catch(&route.batching, || batching.worker(threads))?)
            }
        };
        let recycled = self.recycled.take();
        let (batch, batched) = Error::catch(&route.batching, || worker.prepare(id, recycled)?.wait())?;
        let (batch, transferred) = Error::catch(&route.transferring, || transferring.transfer(batch)?.wait())?;
        let trained = match Error::catch(key, || training.train(&batch)?.wait()) {
            Ok((_, took)) => took,
            Err(e) => return Ok(self.fail(e)),
        };
        self.training.push(trained.as_secs_f64());
        self.recycled = Some(batch).filter(|b| b.place() == Place::Host && route.batched_at == Place::Host);
        Ok(Some((batched + transferred + trained).as_secs_f64()))
    }

    fn fail(&mut self, failure: Error) -> Option<f64> {
        self.failure = Some(failure);
        None
    }

    fn restore(&mut self, operators: &mut Operators, failed: bool) -> Result<()> {
        let TrainingOperator { key, operator, .. } = &mut operators.trainers[self.trainer];
        self.before.take().map_or(Ok(()), |before| before.restore(operator.as_mut(), key, failed))
    }

    fn profile(&self, training: Key, times: &StepTimes, chosen: bool) -> CandidateProfile {
        let reason = |e: &Error| match &e.kind {
            ErrorKind::Operator(source) => source.to_string(),
            ErrorKind::Operators(text) => text.clone(),
            _ => e.to_string(),
        };
        let statistics = |samples: &[f64]| (!samples.is_empty()).then(|| Statistics::of(samples.to_vec()));
        let outcome = match times.state {
            State::Running if chosen => Outcome::Chosen,
            State::Running => Outcome::Slower,
            State::Abandoned => Outcome::Abandoned,
            State::Failed => Outcome::Unable,
        };
        CandidateProfile {
            training,
            outcome,
            reason: self.failure.as_ref().map(reason),
            first: times.first,
            seconds: statistics(&times.samples),
            training_seconds: statistics(self.training.get(1..).unwrap_or_default()),
        }
    }
}
