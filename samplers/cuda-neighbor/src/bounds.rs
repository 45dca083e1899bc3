//! Upper bounds on the size of hops, from the graph's degrees.

use std::collections::BTreeMap;

use morphgl_graph_store::Topology;
use morphgl_registry::{Expansion, Fanout};

/// Maximum number of nodes, and of edges of a hop, that hash-table values can represent.
pub(crate) const MAX_VALUE: u64 = (1 << 31) - 1;

/// Degree distribution of a graph.
#[derive(Debug)]
pub(crate) struct Degrees {
    num_nodes: u64,
    /// Histogram: degree and number of nodes, the largest degree first.
    counts: Vec<(u64, u64)>,
}

/// Upper bounds on one hop; exact once the host has queried the device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct HopBounds {
    /// Destination nodes.
    pub(crate) rows: u64,
    /// Destination nodes that are expanded.
    pub(crate) expanded: u64,
    pub(crate) edges: u64,
    /// Source nodes.
    pub(crate) nodes: u64,
    /// Destination nodes besides the distinct ones: seeds that repeat.
    pub(crate) repeats: u64,
}

impl Degrees {
    /// # Complexity
    ///
    /// One pass over the offsets, with a tree lookup only for nodes of large degree.
    pub(crate) fn new(topology: &Topology) -> Self {
        let (mut small, mut large) = (vec![0u64; 1 << 12], BTreeMap::<u64, u64>::new());
        for row in topology.indptr().windows(2) {
            let degree = row[1] - row[0];
            match small.get_mut(degree as usize) {
                Some(count) => *count += 1,
                None => *large.entry(degree).or_default() += 1,
            }
        }
        let small = (0u64..).zip(small).filter(|(_, count)| *count > 0).collect::<Vec<_>>();
        let counts = large.into_iter().rev().chain(small.into_iter().rev()).collect();
        Self { num_nodes: topology.num_nodes() as u64, counts }
    }

    /// Degrees of a graph in which all nodes have the same.
    pub(crate) fn all(num_nodes: usize, degree: u64) -> Self {
        Self { num_nodes: num_nodes as u64, counts: vec![(degree, num_nodes as u64)] }
    }

    /// Those of so many copies of the graph, at least one.
    pub(crate) fn of_copies(self, copies: u64) -> Self {
        let copies = copies.max(1);
        let counts = self.counts.into_iter().map(|(degree, nodes)| (degree, nodes.saturating_mul(copies))).collect();
        Self { num_nodes: self.num_nodes.saturating_mul(copies), counts }
    }

    /// Maximum number of edges of `rows` distinct nodes with at most `fanout` edges each.
    pub(crate) fn edges(&self, rows: u64, fanout: Fanout) -> u64 {
        let (mut left, mut edges) = (rows, 0u64);
        for &(degree, nodes) in &self.counts {
            let expanded = nodes.min(left);
            edges = edges.saturating_add(expanded.saturating_mul(fanout.take(degree)));
            left -= expanded;
            if left == 0 {
                break;
            }
        }
        edges
    }

    /// Bounds of the first hop of `seeds` seeds, up to `repeats` of which repeat another one.
    pub(crate) fn first_hop(&self, seeds: u64, repeats: u64, fanout: Fanout) -> HopBounds {
        let repeats = repeats.min(seeds.saturating_sub(1));
        self.hop(seeds, (seeds, repeats), repeats, fanout)
    }

    /// Bounds of the hop that expands `expanded` of `rows` nodes; up to `repeated` and `repeats` of them repeat others.
    fn hop(&self, rows: u64, (expanded, repeated): (u64, u64), repeats: u64, fanout: Fanout) -> HopBounds {
        let (rows, expanded) = (rows.min(self.num_nodes + repeats), expanded.min(self.num_nodes + repeated));
        let repeated = repeated.min(expanded);
        let largest = self.counts.first().map_or(0, |&(degree, _)| fanout.take(degree));
        let edges = self.edges(expanded - repeated, fanout).saturating_add(repeated.saturating_mul(largest));
        HopBounds { rows, expanded, repeats, ..HopBounds::default() }.with_edges(edges, self.num_nodes)
    }

    /// Bounds of the hop after `hop`.
    pub(crate) fn after(&self, hop: &HopBounds, expansion: Expansion, fanout: Fanout) -> HopBounds {
        let expanded = match expansion {
            Expansion::All => (hop.nodes, hop.repeats),
            // Nodes that a hop finds are distinct.
            Expansion::New => (hop.edges.min(hop.nodes), 0),
        };
        self.hop(hop.nodes, expanded, hop.repeats, fanout)
    }

    /// Bounds of the subgraph that the nodes of `hop` induce: its rows are all of them.
    pub(crate) fn subgraph(&self, hop: &HopBounds) -> HopBounds {
        let all = self.after(hop, Expansion::All, Fanout::All);
        HopBounds { nodes: all.rows, ..all }
    }

    pub(crate) fn num_nodes(&self) -> u64 {
        self.num_nodes
    }

    /// The largest degree.
    pub(crate) fn largest(&self) -> u64 {
        self.counts.first().map_or(0, |&(degree, _)| degree)
    }
}

/// What a hop's device memory depends on besides its bounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct HopMemory {
    /// Whether edges have weights.
    pub(crate) weights: bool,
    /// Whether one kernel finds edges and another reads them.
    pub(crate) picked: bool,
    /// Whether nodes have draw keys.
    pub(crate) keyed: bool,
    /// Whether rows are put in an order.
    pub(crate) ordered: bool,
    /// Whether edges have types.
    pub(crate) typed: bool,
    /// Whether nodes have trees.
    pub(crate) trees: bool,
    /// Bytes of the sub-rows of a row.
    pub(crate) sub_rows: u64,
}

impl HopBounds {
    /// The same bounds with a given number of edges.
    pub(crate) fn with_edges(self, edges: u64, num_nodes: u64) -> Self {
        Self { edges, nodes: self.rows.saturating_add(edges).min(num_nodes + self.repeats), ..self }
    }

    /// Bytes of device memory for its edges and the nodes they may reach, in the mini-batch and in scratch memory.
    pub(crate) fn bytes(&self, memory: HopMemory) -> u64 {
        let HopMemory { weights, picked, keyed, ordered, typed, trees, sub_rows } = memory;
        let edge = 8 + 4 * u64::from(weights) + 8 * u64::from(picked) + 2 * u64::from(typed);
        // Per node: id, degree, row, up to three hash-table entries, draw key, number in the order, and tree.
        let node = 20 + 24 + 4 * (u64::from(keyed) + u64::from(ordered) + u64::from(trees));
        let sub_rows = self.expanded.saturating_mul(sub_rows);
        let edges = self.edges.saturating_mul(edge).saturating_add(sub_rows);
        edges.saturating_add((self.nodes - self.rows).saturating_mul(node))
    }
}

#[cfg(test)]
mod tests;
