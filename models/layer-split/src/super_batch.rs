//! Super-batches: n mini-batches after one another.

use morphgl_registry::BatchId;

/// The super-batches of all epochs, numbered on. The last one of an epoch may be shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SuperBatches {
    /// Mini-batches of an epoch.
    pub batches: u32,
    /// Mini-batches of a super-batch, at least one.
    pub len: u32,
}

impl SuperBatches {
    /// The longest super-batches whose rows are at most `staleness` steps old; `None` where that is 0.
    ///
    /// Rows of a super-batch are computed with the parameters that the super-batch before begins with, so those of its last
    /// mini-batch are `2 · len - 1` steps old.
    pub fn within(batches: u32, staleness: u64) -> Option<Self> {
        let len = u32::try_from(staleness.saturating_add(1) / 2).unwrap_or(u32::MAX);
        (len > 0).then_some(Self { batches, len })
    }

    /// The largest staleness, in steps.
    pub fn bound(self) -> u64 {
        2 * u64::from(self.len) - 1
    }

    fn per_epoch(self) -> u64 {
        u64::from(self.batches.div_ceil(self.len).max(1))
    }

    /// The super-batch of a mini-batch.
    pub fn of(self, id: BatchId) -> u64 {
        u64::from(id.epoch) * self.per_epoch() + u64::from(id.index / self.len)
    }

    /// The position of a mini-batch among those of all epochs: the step at which it is trained.
    pub fn position(self, id: BatchId) -> u64 {
        u64::from(id.epoch) * u64::from(self.batches) + u64::from(id.index)
    }

    /// The super-batch of the mini-batch at a position.
    pub fn at(self, position: u64) -> u64 {
        let batches = u64::from(self.batches.max(1));
        self.of(BatchId { epoch: (position / batches) as u32, index: (position % batches) as u32 })
    }

    /// The mini-batches of a super-batch.
    pub fn ids(self, super_batch: u64) -> impl Iterator<Item = BatchId> {
        let (epoch, within) = (super_batch / self.per_epoch(), super_batch % self.per_epoch());
        let first = within as u32 * self.len;
        (first..first.saturating_add(self.len).min(self.batches))
            .map(move |index| BatchId { epoch: epoch as u32, index })
    }
}
