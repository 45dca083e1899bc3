//! Laws of groups: shares, cores, shared links, and the choice between a group and a single trainer.

use crate::common::Random;
use crate::common::check::close;
use crate::common::groups::{Device, Devices, group_of_devices, link, random_group};
use morphgl_plan::{
    Curve, GroupPlan, GroupProblem, GroupSplit, Linear, LinkUser, Point, Seconds, SharedLink, TrainerPlan, group,
    group_of, group_split, plan,
};
use proptest::prelude::*;

fn line(whole: f64) -> Linear {
    Linear { fixed: 0.0, whole }
}

/// A device whose own batching is of no use.
fn device([host, dma, training]: [f64; 3]) -> Device {
    Device { host: line(host), dma: line(dma), device: line(1e3), gather: line(1e3), training: line(training) }
}

/// Seconds, shares, cores and routes.
fn words(found: &GroupPlan) -> String {
    let of = |t: &TrainerPlan| format!("{:.4} on {}, {}; ", t.share, t.cores, t.plan.schedule);
    let trainers: String = found.trainers.iter().map(of).collect();
    format!("{} s, bound {} s: {trainers}", found.epoch_seconds, found.bound_seconds)
}

fn within(value: f64, expected: f64, tolerance: f64) -> bool {
    (value - expected).abs() <= tolerance * expected
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_group_is_never_worse_than_its_best_trainer_nor_better_than_the_bound(seed in any::<u64>(), n in 1usize..60) {
        let devices = [Devices::Alike, Devices::TwoKinds, Devices::AllDifferent][seed as usize % 3];
        let problem = random_group(&mut Random(seed), n, devices);
        let found = group(&problem).expect("a plan");
        prop_assert!((found.trainers.iter().map(|t| t.share).sum::<f64>() - 1.0).abs() < 1e-9);
        prop_assert!(found.trainers.iter().map(|t| t.cores).sum::<usize>() <= problem.cores());
        for trainer in &problem.trainers {
            let alone = plan(&trainer.whole).expect("there is memory").best().prediction.epoch_seconds;
            prop_assert!(found.epoch_seconds <= alone * (1.0 + 1e-9));
        }
        prop_assert!(found.epoch_seconds >= found.bound_seconds * (1.0 - 1e-9), "{}", words(&found));
        prop_assert!(close(problem.bound().expect("valid"), found.bound_seconds));
        prop_assert_eq!(problem.simulate(&found.trainers).seconds, found.epoch_seconds);
    }

    /// No shares at random, of any trainers, are below the bound.
    #[test]
    fn the_bound_holds_for_any_shares(seed in any::<u64>(), weights in proptest::collection::vec(0.01..1.0f64, 8)) {
        let problem = random_group(&mut Random(seed), 40, Devices::AllDifferent);
        let members: Vec<usize> = (0..problem.trainers.len()).collect();
        let sum: f64 = weights[..members.len()].iter().sum();
        let shares: Vec<f64> = weights[..members.len()].iter().map(|w| w / sum).collect();
        let found = group_of(&problem, &members, Some(&shares)).expect("a plan");
        prop_assert_eq!(found.trainers.iter().map(|t| t.share).collect::<Vec<_>>(), shares);
        prop_assert!(found.epoch_seconds >= found.bound_seconds * (1.0 - 1e-9), "{}", words(&found));
    }

    /// A link makes no epoch shorter, and one that nobody can fill makes none longer.
    #[test]
    fn links_only_slow_down(seed in any::<u64>(), fraction in 0.0..1.0f64) {
        let problem = GroupProblem { links: Vec::new(), ..random_group(&mut Random(seed), 40, Devices::AllDifferent) };
        let found = group(&problem).expect("a plan");
        let count = problem.trainers.len();
        let with = |fraction: f64| GroupProblem { links: vec![link("switch", 0..count, fraction)], ..problem.clone() };
        let alone = with(fraction / count as f64).simulate(&found.trainers).seconds;
        prop_assert!(within(alone, found.epoch_seconds, 1e-9), "{} {}", alone, found.epoch_seconds);
        let shared = with(fraction).simulate(&found.trainers);
        prop_assert!(shared.link_seconds[0] <= shared.seconds * (1.0 + 1e-9));
        let bounds = [&problem, &with(fraction)].map(|p| p.bound().expect("valid"));
        prop_assert!(bounds[1] >= bounds[0] * (1.0 - 1e-3), "{:?}", bounds);
        prop_assert!(shared.seconds >= bounds[1] * (1.0 - 1e-9));
    }
}

