//! Plans whose answer is known, and durations that are refused.

use morphgl_plan::{
    Bottleneck, Curve, Durations, Limits, Plan, Plans, Point, Policy, PoolPoint, Problem, RouteKeys, Schedule, Seconds,
    plan,
};

fn at(at: usize, seconds: f64) -> Point {
    Point { at, seconds: Seconds::constant(seconds) }
}

fn pool(workers: usize, threads: usize, seconds: f64) -> PoolPoint {
    PoolPoint { workers, threads, seconds: Seconds::constant(seconds) }
}

fn problem(cores: usize, num_batches: usize, batching: &[PoolPoint], training: Vec<Point>) -> Problem {
    let training = Curve::new(training).expect("valid points");
    Problem {
        route: RouteKeys { batching: "b".into(), transferring: "x".into(), training: "t".into() },
        num_batches,
        cores,
        durations: Durations::new(batching, Seconds::default(), training).expect("valid points"),
        limits: Limits::default(),
    }
}

#[track_caller]
fn check(plan: &Plan, schedule: (Policy, usize, usize, usize), bottleneck: Bottleneck, epoch: f64) {
    let s = plan.schedule;
    assert_eq!((s.policy, s.workers, s.threads_per_worker, s.training_threads), schedule);
    assert_eq!(plan.prediction.bottleneck, bottleneck);
    let predicted = plan.prediction.epoch_seconds;
    assert!((predicted - epoch).abs() < 1e-9, "predicted {predicted}, expected {epoch}");
}

#[test]
fn slow_training_gets_the_threads() {
    let pools = [pool(1, 1, 0.1), pool(2, 1, 0.05), pool(3, 1, 0.04)];
    let p = problem(4, 100, &pools, vec![at(1, 1.0), at(2, 0.5), at(3, 1.0 / 3.0), at(4, 0.3)]);
    let plans = plan(&p);
    // One worker, three training threads: the first fill of 0.1 s and 100 steps of a third of a second.
    let three = plans.all().iter().find(|p| p.schedule == Schedule { queue: 2, ..Schedule::pipeline(1, 3) });
    let three = three.expect("it is a candidate");
    check(three, (Policy::Pipeline, 1, 1, 3), Bottleneck::Training, 0.1 + 100.0 / 3.0);
    assert_eq!(plans.best().schedule.workers, 1);
    assert!(plans.best().prediction.epoch_seconds <= three.prediction.epoch_seconds);
}

#[test]
fn slow_batching_gets_the_workers() {
    let pools = [pool(1, 1, 1.0), pool(2, 1, 0.5), pool(3, 1, 1.0 / 3.0)];
    let p = problem(4, 99, &pools, vec![at(1, 0.1)]);
    // 33 groups of three mini-batches a second each; the last group's three are then trained.
    check(plan(&p).best(), (Policy::Pipeline, 3, 1, 1), Bottleneck::Batching, 33.0 + 0.3);
}

#[test]
fn one_core_does_not_get_faster_by_a_pipeline() {
    let p = problem(1, 50, &[pool(1, 1, 0.5)], vec![at(1, 0.5)]);
    let plans = plan(&p);
    check(plans.best(), (Policy::Sequential, 1, 1, 1), Bottleneck::Batching, 50.0);
    let pipeline = plans.best_of(Policy::Pipeline).expect("it is a candidate");
    assert!(pipeline.prediction.epoch_seconds > 50.0, "a crowded core is slower, not faster");
    assert_eq!(pipeline.prediction.bottleneck, Bottleneck::Cores);
}

#[test]
fn a_single_mini_batch_is_spread_over_threads() {
    let p = problem(4, 1, &[pool(1, 1, 1.0), pool(1, 4, 0.3)], vec![at(1, 1.0), at(4, 0.25)]);
    check(plan(&p).best(), (Policy::Sequential, 1, 4, 4), Bottleneck::Batching, 0.55);
}

#[test]
fn threads_that_slow_a_phase_down_are_not_used() {
    let p = problem(8, 1, &[pool(1, 1, 0.01), pool(1, 8, 0.04)], vec![at(1, 0.02), at(8, 0.08)]);
    check(plan(&p).best(), (Policy::Sequential, 1, 1, 1), Bottleneck::Training, 0.03);
}

