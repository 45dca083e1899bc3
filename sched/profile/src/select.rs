//! Choosing among training operators at the same place: whole mini-batches of each are timed, by turns.

use std::time::Instant;

use morphgl_registry::{BatchId, Batching, BatchingWorker, MiniBatch, Place, Route, Training, Transferring};

use crate::compare::{self, Ahead, ROUNDS, State, Times};
use crate::memory::Seen;
use crate::profile::on_host;
use crate::selection::{CandidateProfile, Outcome, Selection};
use crate::training::Snapshot;
use crate::{Error, ErrorKind, Progress, Result, Settings, Statistics, Watch, pool};

/// Share of the time for all of profiling that the choice may take, beside the first two mini-batches of each operator.
const SHARE: f64 = 0.6;
/// The first step of an operator is taken to need no more memory than this many times the most that one of another needed;
/// up to 5 was measured.
const MEMORY: u64 = 6;

/// A training operator that can train a job, and who brings its mini-batches in the form that it needs.
#[derive(Debug)]
pub struct Candidate<'a> {
    /// Keys and places.
    pub route: &'a Route,
    /// Who batches: with features where the operator needs them. Several candidates may share one.
    pub batching: &'a dyn Batching,
    /// Who transfers.
    pub transferring: &'a mut dyn Transferring,
    /// Who trains. Parameters and optimizer state are the same afterwards as before; no gradients are left.
    pub training: &'a mut dyn Training,
}

