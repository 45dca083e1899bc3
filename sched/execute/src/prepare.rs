//! Batching and transferring without training.

use std::ops::Range;
use std::thread;

use crossbeam::channel::bounded;
use morphgl_registry::{Key, MiniBatch, Score, Transferring};

use crate::error::{delivered, guarded};
use crate::window::CloseOnDrop;
use crate::worker::{BatchWindow, Batched};
use crate::{Error, ErrorKind, Pool, Prepared, Result, Stop};

/// A transferring operator and its key.
type Transfer<'a> = (&'a Key, &'a mut dyn Transferring);

/// Delivers mini-batches `batches` of an epoch, in order, to `consume`, which returns their score (or `Score::default()`).
///
/// For sampled evaluation (`consume` scores them) and for measuring the throughput of batching and transferring.
/// Where the pool's workers have threads, transferring has one, too.
///
/// # Errors
///
/// An operator failed or panicked: the error says which, at which mini-batch. All earlier mini-batches were consumed, the failing
/// one and all later ones were not; every thread has ended. A failure of `consume` carries no operator.
pub fn prepare(
    pool: &mut Pool,
    transfer: Option<Transfer<'_>>,
    epoch: u32,
    batches: Range<u32>,
    stop: &Stop,
    consume: &mut dyn FnMut(&MiniBatch) -> morphgl_registry::Result<Score>,
) -> Result<Prepared> {
    let threads = pool.settings.workers > 0;
    let mut loader = pool.load(epoch, batches.clone(), stop)?;
    let window = loader.window();
    let mut consumer = Consumer { batches, stop, window: &window, consume };
    let outcome = match transfer {
        Some(mut transfer) if threads => thread::scope(|scope| {
            // One mini-batch is consumed, one waits in this channel, one is being transferred.
            let (send, receive) = bounded(1);
            // Dropped first, by a panic too: else the scope would wait for a thread that sleeps in the window.
            let _close = CloseOnDrop(&window);
            let (key, loader) = (transfer.0.clone(), &mut loader);
            let thread = thread::Builder::new().name("transferring".to_string()).spawn_scoped(scope, move || {
                while let Some(batched) = loader.next_batched() {
                    let moved = batched.and_then(|batched| move_by(&mut transfer, batched));
                    let failed = moved.is_err();
                    // The receiver is gone once the consumer has failed or was stopped.
                    if send.send(moved).is_err() || failed {
                        return;
                    }
                }
            });
            thread.map_err(|e| Error::new(Some(&key), None, ErrorKind::Thread(e)))?;
            consumer.run(&mut || receive.recv().ok())
        }),
        mut transfer => consumer.run(&mut || {
            Some(loader.next_batched()?.and_then(|batched| match &mut transfer {
                Some(transfer) => move_by(transfer, batched),
                None => Ok(batched),
            }))
        }),
    };
    loader.finish();
    Ok(Prepared { peak_in_flight: window.peak(), ..outcome? })
}

fn move_by((key, operator): &mut Transfer<'_>, Batched { batch, place }: Batched) -> Result<Batched> {
    let id = batch.id();
    let (batch, _) = guarded(Some(key), Some(id), || operator.transfer(batch)?.wait())?;
    Ok(Batched { batch: delivered(key, id, batch)?, place })
}

/// The function that mini-batches are delivered to, with its share of the window's protocol.
struct Consumer<'a> {
    batches: Range<u32>,
    stop: &'a Stop,
    window: &'a BatchWindow,
    consume: &'a mut dyn FnMut(&MiniBatch) -> morphgl_registry::Result<Score>,
}

impl Consumer<'_> {
    /// Consumes mini-batches until the first failure, or the mini-batch during which a stop was requested.
    fn run(&mut self, next: &mut dyn FnMut() -> Option<Result<Batched>>) -> Result<Prepared> {
        let Self { batches: Range { start, end }, stop, window, consume } = self;
        let mut prepared = Prepared { next: *start, ..Prepared::default() };
        while prepared.next < *end
            && !stop.is_requested()
            && let Some(batched) = next()
        {
            let Batched { batch, place } = batched?;
            prepared.score += guarded(None, Some(batch.id()), || consume(&batch))?;
            prepared.next += 1;
            window.release((batch.place() == place).then_some(batch));
        }
        prepared.stopped = prepared.next < *end;
        assert!(!prepared.stopped || stop.is_requested(), "delivery ended before mini-batch {}", prepared.next);
        Ok(prepared)
    }
}
