//! Equations 1 to 4 of MorphGL, with their errata corrected, on every activity of a simulated epoch.

use morphgl_plan::{Activity, Phase, Schedule, ScheduleShare, Simulation, Step};

/// Checks an epoch simulated with the schedule's own durations.
///
/// # Panics
///
/// When two phases hold a resource at once, a worker does not exist, a mini-batch is missing, repeated or out of order,
/// a buffer overflows, a phase takes another time than the schedule says, or a summary differs from the activities.
#[track_caller]
pub(crate) fn check(schedule: &Schedule, simulation: &Simulation) {
    constraints(schedule, simulation);
    durations(schedule, simulation);
}

/// Checks everything but the durations.
#[track_caller]
pub(crate) fn constraints(schedule: &Schedule, simulation: &Simulation) {
    each_batch_once(schedule, simulation);
    exclusive_resources(schedule, simulation);
    lanes(schedule, simulation);
    buffers(schedule, simulation);
    summaries(schedule, simulation);
}

fn seconds(share: &ScheduleShare, phase: Phase) -> f64 {
    [share.batching, share.transferring, share.training][phase as usize].mean
}

/// Equation 3, and that the epoch is complete.
#[track_caller]
fn each_batch_once(schedule: &Schedule, simulation: &Simulation) {
    let n = schedule.num_batches();
    let mut seen: Vec<[Option<&Activity>; 3]> = vec![[None; 3]; n];
    assert_eq!(simulation.activities.len(), 3 * n, "three activities per mini-batch");
    for a in &simulation.activities {
        let before = seen[a.id.index as usize][a.phase as usize].replace(a);
        assert_eq!(before, None, "mini-batch {} is twice in {:?}", a.id.index, a.phase);
    }
    let mut counts = vec![0; schedule.shares.len()];
    for (batch, phases) in seen.iter().enumerate() {
        let [b, t, m] = phases.map(|a| a.expect("as many activities as phases, none twice"));
        assert!(b.share == t.share && t.share == m.share, "mini-batch {batch} changes its route");
        assert!(
            0.0 <= b.span.start && b.span.end <= t.span.start && t.span.end <= m.span.start,
            "mini-batch {batch}: {b:?} {t:?} {m:?}"
        );
        counts[b.share] += 1;
    }
    assert_eq!(counts, schedule.shares.iter().map(|s| s.batches).collect::<Vec<_>>(), "mini-batches of each route");
    // Within a route, mini-batches keep their order in every phase.
    for share in 0..schedule.shares.len() {
        for pair in seen.iter().filter(|p| p[0].is_some_and(|a| a.share == share)).collect::<Vec<_>>().windows(2) {
            for (before, after) in pair[0].iter().zip(pair[1]) {
                let start = |a: &Option<&Activity>| a.map_or(0.0, |a| a.span.start);
                assert!(start(before) <= start(after), "{after:?} overtakes {before:?}");
            }
        }
    }
}

/// Equation 2.
#[track_caller]
fn exclusive_resources(schedule: &Schedule, simulation: &Simulation) {
    for (i, resource) in schedule.resources.iter().enumerate().filter(|(_, r)| r.cores.is_none()) {
        let holds = |a: &&Activity| schedule.shares[a.share].hardware[a.phase].contains(&resource.name);
        let held: Vec<&Activity> = simulation.activities.iter().filter(holds).collect();
        one_at_a_time(held.clone(), &resource.name);
        let sum: f64 = held.iter().map(|a| a.span.end - a.span.start).sum();
        assert!(
            close(sum, simulation.busy[i]),
            "{} is held {sum} s, the simulation states {}",
            resource.name,
            simulation.busy[i]
        );
    }
}

/// Workers take one mini-batch at a time, a route's transfers and all of training one after the other.
#[track_caller]
fn lanes(schedule: &Schedule, simulation: &Simulation) {
    let of = |f: &dyn Fn(&Activity) -> bool| simulation.activities.iter().filter(|a| f(a)).collect::<Vec<_>>();
    for (i, share) in schedule.shares.iter().enumerate() {
        for worker in 0..share.workers {
            let held = of(&|a| a.share == i && a.phase == Phase::Batching && a.worker == worker);
            one_at_a_time(held, &format!("worker {worker} of {}", share.keys.batching));
        }
        let unknown = of(&|a| a.share == i && a.phase == Phase::Batching && a.worker >= share.workers);
        assert!(unknown.is_empty(), "unknown workers: {unknown:?}");
        one_at_a_time(of(&|a| a.share == i && a.phase == Phase::Transferring), &share.keys.transferring.to_string());
    }
    one_at_a_time(of(&|a| a.phase == Phase::Training), "training");
}

#[track_caller]
fn one_at_a_time(mut held: Vec<&Activity>, what: &str) {
    held.sort_by(|a, b| a.span.start.total_cmp(&b.span.start).then(a.span.end.total_cmp(&b.span.end)));
    for pair in held.windows(2) {
        assert!(pair[0].span.end <= pair[1].span.start, "{what} is held by {:?} and {:?} at once", pair[0], pair[1]);
    }
}

