//! Laws every plan obeys, on random durations.

use morphgl_plan::{
    Curve, Durations, Limits, Plan, Plans, Point, Policy, PoolPoint, Problem, RouteKeys, Schedule, Seconds, bound,
    plan, predict,
};
use proptest::prelude::*;

/// Points of batching, transferring, points of training: enough to build the problem again with one of them changed.
#[derive(Debug, Clone)]
struct Raw {
    batching: Vec<PoolPoint>,
    transferring: Seconds,
    training: Vec<Point>,
    num_batches: usize,
    cores: usize,
}

impl Raw {
    fn problem(&self) -> Problem {
        let training = Curve::new(self.training.clone()).expect("valid points");
        let name = |s: &str| s.to_string();
        Problem {
            route: RouteKeys { batching: name("b"), transferring: name("x"), training: name("t") },
            num_batches: self.num_batches,
            cores: self.cores,
            durations: Durations::new(&self.batching, self.transferring, training).expect("valid points"),
            limits: Limits::default(),
        }
    }
}

fn seconds() -> impl Strategy<Value = Seconds> {
    let mean = prop_oneof![1 => Just(0.0), 20 => (-3.0..0.0f64).prop_map(|e| 10f64.powf(e))];
    (mean, 0.0..0.5f64).prop_map(|(mean, cv)| Seconds { mean, std: mean * cv })
}

fn raw() -> impl Strategy<Value = Raw> {
    let counts = || proptest::sample::subsequence(vec![2usize, 3, 4, 6, 8, 16], 0..=4);
    let points = counts().prop_flat_map(|at| {
        let n = at.len() + 1;
        (Just(at), proptest::collection::vec(seconds(), n))
    });
    let curve = points.prop_map(|(at, s)| {
        let at = std::iter::once(1).chain(at);
        at.zip(s).map(|(at, seconds)| Point { at, seconds }).collect::<Vec<_>>()
    });
    let solo = curve.clone();
    (curve.clone(), solo, seconds(), curve, prop_oneof![0usize..40, 1000usize..1200], 1usize..=16, any::<bool>())
        .prop_map(|(pool, solo, transferring, mut training, num_batches, cores, drop_first)| {
            let mut batching: Vec<PoolPoint> =
                pool.iter().map(|p| PoolPoint { workers: p.at, threads: 1, seconds: p.seconds }).collect();
            let rest = solo.iter().skip(1).map(|p| PoolPoint { workers: 1, threads: p.at, seconds: p.seconds });
            batching.extend(rest);
            if drop_first && training.len() > 1 {
                training.remove(0);
            }
            Raw { batching, transferring, training, num_batches, cores }
        })
}

