//! Schedules: what an executor needs to run an epoch.

use std::fmt;

use morphgl_registry::Phase;
use serde::{Deserialize, Serialize};

use crate::{Contention, Hardware, Resource, RouteKeys, Seconds};

/// The rule by which phases of an epoch's mini-batches begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Policy {
    /// Batch, transfer and train one mini-batch after the other.
    Sequential,
    /// Every phase begins as soon as it can: Category I on a route of the host, Category II on a route of the device.
    Pipeline,
    /// Two routes by the fill, block and flush of MorphGL's Algorithms 1 to 4, footnote 3 included.
    DualBuffer,
    /// Several routes: groups of mini-batches batched by the device; between groups, transferring and training run at once.
    Interleaved,
}

impl Policy {
    /// All policies.
    pub const ALL: [Policy; 4] = [Policy::Sequential, Policy::Pipeline, Policy::DualBuffer, Policy::Interleaved];
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(["sequential", "pipeline", "dual-buffer", "interleaved"][*self as usize])
    }
}

/// One route's part of a schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScheduleShare {
    /// Its operators.
    pub keys: RouteKeys,
    /// Resources of its phases.
    pub hardware: Hardware,
    /// Whether it batches at the place where it trains.
    pub in_place: bool,
    /// Its mini-batches of an epoch.
    pub batches: usize,
    /// Batching workers.
    pub workers: usize,
    /// Threads each worker spreads a mini-batch over.
    pub threads_per_worker: usize,
    /// A worker's seconds per mini-batch.
    pub batching: Seconds,
    /// Seconds per transfer.
    pub transferring: Seconds,
    /// Seconds per step of training.
    pub training: Seconds,
    /// Interference of batching and training, where it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contention: Option<Contention>,
}

impl ScheduleShare {
    /// Seconds per mini-batch of each phase, in the order of [`Phase::ALL`].
    pub(crate) fn seconds(&self) -> [Seconds; 3] {
        [self.batching, self.transferring, self.training]
    }

    /// Whether its mini-batches lie on a device before they are moved to where they are trained: no thread on the cores makes them.
    pub(crate) fn batches_apart(&self, resources: &[Resource]) -> bool {
        !self.in_place && !Resource::on_cores(resources, &self.hardware.batching)
    }
}

/// A policy, the routes' shares, and buffer sizes.
///
/// It carries the durations it was made for, so that the order of its mini-batches is a function of the schedule alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// The policy.
    pub policy: Policy,
    /// The resources.
    pub resources: Vec<Resource>,
    /// The routes' shares; a route batched by the host comes before one batched by the device.
    pub shares: Vec<ScheduleShare>,
    /// Threads training uses, where it runs on cores.
    pub training_threads: usize,
    /// Capacity of the batched buffer: mini-batches batched or being batched, and not yet being transferred (MorphGL's cbs and
    /// those in workers).
    pub batched: usize,
    /// Capacity of the ready buffer: mini-batches transferred or being transferred, and not yet in training (MorphGL's gbs).
    pub ready: usize,
    /// Interleaved: mini-batches of a group, which the device batches in a row.
    pub group: usize,
    /// Interleaved: mini-batches left ready when a group begins.
    pub keep: usize,
    /// As [`Limits::oversubscription`](crate::Limits::oversubscription).
    #[serde(alias = "crowding")]
    pub oversubscription: f64,
    /// As [`Limits::after_step`](crate::Limits::after_step).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub after_step: f64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(seconds: &f64) -> bool {
    *seconds == 0.0
}

impl Schedule {
    /// Mini-batches of the epoch.
    pub fn num_batches(&self) -> usize {
        self.shares.iter().map(|s| s.batches).sum()
    }

    /// Batching workers of the shares that batch in place, or of the others.
    pub(crate) fn workers(&self, in_place: bool) -> usize {
        self.shares.iter().filter(|s| s.in_place == in_place).map(|s| s.workers).sum()
    }

    /// Threads of each phase of a share on the resource with cores; 0 for a phase that runs elsewhere.
    pub(crate) fn threads_on_cores(&self, share: &ScheduleShare) -> [usize; 3] {
        let threads = [share.threads_per_worker, 1, self.training_threads];
        Phase::ALL.map(|phase| {
            let on_cores = Resource::on_cores(&self.resources, &share.hardware[phase]);
            if on_cores { threads[phase as usize] } else { 0 }
        })
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |n: usize, noun: &str| format!("{n} {noun}{}", if n == 1 { "" } else { "s" });
        write!(f, "{}", self.policy)?;
        for (i, share) in self.shares.iter().enumerate() {
            f.write_str(if i == 0 { ": " } else { "; " })?;
            if self.shares.len() > 1 {
                write!(f, "{} of {} by {}, ", share.batches, self.num_batches(), share.keys.batching)?;
            }
            f.write_str(&count(share.workers, "batching worker"))?;
            if share.threads_per_worker > 1 {
                write!(f, " of {} threads", share.threads_per_worker)?;
            }
        }
        if self.training_threads > 0 {
            write!(f, ", {}", count(self.training_threads, "training thread"))?;
        }
        match self.policy {
            Policy::Sequential => Ok(()),
            _ if self.shares.iter().all(|s| s.in_place) => write!(f, ", buffer of {}", self.ready),
            _ => write!(f, ", buffers of {} and {}", self.batched, self.ready),
        }
    }
}
