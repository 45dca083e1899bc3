//! The event-driven simulator: exact for constant durations.

use morphgl_registry::{BatchId, Phase};
use serde::{Deserialize, Serialize};

use crate::order::Order;
use crate::policy::{self, Snapshot};
use crate::problem::cores;
use crate::state::{State, Step};
use crate::{Schedule, ScheduleShare, Seconds};

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
    run(schedule, &mut NoSideTasks, false)
}

/// As [`simulate`], with all activities.
pub fn timeline(schedule: &Schedule) -> Simulation {
    run(schedule, &mut NoSideTasks, true)
}

/// A schedule with its simulation.
pub(crate) fn simulated(schedule: Schedule) -> (Schedule, Simulation) {
    let simulation = simulate(&schedule);
    (schedule, simulation)
}

/// Tasks on the cores beside the mini-batches of one share: they are started by phases of mini-batches, and transfers wait for them
/// to end. With the defaults there are none.
pub(crate) trait SideTasks {
    /// Threads that a task occupies on the cores; tasks run one after the other.
    fn threads(&self) -> f64 {
        0.0
    }

    /// Mini-batches that may be transferred, by the tasks that have ended.
    fn transferable(&self) -> u32 {
        u32::MAX
    }

    /// Seconds of the phases of a mini-batch; `None` for those of the schedule.
    fn seconds(&self, _number: u32) -> Option<&[Seconds; 3]> {
        None
    }

    /// Whether [`SideTasks::waits`] is to be called when the next transfer waits for a task and for nothing else.
    fn observes_waits(&self) -> bool {
        false
    }

    /// The next transfer waits for a task alone, from `time` at the latest.
    fn waits(&mut self, _time: f64) {}

    /// A phase of a mini-batch begins. Returns the seconds, alone on the cores, of a task that begins at the same time.
    fn begins(&mut self, _phase: Phase, _number: u32, _time: f64) -> Option<f64> {
        None
    }

    /// The oldest task ends.
    fn task_ends(&mut self, _span: Span) {}

    /// A phase of a mini-batch ends.
    fn ends(&mut self, _phase: Phase, _number: u32, _time: f64) {}
}

/// Mini-batches alone.
struct NoSideTasks;

impl SideTasks for NoSideTasks {}

/// A phase of a mini-batch, or a task beside them.
#[derive(Debug, Clone, Copy)]
enum Task {
    Phase {
        step: Step,
        number: u32,
        batch: u32,
        worker: usize,
    },
    /// Seconds after a step ([`Limits::after_step`](crate::Limits::after_step)).
    AfterStep {
        step: Step,
        number: u32,
    },
    Side,
}

impl Task {
    /// The step of a phase.
    fn step(&self) -> Option<Step> {
        match *self {
            Self::Phase { step, .. } => Some(step),
            Self::AfterStep { .. } | Self::Side => None,
        }
    }
}

/// A task under way.
struct Running {
    task: Task,
    /// Threads on the cores.
    threads: f64,
    start: f64,
    end: f64,
    /// Progress per second; below 1 while other phases slow it down.
    rate: f64,
}

/// Whether any task can ever be slowed down by others on the same cores, with these threads of each share's phases, and `more`.
pub(crate) fn can_slow(schedule: &Schedule, threads: &[[f64; 3]], more: f64) -> bool {
    let batching: f64 = threads.iter().zip(&schedule.shares).map(|(t, s)| t[0] * s.workers as f64).sum();
    let peak = |phase: usize| threads.iter().map(|t| t[phase]).fold(0.0, f64::max);
    let oversubscribed = batching + peak(1) + peak(2) + more > cores(&schedule.resources) as f64;
    oversubscribed || schedule.shares.iter().any(|s| s.contention.is_some())
}

/// The load of the cores by the tasks under way.
pub(crate) struct CoreLoad {
    /// Threads over cores, at least 1.
    scarce: f64,
    /// Slowdown of a task whose interference was not measured.
    oversubscribed: f64,
    training: bool,
    /// Number of mini-batches in batching.
    batching: f64,
}

impl CoreLoad {
    /// The load by tasks with their threads; a task beside mini-batches has no step.
    pub(crate) fn of(schedule: &Schedule, tasks: impl Iterator<Item = (Option<Step>, f64)> + Clone) -> Self {
        let cores = cores(&schedule.resources) as f64;
        let needed: f64 = tasks.clone().map(|(_, threads)| threads).sum();
        // Measured interference never exceeds what the cores can deliver.
        let scarce = (needed / cores).max(1.0);
        let is = |phase: Phase| tasks.clone().filter(move |(step, _)| step.is_some_and(|step| step.phase == phase));
        Self {
            scarce,
            oversubscribed: if needed > cores { scarce * schedule.oversubscription.max(1.0) } else { 1.0 },
            training: is(Phase::Training).next().is_some(),
            batching: is(Phase::Batching).count() as f64,
        }
    }

    /// The factor, from 1, by which a task with so many threads is slowed down.
    pub(crate) fn slowdown(&self, schedule: &Schedule, step: Option<Step>, threads: f64) -> f64 {
        let share = step.map(|step| (step.phase, &schedule.shares[step.share]));
        let slowed = match share.map(|(phase, share)| (phase, share.contention, share.workers)) {
            _ if threads <= 0.0 => 1.0,
            Some((Phase::Batching, Some(c), _)) if self.training => c.batching.max(self.scarce),
            Some((Phase::Batching, Some(_), _)) => self.scarce,
            Some((Phase::Training, Some(c), workers)) => {
                (1.0 + (c.training - 1.0) * self.batching / workers.max(1) as f64).max(self.scarce)
            }
            _ => self.oversubscribed,
        };
        slowed.max(1.0)
    }
}

