//! Sums of an epoch of devices with roles, from which its report is made.

use std::collections::BTreeMap;

use morphgl_plan::RolesWork;
use morphgl_registry::{Counters, Key, Place};

use crate::tally::Mean;
use crate::{EpochReport, PhaseSeconds, ResourceSeconds, ShareReport, Span, TrainerReport, add_counters, add_trainers};

/// What one device has done.
#[derive(Debug, Clone)]
pub(super) struct DeviceSums {
    place: Place,
    /// Its training operator; `None` for one that never trains.
    training: Option<Key>,
    busy: PhaseSeconds,
    seeds: u64,
    edges: u64,
    counters: Vec<(Key, Counters)>,
}

/// The sums of all devices.
#[derive(Debug, Clone)]
pub(super) struct Sums {
    pub(super) report: EpochReport,
    devices: Vec<DeviceSums>,
    /// Means of sampling, gathering and training.
    means: [Mean; 3],
    /// End of the leading device's last share.
    trained: f64,
}

impl Sums {
    /// Continues the report `so_far`.
    pub(super) fn new(
        epoch: u32,
        devices: impl Iterator<Item = (Place, String, Option<Key>)>,
        so_far: EpochReport,
    ) -> Self {
        let mut resources = Vec::new();
        let sums = |(place, resource, training): (Place, String, Option<Key>)| {
            resources.push(ResourceSeconds { resource, seconds: 0.0, share: 0.0 });
            DeviceSums { place, training, busy: PhaseSeconds::default(), seeds: 0, edges: 0, counters: Vec::new() }
        };
        let devices: Vec<DeviceSums> = devices.map(sums).collect();
        let report = match so_far.batches {
            0 => EpochReport { epoch, resources, shares: vec![ShareReport::default()], ..EpochReport::default() },
            _ => so_far,
        };
        // Every step is of some number of shares; a mean of them is continued by the mini-batches.
        let ShareReport { batches, batching, transferring, training } = report.shares[0];
        let means = [batching, transferring, training].map(|mean| Mean::of(mean, batches));
        Self { devices, means, trained: report.seconds, report }
    }

    /// Adds the time of a step of a device.
    pub(super) fn add(&mut self, device: usize, work: RolesWork, span: Span) {
        let seconds = span.seconds();
        for busy in [&mut self.devices[device].busy, &mut self.report.busy] {
            *match work {
                RolesWork::Sampling => &mut busy.batching,
                RolesWork::Gathering => &mut busy.transferring,
                RolesWork::Training => &mut busy.training,
                RolesWork::Switching => return,
            } += seconds;
        }
        self.means[work as usize].add(seconds);
        if work != RolesWork::Gathering {
            self.report.resources[device].seconds += seconds;
        }
    }

    /// Adds what an operator of a device counted for a share that was trained.
    pub(super) fn count(&mut self, device: usize, key: &Key, counters: Counters) {
        if counters.is_empty() {
            return;
        }
        let sums = &mut self.devices[device].counters;
        match sums.iter_mut().find(|(of, _)| of == key) {
            Some((_, sum)) => *sum += counters,
            None => sums.push((key.clone(), counters)),
        }
    }

    /// Adds the share that a device has trained.
    pub(super) fn trained(&mut self, device: usize, span: Span, seeds: usize, edges: usize) {
        let sums = &mut self.devices[device];
        (sums.seeds, sums.edges) = (sums.seeds + seeds as u64, sums.edges + edges as u64);
        let report = &mut self.report;
        (report.seeds, report.edges) = (report.seeds + seeds as u64, report.edges + edges as u64);
        if device == 0 {
            if report.batches == 0 {
                report.first_fill_seconds = span.start;
            }
            report.trainer_waited += (span.start - self.trained).max(0.0);
            self.trained = span.end;
        }
    }

    /// The report after `seconds`.
    pub(super) fn finish(self, seconds: f64, stopped: bool, remaining: Vec<u32>) -> EpochReport {
        let Self { mut report, devices, means, .. } = self;
        let [batching, transferring, training] = means.map(|mean| mean.seconds());
        report.shares = vec![ShareReport { batches: report.batches, batching, transferring, training }];
        for DeviceSums { place, training, busy, seeds, edges, counters } in devices {
            let mut own = BTreeMap::new();
            for (key, counters) in counters {
                let sums: &mut BTreeMap<String, u64> = own.entry(key.to_string()).or_default();
                counters.iter().for_each(|(name, amount)| *sums.entry(name.to_string()).or_default() += amount);
            }
            add_counters(&mut report.counters, own.clone());
            if let Some(training) = training {
                let training = training.to_string();
                add_trainers(
                    &mut report.trainers,
                    vec![TrainerReport { training, place, seeds, edges, busy, counters: own }],
                );
            }
        }
        for resource in &mut report.resources {
            resource.share = if seconds > 0.0 { (resource.seconds / seconds).min(1.0) } else { 0.0 };
        }
        (report.seconds, report.stopped, report.remaining) = (seconds, stopped, remaining);
        report
    }
}
