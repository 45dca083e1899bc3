use super::*;

/// Compares operators whose n-th step takes the n-th of their `seconds`, later ones the last, in `allowed` seconds; checks the
/// index of the fastest, and the number of steps of each.
#[track_caller]
fn check(seconds: &[&[f64]], allowed: f64, fastest: usize, steps: &[usize]) {
    let mut taken = vec![0; seconds.len()];
    let all = compare(
        seconds.len(),
        |_, _, _| allowed,
        |i, round| {
            taken[i] += 1;
            Ok(Some(*seconds[i].get(round).unwrap_or_else(|| seconds[i].last().expect("seconds"))))
        },
    );
    let all = all.expect("nothing fails");
    assert_eq!((super::fastest(&all, None), &taken[..]), (Some(fastest), steps), "{all:?}");
}

#[test]
fn a_far_slower_operator_is_abandoned_after_its_first_step() {
    check(&[&[1.0], &[0.2]], 60.0, 1, &[1, 1]);
    check(&[&[0.2], &[1.0]], 60.0, 0, &[1, 1]);
    check(&[&[1.0], &[0.95], &[0.2]], 60.0, 2, &[1, 1, 1]);
    // The first step takes 3.2 times as long as the other operator's, later ones are as fast.
    check(&[&[0.36, 0.29], &[1.15, 0.27]], 60.0, 1, &[7, 7]);
}

#[test]
fn a_slow_first_step_does_not_abandon_an_operator() {
    // The first step allocates memory.
    check(&[&[0.5, 0.2], &[0.4]], 60.0, 0, &[3, 3]);
    // First steps of milliseconds may differ by any factor.
    check(&[&[0.004, 0.001], &[0.0005, 0.002]], 60.0, 0, &[3, 3]);
}

#[test]
fn close_operators_are_compared_longer() {
    check(&[&[1.0], &[2.0, 3.5]], 60.0, 0, &[2, 2]);
    check(&[&[1.0], &[1.6]], 60.0, 0, &[3, 3]);
    check(&[&[1.0], &[1.3]], 60.0, 0, &[4, 4]);
    check(&[&[1.1], &[1.0]], 60.0, 1, &[6, 6]);
    check(&[&[1.03], &[1.0]], 60.0, 1, &[10, 10]);
}

#[test]
fn of_equally_fast_operators_the_first_is_chosen() {
    check(&[&[1.01], &[1.0]], 60.0, 0, &[10, 10]);
    check(&[&[1.0], &[1.01]], 60.0, 0, &[10, 10]);
}

#[test]
fn an_outlier_does_not_decide() {
    check(&[&[1.0, 3.0, 1.0], &[1.4, 1.2]], 60.0, 0, &[10, 10]);
    check(&[&[1.0, 1.0, 3.0, 1.0], &[1.4, 1.2]], 60.0, 0, &[10, 10]);
}

#[test]
fn the_medians_decide_when_the_time_is_spent() {
    // Both first steps are always run; then no round fits, or one more.
    check(&[&[1.2], &[1.0]], 0.0, 1, &[1, 1]);
    check(&[&[1.2], &[1.0]], 4.5, 1, &[2, 2]);
    check(&[&[2.0, 1.0], &[1.9, 1.2]], 8.0, 0, &[2, 2]);
}

#[test]
fn a_single_operator_is_run_once_and_a_failed_one_is_not_chosen() {
    check(&[&[1.0]], 60.0, 0, &[1]);
    let step = |i, round| Ok((i != 0 || round < 2).then_some(if i == 0 { 1.0 } else { 1.1 }));
    let all = compare(2, |_, _, _| 60.0, step).expect("nothing fails as a whole");
    assert_eq!((all[0].state, all[1].state), (State::Failed, State::Running));
    assert_eq!((fastest(&all, None), all[0].samples.len()), (Some(1), 1));
    let none = compare(2, |_, _, _| 60.0, |_, _| Ok(None)).expect("nothing fails as a whole");
    assert_eq!(fastest(&none, Some(0)), None);
}

#[test]
fn a_preferred_operator_is_kept_within_the_noise_alone() {
    let times = |samples: &[f64]| StepTimes { first: Some(1.0), samples: samples.to_vec(), state: State::Running };
    let check = |samples: [&[f64]; 2], preferred, chosen| {
        let all = samples.map(times);
        assert_eq!(fastest(&all, preferred), Some(chosen), "{all:?}");
    };
    let (fast, close): (&[f64], &[f64]) = (&[1.0, 1.1, 1.15], &[1.12, 1.14, 1.2]);
    check([fast, close], None, 0);
    check([fast, close], Some(0), 0);
    check([fast, close], Some(1), 1);
    // Always slower, and slower by more than the noise.
    check([fast, &[1.2, 1.2, 1.2]], Some(1), 0);
    check([&[1.0, 1.0, 9.0], &[1.5, 1.5, 1.5]], Some(1), 0);
    // A single step of each.
    check([&[], &[]], Some(1), 1);
    let mut gone = [fast, close].map(times);
    gone[1].state = State::Abandoned;
    assert_eq!(fastest(&gone, Some(1)), Some(0));
}