proptest! {
    #[test]
    fn the_best_is_never_worse_than_another_and_never_below_the_bound(raw in raw()) {
        let problem = raw.problem();
        let plans = plan(&problem);
        let limit = bound(&problem);
        for p in plans.all() {
            prop_assert!(plans.best().prediction.epoch_seconds <= p.prediction.epoch_seconds);
            prop_assert!(p.prediction.epoch_seconds >= limit);
            prop_assert_eq!(p.prediction.bound_seconds, limit);
            prop_assert!((0.0..=1.0).contains(&p.prediction.utilisation));
            prop_assert_eq!(p.prediction, predict(&problem, &p.schedule));
            let s = p.schedule;
            prop_assert!(s.workers >= 1 && s.threads_per_worker >= 1 && s.training_threads >= 1);
            let threads = match s.policy {
                Policy::Sequential => s.threads_per_worker.max(s.training_threads),
                _ => s.workers * s.threads_per_worker + s.training_threads - problem.limits.extra_threads,
            };
            prop_assert!(threads <= problem.cores, "{} threads on {} cores", threads, problem.cores);
            prop_assert!(s.queue <= problem.limits.max_queue);
        }
        prop_assert!(plans.best_of(Policy::Sequential).is_some() && plans.best_of(Policy::Pipeline).is_some());
    }

    #[test]
    fn schedules_given_by_hand_are_not_below_the_bound_either(
        raw in raw(), workers in 0usize..20, threads_per_worker in 0usize..20, training_threads in 0usize..20, sequential: bool,
    ) {
        // `predict` asserts that its model, before rounding is mended, is not below the bound.
        let policy = if sequential { Policy::Sequential } else { Policy::Pipeline };
        let schedule = Schedule { policy, workers, threads_per_worker, training_threads, queue: 1 };
        let prediction = predict(&raw.problem(), &schedule);
        prop_assert!(prediction.epoch_seconds >= prediction.bound_seconds);
    }

    #[test]
    fn longer_durations_never_give_a_shorter_epoch(raw in raw(), which in any::<prop::sample::Index>(), factor in 1.0..10.0f64) {
        let before = plan(&raw.problem());
        let mut longer = raw.clone();
        let (b, t) = (raw.batching.len(), raw.training.len());
        match which.index(b + t + 1) {
            i if i < b => longer.batching[i].seconds.mean *= factor,
            i if i < b + t => longer.training[i - b].seconds.mean *= factor,
            _ => longer.transferring.mean *= factor,
        }
        let after = plan(&longer.problem());
        let (before_s, after_s) = (before.best().prediction.epoch_seconds, after.best().prediction.epoch_seconds);
        prop_assert!(after_s >= before_s * (1.0 - 1e-9), "{} before, {} after", before_s, after_s);
        prop_assert!(bound(&longer.problem()) >= bound(&raw.problem()) * (1.0 - 1e-9));
    }

    #[test]
    fn a_pipeline_within_the_cores_is_what_a_step_by_step_flow_shop_gives(
        raw in raw(), workers in 1usize..8, training_threads in 1usize..8,
    ) {
        // Cores without number: only the stages count.
        let raw = Raw { cores: 1 << 20, ..raw };
        let problem = raw.problem();
        let schedule = Schedule::pipeline(workers, training_threads);
        let d = &problem.durations;
        let workers = workers.min(raw.num_batches.max(1));
        let latency = workers as f64 * d.batching(workers, 1).mean;
        let (x, t) = (d.transferring().mean, d.training().at(training_threads).mean);
        let (mut transferred, mut trained) = (0f64, 0f64);
        for i in 0..raw.num_batches {
            let ready = (i / workers + 1) as f64 * latency;
            transferred = transferred.max(ready) + x;
            trained = trained.max(transferred) + t;
        }
        let predicted = predict(&problem, &schedule).epoch_seconds;
        // The bound may exceed a split the search would not take; the flow shop of this split never does.
        prop_assert!((predicted - trained).abs() <= 1e-9 * (1.0 + trained), "{} against {}", predicted, trained);
    }

    #[test]
    fn plans_and_durations_survive_json(raw in raw()) {
        let plans = plan(&raw.problem());
        let text = serde_json::to_string(&plans).expect("plans are plain data");
        let again: Plans = serde_json::from_str(&text).expect("what was written can be read");
        for (a, b) in plans.all().iter().zip(again.all()) {
            prop_assert_eq!(a.schedule, b.schedule);
            prop_assert!((a.prediction.epoch_seconds - b.prediction.epoch_seconds).abs() <= 1e-12 * a.prediction.epoch_seconds);
        }
        let text = serde_json::to_string(plans.best()).expect("a plan is plain data");
        serde_json::from_str::<Plan>(&text).expect("what was written can be read");
        let durations = raw.problem().durations;
        let text = serde_json::to_string(&durations).expect("durations are plain data");
        serde_json::from_str::<Durations>(&text).expect("what was written can be read");
    }

    #[test]
    fn between_two_counts_lies_between_their_durations(a in seconds(), b in seconds(), at in 2usize..16) {
        let curve = Curve::new(vec![Point { at: 1, seconds: a }, Point { at: 16, seconds: b }]).expect("valid points");
        let mean = curve.at(at).mean;
        prop_assert!(mean >= a.mean.min(b.mean) * (1.0 - 1e-12) && mean <= a.mean.max(b.mean) * (1.0 + 1e-12));
        prop_assert!(at as f64 * mean >= curve.least_work() * (1.0 - 1e-12));
    }
}
