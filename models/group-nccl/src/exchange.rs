//! Collectives of trainers on CUDA devices.

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use morphgl_cuda::Event;
use morphgl_group::{Exchange, GroupError, HostExchange, Result};
use morphgl_registry::{Error, Key, Place};

use crate::all_reduce::AllReduce;

/// Intervals between two polls of an all-reduce under way: the first one, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_micros(20), Duration::from_millis(1)];

/// One trainer's end of a group on the devices of a machine: values are all-reduced by the devices, over NCCL; everything else,
/// such as the failures of trainers, goes by way of host memory.
pub struct NcclExchange {
    host: HostExchange,
    all_reduce: AllReduce,
    limit: Duration,
    bytes_sent: u64,
}

impl NcclExchange {
    /// Wraps the ends of an in-process group so that gradients are all-reduced over NCCL. `trainers` has each trainer's key, for error
    /// messages, and its device, which no other trainer may have. An all-reduce that takes longer than `limit` is an error.
    ///
    /// # Errors
    ///
    /// A trainer is on no CUDA device, two are on the same, there is no NCCL, or it fails.
    ///
    /// # Panics
    ///
    /// When there are not as many trainers as ends.
    pub fn group(
        ends: Vec<HostExchange>,
        trainers: &[(Key, Place)],
        limit: Duration,
    ) -> std::result::Result<Vec<Self>, Error> {
        assert_eq!(ends.len(), trainers.len(), "ends and trainers");
        let reductions = AllReduce::group(trainers)?;
        let end = |(host, all_reduce)| Self { host, all_reduce, limit, bytes_sent: 0 };
        Ok(ends.into_iter().zip(reductions).map(end).collect())
    }

    /// Whether a trainer at this place can have an end.
    pub fn serves(place: &Place) -> bool {
        matches!(place, Place::Device { backend, .. } if backend == morphgl_cuda::BACKEND)
    }

    /// Version of NCCL, as in 2.21.5.
    pub fn version(&self) -> &str {
        self.all_reduce.communicator.version()
    }

    /// Waits for the sums, for a trainer that leaves, or for the time limit.
    fn wait(&self, event: &Event) -> Result<()> {
        let deadline = Instant::now() + self.limit;
        let mut pause = PAUSES[0];
        while !event.is_done() {
            self.all_reduce.communicator.check().map_err(engine)?;
            if let Some(failed) = self.host.failure() {
                return Err(failed);
            }
            if Instant::now() >= deadline {
                let (version, seconds) = (self.version(), self.limit.as_secs_f64());
                let what =
                    format!("the all-reduce by NCCL {version} has not ended for {seconds} s; see what it last printed");
                return Err(GroupError::Engine(what));
            }
            thread::sleep(pause);
            pause = (2 * pause).min(PAUSES[1]);
        }
        event.synchronize().and_then(|()| self.all_reduce.communicator.check()).map_err(engine)
    }

    /// All trainers have the same number of values: an all-gather compares them, so that none begins an all-reduce alone.
    fn check_lengths(&mut self, len: usize) -> Result<()> {
        let all = self.host.all_gather(&(len as u64).to_le_bytes())?;
        let read = |bytes: &Vec<u8>| bytes[..].try_into().map(u64::from_le_bytes).ok();
        let expected = all.first().and_then(read);
        match all.iter().position(|bytes| read(bytes).is_none() || read(bytes) != expected) {
            None => Ok(()),
            Some(rank) => {
                let count = |n: Option<u64>| n.map_or("another call".to_string(), |n| n.to_string());
                let (found, expected) = (count(read(&all[rank])), count(expected));
                let what = format!("it adds {found} values, trainer 0 {expected}; give all the same model");
                Err(GroupError::Differs { rank, what })
            }
        }
    }
}

fn engine(e: Error) -> GroupError {
    GroupError::Engine(e.to_string())
}

impl Exchange for NcclExchange {
    fn rank(&self) -> usize {
        self.host.rank()
    }

    fn size(&self) -> usize {
        self.host.size()
    }

    fn all_gather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.host.all_gather(mine)
    }

    fn all_reduce(&mut self, values: &mut [f32]) -> Result<()> {
        self.check_lengths(values.len())?;
        if values.is_empty() {
            return Ok(());
        }
        let reduced = self.all_reduce.queue(values).map_err(engine).and_then(|event| self.wait(&event));
        if let Err(own) = reduced {
            // One failure is another trainer's consequence: the first one is everybody's.
            let first = self.host.failure();
            self.host.leave(&own.to_string());
            self.all_reduce.communicator.abort();
            return Err(first.unwrap_or(own));
        }
        values.copy_from_slice(self.all_reduce.sums(values.len()));
        self.bytes_sent += self.all_reduce.bytes_sent();
        Ok(())
    }

    fn bytes_sent(&self) -> u64 {
        self.bytes_sent
    }

    fn leave(&mut self, why: &str) {
        self.host.leave(why);
    }
}

impl fmt::Debug for NcclExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NcclExchange(trainer {} of {}, NCCL {})", self.rank(), self.size(), self.version())
    }
}
