//! Division of a layer's rows among the processes that infer together.

use std::ops::Range;

use morphgl_graph_store::Topology;

/// Output elements of a row whose computation takes about as long as an edge, which is relabelled and aggregated.
const EDGE: u64 = 16;

/// Consecutive parts of `rows`, one per process, of about equal work: that of a row is its output, of `width` elements,
/// and its edges, where there are any. Parts may be empty.
///
/// # Complexity
///
/// O(rows).
pub(crate) fn divide(rows: &[u32], topology: Option<&Topology>, width: usize, size: usize) -> Vec<Range<usize>> {
    let work = |v: u32| width.max(1) as u64 + topology.map_or(0, |topology| EDGE * topology.degree(v));
    let total: u64 = rows.iter().map(|&v| work(v)).sum();
    let mut ends = vec![rows.len(); size];
    let (mut before, mut part) = (0, 0);
    for (i, &v) in rows.iter().enumerate() {
        let work = work(v);
        // The part in which the middle of the row's work lies.
        let own = u128::from(2 * before + work) * size as u128 / u128::from(2 * total);
        while (part as u128) < own {
            ends[part] = i;
            part += 1;
        }
        before += work;
    }
    let starts = std::iter::once(0).chain(ends.iter().copied());
    starts.zip(&ends).map(|(start, &end)| start..end).collect()
}

#[cfg(test)]
mod tests;
