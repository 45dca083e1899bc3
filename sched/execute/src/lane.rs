//! A thread that owns an operator and works on the mini-batches it is sent, one after another.

use std::collections::VecDeque;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, Sender, bounded};
use morphgl_registry::{
    BatchId, BatchingWorker, Handle, Key, Measured, MiniBatch, Phase, Score, Training, Transferring,
};

use crate::error::{delivered, guarded};
use crate::report::span_ending;
use crate::{Error, ErrorKind, Result, Span, TrainingState};

/// The operator of a lane.
pub(crate) enum Operator {
    Batching(Box<dyn BatchingWorker>),
    Transferring(Box<dyn Transferring>),
    Training(Box<dyn Training>),
}

/// The result of a phase of a mini-batch.
pub(crate) struct Work {
    pub(crate) batch: MiniBatch,
    /// Of training; of other phases zeros.
    pub(crate) score: Score,
    pub(crate) measured: Measured,
}

/// Answers of a lane.
#[allow(clippy::large_enum_variant, reason = "nearly all answers are the larger one, and must not allocate")]
pub(crate) enum Output {
    /// The result of a mini-batch.
    Work(Work),
    /// The state of training, on [`Command::Export`].
    State(TrainingState),
}

/// An operation that may still run.
enum Pending {
    Batch(Handle<MiniBatch>),
    /// Training reads the mini-batch until its handle was waited for.
    Training(MiniBatch, Handle<Score>),
}

/// A lane's answer to one command.
pub(crate) struct Answer {
    /// Number of the lane.
    pub(crate) lane: usize,
    pub(crate) outcome: Result<Output>,
    pub(crate) span: Span,
}

/// A command to a lane.
#[allow(clippy::large_enum_variant, reason = "few are queued at a time, and nearly all are mini-batches")]
enum Command {
    /// A mini-batch to be prepared, if possible in the memory of another; or one to be transferred or trained.
    Batch(BatchId, Option<MiniBatch>),
    /// Batching: to prepare the share of a mini-batch that has these seeds.
    Share(BatchId, Range<usize>),
    /// Training: to copy out its state after all mini-batches that were sent before.
    Export,
}

/// A lane as the event loop sees it. Dropping it ends the thread after its current work, without waiting for it.
pub(crate) struct Lane {
    commands: Sender<Command>,
    queue: usize,
    thread: JoinHandle<Option<Operator>>,
}

impl Operator {
    pub(crate) fn phase(&self) -> Phase {
        match self {
            Operator::Batching(_) => Phase::Batching,
            Operator::Transferring(_) => Phase::Transferring,
            Operator::Training(_) => Phase::Training,
        }
    }

    /// Mini-batches that it takes before the first is waited for.
    fn depth(&self) -> usize {
        match self {
            Operator::Training(operator) => operator.queue_depth().max(1),
            Operator::Batching(_) | Operator::Transferring(_) => 1,
        }
    }

    /// Mini-batches that its lane may be sent besides the one in work. An operator that queues takes `depth` in all, and one more
    /// waits in the channel, to be at hand when the operator can take it.
    pub(crate) fn queue(&self) -> usize {
        if self.depth() == 1 { 0 } else { self.depth() }
    }

    fn begin(&mut self, id: BatchId, batch: Option<MiniBatch>) -> morphgl_registry::Result<Pending> {
        let input = |batch: Option<MiniBatch>| batch.expect("transferring and training are sent a mini-batch");
        Ok(match self {
            Operator::Batching(worker) => Pending::Batch(worker.prepare(id, batch)?),
            Operator::Transferring(operator) => Pending::Batch(operator.transfer(input(batch))?),
            Operator::Training(operator) => {
                let batch = input(batch);
                let handle = operator.train(&batch)?;
                Pending::Training(batch, handle)
            }
        })
    }

    fn begin_share(&mut self, id: BatchId, seeds: Range<usize>) -> morphgl_registry::Result<Pending> {
        match self {
            Operator::Batching(worker) => Ok(Pending::Batch(worker.prepare_share(id, seeds, None)?)),
            Operator::Transferring(_) | Operator::Training(_) => unreachable!("only batching makes shares"),
        }
    }

    fn state(&mut self) -> morphgl_registry::Result<TrainingState> {
        match self {
            Operator::Training(operator) => {
                operator.settle()?;
                TrainingState::of(operator.as_ref())
            }
            Operator::Batching(_) | Operator::Transferring(_) => unreachable!("only training has a state"),
        }
    }
}

impl Pending {
    fn wait(self) -> morphgl_registry::Result<Work> {
        match self {
            Pending::Batch(handle) => {
                handle.measured().map(|(batch, measured)| Work { batch, score: Score::default(), measured })
            }
            Pending::Training(batch, handle) => {
                handle.measured().map(|(score, measured)| Work { batch, score, measured })
            }
        }
    }
}

