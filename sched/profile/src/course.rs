//! How far the budget is spent, and how much a point may be sampled.

use std::time::{Duration, Instant};

use crate::{Error, Progress, Result, Settings};

/// Asked between mini-batches whether to end.
pub(crate) type Stop<'a> = &'a (dyn Fn() -> bool + Sync);

/// How much one point is sampled.
#[derive(Clone, Copy)]
pub(crate) struct Sampling<'a> {
    /// The epoch whose mini-batches are used.
    pub(crate) epoch: u32,
    /// Mini-batches before samples count.
    pub(crate) warm_up: usize,
    /// Samples, from 1.
    pub(crate) batches: usize,
    /// No further samples are needed after this, once there is one.
    pub(crate) deadline: Instant,
    pub(crate) stop: Stop<'a>,
}

impl Sampling<'_> {
    /// # Errors
    ///
    /// A stop was asked for.
    pub(crate) fn go_on(&self) -> Result<()> {
        if (self.stop)() { Err(Error::stopped()) } else { Ok(()) }
    }
}

/// Profiling on its way.
pub(crate) struct Course<'a> {
    settings: &'a Settings,
    start: Instant,
    /// Time that was spent before, on choosing among training operators.
    before: Duration,
    /// Time in all.
    allowed: Duration,
    /// Samples a point gets at most: before it is known how long an epoch takes, not many for one of few mini-batches.
    batches: usize,
    done: usize,
    total: usize,
    pub(crate) skipped: Vec<String>,
    stop: Stop<'a>,
    progress: &'a mut dyn FnMut(&Progress),
}

impl<'a> Course<'a> {
    /// Begins after training operators were chosen in seconds `before`, by which an epoch takes no more than `epoch_seconds`.
    pub(crate) fn new(
        settings: &'a Settings,
        (num_batches, total): (usize, usize),
        (before, epoch_seconds): (f64, f64),
        stop: Stop<'a>,
        progress: &'a mut dyn FnMut(&Progress),
    ) -> Self {
        let batches = settings.batches.min(num_batches / 16).max(1);
        let before = Duration::try_from_secs_f64(before).unwrap_or_default();
        let (start, allowed) = (Instant::now(), settings.in_all(epoch_seconds).saturating_sub(before));
        let allowed = settings.budget.min(allowed);
        Self { settings, start, before, allowed, batches, done: 0, total, skipped: Vec::new(), stop, progress }
    }

    /// Learns how long an epoch takes at least.
    pub(crate) fn limit(&mut self, epoch_seconds: f64) {
        self.batches = self.settings.batches.max(1);
        let rest = self.settings.in_all(epoch_seconds).saturating_sub(self.before);
        self.allowed = self.settings.for_phases(epoch_seconds).min(rest);
    }

    /// Time left until `share` of what is allowed is spent.
    fn left(&self, share: f64) -> Duration {
        self.allowed.mul_f64(share).saturating_sub(self.start.elapsed())
    }

    /// Tells of the next point, which is needed, and how it is sampled: in an equal part of the time until `share` is spent.
    pub(crate) fn needed(&mut self, what: String, share: f64, points_left: usize) -> Result<Sampling<'a>> {
        if (self.stop)() {
            return Err(Error::stopped());
        }
        (self.progress)(&Progress { what, done: self.done, total: self.total });
        self.done += 1;
        let time = self.left(share) / u32::try_from(points_left.max(1)).unwrap_or(u32::MAX);
        Ok(Sampling {
            epoch: self.settings.epoch,
            warm_up: self.settings.warm_up,
            batches: self.batches,
            deadline: Instant::now() + time,
            stop: self.stop,
        })
    }

    /// The same for a point of which a sample takes `seconds`; `None`, and it is listed, where there is not that much time left.
    pub(crate) fn optional(
        &mut self,
        what: String,
        share: f64,
        points_left: usize,
        seconds: f64,
    ) -> Result<Option<Sampling<'a>>> {
        let seconds = seconds * (self.settings.warm_up + 1) as f64;
        let left = self.left(share);
        if left.is_zero() || left.as_secs_f64() < seconds {
            self.done += 1;
            self.skipped.push(what);
            return Ok(None);
        }
        self.needed(what, share, points_left).map(Some)
    }

    /// Lists a point that does not fit in memory.
    pub(crate) fn does_not_fit(&mut self, what: String) {
        self.done += 1;
        self.skipped.push(format!("{what}: it does not fit in the memory allowed"));
    }

    /// How a point that was measured before is sampled again; `None` where there is no time for samples of `seconds`.
    pub(crate) fn again(&mut self, share: f64, samples: usize, seconds: f64) -> Option<Sampling<'a>> {
        let left = self.left(share);
        let warm_up = self.settings.warm_up;
        (left.as_secs_f64() > seconds * (warm_up + 1) as f64).then(|| Sampling {
            epoch: self.settings.epoch,
            warm_up,
            batches: samples,
            deadline: Instant::now() + left,
            stop: self.stop,
        })
    }

    pub(crate) fn end(self) -> (Vec<String>, f64) {
        (self.progress)(&Progress { what: "done".to_string(), done: self.total, total: self.total });
        (self.skipped, (self.before + self.start.elapsed()).as_secs_f64())
    }
}

pub(crate) fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// Batching by so many workers, in words.
pub(crate) fn pool_in_words((workers, threads): (usize, usize)) -> String {
    match threads {
        1 => format!("batching by {}", count(workers, "worker")),
        _ => format!("batching by {} of {}", count(workers, "worker"), count(threads, "thread")),
    }
}
