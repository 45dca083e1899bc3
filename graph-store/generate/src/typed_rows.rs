//! Rows of a typed topology: of each edge type the rows of a block, and then one after the other in each row.

use morphgl_platform::{PagePool, Pages};

use crate::memory::{BlockMemory, mapped};
use crate::node_data::LABELS;
use crate::rows::{Buffers, Edges, SortedRows};

/// Consecutive rows, each sorted by edge type and then by source node, without duplicates of a type.
#[derive(Debug)]
pub(crate) struct TypedRows {
    degrees: Pages,
    indices: Pages,
    edge_types: Pages,
}

/// Buffers in which the rows of a block are drawn, sorted and merged, reused for all blocks.
#[derive(Debug)]
pub(crate) struct TypedBuffers {
    of_type: Buffers,
    degrees: PagePool,
    indices: PagePool,
    edge_types: PagePool,
    /// Capacity in edges of merged rows, as a rule.
    max_edges: usize,
}

impl TypedRows {
    pub(crate) fn degrees(&self) -> &[u32] {
        bytemuck::cast_slice(&self.degrees)
    }

    pub(crate) fn indices(&self) -> &[u32] {
        bytemuck::cast_slice(&self.indices)
    }

    pub(crate) fn edge_types(&self) -> &[u16] {
        bytemuck::cast_slice(&self.edge_types)
    }
}

impl TypedBuffers {
    /// For nodes of at most `max_types` edge types, and blocks of at most `max_edges` edges of each, as a rule.
    pub(crate) fn new(max_types: usize, max_edges: u64) -> Self {
        let [degrees, indices, edge_types] = std::array::from_fn(|_| PagePool::new());
        let all = usize::try_from(max_edges).unwrap_or(usize::MAX / 64).saturating_mul(max_types);
        Self { of_type: Buffers::new(max_edges), degrees, indices, edge_types, max_edges: all }
    }

    /// Bytes of blocks of at most `rows` rows: those of each edge type until they are merged, and then six bytes per edge.
    pub(crate) fn memory(rows: u64, max_types: usize, max_edges: u64) -> BlockMemory {
        let (of_type, types) = (Buffers::memory(rows, max_edges), max_types as u64);
        let all = max_edges.saturating_mul(types);
        let merged = mapped(all.saturating_mul(4)).saturating_add(mapped(all.saturating_mul(2)));
        BlockMemory {
            scratch: of_type.scratch.saturating_add(of_type.block.saturating_mul(types)),
            block: merged.saturating_add(mapped(rows * 4)),
        }
    }

    /// Bytes of a block of labels, times, each split's nodes, which are as many at most, and with a task nodes and times of its rows.
    pub(crate) fn labels_memory(has_task: bool) -> BlockMemory {
        let [of_ids, of_times] = [4, 8].map(|bytes| mapped(bytes * LABELS as u64));
        let of_rows = if has_task { of_ids + of_times } else { 0 };
        BlockMemory { scratch: 0, block: 4 * of_ids + of_times + of_rows }
    }

    /// The rows of one edge type: [`Buffers::rows`].
    pub(crate) fn rows(&self, first: u32, len: usize, draw: impl Fn(&mut Edges<'_>)) -> SortedRows {
        self.of_type.rows(first, len, draw)
    }

    /// Merges the `len` rows of several edge types, which ascend.
    pub(crate) fn merge(&self, len: usize, parts: &[(u16, SortedRows)]) -> TypedRows {
        let count: usize = parts.iter().map(|(_, rows)| rows.indices().len()).sum();
        let (mut degrees, mut indices, mut types) = (self.degrees.take(), self.indices.take(), self.edge_types.take());
        // The full capacity, or a later block would need another buffer.
        indices.resize(4 * count.max(self.max_edges));
        types.resize(2 * count.max(self.max_edges));
        {
            let by_row: &mut [u32] = bytemuck::cast_slice_mut(degrees.resize(4 * len));
            let (out, out_types): (&mut [u32], &mut [u16]) = (
                bytemuck::cast_slice_mut(indices.resize(4 * count)),
                bytemuck::cast_slice_mut(types.resize(2 * count)),
            );
            let (mut starts, mut end) = (vec![0; parts.len()], 0);
            for (row, total) in by_row.iter_mut().enumerate() {
                let start = end;
                for ((edge_type, rows), at) in parts.iter().zip(&mut starts) {
                    let degree = rows.degrees()[row] as usize;
                    out[end..end + degree].copy_from_slice(&rows.indices()[*at..*at + degree]);
                    out_types[end..end + degree].fill(*edge_type);
                    *at += degree;
                    end += degree;
                }
                *total = (end - start) as u32;
            }
        }
        TypedRows { degrees, indices, edge_types: types }
    }
}
