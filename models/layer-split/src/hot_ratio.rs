//! The hot ratio while training: fixed, or following measured times.

use std::time::Instant;

use crate::SuperBatches;

/// How the hot ratio follows measured times (neutronorch §4.3.1): a mini-batch's rows then depend on them, and no two runs have
/// the same bits.
#[derive(Debug, Clone, Copy)]
pub struct Follow {
    /// The largest ratio.
    pub most: f64,
    /// The next ratio, from the last one, the seconds of choosing and computing its rows, and those of the super-batch meanwhile,
    /// without waits for rows: `morphgl_plan::next_ratio`.
    pub next: fn(f64, f64, f64) -> f64,
}

/// The hot ratio by which the nodes of the next super-batch are chosen.
#[derive(Debug)]
pub(crate) struct HotRatio {
    ratio: f64,
    follow: Option<Follow>,
    super_batches: SuperBatches,
    /// The super-batch that is trained.
    current: Option<Current>,
}

#[derive(Debug)]
struct Current {
    super_batch: u64,
    began: Instant,
    /// Seconds that transfers had waited for rows before it began.
    waited: f64,
    /// The ratio of the rows that were computed meanwhile, and the seconds of the thread that computed them.
    computed: Option<(f64, f64)>,
}

impl HotRatio {
    pub(crate) fn new(ratio: f64, follow: Option<Follow>, super_batches: SuperBatches) -> Self {
        Self { ratio, follow, super_batches, current: None }
    }

    /// The ratio to choose the next nodes by.
    pub(crate) fn get(&self) -> f64 {
        self.ratio
    }

    /// A super-batch began; transfers have waited for rows for so many seconds in all.
    pub(crate) fn begins(&mut self, super_batch: u64, began: Instant, waited: f64) {
        let last = self.current.replace(Current { super_batch, began, waited, computed: None });
        let (Some(follow), Some(last)) = (self.follow, last) else { return };
        // The last super-batch of an epoch may be short, and evaluation may follow it.
        let [own, next] = [last.super_batch, super_batch + 1].map(|number| self.super_batches.ids(number).next());
        let within = super_batch == last.super_batch + 1 && own.map(|id| id.epoch) == next.map(|id| id.epoch);
        let Some((ratio, busy)) = last.computed.filter(|_| within) else { return };
        let seconds = began.saturating_duration_since(last.began).as_secs_f64() - (waited - last.waited);
        self.ratio = (follow.next)(ratio, busy, seconds.max(0.0)).min(follow.most);
    }

    /// Notes that choosing nodes and computing the rows of those chosen by `ratio` took `seconds` while the current super-batch
    /// was trained.
    pub(crate) fn computed(&mut self, ratio: f64, seconds: f64) {
        if let Some(current) = &mut self.current {
            current.computed = Some((ratio, seconds));
        }
    }
}

#[cfg(test)]
mod tests;
