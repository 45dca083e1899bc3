//! Given rows in the simulator: those of a super-batch are computed while the one before it trains, and its first transfer waits
//! for them.

use morphgl_registry::Phase;

use crate::Seconds;
use crate::simulate::{SideTasks, Span};

/// The rows of one super-batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct GivenRowTimes {
    /// Span of their computation.
    pub(super) span: Span,
    /// Time at which the super-batch's first transfer could begin if the rows were computed.
    pub(super) due: f64,
    /// End of the training of the super-batch before.
    pub(super) before: f64,
}

/// The given rows of an epoch.
#[derive(Debug)]
pub(super) struct GivenRows {
    /// Mini-batches of the epoch.
    pub(super) batches: usize,
    /// Mini-batches of a super-batch.
    pub(super) super_batch: u32,
    /// Seconds of each phase in the first super-batch, where it has no given rows. `None` where the epoch before has computed them;
    /// then this one computes those of the next one's first super-batch while its last one trains, and ends with them at the
    /// earliest.
    pub(super) exact: Option<[Seconds; 3]>,
    /// Seconds of computing the rows of a super-batch, alone on the cores.
    pub(super) seconds: f64,
    /// Threads that compute them.
    pub(super) threads: f64,
    /// Rows computed so far.
    pub(super) rows: Vec<GivenRowTimes>,
    /// Time from which the next transfer waits for rows alone, if it does.
    pub(super) due: Option<f64>,
    /// Ends of training of super-batches.
    pub(super) trained: Vec<f64>,
}

impl GivenRows {
    /// Times of all rows, after the epoch.
    pub(super) fn times(self) -> Vec<GivenRowTimes> {
        let Self { mut rows, trained, exact, .. } = self;
        rows.iter_mut().zip(&trained).for_each(|(rows, end)| rows.before = *end);
        // The next epoch's first transfer is due when this one is trained.
        if let (Some(last), Some(end), None) = (rows.last_mut(), trained.last(), exact) {
            last.due = *end;
        }
        rows
    }
}

impl SideTasks for GivenRows {
    fn threads(&self) -> f64 {
        self.threads
    }

    fn transferable(&self) -> u32 {
        let ended = u32::try_from(self.rows.len()).unwrap_or(u32::MAX);
        ended.saturating_add(1).saturating_mul(self.super_batch)
    }

    fn seconds(&self, number: u32) -> Option<&[Seconds; 3]> {
        self.exact.as_ref().filter(|_| number < self.super_batch)
    }

    fn observes_waits(&self) -> bool {
        self.due.is_none()
    }

    fn waits(&mut self, time: f64) {
        self.due = Some(time);
    }

    fn begins(&mut self, phase: Phase, number: u32, time: f64) -> Option<f64> {
        if !number.is_multiple_of(self.super_batch) {
            return None;
        }
        if phase == Phase::Transferring && number > 0 {
            let rows = self.rows.last_mut().expect("rows are computed before they are transferred");
            rows.due = self.due.take().unwrap_or(time);
        }
        let is_followed = self.exact.is_none() || self.batches as u64 > u64::from(number) + u64::from(self.super_batch);
        (phase == Phase::Training && is_followed).then_some(self.seconds)
    }

    fn task_ends(&mut self, span: Span) {
        self.rows.push(GivenRowTimes { span, due: span.end, before: span.end });
    }

    fn ends(&mut self, phase: Phase, number: u32, time: f64) {
        let is_last = (number + 1).is_multiple_of(self.super_batch) || number as usize + 1 == self.batches;
        if phase == Phase::Training && is_last {
            self.trained.push(time);
        }
    }
}
