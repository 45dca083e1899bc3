//! Adjacency cache: a static selection of CSR rows for device memory by hotness, within a budget.

use morphgl_dual_cache::{Kind, allocate};
use morphgl_graph_store::Topology;
use morphgl_registry::NeighborSettings;

/// Bytes per node of the lookup tables: start and length of its row.
pub(crate) const ROW_TABLE_BYTES: u64 = 12;

/// Bit of a row's start that marks a cached row.
pub(crate) const CACHED: u64 = 1 << 63;

/// The selected rows, as the device's lookup tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectedRows {
    // Invariant: one of both per node; marked starts are offsets into the cached rows, which are packed in node order.
    pub(crate) starts: Vec<u64>,
    pub(crate) lens: Vec<u32>,
    /// Number of cached rows.
    pub rows: u64,
    /// Number of edges of cached rows.
    pub edges: u64,
    /// Bytes of device memory for rows and tables.
    pub bytes: u64,
}

impl SelectedRows {
    /// Whether the row of `node` is cached.
    pub fn contains(&self, node: u32) -> bool {
        self.starts[node as usize] & CACHED != 0
    }
}

/// Greedy knapsack over CSR rows: bus reads saved per byte. `hotness` is the number of accesses of each row in an epoch;
/// each saves as many reads as a hop takes neighbours, averaged over the hops.
///
/// All device memory is charged to `budget`: rows (with weights, if any), tables of 12 bytes per node, and the
/// weight sum per node. `None` if the tables exceed the budget.
///
/// Callers that divide device memory between features and rows pass the rows' part as the budget.
///
/// # Panics
///
/// When `hotness` does not have one value per node.
///
/// # Complexity
///
/// Five passes over the nodes; 12 bytes per node.
pub fn select_rows(topology: &Topology, hotness: &[f32], hops: &NeighborSettings, budget: u64) -> Option<SelectedRows> {
    let num_nodes = topology.num_nodes();
    assert_eq!(hotness.len(), num_nodes, "hotness and nodes");
    let (edge, node) = if topology.weights().is_some() { (8, ROW_TABLE_BYTES + 4) } else { (4, ROW_TABLE_BYTES) };
    let tables = node * num_nodes as u64;
    let rows_budget = budget.checked_sub(tables)?;
    let fanouts = &hops.fanouts.0;
    let reads = |degree: u64| fanouts.iter().map(|f| f.take(degree) as f32).sum::<f32>() / fanouts.len() as f32;
    let saving = |v: u32| hotness[v as usize] * reads(topology.degree(v));
    let bytes = |v: u32| edge * topology.degree(v);
    let [share] = allocate(num_nodes as u32, [Kind { saving: &saving, bytes: &bytes, tables: 0 }], rows_budget);
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
    Some(SelectedRows { starts, lens, rows, edges, bytes: tables + edge * edges })
}

#[cfg(test)]
mod tests;
