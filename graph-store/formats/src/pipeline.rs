//! Ordered pipeline: jobs begin in order, run in parallel, and their results are consumed in order.

use std::sync::mpsc::{Receiver, channel, sync_channel};
use std::sync::{Mutex, PoisonError};

use morphgl_graph_store::Result;

/// Maximum number of jobs of `bytes` in flight: four per thread, within a quarter of `memory`; at least two.
pub(crate) fn ahead(memory: u64, bytes: u64) -> u64 {
    (memory / 4 / bytes.max(1)).min(4 * rayon::current_num_threads() as u64).max(2)
}

/// Calls `next` until it returns no job, one call at a time; runs each job by `work`, on twice as many threads as rayon's
/// pool has (some wait for a disk), or on `ahead` if that is less; and passes the results to `consume` on this thread, in
/// the order of the jobs. At most `ahead` results are pending. The first error, in the order of the jobs, ends the pipeline.
pub(crate) fn ordered<J, T: Send>(
    ahead: u64,
    next: impl FnMut() -> Result<Option<J>> + Send,
    work: impl Fn(J) -> Result<T> + Sync,
    mut consume: impl FnMut(T) -> Result<()>,
) -> Result<()> {
    // Reorder buffer: a channel for the result of each job, in the order of the jobs.
    let (order, results) = sync_channel::<Receiver<Result<T>>>(ahead.saturating_sub(1) as usize);
    // The sender is dropped when no further job may begin, which ends the consumer's loop.
    let jobs = Mutex::new((next, Some(order)));
    let worker = || {
        loop {
            let mut jobs = jobs.lock().unwrap_or_else(PoisonError::into_inner);
            // Taken out meanwhile, so that a panic of `next` drops it.
            let Some(order) = jobs.1.take() else { return };
            let Some(job) = (jobs.0)().transpose() else { return };
            let (send, result) = channel();
            // Blocks under the lock while the buffer is full, and fails once the consumer has ended.
            if order.send(result).is_ok() && job.is_ok() {
                jobs.1 = Some(order);
            }
            drop(jobs);
            // A consumer that has ended needs no result.
            let _ = send.send(job.and_then(&work));
        }
    };
    std::thread::scope(|scope| {
        // More threads than jobs would only wait.
        for _ in 0..(2 * rayon::current_num_threads() as u64).min(ahead.max(1)) {
            scope.spawn(worker);
        }
        for result in results {
            match result.recv() {
                Ok(result) => consume(result?)?,
                // A worker panicked; the scope passes the panic on.
                Err(_) => break,
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests;
