//! Replays of orders: with constant durations the simulated epoch, with varying ones close to it.
#![allow(clippy::print_stdout, reason = "the distance is worth reading")]

use crate::common::noise::{Noise, replay};
use crate::common::{DEVICE, HOST, Random, TwoRoutes, check};
use morphgl_plan::{Phase, Policy, Schedule, Simulation, plan, timeline};
use proptest::prelude::*;
use proptest::strategy::Strategy;

/// Mini-batches in the order in which they are trained.
fn trained(simulation: &Simulation) -> Vec<u32> {
    let steps = simulation.activities.iter().filter(|a| a.phase == Phase::Training);
    let mut steps: Vec<(f64, f64, u32)> = steps.map(|a| (a.span.start, a.span.end, a.id.index)).collect();
    steps.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    steps.into_iter().map(|s| s.2).collect()
}

fn two() -> impl Strategy<Value = TwoRoutes> {
    let seconds = || (-3.0..0.0f64).prop_map(|e| 10f64.powf(e));
    let durations = [(); 5].map(|()| seconds());
    (1usize..120, 1usize..=8, durations, 1usize..=20, 1usize..=10)
        .prop_map(|(n, workers, s, batched, ready)| TwoRoutes { batched, ready, ..TwoRoutes::new(n, workers, s) })
}

fn schedules(two: &TwoRoutes, by_host: usize, shape: (usize, usize)) -> Vec<Schedule> {
    let mixed = Policy::ALL.map(|policy| two.schedule(policy, by_host, shape));
    let single = [HOST, DEVICE].map(|route| [Policy::Sequential, Policy::Pipeline].map(|p| two.single(p, route)));
    mixed.into_iter().chain(single.into_iter().flatten()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_replay_without_noise_is_the_simulated_epoch(
        two in two(), host in 0.0..=1.0f64, group in 1usize..=10, keep in 0usize..=9,
    ) {
        for schedule in schedules(&two, (host * two.n as f64) as usize, (group, keep)) {
            let simulated = timeline(&schedule);
            check::check(&schedule, &simulated);
            let replayed = replay(&schedule, &simulated.order, &Noise::of(1, 0.0));
            check::check(&schedule, &replayed);
            prop_assert!(check::close(simulated.seconds, replayed.seconds), "{}: {} and {}", schedule, simulated.seconds, replayed.seconds);
            prop_assert_eq!(trained(&simulated), trained(&replayed));
        }
    }

    #[test]
    fn a_replay_with_noise_keeps_every_constraint_and_trains_in_the_same_order(
        two in two(), host in 0.0..=1.0f64, group in 1usize..=10, keep in 0usize..=9, seed: u64, variation in 0.0..1.0f64,
    ) {
        for schedule in schedules(&two, (host * two.n as f64) as usize, (group, keep)) {
            let simulated = timeline(&schedule);
            let noise = Noise::of(seed, variation);
            let replayed = replay(&schedule, &simulated.order, &noise);
            check::constraints(&schedule, &replayed);
            prop_assert_eq!(trained(&simulated), trained(&replayed));
            prop_assert_eq!(&replayed, &replay(&schedule, &simulated.order, &noise));
        }
    }
}

#[test]
fn the_mean_of_noisy_epochs_is_near_the_prediction() {
    let mut random = Random(3);
    let (mut most, mut sum, count) = (0.0f64, 0.0, 40);
    for _ in 0..count {
        let two = random.two_routes(400);
        let plans = plan(&two.problem()).expect("there is memory");
        let schedule = &plans.best().schedule;
        let order = timeline(schedule).order;
        let mean = (0..20).map(|seed| replay(schedule, &order, &Noise::of(seed, 0.1)).seconds).sum::<f64>() / 20.0;
        let off = mean / plans.best().prediction.epoch_seconds - 1.0;
        (most, sum) = (if off.abs() > most.abs() { off } else { most }, sum + off);
        assert!(off.abs() < 0.06, "{two:?}: {} predicted, mean {mean}", plans.best());
    }
    println!(
        "10% noise, {count} machines: epochs off by {:+.2}% on average, {:+.2}% at most",
        100.0 * sum / f64::from(count),
        100.0 * most
    );
}

#[test]
fn noise_has_its_mean_and_deviation_and_is_a_function() {
    let seconds = morphgl_plan::Seconds { mean: 2.0, std: 0.2 };
    let noise = Noise::measured(5);
    let draws: Vec<f64> = (0..20_000).map(|i| noise.draw(Phase::Training, i, seconds)).collect();
    let mean = draws.iter().sum::<f64>() / draws.len() as f64;
    let deviation = (draws.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / draws.len() as f64).sqrt();
    assert!((mean - 2.0).abs() < 0.01 && (deviation - 0.2).abs() < 0.01, "{mean} ± {deviation}");
    assert_eq!(noise.draw(Phase::Batching, 7, seconds), noise.draw(Phase::Batching, 7, seconds));
    assert_ne!(noise.draw(Phase::Batching, 7, seconds), noise.draw(Phase::Training, 7, seconds));
    assert_ne!(noise.draw(Phase::Batching, 7, seconds), Noise::measured(6).draw(Phase::Batching, 7, seconds));
    assert!(Noise::of(1, 5.0).draw(Phase::Batching, 0, seconds) >= 0.2, "never below a tenth");
}
