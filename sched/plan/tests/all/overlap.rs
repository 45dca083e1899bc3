//! Batching and transferring that overlap training on a device which queues work.

use morphgl_plan::{Bytes, Candidate, Durations, Hardware, Problem, Resource, RouteKeys, Strategy, bound, plan};
use proptest::prelude::*;

const BATCHES: usize = 100;

/// A device's own route, of which batching and transferring add `share` of their seconds to training.
fn problem([batching, transferring, training]: [f64; 3], share: f64) -> Problem {
    let device = || vec!["CUDA".to_string()];
    let durations = Durations::constant(1, batching, transferring, training).and_then(|d| d.with_overlap(share));
    let route = Candidate {
        keys: RouteKeys {
            batching: "Batching_CUDA_Neighbor".parse().expect("a key"),
            transferring: "Transferring_CUDA_ZeroCopy".parse().expect("a key"),
            training: "Training_CUDA_Native".parse().expect("a key"),
        },
        hardware: Hardware { batching: device(), transferring: device(), training: device() },
        in_place: true,
        on_host: false,
        durations: durations.expect("valid"),
        bytes: Bytes::default(),
    };
    Problem::new(BATCHES, vec![Resource::shared("CPU", 1), Resource::queued("CUDA")], vec![route]).expect("valid")
}

proptest! {
    #[test]
    fn pipelines_take_the_share_and_sequential_schedules_everything(
        seconds in prop::array::uniform3(1e-4..1e-2f64),
        share in 0.0..=1.0f64,
    ) {
        let problem = problem(seconds, share);
        let plans = plan(&problem).expect("it fits");
        let predicted = |s| plans.best_of(s).expect("a plan").prediction.epoch_seconds;
        let [batching, transferring, training] = seconds;
        let epoch = |share: f64| BATCHES as f64 * (share * (batching + transferring) + training);
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b;
        prop_assert!(near(predicted(Strategy::Device), epoch(share)), "{plans}");
        prop_assert!(near(predicted(Strategy::Sequential), epoch(1.0)), "{plans}");
        prop_assert!(bound(&problem) <= epoch(share) * (1.0 + 1e-9), "{plans}");
        // Also where both are predicted the same.
        prop_assert_eq!(plans.chosen().strategy, Strategy::Device);
        let text = serde_json::to_string(&problem).expect("it is plain data");
        prop_assert_eq!(serde_json::from_str::<Problem>(&text).expect("its own text"), problem);
    }
}

#[test]
fn only_shares_are_taken() {
    for share in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
        let durations = Durations::constant(1, 1.0, 1.0, 1.0).expect("valid");
        assert!(durations.with_overlap(share).is_err(), "{share}");
    }
}
