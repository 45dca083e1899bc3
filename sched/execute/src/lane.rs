//! A thread that owns an operator and does one mini-batch after the other, as it is told.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, Sender, bounded};
use morphgl_registry::{BatchId, BatchingWorker, Handle, Key, Measured, MiniBatch, Score, Training, Transferring};

use crate::error::{delivered, guarded};
use crate::report::span_ending;
use crate::{Error, ErrorKind, Result, Span};

/// The operator of a lane.
pub(crate) enum Operator {
    Batching(Box<dyn BatchingWorker>),
    Transferring(Box<dyn Transferring>),
    Training(Box<dyn Training>),
}

/// What an operator made of a mini-batch.
pub(crate) struct Work {
    pub(crate) batch: MiniBatch,
    /// Of training.
    pub(crate) score: Score,
    pub(crate) measured: Measured,
}

/// What an operator was given and has not been waited for.
enum Given {
    Moved(Handle<MiniBatch>),
    /// Training reads the mini-batch until its handle was waited for.
    Trained(MiniBatch, Handle<Score>),
}

/// What a lane has to say about the mini-batch it was given.
pub(crate) struct Done {
    pub(crate) lane: usize,
    pub(crate) outcome: Result<Work>,
    pub(crate) span: Span,
}

/// A mini-batch to be prepared with the buffers of another, or to be transferred or trained.
type Command = (BatchId, Option<MiniBatch>);

/// A lane as the coordinator sees it. Dropping it tells the thread to end, and leaves it to itself.
pub(crate) struct Lane {
    commands: Sender<Command>,
    ahead: usize,
    thread: JoinHandle<Option<Operator>>,
}

/// Where a lane's thread reports to, and since when it counts.
#[derive(Clone)]
pub(crate) struct Reports {
    pub(crate) done: Sender<Done>,
    pub(crate) start: Instant,
}

impl Operator {
    /// Mini-batches that it may be given before the first is waited for.
    pub(crate) fn depth(&self) -> usize {
        match self {
            Operator::Training(operator) => operator.queue_depth().max(1),
            Operator::Batching(_) | Operator::Transferring(_) => 1,
        }
    }

    fn give(&mut self, id: BatchId, batch: Option<MiniBatch>) -> morphgl_registry::Result<Given> {
        let given = |batch: Option<MiniBatch>| batch.expect("transferring and training are given a mini-batch");
        Ok(match self {
            Operator::Batching(worker) => Given::Moved(worker.prepare(id, batch)?),
            Operator::Transferring(operator) => Given::Moved(operator.transfer(given(batch))?),
            Operator::Training(operator) => {
                let batch = given(batch);
                let handle = operator.train(&batch)?;
                Given::Trained(batch, handle)
            }
        })
    }
}

impl Given {
    fn wait(self) -> morphgl_registry::Result<Work> {
        match self {
            Given::Moved(handle) => {
                handle.measured().map(|(batch, measured)| Work { batch, score: Score::default(), measured })
            }
            Given::Trained(batch, handle) => handle.measured().map(|(score, measured)| Work { batch, score, measured }),
        }
    }
}

impl Lane {
    /// Moves `operator` into a thread of its own.
    ///
    /// # Errors
    ///
    /// The thread cannot be started; the operator is lost.
    pub(crate) fn start(number: usize, name: String, key: &Key, operator: Operator, reports: Reports) -> Result<Self> {
        // The operator holds `depth` mini-batches, the channel at most one more. A bounded channel takes all of its memory now.
        let ahead = ahead(&operator);
        let (commands, received) = bounded(ahead + 1);
        let own = key.clone();
        let thread = thread::Builder::new().name(name).spawn(move || run(number, &own, operator, &received, &reports));
        match thread {
            Ok(thread) => Ok(Self { commands, ahead, thread }),
            Err(e) => {
                let kind = ErrorKind::Thread(format!("cannot start its thread: {e}; use fewer workers"));
                Err(Error { operator: Some(Box::new(key.clone())), batch: None, kind })
            }
        }
    }

    /// Gives it a mini-batch. It answers once, by a [`Done`]: in the order in which it is told.
    pub(crate) fn tell(&self, id: BatchId, batch: Option<MiniBatch>) {
        // A lane that has ended meanwhile has panicked, and its report of that is on its way.
        drop(self.commands.send((id, batch)));
    }

    /// Mini-batches that it may be told of beside the one that its operator is at.
    pub(crate) fn ahead(&self) -> usize {
        self.ahead
    }

    /// Ends it after what it is doing, waits for that, and takes its operator back, which is lost after a panic.
    pub(crate) fn end(self) -> Option<Operator> {
        drop(self.commands);
        self.thread.join().expect("a lane catches its operator's panics")
    }
}

/// Mini-batches that a lane may have besides the one that its operator works on. An operator that queues has `depth` in all; one
/// more waits in the channel, so that it is at hand when the operator has room.
pub(crate) fn ahead(operator: &Operator) -> usize {
    match operator.depth() {
        1 => 0,
        depth => depth,
    }
}

/// The thread: until nobody can tell it anything any more.
fn run(
    lane: usize,
    key: &Key,
    mut operator: Operator,
    commands: &Receiver<Command>,
    Reports { done, start }: &Reports,
) -> Option<Operator> {
    let depth = operator.depth();
    let mut given: VecDeque<(BatchId, Result<Given>)> = VecDeque::with_capacity(depth);
    let mut ended = 0.0;
    loop {
        // The operator has its next mini-batch before the one it is at is waited for; none behind one that it refused.
        while given.len() < depth && given.back().is_none_or(|(_, outcome)| outcome.is_ok()) {
            let command = if given.is_empty() { commands.recv().ok() } else { commands.try_recv().ok() };
            let Some((id, batch)) = command else { break };
            given.push_back((id, guarded(Some(key), Some(id), || operator.give(id, batch))));
        }
        let Some((id, outcome)) = given.pop_front() else { return Some(operator) };
        let outcome = outcome.and_then(|given| guarded(Some(key), Some(id), || given.wait()));
        let outcome = outcome.and_then(|work| Ok(Work { batch: delivered(key, id, work.batch)?, ..work }));
        let busy = outcome.as_ref().map_or(Duration::ZERO, |work| work.measured.busy);
        let span = span_ending(start.elapsed().as_secs_f64(), busy, ended);
        ended = span.end;
        let panicked = matches!(&outcome, Err(Error { kind: ErrorKind::Panicked(_), .. }));
        let report = Done { lane, outcome, span };
        if panicked {
            // What a panic left behind may panic again when it is dropped.
            drop(catch_unwind(AssertUnwindSafe(move || drop((given, operator)))));
            // Nobody listens any more to a lane that was given up.
            drop(done.send(report));
            return None;
        }
        if done.send(report).is_err() {
            return None;
        }
    }
}
