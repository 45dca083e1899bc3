//! The event-driven simulator: exact for constant durations.

use morphgl_registry::{BatchId, Phase};
use serde::{Deserialize, Serialize};

use crate::order::Order;
use crate::policy::{self, Snapshot};
use crate::problem::cores;
use crate::state::{State, Step};
use crate::{Schedule, Seconds, Share};

/// When a phase of a mini-batch kept its resources busy, in seconds from the start of the run.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Span {
    /// Its start.
    pub start: f64,
    /// Its end.
    pub end: f64,
}

impl Span {
    /// Its length in seconds.
    pub fn seconds(&self) -> f64 {
        self.end - self.start
    }
}

/// One phase of one mini-batch: predicted by the simulator, or measured by the executor.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Activity {
    /// The mini-batch; of a simulated epoch, epoch 0 and its position.
    pub id: BatchId,
    /// Index of the share in the schedule.
    pub share: usize,
    /// The phase.
    pub phase: Phase,
    /// Index of the worker within the share, while batching; else 0.
    pub worker: usize,
    /// When.
    pub span: Span,
}

/// A simulated epoch.
#[derive(Debug, Clone, PartialEq)]
pub struct Simulation {
    /// Seconds of the epoch.
    pub seconds: f64,
    /// Seconds until the first mini-batch was trained on.
    pub first_fill_seconds: f64,
    /// Seconds each resource was held, in the order of the schedule's resources; core-seconds where threads share it.
    pub busy: Vec<f64>,
    /// Peak occupancy of the batched and of the ready buffer, in mini-batches.
    pub peak: [usize; 2],
    /// The order in which phases began.
    pub order: Order,
    /// Every phase of every mini-batch, by start; filled by [`timeline`] alone.
    pub activities: Vec<Activity>,
}

/// Simulates an epoch by the schedule's own policy with its mean durations.
///
/// # Complexity
///
/// O(mini-batches · (workers + resources)).
pub fn simulate(schedule: &Schedule) -> Simulation {
    run(schedule, false)
}

/// As [`simulate`], with all activities.
pub fn timeline(schedule: &Schedule) -> Simulation {
    run(schedule, true)
}

/// A schedule with its simulation.
pub(crate) fn simulated(schedule: Schedule) -> (Schedule, Simulation) {
    let simulation = simulate(&schedule);
    (schedule, simulation)
}

/// A phase under way.
struct Running {
    step: Step,
    number: u32,
    batch: u32,
    worker: usize,
    start: f64,
    end: f64,
    /// Progress a second; below 1 while other phases slow it down.
    rate: f64,
}

/// Whether any phase can ever be slowed down by others on the same cores, with these threads of each share's phases.
fn can_slow(schedule: &Schedule, threads: &[[f64; 3]]) -> bool {
    let batching: f64 = threads.iter().zip(&schedule.shares).map(|(t, s)| t[0] * s.workers as f64).sum();
    let peak = |phase: usize| threads.iter().map(|t| t[phase]).fold(0.0, f64::max);
    let oversubscribed = batching + peak(1) + peak(2) > cores(&schedule.resources) as f64;
    oversubscribed || schedule.shares.iter().any(|s| s.contention.is_some())
}

/// Sets every running phase's rate and moves its end accordingly.
fn slow(schedule: &Schedule, threads: &[[f64; 3]], running: &mut [Running], now: f64) {
    let cores = cores(&schedule.resources) as f64;
    let threads = |step: Step| threads[step.share][step.phase as usize];
    let needed: f64 = running.iter().map(|r| threads(r.step)).sum();
    // Measured interference never exceeds what the cores can deliver.
    let scarce = (needed / cores).max(1.0);
    let oversubscribed = if needed > cores { scarce * schedule.oversubscription.max(1.0) } else { 1.0 };
    let training = running.iter().any(|r| r.step.phase == Phase::Training);
    let batching = running.iter().filter(|r| r.step.phase == Phase::Batching).count() as f64;
    for r in running {
        let share = &schedule.shares[r.step.share];
        let slowed = match (r.step.phase, share.contention) {
            _ if threads(r.step) <= 0.0 => 1.0,
            (Phase::Batching, Some(c)) if training => c.batching.max(scarce),
            (Phase::Batching, Some(_)) => scarce,
            (Phase::Training, Some(c)) => {
                (1.0 + (c.training - 1.0) * batching / share.workers.max(1) as f64).max(scarce)
            }
            _ => oversubscribed,
        };
        let rate = 1.0 / slowed.max(1.0);
        if rate != r.rate {
            r.end = now + (r.end - now) * r.rate / rate;
            r.rate = rate;
        }
    }
}

