//! One memory divided among the caches that a route keeps in it.

use crate::Cache;

/// Bytes of each of one or two caches of one memory that together save most per mini-batch within `total` bytes: DUCATI's division
/// of one budget between adjacency lists and feature rows (SIGMOD'23, §4), over measured curves.
///
/// What a cache saves is linear between the points of its curve, so that the best division lies at a point of either: the optimum
/// is exact. A size that saves no more than a smaller one is replaced by that. Where `total` is less than the smallest sizes take,
/// these are the result.
///
/// # Panics
///
/// With no cache, or more than two.
///
/// # Complexity
///
/// O(points · log(points)).
pub(crate) fn divide(caches: &[&Cache], total: u64) -> Vec<u64> {
    match caches {
        [cache] => vec![cache.needed(total.max(cache.least()))],
        [a, b] => {
            let with_first = |bytes: u64| Some((bytes, total.checked_sub(bytes)?.max(b.least())));
            let with_second = |bytes: u64| Some((total.checked_sub(bytes)?.max(a.least()), bytes));
            let first = a.sizes_of_points().filter_map(with_first);
            let second = b.sizes_of_points().filter_map(with_second);
            let within = first.chain(second).filter(|&(x, y): &(u64, u64)| x.saturating_add(y) <= total);
            let saved = |&(x, y): &(u64, u64)| a.saved(x) + b.saved(y);
            let best = within.max_by(|one, other| saved(one).total_cmp(&saved(other)));
            let (x, y) = best.unwrap_or((a.least(), b.least()));
            vec![a.needed(x), b.needed(y)]
        }
        _ => panic!("{} caches, one or two are divided", caches.len()),
    }
}

#[cfg(test)]
mod tests;
