//! A model checker of the buffers' protocol: every order in which steps can begin and end, and a cut at every moment.
//!
//! `Replay` is the whole protocol: an executor begins only steps that it allows, and reports their ends.
//! So the interleavings of threads are those of `begin`, `end` and `cut`, and all of them are explored here.

use std::collections::{HashSet, VecDeque};

use morphgl_plan::{Begun, Hardware, Phase, Policy, Replay, Resource, Schedule, ScheduleShare, Seconds, simulate};

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|n| n.to_string()).collect()
}

/// Batched by the CPU and moved, batched by the device, or all on the CPU; with seconds of its phases.
fn share(route: usize, batches: usize, workers: usize, [b, t, m]: [f64; 3]) -> ScheduleShare {
    let holds = [
        [&["CPU"][..], &["PCIe"], &["DEV"]],
        [&["DEV", "PCIe"], &["DEV", "PCIe"], &["DEV"]],
        [&["CPU"], &["CPU"], &["CPU"]],
    ][route]
        .map(names);
    let [batching, transferring, training] = holds;
    ScheduleShare {
        keys: crate::common::keys(&format!("CPU_b{route}"), &format!("CPU_t{route}"), "CPU_m"),
        hardware: Hardware { batching, transferring, training },
        in_place: route > 0,
        batches,
        workers,
        threads_per_worker: 1,
        batching: Seconds::constant(b),
        transferring: Seconds::constant(t),
        training: Seconds::constant(m),
        contention: None,
    }
}

fn schedule(policy: Policy, shares: Vec<ScheduleShare>, [batched, ready]: [usize; 2]) -> Schedule {
    Schedule {
        policy,
        resources: vec![Resource::shared("CPU", 4), Resource::exclusive("PCIe"), Resource::exclusive("DEV")],
        shares,
        training_threads: 1,
        batched,
        ready,
        group: 2.min(ready),
        keep: 0,
        oversubscription: 1.0,
        after_step: 0.0,
    }
}

/// The state of a replay, without its history.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ReplayState {
    /// Steps begun, by share and phase.
    begun: Vec<[u32; 3]>,
    /// Steps under way: share, phase and number, sorted.
    under_way: Vec<(usize, usize, u32)>,
    cut: bool,
}

impl ReplayState {
    fn ended(&self, share: usize, phase: usize, number: u32) -> bool {
        number < self.begun[share][phase] && !self.under_way.contains(&(share, phase, number))
    }
}

/// The mini-batches that may be queued at the trainer now, in order.
fn queueable(replay: &Replay) -> Vec<u32> {
    (0..).map_while(|ahead| replay.next_training(ahead)).collect()
}

/// Checks that the queueable mini-batches are trained next, one after the other, if no other step begins or ends.
fn check_queueable(queueable: &[u32], mut replay: Replay, under_way: &[Begun]) {
    let mut training = under_way.iter().copied().find(|b| b.step.phase == Phase::Training);
    for &batch in queueable {
        replay.end(training.expect("a mini-batch is in training, behind which the others wait"));
        training = replay.begin_training();
        assert_eq!(training.map(|b| b.batch), Some(batch));
    }
}

/// Checks that queueable mini-batches stay queueable after any other event.
fn check_kept(before: &[u32], replay: &Replay) {
    let after = queueable(replay);
    assert!(after.starts_with(before), "queueable {before:?}, then {after:?}");
}

struct Model<'a> {
    schedule: &'a Schedule,
    /// Share and number by position.
    positions: Vec<(usize, u32)>,
    /// Share and number by the order of training.
    training: Vec<(usize, u32)>,
}

impl<'a> Model<'a> {
    fn new(schedule: &'a Schedule) -> Self {
        let of = |phase: Phase| {
            let mut numbers = vec![0; schedule.shares.len()];
            let order = simulate(schedule).order;
            let steps = order.steps().iter().filter(|s| s.phase == phase);
            let number = |share: usize| {
                numbers[share] += 1;
                (share, numbers[share] - 1)
            };
            steps.map(|s| s.share).map(number).collect()
        };
        Self { schedule, positions: of(Phase::Batching), training: of(Phase::Training) }
    }