/// Two equal trainers halve the step but for the all-reduce, and are together only where that is worth it.
#[test]
fn trainers_are_together_where_that_is_faster() {
    let with = |all_reduce| {
        let two = group_of_devices(1000, &[device([0.01, 0.001, 0.1]); 2], 2, true);
        group(&GroupProblem { all_reduce, ..two }).expect("a plan")
    };
    let found = with(0.01);
    assert!(within(found.epoch_seconds, 60.0, 0.01), "{}", words(&found));
    assert!(found.trainers.iter().all(|t| within(t.share, 0.5, 1e-3) && t.cores == 1), "{}", words(&found));
    let found = with(0.06);
    assert_eq!(found.trainers.len(), 1, "{}", words(&found));
    assert!(within(found.epoch_seconds, 100.0, 0.01), "{}", words(&found));
}

/// Shares are in proportion to speeds, and steps as short as they can be.
#[test]
fn shares_follow_speeds() {
    let found = group(&group_of_devices(1000, &[device([0.01, 0.001, 0.1]), device([0.01, 0.001, 0.3])], 2, true));
    let found = found.expect("a plan");
    assert!(within(found.trainers[0].share, 0.75, 0.01), "{}", words(&found));
    assert!(within(found.epoch_seconds, 75.0, 0.01), "{}", words(&found));
}

/// Two devices behind a switch that one of them fills move a mini-batch in the time in which one of them does.
#[test]
fn devices_behind_a_switch_share_it() {
    let devices = [device([0.001, 0.1, 0.01]); 2];
    let apart = group_of_devices(1000, &devices, 2, true);
    let found = group(&apart).expect("a plan");
    assert!(within(found.epoch_seconds, 50.0, 0.01), "{}", words(&found));
    for (fraction, seconds) in [(1.0, 100.0), (0.75, 75.0), (0.5, 50.0)] {
        let shared = GroupProblem { links: vec![link("switch", 0..2, fraction)], ..apart.clone() };
        let found = group(&shared).expect("a plan");
        assert!(within(found.epoch_seconds, seconds, 0.01), "{fraction}: {}", words(&found));
        assert!(within(found.bound_seconds, seconds, 0.01), "{fraction}: {}", words(&found));
    }
}

/// Of four equal devices, two behind each of two switches, one behind each is as good as all.
#[test]
fn trainers_are_chosen_from_both_switches() {
    let mut problem = group_of_devices(400, &[device([0.001, 0.1, 0.01]); 4], 4, true);
    problem.links = vec![link("switch 0", 0..2, 1.0), link("switch 1", 2..4, 1.0)];
    let found = group(&problem).expect("a plan");
    assert!(within(found.epoch_seconds, 20.0, 0.02) && within(found.bound_seconds, 20.0, 0.02), "{}", words(&found));
}

/// Mini-batches that the devices batch spare the switch.
#[test]
fn trainers_take_another_route_where_a_link_is_full() {
    let both = Device { device: line(0.04), gather: line(0.02), ..device([0.001, 0.1, 0.01]) };
    let mut problem = group_of_devices(1000, &[both; 4], 4, true);
    problem.links = vec![link("switch", 0..4, 1.0)];
    // By the host alone the link is full for 100 s, and batching by the devices holds it for 60 s, and not while all train.
    let found = group(&problem).expect("a plan");
    assert!((60.0..63.0).contains(&found.epoch_seconds), "{} {}", found.epoch_seconds, found.bound_seconds);
}

/// A trainer has several routes where that is faster than any of them.
#[test]
fn trainers_have_several_routes() {
    let both = Device { device: line(0.015), gather: line(0.005), ..device([0.12, 0.004, 0.01]) };
    let problem = group_of_devices(1000, &[both; 4], 16, true);
    let found = group(&problem).expect("a plan");
    // A fourth of what one such device takes (the README's example), whose routes alone take 30 s.
    assert!(within(found.epoch_seconds, 4.5, 0.02), "{}", words(&found));
    assert!(found.trainers.iter().all(|t| t.plan.schedule.shares.len() == 2 && t.cores == 4), "{}", words(&found));
}

/// Cores go to the trainers that use them.
#[test]
fn cores_go_where_they_are_of_use() {
    let by_host = device([0.4, 0.001, 0.1]);
    let by_device = Device { host: line(1e3), device: line(0.05), gather: line(0.05), ..device([0.0, 0.001, 0.1]) };
    let found = group(&group_of_devices(1000, &[by_host, by_device], 5, true)).expect("a plan");
    assert_eq!(found.trainers.iter().map(|t| t.cores).collect::<Vec<_>>(), [4, 1], "{}", words(&found));
    // 0.1 s per whole mini-batch by the one, 0.2 s by the other.
    assert!(within(found.epoch_seconds, 1000.0 / 15.0, 0.02), "{}", words(&found));
}

