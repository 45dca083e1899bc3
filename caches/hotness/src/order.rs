//! Orders of nodes by score, and the hits of a cache filled in such an order.

use rayon::prelude::*;

/// The `count` nodes of the highest scores, the highest first; of equal scores the lower node id. `scores` has one
/// value per node; NaN ranks last. All nodes are sorted for a `count` of `usize::MAX`.
///
/// # Panics
///
/// When there are more than 2^32 scores.
///
/// # Complexity
///
/// O(nodes + count · log count), the sort by all threads of the current rayon pool; 8 bytes per node besides the
/// result.
pub fn hottest(scores: &[f32], count: usize) -> Vec<u32> {
    assert!(scores.len() as u64 <= 1 << 32, "{} scores, and node ids have 32 bits", scores.len());
    let mut keys: Vec<u64> = (0..scores.len()).into_par_iter().map(|v| sort_key(scores[v], v as u32)).collect();
    if count < keys.len() {
        keys.select_nth_unstable(count);
        keys.truncate(count);
    }
    keys.par_sort_unstable();
    keys.into_par_iter().map(|key| key as u32).collect()
}

/// Ascending where scores descend, then by node.
fn sort_key(score: f32, node: u32) -> u64 {
    // Adding 0 makes -0 equal to 0. Bits of positive floats are ordered as the floats, those of negative floats in reverse.
    let bits = (score + 0.0).to_bits();
    let ascending = if bits >> 31 == 0 { bits | 1 << 31 } else { !bits };
    let descending = if score.is_nan() { u32::MAX } else { !ascending };
    u64::from(descending) << 32 | u64::from(node)
}

/// The nodes whose entries have the highest scores per byte, the highest first: the order in which a static cache of
/// entries of different size is filled. An entry of 0 bytes ranks last.
///
/// # Panics
///
/// As [`hottest`].
///
/// # Complexity
///
/// As [`hottest`], and 4 bytes per node.
pub fn hottest_by_byte(scores: &[f32], bytes: impl Fn(u32) -> u64 + Sync) -> Vec<u32> {
    let rate = |(v, &score): (usize, &f32)| match bytes(v as u32) {
        0 => f32::NAN,
        bytes => (f64::from(score) / bytes as f64) as f32,
    };
    hottest(&scores.par_iter().enumerate().map(rate).collect::<Vec<f32>>(), usize::MAX)
}

/// Number of entries, from the first of `order` on, that fit into each of the `budgets` in bytes.
///
/// # Complexity
///
/// O(nodes + budgets · log budgets), one pass over the order.
pub fn entries_within(order: &[u32], bytes: impl Fn(u32) -> u64, budgets: &[u64]) -> Vec<usize> {
    let mut ascending: Vec<usize> = (0..budgets.len()).collect();
    ascending.sort_unstable_by_key(|&i| budgets[i]);
    let (mut entries, mut sum, mut at) = (vec![0; budgets.len()], 0u64, 0);
    for i in ascending {
        while let Some(more) = order.get(at).map(|&v| bytes(v)).filter(|&more| sum.saturating_add(more) <= budgets[i]) {
            (sum, at) = (sum + more, at + 1);
        }
        entries[i] = at;
    }
    entries
}

/// Hit rates of a static cache: for each number of `rows`, the share of all `accesses` that the first so many nodes of `order`
/// have. `accesses` has one value per node, and 0 accesses have a share of 0. A number beyond the order counts all of
/// it.
///
/// # Panics
///
/// When `order` has a node without a value in `accesses`.
///
/// # Complexity
///
/// O(nodes + rows · log rows) time, one pass over each array.
pub fn coverage(accesses: &[f32], order: &[u32], rows: &[usize]) -> Vec<f64> {
    let all: f64 = accesses.iter().map(|&count| f64::from(count)).sum();
    let mut ascending: Vec<usize> = (0..rows.len()).collect();
    ascending.sort_unstable_by_key(|&i| rows[i]);
    let (mut shares, mut sum, mut at) = (vec![0.0; rows.len()], 0.0, 0);
    for i in ascending {
        let end = rows[i].min(order.len());
        sum += order[at..end].iter().map(|&v| f64::from(accesses[v as usize])).sum::<f64>();
        at = end;
        shares[i] = if all > 0.0 { sum / all } else { 0.0 };
    }
    shares
}
