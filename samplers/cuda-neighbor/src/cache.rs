//! Adjacency cache: a static selection of CSR rows for device memory by hotness, within a budget.

use morphgl_graph_store::Topology;
use morphgl_hotness::{Cut, Kind};
use morphgl_registry::SamplerSettings;

/// Bytes per node of the lookup tables: start and length of its row.
pub const ROW_TABLE_BYTES: u64 = 12;

/// Bit of a row's start that marks a cached row.
pub(crate) const CACHED: u64 = 1 << 63;

/// The selection, as the device's lookup tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filled {
    // Invariant: one of both per node; marked starts are offsets into the cached rows, which are packed in node order.
    pub(crate) starts: Vec<u64>,
    pub(crate) lens: Vec<u32>,
    rows: u64,
    edges: u64,
    bytes: u64,
}

impl Filled {
    /// Whether the row of `node` is cached.
    pub fn holds(&self, node: u32) -> bool {
        self.starts[node as usize] & CACHED != 0
    }

    /// Number of cached rows.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Number of edges of cached rows.
    pub fn edges(&self) -> u64 {
        self.edges
    }

    /// Bytes of device memory for rows and tables.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Greedy knapsack over CSR rows: bus reads saved per byte. `hotness` is the number of accesses of each row in an epoch;
/// each saves as many reads as a hop takes neighbours, averaged over the hops.
///
/// All device memory is charged to `budget`: rows (with weights, if any), tables of [`ROW_TABLE_BYTES`] per node, and the
/// weight sum per node. `None` if the budget has no room for the tables.
///
/// Callers that divide device memory between features and rows pass the rows' part as the budget.
///
/// # Panics
///
/// When `hotness` does not have one value per node.
///
/// # Complexity
///
/// Three passes over the nodes; 12 bytes per node.
pub fn fill(topology: &Topology, hotness: &[f32], settings: &SamplerSettings, budget: u64) -> Option<Filled> {
    let num_nodes = topology.num_nodes();
    assert_eq!(hotness.len(), num_nodes, "hotness and nodes");
    let (edge, node) = if topology.weights().is_some() { (8, ROW_TABLE_BYTES + 4) } else { (4, ROW_TABLE_BYTES) };
    let tables = node * num_nodes as u64;
    let room = budget.checked_sub(tables)?;
    let fanouts = &settings.fanouts.0;
    let reads = |degree: u64| fanouts.iter().map(|f| f.take(degree) as f32).sum::<f32>() / fanouts.len() as f32;
    let saving = |v: u32| hotness[v as usize] * reads(topology.degree(v));
    let bytes = |v: u32| edge * topology.degree(v);
    let kind = Kind { saving: &saving, bytes: &bytes };
    let mut cut = Cut::new(num_nodes as u32, std::slice::from_ref(&kind), room);
    let (mut rows, mut edges) = (0, 0);
    let (mut starts, mut lens) = (Vec::with_capacity(num_nodes), Vec::with_capacity(num_nodes));
    for v in 0..num_nodes as u32 {
        let degree = topology.degree(v);
        lens.push(degree as u32);
        if cut.holds(&kind, v) {
            starts.push(CACHED | edges);
            rows += 1;
            edges += degree;
        } else {
            starts.push(topology.edge_range(v).start as u64);
        }
    }
    Some(Filled { starts, lens, rows, edges, bytes: tables + edge * edges })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn star() -> Topology {
        // Node 0 has four in-neighbours, the others one each.
        Topology::new(vec![0u64, 4, 5, 6, 7, 8], vec![1u32, 2, 3, 4, 0, 0, 0, 0], None).expect("five nodes")
    }

    #[track_caller]
    fn check(hotness: &[f32], fanouts: &str, budget: u64, expected: Option<&[u32]>) {
        let settings = SamplerSettings { fanouts: fanouts.parse().expect("fanouts"), ..Default::default() };
        let filled = fill(&star(), hotness, &settings, budget);
        let held = filled.as_ref().map(|f| (0..5).filter(|&v| f.holds(v)).collect::<Vec<u32>>());
        assert_eq!(held.as_deref(), expected);
        if let Some(filled) = filled {
            assert!(filled.bytes() <= budget, "{} of {budget} bytes", filled.bytes());
            assert_eq!(filled.bytes(), 60 + 4 * filled.edges());
        }
    }

    #[test]
    fn the_tables_are_charged_first() {
        check(&[1.0; 5], "1", 59, None);
        check(&[1.0; 5], "1", 63, Some(&[]));
        check(&[0.0, 0.0, 1.0, 0.0, 0.0], "1", 64, Some(&[2]));
    }

    #[test]
    fn a_read_saved_a_byte_decides() {
        // With fanout 1, a row of four edges saves per byte a quarter of what a row of one edge saves.
        check(&[3.0, 1.0, 1.0, 1.0, 1.0], "1", 76, Some(&[1, 2, 3, 4]));
        check(&[3.0, 1.0, 1.0, 1.0, 1.0], "-1", 76, Some(&[0]));
        check(&[3.0, 1.0, 0.0, 1.0, 1.0], "-1", 1000, Some(&[0, 1, 3, 4]));
    }
}
