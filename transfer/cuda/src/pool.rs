//! Memory that comes back: blocks by size, each with what still has to happen before it is used again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::driver::{Address, Driver, Failure, Id, Outcome};

/// The pools of a device, and its streams by number.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    pub(crate) device: Pool,
    pub(crate) pinned: Pool,
    /// Blocks that the driver was asked for.
    pub(crate) asked: AtomicU64,
    /// Bytes of device memory that may be taken of the driver at most, if there is a limit, and those that are.
    pub(crate) limit: Option<u64>,
    taken: AtomicU64,
    events: Mutex<Vec<Id>>,
    streams: Mutex<Streams>,
}

#[derive(Debug, Default)]
struct Streams {
    ids: Vec<Option<Id>>,
    /// Bits of the streams whose work is being written down: no event of theirs can be waited for now.
    captured: u64,
    /// What came back meanwhile: kind, address, bytes, users.
    late: Vec<(Kind, Address, usize, u64)>,
}

/// The variable that limits the device memory that a process takes: bytes of each device.
pub(crate) const LIMIT: &str = "MORPHGL_CUDA_MEMORY";

/// What it says, if it is set.
pub(crate) fn limit() -> Result<Option<u64>, String> {
    let Ok(text) = std::env::var(LIMIT) else { return Ok(None) };
    let bytes = text.parse().map_err(|_| format!("{LIMIT} is {text:?}; give a number of bytes, such as 4294967296"))?;
    Ok(Some(bytes))
}

/// Of which pool a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Device,
    Pinned,
}

/// Streams a device has at most: users of memory are bits of a word.
const MAX_STREAMS: usize = 64;

impl Pools {
    /// Empty ones, for so many bytes of device memory at most.
    pub(crate) fn within(limit: Option<u64>) -> Self {
        Self { limit, ..Self::default() }
    }

    /// The number of a new stream.
    pub(crate) fn add_stream(&self, stream: Id) -> Outcome<u32> {
        let mut streams = lock(&self.streams);
        let free = streams.ids.iter().position(Option::is_none).unwrap_or(streams.ids.len());
        if free == MAX_STREAMS {
            let what = format!("a device has at most {MAX_STREAMS} streams here; drop operators that are not needed");
            return Err(Failure { call: "cuStreamCreateWithPriority", what, memory: false });
        }
        if free == streams.ids.len() {
            streams.ids.push(None);
        }
        streams.ids[free] = Some(stream);
        Ok(free as u32)
    }

    /// Forgets a stream whose work is done.
    pub(crate) fn remove_stream(&self, number: u32) {
        lock(&self.streams).ids[number as usize] = None;
    }

    /// Says that a stream's work is written down from now on.
    pub(crate) fn begin_capture(&self, bit: u64) {
        lock(&self.streams).captured |= bit;
    }

    /// Says that a stream's work is done again from now on; takes in what came back meanwhile.
    pub(crate) fn end_capture(&self, driver: &dyn Driver, bit: u64) {
        let late = {
            let mut streams = lock(&self.streams);
            streams.captured &= !bit;
            std::mem::take(&mut streams.late)
        };
        for (kind, address, bytes, users) in late {
            self.give(driver, kind, address, bytes, users);
        }
    }

    /// Events after all that the streams in `users` have been given so far.
    fn fence(&self, driver: &dyn Driver, streams: &Streams, users: u64) -> Outcome<Vec<Id>> {
        let used = (0..streams.ids.len()).filter(|i| users >> i & 1 == 1).filter_map(|i| streams.ids[i]);
        let mut fence = Vec::new();
        for stream in used {
            let spare = lock(&self.events).pop();
            let made = spare.map_or_else(|| driver.new_event(false), Ok);
            let recorded = made.and_then(|event| {
                fence.push(event);
                driver.record(event, stream)
            });
            if let Err(failure) = recorded {
                fence.into_iter().for_each(|event| driver.free_event(event));
                return Err(failure);
            }
        }
        Ok(fence)
    }

    /// Takes back a block that the streams in `users` may still be using.
    pub(crate) fn give(&self, driver: &dyn Driver, kind: Kind, address: Address, bytes: usize, users: u64) {
        let mut streams = lock(&self.streams);
        if users & streams.captured != 0 {
            return streams.late.push((kind, address, bytes, users));
        }
        driver.bound(address, 0, bytes);
        // Without a fence the device is in error, which the operator's next call says: what may be in use is never
        // used again.
        if let Ok(fence) = self.fence(driver, &streams, users) {
            lock(&self.of(kind).idle).push(Idle { address, bytes, fence });
        }
    }

    /// Waits until what the streams in `users` have been given so far is done.
    pub(crate) fn wait_for(&self, driver: &dyn Driver, users: u64) -> Outcome<()> {
        let fence = {
            let streams = lock(&self.streams);
            if users & streams.captured != 0 {
                let what = "memory is waited for while work on it is captured".to_string();
                return Err(Failure { call: "cuEventRecord", what, memory: false });
            }
            self.fence(driver, &streams, users)?
        };
        let waited = fence.iter().try_for_each(|&event| driver.wait_for(event));
        lock(&self.events).extend(fence);
        waited
    }

    fn of(&self, kind: Kind) -> &Pool {
        match kind {
            Kind::Device => &self.device,
            Kind::Pinned => &self.pinned,
        }
    }

