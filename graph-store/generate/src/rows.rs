//! Rows of a topology from unsorted edges.

/// Consecutive rows: their degrees, and their source nodes row after row, sorted and without duplicates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rows {
    pub(crate) degrees: Vec<u32>,
    pub(crate) indices: Vec<u32>,
}

/// Sorts `edges` of (destination, source) into the rows `first .. first + len`; drops self-loops and duplicates.
///
/// # Complexity
///
/// O(edges) for the counting sort by row, and a sort of each row; four bytes an edge and eight a row.
pub(crate) fn assemble(first: u32, len: usize, edges: &[(u32, u32)]) -> Rows {
    let mut ends = vec![0usize; len + 1];
    for &(to, from) in edges {
        ends[(to - first) as usize + 1] += usize::from(to != from);
    }
    for i in 0..len {
        ends[i + 1] += ends[i];
    }
    let mut indices = vec![0u32; ends[len]];
    // Scattering moves ends[r] from the start of row r to its end, which is the start of row r + 1.
    for &(to, from) in edges {
        if to != from {
            let end = &mut ends[(to - first) as usize];
            indices[*end] = from;
            *end += 1;
        }
    }
    let mut degrees = Vec::with_capacity(len);
    let (mut start, mut kept) = (0, 0);
    for &end in &ends[..len] {
        indices[start..end].sort_unstable();
        let row = kept;
        for i in start..end {
            if kept == row || indices[kept - 1] != indices[i] {
                indices[kept] = indices[i];
                kept += 1;
            }
        }
        degrees.push((kept - row) as u32);
        start = end;
    }
    indices.truncate(kept);
    Rows { degrees, indices }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn equals_a_set(edges in prop::collection::vec((10u32..17, 0u32..25), 0..200)) {
            let rows = assemble(10, 7, &edges);
            let set: BTreeSet<(u32, u32)> = edges.into_iter().filter(|(to, from)| to != from).collect();
            let degrees: Vec<u32> =
                (10..17).map(|v| set.iter().filter(|e| e.0 == v).count() as u32).collect();
            let indices: Vec<u32> = set.into_iter().map(|e| e.1).collect();
            prop_assert_eq!(rows, Rows { degrees, indices });
        }
    }
}
