//! The event loop of an epoch of devices with roles: sends shares to lanes as the schedule allows, and receives their answers.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam::channel::RecvTimeoutError;
use morphgl_plan::{Phase, RolesReplay, RolesStep, RolesWork};
use morphgl_registry::{BatchId, Counters, HostBatch, MiniBatch, Score};

use super::RolesExecutor;
use super::sums::Sums;
use crate::clock::Clock;
use crate::epoch_loop::Observe;
use crate::lane::{Answer, Output, Work};
use crate::lanes::Lanes;
use crate::{Activity, BatchDone, Control, EpochReport, Error, ErrorKind, Event, Result, Span, Stop};

/// A share between sampling and the end of its training.
struct Share {
    /// `None` while a lane has it.
    batch: Option<MiniBatch>,
    edges: usize,
    /// The device that sampled it.
    sampler: usize,
    /// Counters of sampling and of gathering.
    counters: [Counters; 2],
}

/// What a lane works on.
struct Running {
    lane: usize,
    /// `None` of a device that takes part in a step without a seed.
    step: Option<RolesStep>,
    id: BatchId,
    /// Start, by the clock of the time limit.
    since: Duration,
    /// Start in virtual time.
    from: Duration,
}

/// A step of training under way.
struct Together {
    /// Trainers that have begun, each with its start in virtual time.
    begun: Vec<(RolesStep, Duration)>,
    /// What they answered.
    answers: Vec<(RolesStep, Work, Span)>,
    /// Answers to come, of all devices that take part.
    expected: usize,
}

/// What ends at an instant of virtual time.
enum End {
    Share(RolesStep, Box<Work>, Span),
    Together,
    Switch(RolesStep, Span),
}

/// Lanes of a device.
#[derive(Clone, Copy, Default)]
struct DeviceLanes {
    sampling: Option<usize>,
    gathering: Option<usize>,
    training: Option<usize>,
}

/// The state of an epoch. Single-threaded; it sleeps on one channel.
pub(super) struct Epoch<'a> {
    executor: &'a mut RolesExecutor,
    epoch: u32,
    clock: Clock,
    start: Instant,
    /// The present instant of virtual time.
    now: Duration,
    /// Seconds of the report that this one continues: lanes count from 0.
    before: f64,
    lanes: Lanes,
    of_device: Vec<DeviceLanes>,
    replay: RolesReplay,
    sums: Sums,
    /// Shares by mini-batch and trainer.
    shares: HashMap<(usize, usize), Share>,
    running: Vec<Running>,
    /// Steps of training under way, by mini-batch; more than one where gradients may be stale.
    together: BTreeMap<usize, Together>,
    /// Of each device that trains, the next mini-batch of which it is sent its share, or one without a seed.
    next: Vec<usize>,
    /// In virtual time, what was done and has not ended.
    ends: Vec<(Duration, End)>,
    /// In virtual time where gradients may be stale, the all-reduces that have not ended, and the end of the last one.
    summing: (usize, Duration),
    /// Whether an export waits for the steps under way.
    export_waits: bool,
    /// Start of the export that the leading trainer was asked for, if one is under way.
    exporting: Option<Duration>,
    stopped: bool,
    failure: Option<Error>,
}

impl<'a> Epoch<'a> {
    pub(super) fn new(executor: &'a mut RolesExecutor, epoch: u32, replay: RolesReplay, so_far: EpochReport) -> Self {
        let start = Instant::now();
        let before = so_far.seconds;
        let devices = executor.devices.iter();
        let named = devices.map(|d| {
            let training = d.trainer.as_ref().map(|(key, _)| key.clone());
            (d.place.clone(), d.resource.clone(), training)
        });
        let sums = Sums::new(epoch, named, so_far);
        let lent = executor.lend();
        let mut of_device = vec![DeviceLanes::default(); executor.devices.len()];
        for (lane, (device, _, operator)) in lent.iter().enumerate() {
            let lanes = &mut of_device[device.expect("every lane is of a device")];
            *match operator.phase() {
                Phase::Batching => &mut lanes.sampling,
                Phase::Transferring => &mut lanes.gathering,
                Phase::Training => &mut lanes.training,
            } = Some(lane);
        }
        let (lanes, failure) = Lanes::start(start, lent);
        let next = vec![replay.ended(); executor.schedule.max_trainers()];
        Self {
            epoch,
            clock: Clock::new(executor.limit, start),
            executor,
            start,
            now: Duration::ZERO,
            before,
            lanes,
            of_device,
            replay,
            sums,
            shares: HashMap::new(),
            running: Vec::new(),
            together: BTreeMap::new(),
            next,
            ends: Vec::new(),
            summing: (0, Duration::ZERO),
            export_waits: false,
            exporting: None,
            stopped: false,
            failure,
        }
    }

