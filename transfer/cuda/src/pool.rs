//! Memory pools: idle blocks by size class, each with the events to wait for before reuse.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::driver::{Address, Driver, Failure, Id, MemoryKind, Outcome};
use crate::lock::lock;

/// A driver with its pools and streams.
#[derive(Debug)]
pub(crate) struct Pools {
    pub(crate) driver: Box<dyn Driver>,
    /// Idle blocks by kind of memory.
    idle: [Mutex<Vec<IdleBlock>>; 2],
    /// Driver allocations so far.
    pub(crate) allocations: AtomicU64,
    /// Limit on device memory taken from the driver, if any, and bytes taken.
    pub(crate) limit: Option<u64>,
    taken: AtomicU64,
    events: Mutex<Vec<Id>>,
    /// Streams by number.
    streams: Mutex<Vec<Option<Id>>>,
}

/// Environment variable that limits the bytes a process takes of each device.
pub(crate) const LIMIT: &str = "MORPHGL_CUDA_MEMORY";

pub(crate) fn limit() -> Result<Option<u64>, String> {
    let Ok(text) = std::env::var(LIMIT) else { return Ok(None) };
    let bytes = text.parse().map_err(|_| format!("{LIMIT} is {text:?}; give a number of bytes, such as 4294967296"))?;
    Ok(Some(bytes))
}

/// Maximum number of streams per device: sets of streams are 64-bit words.
const MAX_STREAMS: usize = 64;

impl Pools {
    pub(crate) fn new(driver: Box<dyn Driver>, limit: Option<u64>) -> Self {
        let (idle, allocations, taken, events, streams) = Default::default();
        Self { driver, idle, allocations, limit, taken, events, streams }
    }

    /// Assigns a number to a new stream.
    pub(crate) fn add_stream(&self, stream: Id) -> Outcome<u32> {
        let mut streams = lock(&self.streams);
        let free = streams.iter().position(Option::is_none).unwrap_or(streams.len());
        if free == MAX_STREAMS {
            let message =
                format!("a device has at most {MAX_STREAMS} streams here; drop operators that are not needed");
            return Err(Failure::new("cuStreamCreateWithPriority", message));
        }
        let num_streams = streams.len().max(free + 1);
        streams.resize(num_streams, None);
        streams[free] = Some(stream);
        Ok(free as u32)
    }

    pub(crate) fn remove_stream(&self, number: u32) {
        lock(&self.streams)[number as usize] = None;
    }

    /// Records an event on each stream in `users`, after its work so far.
    fn fence(&self, users: u64) -> Outcome<Vec<Id>> {
        let (streams, mut fence) = (lock(&self.streams), Vec::new());
        for stream in (0..streams.len()).filter(|i| users >> i & 1 == 1).filter_map(|i| streams[i]) {
            let spare = lock(&self.events).pop();
            let event = spare.map_or_else(|| self.driver.new_event(false), Ok);
            let recorded = event.and_then(|event| {
                fence.push(event);
                self.driver.record(event, stream)
            });
            if let Err(failure) = recorded {
                fence.into_iter().for_each(|event| self.driver.free_event(event));
                return Err(failure);
            }
        }
        Ok(fence)
    }

    /// Takes back a block that the streams in `users` may still use.
    pub(crate) fn release(&self, kind: MemoryKind, address: Address, bytes: usize, users: u64) {
        self.driver.bound(address, 0, bytes);
        // Without a fence the device is in error, as the operator's next call reports: the block is leaked.
        if let Ok(fence) = self.fence(users) {
            lock(&self.idle[kind as usize]).push(IdleBlock { address, bytes, fence });
        }
    }

    /// Blocks until the work so far of the streams in `users` is done.
    pub(crate) fn wait_for(&self, users: u64) -> Outcome<()> {
        let fence = self.fence(users)?;
        let waited = fence.iter().try_for_each(|&event| self.driver.wait_for(event));
        lock(&self.events).extend(fence);
        waited
    }

    /// Removes the most recently released idle block that fits.
    fn take_idle(&self, kind: MemoryKind, fits: impl Fn(&IdleBlock) -> bool) -> Option<IdleBlock> {
        let mut idle = lock(&self.idle[kind as usize]);
        let at = idle.iter().rposition(fits)?;
        Some(idle.remove(at))
    }

    /// Bytes of idle blocks of device memory.
    pub(crate) fn idle_bytes(&self) -> u64 {
        lock(&self.idle[MemoryKind::Device as usize]).iter().map(|idle| idle.bytes as u64).sum()
    }

