//! Sums of an epoch's durations and counters, from which its report is made.

use morphgl_plan::{Phase, Schedule, ScheduleShare, Seconds};
use morphgl_registry::Counters;

use crate::{Activity, BatchDone, EpochReport, ResourceSeconds, ShareReport, Span};

/// Mean and deviation of a stream, by Welford's recurrence.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Mean {
    count: f64,
    mean: f64,
    squares: f64,
}

impl Mean {
    pub(crate) fn add(&mut self, x: f64) {
        self.count += 1.0;
        let off = x - self.mean;
        self.mean += off / self.count;
        self.squares += off * (x - self.mean);
    }

    /// The stream of `count` values with this mean and deviation.
    pub(crate) fn of(Seconds { mean, std }: Seconds, count: usize) -> Self {
        let count = count as f64;
        Self { count, mean, squares: std * std * (count - 1.0).max(0.0) }
    }

    pub(crate) fn seconds(&self) -> Seconds {
        let std = if self.count > 1.0 { (self.squares / (self.count - 1.0)).sqrt() } else { 0.0 };
        Seconds { mean: self.mean, std }
    }
}

/// A report with the sums behind its means and shares.
#[derive(Debug, Clone)]
pub(crate) struct Tally {
    report: EpochReport,
    means: Vec<[Mean; 3]>,
    /// Counters of each share's operators, by phase: those of trained mini-batches.
    counters: Vec<[Counters; 3]>,
    /// Keys of the operators, in the same order.
    keys: Vec<[String; 3]>,
    /// Of each share's phases, indices of the resources that it uses, with the number of cores.
    resources: Vec<[Vec<(usize, f64)>; 3]>,
    cores: Vec<f64>,
    /// End of the last step of training.
    trained: f64,
    /// Peak mini-batches in the buffers during the part of the epoch that this one continues.
    peak: [usize; 2],
    record: bool,
}

impl Tally {
    /// Continues the report `so_far` of the schedule's first mini-batches.
    pub(crate) fn new(epoch: u32, schedule: &Schedule, record: bool, so_far: EpochReport) -> Self {
        let resources = schedule.shares.iter().map(|s| {
            let of = |names: &[String], threads: usize| {
                let used = schedule.resources.iter().enumerate().filter(|(_, r)| names.contains(&r.name));
                used.map(|(i, r)| (i, if r.cores.is_some() { threads.max(1) as f64 } else { 1.0 })).collect()
            };
            let h = &s.hardware;
            [of(&h.batching, s.threads_per_worker), of(&h.transferring, 1), of(&h.training, schedule.training_threads)]
        });
        let keys = |ScheduleShare { keys, .. }: &ScheduleShare| {
            [&keys.batching, &keys.transferring, &keys.training].map(ToString::to_string)
        };
        let idle = |r: &morphgl_plan::Resource| ResourceSeconds { resource: r.name.clone(), seconds: 0.0, share: 0.0 };
        let number = schedule.shares.len();
        let report = match so_far.batches {
            0 => EpochReport {
                epoch,
                resources: schedule.resources.iter().map(idle).collect(),
                shares: vec![ShareReport::default(); number],
                ..EpochReport::default()
            },
            _ => so_far,
        };
        let means = |s: &ShareReport| [s.batching, s.transferring, s.training].map(|mean| Mean::of(mean, s.batches));
        Self {
            means: report.shares.iter().map(means).collect(),
            trained: report.seconds,
            peak: [report.peak_batched, report.peak_ready],
            report,
            counters: vec![[Counters::NONE; 3]; number],
            keys: schedule.shares.iter().map(keys).collect(),
            resources: resources.collect(),
            cores: schedule.resources.iter().map(|r| r.cores.unwrap_or(1) as f64).collect(),
            record,
        }
    }

    /// Adds a phase of a mini-batch.
    pub(crate) fn ended(&mut self, activity: Activity) {
        let Activity { share, phase, span, .. } = activity;
        self.means[share][phase as usize].add(span.seconds());
        for &(resource, cores) in &self.resources[share][phase as usize] {
            self.report.resources[resource].seconds += cores * span.seconds();
        }
        let busy = &mut self.report.busy;
        *match phase {
            Phase::Batching => &mut busy.batching,
            Phase::Transferring => &mut busy.transferring,
            Phase::Training => &mut busy.training,
        } += span.seconds();
        if self.record {
            self.report.activities.push(activity);
        }
    }

    /// Adds a mini-batch with the span of its training, and the counters of its phases.
    pub(crate) fn trained(&mut self, done: &BatchDone, training: Span, counters: [Counters; 3]) {
        self.counters[done.share].iter_mut().zip(counters).for_each(|(sum, counters)| *sum += counters);
        let report = &mut self.report;
        if report.batches == 0 {
            report.first_fill_seconds = training.start;
        }
        report.trainer_waited += (training.start - self.trained).max(0.0);
        self.trained = training.end;
        report.batches += 1;
        report.seeds += done.seeds as u64;
        report.edges += done.edges as u64;
        report.score += done.score;
        report.shares[done.share].batches += 1;
    }

    pub(crate) fn finish(self, seconds: f64, stopped: bool, peak: [usize; 2], remaining: Vec<u32>) -> EpochReport {
        let Self { mut report, means, counters, keys, cores, peak: before, .. } = self;
        for (share, [batching, transferring, training]) in report.shares.iter_mut().zip(means) {
            (share.batching, share.transferring, share.training) =
                (batching.seconds(), transferring.seconds(), training.seconds());
        }
        for (key, counters) in keys.into_iter().flatten().zip(counters.into_iter().flatten()) {
            if !counters.is_empty() {
                let sums = report.counters.entry(key).or_default();
                counters.iter().for_each(|(name, amount)| *sums.entry(name.to_string()).or_default() += amount);
            }
        }
        for (resource, cores) in report.resources.iter_mut().zip(cores) {
            resource.share = if seconds > 0.0 { (resource.seconds / (cores * seconds)).min(1.0) } else { 0.0 };
        }
        [report.peak_batched, report.peak_ready] = [peak[0].max(before[0]), peak[1].max(before[1])];
        (report.seconds, report.stopped, report.remaining) = (seconds, stopped, remaining);
        report
    }
}
