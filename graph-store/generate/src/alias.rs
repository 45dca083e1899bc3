//! Walker's alias method (Vose 1991): draws an item with probability proportional to its weight in O(1).

use crate::random::index;

/// One slot of an alias table: a threshold, the item where the draw falls below it, and the other one.
pub(crate) type Slot = [u32; 3];

/// Draws from the table with 64 random bits: the upper half picks the slot, the lower decides within it.
pub(crate) fn draw(slots: &[Slot], bits: u64) -> u32 {
    let [threshold, item, other] = slots[index((bits >> 32) as u32, slots.len())];
    if (bits as u32) < threshold { item } else { other }
}

/// Makes `slots` the table of as many items, each from `item` with its weight. Weights are integers, so sums
/// are exact in any order.
///
/// # Panics
///
/// When there are items and every weight is 0.
///
/// # Complexity
///
/// O(items) time, and at most 24 bytes per item beside the table.
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
mod tests;