    /// Runs until nothing is running and nothing may begin.
    pub(super) fn run(&mut self, stop: &Stop, observe: Observe<'_>) {
        loop {
            if stop.is_requested() {
                self.stop();
            }
            while self.failure.is_none()
                && let Some(step) = self.replay.begin()
            {
                self.begin(step, observe);
            }
            if self.export_waits && self.replay.under_way() == 0 && self.failure.is_none() {
                self.export_waits = false;
                self.export();
            }
            if self.is_done() {
                return;
            }
            self.wait(observe);
        }
    }

    fn stop(&mut self) {
        self.stopped = true;
        self.replay.stop();
    }

    fn is_done(&self) -> bool {
        self.running.is_empty() && self.ends.is_empty() && self.exporting.is_none()
    }

    /// Waits for what is running, after [`Epoch::run`] panicked because the observer did.
    pub(super) fn drain(&mut self) {
        self.fail(Error::setting(None, "the caller's function has panicked"));
        while !self.is_done() {
            self.wait(&mut |_| Control::Continue);
        }
    }

    /// Ends all lanes, and returns their operators.
    pub(super) fn close(self) -> Result<EpochReport> {
        assert!(self.running.is_empty(), "{} steps are running at the end", self.running.len());
        let Self { executor, lanes, failure, replay, sums, stopped, now, start, before, .. } = self;
        executor.take_back(lanes.end());
        if let Some(failure) = failure {
            return Err(failure);
        }
        executor.settle()?;
        let seconds = if executor.all_reduce.is_some() { now } else { start.elapsed() }.as_secs_f64();
        let remaining: Vec<u32> = (replay.ended() as u32..executor.num_batches).collect();
        assert!(
            stopped || remaining.is_empty(),
            "{} mini-batches are left by roles that are possible",
            remaining.len()
        );
        Ok(sums.finish(before + seconds, stopped && !remaining.is_empty(), remaining))
    }

    /// Whether a share may be trained before the steps before it have ended.
    fn is_stale(&self) -> bool {
        self.executor.schedule.staleness > 0
    }

    fn is_virtual(&self) -> bool {
        self.executor.all_reduce.is_some()
    }

    /// Seconds since the start.
    fn seconds(&self) -> f64 {
        if self.is_virtual() { self.now.as_secs_f64() } else { self.start.elapsed().as_secs_f64() }
    }

    fn id(&self, batch: usize) -> BatchId {
        BatchId { epoch: self.epoch, index: batch as u32 }
    }

    /// The first failure is kept, and trainers that wait for others are let go.
    fn fail(&mut self, error: Error) {
        if self.failure.is_none() {
            (self.executor.abort)(&error.to_string());
            self.failure = Some(error);
        }
        // What has not ended in virtual time never does.
        self.ends.clear();
    }

