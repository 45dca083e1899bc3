//! Collectives within a process: trainers are threads, which exchange through host memory.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use crate::{Exchange, GroupError, Result};

/// One trainer's end of a group within a process. Dropping it leaves the group.
pub struct HostExchange {
    rank: usize,
    shared: Arc<Shared>,
}

struct Shared {
    limit: Duration,
    barrier: Mutex<Barrier>,
    changed: Condvar,
    /// Input of each trainer to an all-gather, by rank.
    bytes: Vec<RwLock<Vec<u8>>>,
    /// Input of each trainer to an all-reduce, by rank.
    values: Vec<RwLock<Vec<f32>>>,
    /// Reduced parts, by the rank of the trainer that adds them: the result of the reduce-scatter half of an all-reduce.
    sums: Vec<RwLock<Vec<f32>>>,
}

/// State of the barrier at which all trainers wait for one another.
struct Barrier {
    /// Number of barriers that all trainers have passed.
    passed: u64,
    /// Whether each trainer, by rank, waits at the next barrier.
    arrived: Vec<bool>,
    /// The first failure: every further barrier fails with it.
    failed: Option<GroupError>,
}

impl HostExchange {
    /// The ends of a group of `size` trainers, by rank. A trainer that does not come to an exchange within `limit` ends it.
    pub fn group(size: usize, limit: Duration) -> Vec<Self> {
        fn slots<T: Default>(size: usize) -> Vec<RwLock<T>> {
            (0..size).map(|_| RwLock::default()).collect()
        }
        let barrier = Barrier { passed: 0, arrived: vec![false; size], failed: None };
        let shared = Arc::new(Shared {
            limit,
            barrier: Mutex::new(barrier),
            changed: Condvar::new(),
            bytes: slots(size),
            values: slots(size),
            sums: slots(size),
        });
        (0..size).map(|rank| Self { rank, shared: Arc::clone(&shared) }).collect()
    }

    /// A handle by which another thread aborts the group for this trainer, whose end is out of reach there: a trainer
    /// fails in batching, too.
    pub fn abort_handle(&self) -> AbortHandle {
        AbortHandle { rank: self.rank, shared: Arc::clone(&self.shared) }
    }

    /// The failure that ended the group, if one has; without waiting for others.
    pub fn failure(&self) -> Option<GroupError> {
        self.shared.state().failed.clone()
    }
}

/// Abort handle of one trainer: ends its group from any thread that notices the trainer's failure.
#[derive(Clone)]
pub struct AbortHandle {
    rank: usize,
    shared: Arc<Shared>,
}

impl AbortHandle {
    /// As [`Exchange::leave`] of the trainer.
    pub fn abort(&self, why: &str) {
        self.shared.fail(GroupError::Left { rank: self.rank, why: why.to_string() });
    }
}

impl fmt::Debug for AbortHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AbortHandle(trainer {})", self.rank)
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, Barrier> {
        self.barrier.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Barrier: waits until all trainers have arrived. What each wrote before it, all may read after it.
    fn barrier(&self, rank: usize) -> Result<()> {
        let deadline = Instant::now() + self.limit;
        let mut state = self.state();
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        state.arrived[rank] = true;
        if state.arrived.iter().all(|arrived| *arrived) {
            state.arrived.fill(false);
            state.passed += 1;
            self.changed.notify_all();
            return Ok(());
        }
        let passed = state.passed;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let (guard, _) = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
            state = guard;
            if state.passed > passed {
                return Ok(());
            }
            if state.failed.is_none() && Instant::now() >= deadline {
                let absent = state.arrived.iter().enumerate().filter(|(_, arrived)| !**arrived);
                let ranks = absent.map(|(rank, _)| rank).collect();
                state.failed = Some(GroupError::Late { ranks, limit: self.limit });
                self.changed.notify_all();
            }
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
        }
    }

    fn fail(&self, error: GroupError) {
        self.state().failed.get_or_insert(error);
        self.changed.notify_all();
    }
}

/// The part of `len` values that trainer `rank` of `size` adds.
pub(crate) fn part(len: usize, rank: usize, size: usize) -> Range<usize> {
    len * rank / size..len * (rank + 1) / size
}

fn read<T>(slot: &RwLock<Vec<T>>) -> RwLockReadGuard<'_, Vec<T>> {
    slot.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T: Copy>(slot: &RwLock<Vec<T>>, content: &[T]) {
    let mut slot = slot.write().unwrap_or_else(PoisonError::into_inner);
    slot.clear();
    slot.extend_from_slice(content);
}

impl Exchange for HostExchange {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.shared.bytes.len()
    }

    fn all_gather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        let shared = &self.shared;
        write(&shared.bytes[self.rank], mine);
        shared.barrier(self.rank)?;
        let all = shared.bytes.iter().map(|slot| read(slot).clone()).collect();
        // The slots may be overwritten only after all have read them.
        shared.barrier(self.rank)?;
        Ok(all)
    }

    fn all_reduce(&mut self, values: &mut [f32]) -> Result<()> {
        let (shared, size) = (&self.shared, self.size());
        write(&shared.values[self.rank], values);
        shared.barrier(self.rank)?;
        let expected = read(&shared.values[0]).len();
        for (rank, slot) in shared.values.iter().enumerate() {
            let found = read(slot).len();
            if found != expected {
                let what = format!("it adds {found} values, trainer 0 {expected}; give all the same model");
                return Err(GroupError::Differs { rank, what });
            }
        }
        let own = part(values.len(), self.rank, size);
        write(&shared.sums[self.rank], &read(&shared.values[0])[own.clone()]);
        {
            let mut sums = shared.sums[self.rank].write().unwrap_or_else(PoisonError::into_inner);
            for slot in &shared.values[1..] {
                sums.iter_mut().zip(&read(slot)[own.clone()]).for_each(|(sum, value)| *sum += value);
            }
        }
        shared.barrier(self.rank)?;
        for (rank, slot) in shared.sums.iter().enumerate() {
            let added = part(values.len(), rank, size);
            values[added].copy_from_slice(&read(slot));
        }
        // Sums are written again only after the next barrier, which each trainer reaches after it has copied these.
        Ok(())
    }

    fn leave(&mut self, why: &str) {
        self.abort_handle().abort(why);
    }
}

impl Drop for HostExchange {
    fn drop(&mut self) {
        self.leave("it has ended");
    }
}

impl fmt::Debug for HostExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostExchange(trainer {} of {})", self.rank, self.size())
    }
}
