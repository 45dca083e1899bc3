//! A block's edges grouped by type.
//!
//! A group has the rows that one weight multiplies. Those of an edge type are means of the sources' rows, one for each destination with
//! such edges; those of a node type are the rows of the destinations themselves. A destination's output is the sum of the products of
//! its rows in all groups.

use std::ops::Range;

use morphgl_graph_store::Types;
use morphgl_model_core::ModelKind;
use morphgl_registry::Block;

use super::TransposedEdges;
use crate::buffer::resize;
use crate::csr::{Sorted, sort_by_source};
use crate::rows::NodeIds;
use crate::spmm::Csr;

mod relations;

pub(crate) use relations::{Relation, Relations};

/// Groups the edges of a block for a kind of model; the first of `nodes` are its destinations.
///
/// # Panics
///
/// As [`Groups::prepare`].
pub(crate) fn group(kind: ModelKind, types: &Types, block: &Block, nodes: &[u32], groups: &mut Groups) {
    let own = match kind {
        ModelKind::Rgcn => 1,
        ModelKind::Rsage => types.node_types().len(),
        _ => 0,
    };
    groups.prepare((types, own), block, nodes);
    if kind == ModelKind::Rgat {
        groups.divide();
    }
}

/// Rows that one weight multiplies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    /// The weight: the number of an edge type, or the number of edge types plus that of a destination's own part.
    pub(crate) weight: usize,
    pub(crate) rows: Range<usize>,
}

/// The groups of a block, in the order of their weights, with the rows of each in the order of their destinations.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    pub(crate) list: Vec<Group>,
    /// Offsets of the rows' entries.
    pub(super) indptr: Vec<u32>,
    /// The source of each entry.
    pub(super) columns: Vec<u32>,
    /// Coefficient of each entry in its row's mean.
    pub(super) coefficients: Vec<f32>,
    /// The row of each entry in the features of its edge type, where the block has the edges' ids.
    pub(crate) edge_ids: Vec<u32>,
    /// The destination of each row, or of each row of attention's output.
    pub(crate) ends: Vec<u32>,
    /// Offsets of the destinations' rows, and the rows.
    rows_indptr: Vec<u32>,
    rows: Vec<u32>,
    /// The node type of each destination.
    pub(crate) node_types: Vec<u32>,
    pub(super) num_src: usize,
    transposed: TransposedEdges,
    /// The edges by type, which attention reads (R-GAT).
    pub(crate) relations: Relations,
    pub(super) scratch: Vec<u32>,
    /// The next row and the next entry of each weight.
    next: Vec<[usize; 2]>,
}

impl Groups {
    /// Groups the edges of a block, whose destinations are the first of `nodes`. Their own parts have one weight, or one per node type, or
    /// none.
    ///
    /// # Panics
    ///
    /// When the block has no edge types, or one that is not among the types.
    pub(crate) fn prepare(&mut self, (types, own): (&Types, usize), block: &Block, nodes: &[u32]) {
        let edge_types = block.edge_types.as_deref().expect("a block with edge types");
        let num_types = types.edge_types().len();
        self.num_src = block.num_src;
        self.node_types.clear();
        self.node_types.extend(nodes[..block.num_dst].iter().map(|&node| types.node_type(node) as u32));
        let own_weight = |node_type: u32| (own > 0).then(|| num_types + if own > 1 { node_type as usize } else { 0 });
        self.next.clear();
        self.next.resize(num_types + own, [0; 2]);
        for row in 0..block.num_dst {
            for of_type in of_types(block, edge_types, row) {
                let [rows, entries] = &mut self.next[usize::from(edge_types[of_type.start])];
                *rows += 1;
                *entries += of_type.len();
            }
            if let Some(weight) = own_weight(self.node_types[row]) {
                self.next[weight].iter_mut().for_each(|count| *count += 1);
            }
        }
        self.list.clear();
        let mut ends = [0; 2];
        for (weight, next) in self.next.iter_mut().enumerate() {
            let counts = std::mem::replace(next, ends);
            ends = [ends[0] + counts[0], ends[1] + counts[1]];
            if counts[0] > 0 {
                self.list.push(Group { weight, rows: next[0]..ends[0] });
            }
        }
        let [num_rows, num_entries] = ends;
        resize(&mut self.indptr, num_rows + 1);
        resize(&mut self.ends, num_rows);
        resize(&mut self.columns, num_entries);
        resize(&mut self.coefficients, num_entries);
        resize(&mut self.edge_ids, if block.edge_ids.is_some() { num_entries } else { 0 });
        self.indptr[num_rows] = num_entries as u32;
        self.rows_indptr.clear();
        self.rows.clear();
        for row in 0..block.num_dst {
            self.rows_indptr.push(self.rows.len() as u32);
            for of_type in of_types(block, edge_types, row) {
                let entries = self.push(usize::from(edge_types[of_type.start]), row, of_type.len());
                self.columns[entries.clone()].copy_from_slice(&block.indices[of_type.clone()]);
                if let Some(ids) = &block.edge_ids {
                    self.edge_ids[entries.clone()].copy_from_slice(&ids[of_type.clone()]);
                }
                shares(block, of_type, &mut self.coefficients[entries]);
            }
            if let Some(weight) = own_weight(self.node_types[row]) {
                let entries = self.push(weight, row, 1);
                self.columns[entries.start] = row as u32;
                self.coefficients[entries.start] = 1.0;
            }
        }
        self.rows_indptr.push(self.rows.len() as u32);
    }

