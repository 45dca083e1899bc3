use proptest::prelude::*;

use super::*;

fn permuted(seed: u64, epoch: u32, len: u32) -> Vec<u32> {
    let mut nodes: Vec<u32> = (0..len).collect();
    permute(seed, epoch, &mut nodes);
    nodes
}

proptest! {
    #[test]
    fn is_a_permutation(seed: u64, epoch: u32, len in 0u32..500) {
        let mut nodes = permuted(seed, epoch, len);
        nodes.sort_unstable();
        prop_assert_eq!(nodes, (0..len).collect::<Vec<_>>());
    }
}

#[test]
fn depends_on_seed_and_epoch() {
    let base = permuted(1, 1, 100);
    assert_ne!(base, permuted(1, 2, 100));
    assert_ne!(base, permuted(2, 1, 100));
    assert_eq!(base, permuted(1, 1, 100));
}

/// All 24 orders of four nodes are equally likely: chi-square with 23 degrees of freedom, 49.7 at p = 1e-3.
#[test]
fn every_order_is_equally_likely() {
    let mut counts = std::collections::HashMap::<Vec<u32>, f64>::new();
    for epoch in 0..24_000 {
        *counts.entry(permuted(5, epoch, 4)).or_default() += 1.0;
    }
    assert_eq!(counts.len(), 24);
    let statistic: f64 = counts.values().map(|c| (c - 1000.0) * (c - 1000.0) / 1000.0).sum();
    assert!(statistic < 49.7, "chi-square {statistic}");
}