    /// Takes a block of device memory of at least `bytes` for work of a stream; returns its address and length.
    pub(crate) fn take_device(&self, bytes: usize, stream: Id) -> Outcome<(Address, usize)> {
        let bytes = class(bytes);
        // Prefer a block whose users are done, so that the stream need not wait; else the one released last.
        let done = |idle: &IdleBlock| idle.bytes == bytes && idle.is_done(&*self.driver);
        let take = |fits: &dyn Fn(&IdleBlock) -> bool| self.take_idle(MemoryKind::Device, fits);
        if let Some(idle) = take(&done).or_else(|| take(&|idle| idle.bytes == bytes)) {
            // The events can be reused at once: a wait refers to the recording at the time of the call.
            if let Err(failure) = idle.fence.iter().try_for_each(|&event| self.driver.wait(stream, event)) {
                lock(&self.idle[MemoryKind::Device as usize]).push(idle);
                return Err(failure);
            }
            lock(&self.events).extend(idle.fence);
            return Ok((idle.address, bytes));
        }
        let allocate = || {
            self.charge(bytes)?;
            self.driver.allocate(bytes).inspect_err(|_| self.uncharge(bytes))
        };
        self.take_new(MemoryKind::Device, allocate).map(|address| (address, bytes))
    }

    /// Takes a block of pinned memory of at least `bytes` whose users are done; returns its address and length.
    pub(crate) fn take_pinned(&self, bytes: usize) -> Outcome<(Address, usize)> {
        let bytes = class(bytes);
        let done = |idle: &IdleBlock| idle.bytes == bytes && idle.is_done(&*self.driver);
        if let Some(idle) = self.take_idle(MemoryKind::Pinned, done) {
            lock(&self.events).extend(idle.fence);
            return Ok((idle.address, bytes));
        }
        self.take_new(MemoryKind::Pinned, || self.driver.allocate_pinned(bytes)).map(|address| (address, bytes))
    }

    /// Charges a device allocation to the limit.
    fn charge(&self, bytes: usize) -> Outcome<()> {
        let within =
            |taken: u64| taken.checked_add(bytes as u64).filter(|&sum| self.limit.is_none_or(|limit| sum <= limit));
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).map(|_| ()).map_err(|taken| {
            let limit = self.limit.unwrap_or(u64::MAX);
            let message = format!("{bytes} bytes requested, {taken} of the {limit} that {LIMIT} allows in use");
            Failure { call: "cuMemAlloc_v2", message, out_of_memory: true }
        })
    }

    fn uncharge(&self, bytes: usize) {
        self.taken.fetch_sub(bytes as u64, Ordering::Relaxed);
    }

    /// The part of `free` bytes of the device that is within the limit.
    pub(crate) fn unallocated_bytes(&self, free: u64) -> u64 {
        let taken = self.taken.load(Ordering::Relaxed);
        self.limit.map_or(free, |limit| free.min(limit.saturating_sub(taken)))
    }

    /// Allocates from the driver; if memory is exhausted, returns the pool's idle blocks to it and retries.
    fn take_new(&self, kind: MemoryKind, allocate: impl Fn() -> Outcome<Address>) -> Outcome<Address> {
        self.allocations.fetch_add(1, Ordering::Relaxed);
        match allocate() {
            Err(failure) if failure.out_of_memory => {
                self.clear(kind)?;
                allocate()
            }
            other => other,
        }
    }

    /// Waits for the idle blocks of a pool and returns them to the driver.
    fn clear(&self, kind: MemoryKind) -> Outcome<()> {
        let mut blocks = std::mem::take(&mut *lock(&self.idle[kind as usize]));
        while let Some(idle) = blocks.pop() {
            if let Err(failure) = idle.fence.iter().try_for_each(|&event| self.driver.wait_for(event)) {
                blocks.push(idle);
                lock(&self.idle[kind as usize]).extend(blocks);
                return Err(failure);
            }
            lock(&self.events).extend(idle.fence);
            self.driver.bound(idle.address, idle.bytes, idle.bytes);
            match kind {
                MemoryKind::Device => {
                    self.driver.free(idle.address);
                    self.uncharge(idle.bytes);
                }
                MemoryKind::Pinned => self.driver.free_pinned(idle.address),
            }
        }
        Ok(())
    }
}

impl Drop for Pools {
    fn drop(&mut self) {
        // Errors mean a lost device, whose memory is gone as well.
        let _ = self.clear(MemoryKind::Device);
        let _ = self.clear(MemoryKind::Pinned);
        lock(&self.events).drain(..).for_each(|event| self.driver.free_event(event));
    }
}

#[derive(Debug)]
struct IdleBlock {
    address: Address,
    bytes: usize,
    /// Events to wait for before reuse.
    fence: Vec<Id>,
}

impl IdleBlock {
    /// Whether its users are done; false if the query fails.
    fn is_done(&self, driver: &dyn Driver) -> bool {
        self.fence.iter().all(|&event| driver.is_done(event).unwrap_or(false))
    }
}

/// Size class of an allocation: at most a quarter more than `bytes`, and at least 512. Impossible sizes are unchanged.
fn class(bytes: usize) -> usize {
    let bytes = bytes.max(512);
    if bytes > isize::MAX as usize / 2 {
        return bytes;
    }
    let step = (bytes.next_power_of_two() / 8).max(128);
    bytes.next_multiple_of(step)
}

#[cfg(test)]
mod tests;
