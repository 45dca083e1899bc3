//! The order of measuring, and what the budget allows.

use std::time::{Duration, Instant};

use morphgl_registry::{BatchId, Machine, MiniBatch, Place};

use crate::{
    Error, ErrorKind, Operators, PoolSample, Profile, Progress, Result, Settings, Statistics, TrainingSample, VERSION,
    pool, training,
};

/// Shares of the budget for batching, and for batching and transferring together; training gets the rest.
const BATCHING: f64 = 0.35;
const TRANSFERRING: f64 = 0.45;
/// Mini-batches kept for training to be measured with.
const KEPT: usize = 3;

/// Measures every phase of a route: batching by pools of workers, transferring, training at counts of threads.
///
/// Each point is warmed up first. The smallest and the largest count of each phase are always measured, at least once;
/// the others are left out, and listed in [`Profile::skipped`], when the phase's share of the budget is spent.
/// Parameters and optimizer state of training are put back; `set_threads` stays as it was measured last.
///
/// # Errors
///
/// An operator failed or panicked, or there is no mini-batch. Parameters and optimizer state are put back then, too.
pub fn profile(
    operators: &mut Operators<'_>,
    machine: &Machine,
    settings: &Settings,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Profile> {
    let start = Instant::now();
    let route = operators.route;
    let num_batches = operators.batching.num_batches();
    if num_batches == 0 {
        let kind = ErrorKind::Nothing("there is no mini-batch to measure; give it seeds".to_string());
        return Err(Error { context: route.batching.to_string(), kind });
    }
    let pools = ends_first(settings.pools.iter().copied().chain([(1, 1)]));
    let threads = ends_first(
        settings.training_threads.iter().copied().chain((settings.training_threads.is_empty()).then_some(1)),
    );
    let total = pools.len() + 1 + threads.len();
    let mut course = Course { start, budget: settings.budget, done: 0, total, skipped: Vec::new(), progress };

    let mut batching = Vec::new();
    for (i, &(workers, each)) in pools.iter().enumerate() {
        let what = match each {
            1 => format!("batching by {}", count(workers, "worker")),
            _ => format!("batching by {} of {}", count(workers, "worker"), count(each, "thread")),
        };
        if let Some(time) = course.begin(what, i < 2, BATCHING, pools.len() - i) {
            let samples = pool::measure(operators.batching, &route.batching, (workers, each), settings, time)?;
            batching.push(PoolSample { workers, threads: each, seconds: Statistics::of(samples) });
        }
    }
    batching.sort_by_key(|s| (s.threads, s.workers));

    let time = course.begin("transferring".to_string(), true, TRANSFERRING, 1).unwrap_or_default();
    let (transferring, kept) = transfer(operators, settings, time)?;
    let (edges, bytes) = sizes(&kept);

    let trainer = &mut *operators.training;
    let trained = training::unchanged(trainer, &route.training, |trainer| {
        let mut samples = Vec::new();
        for (i, &threads_now) in threads.iter().enumerate() {
            let what = format!("training with {}", count(threads_now, "thread"));
            if let Some(time) = course.begin(what, i < 2, 1.0, threads.len() - i) {
                let seconds = training::measure(trainer, &route.training, threads_now, &kept, settings, time)?;
                samples.push(TrainingSample { threads: threads_now, seconds: Statistics::of(seconds) });
            }
        }
        samples.sort_by_key(|s| s.threads);
        Ok(samples)
    })?;
    let skipped = course.end();
    Ok(Profile {
        version: VERSION,
        machine: machine.clone(),
        route: route.clone(),
        num_batches,
        edges_per_batch: edges,
        bytes_per_batch: bytes,
        batching,
        transferring,
        training: trained,
        skipped,
        seconds: start.elapsed().as_secs_f64(),
    })
}

/// Each once, those with a 0 left out: the first and the last, which are needed most, then those between.
fn ends_first<T: Ord + Copy + Count>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut all: Vec<T> = all.filter(|x| x.counts()).collect();
    all.sort_unstable();
    all.dedup();
    if all.len() > 2 {
        let last = all.pop().expect("there are more than two");
        all.insert(1, last);
    }
    all
}

/// What a point is measured at.
trait Count {
    fn counts(&self) -> bool;
}

impl Count for usize {
    fn counts(&self) -> bool {
        *self > 0
    }
}

impl Count for (usize, usize) {
    fn counts(&self) -> bool {
        self.0 > 0 && self.1 > 0
    }
}

fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// How far the budget is spent.
struct Course<'a> {
    start: Instant,
    budget: Duration,
    done: usize,
    total: usize,
    skipped: Vec<String>,
    progress: &'a mut dyn FnMut(&Progress),
}

impl Course<'_> {
    /// Tells of the next point, and how long it may take: an equal part of what is left until `share` of the budget is spent.
    /// `None` when nothing is left and the point is not needed.
    fn begin(&mut self, what: String, needed: bool, share: f64, points_left: usize) -> Option<Duration> {
        let left = self.budget.mul_f64(share).saturating_sub(self.start.elapsed());
        (self.progress)(&Progress { what: what.clone(), done: self.done, total: self.total });
        self.done += 1;
        if left.is_zero() && !needed {
            self.skipped.push(what);
            return None;
        }
        Some(left / u32::try_from(points_left.max(1)).unwrap_or(u32::MAX))
    }

    fn end(self) -> Vec<String> {
        (self.progress)(&Progress { what: "done".to_string(), done: self.total, total: self.total });
        self.skipped
    }
}

/// Measures transferring on mini-batches prepared one by one, and keeps some of them.
fn transfer(
    operators: &mut Operators<'_>,
    settings: &Settings,
    time: Duration,
) -> Result<(Statistics, Vec<MiniBatch>)> {
    let (route, batching) = (operators.route, operators.batching);
    let deadline = Instant::now() + time;
    let usable = pool::usable(batching);
    let mut worker = Error::catch(&route.batching, || batching.worker(1))?;
    let (mut samples, mut kept, mut recycled) = (Vec::new(), Vec::new(), None);
    for i in 0..settings.batches.max(1) + settings.warm_up.max(KEPT) {
        let id = BatchId { epoch: settings.epoch, index: (i % usable) as u32 };
        let prepared = Error::catch(&route.batching, || worker.prepare(id, recycled.take())?.wait())?.0;
        let start = Instant::now();
        let moved = Error::catch(&route.transferring, || operators.transferring.transfer(prepared)?.wait())?.0;
        let end = Instant::now();
        if i >= settings.warm_up {
            samples.push((end - start).as_secs_f64());
        }
        if kept.len() < KEPT {
            kept.push(moved);
        } else if moved.place() == Place::Host && route.batched_at == Place::Host {
            recycled = Some(moved);
        }
        let enough = samples.len() >= settings.batches.max(1) || end >= deadline;
        if enough && kept.len() == KEPT && !samples.is_empty() {
            break;
        }
    }
    Ok((Statistics::of(samples), kept))
}

/// Mean edges and bytes of mini-batches in host memory.
fn sizes(batches: &[MiniBatch]) -> (f64, f64) {
    let host: Vec<_> = batches.iter().filter_map(|b| b.host().ok()).collect();
    let mean = |sum: usize| if host.is_empty() { 0.0 } else { sum as f64 / host.len() as f64 };
    (mean(host.iter().map(|b| b.num_edges()).sum()), mean(host.iter().map(|b| b.num_bytes()).sum()))
}
