//! Streams: a thread that executes an operator's work in order and asynchronously.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use morphgl_registry::{BatchId, Error, Handle, Key, Result, Wait};

use crate::resources::Stop;
use crate::{Device, Operation, Work};

/// A thread with its own state that executes operations on a device, one after another.
///
/// Dropping it cancels running and queued operations (their handles fail) and joins the thread.
pub struct Stream<S> {
    device: Device,
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
    pub fn new(device: &Device, key: &Key, work: Work, mut state: S) -> Result<Self> {
        let (sender, jobs) = channel::<Job<S>>();
        let run = move || jobs.into_iter().for_each(|job| job(&mut state));
        let thread = Builder::new().name(format!("sim {work}")).spawn(run).map_err(|e| Error::failed(key, e))?;
        let (device, key, stop) = (device.clone(), key.clone(), Arc::default());
        Ok(Self { device, key, work, stop, jobs: Some(sender), thread: Some(thread) })
    }

    /// Queues an operation for the mini-batch `id`: [`Device::operate`] with `run`. Its input `kept` lives until the operation
    /// is done, and is dropped before the handle is ready.
    ///
    /// A panic of `run` is resumed by the wait for the handle.
    pub fn submit<T: Send + 'static, K: Send + 'static>(
        &self,
        id: BatchId,
        mut kept: K,
        run: impl FnOnce(&mut S, &mut K) -> Result<T> + Send + 'static,
    ) -> Handle<T> {
        let (device, key, work, stop) = (self.device.clone(), self.key.clone(), self.work, Arc::clone(&self.stop));
        self.push(format!("{key}, {id}"), move |state| {
            let operation = Operation { key: &key, work, id };
            let outcome = device.operate_until(operation, &stop, || run(state, &mut kept));
            drop(kept);
            outcome
        })
    }

    /// Queues `run` behind all submitted work; it holds no resource and takes no time.
    pub fn after<T: Send + 'static>(&self, run: impl FnOnce(&mut S) -> Result<T> + Send + 'static) -> Handle<T> {
        self.push(self.key.to_string(), move |state| Ok((run(state)?, Duration::ZERO)))
    }

    fn push<T: Send + 'static>(
        &self,
        context: String,
        run: impl FnOnce(&mut S) -> Result<(T, Duration)> + Send + 'static,
    ) -> Handle<T> {
        let shared = Arc::new(Shared { state: Mutex::new(State::Pending), done: Condvar::new() });
        let (promise, stop) = (Promise(Arc::clone(&shared)), Arc::clone(&self.stop));
        let job = move |state: &mut S| {
            if !stop.is_closed() {
                let outcome = catch_unwind(AssertUnwindSafe(|| run(state)));
                promise.keep(outcome);
            }
        };
        if let Some(jobs) = &self.jobs {
            // If the thread has ended, the job is dropped with its promise, and the handle fails.
            drop(jobs.send(Box::new(job)));
        }
        Handle::pending(Pending { context, shared })
    }
}

impl<S> Drop for Stream<S> {
    fn drop(&mut self) {
        self.device.close(&self.stop);
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

/// Outcome of a job, passed from the stream's thread to the handle.
struct Shared<T> {
    state: Mutex<State<T>>,
    done: Condvar,
}

enum State<T> {
    Pending,
    Done(std::thread::Result<Result<(T, Duration)>>),
    /// The job was dropped without running.
    Dropped,
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, state: State<T>) {
        *self.lock() = state;
        self.done.notify_all();
    }
}

/// Sending side, held by the job; dropping it unfulfilled wakes the waiter.
struct Promise<T>(Arc<Shared<T>>);

impl<T> Promise<T> {
    fn keep(self, outcome: std::thread::Result<Result<(T, Duration)>>) {
        self.0.set(State::Done(outcome));
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        let pending = matches!(*self.0.lock(), State::Pending);
        if pending {
            self.0.set(State::Dropped);
        }
    }
}

/// Receiving side, held by the handle.
struct Pending<T> {
    context: String,
    shared: Arc<Shared<T>>,
}

impl<T: Send> Wait<T> for Pending<T> {
    fn is_ready(&self) -> bool {
        !matches!(*self.shared.lock(), State::Pending)
    }

    fn wait(self: Box<Self>) -> Result<(T, Duration)> {
        let mut state = self.shared.lock();
        loop {
            match std::mem::replace(&mut *state, State::Dropped) {
                State::Done(Ok(outcome)) => return outcome,
                State::Done(Err(panic)) => {
                    drop(state);
                    resume_unwind(panic)
                }
                State::Dropped => {
                    return Err(Error::failed(&self.context, "the operator was dropped before this was done"));
                }
                State::Pending => {
                    *state = State::Pending;
                    state = self.shared.done.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}
