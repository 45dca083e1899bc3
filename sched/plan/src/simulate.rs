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
    run(schedule, None, false).0
}

/// As [`simulate`], with all activities.
pub fn timeline(schedule: &Schedule) -> Simulation {
    run(schedule, None, true).0
}

/// A schedule with its simulation.
pub(crate) fn simulated(schedule: Schedule) -> (Schedule, Simulation) {
    let simulation = simulate(&schedule);
    (schedule, simulation)
}

/// A layer-split epoch of one share. Rows of a super-batch are computed while the one before it trains, and its first transfer
/// waits for them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GivenRows {
    /// Mini-batches of a super-batch.
    pub(crate) super_batch: u32,
    /// Seconds of each phase in the first super-batch, where it has no given rows. `None` where the epoch before has computed them;
    /// then this one computes those of the next one's first super-batch while its last one trains, and ends with them at the
    /// earliest.
    pub(crate) exact: Option<[Seconds; 3]>,
    /// Seconds of computing the rows of a super-batch, alone on the cores.
    pub(crate) seconds: f64,
    /// Threads that compute them.
    pub(crate) threads: f64,
}

/// The rows of one super-batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct GivenRowTimes {
    /// Span of their computation.
    pub(crate) span: Span,
    /// Time at which the super-batch's first transfer could begin if the rows were computed.
    pub(crate) due: f64,
    /// End of the training of the super-batch before.
    pub(crate) before: f64,
}

/// A phase of a mini-batch, or the rows of the next super-batch.
#[derive(Debug, Clone, Copy)]
enum Task {
    Phase { step: Step, number: u32, batch: u32, worker: usize },
    Rows,
}

