//! Streams: a thread that executes an operator's work in order and asynchronously.

use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvError, Sender, TryRecvError, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use morphgl_registry::{BatchId, Error, Handle, Key, Measured, Result, Wait};

use crate::resources::Stop;
use crate::{Device, Operation, Work};

/// A thread with its own state that executes operations on a device, one after another.
///
/// Dropping it cancels running and queued operations (their handles fail) and joins the thread.
pub struct Stream<S> {
    device: Device,
    /// The device that its operations read from, whose links they occupy, too.
    from: Option<Device>,
    key: Key,
    work: Work,
    stop: Arc<Stop>,
    jobs: Option<Sender<Job<S>>>,
    thread: Option<JoinHandle<()>>,
}

type Job<S> = Box<dyn FnOnce(&mut S) + Send>;

impl<S: Send + 'static> Stream<S> {
    /// Starts the thread. Its operations belong to the operator `key` and take the duration of `work`.
    ///
    /// # Errors
    ///
    /// No thread can be started.
    pub fn new(device: &Device, key: &Key, work: Work, state: S) -> Result<Self> {
        Self::start(device, None, key, work, state)
    }

    /// As [`Stream::new`], for operations that read from another device: they occupy its links to devices
    /// ([`Resource::PEER`](morphgl_registry::Resource::PEER)) besides the resources of the operator's key at `device`.
    ///
    /// # Errors
    ///
    /// No thread can be started.
    pub fn between(from: &Device, device: &Device, key: &Key, work: Work, state: S) -> Result<Self> {
        Self::start(device, Some(from.clone()), key, work, state)
    }

    fn start(device: &Device, from: Option<Device>, key: &Key, work: Work, mut state: S) -> Result<Self> {
        let (sender, jobs) = channel::<Job<S>>();
        let run = move || jobs.into_iter().for_each(|job| job(&mut state));
        let thread = Builder::new().name(format!("sim {work}")).spawn(run).map_err(|e| Error::failed(key, e))?;
        let (device, key, stop) = (device.clone(), key.clone(), Arc::default());
        Ok(Self { device, from, key, work, stop, jobs: Some(sender), thread: Some(thread) })
    }

    /// Queues an operation for the mini-batch `id`: [`Device::operate`] with `run`. Its `input` lives until the operation is
    /// done, and is dropped before the handle is ready.
    ///
    /// A panic of `run` is resumed by the wait for the handle.
    pub fn submit<T: Send + 'static, K: Send + 'static>(
        &self,
        id: BatchId,
        input: K,
        run: impl FnOnce(&mut S, &mut K) -> Result<T> + Send + 'static,
    ) -> Handle<T> {
        self.submit_part(id, 1.0, input, run)
    }

    /// As [`Stream::submit`]. Besides its result, `run` returns the seconds that it takes on a described machine
    /// ([`Device::seconds`]).
    pub fn submit_costing<T: Send + 'static, K: Send + 'static>(
        &self,
        id: BatchId,
        input: K,
        run: impl FnOnce(&mut S, &mut K) -> Result<(T, f64)> + Send + 'static,
    ) -> Handle<T> {
        self.submit_part_costing(id, 1.0, input, run)
    }

    /// As [`Stream::submit`], in this part of the configured duration.
    pub fn submit_part<T: Send + 'static, K: Send + 'static>(
        &self,
        id: BatchId,
        part: f64,
        input: K,
        run: impl FnOnce(&mut S, &mut K) -> Result<T> + Send + 'static,
    ) -> Handle<T> {
        self.submit_part_costing(id, part, input, |state, input| Ok((run(state, input)?, 0.0)))
    }

    /// As [`Stream::submit_costing`], in this part of a configured duration.
    pub fn submit_part_costing<T: Send + 'static, K: Send + 'static>(
        &self,
        id: BatchId,
        part: f64,
        mut input: K,
        run: impl FnOnce(&mut S, &mut K) -> Result<(T, f64)> + Send + 'static,
    ) -> Handle<T> {
        let (device, from) = (self.device.clone(), self.from.clone());
        let (key, work, stop) = (self.key.clone(), self.work, Arc::clone(&self.stop));
        self.push(format!("{key}, {id}"), move |state| {
            let operation = Operation { key: &key, work, id, part };
            let outcome = device.operate_until(operation, from.as_ref(), &stop, || run(state, &mut input));
            drop(input);
            outcome
        })
    }

    /// Queues `run` behind all submitted work; it acquires no resource and takes no time.
    pub fn after<T: Send + 'static>(&self, run: impl FnOnce(&mut S) -> Result<T> + Send + 'static) -> Handle<T> {
        self.push(self.key.to_string(), move |state| Ok((run(state)?, Duration::ZERO)))
    }

    fn push<T: Send + 'static>(
        &self,
        context: String,
        run: impl FnOnce(&mut S) -> Result<(T, Duration)> + Send + 'static,
    ) -> Handle<T> {
        let (sender, receiver) = channel();
        let stop = Arc::clone(&self.stop);
        let job = move |state: &mut S| {
            if !stop.is_closed() {
                // Nobody receives the outcome if the handle was dropped.
                drop(sender.send(catch_unwind(AssertUnwindSafe(|| run(state)))));
            }
        };
        if let Some(jobs) = &self.jobs {
            // If the thread has ended, the job is dropped with its sender, and the handle fails.
            drop(jobs.send(Box::new(job)));
        }
        Handle::pending(Pending { context, receiver, received: RefCell::default() })
    }
}

impl<S> Drop for Stream<S> {
    fn drop(&mut self) {
        // The thread may wait at either device.
        [Some(&self.device), self.from.as_ref()].into_iter().flatten().for_each(|device| device.close(&self.stop));
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // Panics of jobs are caught and resumed by their waiters: the thread itself does not panic.
            drop(thread.join());
        }
    }
}

impl<S> fmt::Debug for Stream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stream of {} on the {:?}", self.key, self.device)
    }
}

/// Outcome of a job; a panic is resumed by the wait.
type Outcome<T> = std::thread::Result<Result<(T, Duration)>>;

/// Receiving side of a job, owned by the handle. The sender is dropped without an outcome if the job does not run.
struct Pending<T> {
    context: String,
    receiver: Receiver<Outcome<T>>,
    received: RefCell<Option<Outcome<T>>>,
}

impl<T: Send> Wait<T> for Pending<T> {
    fn is_ready(&self) -> bool {
        let mut received = self.received.borrow_mut();
        if received.is_none() {
            match self.receiver.try_recv() {
                Ok(outcome) => *received = Some(outcome),
                Err(e) => return e == TryRecvError::Disconnected,
            }
        }
        true
    }

    fn wait(self: Box<Self>) -> Result<(T, Measured)> {
        match self.received.into_inner().map_or_else(|| self.receiver.recv(), Ok) {
            Ok(Ok(outcome)) => outcome.map(|(value, busy)| (value, Measured { busy, ..Measured::default() })),
            Ok(Err(panic)) => resume_unwind(panic),
            Err(RecvError) => Err(Error::failed(&self.context, "the operator was dropped before this was done")),
        }
    }
}
