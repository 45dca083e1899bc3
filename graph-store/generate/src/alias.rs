//! Walker's alias method (Vose 1991): draws an item with probability proportional to its weight in O(1).

use crate::random::index;

/// One slot of an alias table: a threshold, the item where the draw falls below it, and the other one.
pub(crate) type Slot = [u32; 3];

/// Draws from the table with 64 random bits: the upper half picks the slot, the lower decides within it.
pub(crate) fn draw(slots: &[Slot], bits: u64) -> u32 {
    let [threshold, item, other] = slots[index((bits >> 32) as u32, slots.len())];
    if (bits as u32) < threshold { item } else { other }
}

/// Makes `slots` the table of as many items, of which `item` gives each with its weight. Weights are integers, so sums
/// are exact in any order.
///
/// # Panics
///
/// When there are items and every weight is 0.
///
/// # Complexity
///
/// O(items) time, and at most 24 bytes an item beside the table.
pub(crate) fn build(slots: &mut [Slot], item: impl Fn(usize) -> (u32, u64)) {
    let len = slots.len() as u64;
    let total: u64 = (0..slots.len()).map(|i| item(i).1).sum();
    if slots.is_empty() {
        return;
    }
    assert!(total > 0, "an alias table over {len} items needs a weight above 0");
    // In units of 1/len of a slot: an average item has `total`.
    let mut rest = vec![0u64; slots.len()];
    for (i, (slot, rest)) in slots.iter_mut().zip(&mut rest).enumerate() {
        let (item, weight) = item(i);
        *slot = [u32::MAX, item, item];
        *rest = weight * len;
    }
    let (mut small, mut large): (Vec<u32>, Vec<u32>) = (0..len as u32).partition(|&i| rest[i as usize] < total);
    while let (Some(&s), Some(&l)) = (small.last(), large.last()) {
        small.pop();
        let (si, li) = (s as usize, l as usize);
        slots[si][0] = (rest[si] as f64 / total as f64 * 4_294_967_296.0) as u32;
        slots[si][2] = slots[li][1];
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
}