/// Sets every running task's rate and moves its end accordingly.
fn slow(schedule: &Schedule, running: &mut [Running], now: f64) {
    let load = CoreLoad::of(schedule, running.iter().map(|r| (r.task.step(), r.threads)));
    for r in running {
        let rate = 1.0 / load.slowdown(schedule, r.task.step(), r.threads);
        if rate != r.rate {
            r.end = now + (r.end - now) * r.rate / rate;
            r.rate = rate;
        }
    }
}

/// Simulates an epoch with these tasks beside its mini-batches, of one share where there are any.
pub(crate) fn run<S: SideTasks>(schedule: &Schedule, side: &mut S, record: bool) -> Simulation {
    let n = schedule.num_batches();
    let mut choose = policy::of(schedule);
    let mut state = State::new(schedule);
    state.transferable = side.transferable();
    let sizes = state.free;
    let threads: Vec<_> = schedule.shares.iter().map(|s| schedule.threads_on_cores(s).map(|t| t as f64)).collect();
    let can_slow = can_slow(schedule, &threads, side.threads());
    let seconds: Vec<[Seconds; 3]> = schedule.shares.iter().map(ScheduleShare::seconds).collect();
    let mut ends = vec![0.0; schedule.resources.len()];
    let mut busy = vec![0.0; schedule.resources.len()];
    let shared = schedule.resources.iter().position(|r| r.cores.is_some());
    let queued = schedule.resources.iter().enumerate().filter(|(_, r)| r.queued).map(|(i, _)| 1 << i).sum::<u32>();
    let mut running: Vec<Running> = Vec::new();
    let mut idle: Vec<Vec<usize>> = state.specs.iter().map(|s| (0..s.workers as usize).rev().collect()).collect();
    let mut positions: Vec<Vec<u32>> = state.specs.iter().map(|s| Vec::with_capacity(s.batches as usize)).collect();
    let mut order = Vec::with_capacity(3 * n);
    let mut activities = Vec::with_capacity(if record { 3 * n } else { 0 });
    let (mut time, mut next, mut peak, mut first_fill) = (0.0_f64, 0_u32, [0, 0], None);

    loop {
        let before = running.len();
        loop {
            if side.observes_waits() && waits_for_task(&state) {
                side.waits(time);
            }
            let Some(step) = choose(&Snapshot { state: &state, time, ends: &ends, seconds: &seconds }) else { break };
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
            let took = side.seconds(number).unwrap_or(&seconds[step.share])[step.phase as usize].mean;
            if let Some(took) = side.begins(step.phase, number, time) {
                let (shared, threads) = (shared.expect("tasks beside mini-batches run on cores"), side.threads());
                busy[shared] += took * threads;
                running.push(Running { task: Task::Side, threads, start: time, end: time + took, rate: 1.0 });
            }
            let held = state.specs[step.share].exclusive[step.phase as usize];
            for i in (0..ends.len()).filter(|i| held >> i & 1 == 1) {
                ends[i] = time + took;
                busy[i] += took;
            }
            let threads = threads[step.share][step.phase as usize];
            if let Some(shared) = shared {
                busy[shared] += took * threads;
            }
            let task = Task::Phase { step, number, batch: positions[step.share][number as usize], worker };
            running.push(Running { task, threads, start: time, end: time + took, rate: 1.0 });
            peak = [0, 1].map(|buffer| usize::max(peak[buffer], sizes[buffer] - state.free[buffer]));
        }
        if can_slow && running.len() > before {
            slow(schedule, &mut running, time);
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
            let Running { task, start, .. } = running.swap_remove(i);
            let (step, number, batch, worker) = match task {
                Task::Phase { step, number, batch, worker } => (step, number, batch, worker),
                Task::AfterStep { step, number } => {
                    state.release(step, !queued);
                    state.end_released(step, number);
                    continue;
                }
                Task::Side => {
                    side.task_ends(Span { start, end: time });
                    state.transferable = side.transferable();
                    continue;
                }
            };
            if step.phase == Phase::Training && schedule.after_step > 0.0 {
                state.release(step, queued);
                let end = time + schedule.after_step;
                let task = Task::AfterStep { step, number };
                running.push(Running { task, threads: 0.0, start: time, end, rate: 1.0 });
            } else {
                state.end(step, number);
            }
            side.ends(step.phase, number, time);
            if step.phase == Phase::Batching {
                idle[step.share].push(worker);
            }
            if record {
                let (id, span) = (BatchId { epoch: 0, index: batch }, Span { start, end: time });
                activities.push(Activity { id, share: step.share, phase: step.phase, worker, span });
            }
        }
        if can_slow {
            slow(schedule, &mut running, time);
        }
    }
    assert!(
        state.trained as usize == n,
        "a policy left mini-batches behind: {} of {n} trained by {schedule}",
        state.trained
    );
    activities.sort_by(|a, b| a.span.start.total_cmp(&b.span.start).then(a.id.cmp(&b.id)));
    let first_fill_seconds = first_fill.unwrap_or(0.0);
    Simulation { seconds: time, first_fill_seconds, busy, peak, order: Order::new(order), activities }
}

/// Whether the first share's next transfer would begin now if it waited for no task.
fn waits_for_task(state: &State) -> bool {
    // Every policy of one share trains before it transfers.
    state.waits_for_task(Step { share: 0, phase: Phase::Transferring }) && state.step(0, Phase::Training).is_none()
}
