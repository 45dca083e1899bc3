//! The planner against the true optimum: every assignment of routes and every order of operations of few mini-batches.
#![allow(clippy::print_stdout, reason = "the distance to the optimum is worth reading")]

use std::collections::HashMap;
use std::sync::Mutex;

use crate::common::{DEVICE, HOST, TwoRoutes, check::check};
use morphgl_plan::{Policy, bound, plan, timeline};
use proptest::prelude::*;

/// A partial schedule: when the resources and mini-batches that later operations wait for become free.
///
/// Only these times are kept, and every later start is a maximum of some of them and of sums with
/// durations. So of two partial schedules with the same operations begun, one whose times are all no later is as good.
#[derive(Debug, Clone, PartialEq)]
struct Partial {
    /// Workers, by when they are free.
    workers: Vec<f64>,
    pcie: f64,
    device: f64,
    /// When mini-batches that wait are batched by the host, transferred, batched by the device, gathered.
    waiting: [Vec<f64>; 4],
    /// When transfers began; 0 for those whose buffer slot was taken again.
    transfers: Vec<f64>,
    /// When steps of training began; 0 for those whose buffer slot was taken again.
    steps: Vec<f64>,
}

impl Partial {
    fn times(&self) -> impl Iterator<Item = f64> + '_ {
        let waiting = self.waiting.iter().flatten();
        let rest = waiting.chain(&self.transfers).chain(&self.steps).chain(&self.workers);
        rest.copied().chain([self.pcie, self.device])
    }

    fn is_no_worse(&self, other: &Self) -> bool {
        self.times().zip(other.times()).all(|(a, b)| a <= b)
    }
}

/// Operations begun: batched and transferred of the host's, batched and gathered of the device's, trained of each.
type Begun = [usize; 6];

/// The minimum makespan of any schedule of `by_host` mini-batches of the host's and the others of the device's.
///
/// Operations are added one at a time, each as early as those before it allow, in every order of operations; equal mini-batches
/// keep their order. Any feasible schedule, taken in the order of its starts, is matched by one that ends no later.
fn optimum_of(two: &TwoRoutes, by_host: usize) -> f64 {
    let by_device = two.n - by_host;
    let first = Partial {
        workers: vec![0.0; two.workers],
        pcie: 0.0,
        device: 0.0,
        waiting: Default::default(),
        transfers: Vec::new(),
        steps: Vec::new(),
    };
    let mut level: HashMap<Begun, Vec<Partial>> = HashMap::from([([0; 6], vec![first])]);
    for _ in 0..3 * two.n {
        let mut next: HashMap<Begun, Vec<Partial>> = HashMap::new();
        for (begun, partials) in level {
            for op in 0..6 {
                let mut after = begun;
                after[op] += 1;
                let most = if [0, 1, 4].contains(&op) { by_host } else { by_device };
                let needs = [None, Some(0), None, Some(2), Some(1), Some(3)][op];
                if after[op] > most || needs.is_some_and(|before: usize| begun[before] < after[op]) {
                    continue;
                }
                for partial in &partials {
                    let Some(grown) = grow(two, begun, partial, op) else { continue };
                    let front = next.entry(after).or_default();
                    if front.iter().any(|p| p.is_no_worse(&grown)) {
                        continue;
                    }
                    front.retain(|p| !grown.is_no_worse(p));
                    front.push(grown);
                }
            }
        }
        level = next;
    }
    // Every mini-batch ends on the device, which takes them one after the other.
    let ends = level.into_values().flatten().map(|p| p.device);
    ends.fold(f64::INFINITY, f64::min)
}