impl Task {
    fn is(&self, wanted: Phase) -> bool {
        matches!(self, Self::Phase { step, .. } if step.phase == wanted)
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
fn can_slow(schedule: &Schedule, threads: &[[f64; 3]], more: f64) -> bool {
    let batching: f64 = threads.iter().zip(&schedule.shares).map(|(t, s)| t[0] * s.workers as f64).sum();
    let peak = |phase: usize| threads.iter().map(|t| t[phase]).fold(0.0, f64::max);
    let oversubscribed = batching + peak(1) + peak(2) + more > cores(&schedule.resources) as f64;
    oversubscribed || schedule.shares.iter().any(|s| s.contention.is_some())
}

/// Sets every running task's rate and moves its end accordingly.
fn slow(schedule: &Schedule, running: &mut [Running], now: f64) {
    let cores = cores(&schedule.resources) as f64;
    let needed: f64 = running.iter().map(|r| r.threads).sum();
    // Measured interference never exceeds what the cores can deliver.
    let scarce = (needed / cores).max(1.0);
    let oversubscribed = if needed > cores { scarce * schedule.oversubscription.max(1.0) } else { 1.0 };
    let training = running.iter().any(|r| r.task.is(Phase::Training));
    let batching = running.iter().filter(|r| r.task.is(Phase::Batching)).count() as f64;
    for r in running {
        let share = match r.task {
            Task::Phase { step, .. } => Some((step.phase, &schedule.shares[step.share])),
            Task::Rows => None,
        };
        let slowed = match share.map(|(phase, share)| (phase, share.contention, share.workers)) {
            _ if r.threads <= 0.0 => 1.0,
            Some((Phase::Batching, Some(c), _)) if training => c.batching.max(scarce),
            Some((Phase::Batching, Some(_), _)) => scarce,
            Some((Phase::Training, Some(c), workers)) => {
                (1.0 + (c.training - 1.0) * batching / workers.max(1) as f64).max(scarce)
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

/// Simulates an epoch, of one share where it has given rows; all rows that it computes come with it.
pub(crate) fn run(schedule: &Schedule, given: Option<&GivenRows>, record: bool) -> (Simulation, Vec<GivenRowTimes>) {
    let n = schedule.num_batches();
    let mut choose = policy::of(schedule);
    let mut state = State::new(schedule);
    state.transferable = given.map_or(u32::MAX, |g| g.super_batch);
    let sizes = state.free;
    let threads: Vec<_> = schedule.shares.iter().map(|s| schedule.threads_on_cores(s).map(|t| t as f64)).collect();
    let can_slow = can_slow(schedule, &threads, given.map_or(0.0, |g| g.threads));
    let seconds: Vec<[Seconds; 3]> = schedule.shares.iter().map(ScheduleShare::seconds).collect();
    let mut ends = vec![0.0; schedule.resources.len()];
    let mut busy = vec![0.0; schedule.resources.len()];
    let shared = schedule.resources.iter().position(|r| r.cores.is_some());
    let mut running: Vec<Running> = Vec::new();
    let mut idle: Vec<Vec<usize>> = state.specs.iter().map(|s| (0..s.workers as usize).rev().collect()).collect();
    let mut positions: Vec<Vec<u32>> = state.specs.iter().map(|s| Vec::with_capacity(s.batches as usize)).collect();
    let mut order = Vec::with_capacity(3 * n);
    let mut activities = Vec::with_capacity(if record { 3 * n } else { 0 });
    let (mut time, mut next, mut peak, mut first_fill) = (0.0_f64, 0_u32, [0, 0], None);
    let (mut rows, mut due): (Vec<GivenRowTimes>, Option<f64>) = (Vec::new(), None);
    // Ends of training of super-batches.
    let mut trained: Vec<f64> = Vec::new();

    loop {
        let before = running.len();
        loop {
            if given.is_some() && due.is_none() && waits_for_rows(&state) {
                due = Some(time);
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
            let exact = given.filter(|g| number < g.super_batch).and_then(|g| g.exact.as_ref());
            let of_share = exact.unwrap_or(&seconds[step.share]);
            let took = of_share[step.phase as usize].mean;
            let begins = |g: &&GivenRows| number.is_multiple_of(g.super_batch);
            match (step.phase, given.filter(begins)) {
                (Phase::Training, Some(g))
                    if g.exact.is_none() || n as u64 > u64::from(number) + u64::from(g.super_batch) =>
                {
                    let shared = shared.expect("rows are computed on cores");
                    busy[shared] += g.seconds * g.threads;
                    let end = time + g.seconds;
                    running.push(Running { task: Task::Rows, threads: g.threads, start: time, end, rate: 1.0 });
                }
                (Phase::Transferring, Some(_)) if number > 0 => {
                    let of_batch = rows.last_mut().expect("rows are computed before they are transferred");
                    of_batch.due = due.take().unwrap_or(time);
                }
                _ => {}
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
            let Task::Phase { step, number, batch, worker } = task else {
                rows.push(GivenRowTimes { span: Span { start, end: time }, due: time, before: time });
                state.transferable = state.transferable.saturating_add(given.map_or(0, |g| g.super_batch));
                continue;
            };
            state.end(step, number);
            let is_last = |g: &GivenRows| (number + 1).is_multiple_of(g.super_batch) || number as usize + 1 == n;
            let ends = |g: &&GivenRows| step.phase == Phase::Training && is_last(g);
            if given.filter(ends).is_some() {
                trained.push(time);
            }
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
    rows.iter_mut().zip(&trained).for_each(|(rows, end)| rows.before = *end);
    // The next epoch's first transfer is due when this one is trained.
    if let (Some(last), Some(end), true) = (rows.last_mut(), trained.last(), given.is_some_and(|g| g.exact.is_none())) {
        last.due = *end;
    }
    activities.sort_by(|a, b| a.span.start.total_cmp(&b.span.start).then(a.id.cmp(&b.id)));
    let first_fill_seconds = first_fill.unwrap_or(0.0);
    (Simulation { seconds: time, first_fill_seconds, busy, peak, order: Order::new(order), activities }, rows)
}

/// Whether the first share's next transfer would begin now if its given rows were there.
fn waits_for_rows(state: &State) -> bool {
    // Every policy of one share trains before it transfers.
    state.waits_for_rows(Step { share: 0, phase: Phase::Transferring }) && state.step(0, Phase::Training).is_none()
}