fn run(schedule: &Schedule, record: bool) -> Simulation {
    let n = schedule.num_batches();
    let mut choose = policy::of(schedule);
    let mut state = State::new(schedule);
    let sizes = state.free;
    let threads: Vec<_> = schedule.shares.iter().map(|s| schedule.threads_on_cores(s).map(|t| t as f64)).collect();
    let can_slow = can_slow(schedule, &threads);
    let seconds: Vec<[Seconds; 3]> = schedule.shares.iter().map(Share::seconds).collect();
    let mut ends = vec![0.0; schedule.resources.len()];
    let mut busy = vec![0.0; schedule.resources.len()];
    let shared = schedule.resources.iter().position(|r| r.cores.is_some());
    let mut running: Vec<Running> = Vec::new();
    let mut idle: Vec<Vec<usize>> = state.specs.iter().map(|s| (0..s.workers as usize).rev().collect()).collect();
    let mut positions: Vec<Vec<u32>> = state.specs.iter().map(|s| Vec::with_capacity(s.batches as usize)).collect();
    let mut order = Vec::with_capacity(3 * n);
    let mut activities = Vec::with_capacity(if record { 3 * n } else { 0 });
    let (mut time, mut next, mut peak, mut first_fill) = (0.0_f64, 0_u32, [0, 0], None);

    loop {
        let before = running.len();
        while let Some(step) = choose(&Snapshot { state: &state, time, ends: &ends, seconds: &seconds }) {
            let number = state.begin(step);
            order.push(step);
            let worker = match step.phase {
                Phase::Batching => {
                    positions[step.share].push(next);
                    next += 1;
                    idle[step.share].pop().expect("a worker is idle")
                }
                _ => 0,
            };
            if step.phase == Phase::Training {
                first_fill.get_or_insert(time);
            }
            let took = seconds[step.share][step.phase as usize].mean;
            let held = state.specs[step.share].exclusive[step.phase as usize];
            for i in (0..ends.len()).filter(|i| held >> i & 1 == 1) {
                ends[i] = time + took;
                busy[i] += took;
            }
            if let Some(shared) = shared {
                busy[shared] += took * threads[step.share][step.phase as usize];
            }
            let batch = positions[step.share][number as usize];
            running.push(Running { step, number, batch, worker, start: time, end: time + took, rate: 1.0 });
            peak = [0, 1].map(|buffer| usize::max(peak[buffer], sizes[buffer] - state.free[buffer]));
        }
        if can_slow && running.len() > before {
            slow(schedule, &threads, &mut running, time);
        }
        let Some(first) = running.iter().map(|r| r.end).min_by(f64::total_cmp) else { break };
        // Ends that are equal up to rounding are processed together, so that the policy sees all of them.
        let until = first + first.abs() * 1e-12;
        time = first;
        let mut i = 0;
        while i < running.len() {
            if running[i].end > until {
                i += 1;
                continue;
            }
            let Running { step, number, batch, worker, start, .. } = running.swap_remove(i);
            state.end(step, number);
            if step.phase == Phase::Batching {
                idle[step.share].push(worker);
            }
            if record {
                let (id, span) = (BatchId { epoch: 0, index: batch }, Span { start, end: time });
                activities.push(Activity { id, share: step.share, phase: step.phase, worker, span });
            }
        }
        if can_slow {
            slow(schedule, &threads, &mut running, time);
        }
    }
    let trained = state.trained;
    assert!(trained as usize == n, "a policy left mini-batches behind: {trained} of {n} trained by {schedule}");
    activities.sort_by(|a, b| a.span.start.total_cmp(&b.span.start).then(a.id.cmp(&b.id)));
    let first_fill_seconds = first_fill.unwrap_or(0.0);
    Simulation { seconds: time, first_fill_seconds, busy, peak, order: Order::new(order), activities }
}