/// Equation 4, its subtractions the right way round, and counted from the moment a slot is taken, not filled.
#[track_caller]
fn buffers(schedule: &Schedule, simulation: &Simulation) {
    let mut changes: Vec<(f64, i32, usize)> = Vec::new();
    for a in &simulation.activities {
        let in_place = schedule.shares[a.share].in_place;
        match (a.phase, in_place) {
            (Phase::Batching, false) => changes.push((a.span.start, 1, 0)),
            (Phase::Batching, true) => changes.push((a.span.start, 1, 1)),
            (Phase::Transferring, false) => changes.extend([(a.span.start, -1, 0), (a.span.start, 1, 1)]),
            (Phase::Transferring, true) => {}
            (Phase::Training, _) => changes.push((a.span.start, -1, 1)),
        }
    }
    // At one moment, slots are freed before they are taken.
    changes.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let sizes = [schedule.batched.max(1) as i32, schedule.ready.max(1) as i32];
    let (mut now, mut most) = ([0; 2], [0; 2]);
    for (time, change, buffer) in changes {
        now[buffer] += change;
        most[buffer] = most[buffer].max(now[buffer]);
        assert!(now[buffer] <= sizes[buffer], "at {time} s buffer {buffer} of {} holds {}", sizes[buffer], now[buffer]);
    }
    assert_eq!(now, [0, 0], "mini-batches left in the buffers");
    for buffer in 0..2 {
        assert!(
            most[buffer] <= simulation.peak[buffer] as i32,
            "peaks {most:?}, the simulation states {:?}",
            simulation.peak
        );
    }
}

#[track_caller]
fn summaries(schedule: &Schedule, simulation: &Simulation) {
    let last = simulation.activities.iter().map(|a| a.span.end).fold(0.0, f64::max);
    assert_eq!(simulation.seconds, last, "the epoch ends with its last phase");
    let trained = simulation.activities.iter().filter(|a| a.phase == Phase::Training);
    let first = trained.map(|a| a.span.start).fold(f64::INFINITY, f64::min);
    if schedule.num_batches() > 0 {
        assert_eq!(simulation.first_fill_seconds, first, "training starts with its first step");
    }
    assert!(simulation.activities.windows(2).all(|p| p[0].span.start <= p[1].span.start), "activities come by start");
    // The order agrees with the activities: at each moment the same steps, in any sequence.
    let mut counts = vec![[0; 3]; schedule.shares.len()];
    let mut starts: Vec<Vec<[f64; 3]>> = schedule.shares.iter().map(|s| vec![[0.0; 3]; s.batches]).collect();
    for a in &simulation.activities {
        starts[a.share][counts[a.share][a.phase as usize]][a.phase as usize] = a.span.start;
        counts[a.share][a.phase as usize] += 1;
    }
    let mut begun = vec![[0; 3]; schedule.shares.len()];
    let mut before = 0.0;
    for Step { share, phase } in simulation.order.steps() {
        let number = &mut begun[*share][*phase as usize];
        let start = starts[*share][*number][*phase as usize];
        assert!(start >= before, "step {number} of {phase:?} in the order begins before the one ahead of it");
        (*number, before) = (*number + 1, start);
    }
    assert_eq!(begun, counts, "the order has every step");
}

/// Phases off the cores take the time that the schedule says; those on them no less, and together no more than all cores.
#[track_caller]
fn durations(schedule: &Schedule, simulation: &Simulation) {
    let cores = schedule.resources.iter().find(|r| r.cores.is_some());
    let on_cores = |share: &ScheduleShare, phase| cores.is_some_and(|c| share.hardware[phase].contains(&c.name));
    let threads = |share: &ScheduleShare, phase: Phase| match phase {
        _ if !on_cores(share, phase) => 0,
        Phase::Batching => share.threads_per_worker,
        Phase::Transferring => 1,
        Phase::Training => schedule.training_threads,
    };
    let pools: usize = schedule.shares.iter().map(|s| s.workers * threads(s, Phase::Batching)).sum();
    let most = |phase| schedule.shares.iter().map(|s| threads(s, phase)).max().unwrap_or(0);
    let wanted = pools + most(Phase::Transferring) + most(Phase::Training);
    let number = cores.and_then(|c| c.cores).unwrap_or(1);
    let may_slow = wanted > number || schedule.shares.iter().any(|s| s.contention.is_some());
    let mut core_seconds = 0.0;
    for a in &simulation.activities {
        let share = &schedule.shares[a.share];
        let (took, says) = (a.span.end - a.span.start, seconds(share, a.phase));
        // Times are sums of durations, so their rounding is that of the time, not of the duration.
        let rounding = 1e-9 * a.span.end.max(says);
        assert!(took >= says - rounding, "{a:?} takes {took} s and not {says} s");
        assert!(may_slow && on_cores(share, a.phase) || took <= says + rounding, "{a:?} takes {took} s, not {says} s");
        core_seconds += says * threads(share, a.phase) as f64;
    }
    let available = simulation.seconds * number as f64;
    assert!(core_seconds <= available * (1.0 + 1e-9), "{core_seconds} core-seconds of {available}");
}

pub(crate) fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1e-9)
}
