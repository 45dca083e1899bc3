//! The event loop of an epoch: sends mini-batches to lanes as the schedule's order allows, and receives their answers.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use crossbeam::channel::RecvTimeoutError;
use morphgl_plan::{Begun, Phase, Replay, Schedule, Step};
use morphgl_registry::{BatchId, Counters, MiniBatch, Place, VirtualClock};

use crate::buffers::Buffers;
use crate::clock::Clock;
use crate::lane::{Answer, Output, Work};
use crate::lanes::Lanes;
use crate::operators::ExecutorOperators;
use crate::tally::Tally;
use crate::{
    Activity, BatchDone, Control, EpochReport, Error, ErrorKind, Event, Result, Settings, Span, Stop, TrainingState,
};

/// Number of training's lane: the first.
const TRAINING: usize = 0;

/// The caller's function for events.
pub(crate) type Observe<'a> = &'a mut dyn FnMut(&Event<'_>) -> Control;

/// A mini-batch between batching and the end of training.
struct InFlight {
    /// `None` while a lane has it.
    batch: Option<MiniBatch>,
    /// The place where batching put it.
    place: Place,
    edges: usize,
    /// Counters of batching and of transferring.
    counters: [Counters; 2],
}

/// A step that a lane works on.
struct Running {
    begun: Begun,
    id: BatchId,
    lane: usize,
    worker: usize,
    /// Start, by the clock of the time limit.
    since: Duration,
    /// Start, by the clock of virtual time.
    from: Duration,
}

/// Virtual time: the ends of phases are handed on in its order.
struct Virtual {
    clock: VirtualClock,
    /// Answers of lanes whose work has not ended yet in virtual time, with the instants of their ends.
    // Invariant: one at most of each lane, whose step is running.
    ends: Vec<(Duration, Answer)>,
}

/// The state of an epoch. Single-threaded; it sleeps on one channel.
pub(crate) struct EpochLoop<'a> {
    epoch: u32,
    /// Indices of the mini-batches by position.
    batches: &'a [u32],
    limit: Option<Duration>,
    clock: Clock,
    /// `None` in real time.
    virtual_time: Option<Virtual>,
    start: Instant,
    /// Seconds of the report that this one continues: lanes count from 0.
    before: f64,
    lanes: Lanes,
    replay: Replay,
    buffers: Buffers,
    tally: Tally,
    /// Lanes of each share: transferring first, then the workers; empty where the share has no mini-batch.
    share_lanes: Vec<Vec<usize>>,
    /// Workers of each share without work.
    idle: Vec<Vec<usize>>,
    /// Mini-batches in flight, by position.
    in_flight: HashMap<u32, InFlight>,
    running: Vec<Running>,
    /// Positions of the mini-batches that training's lane was sent before their training begins: its operator queues them behind
    /// the one in work.
    queued: VecDeque<u32>,
    /// Start of the export that training's lane was asked for, if one is under way.
    exporting: Option<Duration>,
    /// Whether each mini-batch is trained, by position.
    trained: Vec<bool>,
    stopped: bool,
    failure: Option<Error>,
}

/// The present instant since the start.
fn now(virtual_time: &Option<Virtual>, start: Instant) -> Duration {
    virtual_time.as_ref().map_or_else(|| start.elapsed(), |time| time.clock.now())
}

