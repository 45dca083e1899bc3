//! Orders by score, and hit rates.

use morphgl_hotness::{coverage, entries_within, hottest, hottest_by_byte};
use proptest::prelude::*;

/// Scores with many ties, both zeros, infinities and NaN.
fn any_score() -> impl Strategy<Value = f32> {
    prop_oneof![
        4 => (-3i8..4).prop_map(f32::from),
        4 => any::<f32>(),
        1 => prop::sample::select(vec![0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -f32::NAN]),
    ]
}

proptest! {
    #[test]
    fn all_nodes_in_descending_order_of_score(scores in prop::collection::vec(any_score(), 0..300)) {
        let order = hottest(&scores, usize::MAX);
        let mut nodes = order.clone();
        nodes.sort_unstable();
        prop_assert_eq!(nodes, (0..scores.len() as u32).collect::<Vec<_>>());
        for pair in order.windows(2) {
            let [a, b] = [pair[0], pair[1]].map(|v| scores[v as usize]);
            let tie = a == b || a.is_nan() && b.is_nan();
            prop_assert!(a > b || !a.is_nan() && b.is_nan() || tie && pair[0] < pair[1], "{} before {}", a, b);
        }
        for count in [0, 1, scores.len() / 2, scores.len()] {
            prop_assert_eq!(hottest(&scores, count), &order[..count.min(order.len())]);
        }
    }

    #[test]
    fn coverage_is_the_share_of_the_first_nodes(
        (accesses, order) in prop::collection::vec(0u16..100, 1..100).prop_flat_map(|accesses| {
            let order: Vec<u32> = (0..accesses.len() as u32).collect();
            (Just(accesses), Just(order).prop_shuffle())
        }),
        rows in prop::collection::vec(0usize..120, 0..10),
    ) {
        let counts: Vec<f32> = accesses.iter().map(|&count| f32::from(count)).collect();
        let sum = |nodes: &[u32]| nodes.iter().map(|&v| u64::from(accesses[v as usize])).sum::<u64>() as f64;
        let all = sum(&order);
        let shares = coverage(&counts, &order, &rows);
        prop_assert_eq!(shares.len(), rows.len());
        let best = coverage(&counts, &hottest(&counts, usize::MAX), &rows);
        for ((&share, &rows), best) in shares.iter().zip(&rows).zip(best) {
            let expected = if all > 0.0 { sum(&order[..rows.min(order.len())]) / all } else { 0.0 };
            prop_assert_eq!(share, expected);
            prop_assert!(share <= best, "{} of any order, {} of the hottest", share, best);
        }
    }

    /// Entries of different size: by accesses per byte, a cache has the hits of the best one but for the entry that no
    /// longer fits.
    #[test]
    fn entries_of_different_size_fill_a_budget(
        (entries, order) in prop::collection::vec((0u16..100, 0u64..50), 1..100).prop_flat_map(|entries| {
            let order: Vec<u32> = (0..entries.len() as u32).collect();
            (Just(entries), Just(order).prop_shuffle())
        }),
        budgets in prop::collection::vec(0u64..3000, 0..10),
    ) {
        let counts: Vec<f32> = entries.iter().map(|&(count, _)| f32::from(count)).collect();
        let bytes = |v: u32| entries[v as usize].1;
        let within = |order: &[u32], budget| {
            let sums = order.iter().scan(0, |sum, &v| { *sum += bytes(v); Some(*sum) });
            sums.take_while(|&sum| sum <= budget).count()
        };
        let any = entries_within(&order, bytes, &budgets);
        let expected: Vec<usize> = budgets.iter().map(|&budget| within(&order, budget)).collect();
        prop_assert_eq!(&any, &expected);
        let by_byte = hottest_by_byte(&counts, bytes);
        prop_assert!(by_byte.iter().skip_while(|&&v| bytes(v) > 0).all(|&v| bytes(v) == 0), "entries of 0 bytes rank last");
        let best = entries_within(&by_byte, bytes, &budgets);
        let hits = |nodes: &[u32]| nodes.iter().filter(|&&v| bytes(v) > 0).map(|&v| counts[v as usize]).sum::<f32>();
        for (any, best) in any.into_iter().zip(best) {
            let next = by_byte.get(best).map_or(0.0, |&v| counts[v as usize]);
            prop_assert!(hits(&order[..any]) <= hits(&by_byte[..best]) + next);
        }
    }
}

#[test]
fn coverage_of_a_part_of_an_order() {
    assert_eq!(coverage(&[1.0, 4.0, 3.0], &[1, 0], &[2, 0, 9, 1]), [0.625, 0.0, 0.625, 0.5]);
    assert_eq!(coverage(&[], &[], &[0, 5]), [0.0, 0.0]);
}
