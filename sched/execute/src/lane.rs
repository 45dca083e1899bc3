//! A thread that owns an operator and does one mini-batch after the other, as it is told.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, Sender, bounded};
use morphgl_registry::{BatchId, BatchingWorker, Key, MiniBatch, Score, Training, Transferring};

use crate::error::{delivered, guarded};
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
    /// As the operator measured.
    busy: Duration,
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
    thread: JoinHandle<Option<Operator>>,
}

/// Where a lane's thread reports to, and since when it counts.
#[derive(Clone)]
pub(crate) struct Reports {
    pub(crate) done: Sender<Done>,
    pub(crate) start: Instant,
}

impl Operator {
    fn run(&mut self, id: BatchId, batch: Option<MiniBatch>) -> morphgl_registry::Result<Work> {
        let given = |batch: Option<MiniBatch>| batch.expect("transferring and training are given a mini-batch");
        match self {
            Operator::Batching(worker) => {
                let (batch, busy) = worker.prepare(id, batch)?.wait()?;
                Ok(Work { batch, score: Score::default(), busy })
            }
            Operator::Transferring(operator) => {
                let (batch, busy) = operator.transfer(given(batch))?.wait()?;
                Ok(Work { batch, score: Score::default(), busy })
            }
            Operator::Training(operator) => {
                let batch = given(batch);
                let (score, busy) = operator.train(&batch)?;
                Ok(Work { batch, score, busy })
            }
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
        // It is told of the next mini-batch once it has answered. A channel with an end takes all of its memory now.
        let (commands, received) = bounded(1);
        let own = key.clone();
        let thread = thread::Builder::new().name(name).spawn(move || run(number, &own, operator, &received, &reports));
        match thread {
            Ok(thread) => Ok(Self { commands, thread }),
            Err(e) => {
                let kind = ErrorKind::Thread(format!("cannot start its thread: {e}; use fewer workers"));
                Err(Error { operator: Some(Box::new(key.clone())), batch: None, kind })
            }
        }
    }

    /// Gives it a mini-batch. It answers once, by a [`Done`].
    pub(crate) fn tell(&self, id: BatchId, batch: Option<MiniBatch>) {
        let told = self.commands.send((id, batch));
        told.expect("a lane listens until it is ended, or has failed, after which nobody tells it anything");
    }

    /// Ends it after what it is doing, waits for that, and takes its operator back, which is lost after a panic.
    pub(crate) fn end(self) -> Option<Operator> {
        drop(self.commands);
        self.thread.join().expect("a lane catches its operator's panics")
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
    for (id, batch) in commands {
        let begun = start.elapsed().as_secs_f64();
        let outcome = guarded(Some(key), Some(id), || operator.run(id, batch));
        let seconds = start.elapsed().as_secs_f64() - begun;
        let outcome = outcome.and_then(|work| Ok(Work { batch: delivered(key, id, work.batch)?, ..work }));
        let busy = outcome.as_ref().map_or(0.0, |work| work.busy.as_secs_f64());
        let panicked = matches!(&outcome, Err(Error { kind: ErrorKind::Panicked(_), .. }));
        let report = Done { lane, outcome, span: Span { start: begun, seconds, busy } };
        if panicked {
            // What a panic left behind may panic again when it is dropped.
            drop(catch_unwind(AssertUnwindSafe(move || drop(operator))));
            // Nobody listens any more to a lane that was given up.
            drop(done.send(report));
            return None;
        }
        if done.send(report).is_err() {
            return None;
        }
    }
    Some(operator)
}
