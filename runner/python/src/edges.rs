//! Which of the graph's edges a mini-batch has.

use morphgl_graph_store::{Array, Topology};
use morphgl_registry::{BatchId, Block, HostBatch};

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

    /// Appends the numbers of a block's edges, in the block's order. Of parallel edges of the same weight, which a block does not
    /// tell apart, as many as were sampled are taken at random, a function of the mini-batch and the edge.
    pub(crate) fn append(&self, topology: &Topology, host: &HostBatch, block: &Block, ids: &mut Vec<i64>) {
        let (indptr, indices) = (topology.indptr(), topology.indices());
        let (mut sampled, mut copies): (Vec<(u32, usize)>, Vec<usize>) = Default::default();
        let base = ids.len();
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
                copies.clear();
                let found = (first..all.len()).take_while(|&at| !self.sorted || all[at] == source);
                copies.extend(found.filter(|&at| all[at] == source).map(|at| start + at));
                // With all of them sampled they keep their order.
                if equal.len() < copies.len() {
                    let turn = random(host.id, node as u32, source) % copies.len() as u64;
                    copies.rotate_left(turn as usize);
                }
                for &(_, slot) in equal {
                    let weight = block.weights.as_ref().filter(|_| !block.importance).map(|w| w[slot - base]);
                    let is_it =
                        |&at: &usize| weight.zip(topology.weights()).is_none_or(|(weight, all)| all[at] == weight);
                    if let Some(which) = copies.iter().position(is_it) {
                        let at = copies.remove(which);
                        ids[slot] = self.order.as_ref().map_or(at as i64, |order| order[at].into());
                    }
                }
            }
        }
    }
}

/// A number drawn by mini-batch and edge.
fn random(batch: BatchId, node: u32, source: u32) -> u64 {
    let mix = |state: u64, word: u64| {
        let state = (state ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (state ^ (state >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ (state >> 32)
    };
    [u64::from(batch.epoch), u64::from(batch.index), u64::from(node), u64::from(source)].into_iter().fold(1, mix) >> 16
}
