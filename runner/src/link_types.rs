//! Node types at the ends of links: which nodes may be a pair's destination, or a node's partner.

use std::ops::Range;

use morphgl_graph_store::Dataset;

/// The node types that the training pairs lead from and to, where the graph has types and all pairs have the same ones.
///
/// O(pairs log types) time.
pub(crate) fn of_pairs(dataset: &Dataset) -> Option<[usize; 2]> {
    let types = dataset.topology.types()?;
    let pairs = dataset.train_pairs();
    let of = |pair: &[u32; 2]| pair.map(|node| types.node_type(node));
    let first = of(pairs.first()?);
    pairs.iter().all(|pair| of(pair) == first).then_some(first)
}

/// The nodes that a pair's destination is told from: those of its type.
pub(crate) fn candidates(dataset: &Dataset, destination: u32) -> Range<u32> {
    match dataset.topology.types() {
        Some(types) => types.range(types.node_type(destination)),
        None => 0..dataset.num_nodes() as u32,
    }
}

/// The nodes that may be partners of a node: those of the types that edges lead to from its type, or else to its type from; of its own
/// type only where training pairs, which are `of_pairs` types, are.
#[expect(clippy::single_range_in_vec_init, reason = "a list of ranges, here of one")]
pub(crate) fn partners(dataset: &Dataset, of_pairs: Option<[usize; 2]>, source: u32) -> Vec<Range<u32>> {
    let Some(types) = dataset.topology.types() else { return vec![0..dataset.num_nodes() as u32] };
    let own = types.node_type(source);
    let others = |at: usize| {
        let ends = (0..types.edge_types().len()).map(|edge_type| types.ends(edge_type));
        let mut others: Vec<usize> = ends.filter(|ends| ends[at] == own).map(|ends| ends[1 - at]).collect();
        others.sort_unstable();
        others.dedup();
        others
    };
    let found = [0, 1].map(others).into_iter().find(|others| !others.is_empty()).unwrap_or_default();
    // Self-loops that an import adds make no partners where there are other ones.
    let apart: Vec<usize> = found.iter().copied().filter(|&other| other != own).collect();
    let found = if apart.is_empty() || of_pairs.is_none_or(|[a, b]| a == b) { found } else { apart };
    found.into_iter().map(|other| types.range(other)).collect()
}

#[cfg(test)]
mod tests;