impl<'a> EpochLoop<'a> {
    /// Starts the lanes of the schedule's operators, to train the mini-batches with these indices after those of `so_far`.
    pub(crate) fn new(
        operators: &mut ExecutorOperators,
        (schedule, replay): (&Schedule, Replay),
        (epoch, batches): (u32, &'a [u32]),
        so_far: EpochReport,
        settings: Settings,
        clock: Option<VirtualClock>,
    ) -> Self {
        let start = Instant::now();
        let before = so_far.seconds;
        let buffers = Buffers::new(schedule, operators.take_spares());
        let (lanes, failure) = Lanes::start(start, operators.lend(schedule));
        let share_lanes: Vec<Vec<usize>> = (0..schedule.shares.len()).map(|share| lanes.of_share(share)).collect();
        Self {
            epoch,
            batches,
            limit: settings.limit,
            clock: Clock::new(settings.limit, start),
            virtual_time: clock.map(|clock| {
                clock.set(Duration::ZERO);
                Virtual { clock, ends: Vec::with_capacity(lanes.count()) }
            }),
            start,
            before,
            replay,
            tally: Tally::new(epoch, schedule, settings.record, so_far),
            idle: share_lanes.iter().map(|lanes| (0..lanes.len().saturating_sub(1)).rev().collect()).collect(),
            share_lanes,
            // All memory is allocated before the first mini-batch; a table half full never grows.
            in_flight: HashMap::with_capacity(2 * buffers.total_capacity().min(batches.len())),
            running: Vec::with_capacity(lanes.count()),
            queued: VecDeque::with_capacity(lanes.queue(TRAINING)),
            exporting: None,
            trained: vec![false; batches.len()],
            buffers,
            lanes,
            stopped: false,
            failure,
        }
    }

    /// Runs until nothing is running and nothing may begin.
    pub(crate) fn run(&mut self, stop: &Stop, observe: Observe<'_>) {
        loop {
            self.stopped |= stop.is_requested();
            if self.failure.is_none() && !self.stopped {
                while let Some(begun) = self.replay.begin() {
                    self.begin(begun);
                }
                self.queue_training();
            } else {
                self.begin_queued();
            }
            if self.running.is_empty() && self.exporting.is_none() {
                return;
            }
            self.wait(observe);
        }
    }

    /// Waits for what is running, after [`EpochLoop::run`] panicked because the observer did.
    pub(crate) fn drain(&mut self) {
        self.stopped = true;
        loop {
            self.begin_queued();
            if self.running.is_empty() && self.exporting.is_none() {
                return;
            }
            self.wait(&mut |_| Control::Continue);
        }
    }

    /// Ends all lanes, and returns their operators.
    pub(crate) fn close(self, operators: &mut ExecutorOperators) -> Result<EpochReport> {
        assert!(self.running.is_empty(), "{} steps are running at the end", self.running.len());
        let peak = self.buffers.peak;
        operators.take_back(self.lanes.end(), self.buffers.spares);
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        let left = self.trained.iter().zip(self.batches).filter(|(trained, _)| !**trained);
        let mut remaining: Vec<u32> = left.map(|(_, &index)| index).collect();
        remaining.sort_unstable();
        if !self.stopped {
            // A cut lets every mini-batch that has begun be trained.
            assert_eq!(self.replay.trained(), self.replay.begun(), "mini-batches trained, and begun");
        }
        let stopped = self.stopped && !remaining.is_empty();
        let seconds = self.before + now(&self.virtual_time, self.start).as_secs_f64();
        Ok(self.tally.finish(seconds, stopped, peak, remaining))
    }

    fn id(&self, position: u32) -> BatchId {
        BatchId { epoch: self.epoch, index: self.batches[position as usize] }
    }

    fn take(&mut self, position: u32) -> Option<MiniBatch> {
        let in_flight = self.in_flight.get_mut(&position).expect("a batched mini-batch is in flight");
        Some(in_flight.batch.take().expect("no other lane has it"))
    }

    fn begin(&mut self, begun: Begun) {
        let Begun { step: step @ Step { share, phase }, batch: position, .. } = begun;
        let id = self.id(position);
        let spare = self.buffers.begin(step);
        let (lane, worker, input) = match phase {
            Phase::Batching => {
                let worker = self.idle[share].pop().expect("the schedule begins as much batching as it has workers");
                (self.share_lanes[share][1 + worker], worker, spare)
            }
            Phase::Transferring => (self.share_lanes[share][0], 0, self.take(position)),
            Phase::Training => match self.queued.pop_front() {
                Some(queued) => {
                    assert_eq!(queued, position, "positions of the queued mini-batch and of the one to be trained");
                    (TRAINING, 0, None)
                }
                None => (TRAINING, 0, self.take(position)),
            },
        };
        let since = self.clock.read(Instant::now());
        let from = now(&self.virtual_time, self.start);
        self.running.push(Running { begun, id, lane, worker, since, from });
        if phase == Phase::Batching || input.is_some() {
            self.lanes.lane(lane).send(id, input);
        }
    }

    /// Sends training's lane the ready mini-batches that it trains next, as far as its operator queues them.
    fn queue_training(&mut self) {
        // In virtual time a step begins when the one before has ended.
        if self.virtual_time.is_some() {
            return;
        }
        while self.queued.len() < self.lanes.queue(TRAINING) {
            let Some(position) = self.replay.next_training(self.queued.len()) else { return };
            let (id, batch) = (self.id(position), self.take(position));
            self.lanes.lane(TRAINING).send(id, batch);
            self.queued.push_back(position);
        }
    }

    /// Begins the training that is queued at its lane, which cannot be revoked.
    fn begin_queued(&mut self) {
        if !self.queued.is_empty()
            && let Some(begun) = self.replay.begin_training()
        {
            self.begin(begun);
        }
    }

    /// Asks training's lane for its state, unless that is under way.
    fn export(&mut self) {
        if self.exporting.is_none() && self.failure.is_none() {
            self.lanes.lane(TRAINING).export();
            self.exporting = Some(self.clock.read(Instant::now()));
        }
    }

    /// In virtual time, the next phase to end once all work under way has answered.
    fn next_end(&mut self) -> Option<Answer> {
        let time = self.virtual_time.as_mut().filter(|time| self.exporting.is_none() && !time.ends.is_empty())?;
        if time.ends.len() < self.running.len() {
            return None;
        }
        // Of phases that end at once, that of the first lane is handed on first: the order of the answers has no say.
        let first = (0..time.ends.len()).min_by_key(|&i| (time.ends[i].0, time.ends[i].1.lane));
        let (end, answer) = time.ends.swap_remove(first.expect("there is one"));
        time.clock.set(end);
        Some(answer)
    }

    /// In virtual time, keeps a lane's answer until the work has ended, with the span that it has then.
    fn keep(&mut self, mut answer: Answer) -> Option<Answer> {
        let Some(time) = &mut self.virtual_time else { return Some(answer) };
        let running = self.running.iter().find(|running| running.lane == answer.lane);
        let (Some(running), Ok(Output::Work(work))) = (running, &answer.outcome) else { return Some(answer) };
        let (begin, end) =
            (running.from + work.measured.waited, running.from + work.measured.waited + work.measured.busy);
        answer.span = Span { start: begin.as_secs_f64(), end: end.as_secs_f64() };
        time.ends.push((end, answer));
        None
    }

    /// Sleeps until a lane answers, or a piece of the time limit has passed.
    fn wait(&mut self, observe: Observe<'_>) {
        if let Some(answer) = self.next_end() {
            return self.receive(answer, observe);
        }
        self.clock.read(Instant::now());
        let first = self.running.iter().map(|r| r.since).chain(self.exporting).min();
        let answer = match first.and_then(|first| self.clock.sleep(first)) {
            Some(piece) => self.lanes.answers().recv_timeout(piece),
            None => self.lanes.answers().recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match answer {
            Ok(answer) => {
                if let Some(answer) = self.keep(answer) {
                    self.receive(answer, observe);
                }
            }
            Err(RecvTimeoutError::Timeout) => self.abandon_late(),
            Err(RecvTimeoutError::Disconnected) => panic!("lanes that owe an answer have ended"),
        }
    }

    /// Abandons every lane whose step has passed the time limit.
    fn abandon_late(&mut self) {
        self.clock.read(Instant::now());
        let (clock, limit) = (&self.clock, self.limit.expect("only a limit can be passed"));
        let answered = self.virtual_time.as_ref().map_or(&[][..], |time| &time.ends);
        let has_answered = |lane: usize| answered.iter().any(|(_, answer)| answer.lane == lane);
        let mut late: Vec<(usize, Option<BatchId>)> = Vec::new();
        let is_late = |r: &mut Running| clock.is_late(r.since) && !has_answered(r.lane);
        late.extend(self.running.extract_if(.., is_late).map(|r| (r.lane, Some(r.id))));
        late.extend(self.exporting.filter(|&since| clock.is_late(since)).map(|_| (TRAINING, None)));
        for (lane, id) in late {
            if lane == TRAINING {
                self.training_is_lost();
            }
            let operator = self.lanes.abandon(lane);
            self.failure.get_or_insert(Error::new(Some(&operator), id, ErrorKind::Hangs(limit)));
        }
    }

    /// Expects no further answer of training's lane.
    fn training_is_lost(&mut self) {
        self.queued.clear();
        self.exporting = None;
        self.running.retain(|r| r.lane != TRAINING);
    }

    fn receive(&mut self, Answer { lane, outcome, span }: Answer, observe: Observe<'_>) {
        let span = Span { start: self.before + span.start, end: self.before + span.end };
        if let Ok(Output::State(state)) = outcome {
            return self.exported(&state, observe);
        }
        let index = self.running.iter().position(|r| r.lane == lane);
        // Of training's two answers to a step and to an export, an error that names no mini-batch is the export's.
        let of_export = lane == TRAINING && outcome.as_ref().is_err_and(|e| e.batch.is_none());
        match (outcome, index) {
            (Ok(Output::Work(work)), Some(index)) => {
                let running = self.running.swap_remove(index);
                self.ended(running, work, span, observe);
            }
            (Err(error), _) if of_export && self.exporting.take().is_some() => {
                if error.is_panic() {
                    self.training_is_lost();
                }
                self.failure.get_or_insert(error);
            }
            (Err(error), Some(index)) => {
                let running = self.running.swap_remove(index);
                if lane == TRAINING && error.is_panic() {
                    self.training_is_lost();
                }
                if lane == TRAINING && !self.queued.is_empty() {
                    // Mini-batches that the operator has queued behind the failed one are trained all the same.
                    self.replay.end(running.begun);
                }
                // Of several failures, the first is reported.
                self.failure.get_or_insert(error);
            }
            // An abandoned lane has answered after all, too late.
            (_, None) | (Ok(Output::State(_)), _) => {}
        }
    }

    /// Hands on the state of training. Answers come in the order of sending, so it is the state after all mini-batches that
    /// the report counts.
    fn exported(&mut self, state: &TrainingState, observe: Observe<'_>) {
        if self.exporting.take().is_none() || self.failure.is_some() {
            return;
        }
        let seconds = self.before + now(&self.virtual_time, self.start).as_secs_f64();
        let mut so_far = self.tally.clone().finish(seconds, false, self.buffers.peak, Vec::new());
        so_far.activities.clear();
        self.notify(&Event::Exported(state, &so_far), observe);
    }

    fn notify(&mut self, event: &Event<'_>, observe: Observe<'_>) {
        match observe(event) {
            Control::Continue => {}
            Control::Cut => self.replay.cut(),
            Control::Export => self.export(),
        }
    }

    fn ended(&mut self, running: Running, work: Work, span: Span, observe: Observe<'_>) {
        let Running { begun, id, worker, .. } = running;
        let Begun { step: Step { share, phase }, batch: position, .. } = begun;
        let Work { batch, score, measured } = work;
        self.replay.end(begun);
        let activity = Activity { id, share, phase, worker, span };
        self.tally.ended(activity);
        let mut done = None;
        match phase {
            Phase::Batching => {
                self.idle[share].push(worker);
                let edges = match &batch {
                    MiniBatch::Host(batch) => batch.num_edges(),
                    MiniBatch::Device(_) => 0,
                };
                let counters = [measured.counters, Counters::NONE];
                let in_flight = InFlight { place: batch.place(), batch: Some(batch), edges, counters };
                self.in_flight.insert(position, in_flight);
            }
            Phase::Transferring => {
                let in_flight = self.in_flight.get_mut(&position).expect("a batched mini-batch is in flight");
                in_flight.batch = Some(batch);
                in_flight.counters[1] = measured.counters;
            }
            Phase::Training => {
                let InFlight { place, edges, counters: [batching, transferring], .. } =
                    self.in_flight.remove(&position).expect("a batched mini-batch is in flight");
                self.trained[position as usize] = true;
                let left = self.trained.len() - self.replay.begun() as usize;
                let trained = BatchDone { id, share, seeds: batch.num_seeds(), edges, score, left };
                self.tally.trained(&trained, span, [batching, transferring, measured.counters]);
                self.buffers.trained(share, (batch.place() == place).then_some(batch));
                done = Some(trained);
            }
        }
        for event in [Some(Event::Ended(activity)), done.map(Event::Trained)].into_iter().flatten() {
            self.notify(&event, observe);
        }
    }
}