    /// Resources, buffers, workers and lanes are used as far as the schedule allows.
    fn check_capacities(&self, state: &ReplayState) {
        for resource in self.schedule.resources.iter().filter(|r| r.cores.is_none() && !r.queued) {
            let holds = |&&(share, phase, _): &&(usize, usize, u32)| {
                let h = &self.schedule.shares[share].hardware;
                [&h.batching, &h.transferring, &h.training][phase].contains(&resource.name)
            };
            assert!(state.under_way.iter().filter(holds).count() <= 1, "{} is held twice: {state:?}", resource.name);
        }
        let (mut batched, mut ready, mut training) = (0, 0, 0);
        for (i, (share, begun)) in self.schedule.shares.iter().zip(&state.begun).enumerate() {
            let at = |phase| state.under_way.iter().filter(|u| (u.0, u.1) == (i, phase)).count();
            assert!(at(0) <= share.workers && at(1) <= 1, "{state:?}");
            training += at(2);
            batched += if share.in_place { 0 } else { begun[0] - begun[1] };
            ready += if share.in_place { begun[0] - begun[2] } else { begun[1] - begun[2] };
        }
        assert!(training <= 1, "{state:?}");
        assert!(batched as usize <= self.schedule.batched && ready as usize <= self.schedule.ready, "{state:?}");
        if self.schedule.policy == Policy::Sequential {
            assert!(state.under_way.len() <= 1, "{state:?}");
        }
    }

    /// A mini-batch that begins a phase has ended the phase before, and training follows the order.
    fn check_begun(&self, before: &ReplayState, Begun { step, number, batch }: Begun) {
        let (share, phase) = (step.share, step.phase as usize);
        assert_eq!(number, before.begun[share][phase], "each phase takes a share's mini-batches in order");
        assert_eq!(
            self.positions[batch as usize],
            (share, number),
            "positions are those of the order, whatever the timing"
        );
        assert!(
            phase == 0 || before.ended(share, phase - 1, number),
            "{step:?} of {number} begins too early: {before:?}"
        );
        assert!(phase > 0 || !before.cut, "nothing begins after a cut");
        if step.phase == Phase::Training {
            let comes = |&&(s, n): &&(usize, u32)| {
                let will = if before.cut { before.begun[s][0] } else { u32::MAX };
                (before.begun[s][2]..will).contains(&n)
            };
            assert_eq!(self.training.iter().find(comes), Some(&(share, number)), "training is in order: {before:?}");
        }
    }

    /// At the end every mini-batch that has begun was trained; without a cut those are all mini-batches.
    fn check_end(&self, replay: &Replay, state: &ReplayState) {
        assert!(replay.is_done());
        for (share, begun) in self.schedule.shares.iter().zip(&state.begun) {
            assert_eq!(*begun, [begun[0]; 3], "deadlock: {state:?}");
            assert!(state.cut || begun[0] as usize == share.batches, "it ends early: {state:?}");
        }
        let total: u32 = state.begun.iter().map(|b| b[0]).sum();
        assert_eq!((replay.begun(), replay.trained(), replay.ready()), (total, total, 0));
    }

    /// Explores every sequence of events; returns the number of different states, and of final states.
    fn explore(&self) -> (usize, usize) {
        let mut ends = 0;
        let order = simulate(self.schedule).order;
        let start = ReplayState { begun: vec![[0; 3]; self.schedule.shares.len()], under_way: Vec::new(), cut: false };
        let mut visited = HashSet::from([start.clone()]);
        let mut open = VecDeque::from([(start, Replay::new(self.schedule, &order), Vec::<Begun>::new())]);
        while let Some((state, replay, under_way)) = open.pop_back() {
            let queueable = queueable(&replay);
            check_queueable(&queueable, replay.clone(), &under_way);
            let mut reach = |state: ReplayState, replay: Replay, under_way: Vec<Begun>| {
                self.check_capacities(&state);
                if visited.insert(state.clone()) {
                    open.push_back((state, replay, under_way));
                }
            };
            // A step begins; the replay chooses which.
            let mut next = replay.clone();
            match next.begin() {
                Some(begun) => {
                    self.check_begun(&state, begun);
                    if begun.step.phase != Phase::Training {
                        check_kept(&queueable, &next);
                    }
                    let mut then = state.clone();
                    then.begun[begun.step.share][begun.step.phase as usize] += 1;
                    then.under_way.push((begun.step.share, begun.step.phase as usize, begun.number));
                    then.under_way.sort_unstable();
                    reach(then, next, [&under_way[..], &[begun]].concat());
                }
                None if under_way.is_empty() => {
                    self.check_end(&replay, &state);
                    ends += 1;
                }
                None => assert!(!replay.is_done(), "steps are under way"),
            }
            // Any step that is under way ends.
            for (i, &ended) in under_way.iter().enumerate() {
                let (mut next, mut rest, mut then) = (replay.clone(), under_way.clone(), state.clone());
                next.end(ended);
                if ended.step.phase != Phase::Training {
                    check_kept(&queueable, &next);
                }
                rest.swap_remove(i);
                then.under_way.retain(|&u| u != (ended.step.share, ended.step.phase as usize, ended.number));
                reach(then, next, rest);
            }
            // A cut.
            if !state.cut {
                let mut next = replay.clone();
                next.cut();
                check_kept(&queueable, &next);
                reach(ReplayState { cut: true, ..state.clone() }, next, under_way.clone());
            }
        }
        (visited.len(), ends)
    }
}

