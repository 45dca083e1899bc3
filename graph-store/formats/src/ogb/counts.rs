//! Numbers of nodes and edges of each graph of a set, and the renumbering of its edges in the union of the graphs.

use std::path::Path;

use morphgl_graph_store::{MAX_NODES, Result};

use crate::elements::Parsed;
use crate::files::invalid;

/// Nodes and edges of each graph of a set.
pub(super) struct Counts {
    pub(super) graphs: Vec<[u64; 2]>,
    pub(super) num_nodes: u64,
    pub(super) num_edges: u64,
}

impl Counts {
    pub(super) fn new(path: &Path, nodes: &[u64], edges: &[u64]) -> Result<Self> {
        let fail = |what: String| invalid(path, what, "download the files again");
        if nodes.len() != edges.len() || nodes.is_empty() {
            return fail(format!("{} node counts and {} edge counts", nodes.len(), edges.len()));
        }
        let sum = |counts: &[u64]| counts.iter().try_fold(0u64, |n, &c| n.checked_add(c));
        let (Some(num_nodes), Some(num_edges)) = (sum(nodes).filter(|&n| n <= MAX_NODES), sum(edges)) else {
            return fail(format!("more than the {MAX_NODES} nodes that ids of 32 bits allow"));
        };
        let graphs = nodes.iter().zip(edges).map(|(&n, &e)| [n, e]).collect();
        Ok(Self { graphs, num_nodes, num_edges })
    }

    /// The fault of an edge after the last one.
    pub(super) fn too_many(&self) -> String {
        format!("more edges than the {} promised", self.num_edges)
    }
}

/// Turns edges within each graph into edges of the union of the graphs.
pub(super) struct Renumber<'c> {
    counts: &'c Counts,
    graph: usize,
    /// Number of this graph's remaining edges.
    left: u64,
    /// Id of this graph's first node.
    first: u64,
    pub(super) sources: Vec<u32>,
    pub(super) targets: Vec<u32>,
}

impl<'c> Renumber<'c> {
    pub(super) fn new(counts: &'c Counts) -> Self {
        Self { counts, graph: 0, left: counts.graphs[0][1], first: 0, sources: vec![], targets: vec![] }
    }

    /// Appends one edge; `Err` says why it is impossible.
    pub(super) fn edge(&mut self, source: u64, target: u64) -> Parsed<()> {
        while self.left == 0 {
            self.first += self.counts.graphs[self.graph][0];
            self.graph += 1;
            let Some(&[_, edges]) = self.counts.graphs.get(self.graph) else {
                return Err(self.counts.too_many());
            };
            self.left = edges;
        }
        self.left -= 1;
        let [nodes, _] = self.counts.graphs[self.graph];
        if source.max(target) >= nodes {
            return Err(format!("the edge {source},{target} names a node that does not exist, there are {nodes}"));
        }
        self.sources.push((self.first + source) as u32);
        self.targets.push((self.first + target) as u32);
        Ok(())
    }
}
