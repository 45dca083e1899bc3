//! The rows of a hop, divided into sub-rows of one edge type each.

use std::ops::Range;

use morphgl_graph_store::{Topology, Types};
use morphgl_platform::prefetch_early;
use rayon::prelude::*;

use super::expand::{CsrRow, CsrRows, RowPicker};

/// Where the sub-row of each edge type ends in the row of each node: one read per node, where the types of its edges would be searched.
#[derive(Debug)]
pub struct SubRowEnds {
    node_types: Vec<InTypes>,
    /// Ends of the sub-rows of a node, from the start of its row, node after node.
    ends: Vec<u32>,
}

/// The edge types that lead to the nodes of one type.
#[derive(Debug)]
struct InTypes {
    nodes: Range<u32>,
    edge_types: Vec<u16>,
    /// Index of the first end of the first node.
    base: usize,
}

impl SubRowEnds {
    /// The ends in a graph; `None` in a graph without types, and in one of so many edge types that the table would be larger than the
    /// types of the edges.
    ///
    /// # Complexity
    ///
    /// O(nodes + edges) time on the threads of the current rayon pool; four bytes per node and edge type that leads to its type, at most
    /// two per edge.
    pub fn new(topology: &Topology) -> Option<Self> {
        Self::within(topology, 2 * topology.num_edges())
    }

    /// As [`SubRowEnds::new`], of at most so many bytes.
    pub fn within(topology: &Topology, max_bytes: u64) -> Option<Self> {
        let types = topology.types()?;
        if Self::num_bytes_of(types) > max_bytes {
            return None;
        }
        let Self { node_types, mut ends } = Self::empty(types);
        let mut rest = &mut ends[..];
        for InTypes { nodes, edge_types, .. } in &node_types {
            let width = edge_types.len();
            let (of_type, later) = rest.split_at_mut(nodes.len() * width);
            rest = later;
            of_type.par_chunks_mut(width.max(1)).zip(nodes.clone()).for_each(|(ends, node)| {
                let start = topology.edge_range(node).start;
                let mut end = 0;
                let mut sub_rows = topology.sub_rows(node).peekable();
                for (out, &edge_type) in ends.iter_mut().zip(edge_types) {
                    if let Some((_, row)) = sub_rows.next_if(|(number, _)| *number == usize::from(edge_type)) {
                        end = (row.end - start) as u32;
                    }
                    *out = end;
                }
            });
        }
        Some(Self { node_types, ends })
    }

    /// Bytes of the ends in a graph of these types.
    pub fn num_bytes_of(types: &Types) -> u64 {
        let leads_to = |edge_type| types.range(types.ends(edge_type)[1]).len() as u64;
        4 * (0..types.edge_types().len()).map(leads_to).sum::<u64>()
    }

    /// The ends in a graph of these types without edges, for [`SubRowEnds::extend`].
    pub fn empty(types: &Types) -> Self {
        let (mut node_types, mut base) = (Vec::new(), 0);
        for number in 0..types.node_types().len() {
            let leads_here = |edge_type: &u16| types.ends(usize::from(*edge_type))[1] == number;
            let edge_types: Vec<u16> = (0..=u16::MAX).take(types.edge_types().len()).filter(leads_here).collect();
            let nodes = types.range(number);
            let num_ends = nodes.len() * edge_types.len();
            node_types.push(InTypes { nodes, edge_types, base });
            base += num_ends;
        }
        Self { node_types, ends: vec![0; base] }
    }

    /// Appends edges of these types to the row of a node, which has `first` edges.
    ///
    /// # Errors
    ///
    /// The index of an edge whose type does not lead to the type of the node, or comes after one of a later type.
    pub fn extend(&mut self, node: u32, first: u32, edge_types: &[u16]) -> Result<(), usize> {
        let Self { node_types, ends } = self;
        let (known, range) = find(node_types, node);
        let ends = &mut ends[range];
        let (mut end, mut index) = (first, 0);
        for run in edge_types.chunk_by(|a, b| a == b) {
            // Types after one with edges have its end.
            let later = known.binary_search(&run[0]).ok().map(|place| &mut ends[place..]);
            let Some(later) = later.filter(|later| later[0] == end) else { return Err(index) };
            end += run.len() as u32;
            later.fill(end);
            index += run.len();
        }
        Ok(())
    }

    /// The sub-rows of a node by positions in its row; types without edges are left out.
    pub fn sub_rows(&self, node: u32) -> impl Iterator<Item = (u16, Range<u32>)> + '_ {
        let (edge_types, ends) = self.of(node);
        let mut start = 0;
        let sub_rows = edge_types.iter().zip(&self.ends[ends]).map(move |(&edge_type, &end)| {
            let first = std::mem::replace(&mut start, end);
            (edge_type, first..end)
        });
        sub_rows.filter(|(_, positions)| !positions.is_empty())
    }

    /// The ends of the sub-rows of a node, one per edge type that leads to its type.
    pub fn ends_of(&self, node: u32) -> &[u32] {
        &self.ends[self.of(node).1]
    }

    /// The ends of all nodes, node after node.
    pub fn ends(&self) -> &[u32] {
        &self.ends
    }

    /// The nodes of each node type, the edge types that lead to them, and the index in [`SubRowEnds::ends`] of the first end of the first
    /// of them.
    pub fn node_types(&self) -> impl Iterator<Item = (Range<u32>, &[u16], usize)> {
        self.node_types.iter().map(|InTypes { nodes, edge_types, base }| (nodes.clone(), &**edge_types, *base))
    }

    /// Bytes of the ends.
    pub fn num_bytes(&self) -> u64 {
        4 * self.ends.len() as u64
    }

    #[inline(always)]
    fn of(&self, node: u32) -> (&[u16], Range<usize>) {
        find(&self.node_types, node)
    }
}

