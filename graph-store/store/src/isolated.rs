//! Nodes that have no edge at all, counted while a graph's arrays are read in order.

/// Bits of the filter, which fits the first-level cache.
const FILTER_BITS: usize = 1 << 17;
/// Sources that are looked up in the filter before any is looked up in the nodes.
const GROUP: usize = 16;

/// Counts the nodes at which no edge begins or ends: those without in-neighbours, less the sources of all edges.
///
/// ```
/// let mut isolated = morphgl_graph_store::IsolatedNodes::new(4);
/// // Nodes 1, 2 and 3 have no in-neighbours; node 0 has 2 and 2.
/// [1, 2, 3].into_iter().for_each(|node| isolated.add(node));
/// isolated.remove(&[2, 2]);
/// assert_eq!(isolated.count(), 2);
/// ```
#[derive(Debug)]
pub struct IsolatedNodes {
    // Invariant: the filter has the bits of all nodes whose bit is set here, modulo its size.
    nodes: Vec<u64>,
    filter: Vec<u64>,
    count: u64,
}

impl IsolatedNodes {
    /// No nodes yet, of a graph of `num_nodes`; takes a bit for each.
    pub fn new(num_nodes: usize) -> Self {
        Self { nodes: vec![0; num_nodes.div_ceil(64)], filter: vec![0; FILTER_BITS / 64], count: 0 }
    }

    /// Adds a node without in-neighbours, once.
    ///
    /// # Panics
    ///
    /// When the node is beyond the graph.
    pub fn add(&mut self, node: usize) {
        self.nodes[node / 64] |= 1 << (node % 64);
        self.filter[node % FILTER_BITS / 64] |= 1 << (node % 64);
        self.count += 1;
    }

    /// Removes the sources of edges; sources beyond the graph change nothing.
    pub fn remove(&mut self, sources: &[u32]) {
        for group in sources.chunks(GROUP) {
            let bit = |&source: &u32| {
                let node = source as usize;
                self.filter[node % FILTER_BITS / 64] >> (node % 64)
            };
            if group.iter().fold(0, |bits, source| bits | bit(source)) & 1 == 1 {
                group.iter().for_each(|&source| self.remove_node(source as usize));
            }
        }
    }

    fn remove_node(&mut self, node: usize) {
        let Some(word) = self.nodes.get_mut(node / 64) else { return };
        let bit = 1 << (node % 64);
        self.count -= u64::from(*word & bit != 0);
        *word &= !bit;
    }

    /// Number of nodes left.
    pub fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests;