    /// Takes a block of device memory of at least `bytes` for work of a stream, given by its id and its bit; returns its
    /// address and length.
    pub(crate) fn take_device(
        &self,
        driver: &dyn Driver,
        bytes: usize,
        (stream, bit): (Id, u64),
    ) -> Outcome<(Address, usize)> {
        if lock(&self.streams).captured & bit != 0 {
            let what = "device memory is taken while the stream's work is captured: take it before".to_string();
            return Err(Failure { call: "cuMemAlloc_v2", what, memory: false });
        }
        let bytes = class(bytes);
        // One that nobody uses any more, so that the stream need not wait for others' work; else the one that came back last.
        let done = |idle: &Idle| idle.bytes == bytes && idle.is_done(driver);
        if let Some(idle) = self.device.take(done).or_else(|| self.device.take(|idle| idle.bytes == bytes)) {
            // The events can be recorded anew right away: a wait is for what an event meant when it was asked for.
            if let Err(failure) = idle.fence.iter().try_for_each(|&event| driver.wait(stream, event)) {
                lock(&self.device.idle).push(idle);
                return Err(failure);
            }
            lock(&self.events).extend(idle.fence);
            return Ok((idle.address, bytes));
        }
        let allocate = || {
            self.reserve(bytes)?;
            driver.allocate(bytes).inspect_err(|_| self.release(bytes))
        };
        self.take_new(driver, Kind::Device, allocate).map(|address| (address, bytes))
    }

    /// A block of pinned memory that no device uses any more.
    pub(crate) fn take_pinned(&self, driver: &dyn Driver, bytes: usize) -> Outcome<(Address, usize)> {
        let bytes = class(bytes);
        if let Some(idle) = self.pinned.take(|idle| idle.bytes == bytes && idle.is_done(driver)) {
            lock(&self.events).extend(idle.fence);
            return Ok((idle.address, bytes));
        }
        let allocate = || driver.allocate_pinned(bytes).map(|pointer| pointer as Address);
        self.take_new(driver, Kind::Pinned, allocate).map(|address| (address, bytes))
    }

    /// Counts device memory that is about to be taken of the driver, within the limit.
    fn reserve(&self, bytes: usize) -> Outcome<()> {
        let within =
            |taken: u64| taken.checked_add(bytes as u64).filter(|&all| self.limit.is_none_or(|most| all <= most));
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).map(|_| ()).map_err(|taken| {
            let most = self.limit.unwrap_or(u64::MAX);
            let what = format!("{bytes} bytes asked for, {taken} of the {most} that {LIMIT} allows in use");
            Failure { call: "cuMemAlloc_v2", what, memory: true }
        })
    }

    fn release(&self, bytes: usize) {
        self.taken.fetch_sub(bytes as u64, Ordering::Relaxed);
    }

    /// Of so many bytes that are free on the device those that may be taken.
    pub(crate) fn untaken_bytes(&self, free: u64) -> u64 {
        let taken = self.taken.load(Ordering::Relaxed);
        self.limit.map_or(free, |most| free.min(most.saturating_sub(taken)))
    }

    /// Memory of the driver; if it has none left, what lies idle in other sizes goes back to it first.
    fn take_new(&self, driver: &dyn Driver, kind: Kind, take: impl Fn() -> Outcome<Address>) -> Outcome<Address> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        match take() {
            Err(failure) if failure.memory => {
                self.clear_one(driver, kind)?;
                take()
            }
            other => other,
        }
    }

    /// Gives everything back to the driver.
    pub(crate) fn clear(&self, driver: &dyn Driver) {
        // Errors are those of a device that is gone, and its memory with it.
        let _ = self.clear_one(driver, Kind::Device);
        let _ = self.clear_one(driver, Kind::Pinned);
        lock(&self.events).drain(..).for_each(|event| driver.free_event(event));
    }

    /// Waits for what lies idle in a pool, and gives it back to the driver.
    fn clear_one(&self, driver: &dyn Driver, kind: Kind) -> Outcome<()> {
        let mut all = std::mem::take(&mut *lock(&self.of(kind).idle));
        while let Some(idle) = all.pop() {
            if let Err(failure) = idle.fence.iter().try_for_each(|&event| driver.wait_for(event)) {
                all.push(idle);
                lock(&self.of(kind).idle).extend(all);
                return Err(failure);
            }
            lock(&self.events).extend(idle.fence);
            driver.bound(idle.address, idle.bytes, idle.bytes);
            match kind {
                Kind::Device => {
                    driver.free(idle.address);
                    self.release(idle.bytes);
                }
                Kind::Pinned => driver.free_pinned(idle.address as *mut u8),
            }
        }
        Ok(())
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

impl Idle {
    /// Whether nobody uses it any more; not where the driver does not say.
    fn is_done(&self, driver: &dyn Driver) -> bool {
        self.fence.iter().all(|&event| driver.is_done(event).unwrap_or(false))
    }
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
}

/// The length of the blocks that `bytes` bytes are taken from: at most a quarter more, and at least 512.
/// So many that no memory has them stay as they are.
pub(crate) fn class(bytes: usize) -> usize {
    let bytes = bytes.max(512);
    if bytes > isize::MAX as usize / 2 {
        return bytes;
    }
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
        assert_eq!(class(usize::MAX), usize::MAX);
    }
}
