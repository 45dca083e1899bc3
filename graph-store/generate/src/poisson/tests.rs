use super::*;
use crate::random::Purpose;

#[track_caller]
fn check(lambda: f64) {
    let key = Key::new(11, Purpose::Edges);
    let n = 40_000;
    let draws: Vec<f64> = (0..n).map(|i| poisson(key.child(i), lambda) as f64).collect();
    let mean = draws.iter().sum::<f64>() / n as f64;
    let variance = draws.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / n as f64;
    let skew = draws.iter().map(|d| (d - mean).powi(3)).sum::<f64>() / n as f64;
    // Mean, variance and third central moment of a Poisson number are all lambda; five standard errors.
    let sigma = (lambda / n as f64).sqrt();
    assert!((mean - lambda).abs() < 5.0 * sigma, "mean {mean} for {lambda}");
    let of_variance = ((lambda + 2.0 * lambda * lambda) / n as f64).sqrt();
    assert!((variance - lambda).abs() < 5.0 * of_variance, "variance {variance} for {lambda}");
    let of_skew = ((15.0 * lambda.powi(3) + 25.0 * lambda * lambda + lambda) / n as f64).sqrt();
    assert!((skew - lambda).abs() < 5.0 * of_skew, "third moment {skew} for {lambda}");
}

#[test]
fn moments_hold_for_small_and_large_means() {
    for lambda in [0.01, 0.7, 5.0, 29.9, 30.1, 100.0, 5000.0] {
        check(lambda);
    }
}

#[test]
fn mean_zero_gives_zero() {
    assert_eq!(poisson(Key::new(1, Purpose::Edges), 0.0), 0);
}

#[test]
fn the_factorial_is_exact_on_both_sides_of_the_switch() {
    let exact = |k: u64| (1..=k).map(|i| (i as f64).ln()).sum::<f64>();
    for k in [0u64, 1, 9, 10, 11, 50, 170] {
        assert!((ln_factorial(k as f64) - exact(k)).abs() < 1e-8, "{k}");
    }
}
