//! Walker's alias method (Vose 1991): draws an item with probability proportional to its weight in O(1).

use crate::random::index;

/// One slot of an alias table: `item` where the draw falls below `threshold`, else `other`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slot {
    threshold: u32,
    item: u32,
    other: u32,
}

/// Draws from the table with 64 random bits: the upper half picks the slot, the lower decides within it.
pub(crate) fn draw(slots: &[Slot], bits: u64) -> u32 {
    let slot = slots[index((bits >> 32) as u32, slots.len())];
    if (bits as u32) < slot.threshold { slot.item } else { slot.other }
}

/// Appends the table of `items` with their weights to `table`. Weights are integers, so sums are exact in any order.
///
/// # Panics
///
/// When there are items and every weight is 0.
pub(crate) fn build(items: &[(u32, u64)], table: &mut Vec<Slot>) {
    let len = items.len() as u64;
    let total: u64 = items.iter().map(|&(_, w)| w).sum();
    if items.is_empty() {
        return;
    }
    assert!(total > 0, "an alias table over {len} items needs a weight above 0");
    let start = table.len();
    table.extend(items.iter().map(|&(item, _)| Slot { threshold: u32::MAX, item, other: item }));
    let slots = &mut table[start..];
    // In units of 1/len of a slot: an average item has `total`.
    let mut rest: Vec<u64> = items.iter().map(|&(_, w)| w * len).collect();
    let (mut small, mut large): (Vec<u32>, Vec<u32>) = (0..len as u32).partition(|&i| rest[i as usize] < total);
    while let (Some(&s), Some(&l)) = (small.last(), large.last()) {
        small.pop();
        let (si, li) = (s as usize, l as usize);
        slots[si].threshold = (rest[si] as f64 / total as f64 * 4_294_967_296.0) as u32;
        slots[si].other = items[li].0;
        rest[li] -= total - rest[si];
        if rest[li] < total {
            large.pop();
            small.push(l);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The slots' shares add up to the weights: an exact reference, no sampling.
        #[test]
        fn shares_equal_weights(weights in prop::collection::vec(0u64..5000, 1..60)) {
            let total: u64 = weights.iter().sum();
            prop_assume!(total > 0);
            let items: Vec<(u32, u64)> = weights.iter().enumerate().map(|(i, &w)| (i as u32, w)).collect();
            let mut table = Vec::new();
            build(&items, &mut table);
            let mut share = vec![0.0; weights.len()];
            for slot in &table {
                let p = f64::from(slot.threshold) / 4_294_967_296.0;
                share[slot.item as usize] += p / table.len() as f64;
                share[slot.other as usize] += (1.0 - p) / table.len() as f64;
            }
            for (s, &w) in share.iter().zip(&weights) {
                prop_assert!((s - w as f64 / total as f64).abs() < 1e-8, "share {s} for weight {w} of {total}");
            }
        }
    }

    #[test]
    fn a_draw_takes_both_sides_of_a_slot() {
        let mut table = Vec::new();
        build(&[(7, 1), (9, 3)], &mut table);
        assert_eq!(draw(&table, 0), 7);
        assert_eq!(draw(&table, u64::from(u32::MAX)), 9);
        assert_eq!(draw(&table, u64::MAX << 32), 9);
    }
}