/// Begins operation `op` as early as it can; `None` where its buffer has no free slot.
fn grow(two: &TwoRoutes, begun: Begun, partial: &Partial, op: usize) -> Option<Partial> {
    let mut p = partial.clone();
    // When the slot that the operation takes became free: slots are freed in the order in which they were taken.
    let slot_free = |taken: usize, size: usize, left: &[f64]| match taken.checked_sub(size) {
        None => Some(0.0),
        Some(wanted) => left.get(wanted).copied(),
    };
    let ready = slot_free(begun[1] + begun[2], two.ready, &p.steps);
    match op {
        0 => {
            let start = p.workers[0].max(slot_free(begun[0], two.batched, &p.transfers)?);
            p.workers[0] = start + two.host;
            p.workers.sort_by(f64::total_cmp);
            p.waiting[0].push(start + two.host);
        }
        1 => {
            let start = p.pcie.max(p.waiting[0].remove(0)).max(ready?);
            p.pcie = start + two.dma;
            p.waiting[1].push(p.pcie);
            p.transfers.push(start);
        }
        2 => {
            let start = p.pcie.max(p.device).max(ready?);
            (p.pcie, p.device) = (start + two.device, start + two.device);
            p.waiting[2].push(p.device);
        }
        3 => {
            let start = p.pcie.max(p.device).max(p.waiting[2].remove(0));
            (p.pcie, p.device) = (start + two.gather, start + two.gather);
            p.waiting[3].push(p.device);
        }
        _ => {
            let start = p.device.max(p.waiting[if op == 4 { 1 } else { 3 }].remove(0));
            p.device = start + two.training;
            p.steps.push(start);
        }
    }
    // Slots that were taken again do not matter any more.
    let batched = begun[0] + usize::from(op == 0);
    let ready = begun[1] + begun[2] + usize::from(op == 1 || op == 2);
    p.transfers[..batched.saturating_sub(two.batched)].fill(0.0);
    p.steps[..ready.saturating_sub(two.ready)].fill(0.0);
    Some(p)
}

/// The minimum makespan over all divisions.
fn optimum(two: &TwoRoutes) -> f64 {
    (0..=two.n).map(|by_host| optimum_of(two, by_host)).fold(f64::INFINITY, f64::min)
}

fn seconds() -> impl Strategy<Value = f64> {
    prop_oneof![(1u32..=8).prop_map(f64::from), (0.0..3.0f64).prop_map(|e| 1e-1 * 10f64.powf(e)), Just(0.0)]
}

fn two(most: usize) -> impl Strategy<Value = TwoRoutes> {
    let durations = [(); 5].map(|()| seconds());
    (1..=most, 1usize..=2, durations, 2usize..=4, 1usize..=4).prop_map(|(n, workers, s, batched, ready)| TwoRoutes {
        batched,
        ready,
        ..TwoRoutes::new(n, workers, s)
    })
}

#[track_caller]
fn assert_close(a: f64, b: f64) {
    assert!((a - b).abs() < 1e-9, "{a}, expected {b}");
}

