//! The time budget: how much of it is spent, and how many samples the next point gets.

use std::time::{Duration, Instant};

use crate::{Error, ErrorKind, Progress, Result, Settings};

/// Whether to stop, asked between mini-batches.
pub(crate) type Stop<'a> = &'a (dyn Fn() -> bool + Sync);

/// Least warm-up of training by several threads: the operating system may have woken two threads on one core, and takes tens of
/// milliseconds to move one of them to an idle core.
pub(crate) const SETTLE: Duration = Duration::from_millis(40);

/// Samples of one point.
#[derive(Clone, Copy)]
pub(crate) struct Sampling<'a> {
    /// The epoch whose mini-batches are used.
    pub(crate) epoch: u32,
    /// Mini-batches before the first sample.
    pub(crate) warm_up: usize,
    /// Least time before the first sample of training by several threads.
    pub(crate) settle: Duration,
    /// Number of samples, at least 1.
    pub(crate) batches: usize,
    /// After this time one sample is enough.
    pub(crate) deadline: Instant,
    pub(crate) stop: Stop<'a>,
}

impl Sampling<'_> {
    /// Whether warm-up and samples of `seconds` each end before the deadline.
    pub(crate) fn has_time_for(&self, seconds: f64) -> bool {
        let all = Duration::try_from_secs_f64(seconds * (self.warm_up + self.batches) as f64);
        all.is_ok_and(|all| all <= self.deadline.saturating_duration_since(Instant::now()))
    }

    /// The same samples, with a deadline that leaves time for at least so many mini-batches of `seconds` each.
    pub(crate) fn at_least(self, batches: usize, seconds: f64) -> Self {
        let time = Duration::try_from_secs_f64(seconds * batches as f64).unwrap_or_default();
        Self { deadline: self.deadline.max(Instant::now() + time), ..self }
    }

    /// The same samples, taken after a warm-up of at least `settle`, by which their deadline is later.
    pub(crate) fn after(self, settle: Duration) -> Self {
        Self { settle, deadline: self.deadline + settle, ..self }
    }
}

/// # Errors
///
/// A stop was requested.
pub(crate) fn check_stop(stop: Stop<'_>) -> Result<()> {
    if stop() { Err(Error::new("profiling", ErrorKind::Stopped)) } else { Ok(()) }
}

/// The time budget, the points done and the points skipped.
pub(crate) struct Budget<'a> {
    settings: &'a Settings,
    start: Instant,
    /// Time spent before, on the choice among training operators.
    before: Duration,
    /// Time in all.
    allowed: Duration,
    /// Maximum number of samples per point: few for an epoch of few mini-batches, until the length of an epoch is
    /// known.
    batches: usize,
    done: usize,
    total: usize,
    skipped: Vec<String>,
    stop: Stop<'a>,
    progress: &'a mut dyn FnMut(&Progress),
}

impl<'a> Budget<'a> {
    /// A budget after the choice among training operators took `before` seconds and showed that an epoch takes at most
    /// `epoch_seconds`.
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

    /// Limits the budget by the lower bound of an epoch.
    pub(crate) fn limit(&mut self, epoch_seconds: f64) {
        self.batches = self.settings.batches.max(1);
        let rest = self.settings.in_all(epoch_seconds).saturating_sub(self.before);
        self.allowed = self.settings.for_phases(epoch_seconds).min(rest);
    }

    /// Time left until `share` of the budget is spent.
    fn left(&self, share: f64) -> Duration {
        self.allowed.mul_f64(share).saturating_sub(self.start.elapsed())
    }

    fn sampling(&self, batches: usize, time: Duration) -> Sampling<'a> {
        let Settings { epoch, warm_up, .. } = *self.settings;
        // Two thirds of the time are left for the samples.
        let settle = SETTLE.min(time / 3);
        Sampling { epoch, warm_up, settle, batches, deadline: Instant::now() + time, stop: self.stop }
    }

    /// Reports the next point, a needed one; it is sampled in an equal part of the time until `share` is spent.
    pub(crate) fn needed(&mut self, what: String, share: f64, points_left: usize) -> Result<Sampling<'a>> {
        check_stop(self.stop)?;
        (self.progress)(&Progress { what, done: self.done, total: self.total });
        self.done += 1;
        let time = self.left(share) / u32::try_from(points_left.max(1)).unwrap_or(u32::MAX);
        Ok(self.sampling(self.batches, time))
    }

    /// As [`Budget::needed`] for an optional point, a sample of which takes `seconds`; skips it, and returns `None`, without the
    /// time.
    pub(crate) fn optional(
        &mut self,
        what: String,
        share: f64,
        points_left: usize,
        seconds: f64,
    ) -> Result<Option<Sampling<'a>>> {
        let left = self.left(share);
        if left.is_zero() || left.as_secs_f64() < seconds * (self.settings.warm_up + 1) as f64 {
            self.skip(what);
            return Ok(None);
        }
        self.needed(what, share, points_left).map(Some)
    }

    pub(crate) fn skip(&mut self, what: String) {
        self.done += 1;
        self.skipped.push(what);
    }

    /// Lists a point that was tried, and why it has no samples.
    pub(crate) fn give_up(&mut self, what: String) {
        self.skipped.push(what);
    }

    /// Skips a pool that does not fit in memory.
    pub(crate) fn skip_pool(&mut self, size: (usize, usize)) {
        self.skip(format!("{}: it does not fit in the memory allowed", describe_pool(size)));
    }

    /// The time for threads to settle, up to the whole budget: it is added to the time profiling takes, and taken from no point.
    pub(crate) fn settling(&mut self) -> Duration {
        let time = SETTLE.min(self.settings.budget);
        self.before += time;
        self.start += time;
        time
    }

    /// Further samples of a point that was measured before; `None` without the time for samples of `seconds`.
    pub(crate) fn again(&self, share: f64, samples: usize, seconds: f64) -> Option<Sampling<'a>> {
        let left = self.left(share);
        let needed = seconds * (self.settings.warm_up + 1) as f64;
        (left.as_secs_f64() > needed).then(|| self.sampling(samples, left))
    }

    /// Reports the end; returns the skipped points, and the seconds that profiling took.
    pub(crate) fn end(self) -> (Vec<String>, f64) {
        (self.progress)(&Progress { what: "done".to_string(), done: self.total, total: self.total });
        (self.skipped, (self.before + self.start.elapsed()).as_secs_f64())
    }
}

pub(crate) fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// Batching by a pool, in words.
pub(crate) fn describe_pool((workers, threads): (usize, usize)) -> String {
    match threads {
        1 => format!("batching by {}", count(workers, "worker")),
        _ => format!("batching by {} of {}", count(workers, "worker"), count(threads, "thread")),
    }
}