    fn begin(&mut self, step: RolesStep, observe: Observe<'_>) {
        let RolesStep { batch, work, device, rank } = step;
        let id = self.id(batch);
        match work {
            RolesWork::Switching => {
                let seconds = self.executor.schedule.switching;
                let (from, span) = (self.now, Span { start: self.seconds(), end: self.seconds() });
                if self.is_virtual() {
                    let end = from + duration(seconds);
                    let span = Span { end: end.as_secs_f64(), ..span };
                    self.ends.push((end, End::Switch(step, span)));
                } else {
                    // Operators of both roles are there: their memory was taken before the first mini-batch.
                    self.switched(step, span, observe);
                }
            }
            RolesWork::Sampling => {
                let seeds = (self.executor.share_of)(id, self.executor.schedule.trainers(batch), rank);
                let share = Share { batch: None, edges: 0, sampler: device, counters: [Counters::NONE; 2] };
                let share = self.shares.entry((batch, rank)).insert_entry(share).into_mut();
                if seeds.is_empty() {
                    share.batch = Some(empty(id));
                    return self.replay.end(step);
                }
                let lane = self.of_device[device].sampling.expect("it samples");
                self.lanes.lane(lane).send_share(id, seeds);
                self.is_running(lane, Some(step), id, self.now);
            }
            RolesWork::Gathering => {
                let input = self.take(step);
                if input.num_seeds() == 0 {
                    self.share(step).batch = Some(input);
                    return self.replay.end(step);
                }
                let lane = self.of_device[device].gathering.expect("it trains");
                self.lanes.lane(lane).send(id, Some(input));
                self.is_running(lane, Some(step), id, self.now);
            }
            RolesWork::Training => self.train(step),
        }
    }

    fn is_running(&mut self, lane: usize, step: Option<RolesStep>, id: BatchId, from: Duration) {
        let since = self.clock.read(Instant::now());
        self.running.push(Running { lane, step, id, since, from });
    }

    fn share(&mut self, step: RolesStep) -> &mut Share {
        self.shares.get_mut(&(step.batch, step.rank)).expect("its sampling has begun")
    }

    fn take(&mut self, step: RolesStep) -> MiniBatch {
        self.share(step).batch.take().expect("no lane has it")
    }

    /// Begins to train a share: at once, where trainers wait for each other in the exchange, or not at all; in virtual time when all
    /// trainers of a synchronous step have begun, because the clock stands still while one works.
    fn train(&mut self, step: RolesStep) {
        let trainers = self.executor.schedule.trainers(step.batch);
        let now = self.now;
        let together = self.together(step.batch);
        together.begun.push((step, now));
        let mut sent = vec![(step, now)];
        if self.is_virtual() && !self.is_stale() {
            let together = self.together(step.batch);
            if together.begun.len() < trainers {
                return;
            }
            sent.clone_from(&together.begun);
        }
        self.take_part();
        for (step, from) in sent {
            self.send_training(step, from);
        }
        self.take_part();
    }

    /// The step of a mini-batch, in which all devices that ever train take part.
    fn together(&mut self, batch: usize) -> &mut Together {
        let expected = self.next.len();
        let new = || Together { begun: Vec::new(), answers: Vec::new(), expected };
        self.together.entry(batch).or_insert_with(new)
    }

    /// Lets devices that train other mini-batches take part in the steps that have begun, in the order of mini-batches.
    fn take_part(&mut self) {
        for device in 0..self.next.len() {
            while let batch = self.next[device]
                && batch < self.replay.ended() + self.replay.under_way()
                && device >= self.executor.schedule.trainers(batch)
            {
                let id = self.id(batch);
                self.together(batch);
                self.send_part(device, id, Duration::ZERO, empty(id), None);
            }
        }
    }

    fn send_training(&mut self, step: RolesStep, from: Duration) {
        let (id, batch) = (self.id(step.batch), self.take(step));
        self.send_part(step.device, id, from, batch, Some(step));
    }

    /// Sends a training operator its share of a step, or one without a seed.
    fn send_part(&mut self, device: usize, id: BatchId, from: Duration, batch: MiniBatch, step: Option<RolesStep>) {
        self.next[device] = id.index as usize + 1;
        self.executor.devices[device].clock.set(from);
        self.executor.devices[device].ended.store(self.replay.ended() as u64, Ordering::Release);
        let lane = self.of_device[device].training.expect("it trains");
        self.lanes.lane(lane).send(id, Some(batch));
        self.is_running(lane, step, id, from);
    }

