//! The coordinator: tells lanes what to do as the schedule's order allows, and hears what they have done.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use crossbeam::channel::RecvTimeoutError;
use morphgl_plan::{Begun, Phase, Replay, Step};
use morphgl_registry::{BatchId, Key, MiniBatch, Place};

use crate::buffers::Buffers;
use crate::lane::{Done, Operator, Work};
use crate::lanes::{Lanes, Role};
use crate::tally::Tally;
use crate::worker::edges;
use crate::{Activity, BatchDone, Control, EpochReport, Error, ErrorKind, Event, Result, Span, Stop};

/// Number of training's lane: the first.
const TRAINING: usize = 0;

/// Who hears of everything that has ended.
pub(crate) type Observe<'a> = &'a mut dyn FnMut(&Event<'_>) -> Control;

/// What it all is about.
pub(crate) struct Job<'a> {
    pub(crate) epoch: u32,
    /// Indices of the mini-batches by position.
    pub(crate) batches: &'a [u32],
    pub(crate) limit: Option<Duration>,
    pub(crate) start: Instant,
}

/// A mini-batch between batching and the end of training.
struct Held {
    /// `None` while a lane has it.
    batch: Option<MiniBatch>,
    /// Where batching put it.
    place: Place,
    seeds: usize,
    edges: usize,
    worker: usize,
    batching: Span,
    transferring: Span,
}

/// A step that a lane is at.
struct UnderWay {
    begun: Begun,
    id: BatchId,
    lane: usize,
    worker: usize,
    since: Instant,
    /// Mini-batches that were ready when training took this one.
    ready: usize,
}

/// Owns all that is in flight. Single-threaded; it sleeps on one channel.
pub(crate) struct Engine<'a> {
    job: Job<'a>,
    lanes: Lanes,
    replay: Replay,
    buffers: Buffers,
    tally: Tally,
    /// Lanes of each share's transferring; `None` where it has no mini-batch.
    transferring: Vec<Option<usize>>,
    /// Lanes of each share's workers.
    workers: Vec<Vec<usize>>,
    /// Workers of each share that have nothing to do.
    idle: Vec<Vec<usize>>,
    /// By position.
    held: HashMap<u32, Held>,
    under_way: Vec<UnderWay>,
    /// Positions of the mini-batches that training's lane was told of before their training begins: its operator queues them
    /// behind the one it is at.
    ahead: VecDeque<u32>,
    /// By position.
    trained: Vec<bool>,
    stopped: bool,
    failure: Option<Error>,
}

/// What an engine gives back: who worked in each lane, the spares of each share, and what the run came to.
pub(crate) struct Closed {
    pub(crate) lanes: Vec<(Role, std::result::Result<Operator, Key>)>,
    pub(crate) spares: Vec<Vec<MiniBatch>>,
    pub(crate) report: Result<EpochReport>,
}

impl<'a> Engine<'a> {
    /// With a `failure` nothing will begin.
    pub(crate) fn new(
        job: Job<'a>,
        (lanes, failure): (Lanes, Option<Error>),
        replay: Replay,
        buffers: Buffers,
        tally: Tally,
    ) -> Self {
        let shares = 0..buffers.shares();
        let workers: Vec<Vec<usize>> = shares.clone().map(|s| lanes.of(Role::Worker(s)).collect()).collect();
        Self {
            transferring: shares.map(|s| lanes.of(Role::Transferring(s)).next()).collect(),
            idle: workers.iter().map(|w| (0..w.len()).rev().collect()).collect(),
            workers,
            // All memory is taken before the first mini-batch; a table half full is never made anew.
            held: HashMap::with_capacity(2 * buffers.places().min(job.batches.len())),
            under_way: Vec::with_capacity(lanes.count()),
            ahead: VecDeque::with_capacity(lanes.ahead(TRAINING)),
            trained: vec![false; job.batches.len()],
            job,
            lanes,
            replay,
            buffers,
            tally,
            stopped: false,
            failure,
        }
    }

