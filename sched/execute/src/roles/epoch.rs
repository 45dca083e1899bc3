//! The event loop of an epoch of devices with roles: sends shares to lanes as the schedule allows, and receives their answers.

use std::collections::HashMap;
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

/// The step of training under way.
#[derive(Default)]
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
    together: Together,
    /// In virtual time, what was done and has not ended.
    ends: Vec<(Duration, End)>,
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
            together: Together::default(),
            ends: Vec::new(),
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
        let seconds = self.before + self.seconds();
        self.executor.take_back(self.lanes.end());
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        let trained = self.replay.ended();
        let remaining: Vec<u32> = (trained as u32..self.executor.num_batches).collect();
        assert!(
            self.stopped || remaining.is_empty(),
            "{} mini-batches are left by roles that are possible",
            remaining.len()
        );
        Ok(self.sums.finish(seconds, self.stopped && !remaining.is_empty(), remaining))
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
                self.is_running(lane, Some(step), id);
            }
            RolesWork::Gathering => {
                let input = self.take(step);
                if input.num_seeds() == 0 {
                    self.share(step).batch = Some(input);
                    return self.replay.end(step);
                }
                let lane = self.of_device[device].gathering.expect("it trains");
                self.lanes.lane(lane).send(id, Some(input));
                self.is_running(lane, Some(step), id);
            }
            RolesWork::Training => self.train(step),
        }
    }

    fn is_running(&mut self, lane: usize, step: Option<RolesStep>, id: BatchId) {
        let since = self.clock.read(Instant::now());
        self.running.push(Running { lane, step, id, since, from: self.now });
    }

    fn share(&mut self, step: RolesStep) -> &mut Share {
        self.shares.get_mut(&(step.batch, step.rank)).expect("its sampling has begun")
    }

    fn take(&mut self, step: RolesStep) -> MiniBatch {
        self.share(step).batch.take().expect("no lane has it")
    }

    /// Begins to train a share: at once, where trainers wait for each other in the exchange; in virtual time when all trainers have
    /// begun, because the clock stands still while one works.
    fn train(&mut self, step: RolesStep) {
        let trainers = self.executor.schedule.trainers(step.batch);
        self.together.begun.push((step, self.now));
        if !self.is_virtual() {
            if self.together.begun.len() == 1 {
                self.take_part(step.batch, trainers);
            }
            return self.send_training(step);
        }
        if self.together.begun.len() < trainers {
            return;
        }
        self.take_part(step.batch, trainers);
        for (step, from) in self.together.begun.clone() {
            self.executor.devices[step.device].clock.set(from);
            self.send_training(step);
        }
    }

    /// Lets the devices that train other mini-batches take part in the step.
    fn take_part(&mut self, batch: usize, trainers: usize) {
        let all = self.executor.schedule.max_trainers();
        self.together.expected = all;
        let id = self.id(batch);
        for device in trainers..all {
            self.executor.devices[device].clock.set(Duration::ZERO);
            let lane = self.of_device[device].training.expect("it trains");
            self.lanes.lane(lane).send(id, Some(empty(id)));
            self.is_running(lane, None, id);
        }
    }

    fn send_training(&mut self, step: RolesStep) {
        let (id, batch) = (self.id(step.batch), self.take(step));
        let lane = self.of_device[step.device].training.expect("it trains");
        self.lanes.lane(lane).send(id, Some(batch));
        self.is_running(lane, Some(step), id);
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
                End::Share(step, work, span) => self.ended(step, *work, span, observe),
                End::Switch(step, span) => self.switched(step, span, observe),
                End::Together => self.trained(observe),
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
                let running = self.running.swap_remove(index);
                if self.failure.is_none() {
                    self.answered(running, work, span, observe);
                }
            }
            (Err(error), Some(index)) => {
                self.running.swap_remove(index);
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
    fn answered(&mut self, Running { step, from, .. }: Running, work: Work, real: Span, observe: Observe<'_>) {
        let of_training = step.is_none_or(|step| step.work == RolesWork::Training);
        let begun = |step| self.together.begun.iter().find(|(of, _)| Some(*of) == step).map(|(_, from)| *from);
        let from = if of_training { begun(step).unwrap_or(from) } else { from };
        let end = from + work.measured.busy;
        let span = match self.is_virtual() {
            true => Span { start: from.as_secs_f64(), end: end.as_secs_f64() },
            false => real,
        };
        match step {
            Some(step) if !of_training && self.is_virtual() => {
                self.ends.push((end, End::Share(step, Box::new(work), span)));
            }
            Some(step) if !of_training => self.ended(step, work, span, observe),
            _ => {
                self.together.expected -= 1;
                self.together.answers.extend(step.map(|step| (step, work, span)));
                let Together { begun, answers, expected } = &self.together;
                if *expected > 0 {
                    return;
                }
                let Some(all_reduce) = self.executor.all_reduce else { return self.trained(observe) };
                let busy = answers.iter().map(|(step, work, _)| {
                    let from = begun.iter().find(|(of, _)| of == step).map_or(self.now, |(_, from)| *from);
                    from + work.measured.busy
                });
                let latest = busy.max().expect("a trainer at least");
                let all_reduce = if answers.len() > 1 { all_reduce } else { Duration::ZERO };
                self.ends.push((latest + all_reduce, End::Together));
            }
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

    /// All trainers have trained their shares of a mini-batch, and have taken the step.
    fn trained(&mut self, observe: Observe<'_>) {
        let mut answers = std::mem::take(&mut self.together).answers;
        answers.sort_by_key(|(step, ..)| step.device);
        let (mut seeds, mut edges, mut score) = (0, 0, Score::default());
        let batch = answers.first().expect("a trainer at least").0.batch;
        for (step, work, span) in answers {
            self.replay.end(step);
            let share = self.shares.remove(&(step.batch, step.rank)).expect("it was sampled");
            if step.device == 0 {
                score = work.score;
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
            Control::Export => {
                if self.exporting.is_none() && self.failure.is_none() {
                    let leading = self.of_device[0].training.expect("the first device trains");
                    self.lanes.lane(leading).export();
                    self.exporting = Some(self.clock.read(Instant::now()));
                }
            }
        }
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
