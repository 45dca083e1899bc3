//! Options of a graph, and counts of the edges that they drop.

/// Options of a graph, and the memory to build it in.
#[derive(Debug, Clone, Copy)]
pub struct EdgeOptions {
    /// Number of nodes; `None` for the highest id plus one.
    pub num_nodes: Option<u64>,
    /// Whether edges are pushed with weights.
    pub weighted: bool,
    /// Whether each edge keeps its number, from 0 in the order of pushing, as the row of its features; edges that are added have that of
    /// the edge they are made of.
    pub numbered: bool,
    /// Ignores the weights.
    pub drop_weights: bool,
    /// Adds the reverse of every edge right after it, and drops duplicates.
    pub symmetrise: bool,
    /// Swaps source and target of every edge, before all else.
    pub reverse: bool,
    /// Drops edges from a node to itself.
    pub drop_self_loops: bool,
    /// Merges several edges between the same nodes into one.
    pub drop_duplicates: bool,
    /// Weight of merged edges. With `symmetrise`, a self-loop is its own reverse, and counts twice where weights are added.
    pub duplicate_weights: DuplicateWeights,
    /// Adds a self-loop of weight 1 to every node without one, after `drop_self_loops`.
    pub add_self_loops: bool,
    /// Bytes for edges and the buffers of their sort.
    pub memory: u64,
}

impl EdgeOptions {
    /// Whether weights are stored.
    pub(crate) fn stores_weights(&self) -> bool {
        self.weighted && !self.drop_weights
    }

    /// Whether weights of merged edges are added.
    pub(crate) fn adds_weights(&self) -> bool {
        let merges = self.symmetrise || self.drop_duplicates;
        merges && self.stores_weights() && self.duplicate_weights == DuplicateWeights::Add
    }
}

/// Weight of an edge that is given several times, the reverse that `symmetrise` adds included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DuplicateWeights {
    /// That of the first.
    #[default]
    First,
    /// The sum of all, in the order they were pushed in.
    Add,
}

/// Numbers of edges that are not part of the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dropped {
    /// Self-loops.
    pub self_loops: u64,
    /// Duplicates, reverse edges included.
    pub duplicates: u64,
}
