//! The event-driven simulator: exact for constant durations.

mod noise;

pub use noise::Noise;

use crate::order::Order;
use crate::policy::{self, Choose, Snapshot};
use crate::state::{State, Step};
use crate::{Activity, Schedule, Seconds, Span};
use morphgl_registry::{BatchId, Phase};

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
    /// Every phase of every mini-batch, by start; filled by [`timeline`] and [`replay`] alone.
    pub activities: Vec<Activity>,
}

/// Simulates an epoch by the schedule's own policy with its mean durations.
///
/// # Complexity
///
/// O(mini-batches · (workers + resources)).
pub fn simulate(schedule: &Schedule) -> Simulation {
    run(schedule, policy::of(schedule).as_mut(), None, false)
}

/// As [`simulate`], with all activities.
pub fn timeline(schedule: &Schedule) -> Simulation {
    run(schedule, policy::of(schedule).as_mut(), None, true)
}

/// Simulates an executor on a machine with noise: an epoch that follows `order` while durations vary.
///
/// # Panics
///
/// When the order is not one of this schedule's mini-batches.
pub fn replay(schedule: &Schedule, order: &Order, noise: &Noise) -> Simulation {
    run(schedule, &mut policy::Replayed::new(schedule, order), Some(noise), true)
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

/// Slowdown of phases that share cores.
struct Cores {
    cores: f64,
    oversubscription: f64,
    /// Threads of each share's phases on the resource with cores.
    threads: Vec<[f64; 3]>,
    /// Whether any phase can ever be slowed down.
    matters: bool,
}

impl Cores {
    fn new(schedule: &Schedule) -> Self {
        let threads = schedule.shares.iter().map(|s| {
            let on = |names: &[String], threads: usize| if schedule.on_cores(names) { threads as f64 } else { 0.0 };
            let h = &s.hardware;
            [on(&h.batching, s.threads_per_worker), on(&h.transferring, 1), on(&h.training, schedule.training_threads)]
        });
        let threads: Vec<[f64; 3]> = threads.collect();
        let cores = schedule.cores() as f64;
        let batching: f64 = threads.iter().zip(&schedule.shares).map(|(t, s)| t[0] * s.workers as f64).sum();
        let others = |phase: usize| threads.iter().map(|t| t[phase]).fold(0.0, f64::max);
        let most = batching + others(1) + others(2);
        let matters = most > cores || schedule.shares.iter().any(|s| s.contention.is_some());
        Self { cores, oversubscription: schedule.oversubscription.max(1.0), threads, matters }
    }

    /// Sets every running phase's rate and moves its end accordingly.
    fn slow(&self, schedule: &Schedule, running: &mut [Running], now: f64) {
        let wanted: f64 = running.iter().map(|r| self.threads[r.step.share][r.step.phase as usize]).sum();
        // Measured interference never exceeds what the cores can deliver.
        let scarce = (wanted / self.cores).max(1.0);
        let oversubscribed = if wanted > self.cores { scarce * self.oversubscription } else { 1.0 };
        let training = running.iter().any(|r| r.step.phase == Phase::Training);
        let batching = running.iter().filter(|r| r.step.phase == Phase::Batching).count() as f64;
        for r in running {
            let share = &schedule.shares[r.step.share];
            let on_cores = self.threads[r.step.share][r.step.phase as usize] > 0.0;
            let slowed = match (on_cores, share.contention, r.step.phase) {
                (false, ..) => 1.0,
                (_, Some(c), Phase::Batching) => {
                    if training {
                        c.batching.max(scarce)
                    } else {
                        scarce
                    }
                }
                (_, Some(c), Phase::Training) => {
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
}

pub(crate) fn run(schedule: &Schedule, choose: &mut dyn Choose, noise: Option<&Noise>, record: bool) -> Simulation {
    let n = schedule.num_batches();
    let mut state = State::new(schedule);
    let cores = Cores::new(schedule);
    let seconds: Vec<[Seconds; 3]> = schedule.shares.iter().map(|s| [s.batching, s.transferring, s.training]).collect();
    let mut ends = vec![0.0; schedule.resources.len()];
    let mut busy = vec![0.0; schedule.resources.len()];
    let shared = schedule.resources.iter().position(|r| r.cores.is_some());
    let mut running: Vec<Running> = Vec::new();
    let mut idle: Vec<Vec<usize>> = state.specs.iter().map(|f| (0..f.workers as usize).rev().collect()).collect();
    let mut positions: Vec<Vec<u32>> = state.specs.iter().map(|f| Vec::with_capacity(f.batches as usize)).collect();
    let mut order = Vec::with_capacity(3 * n);
    let mut activities = Vec::with_capacity(if record { 3 * n } else { 0 });
    let (mut time, mut next, mut peak, mut first_fill) = (0.0_f64, 0_u32, [0, 0], f64::NAN);

    loop {
        let mut changed = false;
        while let Some(step) = choose.next(&Snapshot { state: &state, time, ends: &ends, seconds: &seconds }) {
            let number = state.begin(step);
            order.push(step);
            let (worker, batch) = match step.phase {
                Phase::Batching => {
                    let batch = choose.position().unwrap_or(next);
                    positions[step.share].push(batch);
                    next += 1;
                    (idle[step.share].pop().expect("a worker is idle"), batch)
                }
                _ => (0, positions[step.share][number as usize]),
            };
            if step.phase == Phase::Training && first_fill.is_nan() {
                first_fill = time;
            }
            let planned = seconds[step.share][step.phase as usize];
            let took = noise.map_or(planned.mean, |noise| noise.draw(step.phase, batch, planned));
            let held = state.specs[step.share].exclusive[step.phase as usize];
            for i in (0..ends.len()).filter(|i| held >> i & 1 == 1) {
                ends[i] = time + took;
                busy[i] += took;
            }
            if let Some(shared) = shared {
                busy[shared] += took * cores.threads[step.share][step.phase as usize];
            }
            running.push(Running { step, number, batch, worker, start: time, end: time + took, rate: 1.0 });
            peak[0] = peak[0].max(schedule.batched.max(1) - state.batched_free);
            peak[1] = peak[1].max(schedule.ready.max(1) - state.ready_free);
            changed = true;
        }
        if changed && cores.matters {
            cores.slow(schedule, &mut running, time);
        }
        let Some(first) = running.iter().map(|r| r.end).min_by(f64::total_cmp) else { break };
        // Ends that are equal up to rounding are processed together, so that the policy sees all of them.
        let together = first + first.abs() * 1e-12;
        time = first;
        let mut i = 0;
        while i < running.len() {
            if running[i].end > together {
                i += 1;
                continue;
            }
            let Running { step, number, batch, worker, start, .. } = running.swap_remove(i);
            state.end(step, number);
            choose.ended(step, number);
            if step.phase == Phase::Batching {
                idle[step.share].push(worker);
            }
            if record {
                activities.push(Activity {
                    id: BatchId { epoch: 0, index: batch },
                    share: step.share,
                    phase: step.phase,
                    worker,
                    span: Span { start, end: time },
                });
            }
        }
        if cores.matters {
            cores.slow(schedule, &mut running, time);
        }
    }
    assert!(
        state.trained as usize == n,
        "a policy left mini-batches behind: {} of {n} trained by {schedule}",
        state.trained
    );
    activities.sort_by(|a, b| a.span.start.total_cmp(&b.span.start).then(a.id.cmp(&b.id)));
    let first_fill_seconds = if first_fill.is_nan() { 0.0 } else { first_fill };
    Simulation { seconds: time, first_fill_seconds, busy, peak, order: Order::new(order), activities }
}
