use super::*;
use proptest::prelude::*;

#[test]
fn noise_has_mean_zero_and_variance_one() {
    let key = Key::new(1, Purpose::FeatureNoise);
    let values: Vec<f64> = (0..100_000).map(|i| f64::from(key.noise(i))).collect();
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let variance = values.iter().map(|v| v * v).sum::<f64>() / values.len() as f64;
    assert!(mean.abs() < 0.01, "mean {mean}");
    assert!((variance - 1.0).abs() < 0.01, "variance {variance}");
}

#[test]
fn values_do_not_depend_on_their_neighbours() {
    // The correlation of successive values, and of the same index under successive keys.
    let (a, b) = (Key::new(3, Purpose::Edges), Key::new(4, Purpose::Edges));
    let n = 100_000u64;
    let correlate = |x: &dyn Fn(u64) -> f64, y: &dyn Fn(u64) -> f64| {
        (0..n).map(|i| (x(i) - 0.5) * (y(i) - 0.5)).sum::<f64>() * 12.0 / n as f64
    };
    for r in [
        correlate(&|i| a.unit(i), &|i| a.unit(i + 1)),
        correlate(&|i| a.unit(i), &|i| b.unit(i)),
        correlate(&|i| a.child(i).unit(0), &|i| a.child(i + 1).unit(0)),
    ] {
        assert!(r.abs() < 0.015, "correlation {r}");
    }
}

proptest! {
    #[test]
    fn a_permutation_reaches_everything_once(len in 1u64..3000, seed: u64) {
        let permutation = Permutation::new(Key::new(seed, Purpose::Rank), len);
        let mut seen = vec![false; len as usize];
        for i in 0..len {
            seen[permutation.at(i) as usize] = true;
        }
        prop_assert!(seen.iter().all(|&s| s));
    }
}

#[test]
fn a_permutation_spreads_evenly() {
    // Chi-square over a 16 x 16 grid of (i, image): 225 degrees of freedom, mean 225, deviation 21.
    let len = 40_000u64;
    let permutation = Permutation::new(Key::new(5, Purpose::Rank), len);
    let mut cells = [0f64; 256];
    for i in 0..len {
        cells[(i * 16 / len * 16 + permutation.at(i) * 16 / len) as usize] += 1.0;
    }
    let expected = len as f64 / 256.0;
    let chi: f64 = cells.iter().map(|c| (c - expected).powi(2) / expected).sum();
    assert!((140.0..330.0).contains(&chi), "chi-square {chi}");
}

#[test]
fn a_permutation_and_its_inverse_undo_each_other() {
    for len in [1, 2, 3, 7, 64, 1000, 1 << 33] {
        let permutation = Permutation::new(Key::new(3, Purpose::Rank), len);
        for i in (0..len).step_by(1 + len as usize / 500) {
            assert_eq!(permutation.inverse(permutation.at(i)), i, "of {len}");
            assert_eq!(permutation.at(permutation.inverse(i)), i, "of {len}");
        }
    }
}