#[test]
fn ready_mini_batches_may_be_queued_at_the_trainer() {
    let schedule = schedule(Policy::Pipeline, vec![share(0, 4, 1, [1.0; 3])], [1, 2]);
    let mut replay = Replay::new(&schedule, &simulate(&schedule).order);
    let mut training = None;
    // All phases take no time but training, which does not end.
    while let Some(begun) = replay.begin() {
        match begun.step.phase {
            Phase::Training => training = Some(begun),
            _ => replay.end(begun),
        }
    }
    assert_eq!(training.map(|b| b.batch), Some(0));
    assert_eq!(queueable(&replay), [1, 2], "two are ready, the last one is batched");
}

/// The same schedule on a device and a link that queue.
fn queueing(mut schedule: Schedule) -> Schedule {
    schedule.resources.iter_mut().filter(|r| r.cores.is_none()).for_each(|r| r.queued = true);
    schedule
}

/// The device samples, gathers and trains at once; each alone, the next mini-batch would wait for the one in training.
#[test]
fn phases_on_a_resource_that_queues_begin_together() {
    let alone = schedule(Policy::Pipeline, vec![share(1, 4, 1, [1.0; 3])], [0, 2]);
    for (schedule, expected) in [(alone.clone(), 1), (queueing(alone), 3)] {
        let mut replay = Replay::new(&schedule, &simulate(&schedule).order);
        let mut under_way: Vec<Begun> = Vec::new();
        // The first mini-batch is in training, which does not end.
        while under_way.iter().all(|begun| begun.step.phase != Phase::Training) {
            under_way.drain(..).for_each(|begun| replay.end(begun));
            under_way.extend(std::iter::from_fn(|| replay.begin()));
        }
        assert_eq!(under_way.len(), expected, "{under_way:?}");
    }
}

/// Explores each schedule; there are at least `states` states in all, and more than one way to end each of them.
#[track_caller]
fn check(states: usize, schedules: impl IntoIterator<Item = Schedule>) {
    let mut total = 0;
    for schedule in schedules.into_iter().flat_map(|schedule| [queueing(schedule.clone()), schedule]) {
        let (states, ends) = Model::new(&schedule).explore();
        assert!(ends > 1, "{schedule}: cut at once, and to the end");
        total += states;
    }
    assert!(total >= states, "only {total} states");
}

/// Durations that make each phase the slowest in turn: the simulated orders differ.
const SECONDS: [[f64; 3]; 4] = [[5.0, 1.0, 1.0], [1.0, 5.0, 1.0], [1.0, 1.0, 5.0], [1.0, 1.0, 1.0]];

#[test]
fn one_route_in_every_order() {
    let of = |policy, route, workers, sizes| {
        SECONDS.map(|seconds| schedule(policy, vec![share(route, 6, workers, seconds)], sizes))
    };
    check(
        1_000,
        [
            of(Policy::Sequential, 0, 1, [1, 1]),
            of(Policy::Sequential, 2, 1, [0, 1]),
            of(Policy::Pipeline, 0, 1, [1, 1]),
            of(Policy::Pipeline, 0, 2, [2, 1]),
            of(Policy::Pipeline, 0, 2, [3, 2]),
            of(Policy::Pipeline, 1, 1, [0, 1]),
            of(Policy::Pipeline, 1, 1, [0, 2]),
            of(Policy::Pipeline, 2, 2, [0, 1]),
            of(Policy::Pipeline, 2, 2, [0, 3]),
        ]
        .concat(),
    );
}

#[test]
fn two_routes_in_every_order() {
    let mut schedules = Vec::new();
    for policy in [Policy::DualBuffer, Policy::Interleaved, Policy::Pipeline] {
        for host in SECONDS {
            for device in [[1.0, 0.5, host[2]], [4.0, 2.0, host[2]]] {
                for (workers, sizes) in [(1, [2, 1]), (2, [3, 2]), (2, [2, 2]), (1, [1, 1]), (3, [5, 3])] {
                    schedules.push(schedule(policy, vec![share(0, 6, workers, host), share(1, 5, 1, device)], sizes));
                }
            }
        }
    }
    check(100_000, schedules);
}
