//! Exclusive resources: holders, waiters, busy time.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use morphgl_registry::{Hardware, Resource};

/// The resource of simulated accelerators.
pub const SIM: Resource = Resource::new("SIM");

/// The resources of a device, in the order of the bits of [`Needs`].
const RESOURCES: [Resource; 3] = [Resource::PCIE, SIM, Resource::PEER];

/// Set of those of [`RESOURCES`] that an operation occupies.
type Needs = u8;

/// Usage of a resource.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Use {
    /// Total time that operations occupied it.
    pub busy: Duration,
    /// Operations that occupied it.
    pub operations: u64,
    /// Operations that waited for it; 0 for a schedule that respects resources.
    pub contended: u64,
}

/// Usage of a device so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// The link between host and device.
    pub pcie: Use,
    /// The device itself.
    pub sim: Use,
    /// Its links to other devices.
    pub peer: Use,
    /// Mini-batches in its memory.
    pub memory_used: usize,
    /// Peak number of mini-batches in its memory.
    pub memory_peak: usize,
    /// Operations that hang.
    pub hanging: usize,
}

/// Cancellation of an operator's thread; it interrupts every wait of the thread.
// Invariant: set under the lock of the device's resources, so that no thread is between checking it and waiting.
#[derive(Debug, Default)]
pub(crate) struct Stop(AtomicBool);

impl Stop {
    pub(crate) fn is_closed(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
pub(crate) struct Closed;

#[derive(Debug, Default)]
pub(crate) struct Resources {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    taken: Needs,
    /// Waiting operations, in order of arrival.
    // Invariant: tickets ascend.
    queue: VecDeque<(u64, Needs)>,
    next: u64,
    uses: [Use; 3],
    /// Number of releases of hanging operations.
    released: u64,
    hanging: usize,
}

#[derive(Debug)]
pub(crate) struct ResourceGuard<'a> {
    resources: &'a Resources,
    needs: Needs,
    pub(crate) since: Instant,
}

impl State {
    /// Whether a waiting operation may proceed: its resources are free, and no earlier one waits for any of them.
    fn may_go(&self, ticket: u64, needs: Needs) -> bool {
        let earlier = self.queue.iter().take_while(|(other, _)| *other < ticket);
        earlier.fold(self.taken, |occupied, (_, other)| occupied | other) & needs == 0
    }

    /// Counts the resources an arriving operation has to wait for.
    fn count_contended(&mut self, needs: Needs) {
        let occupied = self.queue.iter().fold(self.taken, |occupied, (_, other)| occupied | other);
        for (i, usage) in self.uses.iter_mut().enumerate() {
            usage.contended += u64::from(needs & occupied & 1 << i != 0);
        }
    }
}

impl Resources {
    /// Acquires all resources of `hardware` atomically, once they are free and no earlier operation waits for one of them.
    /// The order of arrival prevents starvation, and atomicity prevents deadlock. Hardware that is not the device's is
    /// ignored.
    pub(crate) fn acquire(&self, hardware: &Hardware, stop: &Stop) -> Result<ResourceGuard<'_>, Closed> {
        let needed = |i: &usize| hardware.resources().contains(&RESOURCES[*i]);
        let needs = (0..RESOURCES.len()).filter(needed).fold(0, |needs: Needs, i| needs | 1 << i);
        let mut state = self.lock();
        state.count_contended(needs);
        let ticket = state.next;
        state.next += 1;
        state.queue.push_back((ticket, needs));
        while !state.may_go(ticket, needs) && !stop.is_closed() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.queue.retain(|(other, _)| *other != ticket);
        if stop.is_closed() {
            drop(state);
            self.changed.notify_all();
            return Err(Closed);
        }
        state.taken |= needs;
        drop(state);
        // Operations queued behind this one for other resources may proceed.
        self.changed.notify_all();
        Ok(ResourceGuard { resources: self, needs, since: Instant::now() })
    }

    /// Blocks until [`Resources::release`] or until the operator is dropped.
    pub(crate) fn hang(&self, stop: &Stop) -> Result<(), Closed> {
        let mut state = self.lock();
        let released = state.released;
        state.hanging += 1;
        while state.released == released && !stop.is_closed() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.hanging -= 1;
        if state.released == released { Err(Closed) } else { Ok(()) }
    }

    /// Interrupts every wait of an operator's thread.
    pub(crate) fn close(&self, stop: &Stop) {
        let state = self.lock();
        stop.0.store(true, Ordering::Relaxed);
        drop(state);
        self.changed.notify_all();
    }

    /// Sleeps until `deadline`.
    pub(crate) fn sleep_until(&self, deadline: Instant, stop: &Stop) -> Result<(), Closed> {
        let mut state = self.lock();
        while !stop.is_closed() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Err(Closed)
    }

    pub(crate) fn release(&self) {
        self.lock().released += 1;
        self.changed.notify_all();
    }

    /// Usage in the order of [`RESOURCES`], and the number of hanging operations.
    pub(crate) fn uses(&self) -> ([Use; 3], usize) {
        let state = self.lock();
        (state.uses, state.hanging)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ResourceGuard<'_> {
    fn drop(&mut self) {
        let busy = self.since.elapsed();
        let mut state = self.resources.lock();
        state.taken &= !self.needs;
        for i in (0..RESOURCES.len()).filter(|i| self.needs & 1 << i != 0) {
            state.uses[i].busy += busy;
            state.uses[i].operations += 1;
        }
        drop(state);
        self.resources.changed.notify_all();
    }
}