/// Chooses the training operator with the fastest mini-batches, of several at the same place.
///
/// What is timed is a whole mini-batch, batched, transferred and trained one after the other, each with all cores: so what an
/// operator saves or costs in batching, as by reading features itself, counts. The same mini-batches are trained by all, by
/// turns; one that cannot win any more is given up, a hopeless one after its first step. That first step, in which an operator
/// allocates its memory, counts for nothing else.
///
/// The first mini-batch of each is timed whatever it takes, the second if it fits in the time for all of profiling,
/// the third and fourth too where two operators are within 1.3 of each other; further ones while they fit in 0.6 of that time
/// and in the budget.
/// One that fails, or does not fit in `watch.memory`, is left out and says why.
///
/// # Errors
///
/// Batching or transferring failed, `stop` said so, or no candidate can train: the first one's failure.
///
/// # Panics
///
/// Without a candidate.
pub fn select(
    candidates: &mut [Candidate<'_>],
    settings: &Settings,
    watch: &Watch<'_>,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Selection> {
    let start = Instant::now();
    let place = candidates[0].route.trained_at.clone();
    if let [only] = candidates {
        return Ok(Selection::only(place, only.route.training.clone(), settings.cores));
    }
    let number = candidates.len();
    let num_batches = candidates[0].batching.num_batches();
    let mut runs = Vec::new();
    for candidate in candidates {
        runs.push(Run::new(candidate, settings.cores));
    }
    let mut seen = Seen::new(watch.memory);
    let mut most = 0;
    let times = compare::compare(
        number,
        |Ahead { round, fastest, close }| {
            let in_all = settings.in_all(fastest * num_batches as f64);
            // First steps are a poor guide: one more of each is worth all of the time. So are two beyond it where operators are
            // close, for the wrong one would be slower in every epoch.
            let all = round == 1 || close && round <= 3;
            if all { in_all } else { in_all.mul_f64(SHARE).min(settings.budget) }.as_secs_f64()
        },
        |i, round| {
            if (watch.stop)() {
                return Err(Error::stopped());
            }
            let what = format!("comparing {}", runs[i].candidate.route.training);
            progress(&Progress { what, done: round, total: ROUNDS + 1 });
            let id =
                BatchId { epoch: settings.epoch, index: (round % pool::usable(runs[i].candidate.batching)) as u32 };
            if round > 0 {
                // Memory is not asked for again: what was freed would be given back, and the step slower for it.
                return runs[i].step(id);
            }
            let (fits, room) = seen.has_room_for(MEMORY * most);
            if !fits {
                runs[i].reason = Some(format!("it may not fit in memory: {} MiB are left for a step", room >> 20));
                return Ok(None);
            }
            let (seconds, grown) = seen.growth(|| runs[i].step(id));
            most = most.max(grown);
            seconds
        },
    );
    let failed = |times: &Result<Vec<Times>>, i: usize| times.as_ref().map_or(true, |t| t[i].state == State::Out);
    let restored: Vec<Result<()>> =
        runs.iter_mut().enumerate().map(|(i, run)| run.put_back(failed(&times, i))).collect();
    let times = times?;
    let Some(chosen) = compare::fastest(&times) else {
        let first = runs.iter_mut().find_map(|run| run.failure.take());
        return Err(first.unwrap_or_else(|| Error::operators(place, "no operator can train here".to_string())));
    };
    restored.into_iter().nth(chosen).expect("one a candidate")?;
    let profile = |(i, (run, times)): (usize, (&Run<'_, '_>, &Times))| run.profile(times, i == chosen);
    let mut candidates: Vec<_> = runs.iter().zip(&times).enumerate().map(profile).collect();
    candidates.sort_by_key(|c| c.outcome == Outcome::Unable);
    Ok(Selection {
        place,
        chosen: runs[chosen].candidate.route.training.clone(),
        threads: settings.cores,
        candidates,
        seconds: start.elapsed().as_secs_f64(),
    })
}

/// A candidate on its way through the comparison.
struct Run<'r, 'a> {
    candidate: &'r mut Candidate<'a>,
    threads: usize,
    worker: Option<Box<dyn BatchingWorker>>,
    /// The last mini-batch, whose memory is used again.
    recycled: Option<MiniBatch>,
    before: Option<Snapshot>,
    /// Seconds of training of each step.
    training: Vec<f64>,
    failure: Option<Error>,
    reason: Option<String>,
}

impl<'r, 'a> Run<'r, 'a> {
    fn new(candidate: &'r mut Candidate<'a>, threads: usize) -> Self {
        let (worker, recycled, before, failure, reason) = (None, None, None, None, None);
        Self { candidate, threads, worker, recycled, before, training: Vec::new(), failure, reason }
    }

    /// Seconds of a mini-batch; `None`, and the reason is kept, where the training operator failed.
    fn step(&mut self, id: BatchId) -> Result<Option<f64>> {
        let Candidate { route, batching, transferring, training } = &mut *self.candidate;
        let (route, key) = (*route, &route.training);
        if self.before.is_none() {
            let threads = self.threads;
            let ready = Error::catch(key, || {
                training.set_threads(threads)?;
                Snapshot::of(*training)
            });
            match ready {
                Ok(before) => self.before = Some(before),
                Err(e) => return Ok(self.fails(e)),
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
            Err(e) => return Ok(self.fails(e)),
        };
        self.training.push(trained.as_secs_f64());
        self.recycled = Some(batch).filter(|b| b.place() == Place::Host && route.batched_at == Place::Host);
        Ok(Some((batched + transferred + trained).as_secs_f64()))
    }

    fn fails(&mut self, e: Error) -> Option<f64> {
        self.reason = Some(match &e.kind {
            ErrorKind::Operator(source) => source.to_string(),
            _ => e.to_string(),
        });
        self.failure = Some(e);
        None
    }

    fn put_back(&mut self, failed: bool) -> Result<()> {
        let Candidate { route, training, .. } = &mut *self.candidate;
        self.before.take().map_or(Ok(()), |before| before.put_back(*training, &route.training, failed))
    }

    fn profile(&self, times: &Times, chosen: bool) -> CandidateProfile {
        let training = self.candidate.route.training.clone();
        let statistics = |samples: &[f64]| (!samples.is_empty()).then(|| Statistics::of(samples.to_vec()));
        let outcome = match times.state {
            State::Running if chosen => Outcome::Chosen,
            State::Running => Outcome::Slower,
            State::GivenUp => Outcome::GivenUp,
            State::Out => Outcome::Unable,
        };
        CandidateProfile {
            training,
            outcome,
            reason: self.reason.clone(),
            first: times.first,
            seconds: statistics(&times.samples),
            training_seconds: statistics(self.training.get(1..).unwrap_or_default()),
        }
    }
}