#[test]
fn lines_never_fall_nor_go_below_zero() {
    for (whole, share, seconds) in [(1.0, 0.5, 2.0), (1.0, 0.5, 0.1), (0.0, 0.1, 1.0), (1.0, 0.9, 0.95)] {
        let line = Linear::through(whole, share, seconds);
        assert!(line.fixed >= 0.0 && line.whole >= 0.0, "{line:?}");
        assert!((line.at(1.0) - whole).abs() < 1e-12);
    }
}

#[test]
fn impossible_problems_are_refused() {
    let two = group_of_devices(10, &[device([0.1; 3]); 2], 2, true);
    let refused = |problem: GroupProblem| group(&problem).expect_err("it is impossible").to_string();
    assert_eq!(refused(GroupProblem { trainers: vec![], ..two.clone() }), "a group: 0 trainers; give 1 to 64");
    let negative = refused(GroupProblem { all_reduce: -1.0, ..two.clone() });
    assert_eq!(negative, "the all-reduce: -1 s are no finite number of at least 0");
    let unknown = LinkUser { trainer: 1, resource: "PCIe:7".to_string(), fraction: 1.0 };
    let links = |users| vec![SharedLink { name: "switch".to_string(), users }];
    let error = refused(GroupProblem { links: links(vec![unknown.clone()]), ..two.clone() });
    assert_eq!(error, "a group: link switch connects PCIe:7 of trainer 1, which does not exist");
    let twice = LinkUser { resource: "PCIe:1".to_string(), fraction: 2.0, ..unknown };
    let error = refused(GroupProblem { links: links(vec![twice]), ..two.clone() });
    assert_eq!(error, "a group: PCIe:1 takes 2 of link switch; fractions are from 0 to 1");
    let few = group_of_devices(10, &[device([0.1; 3]); 2], 1, true);
    let error = group_of(&few, &[0, 1], None).expect_err("one core").to_string();
    assert_eq!(error, "a group: 2 trainers on 1 of the host's cores; allow one each");
    let mut other = two.clone();
    other.trainers[1].part = group_of_devices(10, &[device([0.1; 3]); 3], 2, true).trainers[2].part.clone();
    assert!(refused(other).contains("shares of this route were not measured"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4, failure_persistence: None, ..ProptestConfig::default() })]

    /// Given rows make no epoch shorter than that without the work on them, nor than this work, and are computed on the threads of the shortest
    /// epoch.
    #[test]
    fn given_rows_are_computed_beside_a_group(seed in any::<u64>(), part in 0.01..3.0f64, super_batch in 1usize..20) {
        let mut problem = random_group(&mut Random(seed), 24, Devices::Alike);
        problem.single_routes = true;
        let members: Vec<usize> = (0..problem.trainers.len()).collect();
        let found = group_of(&problem, &members, None).expect("a plan");
        let leading = &found.trainers[0];
        let seconds = part * found.epoch_seconds / 24.0 * super_batch as f64;
        let split = |threads: &[usize]| {
            let point = |&at: &usize| Point { at, seconds: Seconds::constant(seconds / at as f64) };
            let of = GroupSplit {
                exact: (&problem.trainers[leading.trainer], problem.part),
                leading: (&leading.plan, leading.share, leading.cores),
                epoch_seconds: found.epoch_seconds,
                super_batch,
                ratio: 0.5,
                embedding: &Curve::new(threads.iter().map(point).collect()).expect("seconds are valid"),
            };
            group_split(of, problem.cores().max(1)).expect("the same routes")
        };
        let best = split(&[1, 2, 4]);
        let epoch = best.plan.prediction.epoch_seconds;
        prop_assert!(epoch >= found.epoch_seconds && best.first_seconds >= found.epoch_seconds);
        let busy = 24f64 / super_batch as f64 * seconds / best.split.threads as f64;
        prop_assert!(epoch >= busy * (1.0 - 1e-9), "{} s, rows take {}", epoch, busy);
        let alone = [1, 2, 4].map(|threads| split(&[threads]).plan.prediction.epoch_seconds);
        let least = alone.into_iter().fold(f64::INFINITY, f64::min);
        prop_assert!((0.999 * epoch..=epoch).contains(&least), "{} of {:?}", epoch, alone);
        best.check().expect("a plan that could be kept");
    }
}