    /// Sleeps until a lane answers, or a piece of the time limit has passed; in virtual time, once all lanes have answered, goes to the
    /// next instant at which something ends.
    fn wait(&mut self, observe: Observe<'_>) {
        if self.running.is_empty() && self.exporting.is_none() {
            return self.next_ends(observe);
        }
        self.clock.read(Instant::now());
        let first = self.running.iter().map(|r| r.since).chain(self.exporting).min();
        let answer = match first.and_then(|first| self.clock.sleep(first)) {
            Some(piece) => self.lanes.answers().recv_timeout(piece),
            None => self.lanes.answers().recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match answer {
            Ok(answer) => self.receive(answer, observe),
            Err(RecvTimeoutError::Timeout) => self.abandon_late(),
            Err(RecvTimeoutError::Disconnected) => panic!("lanes that owe an answer have ended"),
        }
    }

    /// Hands on all that ends at the next instant, in an order that no thread has a say in.
    fn next_ends(&mut self, observe: Observe<'_>) {
        let Some(now) = self.ends.iter().map(|(end, _)| *end).min() else { return };
        self.now = now;
        let mut ends: Vec<End> = self.ends.extract_if(.., |(end, _)| *end == now).map(|(_, end)| end).collect();
        let order = |end: &End| match end {
            End::Share(step, ..) | End::Switch(step, _) => (0, Some(*step)),
            End::Together => (1, None),
        };
        ends.sort_by_key(order);
        for end in ends {
            match end {
                End::Share(step, work, span) if step.work == RolesWork::Training => {
                    self.share_trained(step, *work, span, observe);
                }
                End::Share(step, work, span) => self.ended(step, *work, span, observe),
                End::Switch(step, span) => self.switched(step, span, observe),
                End::Together => {
                    self.summing.0 = self.summing.0.saturating_sub(1);
                    self.trained(observe);
                }
            }
        }
    }

    /// Abandons every lane whose step has passed the time limit.
    fn abandon_late(&mut self) {
        self.clock.read(Instant::now());
        let (clock, limit) = (&self.clock, self.executor.limit.expect("only a limit can be passed"));
        let late: Vec<Running> = self.running.extract_if(.., |r| clock.is_late(r.since)).collect();
        let export = self.exporting.filter(|&since| clock.is_late(since));
        let leading = self.of_device[0].training.expect("the first device trains");
        let late = late.into_iter().map(|r| (r.lane, Some(r.id))).chain(export.map(|_| (leading, None)));
        for (lane, id) in late.collect::<Vec<_>>() {
            let operator = self.lanes.abandon(lane);
            self.lane_is_lost(lane);
            self.fail(Error::new(Some(&operator), id, ErrorKind::Hangs(limit)));
        }
    }

    /// Expects no further answer of a lane.
    fn lane_is_lost(&mut self, lane: usize) {
        self.running.retain(|r| r.lane != lane);
        if self.of_device[0].training == Some(lane) {
            self.exporting = None;
        }
    }

    fn receive(&mut self, Answer { lane, outcome, span }: Answer, observe: Observe<'_>) {
        let index = self.running.iter().position(|r| r.lane == lane);
        let of_export = outcome.as_ref().is_err_and(|e| e.batch.is_none());
        match (outcome, index) {
            (Ok(Output::State(state)), _) => {
                if self.exporting.take().is_some() && self.failure.is_none() {
                    self.replay.release();
                    let seconds = self.before + self.seconds();
                    let so_far = self.sums.clone().finish(seconds, false, Vec::new());
                    self.notify(&Event::Exported(&state, &so_far), observe);
                }
            }
            (Err(error), _) if of_export && self.exporting.take().is_some() => {
                if error.is_panic() {
                    self.lane_is_lost(lane);
                }
                self.fail(error);
            }
            (Ok(Output::Work(work)), Some(index)) => {
                // The first one of the lane: it answers in the order of sending.
                let running = self.running.remove(index);
                if self.failure.is_none() {
                    self.answered(running, work, span, observe);
                }
            }
            (Err(error), Some(index)) => {
                self.running.remove(index);
                if error.is_panic() {
                    self.lane_is_lost(lane);
                }
                self.fail(error);
            }
            // An abandoned lane has answered after all, too late.
            (_, None) => {}
        }
    }

    /// Takes a lane's answer. In virtual time it has the span that the operator's own seconds make, and its end is to come.
    fn answered(&mut self, Running { step, from, id, .. }: Running, work: Work, real: Span, observe: Observe<'_>) {
        let end = from + work.measured.busy;
        let span = match self.is_virtual() {
            true => Span { start: from.as_secs_f64(), end: end.as_secs_f64() },
            false => real,
        };
        match step {
            Some(step) if step.work != RolesWork::Training || self.is_stale() => match self.is_virtual() {
                true => self.ends.push((end, End::Share(step, Box::new(work), span))),
                false if step.work == RolesWork::Training => self.share_trained(step, work, span, observe),
                false => self.ended(step, work, span, observe),
            },
            _ => {
                let is_stale = self.is_stale();
                let together = self.together.get_mut(&(id.index as usize)).expect("the step has begun");
                together.expected -= 1;
                together.answers.extend(step.map(|step| (step, work, span)));
                if is_stale {
                    return self.add_up(observe);
                }
                if together.expected > 0 {
                    return;
                }
                let Some(all_reduce) = self.executor.all_reduce else { return self.trained(observe) };
                let from = |step| together.begun.iter().find(|(of, _)| *of == step).expect("it has begun").1;
                let busy = together.answers.iter().map(|&(step, ref work, _)| from(step) + work.measured.busy);
                let latest = busy.max().expect("a trainer at least");
                let all_reduce = if together.answers.len() > 1 { all_reduce } else { Duration::ZERO };
                self.ends.push((latest + all_reduce, End::Together));
            }
        }
    }

    /// Where gradients may be stale: a share was trained, and its gradients are on their way.
    fn share_trained(&mut self, step: RolesStep, work: Work, span: Span, observe: Observe<'_>) {
        self.replay.end(step);
        let together = self.together.get_mut(&step.batch).expect("the step has begun");
        together.expected -= 1;
        together.answers.push((step, work, span));
        self.add_up(observe);
    }

    /// Ends the steps whose gradients are all there; in virtual time after their all-reduces, which follow one another.
    fn add_up(&mut self, observe: Observe<'_>) {
        let is_there = |epoch: &Self, batch| epoch.together.get(&batch).is_some_and(|of| of.expected == 0);
        while self.replay.complete() > self.summing.0 && is_there(self, self.replay.ended() + self.summing.0) {
            let batch = self.replay.ended() + self.summing.0;
            let trainers = self.executor.schedule.trainers(batch);
            let Some(all_reduce) = self.executor.all_reduce.filter(|_| trainers > 1) else {
                if self.summing.0 == 0 {
                    self.trained(observe);
                    continue;
                }
                // It ends with the all-reduces before it.
                self.ends.push((self.summing.1, End::Together));
                self.summing.0 += 1;
                continue;
            };
            let start = self.now.max(if self.summing.0 > 0 { self.summing.1 } else { Duration::ZERO });
            let end = start + all_reduce;
            let span = self.later(Span { start: start.as_secs_f64(), end: end.as_secs_f64() });
            for device in 0..trainers {
                self.notify(&Event::Added(device, self.id(batch), span), observe);
            }
            self.ends.push((end, End::Together));
            self.summing = (self.summing.0 + 1, end);
        }
    }

    fn later(&self, Span { start, end }: Span) -> Span {
        Span { start: self.before + start, end: self.before + end }
    }

    /// A share was sampled or gathered.
    fn ended(&mut self, step: RolesStep, work: Work, span: Span, observe: Observe<'_>) {
        let Work { batch, measured, .. } = work;
        let share = self.share(step);
        if let (RolesWork::Sampling, MiniBatch::Host(batch)) = (step.work, &batch) {
            share.edges = batch.num_edges();
        }
        share.counters[step.work as usize] = measured.counters;
        share.batch = Some(batch);
        self.replay.end(step);
        self.sums.report.peak_batched = self.sums.report.peak_batched.max(self.replay.queued());
        self.tell(step, span, observe);
    }

    /// Tells the observer of a step of a device.
    fn tell(&mut self, step: RolesStep, span: Span, observe: Observe<'_>) {
        let phase = match step.work {
            RolesWork::Sampling => Phase::Batching,
            RolesWork::Gathering => Phase::Transferring,
            RolesWork::Training => Phase::Training,
            RolesWork::Switching => unreachable!("no phase of a mini-batch"),
        };
        let span = self.later(span);
        self.sums.add(step.device, step.work, span);
        let activity = Activity { id: self.id(step.batch), share: 0, phase, worker: 0, span };
        let event = if step.device == 0 { Event::Ended(activity) } else { Event::Followed(step.device, activity) };
        self.notify(&event, observe);
    }

    fn switched(&mut self, step: RolesStep, span: Span, observe: Observe<'_>) {
        self.replay.end(step);
        let span = self.later(span);
        self.notify(&Event::Switched(step.device, step.rank == step.device, span), observe);
    }

    /// All trainers have trained their shares of the next mini-batch, and have taken the step, or may take it.
    fn trained(&mut self, observe: Observe<'_>) {
        let batch = self.replay.ended();
        let Together { mut answers, .. } = self.together.remove(&batch).expect("the step has begun");
        answers.sort_by_key(|(step, ..)| step.device);
        let (mut seeds, mut edges, mut score) = (0, 0, Score::default());
        if !self.is_stale() {
            answers.iter().for_each(|(step, ..)| self.replay.end(*step));
        }
        self.replay.summed();
        for (step, work, span) in answers {
            let share = self.shares.remove(&(step.batch, step.rank)).expect("it was sampled");
            // That of a synchronous step is of all shares, at every trainer.
            if step.device == 0 || self.is_stale() {
                score += work.score;
            }
            let of_share = work.batch.num_seeds();
            (seeds, edges) = (seeds + of_share, edges + share.edges);
            let [sampled, gathered] = share.counters;
            let (sampler, own) = (&self.executor.devices[share.sampler], &self.executor.devices[step.device]);
            let moved_by = own.moved_by.iter().find(|(place, _)| *place == sampler.place);
            let counted = [
                (share.sampler, sampler.sampler.as_ref().map(|(key, _)| key.clone()), sampled),
                (step.device, moved_by.map(|(_, key)| key.clone()), gathered),
                (step.device, own.trainer.as_ref().map(|(key, _)| key.clone()), work.measured.counters),
            ];
            for (device, key, counters) in counted {
                self.sums.count(device, &key.expect("an operator that has worked"), counters);
            }
            let later = self.later(span);
            self.sums.trained(step.device, later, of_share, share.edges);
            self.tell(step, span, observe);
        }
        self.sums.report.batches += 1;
        self.sums.report.score += score;
        let left = self.executor.schedule.num_batches - self.replay.ended();
        let done = BatchDone { id: self.id(batch), share: 0, seeds, edges, score, left };
        self.notify(&Event::Trained(done), observe);
    }

    fn notify(&mut self, event: &Event<'_>, observe: Observe<'_>) {
        match observe(event) {
            Control::Continue => {}
            Control::Cut => self.stop(),
            Control::Export if self.exporting.is_some() || self.export_waits || self.failure.is_some() => {}
            Control::Export if self.is_stale() => {
                self.export_waits = true;
                self.replay.hold();
            }
            Control::Export => self.export(),
        }
    }

    /// Asks the leading trainer for its state.
    fn export(&mut self) {
        let leading = self.of_device[0].training.expect("the first device trains");
        self.lanes.lane(leading).export();
        self.exporting = Some(self.clock.read(Instant::now()));
    }
}

/// A share without seeds, in host memory wherever the others lie.
fn empty(id: BatchId) -> MiniBatch {
    MiniBatch::Host(HostBatch { id, ..HostBatch::default() })
}

/// Seconds of a plan; what is longer than 500 years is that.
fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}
