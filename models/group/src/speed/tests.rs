use super::*;

fn after(steps: impl IntoIterator<Item = [f64; 2]>) -> Speed {
    let mut speed = Speed::new(1.0);
    steps.into_iter().for_each(|[work, seconds]| speed.observe(work, seconds));
    speed
}

#[track_caller]
fn check(speed: &Speed, work: f64, seconds: f64, within: f64) {
    let found = speed.line().at(work);
    assert!(
        (found / seconds - 1.0).abs() <= within,
        "{found} s predicted for {work}, {seconds} s are right: {speed:?}"
    );
}

#[test]
fn a_line_is_found_where_work_varies() {
    let speed = after((0..40).map(|i| 50.0 + f64::from(i % 5) * 20.0).map(|work| [work, 3.0 + 0.1 * work]));
    [50.0, 90.0, 130.0].iter().for_each(|&work| check(&speed, work, 3.0 + 0.1 * work, 0.03));
}

#[test]
fn a_stall_of_a_step_changes_little() {
    let speed = after((0..40).map(|i| [100.0 + f64::from(i % 3), if i == 38 { 500.0 } else { 10.0 }]));
    check(&speed, 100.0, 10.0, 0.05);
    // Nor does one in the first step.
    let speed = after((0..5).map(|i| [100.0, if i == 0 { 500.0 } else { 10.0 }]));
    check(&speed, 100.0, 10.0, 0.05);
}

#[test]
fn a_change_of_speed_is_followed_within_five_steps() {
    for times in [0.1, 0.5, 2.0, 10.0] {
        let speed = after((0..45).map(|i| [100.0 + f64::from(i % 3), if i < 40 { 10.0 } else { 10.0 * times }]));
        check(&speed, 100.0, 10.0 * times, 0.1);
    }
}

#[test]
fn a_trial_counts_at_once() {
    let mut speed = after((0..40).map(|_| [100.0, 10.0]));
    speed.on_trial = true;
    speed.observe(1.0, 4.0);
    assert!(!speed.on_trial);
    check(&speed, 1.0, 4.0, 0.01);
}

#[test]
fn impossible_seconds_say_nothing() {
    let speed = after([[100.0, 10.0]]);
    for [work, seconds] in [[0.0, 10.0], [10.0, 0.0], [10.0, f64::NAN], [10.0, f64::INFINITY]] {
        let mut other = speed.clone();
        other.observe(work, seconds);
        assert_eq!(other, speed);
    }
}

#[test]
fn numbers_survive_a_checkpoint() {
    let speed = after((0..3).map(|i| [100.0 + f64::from(i), 10.0]));
    let mut numbers = Vec::new();
    speed.export(&mut numbers);
    assert_eq!(numbers.len(), Speed::NUMBERS);
    assert_eq!(Speed::import(&numbers), Some(speed));
    assert_eq!(Speed::import(&numbers[1..]), None);
}
