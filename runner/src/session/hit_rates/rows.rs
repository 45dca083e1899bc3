//! Feature rows in a static cache, by node type.

use std::ops::Range;

use morphgl_graph_store::{Dataset, FeatureMatrix};
use morphgl_hotness::{entries_within, hottest};

/// The feature rows of a node type, or of all nodes of a graph without types.
#[derive(Debug, Clone)]
pub(crate) struct RowsOfType {
    /// Name of the type; `None` in a graph without types.
    pub(crate) name: Option<String>,
    pub(crate) nodes: Range<u32>,
    /// Bytes of a row; 0 where the type has no features.
    pub(crate) row_bytes: u64,
}

/// The feature rows of a dataset.
#[derive(Debug)]
pub(crate) struct Rows {
    pub(crate) types: Vec<RowsOfType>,
    /// Bytes of a row, where all nodes have rows of one matrix, or none has any.
    pub(crate) row_bytes: Option<u64>,
}

/// What a static cache has of the rows of a type.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CachedOfType {
    /// Number of cached rows.
    pub(crate) rows: u64,
    /// Accesses of these rows.
    pub(crate) hits: f64,
}

impl Rows {
    pub(crate) fn of(dataset: &Dataset) -> Self {
        let by_type = &dataset.features_by_type;
        let bytes = |matrix: Option<&FeatureMatrix>| matrix.map_or(0, |matrix| matrix.row_bytes() as u64);
        let row_bytes = by_type.is_empty().then(|| bytes(dataset.features.as_ref()));
        let types = match dataset.topology.types() {
            None => vec![(None, 0..dataset.num_nodes() as u32)],
            Some(types) => {
                let named = types.node_types().iter().map(|of_type| Some(of_type.name.clone()));
                named.zip((0..).map(|number| types.range(number))).collect()
            }
        };
        let of_type = |(number, (name, nodes))| {
            let own = || bytes(by_type.get(number).and_then(Option::as_ref));
            RowsOfType { name, nodes, row_bytes: row_bytes.unwrap_or_else(own) }
        };
        Self { types: types.into_iter().enumerate().map(of_type).collect(), row_bytes }
    }

    /// Number of the type of a node.
    fn type_of(&self, node: u32) -> usize {
        self.types.partition_point(|of_type| of_type.nodes.end <= node)
    }

    /// Bytes of a node's row.
    pub(crate) fn bytes_of(&self, node: u32) -> u64 {
        self.row_bytes.unwrap_or_else(|| self.types[self.type_of(node)].row_bytes)
    }

    /// Number of rows, and their bytes.
    pub(crate) fn all(&self) -> (u64, u64) {
        let with_rows = self.types.iter().filter(|of_type| self.row_bytes.is_some() || of_type.row_bytes > 0);
        let sum = |(rows, bytes), of_type: &RowsOfType| {
            let count = of_type.nodes.len() as u64;
            (rows + count, bytes + count * of_type.row_bytes)
        };
        with_rows.fold((0, 0), sum)
    }

    /// The accesses of nodes that have rows; 0 of the others.
    pub(crate) fn accesses(&self, counted: &[f32]) -> Vec<f32> {
        let mut accesses = counted.to_vec();
        for of_type in self.types.iter().filter(|of_type| self.row_bytes.is_none() && of_type.row_bytes == 0) {
            accesses[of_type.nodes.start as usize..of_type.nodes.end as usize].fill(0.0);
        }
        accesses
    }

    /// The nodes in the order in which their rows are cached. A hit saves the bytes of its row, so that the saving per cached byte is the
    /// number of accesses, whatever the length of the row.
    pub(crate) fn order(&self, scores: &[f32]) -> Vec<u32> {
        let mut order = hottest(scores, usize::MAX);
        if self.row_bytes.is_none() {
            order.retain(|&node| self.bytes_of(node) > 0);
        }
        order
    }

    /// Number of rows, from the first of `order` on, that a cache of each of the `shares` has, in percent: of the rows, or where their
    /// lengths differ of their bytes.
    pub(crate) fn within(&self, order: &[u32], shares: &[f64]) -> Vec<usize> {
        let (rows, bytes) = self.all();
        let of = |all: u64| shares.iter().map(move |share| (all as f64 * share / 100.0).round() as u64);
        match self.row_bytes {
            Some(_) => of(rows).map(|rows| rows as usize).collect(),
            None => entries_within(order, |node| self.bytes_of(node), &of(bytes).collect::<Vec<_>>()),
        }
    }

    /// What the first `rows` nodes of `order` are, by type.
    pub(crate) fn cached(&self, accesses: &[f32], order: &[u32], rows: usize) -> Vec<CachedOfType> {
        let mut cached = vec![CachedOfType::default(); self.types.len()];
        for &node in &order[..rows.min(order.len())] {
            let of_type = &mut cached[self.type_of(node)];
            of_type.rows += 1;
            of_type.hits += f64::from(accesses[node as usize]);
        }
        cached
    }
}
