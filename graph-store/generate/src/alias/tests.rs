use super::*;
use proptest::prelude::*;

proptest! {
    /// The slots' shares add up to the weights: an exact reference, no sampling.
    #[test]
    fn shares_equal_weights(weights in prop::collection::vec(0u64..5000, 1..60)) {
        let total: u64 = weights.iter().sum();
        prop_assume!(total > 0);
        let mut table = vec![[0; 3]; weights.len()];
        build(&mut table, |i| (i as u32, weights[i]));
        let mut share = vec![0.0; weights.len()];
        for &[threshold, item, other] in &table {
            let p = f64::from(threshold) / 4_294_967_296.0;
            share[item as usize] += p / table.len() as f64;
            share[other as usize] += (1.0 - p) / table.len() as f64;
        }
        for (s, &w) in share.iter().zip(&weights) {
            prop_assert!((s - w as f64 / total as f64).abs() < 1e-8, "share {s} for weight {w} of {total}");
        }
    }
}

#[test]
fn a_draw_takes_both_sides_of_a_slot() {
    let mut table = [[0; 3]; 2];
    build(&mut table, |i| [(7, 1), (9, 3)][i]);
    assert_eq!(draw(&table, 0), 7);
    assert_eq!(draw(&table, u64::from(u32::MAX)), 9);
    assert_eq!(draw(&table, u64::MAX << 32), 9);
}
