//! Ordered pipeline: jobs begin in order, run in parallel, and their results are taken in order.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use morphgl_graph_store::Result;

/// The reorder buffer between the workers and the consumer.
struct State<T> {
    /// Results that are ready, by number.
    ready: BTreeMap<u64, Result<T>>,
    /// Number of the result handed on next.
    next: u64,
    /// How many results there are, once that is known.
    count: Option<u64>,
    /// The consumer failed, or a worker panicked: no job is started any more.
    stopped: bool,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // The state is consistent at every instruction that may panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'s>(&self, state: MutexGuard<'s, State<T>>) -> MutexGuard<'s, State<T>> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }
}

/// Stops the pipeline when its holder panics.
struct StopOnPanic<'s, T>(&'s Shared<T>);

impl<T> Drop for StopOnPanic<'_, T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop();
        }
    }
}

/// Most jobs of `bytes` in flight: four a thread, within a quarter of `memory`; at least two.
pub(crate) fn ahead(memory: u64, bytes: u64) -> u64 {
    (memory / 4 / bytes.max(1)).min(4 * rayon::current_num_threads() as u64).max(2)
}

/// Calls `next` until it returns no job, one call at a time; runs each job by `work`, on twice as many threads as rayon's
/// pool has (some wait for a disk), or on `ahead` if that is less; and passes the results to `take` on this thread, in the
/// order of the jobs. At most `ahead` jobs are begun and not taken. The first error, in the order of the jobs, ends it.
pub(crate) fn ordered<J, T: Send>(
    ahead: u64,
    next: impl FnMut() -> Result<Option<J>> + Send,
    work: impl Fn(J) -> Result<T> + Sync,
    mut take: impl FnMut(T) -> Result<()>,
) -> Result<()> {
    let state = State { ready: BTreeMap::new(), next: 0, count: None, stopped: false };
    let shared = Shared { state: Mutex::new(state), changed: Condvar::new() };
    let jobs = Mutex::new((next, 0u64));
    let worker = || {
        let _guard = StopOnPanic(&shared);
        loop {
            // The lock is held while waiting for room: the job with the next number has to begin first.
            let mut jobs = jobs.lock().unwrap_or_else(PoisonError::into_inner);
            let number = jobs.1;
            let mut state = shared.lock();
            while !state.stopped && state.count.is_none() && number >= state.next + ahead {
                state = shared.wait(state);
            }
            if state.stopped || state.count.is_some() {
                return;
            }
            drop(state);
            let job = (jobs.0)();
            jobs.1 += 1;
            if !matches!(job, Ok(Some(_))) {
                // An error is the last result.
                shared.lock().count = Some(number + u64::from(job.is_err()));
            }
            drop(jobs);
            let result = match job {
                Ok(Some(job)) => Some(work(job)),
                Ok(None) => None,
                Err(e) => Some(Err(e)),
            };
            if let Some(result) = result {
                shared.lock().ready.insert(number, result);
            }
            shared.changed.notify_all();
        }
    };
    std::thread::scope(|scope| {
        // More threads than jobs would only wait.
        for _ in 0..(2 * rayon::current_num_threads() as u64).min(ahead.max(1)) {
            scope.spawn(worker);
        }
        let _guard = StopOnPanic(&shared);
        let mut state = shared.lock();
        loop {
            let number = state.next;
            if let Some(result) = state.ready.remove(&number) {
                state.next += 1;
                shared.changed.notify_all();
                drop(state);
                if let Err(e) = result.and_then(&mut take) {
                    shared.stop();
                    return Err(e);
                }
                state = shared.lock();
            } else if state.stopped || state.count.is_some_and(|count| number >= count) {
                // Stopped by a panic, which the scope passes on.
                return Ok(());
            } else {
                state = shared.wait(state);
            }
        }
    })
}

#[cfg(test)]
mod tests;
