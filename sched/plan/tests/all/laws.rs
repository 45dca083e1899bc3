//! Laws of plans and bounds of machines with an accelerator.

use crate::common::{TwoRoutes, check::check, check::close};
use morphgl_plan::{Limits, Plans, Problem, bound, plan, predict, simulate, timeline};
use proptest::prelude::*;

fn seconds() -> impl proptest::strategy::Strategy<Value = f64> {
    prop_oneof![1 => Just(0.0), 20 => (-3.0..0.0f64).prop_map(|e| 10f64.powf(e))]
}

fn two() -> impl proptest::strategy::Strategy<Value = TwoRoutes> {
    let durations = [(); 5].map(|()| seconds());
    (prop_oneof![0usize..40, 200usize..300], 1usize..=16, durations, 16usize..=64, 1usize..=10)
        .prop_map(|(n, workers, s, batched, ready)| TwoRoutes { batched, ready, ..TwoRoutes::new(n, workers, s) })
}

fn scaled(two: TwoRoutes, which: usize, factor: f64) -> TwoRoutes {
    let mut other = two;
    let duration = [&mut other.host, &mut other.dma, &mut other.device, &mut other.gather, &mut other.training]
        .into_iter()
        .nth(which);
    *duration.expect("there are five") *= factor;
    other
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn plans_keep_every_constraint_and_are_the_same_every_time(two in two()) {
        let problem = two.problem();
        let plans = plan(&problem).expect("there is memory");
        prop_assert_eq!(&plans, &plan(&problem).expect("there is memory"));
        let limit = bound(&problem);
        for p in plans.all() {
            let simulation = timeline(&p.schedule);
            check(&p.schedule, &simulation);
            prop_assert_eq!(p.num_batches(), two.n);
            prop_assert_eq!(simulation.seconds, p.prediction.epoch_seconds);
            prop_assert_eq!(simulation.seconds, simulate(&p.schedule).seconds);
            prop_assert!(simulation.seconds >= limit * (1.0 - 1e-9), "{} below the bound {}", p, limit);
            prop_assert!(plans.best().prediction.epoch_seconds <= p.prediction.epoch_seconds);
            prop_assert_eq!(&p.prediction, &predict(&p.schedule, limit));
            prop_assert!(p.schedule.batched <= two.batched.max(two.workers) && p.schedule.ready <= two.ready);
        }
    }

    #[test]
    fn the_bound_grows_with_every_duration_and_with_the_epoch(two in two(), which in 0usize..5, factor in 1.0..10.0f64) {
        let before = bound(&two.problem());
        let longer = bound(&scaled(two, which, factor).problem());
        prop_assert!(longer >= before * (1.0 - 1e-9), "{} before, {} after", before, longer);
        let more = bound(&TwoRoutes { n: two.n + 1, ..two }.problem());
        prop_assert!(more >= before * (1.0 - 1e-9), "{} before, {} with another mini-batch", before, more);
        let faster = bound(&TwoRoutes { workers: two.workers + 1, ..two }.problem());
        prop_assert!(faster <= before * (1.0 + 1e-9), "{} before, {} with another worker", before, faster);
    }

    #[test]
    fn an_epoch_scales_with_all_durations(two in two(), power in -3i32..=3) {
        // A power of two, so that nothing is rounded.
        let factor = 2f64.powi(power);
        let other = (0..5).fold(two, |t, which| scaled(t, which, factor));
        let seconds = |t: TwoRoutes| plan(&t.problem()).expect("there is memory").best().prediction.epoch_seconds;
        let (before, after) = (seconds(two) * factor, seconds(other));
        prop_assert!((before - after).abs() <= 1e-6 * before, "{} and {}", before, after);
    }

    #[test]
    fn plans_survive_json(two in two()) {
        let plans = plan(&two.problem()).expect("there is memory");
        let text = serde_json::to_string(&plans).expect("plans are plain data");
        let again: Plans = serde_json::from_str(&text).expect("what was written can be read");
        prop_assert_eq!(plans.all().len(), again.all().len());
        for (a, b) in plans.all().iter().zip(again.all()) {
            prop_assert_eq!((a.strategy, a.memory, a.schedule.to_string()), (b.strategy, b.memory, b.schedule.to_string()));
            // A number read from JSON may differ in its last bit.
            prop_assert!(close(a.prediction.epoch_seconds, b.prediction.epoch_seconds));
            prop_assert!(close(simulate(&b.schedule).seconds, a.prediction.epoch_seconds), "{}", b.schedule);
        }
        let problem = two.problem();
        let text = serde_json::to_string(&problem).expect("a problem is plain data");
        let again: Problem = serde_json::from_str(&text).expect("what was written can be read");
        prop_assert!(close(bound(&again), bound(&problem)));
        prop_assert_eq!((again.num_batches(), again.resources(), again.limits), (two.n, problem.resources(), problem.limits));
        let keys = |p: &Problem| p.routes().iter().map(|r| (r.keys.clone(), r.hardware.clone(), r.in_place)).collect::<Vec<_>>();
        prop_assert_eq!(keys(&again), keys(&problem));
    }
}

/// What every epoch takes besides its phases is added to each prediction, and changes no plan.
#[test]
fn the_overhead_of_an_epoch_is_added_to_predictions_alone() {
    let problem = TwoRoutes::new(9, 2, [0.2, 0.1, 0.3, 0.1, 0.4]).problem();
    let limits = Limits { overhead: 0.25, ..problem.limits };
    let (without, with) =
        (plan(&problem).expect("no limit"), plan(&problem.clone().with_limits(limits)).expect("no limit"));
    assert_eq!(with.all().len(), without.all().len());
    for (with, without) in with.all().iter().zip(without.all()) {
        assert_eq!((&with.schedule, with.strategy), (&without.schedule, without.strategy));
        assert_eq!(with.prediction.epoch_seconds, without.prediction.epoch_seconds + 0.25);
        assert_eq!(with.prediction.bound_seconds, without.prediction.bound_seconds);
    }
}
