//! Adjacency cache: a static selection of CSR rows for device memory by hotness, within a budget.

use morphgl_dual_cache::{CacheShare, Kind, allocate, allocate_prefixes, savings};
use morphgl_graph_store::Topology;
use morphgl_registry::NeighborSettings;

use crate::typed::Extra;

/// Bit of a row's start that marks a cached row, and lowest bit of the number of the part that has it.
pub(crate) const CACHED: u64 = 1 << 63;
pub(crate) const PART: u32 = 56;

/// The selected rows, and how the device finds them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectedRows {
    /// `None` where they are those of the first `rows` nodes: a node's number is compared, and the offsets are the graph's.
    pub(crate) tables: Option<RowTables>,
    /// Number of cached rows.
    pub rows: u64,
    /// Number of edges of cached rows.
    pub edges: u64,
    /// Bytes of memory of the device for rows and tables, of several devices of the one with most.
    pub bytes: u64,
    /// Number of edges of the rows of each part, one per device.
    pub(crate) part_edges: Vec<u64>,
}

/// Lookup tables for cached rows whose nodes are not simply the first ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RowTables {
    // Invariant: one of both per node; marked starts are the number of a part and an offset into its rows, which are packed in node
    // order.
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

    /// The number of the part that has the row of `node`, if it is cached.
    pub(crate) fn part(&self, node: u32) -> Option<usize> {
        let start = self.tables.as_ref().map_or(0, |tables| tables.starts[node as usize]);
        self.contains(node).then_some(((start & !CACHED) >> PART) as usize)
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
    /// Number of devices that cache them, each other rows.
    pub(crate) num_devices: usize,
    /// What sampling by edge type takes besides.
    pub(crate) extra: Extra,
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
        4 + 4 * u64::from(self.topology.weights().is_some()) + self.extra.per_edge
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

    /// As [`CsrRows::reads`], of the rows that fit each of the ascending `budgets` of every device, in one pass.
    pub(crate) fn reads_within(&self, budgets: &[u64]) -> Vec<f64> {
        let (saving, bytes) = (|v: u32| self.saving(v), |v: u32| self.bytes(v));
        let (tables, num_devices) = (self.table_bytes(), self.num_devices as u64);
        let all = |&budget: &u64| {
            budget.checked_sub(tables).map_or(budget, |rows| tables.saturating_add(rows.saturating_mul(num_devices)))
        };
        let budgets: Vec<u64> = budgets.iter().map(all).collect();
        savings(self.topology.num_nodes() as u32, [Kind { saving: &saving, bytes: &bytes, tables }], &budgets)
    }

    /// Selection of the rows to which `part` assigns one of `num_parts` parts, packed within each part in node order, with lookup tables
    /// of all nodes.
    fn packed(&self, num_parts: usize, part: impl Fn(u32) -> Option<usize>) -> SelectedRows {
        let num_nodes = self.topology.num_nodes();
        let (mut rows, mut part_edges) = (0, vec![0; num_parts]);
        let (mut starts, mut lens) = (Vec::with_capacity(num_nodes), Vec::with_capacity(num_nodes));
        for v in 0..num_nodes as u32 {
            let degree = self.topology.degree(v);
            lens.push(degree as u32);
            starts.push(match part(v) {
                Some(part) => CACHED | (part as u64) << PART | part_edges[part],
                None => self.topology.edge_range(v).start as u64,
            });
            if let Some(part) = part(v) {
                rows += 1;
                part_edges[part] += degree;
            }
        }
        let most = part_edges.iter().copied().max().unwrap_or(0);
        let bytes = self.tables(false) + self.edge_bytes() * most;
        let (tables, edges) = (Some(RowTables { starts, lens }), part_edges.iter().sum());
        SelectedRows { tables, rows, edges, bytes, part_edges }
    }

    /// Bytes of the tables where the best case for their size holds: on one device the rows of the first nodes of a reordered graph.
    fn table_bytes(&self) -> u64 {
        self.tables(self.num_devices == 1 && self.topology.draw_keys().is_some())
    }

    /// As [`table_bytes`], with what sampling by edge type takes of all nodes.
    fn tables(&self, of_first_nodes: bool) -> u64 {
        table_bytes(self.topology, of_first_nodes) + self.extra.of_nodes
    }

    /// Bytes of each device that all rows and their tables take.
    pub(crate) fn all_bytes(&self) -> u64 {
        self.table_bytes() + (self.edge_bytes() * self.topology.num_edges()).div_ceil(self.num_devices as u64)
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
    select_of(&CsrRows { topology, hotness, hops, num_devices: 1, extra: Extra::default() }, budget)
}

/// As [`select_rows`], of rows with what sampling by edge type takes besides.
pub(crate) fn select_of(rows: &CsrRows<'_>, budget: u64) -> Option<SelectedRows> {
    let topology = rows.topology;
    let num_nodes = topology.num_nodes();
    assert_eq!(rows.hotness.len(), num_nodes, "hotness and nodes");
    let (saving, bytes, edge) = (|v: u32| rows.saving(v), |v: u32| rows.bytes(v), rows.edge_bytes());
    let kind = Kind { saving: &saving, bytes: &bytes, tables: 0 };

    let tables = rows.tables(false);
    let any = budget.checked_sub(tables).map(|budget| {
        let [share] = allocate(num_nodes as u32, [kind], budget);
        share
    });
    let first_tables = rows.tables(true);
    let first = topology.draw_keys().and_then(|_| budget.checked_sub(first_tables)).map(|budget| {
        let nothing = Kind { saving: &|_| 0.0, bytes: &|_| u64::MAX, tables: 0 };
        let [share, _] = allocate_prefixes(num_nodes as u32, [kind, nothing], budget);
        share
    });
    let saved = |share: &Option<CacheShare>| share.as_ref().map_or(0.0, |share| share.saving);
    if let Some(first) = first.filter(|first| any.as_ref().is_none_or(|any| saved(first) >= saved(any))) {
        let num_rows = first.map_or(0, |share| share.map.len());
        let edges = topology.indptr()[num_rows];
        let (rows, bytes, part_edges) = (num_rows as u64, first_tables + edge * edges, vec![edges]);
        return Some(SelectedRows { tables: None, rows, edges, bytes, part_edges });
    }

    let share = any?;
    let is_selected = |v: u32| share.as_ref().is_some_and(|share| share.map.get(v).is_some());
    Some(rows.packed(1, |v| is_selected(v).then_some(0)))
}

/// As [`select_rows`], for several devices that hold different rows, each within `budget` beside its own tables: as many times the
/// rows of one. The rows that save most are assigned first, each to the device with the most room, so that their reads are spread as
/// their bytes are; one that fits nowhere is left out. `None` if the tables exceed the budget.
pub(crate) fn select_spread(rows: &CsrRows<'_>, budget: u64) -> Option<SelectedRows> {
    let CsrRows { topology, num_devices, .. } = *rows;
    let tables = rows.tables(false);
    let room = budget.checked_sub(tables)?;
    let (saving, bytes) = (|v: u32| rows.saving(v), |v: u32| rows.bytes(v));
    let kind = Kind { saving: &saving, bytes: &bytes, tables: 0 };
    let [share] = allocate(topology.num_nodes() as u32, [kind], room.saturating_mul(num_devices as u64));
    let mut nodes: Vec<u32> = share.iter().flat_map(|share| share.map.nodes()).collect();
    nodes.sort_by(|&a, &b| rows.saving(b).total_cmp(&rows.saving(a)));
    let mut parts = vec![u8::MAX; topology.num_nodes()];
    let mut left = vec![room; num_devices];
    for node in nodes {
        let most = (0..num_devices).rev().max_by_key(|&part| left[part]).expect("a device");
        if let Some(rest) = left[most].checked_sub(rows.bytes(node)) {
            (left[most], parts[node as usize]) = (rest, most as u8);
        }
    }
    Some(rows.packed(num_devices, |v| Some(parts[v as usize] as usize).filter(|&part| part < num_devices)))
}

#[cfg(test)]
mod tests;