    /// Runs until nothing is under way and nothing may begin.
    pub(crate) fn run(&mut self, stop: &Stop, observe: Observe<'_>) {
        loop {
            self.stopped |= stop.is_requested();
            if self.failure.is_none() && !self.stopped {
                while let Some(begun) = self.replay.begin() {
                    self.begin(begun);
                }
                self.tell_ahead();
            } else {
                self.begin_told();
            }
            if self.under_way.is_empty() {
                return;
            }
            self.wait(observe);
        }
    }

    /// Waits for what is under way, after [`Engine::run`] panicked because the observer did.
    pub(crate) fn drain(&mut self) {
        self.stopped = true;
        loop {
            self.begin_told();
            if self.under_way.is_empty() {
                return;
            }
            self.wait(&mut |_| Control::Continue);
        }
    }

    /// Ends all lanes.
    pub(crate) fn close(self) -> Closed {
        assert!(self.under_way.is_empty(), "{} steps are under way at the end", self.under_way.len());
        let lanes = self.lanes.end();
        let peak = self.buffers.peak;
        let spares = self.buffers.into_spares();
        if let Some(failure) = self.failure {
            return Closed { lanes, spares, report: Err(failure) };
        }
        let left = self.trained.iter().zip(self.job.batches).filter(|(trained, _)| !**trained);
        let mut remaining: Vec<u32> = left.map(|(_, &index)| index).collect();
        remaining.sort_unstable();
        if !self.stopped {
            // Whatever has begun was trained; what has not was cut off.
            assert_eq!(self.replay.trained(), self.replay.begun(), "mini-batches trained, and begun");
        }
        let stopped = self.stopped && !remaining.is_empty();
        let seconds = self.job.start.elapsed().as_secs_f64();
        Closed { lanes, spares, report: Ok(self.tally.finish(seconds, stopped, peak, remaining)) }
    }

    fn begin(&mut self, begun: Begun) {
        let Begun { step: step @ Step { share, phase }, batch: position, .. } = begun;
        let id = BatchId { epoch: self.job.epoch, index: self.job.batches[position as usize] };
        let spare = self.buffers.begin(step);
        let mut take = || {
            let held = self.held.get_mut(&position).expect("what is batched is held");
            Some(held.batch.take().expect("no other lane has it"))
        };
        let (lane, worker, batch) = match phase {
            Phase::Batching => {
                let worker = self.idle[share].pop().expect("the schedule begins as much batching as it has workers");
                (self.workers[share][worker], worker, spare)
            }
            Phase::Transferring => (self.transferring[share].expect("a share with mini-batches has a lane"), 0, take()),
            Phase::Training => {
                let told = self.ahead.pop_front();
                assert!(told.is_none_or(|told| told == position), "training's lane was told of another mini-batch");
                (TRAINING, 0, if told.is_some() { None } else { take() })
            }
        };
        let ready = self.replay.ready();
        self.under_way.push(UnderWay { begun, id, lane, worker, since: Instant::now(), ready });
        if phase == Phase::Batching || batch.is_some() {
            self.lanes.lane(lane).tell(id, batch);
        }
    }

    /// Tells training's lane of the mini-batches that it trains on next and that are ready, as far as its operator takes them.
    fn tell_ahead(&mut self) {
        while self.ahead.len() < self.lanes.ahead(TRAINING) {
            let Some(position) = self.replay.next_training(self.ahead.len()) else { return };
            let id = BatchId { epoch: self.job.epoch, index: self.job.batches[position as usize] };
            let batch = self.held.get_mut(&position).and_then(|held| held.batch.take());
            self.lanes.lane(TRAINING).tell(id, Some(batch.expect("what is ready is held")));
            self.ahead.push_back(position);
        }
    }

    /// Begins training that its lane was told of, which cannot be taken back.
    fn begin_told(&mut self) {
        if !self.ahead.is_empty() {
            self.replay.begin_training().into_iter().for_each(|begun| self.begin(begun));
        }
    }