    /// Adds a row of a destination to the group of a weight; returns its entries.
    fn push(&mut self, weight: usize, end: usize, entries: usize) -> Range<usize> {
        let [row, entry] = &mut self.next[weight];
        let (at, first) = (*row, *entry);
        *row += 1;
        *entry += entries;
        self.ends[at] = end as u32;
        self.indptr[at] = first as u32;
        self.rows.push(at as u32);
        first..first + entries
    }

    /// Divides the edges into a relation per type. The groups are then of the rows of the sources of each, its destinations first.
    pub(crate) fn divide(&mut self) {
        let mut relations = std::mem::take(&mut self.relations);
        relations.divide(self);
        self.relations = relations;
    }

    pub(crate) fn num_rows(&self) -> usize {
        self.indptr.len() - 1
    }

    /// The sources of all rows' entries.
    pub(crate) fn columns(&self) -> &[u32] {
        &self.columns
    }

    /// The rows of all groups as sums of rows of the block's input, or of the store's `nodes`.
    pub(crate) fn csr<'a>(&'a self, nodes: Option<NodeIds<'a>>) -> Csr<'a> {
        let (columns, count) = nodes.map_or((&self.columns[..], self.num_src), |n| (n.of_edges, n.store.num_rows()));
        Csr::new((&self.indptr, columns, count), Some(&self.coefficients), None, None)
    }

    /// The output of the destinations as sums of the products of all rows, or of the rows of attention's output.
    pub(crate) fn sum(&self) -> Csr<'_> {
        Csr::new((&self.rows_indptr, &self.rows, self.ends.len()), None, None, None)
    }

    /// Sorts the entries by source.
    pub(crate) fn transpose(&mut self) {
        self.relations.transpose();
        let Self { indptr, columns, coefficients, transposed: t, .. } = self;
        resize(&mut t.rows, columns.len());
        resize(&mut t.coefficients, columns.len());
        let sorted = Sorted { rows: &mut t.rows, edges: &mut [], coefficients: &mut t.coefficients };
        let coefficient = |_, entry: usize| coefficients[entry];
        sort_by_source((indptr, columns, self.num_src), &mut t.indptr, &mut t.counts, sorted, &coefficient);
    }

    /// The gradient of each source as a sum of gradients of rows, and the number of sources.
    pub(crate) fn transposed(&self) -> (Csr<'_>, usize) {
        let TransposedEdges { indptr, rows, coefficients, .. } = &self.transposed;
        (Csr::new((indptr, rows, self.num_rows()), Some(coefficients), None, None), self.num_src)
    }
}

/// The edges of each type that end in a row.
fn of_types<'a>(block: &Block, edge_types: &'a [u16], row: usize) -> impl Iterator<Item = Range<usize>> + use<'a> {
    let (mut start, end) = (block.indptr[row] as usize, block.indptr[row + 1] as usize);
    edge_types[start..end].chunk_by(|a, b| a == b).map(move |of_type| {
        start += of_type.len();
        start - of_type.len()..start
    })
}

/// Writes the shares of edges in the mean over them, by their importance if they have it.
fn shares(block: &Block, edges: Range<usize>, out: &mut [f32]) {
    match block.weights.as_ref().filter(|_| block.importance) {
        Some(weights) => {
            let weights = &weights[edges];
            let sum = weights.iter().sum::<f32>();
            out.iter_mut().zip(weights).for_each(|(share, weight)| *share = weight / sum);
        }
        None => out.fill(1.0 / edges.len() as f32),
    }
}

/// Rows of a group that a task computes.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    /// Position of the group in the list.
    pub(crate) group: usize,
    pub(crate) rows: Range<usize>,
}

/// Divides groups into tasks of at most `size` rows.
pub(crate) fn divide(list: &[Group], size: usize, tasks: &mut Vec<Task>) {
    tasks.clear();
    for (group, Group { rows, .. }) in list.iter().enumerate() {
        let starts = rows.clone().step_by(size);
        tasks.extend(starts.map(|start| Task { group, rows: start..(start + size).min(rows.end) }));
    }
}

#[cfg(test)]
mod tests;
