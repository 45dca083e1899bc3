//! Memory that comes back: blocks by size, each with what still has to happen before it is used again.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::driver::{Address, Driver, Failure, Id, Outcome};

/// The pools of a device, and its streams by number.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    pub(crate) device: Pool,
    pub(crate) pinned: Pool,
    events: Mutex<Vec<Id>>,
    streams: Mutex<Vec<Option<Id>>>,
}

/// Streams a device has at most: users of memory are bits of a word.
const MAX_STREAMS: usize = 64;

impl Pools {
    /// The number of a new stream.
    pub(crate) fn add_stream(&self, stream: Id) -> Outcome<u32> {
        let mut streams = lock(&self.streams);
        let free = streams.iter().position(Option::is_none).unwrap_or(streams.len());
        if free == MAX_STREAMS {
            let what = format!("a device has at most {MAX_STREAMS} streams here; drop operators that are not needed");
            return Err(Failure { call: "cuStreamCreateWithPriority", what, memory: false });
        }
        if free == streams.len() {
            streams.push(None);
        }
        streams[free] = Some(stream);
        Ok(free as u32)
    }

    /// Forgets a stream whose work is done.
    pub(crate) fn remove_stream(&self, number: u32) {
        lock(&self.streams)[number as usize] = None;
    }

    /// Events after all that the streams in `users` have been given so far.
    fn fence(&self, driver: &dyn Driver, users: u64) -> Outcome<Vec<Id>> {
        let streams = lock(&self.streams);
        let used = (0..streams.len()).filter(|i| users >> i & 1 == 1).filter_map(|i| streams[i]);
        used.map(|stream| {
            let spare = lock(&self.events).pop();
            let event = spare.map_or_else(|| driver.new_event(false), Ok)?;
            driver.record(event, stream)?;
            Ok(event)
        })
        .collect()
    }

    /// Takes back a block that the streams in `users` may still be using.
    pub(crate) fn give(&self, driver: &dyn Driver, pool: &Pool, address: Address, bytes: usize, users: u64) {
        match self.fence(driver, users) {
            Ok(fence) => lock(&pool.idle).push(Idle { address, bytes, fence }),
            // The device is in error, which the operator's next call says; what may be in use is never used again.
            Err(_) => {}
        }
    }

    /// A block of device memory of at least `bytes`, and how long it is; work of `stream` may use it.
    pub(crate) fn take_device(&self, driver: &dyn Driver, bytes: usize, stream: Id) -> Outcome<(Address, usize)> {
        let bytes = class(bytes);
        if let Some(idle) = self.device.take(|idle| idle.bytes == bytes) {
            for &event in &idle.fence {
                driver.wait(stream, event)?;
            }
            lock(&self.events).extend(idle.fence);
            return Ok((idle.address, bytes));
        }
        match driver.allocate(bytes) {
            Err(failure) if failure.memory => {
                // What lies idle in other sizes goes back first.
                self.device.clear(driver, &self.events, |d, address| d.free(address))?;
                driver.allocate(bytes).map(|address| (address, bytes))
            }
            other => other.map(|address| (address, bytes)),
        }
    }

    /// A block of pinned memory that no device uses any more.
    pub(crate) fn take_pinned(&self, driver: &dyn Driver, bytes: usize) -> Outcome<(Address, usize)> {
        let bytes = class(bytes);
        let done = |idle: &Idle| idle.bytes == bytes && idle.fence.iter().all(|&e| driver.is_done(e).unwrap_or(false));
        if let Some(idle) = self.pinned.take(done) {
            lock(&self.events).extend(idle.fence);
            return Ok((idle.address, bytes));
        }
        match driver.allocate_pinned(bytes) {
            Err(failure) if failure.memory => {
                self.pinned.clear(driver, &self.events, |d, address| d.free_pinned(address as *mut u8))?;
                driver.allocate_pinned(bytes).map(|pointer| (pointer as Address, bytes))
            }
            other => other.map(|pointer| (pointer as Address, bytes)),
        }
    }

    /// Gives everything back to the driver.
    pub(crate) fn clear(&self, driver: &dyn Driver) {
        // Errors are those of a device that is gone, and its memory with it.
        let _ = self.device.clear(driver, &self.events, |d, address| d.free(address));
        let _ = self.pinned.clear(driver, &self.events, |d, address| d.free_pinned(address as *mut u8));
        lock(&self.events).drain(..).for_each(|event| driver.free_event(event));
    }
}

/// Blocks of one kind of memory.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    idle: Mutex<Vec<Idle>>,
}

#[derive(Debug)]
struct Idle {
    address: Address,
    bytes: usize,
    /// What has to happen before it is used again.
    fence: Vec<Id>,
}

impl Pool {
    /// Bytes that nobody has.
    pub(crate) fn idle_bytes(&self) -> u64 {
        lock(&self.idle).iter().map(|idle| idle.bytes as u64).sum()
    }

    /// The block that came back last of those that fit.
    fn take(&self, fits: impl Fn(&Idle) -> bool) -> Option<Idle> {
        let mut idle = lock(&self.idle);
        let at = idle.iter().rposition(fits)?;
        Some(idle.remove(at))
    }

    fn clear(&self, driver: &dyn Driver, events: &Mutex<Vec<Id>>, free: fn(&dyn Driver, Address)) -> Outcome<()> {
        let all = std::mem::take(&mut *lock(&self.idle));
        for idle in all {
            for event in idle.fence {
                driver.wait_for(event)?;
                lock(events).push(event);
            }
            free(driver, idle.address);
        }
        Ok(())
    }
}

/// The length of the blocks that `bytes` bytes are taken from: at most a quarter more, and at least 512.
pub(crate) fn class(bytes: usize) -> usize {
    // For a sanitizer, blocks end where what was asked for ends.
    if cfg!(feature = "emulate") && option_env!("MORPHGL_SANITIZE").is_some() {
        return bytes.max(1);
    }
    let bytes = bytes.max(512);
    let step = (bytes.next_power_of_two() / 8).max(128);
    bytes.next_multiple_of(step)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::class;

    #[test]
    fn classes_waste_at_most_a_quarter() {
        for bytes in (1..100_000).chain([1 << 30, (1 << 30) + 1]) {
            let class = class(bytes);
            assert!(class >= bytes && class <= (bytes + bytes / 4).max(512), "{bytes}: {class}");
        }
    }
}
