//! Adjacency cache: a static selection of CSR rows for device memory by hotness, within a budget.

use morphgl_dual_cache::{CacheShare, Kind, allocate, allocate_prefixes, savings};
use morphgl_graph_store::Topology;
use morphgl_registry::NeighborSettings;

/// Bit of a row's start that marks a cached row.
pub(crate) const CACHED: u64 = 1 << 63;

/// The selected rows, and how the device finds them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectedRows {
    /// `None` where they are those of the first `rows` nodes: a node's number is compared, and the offsets are the graph's.
    pub(crate) tables: Option<RowTables>,
    /// Number of cached rows.
    pub rows: u64,
    /// Number of edges of cached rows.
    pub edges: u64,
    /// Bytes of device memory for rows and tables.
    pub bytes: u64,
}

/// Lookup tables for cached rows whose nodes are not simply the first ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RowTables {
    // Invariant: one of both per node; marked starts are offsets into the cached rows, which are packed in node order.
    pub(crate) starts: Vec<u64>,
    pub(crate) lens: Vec<u32>,
}

impl SelectedRows {
    /// Whether the row of `node` is cached.
    pub fn contains(&self, node: u32) -> bool {
        match &self.tables {
            Some(tables) => tables.starts[node as usize] & CACHED != 0,
            None => u64::from(node) < self.rows,
        }
    }
}

/// Bytes of device memory per node besides rows: what finds them (the graph's offsets for those of the first nodes, else start
/// and length), sums of weights, and draw keys.
pub(crate) fn table_bytes(topology: &Topology, of_first_nodes: bool) -> u64 {
    let nodes = topology.num_nodes() as u64;
    let columns = u64::from(topology.weights().is_some()) + u64::from(topology.draw_keys().is_some());
    4 * columns * nodes + if of_first_nodes { 8 * (nodes + 1) } else { 12 * nodes }
}

/// The CSR rows that may be cached.
pub(crate) struct CsrRows<'a> {
    pub(crate) topology: &'a Topology,
    /// Accesses of each row in an epoch.
    pub(crate) hotness: &'a [f32],
    pub(crate) hops: &'a NeighborSettings,
}

impl CsrRows<'_> {
    /// Neighbours that an epoch reads of a row: its accesses times what a hop takes, averaged over the hops.
    fn saving(&self, node: u32) -> f32 {
        let (degree, fanouts) = (self.topology.degree(node), &self.hops.fanouts.0);
        let reads = fanouts.iter().map(|f| f.take(degree) as f32).sum::<f32>() / fanouts.len() as f32;
        self.hotness[node as usize] * reads
    }

    fn bytes(&self, node: u32) -> u64 {
        self.edge_bytes() * self.topology.degree(node)
    }

    fn edge_bytes(&self) -> u64 {
        if self.topology.weights().is_some() { 8 } else { 4 }
    }

    /// Neighbours that an epoch reads of the selected rows.
    pub(crate) fn reads(&self, selected: &SelectedRows) -> f64 {
        let nodes = 0..self.topology.num_nodes() as u32;
        nodes.filter(|&node| selected.contains(node)).map(|node| f64::from(self.saving(node))).sum()
    }

    /// The share of an epoch's reads that is of rows besides the selected ones.
    pub(crate) fn share_besides(&self, selected: &SelectedRows) -> f64 {
        let all: f64 = (0..self.topology.num_nodes() as u32).map(|node| f64::from(self.saving(node))).sum();
        if all > 0.0 { (1.0 - self.reads(selected) / all).max(0.0) } else { 1.0 }
    }

    /// As [`CsrRows::reads`], of the rows that [`select_rows`] selects within each of the ascending `budgets`, in one pass.
    pub(crate) fn reads_within(&self, budgets: &[u64]) -> Vec<f64> {
        let (saving, bytes) = (|v: u32| self.saving(v), |v: u32| self.bytes(v));
        let tables = table_bytes(self.topology, self.topology.draw_keys().is_some());
        savings(self.topology.num_nodes() as u32, [Kind { saving: &saving, bytes: &bytes, tables }], budgets)
    }

    /// Bytes of device memory that all rows and their tables take.
    pub(crate) fn all_bytes(&self) -> u64 {
        let tables = table_bytes(self.topology, self.topology.draw_keys().is_some());
        tables + self.edge_bytes() * self.topology.num_edges()
    }
}

/// Greedy knapsack over CSR rows: bus reads saved per byte. `hotness` is the number of accesses of each row in an epoch;
/// each saves as many reads as a hop takes neighbours, averaged over the hops.
///
/// In a reordered graph, the rows of as many first nodes as fit are selected instead, if they save at least as many reads: they
/// are found by comparison (DUCATI, SIGMOD'23), with smaller tables.
///
/// All device memory is charged to `budget`: rows (with weights, if any), tables of 12 bytes per node (8 where the rows are those
/// of the first nodes), and per node the weight sum and the draw key, if any. `None` if the tables exceed the budget.
///
/// Callers that divide device memory between features and rows pass the rows' part as the budget.
///
/// # Panics
///
/// When `hotness` does not have one value per node.
///
/// # Complexity
///
/// Five passes over the nodes, eight of a reordered graph; 12 bytes per node.
pub fn select_rows(topology: &Topology, hotness: &[f32], hops: &NeighborSettings, budget: u64) -> Option<SelectedRows> {
    let num_nodes = topology.num_nodes();
    assert_eq!(hotness.len(), num_nodes, "hotness and nodes");
    let rows = CsrRows { topology, hotness, hops };
    let (saving, bytes, edge) = (|v: u32| rows.saving(v), |v: u32| rows.bytes(v), rows.edge_bytes());
    let kind = Kind { saving: &saving, bytes: &bytes, tables: 0 };

    let tables = table_bytes(topology, false);
    let any = budget.checked_sub(tables).map(|budget| {
        let [share] = allocate(num_nodes as u32, [kind], budget);
        share
    });
    let first_tables = table_bytes(topology, true);
    let first = topology.draw_keys().and_then(|_| budget.checked_sub(first_tables)).map(|budget| {
        let nothing = Kind { saving: &|_| 0.0, bytes: &|_| u64::MAX, tables: 0 };
        let [share, _] = allocate_prefixes(num_nodes as u32, [kind, nothing], budget);
        share
    });
    let saved = |share: &Option<CacheShare>| share.as_ref().map_or(0.0, |share| share.saving);
    if let Some(first) = first.filter(|first| any.as_ref().is_none_or(|any| saved(first) >= saved(any))) {
        let rows = first.map_or(0, |share| share.map.len());
        let edges = topology.indptr()[rows];
        return Some(SelectedRows { tables: None, rows: rows as u64, edges, bytes: first_tables + edge * edges });
    }

    let share = any?;
    let selected = |v: u32| share.as_ref().is_some_and(|share| share.map.get(v).is_some());
    let (mut rows, mut edges) = (0, 0);
    let (mut starts, mut lens) = (Vec::with_capacity(num_nodes), Vec::with_capacity(num_nodes));
    for v in 0..num_nodes as u32 {
        let degree = topology.degree(v);
        lens.push(degree as u32);
        if selected(v) {
            starts.push(CACHED | edges);
            rows += 1;
            edges += degree;
        } else {
            starts.push(topology.edge_range(v).start as u64);
        }
    }
    Some(SelectedRows { tables: Some(RowTables { starts, lens }), rows, edges, bytes: tables + edge * edges })
}

#[cfg(test)]
mod tests;
