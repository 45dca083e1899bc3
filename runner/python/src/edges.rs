//! Which of the graph's edges a mini-batch has.

use morphgl_graph_store::{Array, Topology};
use morphgl_registry::{Block, HostBatch};

/// Numbers of edges.
#[derive(Debug)]
pub(crate) struct EdgeIds {
    /// The caller's number of each edge of the compressed columns; `None` for positions in these.
    order: Option<Array<u32>>,
    /// Whether the sources of every node are ascending.
    sorted: bool,
}

impl EdgeIds {
    /// O(nodes + edges).
    pub(crate) fn new(topology: &Topology, order: Option<Array<u32>>) -> Self {
        let (indptr, indices) = (topology.indptr(), topology.indices());
        let sorted = indptr.windows(2).all(|ends| indices[ends[0] as usize..ends[1] as usize].is_sorted());
        Self { order, sorted }
    }

    /// Appends the numbers of a block's edges, in the block's order. Of parallel edges the first are taken.
    pub(crate) fn append(&self, topology: &Topology, host: &HostBatch, block: &Block, ids: &mut Vec<i64>) {
        let (indptr, indices) = (topology.indptr(), topology.indices());
        let mut sampled: Vec<(u32, usize)> = Vec::new();
        for row in 0..block.num_dst {
            let node = host.input_nodes[row] as usize;
            let start = indptr[node] as usize;
            let all = &indices[start..indptr[node + 1] as usize];
            sampled.clear();
            let sources = block.row(row).iter().map(|&source| host.input_nodes[source as usize]);
            sampled.extend(sources.zip(ids.len()..));
            ids.resize(ids.len() + sampled.len(), -1);
            sampled.sort_unstable();
            for equal in sampled.chunk_by(|a, b| a.0 == b.0) {
                let source = equal[0].0;
                let first = if self.sorted { all.partition_point(|&s| s < source) } else { 0 };
                let found = (first..all.len()).filter(|&at| all[at] == source);
                for (&(_, slot), at) in equal.iter().zip(found) {
                    let at = start + at;
                    ids[slot] = self.order.as_ref().map_or(at as i64, |order| order[at].into());
                }
            }
        }
    }
}