    /// Sleeps until a lane reports, or one has taken too long.
    fn wait(&mut self, observe: Observe<'_>) {
        let first = self.under_way.iter().map(|u| u.since).min();
        let deadline = first.zip(self.job.limit).and_then(|(first, limit)| first.checked_add(limit));
        let done = match deadline {
            Some(deadline) => self.lanes.done().recv_deadline(deadline),
            None => self.lanes.done().recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match done {
            Ok(done) => self.hear(done, observe),
            Err(RecvTimeoutError::Timeout) => self.give_up(),
            Err(RecvTimeoutError::Disconnected) => panic!("lanes that owe a report have ended"),
        }
    }

    /// Gives up every lane that has taken longer than the limit.
    fn give_up(&mut self) {
        let limit = self.job.limit.expect("only a limit can be passed");
        let (late, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.under_way).into_iter().partition(|u| u.since.elapsed() >= limit);
        self.under_way = rest;
        for UnderWay { lane, id, .. } in late {
            self.forget_told(lane);
            let operator = Some(Box::new(self.lanes.give_up(lane)));
            self.failure.get_or_insert(Error { operator, batch: Some(id), kind: ErrorKind::Hangs(limit) });
        }
    }

    fn hear(&mut self, Done { lane, outcome, span }: Done, observe: Observe<'_>) {
        let Some(at) = self.under_way.iter().position(|u| u.lane == lane) else {
            // A lane that was given up has answered after all, too late.
            return;
        };
        let under_way = self.under_way.swap_remove(at);
        match outcome {
            Ok(work) => self.ended(under_way, work, span, observe),
            Err(error) => {
                if let ErrorKind::Panicked(_) = error.kind {
                    self.forget_told(lane);
                }
                if !self.ahead.is_empty() && lane == TRAINING {
                    // What its operator has queued behind the mini-batch that failed is trained all the same, and told of.
                    self.replay.end(under_way.begun);
                }
                // Of several failures, the first is told.
                self.failure.get_or_insert(error);
            }
        }
    }

    /// Expects nothing more of a lane that has ended, or was given up.
    fn forget_told(&mut self, lane: usize) {
        if lane == TRAINING {
            self.ahead.clear();
        }
    }

    fn ended(&mut self, under_way: UnderWay, work: Work, span: Span, observe: Observe<'_>) {
        let UnderWay { begun, id, worker, ready, .. } = under_way;
        let Begun { step: Step { share, phase }, batch: position, .. } = begun;
        let Work { batch, score, measured } = work;
        self.replay.end(begun);
        let mut held = match phase {
            Phase::Batching => {
                self.idle[share].push(worker);
                let (place, seeds, edges) = (batch.place(), batch.num_seeds(), edges(&batch));
                Held { batch: None, place, seeds, edges, worker, batching: span, transferring: Span::default() }
            }
            _ => self.held.remove(&position).expect("what is batched is held"),
        };
        let activity = Activity { id, share, phase, worker, span };
        let trained = match phase {
            Phase::Training => {
                self.trained[position as usize] = true;
                let Held { place, seeds, edges, worker, batching, transferring, .. } = held;
                self.buffers.trained(share, (batch.place() == place).then_some(batch));
                let waited = self.tally.waited(span);
                let left = self.trained.len() - self.replay.begun() as usize;
                let training = span;
                Some(BatchDone {
                    id,
                    share,
                    seeds,
                    edges,
                    score,
                    worker,
                    batching,
                    transferring,
                    training,
                    waited,
                    ready,
                    left,
                })
            }
            Phase::Batching | Phase::Transferring => {
                if phase == Phase::Transferring {
                    held.transferring = span;
                }
                held.batch = Some(batch);
                self.held.insert(position, held);
                None
            }
        };
        self.tally.ended(activity, measured.counters);
        let mut tell = |event: Event<'_>| {
            if observe(&event) == Control::Cut {
                self.replay.cut();
            }
        };
        tell(Event::Ended(activity));
        if let Some(done) = trained {
            self.tally.trained(&done);
            tell(Event::Trained(done));
        }
    }
}
