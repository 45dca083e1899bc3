use super::Statistics;

#[test]
fn known_values() {
    let s = Statistics::of(vec![1.0, 2.0, 3.0, 4.0]);
    assert_eq!((s.mean, s.median, s.outliers), (2.5, 2.5, vec![]));
    assert!((s.std - (5.0f64 / 3.0).sqrt()).abs() < 1e-15);
    let s = Statistics::of(vec![7.0]);
    assert_eq!((s.mean, s.std, s.median), (7.0, 0.0, 7.0));
}

#[test]
fn an_outlier_is_listed_and_excluded() {
    let s = Statistics::of(vec![1.0, 1.1, 0.9, 50.0, 1.0, 1.05]);
    assert_eq!(s.outliers, vec![3]);
    assert!(s.mean > 9.0);
    assert!((s.seconds().mean - 1.01).abs() < 1e-9);
    // Equal samples but one: a difference within the noise is no outlier.
    assert!(Statistics::of(vec![1.0, 1.0, 1.0, 1.2]).outliers.is_empty());
}