#[test]
fn nothing_to_do_takes_no_time() {
    for plan in plan(&problem(4, 0, &[pool(1, 1, 1.0)], vec![at(1, 1.0)])).all() {
        assert_eq!(plan.prediction.epoch_seconds, 0.0);
        assert_eq!(plan.prediction.bound_seconds, 0.0);
    }
}

#[test]
fn varying_durations_get_a_longer_queue_within_its_limit() {
    let varying = |std| {
        let seconds = Seconds { mean: 0.1, std };
        let training = Curve::new(vec![Point { at: 1, seconds }]).expect("valid points");
        let batching = [PoolPoint { workers: 1, threads: 1, seconds }];
        let durations = Durations::new(&batching, Seconds::default(), training).expect("valid points");
        let p = Problem { durations, ..problem(2, 1000, &[pool(1, 1, 1.0)], vec![at(1, 1.0)]) };
        plan(&p).best_of(Policy::Pipeline).expect("it is a candidate").schedule.queue
    };
    assert_eq!(varying(0.0), 2);
    assert_eq!(varying(0.1), 5);
    assert_eq!(varying(10.0), 16);
}

#[test]
fn plans_read_as_a_person_speaks() {
    let pools = [pool(1, 1, 0.1), pool(2, 1, 0.05), pool(3, 1, 0.04)];
    let p = problem(4, 100, &pools, vec![at(1, 0.05)]);
    assert_eq!(
        plan(&p).best().to_string(),
        "2 batching workers, 1 training thread, queue of 2; predicted 5.10 s an epoch (bound 5.10 s); bottleneck: batching"
    );
    let text = plan(&p).to_string();
    assert_eq!(text.lines().count(), 1 + plan(&p).all().len());
    assert_eq!(Schedule::sequential(4).to_string(), "sequential, 4 batching threads and 4 training threads");
    let wide = Schedule { threads_per_worker: 2, ..Schedule::pipeline(3, 1) };
    assert_eq!(wide.to_string(), "3 batching workers of 2 threads, 1 training thread, queue of 2");
}

#[test]
fn policies_are_read_as_they_are_printed() {
    for policy in Policy::ALL {
        assert_eq!(policy.to_string().parse(), Ok(policy));
    }
    let error = "fast".parse::<Policy>().expect_err("no such policy");
    assert_eq!(error.to_string(), "\"fast\": not a policy; policies are sequential, pipeline");
}

#[test]
fn durations_no_plan_can_be_made_from_are_refused() {
    let training = || Curve::new(vec![at(1, 1.0)]).expect("valid points");
    let refuse = |batching: &[PoolPoint]| {
        let made = Durations::new(batching, Seconds::default(), training());
        made.expect_err("these durations cannot be planned with").to_string()
    };
    assert_eq!(refuse(&[]), "batching: one worker of one thread is missing; measure it too");
    assert_eq!(refuse(&[pool(2, 1, 1.0)]), "batching: one worker of one thread is missing; measure it too");
    assert_eq!(refuse(&[pool(1, 0, 1.0)]), "batching: a worker of 0 threads; counts start at 1");
    assert!(refuse(&[pool(1, 1, 1.0), pool(1, 1, 2.0)]).contains("the count 1 is there twice"));
    assert!(refuse(&[pool(1, 1, -1.0)]).contains("a mean of -1 s"));
    let transferring = Seconds { mean: 1.0, std: f64::NAN };
    let error =
        Durations::new(&[pool(1, 1, 1.0)], transferring, training()).expect_err("a deviation that is no number");
    assert!(error.to_string().starts_with("transferring: a deviation of NaN s"));
    assert!(Curve::new(Vec::new()).is_err());
    assert!(Curve::new(vec![at(0, 1.0)]).is_err());
    let error = serde_json::from_str::<Durations>(r#"{"batching":[],"transferring":{"mean":0,"std":0},"training":[]}"#);
    assert!(error.expect_err("invalid durations in a file").to_string().contains("no point"));
}

#[test]
fn a_list_without_plans_is_refused() {
    assert!(serde_json::from_str::<Plans>("[]").is_err());
}

#[test]
fn a_thousand_mini_batches_more_cost_no_planning_time() {
    // Not a timing: the same candidates, whatever the number of mini-batches.
    let count = |n| plan(&problem(16, n, &[pool(1, 1, 0.1)], vec![at(1, 0.1)])).all().len();
    assert_eq!(count(1_000), count(100_000_000));
}
