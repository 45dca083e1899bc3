use super::*;

#[track_caller]
fn check(mean: f64, max: f64, exponent: f64) {
    let law = PowerLaw::with_mean(mean, max, exponent);
    let n = 200_000;
    let values: Vec<f64> = (0..n).map(|i| law.quantile((f64::from(i) + 0.5) / f64::from(n))).collect();
    let measured = values.iter().sum::<f64>() / f64::from(n);
    assert!((measured / mean - 1.0).abs() < 2e-3, "mean {measured} for {mean}, {exponent}");
    assert!(values.iter().all(|&v| v <= max.max(mean)), "a value exceeds {max}");
    let mass: f64 = law.slices().iter().map(|s| s.1).sum();
    assert!((mass - 1.0).abs() < 1e-6, "slices hold {mass}");
}

#[test]
fn means_hold() {
    for (mean, max, exponent) in
        [(15.0, 216.0, 2.5), (15.0, 216.0, 2.0), (3.0, 50.0, 1.5), (10.0, 10.0, 2.5), (29.0, 4000.0, 3.2)]
    {
        check(mean, max, exponent);
    }
}

#[test]
fn a_sparse_graph_needs_no_boost_and_a_dense_one_does() {
    let boost = |degree: f64, partners: f64| {
        PowerLaw::with_mean(degree, (degree * partners).sqrt(), 2.5).boost(degree, partners, "")
    };
    assert!((boost(10.0, 1e7).unwrap() - 1.0).abs() < 0.01);
    assert!(boost(30.0, 100.0).unwrap() > 1.1);
    assert!(boost(99.0, 100.0).is_err());
}
