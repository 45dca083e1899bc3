//! Epochs whose durations vary around their means, run by `Replay` in virtual time as the executor runs them.

use morphgl_plan::{Activity, Begun, Order, Phase, Replay, Schedule, Seconds, Simulation, Span};
use morphgl_registry::BatchId;

use super::Random;

/// Normally distributed durations, never below a tenth of the mean.
///
/// A draw is a function of seed, phase and mini-batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Noise {
    seed: u64,
    /// Coefficient of variation for all phases, in place of the measured deviations.
    pub(crate) variation: Option<f64>,
}

impl Noise {
    /// Deviations as measured.
    pub(crate) fn measured(seed: u64) -> Self {
        Self { seed, variation: None }
    }

    /// The same relative deviation for every phase.
    pub(crate) fn of(seed: u64, variation: f64) -> Self {
        Self { seed, variation: Some(variation) }
    }

    /// Seconds of one phase of one mini-batch.
    pub(crate) fn draw(&self, phase: Phase, batch: u32, seconds: Seconds) -> f64 {
        let std = self.variation.map_or(seconds.std, |v| v * seconds.mean);
        if std <= 0.0 {
            return seconds.mean;
        }
        let key = (u64::from(batch) << 2 | phase as u64).wrapping_mul(0x5851_f42d_4c95_7f2d);
        let mut random = Random(self.seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ key);
        // 1 - unit is above 0.
        let radius = (-2.0 * (1.0 - random.unit()).ln()).sqrt();
        let normal = radius * (std::f64::consts::TAU * random.unit()).cos();
        (seconds.mean + std * normal).max(seconds.mean / 10.0)
    }
}

/// A step under way.
struct Running {
    begun: Begun,
    worker: usize,
    span: Span,
}

/// An epoch that follows `order` while durations vary.
pub(crate) fn replay(schedule: &Schedule, order: &Order, noise: &Noise) -> Simulation {
    let mut replay = Replay::new(schedule, order);
    let mut idle: Vec<Vec<usize>> = schedule.shares.iter().map(|s| (0..s.workers).rev().collect()).collect();
    let mut running: Vec<Running> = Vec::new();
    let (mut time, mut steps, mut activities) = (0.0f64, Vec::new(), Vec::new());
    let mut busy = vec![0.0; schedule.resources.len()];
    loop {
        while let Some(begun) = replay.begin() {
            let (share, phase) = (begun.step.share, begun.step.phase);
            let idle = if phase == Phase::Batching { idle[share].pop().expect("a worker is idle") } else { 0 };
            let of = &schedule.shares[share];
            let seconds = [of.batching, of.transferring, of.training][phase as usize];
            let took = noise.draw(phase, begun.batch, seconds);
            for (busy, _) in
                busy.iter_mut().zip(&schedule.resources).filter(|(_, r)| of.hardware[phase].contains(&r.name))
            {
                *busy += took;
            }
            steps.push(begun.step);
            running.push(Running { begun, worker: idle, span: Span { start: time, end: time + took } });
        }
        let Some(first) = running.iter().map(|r| r.span.end).min_by(f64::total_cmp) else { break };
        time = first;
        // Ends that are equal up to rounding are processed together.
        for Running { begun, worker, span } in running.extract_if(.., |r| r.span.end <= first * (1.0 + 1e-12)) {
            replay.end(begun);
            let (share, phase) = (begun.step.share, begun.step.phase);
            if phase == Phase::Batching {
                idle[share].push(worker);
            }
            let id = BatchId { epoch: 0, index: begun.batch };
            activities.push(Activity { id, share, phase, worker, span: Span { end: time, ..span } });
        }
    }
    assert!(replay.is_done());
    activities.sort_by(|a, b| a.span.start.total_cmp(&b.span.start).then(a.id.cmp(&b.id)));
    let trained = activities.iter().filter(|a| a.phase == Phase::Training);
    Simulation {
        seconds: time,
        first_fill_seconds: trained.map(|a| a.span.start).fold(f64::INFINITY, f64::min),
        busy,
        // The checks hold the activities themselves to the buffers' sizes.
        peak: [schedule.batched.max(1), schedule.ready.max(1)],
        order: Order::new(steps),
        activities,
    }
}