/// Edge types, and indices of the ends, of a node.
#[inline(always)]
fn find(node_types: &[InTypes], node: u32) -> (&[u16], Range<usize>) {
    let of_type = node_types.iter().find(|of_type| node < of_type.nodes.end);
    let InTypes { nodes, edge_types, base } = of_type.expect("a node of the graph");
    let first = base + (node - nodes.start) as usize * edge_types.len();
    (edge_types, first..first + edge_types.len())
}

/// Prefetch distance of the edges' types, in rows.
const AHEAD: usize = 16;

/// The sub-rows of the rows of a hop, and the offsets of their edges in the block; types whose edges are not sampled are left out.
#[derive(Debug, Default)]
pub(crate) struct SubRows {
    csr: Vec<CsrRow>,
    types: Vec<u16>,
    indptr: Vec<u64>,
    /// The offsets, once it is known that they fit.
    offsets: Vec<u32>,
    /// Number of edges of each row.
    counts: Vec<u64>,
}

impl SubRows {
    fn clear(&mut self) {
        let Self { csr, types, indptr, counts, .. } = self;
        csr.clear();
        types.clear();
        indptr.clear();
        indptr.push(0);
        counts.clear();
    }

    /// As [`SubRows::divide`], by the ends of the sub-rows of each of `nodes`.
    pub(crate) fn divide_by(&mut self, rows: &[CsrRow], nodes: &[u32], table: &SubRowEnds, picker: &RowPicker<'_>) {
        self.clear();
        let Self { csr, types, indptr, counts, .. } = self;
        let mut end = 0;
        for (i, &row) in rows.iter().enumerate() {
            if let Some(&later) = nodes.get(i + AHEAD) {
                prefetch_early(&table.ends, table.of(later).1.start);
            }
            let (before, mut start) = (end, 0);
            let (edge_types, ends) = table.of(nodes[i]);
            for (&edge_type, &next) in edge_types.iter().zip(&table.ends[ends]) {
                let first = std::mem::replace(&mut start, next);
                let Some(picks) = picker.picks_of(edge_type).filter(|_| first < next) else { continue };
                let sub_row = row.sub_row(first..next, picker);
                let count = picker.count_of(&picks, sub_row);
                if count > 0 {
                    end += count;
                    csr.push(sub_row);
                    types.push(edge_type);
                    indptr.push(end);
                }
            }
            counts.push(end - before);
        }
    }

    /// Divides `rows`, whose edges have types in the order of the graph's indices, for the picks of `picker`.
    pub(crate) fn divide(&mut self, rows: &[CsrRow], edge_types: &[u16], picker: &RowPicker<'_>) {
        self.clear();
        let Self { csr, types, indptr, counts, .. } = self;
        let mut end = 0;
        for (i, &row) in rows.iter().enumerate() {
            if let Some(later) = rows.get(i + AHEAD) {
                prefetch_early(edge_types, later.start as usize);
            }
            let before = end;
            let (first, degree) = row.whole(picker);
            let whole = &edge_types[first as usize..first as usize + degree as usize];
            let mut rest = whole;
            while let Some(&edge_type) = rest.first() {
                // Most rows have edges of one type, or few.
                let is_last = rest[rest.len() - 1] == edge_type;
                let degree = if is_last { rest.len() } else { rest.partition_point(|&other| other == edge_type) };
                let start = whole.len() - rest.len();
                rest = &rest[degree..];
                if let Some(picks) = picker.picks_of(edge_type) {
                    let sub_row = row.sub_row(start as u32..(start + degree) as u32, picker);
                    let count = picker.count_of(&picks, sub_row);
                    if count > 0 {
                        end += count;
                        csr.push(sub_row);
                        types.push(edge_type);
                        indptr.push(end);
                    }
                }
            }
            counts.push(end - before);
        }
    }

    /// Number of edges of each row.
    pub(crate) fn counts(&self) -> impl ExactSizeIterator<Item = u64> + '_ {
        self.counts.iter().copied()
    }

    /// Sets the types of the edges of a block, all of which fit 32-bit offsets.
    pub(crate) fn begin(&mut self, edge_types: &mut Vec<u16>) {
        self.offsets.clear();
        self.offsets.extend(self.indptr.iter().map(|&end| end as u32));
        edge_types.clear();
        for (&edge_type, ends) in self.types.iter().zip(self.indptr.windows(2)) {
            edge_types.resize(ends[1] as usize, edge_type);
        }
    }

    /// The sub-rows.
    pub(crate) fn rows(&self) -> CsrRows<'_> {
        CsrRows { csr: &self.csr, indptr: &self.offsets, types: &self.types }
    }
}