#[test]
fn the_reference_agrees_with_optima_found_by_hand() {
    let mut two = TwoRoutes { batched: 8, ready: 8, ..TwoRoutes::new(4, 1, [3.0, 1.0, 100.0, 100.0, 2.0]) };
    // By the host alone: four of 3 s, then a transfer and a step.
    assert_close(optimum_of(&two, 4), 12.0 + 1.0 + 2.0);
    // TwoRoutes workers: pairs at 3 and 6 s; transfers end at 4, 5, 7, 8; steps at 6, 8, 10, 12.
    two.workers = 2;
    assert_close(optimum_of(&two, 4), 12.0);
    // By the device alone: one after the other.
    assert_close(optimum_of(&two, 0), 4.0 * 202.0);
    // One slot on the device: a transfer waits until the step before it has begun, which does not delay the step.
    assert_close(optimum_of(&TwoRoutes { ready: 1, training: 5.0, ..two }, 4), 4.0 + 4.0 * 5.0);
    // A transfer as long as the step, and one slot: it has to wait for the step's beginning, and is hidden behind it.
    assert_close(
        optimum_of(&TwoRoutes { ready: 1, training: 4.0, dma: 4.0, workers: 1, host: 1.0, ..two }, 4),
        1.0 + 4.0 + 4.0 * 4.0,
    );
    // One batched slot: the next mini-batch is batched while this one is transferred.
    assert_close(
        optimum_of(&TwoRoutes { batched: 1, workers: 1, dma: 5.0, training: 1.0, ..two }, 4),
        3.0 + 4.0 * 5.0 + 1.0,
    );
    // Both: while the host batches one, the device batches (1 s), gathers (1 s) and trains (2 s) one; then the host's.
    let both = TwoRoutes::new(2, 1, [3.0, 1.0, 1.0, 1.0, 2.0]);
    assert_close(optimum_of(&both, 1), 6.0);
    assert_close(optimum(&both), 6.0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn plans_lie_between_the_optimum_and_the_baselines(two in two(6)) {
        let problem = two.problem();
        let best = optimum(&two);
        let eps = 1e-9 * (1.0 + best);
        let limit = bound(&problem);
        prop_assert!(limit <= best + eps, "bound {} above the optimum {}", limit, best);
        let plans = plan(&problem).expect("there is memory");
        let ours = plans.best().prediction.epoch_seconds;
        for p in plans.all() {
            let simulation = timeline(&p.schedule);
            check(&p.schedule, &simulation);
            prop_assert_eq!(simulation.seconds, p.prediction.epoch_seconds);
            prop_assert_eq!(p.prediction.bound_seconds, limit);
            prop_assert_eq!(p.num_batches(), two.n);
            prop_assert!(p.schedule.batched <= two.batched && p.schedule.ready <= two.ready, "{} in {:?}", p.schedule, two);
            prop_assert!(simulation.seconds >= best - eps, "{} {} below the optimum {}", p.strategy, simulation.seconds, best);
            prop_assert!(ours <= simulation.seconds, "{} {} below ours {}", p.strategy, simulation.seconds, ours);
        }
        for route in [HOST, DEVICE] {
            for policy in [Policy::Sequential, Policy::Pipeline] {
                let alone = timeline(&two.single(policy, route));
                prop_assert!(ours <= alone.seconds + eps, "{} of route {} takes {}, ours {}", policy, route, alone.seconds, ours);
            }
        }
    }

    #[test]
    fn no_schedule_beats_the_optimum_of_its_division(
        two in two(6), by_host in 0usize..=6, group in 1usize..=4, keep in 0usize..=3,
    ) {
        let by_host = by_host.min(two.n);
        let best = optimum_of(&two, by_host);
        for policy in [Policy::Sequential, Policy::Pipeline, Policy::DualBuffer, Policy::Interleaved] {
            let schedule = two.schedule(policy, by_host, (group, keep));
            let simulation = timeline(&schedule);
            check(&schedule, &simulation);
            prop_assert!(
                simulation.seconds >= best - 1e-9 * (1.0 + best),
                "{} takes {}, the optimum is {}", policy, simulation.seconds, best
            );
        }
    }
}

#[test]
fn ours_is_close_to_the_optimum() {
    // For each number of mini-batches: epochs, sum and most of our ratio to the optimum, how often it is the optimum,
    // and the sum of the optimum's ratio to the bound.
    let found: Mutex<Vec<[f64; 5]>> = Mutex::new(vec![[0.0; 5]; 8]);
    std::thread::scope(|scope| {
        for part in 0..2 {
            let found = &found;
            scope.spawn(move || {
                let mut random = crate::common::Random(11 + part);
                for i in 0..280 {
                    let n = 1 + i % 7;
                    let mut two = random.two_routes(n);
                    two.workers = 1 + two.workers % 2;
                    (two.batched, two.ready) = (4, 2 + (random.unit() * 3.0) as usize);
                    let best = optimum(&two);
                    let plans = plan(&two.problem()).expect("there is memory");
                    let ratio = plans.best().prediction.epoch_seconds / best;
                    assert!(ratio >= 1.0 - 1e-9, "{two:?}");
                    let row = &mut found.lock().expect("no thread panics while it holds the lock")[n];
                    let is_best = f64::from(u8::from(ratio < 1.0 + 1e-9));
                    *row = [
                        row[0] + 1.0,
                        row[1] + ratio,
                        row[2].max(ratio),
                        row[3] + is_best,
                        row[4] + best / bound(&two.problem()),
                    ];
                }
            });
        }
    });
    println!("mini-batches  ours/optimum: mean  most    is the optimum  optimum/bound: mean");
    let found = found.into_inner().expect("no thread panics while it holds the lock");
    for (n, [count, sum, most, best, bound]) in found.iter().enumerate().skip(1) {
        println!(
            "{n:>12}  {:>18.4}  {most:.4}  {:>12.0} %  {:>19.4}",
            sum / count,
            100.0 * best / count,
            bound / count
        );
        assert!(sum / count <= 1.05, "ours is on average {} times the optimum of {n} mini-batches", sum / count);
    }
}
