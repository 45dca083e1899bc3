//! Upper bounds on the size of hops, from the graph's degrees.

use std::collections::BTreeMap;

use morphgl_graph_store::Topology;
use morphgl_registry::{Expansion, Fanout, SamplerSettings};

/// Maximum number of nodes, and of edges of a hop, that hash-table values can represent.
pub(crate) const MOST: u64 = (1 << 31) - 1;

/// Degree distribution of a graph.
#[derive(Debug)]
pub(crate) struct Degrees {
    num_nodes: u64,
    /// Histogram: degree and number of nodes, the largest degree first.
    counts: Vec<(u64, u64)>,
}

/// Upper bounds on one hop; exact once the host has queried the device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Hop {
    /// Destination nodes.
    pub(crate) rows: u64,
    /// Destination nodes that are expanded.
    pub(crate) expanded: u64,
    /// Edges.
    pub(crate) edges: u64,
    /// Source nodes.
    pub(crate) nodes: u64,
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
        let small = small
            .into_iter()
            .enumerate()
            .rev()
            .map(|(degree, count)| (degree as u64, count))
            .filter(|(_, count)| *count > 0);
        Self { num_nodes: topology.num_nodes() as u64, counts: large.into_iter().rev().chain(small).collect() }
    }

    /// Maximum number of edges of `rows` distinct nodes with at most `fanout` edges each.
    fn edges(&self, rows: u64, fanout: Fanout) -> u64 {
        let mut left = rows;
        let mut edges = 0u64;
        for &(degree, nodes) in &self.counts {
            let taken = nodes.min(left);
            edges = edges.saturating_add(taken.saturating_mul(fanout.take(degree)));
            left -= taken;
            if left == 0 {
                break;
            }
        }
        edges
    }

    /// Bounds of the hop that expands `expanded` of `rows` nodes.
    pub(crate) fn hop(&self, rows: u64, expanded: u64, fanout: Fanout) -> Hop {
        let (rows, expanded) = (rows.min(self.num_nodes), expanded.min(self.num_nodes));
        Hop { rows, expanded, ..Hop::default() }.with_edges(self.edges(expanded, fanout), self.num_nodes)
    }

    /// Bounds of the hop after `hop`.
    pub(crate) fn after(&self, hop: &Hop, settings: &SamplerSettings, fanout: Fanout) -> Hop {
        let expanded = match settings.expansion {
            Expansion::All => hop.nodes,
            Expansion::New => hop.edges.min(hop.nodes),
        };
        self.hop(hop.nodes, expanded, fanout)
    }

    pub(crate) fn num_nodes(&self) -> u64 {
        self.num_nodes
    }
}

impl Hop {
    /// The same bounds with a given number of edges.
    pub(crate) fn with_edges(self, edges: u64, num_nodes: u64) -> Self {
        Self { edges, nodes: self.rows.saturating_add(edges).min(num_nodes), ..self }
    }

    /// Bytes of device memory for its edges and the nodes they may reach, in the mini-batch and in scratch memory.
    pub(crate) fn bytes(&self, weights: bool, picked_apart: bool) -> u64 {
        let edge = 8 + if weights { 4 } else { 0 } + if picked_apart { 8 } else { 0 };
        // Per node: id, degree, row and up to three hash-table entries.
        self.edges.saturating_mul(edge).saturating_add((self.nodes - self.rows).saturating_mul(20 + 24))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn degrees_are_counted_from_the_largest_on() {
        let degrees = [0u64, 5000, 4095, 4096, 5000, 1, 4095];
        let mut indptr = vec![0u64];
        indptr.extend(degrees.iter().scan(0, |end, degree| {
            *end += degree;
            Some(*end)
        }));
        let edges = degrees.iter().sum::<u64>() as usize;
        let degrees = Degrees::new(&Topology::new(indptr, vec![0u32; edges], None).expect("seven nodes"));
        assert_eq!((degrees.num_nodes(), degrees.counts), (7, vec![(5000, 2), (4096, 1), (4095, 2), (1, 1), (0, 1)]));
    }

    #[test]
    fn the_largest_rows_bound_a_hop() {
        // Degrees 3, 1, 1, 0.
        let topology = Topology::new(vec![0u64, 3, 4, 5, 5], vec![1u32, 2, 3, 0, 0], None).expect("four nodes");
        let degrees = Degrees::new(&topology);
        let hop = |rows, fanout: &str| degrees.hop(rows, rows, fanout.parse().expect("a fanout"));
        assert_eq!(hop(1, "-1"), Hop { rows: 1, expanded: 1, edges: 3, nodes: 4 });
        assert_eq!(hop(1, "2"), Hop { rows: 1, expanded: 1, edges: 2, nodes: 3 });
        assert_eq!(hop(2, "-1").edges, 4);
        assert_eq!(hop(100, "-1"), Hop { rows: 4, expanded: 4, edges: 5, nodes: 4 });
        let settings = SamplerSettings { expansion: Expansion::New, ..Default::default() };
        let fanout = "1".parse().expect("a fanout");
        assert_eq!(degrees.after(&hop(1, "1"), &settings, fanout), Hop { rows: 2, expanded: 1, edges: 1, nodes: 3 });
        assert_eq!(degrees.after(&hop(1, "1"), &SamplerSettings::default(), fanout).edges, 2);
    }
}
