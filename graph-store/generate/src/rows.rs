//! Rows of a topology from unsorted edges.

use morphgl_platform::{PagePool, Pages};

use crate::memory::{BlockMemory, mapped};

/// Consecutive rows: their degrees, and their source nodes row after row, sorted and without duplicates.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SortedRows {
    degrees: Pages,
    indices: Pages,
}

/// Buffers in which the rows of a block (a range of nodes) are drawn and sorted, reused for all blocks.
#[derive(Debug)]
pub(crate) struct Buffers {
    edges: PagePool,
    ends: PagePool,
    degrees: PagePool,
    indices: PagePool,
    /// Capacity in edges; a block with more is drawn again.
    max_edges: usize,
}

/// Sink of the edges that are drawn.
#[derive(Debug)]
pub(crate) struct Edges<'b> {
    buffer: &'b mut [[u32; 2]],
    /// Number of edges pushed, those beyond the buffer's end included.
    len: usize,
}

impl Edges<'_> {
    /// Appends the edge `from` → `to`.
    pub(crate) fn push(&mut self, to: u32, from: u32) {
        if let Some(slot) = self.buffer.get_mut(self.len) {
            *slot = [to, from];
        }
        self.len += 1;
    }
}

impl SortedRows {
    pub(crate) fn degrees(&self) -> &[u32] {
        bytemuck::cast_slice(&self.degrees)
    }

    pub(crate) fn indices(&self) -> &[u32] {
        bytemuck::cast_slice(&self.indices)
    }
}

impl Buffers {
    /// For blocks of at most `max_edges` edges, as a rule.
    pub(crate) fn new(max_edges: u64) -> Self {
        let max_edges = usize::try_from(max_edges).unwrap_or(usize::MAX / 64).max(1);
        let [edges, ends, degrees, indices] = std::array::from_fn(|_| PagePool::new());
        Self { edges, ends, degrees, indices, max_edges }
    }

    /// Bytes of blocks of at most `rows` rows and `max_edges` edges: eight bytes per edge as drawn, and four once
    /// sorted.
    pub(crate) fn memory(rows: u64, max_edges: u64) -> BlockMemory {
        let scratch = mapped(max_edges.saturating_mul(8)).saturating_add(mapped((rows + 1) * 8));
        BlockMemory { scratch, block: mapped(max_edges.saturating_mul(4)).saturating_add(mapped(rows * 4)) }
    }

    /// The rows `first .. first + len` of the edges that `draw` draws, the same ones in every call.
    pub(crate) fn rows(&self, first: u32, len: usize, draw: impl Fn(&mut Edges<'_>)) -> SortedRows {
        let mut buffer = self.edges.take();
        let mut max_edges = self.max_edges;
        loop {
            let mut edges = Edges { buffer: bytemuck::cast_slice_mut(buffer.resize(8 * max_edges)), len: 0 };
            draw(&mut edges);
            if edges.len <= max_edges {
                return self.assemble(first, len, &edges.buffer[..edges.len]);
            }
            max_edges = edges.len;
        }
    }

    /// Sorts `edges` of (destination, source) into the rows `first .. first + len`; drops self-loops and duplicates.
    ///
    /// # Complexity
    ///
    /// O(edges) for the counting sort by row, and a sort of each row; four bytes per edge and twelve per row.
    fn assemble(&self, first: u32, len: usize, edges: &[[u32; 2]]) -> SortedRows {
        let (mut ends, mut degrees, mut indices) = (self.ends.take(), self.degrees.take(), self.indices.take());
        let ends: &mut [u64] = bytemuck::cast_slice_mut(ends.resize(8 * (len + 1)));
        ends.fill(0);
        for &[to, from] in edges {
            ends[(to - first) as usize + 1] += u64::from(to != from);
        }
        for i in 0..len {
            ends[i + 1] += ends[i];
        }
        // The full capacity, or a later block would need another buffer.
        indices.resize(4 * edges.len().max(self.max_edges));
        let out: &mut [u32] = bytemuck::cast_slice_mut(&mut indices);
        // Scattering moves ends[r] from the start of row r to its end, which is the start of row r + 1.
        for &[to, from] in edges {
            if to != from {
                let end = &mut ends[(to - first) as usize];
                out[*end as usize] = from;
                *end += 1;
            }
        }
        let (mut start, mut kept) = (0, 0);
        let by_row: &mut [u32] = bytemuck::cast_slice_mut(degrees.resize(4 * len));
        for (degree, &end) in by_row.iter_mut().zip(&ends[..len]) {
            let end = end as usize;
            out[start..end].sort_unstable();
            let row = kept;
            for i in start..end {
                if kept == row || out[kept - 1] != out[i] {
                    out[kept] = out[i];
                    kept += 1;
                }
            }
            *degree = (kept - row) as u32;
            start = end;
        }
        indices.resize(4 * kept);
        SortedRows { degrees, indices }
    }
}

#[cfg(test)]
mod tests;