impl Lane {
    /// Moves `operator` into a thread of its own, which sends its answers to `answers`, with spans in seconds since `start`.
    ///
    /// # Errors
    ///
    /// The thread cannot be started; the operator is lost.
    pub(crate) fn start(
        number: usize,
        key: &Key,
        operator: Operator,
        answers: Sender<Answer>,
        start: Instant,
    ) -> Result<Self> {
        let queue = operator.queue();
        // A bounded channel allocates all of its memory now. It holds one export besides mini-batches.
        let (commands, received) = bounded(queue + 2);
        let thread = thread::Builder::new().name(format!("{}-{number}", operator.phase().noun()));
        let own = key.clone();
        let thread = thread.spawn(move || run(number, &own, operator, &received, &answers, start));
        let thread = thread.map_err(|e| Error::new(Some(key), None, ErrorKind::Thread(e)))?;
        Ok(Self { commands, queue, thread })
    }

    /// Sends a mini-batch, to which the lane will answer once. Answers come in the order of sending.
    pub(crate) fn send(&self, id: BatchId, batch: Option<MiniBatch>) {
        // A lane that has ended has panicked, and its answer about that is under way.
        drop(self.commands.send(Command::Batch(id, batch)));
    }

    /// Sends batching a share to be prepared, as [`Lane::send`] a whole mini-batch.
    pub(crate) fn send_share(&self, id: BatchId, seeds: Range<usize>) {
        drop(self.commands.send(Command::Share(id, seeds)));
    }

    /// Requests the state of training after all mini-batches sent so far; at most one request may be unanswered.
    pub(crate) fn export(&self) {
        drop(self.commands.send(Command::Export));
    }

    /// Mini-batches that may be queued behind the one that is being processed.
    pub(crate) fn queue(&self) -> usize {
        self.queue
    }

    /// Ends the thread after its current work, waits for that, and returns the operator, which is lost after a panic.
    pub(crate) fn end(self) -> Option<Operator> {
        drop(self.commands);
        self.thread.join().expect("a lane catches its operator's panics")
    }
}

/// The thread: works until the sender of commands is dropped, or the operator panics.
fn run(
    lane: usize,
    key: &Key,
    mut operator: Operator,
    commands: &Receiver<Command>,
    answers: &Sender<Answer>,
    start: Instant,
) -> Option<Operator> {
    let depth = operator.depth();
    let mut begun: VecDeque<(BatchId, Result<Pending>)> = VecDeque::with_capacity(depth);
    let (mut ended, mut exporting) = (0.0, false);
    loop {
        // The operator takes its next mini-batches before the one in work is waited for, but none after one that it refused,
        // and none before a requested export.
        while !exporting && begun.len() < depth && begun.back().is_none_or(|(_, outcome)| outcome.is_ok()) {
            let command = if begun.is_empty() { commands.recv().ok() } else { commands.try_recv().ok() };
            match command {
                Some(Command::Batch(id, batch)) => {
                    begun.push_back((id, guarded(Some(key), Some(id), || operator.begin(id, batch))));
                }
                Some(Command::Share(id, seeds)) => {
                    begun.push_back((id, guarded(Some(key), Some(id), || operator.begin_share(id, seeds))));
                }
                Some(Command::Export) => exporting = true,
                None => break,
            }
        }
        let (mut busy, outcome) = (
            Duration::ZERO,
            match begun.pop_front() {
                Some((id, outcome)) => {
                    let outcome = outcome.and_then(|pending| guarded(Some(key), Some(id), || pending.wait()));
                    outcome.and_then(|work| Ok(Output::Work(Work { batch: delivered(key, id, work.batch)?, ..work })))
                }
                None if std::mem::take(&mut exporting) => {
                    guarded(Some(key), None, || operator.state()).map(Output::State)
                }
                None => return Some(operator),
            },
        );
        if let Ok(Output::Work(work)) = &outcome {
            busy = work.measured.busy;
        }
        let span = span_ending(start.elapsed().as_secs_f64(), busy, ended);
        ended = span.end;
        let panicked = outcome.as_ref().is_err_and(Error::is_panic);
        if panicked {
            // The operator's state after a panic may panic again when it is dropped.
            drop(catch_unwind(AssertUnwindSafe(move || drop((begun, operator)))));
            // The answer of an abandoned lane has no receiver.
            drop(answers.send(Answer { lane, outcome, span }));
            return None;
        }
        if answers.send(Answer { lane, outcome, span }).is_err() {
            return None;
        }
    }
}
