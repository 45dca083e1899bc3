//! Rows of a topology from unsorted edges.

use morphgl_platform::{PagePool, Pages};

use crate::memory::{Piece, mapped};

/// Consecutive rows: their degrees, and their source nodes row after row, sorted and without duplicates.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Rows {
    degrees: Pages,
    indices: Pages,
}

/// Buffers, reused from block to block, so that no allocator keeps any.
#[derive(Debug)]
pub(crate) struct Buffers {
    edges: PagePool,
    ends: PagePool,
    degrees: PagePool,
    indices: PagePool,
    /// Edges that there is room for; more are drawn again.
    most: usize,
}

/// Takes edges as they are drawn.
#[derive(Debug)]
pub(crate) struct Edges<'b> {
    room: &'b mut [[u32; 2]],
    /// Edges that came, whether there was room for them or not.
    len: usize,
}

impl Edges<'_> {
    /// Takes the edge `from` → `to`.
    pub(crate) fn push(&mut self, to: u32, from: u32) {
        if let Some(slot) = self.room.get_mut(self.len) {
            *slot = [to, from];
        }
        self.len += 1;
    }
}

impl Rows {
    pub(crate) fn degrees(&self) -> &[u32] {
        bytemuck::cast_slice(&self.degrees)
    }

    pub(crate) fn indices(&self) -> &[u32] {
        bytemuck::cast_slice(&self.indices)
    }
}

impl Buffers {
    /// For blocks of at most `most` edges, as a rule.
    pub(crate) fn new(most: u64) -> Self {
        let most = usize::try_from(most).unwrap_or(usize::MAX / 64).max(1);
        let [edges, ends, degrees, indices] = std::array::from_fn(|_| PagePool::new());
        Self { edges, ends, degrees, indices, most }
    }

    /// Bytes of blocks of at most `rows` rows and `most` edges: eight bytes an edge as drawn, and four once sorted.
    pub(crate) fn piece(rows: u64, most: u64) -> Piece {
        let making = mapped(most.saturating_mul(8)).saturating_add(mapped((rows + 1) * 8));
        Piece { making, waiting: mapped(most.saturating_mul(4)).saturating_add(mapped(rows * 4)) }
    }

    /// The rows `first .. first + len` of what `draw` draws, which is the same whenever it is called.
    pub(crate) fn rows(&self, first: u32, len: usize, draw: impl Fn(&mut Edges<'_>)) -> Rows {
        let mut buffer = self.edges.take();
        let mut most = self.most;
        loop {
            let mut edges = Edges { room: bytemuck::cast_slice_mut(buffer.resize(8 * most)), len: 0 };
            draw(&mut edges);
            if edges.len <= most {
                let Edges { room, len: drawn } = edges;
                return self.assemble(first, len, &room[..drawn]);
            }
            most = edges.len;
        }
    }

    /// Sorts `edges` of (destination, source) into the rows `first .. first + len`; drops self-loops and duplicates.
    ///
    /// # Complexity
    ///
    /// O(edges) for the counting sort by row, and a sort of each row; four bytes an edge and twelve a row.
    fn assemble(&self, first: u32, len: usize, edges: &[[u32; 2]]) -> Rows {
        let (mut ends, mut degrees, mut indices) = (self.ends.take(), self.degrees.take(), self.indices.take());
        let ends: &mut [u64] = bytemuck::cast_slice_mut(ends.resize(8 * (len + 1)));
        ends.fill(0);
        for &[to, from] in edges {
            ends[(to - first) as usize + 1] += u64::from(to != from);
        }
        for i in 0..len {
            ends[i + 1] += ends[i];
        }
        // Room for the most there can be, or a later block would need another.
        indices.resize(4 * edges.len().max(self.most));
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
        Rows { degrees, indices }
    }
}

#[cfg(test)]
mod tests;
